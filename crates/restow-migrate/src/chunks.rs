//! A list in chunks, which steps over objects that cannot be read.

use http::Method;
use restow_core::isolate::{Hunt, Shown};
use restow_core::outcome::backoff;
use restow_core::page::{Refusal, Step, step};
use restow_core::progress::Quarantined;
use restow_core::token::{NEWEST, Token};

use crate::pages::{Item, Page, PageError, Target, Waiting, refusal};
use crate::server::{METADATA_LIST, Server};
use crate::wire::List;

/// A list in chunks. It waits out what passes, and finds and steps over objects that cannot be read.
pub struct Chunks<'a> {
    server: &'a Server,
    target: &'a Target,
    waiting: &'a (dyn Waiting + Sync),
    page_size: u32,
    limit: u32,
    token: Option<String>,
    last_key: String,
    last_version: i64,
    behind: Option<u64>,
    unreadable: Vec<Quarantined>,
}

impl<'a> Chunks<'a> {
    /// A list that goes on from a token, or from the beginning.
    pub fn new(
        server: &'a Server,
        target: &'a Target,
        page_size: u32,
        token: Option<String>,
        waiting: &'a (dyn Waiting + Sync),
    ) -> Self {
        Self {
            server,
            target,
            waiting,
            page_size,
            limit: page_size,
            token,
            last_key: String::new(),
            last_version: NEWEST,
            behind: None,
            unreadable: Vec::new(),
        }
    }

    /// The next page. Its `next` is what `new` takes to go on behind it.
    pub async fn next(&mut self) -> Result<Page, PageError> {
        let mut tries = 0;
        loop {
            let refusal = match self.ask(self.limit, self.token.as_deref()).await {
                Ok(page) => return Ok(self.take(page)),
                Err(refusal) => refusal,
            };
            match step(&refusal, tries, self.token.is_some()) {
                Step::Wait(asked) => {
                    tries += 1;
                    let wait = backoff(tries, asked);
                    self.waiting.waiting(&refusal.message, wait);
                    tokio::time::sleep(wait).await;
                }
                Step::ContinueWith(token) => self.token = Some(token),
                Step::ContinueNewest => {
                    let token = self.token.as_deref().and_then(Token::decode);
                    let token = token.ok_or_else(|| self.stuck(&refusal))?;
                    self.token = Some(Token { resource_version: NEWEST, ..token }.encode());
                }
                Step::StartOver => self.token = None,
                // The error stays, so smaller pages need no further patience.
                Step::Isolate if self.limit > 1 => self.limit = self.limit.div_ceil(2),
                Step::Isolate => {
                    self.step_over(&refusal).await?;
                    tries = 0;
                }
                Step::Vanished => return Err(PageError::Vanished(self.target.name.clone())),
                Step::Stop => {
                    return Err(PageError::Refused {
                        resource: self.target.name.clone(),
                        code: refusal.code,
                        message: refusal.message,
                    });
                }
            }
        }
    }

    async fn ask(&self, limit: u32, token: Option<&str>) -> Result<(Page, i64), Refusal> {
        let mut path = format!("{}?limit={limit}", self.target.list_path());
        if let Some(token) = token {
            path.push_str("&continue=");
            path.push_str(token);
        }
        let reply = match self.server.send(Method::GET, &path, METADATA_LIST, None).await {
            Ok(reply) => reply,
            Err(broken) => return Err(Refusal { message: broken.to_string(), ..Refusal::default() }),
        };
        if reply.code != 200 {
            return Err(refusal(&reply));
        }
        let list: List<'_> = serde_json::from_slice(&reply.body).map_err(|error| Refusal {
            code: 0,
            message: format!("the list is cut short: {error}"),
            ..Refusal::default()
        })?;
        let version = list.metadata.resource_version.and_then(|v| v.parse().ok()).unwrap_or(NEWEST);
        let page = Page {
            items: list
                .items
                .unwrap_or_default()
                .into_iter()
                .map(|object| self.target.item(object))
                .collect(),
            last: list.metadata.next.as_ref().is_none_or(String::is_empty),
            next: list.metadata.next.filter(|next| !next.is_empty()),
            remaining: list.metadata.remaining_item_count,
            unreadable: Vec::new(),
        };
        Ok((page, version))
    }

    fn take(&mut self, (mut page, version): (Page, i64)) -> Page {
        self.last_version = version;
        if let Some(last) = page.items.last() {
            self.last_key = last.key();
        }
        self.token.clone_from(&page.next);
        self.behind = page.next.is_some().then_some(page.remaining).flatten();
        page.unreadable = std::mem::take(&mut self.unreadable);
        page
    }

    /// The one object the next page would begin with cannot be read: names it and moves behind it.
    async fn step_over(&mut self, refusal: &Refusal) -> Result<(), PageError> {
        let floor = match self.token.as_deref() {
            Some(token) => Token::decode(token).ok_or_else(|| self.stuck(refusal))?.start,
            None => String::new(),
        };
        let mut hunt = Hunt::from(&floor, self.behind);
        while let Some(start) = hunt.probe() {
            let token = Token { resource_version: self.last_version, start };
            let shown = self.probe(&token).await?;
            let first = shown.as_ref().and_then(|page| page.items.first()).map(Item::key);
            let from =
                shown.as_ref().and_then(|page| if page.last { Some(1) } else { Some(page.remaining? + 1) });
            hunt.learn(match (&shown, &first) {
                (None, _) => Shown::Nothing,
                (Some(_), Some(key)) => Shown::Object { key, from },
                (Some(_), None) => Shown::End,
            });
        }
        // A key below where the list stands would send it round in circles.
        let bad = hunt.end().filter(|bad| bad.key >= floor).ok_or_else(|| self.stuck(refusal))?;
        let key = &bad.key;
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.unreadable.push(Quarantined {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
            reason: "Unreadable".to_owned(),
            message: format!("what is stored under this key cannot be decoded: {}", refusal.message),
        });
        if bad.others > 0
            && let Some(last) = self.unreadable.last()
        {
            let message =
                format!("{} more unreadable objects lie between {:?} and it", bad.others, self.last_key);
            self.unreadable.push(Quarantined { message, ..last.clone() });
        }
        self.behind = None;
        self.token = Some(Token::behind(key, self.last_version).encode());
        self.limit = self.page_size;
        Ok(())
    }

    /// A page of one object from there; none when it fails for good.
    async fn probe(&self, token: &Token) -> Result<Option<Page>, PageError> {
        let mut tries = 0;
        let mut token = token.clone();
        loop {
            let refusal = match self.ask(1, Some(&token.encode())).await {
                Ok((page, _)) => return Ok(Some(page)),
                Err(refusal) => refusal,
            };
            match step(&refusal, tries, true) {
                Step::Wait(_) if refusal.code == 500 => return Ok(None),
                Step::Wait(asked) => {
                    tries += 1;
                    let wait = backoff(tries, asked);
                    self.waiting.waiting(&refusal.message, wait);
                    tokio::time::sleep(wait).await;
                }
                Step::Isolate => return Ok(None),
                Step::ContinueNewest | Step::ContinueWith(_) if token.resource_version != NEWEST => {
                    token.resource_version = NEWEST;
                }
                _ => return Err(self.stuck(&refusal)),
            }
        }
    }

    fn stuck(&self, refusal: &Refusal) -> PageError {
        PageError::Stuck {
            resource: self.target.name.clone(),
            behind: self.last_key.clone(),
            message: refusal.message.clone(),
        }
    }
}
