//! A list in chunks, which steps over objects that cannot be read.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::isolate::{Bad, Hunt, Shown};
use restow_core::outcome::{OUTAGE, backoff};
use restow_core::page::{Refusal, Step, step};
use restow_core::progress::Quarantined;
use restow_core::resource::GroupVersion;
use restow_core::token::{NEWEST, Token};

use crate::pages::{Item, Page, PageError, Target, Waiting, page};
use crate::server::Server;

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

/// Where something lies that cannot be read.
enum Isolated {
    /// Not in the way: another version shows the page.
    Elsewhere((Page, i64)),
    /// Within a smaller page, or behind it.
    Within,
    /// Behind where the list stands now.
    Behind,
    /// Nowhere for sure: perhaps nothing can be read for now.
    Nowhere,
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
        let (mut tries, mut waits) = (0, 0);
        let mut doubted = None;
        loop {
            let refusal = match self.ask(self.limit, self.token.as_deref()).await {
                Ok(page) => return Ok(self.take(page)),
                Err(refusal) => refusal,
            };
            match step(&refusal, tries, self.token.is_some()) {
                Step::Wait(asked) => {
                    tries += 1;
                    waits += 1;
                    self.wait(&refusal, waits, asked).await;
                }
                Step::ContinueWith(token) => self.token = Some(token),
                Step::ContinueNewest => {
                    let token = self.token.as_deref().and_then(Token::decode);
                    let token = token.ok_or_else(|| self.stuck(&refusal))?;
                    self.token = Some(Token { resource_version: NEWEST, ..token }.encode());
                }
                Step::StartOver => self.token = None,
                Step::Isolate => match self.isolate(&refusal).await? {
                    Isolated::Elsewhere(page) => return Ok(self.take(page)),
                    // The error stays, so smaller pages need no further patience.
                    Isolated::Within => {}
                    Isolated::Behind => (tries, waits) = (0, 0),
                    Isolated::Nowhere => {
                        if doubted.get_or_insert_with(Instant::now).elapsed() >= OUTAGE {
                            return Err(self.unavailable(refusal));
                        }
                        tries = 0;
                        waits += 1;
                        self.wait(&refusal, waits, None).await;
                    }
                },
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

    /// Comes nearer to what cannot be read, or gets around it.
    async fn isolate(&mut self, refusal: &Refusal) -> Result<Isolated, PageError> {
        if let Some(page) = self.elsewhere(self.limit, self.token.as_deref()).await {
            return Ok(Isolated::Elsewhere(page));
        }
        if self.limit > 1 {
            self.limit = self.limit.div_ceil(2);
            return Ok(Isolated::Within);
        }
        self.limit = self.page_size;
        Ok(if self.step_over(refusal).await? { Isolated::Behind } else { Isolated::Nowhere })
    }

    async fn ask(&self, limit: u32, token: Option<&str>) -> Result<(Page, i64), Refusal> {
        self.ask_at(&self.target.version, limit, token).await
    }

    async fn ask_at(
        &self,
        version: &GroupVersion,
        limit: u32,
        token: Option<&str>,
    ) -> Result<(Page, i64), Refusal> {
        let mut path = format!("{}?limit={limit}", self.target.list_path_at(version, ""));
        if let Some(token) = token {
            path.push_str("&continue=");
            path.push_str(token);
        }
        page(self.server, self.target, &path).await
    }

    /// The same page through another version, in which its objects may be stored: there no webhook has to read them.
    async fn elsewhere(&self, limit: u32, token: Option<&str>) -> Option<(Page, i64)> {
        for version in self.target.others() {
            if let Ok(page) = self.ask_at(version, limit, token).await {
                return Some(page);
            }
        }
        None
    }

    async fn wait(&self, refusal: &Refusal, tries: u32, asked: Option<Duration>) {
        let wait = backoff(tries, asked);
        self.waiting.waiting(&refusal.message, wait);
        tokio::time::sleep(wait).await;
    }

    fn take(&mut self, (mut page, version): (Page, i64)) -> Page {
        self.last_version = version;
        if let Some(last) = page.items.last() {
            self.last_key = last.key();
        }
        self.token.clone_from(&page.next);
        if self.target.conversion.is_some() {
            // What was too much for one page may not have been the fault of one object.
            self.limit = self.limit.saturating_mul(2).min(self.page_size);
        }
        self.behind = page.next.is_some().then_some(page.remaining).flatten();
        page.unreadable = std::mem::take(&mut self.unreadable);
        page
    }

    /// The one object the next page would begin with cannot be read: names it and moves behind it, unless it is in
    /// doubt whether that is the object's own fault.
    async fn step_over(&mut self, refusal: &Refusal) -> Result<bool, PageError> {
        let floor = match self.token.as_deref() {
            Some(token) => Token::decode(token).ok_or_else(|| self.stuck(refusal))?.start,
            None => String::new(),
        };
        let blind = self.target.conversion.as_ref().is_some_and(|conversion| conversion.blind);
        let mut hunt = Hunt::from(&floor, self.behind);
        while let Some(start) = hunt.probe() {
            // With its webhook down, a server can read nothing; a hunt would blame the last object for that.
            if blind && hunt.sees_several() {
                return Ok(false);
            }
            let shown = self.probe(&start).await?;
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
        let bad = match hunt.end().filter(|bad| bad.key >= floor) {
            None if blind => return Ok(false),
            None => return Err(self.stuck(refusal)),
            // The webhook may have come back in the middle of the hunt.
            Some(_) if blind && self.ask(1, self.token.as_deref()).await.is_ok() => return Ok(false),
            Some(bad) => bad,
        };
        self.leave(bad, refusal);
        Ok(true)
    }

    /// Names an object that cannot be read, and moves behind it.
    fn leave(&mut self, bad: &Bad, refusal: &Refusal) {
        let key = &bad.key;
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let left = Quarantined {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
            reason: "Unreadable".to_owned(),
            message: format!("what is stored under this key cannot be decoded: {}", refusal.message),
        };
        let others = bad.others.filter(|others| *others > 0).map(|others| {
            let message = format!("{others} more unreadable objects lie between {:?} and it", self.last_key);
            Quarantined { message, ..left.clone() }
        });
        self.unreadable.push(left);
        self.unreadable.extend(others);
        self.behind = None;
        self.token = Some(Token::behind(key, self.last_version).encode());
    }

    /// A page of one object from there; none when it fails for good.
    async fn probe(&self, start: &str) -> Result<Option<Page>, PageError> {
        let mut tries = 0;
        let mut token = Token { resource_version: self.last_version, start: start.to_owned() };
        loop {
            let refusal = match self.ask(1, Some(&token.encode())).await {
                Ok((page, _)) => return Ok(Some(page)),
                Err(refusal) => refusal,
            };
            match step(&refusal, tries, true) {
                Step::Wait(asked) if refusal.code != 500 => {
                    tries += 1;
                    self.wait(&refusal, tries, asked).await;
                }
                Step::Wait(_) | Step::Isolate => {
                    let page = self.elsewhere(1, Some(&token.encode())).await;
                    return Ok(page.map(|(page, _)| page));
                }
                Step::ContinueNewest | Step::ContinueWith(_) if token.resource_version != NEWEST => {
                    token.resource_version = NEWEST;
                }
                _ => return Err(self.stuck(&refusal)),
            }
        }
    }

    fn unavailable(&self, refusal: Refusal) -> PageError {
        PageError::Unavailable {
            resource: self.target.name.clone(),
            behind: self.last_key.clone(),
            message: refusal.message,
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
