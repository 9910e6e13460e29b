//! Makes sure that objects which seemed deleted or changed, by a look-up of their names, are not listed as before.
//!
//! An object may be stored under another key than its name. A write by its name reaches another object or none, and so
//! does a look-up, but lists show it for ever.

use restow_core::progress::Progress;
use restow_core::token::{NEWEST, Token};

use crate::chunks::Chunks;
use crate::migration::{Failure, Migration, Observer};
use crate::pages::{Item, Page, Target};
use crate::rewrite::Tally;

/// How many objects are listed at once: two pages are in memory already.
const AT_ONCE: u32 = 50;

impl<O: Observer> Migration<'_, O> {
    /// Lists once more what a page showed, if some of its objects seemed gone or changed, and leaves those that are
    /// listed as before. The progress is that before the page.
    pub(crate) async fn confirm(
        &self,
        target: &Target,
        progress: &Progress,
        page: &Page,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let Some(last) = page.items.iter().map(Item::key).max().filter(|_| !tally.elsewhere.is_empty())
        else {
            return Ok(());
        };
        let mut listing = Chunks::new(
            self.cluster.server(),
            target,
            self.settings.page_size.min(AT_ONCE),
            start(progress).map(|start| start.encode()),
            self.observer,
            self.throttle,
        );
        let mut listed = 0;
        loop {
            let again = self.unless_stopped(listing.next()).await??;
            again.items.iter().for_each(|item| tally.still_listed(item));
            listed += again.items.len();
            // Keys are not those of the names everywhere, so that both have to be reached.
            let behind = again.items.last().is_some_and(|item| item.key() >= last);
            if again.last || (behind && listed >= page.items.len()) {
                return Ok(());
            }
        }
    }
}

/// Where the page began, as things are now.
fn start(progress: &Progress) -> Option<Token> {
    let token = progress.continue_token.as_deref().and_then(Token::decode);
    match token {
        Some(token) => Some(Token { resource_version: NEWEST, ..token }),
        None => progress.last_key.as_deref().map(|key| Token::behind(key, NEWEST)),
    }
}
