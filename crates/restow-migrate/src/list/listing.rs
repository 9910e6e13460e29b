//! A list in chunks or as a stream.

use super::chunks::Chunks;
use super::pages::{Page, PageError};
use super::stream::Stream;

/// A list, in chunks or as a stream.
pub(crate) enum Listing<'a> {
    Chunks(Chunks<'a>),
    /// As one stream.
    Stream(Stream<'a>),
}

impl Listing<'_> {
    /// The next page. If a stream cannot go on, the list continues in chunks.
    pub(crate) async fn next(&mut self) -> Result<Page, PageError> {
        match self {
            Self::Chunks(chunks) => chunks.next().await,
            Self::Stream(stream) => match stream.next().await {
                Ok(page) => Ok(page),
                Err(why) => {
                    tracing::info!(%why, "listing in chunks instead of streaming");
                    *self = Self::Chunks(stream.in_chunks());
                    match self {
                        Self::Chunks(chunks) => chunks.next().await,
                        Self::Stream(_) => Ok(Page::default()),
                    }
                }
            },
        }
    }
}
