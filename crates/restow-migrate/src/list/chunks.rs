//! A list in chunks, which steps over objects that cannot be read.

use std::time::Duration;

use restow_clock::Instant;
use restow_core::agreement::transient::PriorAnswers;
use restow_core::resource::name::GroupVersion;
use restow_core::rewrite::isolate::{BadKey, BadKeySearch, ProbeResult, blame_after};
use restow_core::rewrite::outcome::{OUTAGE_TIMEOUT, backoff};
use restow_core::rewrite::page::{Refusal, Step, is_stuck, longest, next_limit, step};
use restow_core::rewrite::progress::Quarantined;
use restow_core::rewrite::sequence::{self, Sequence};
use restow_core::rewrite::token::{NEWEST, Token};

use super::pages::{Item, Page, PageError, Row, Target, Waiting, page_within};
use crate::client::{Server, Throttle};

/// A list in chunks. It waits out what passes, and finds and steps over objects that cannot be read.
pub(crate) struct Chunks<'a> {
    server: &'a Server,
    target: &'a Target,
    waiting: &'a (dyn Waiting + Sync),
    throttle: &'a Throttle,
    page_size: u32,
    limit: u32,
    token: Option<String>,
    last_key: String,
    last_version: i64,
    sequence: Sequence,
    /// The greatest key so far, and how often the list began anew since it was reached.
    furthest: String,
    restarts: u32,
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
    pub(crate) fn new(
        server: &'a Server,
        target: &'a Target,
        page_size: u32,
        token: Option<String>,
        waiting: &'a (dyn Waiting + Sync),
        throttle: &'a Throttle,
    ) -> Self {
        Self {
            server,
            target,
            waiting,
            throttle,
            page_size,
            limit: page_size,
            token,
            last_key: String::new(),
            last_version: NEWEST,
            sequence: Sequence::default(),
            furthest: String::new(),
            restarts: 0,
            unreadable: Vec::new(),
        }
    }

    /// Holds the server to how many objects it has announced behind the token, before a resumption.
    pub(crate) fn announced(mut self, objects: Option<u64>) -> Self {
        self.sequence = Sequence::resumed(self.token.as_deref(), objects);
        self
    }

    /// The next page. Its `next` is what `new` takes to go on behind it.
    pub(crate) async fn next(&mut self) -> Result<Page, PageError> {
        let (mut tries, mut waits, mut anew) = (0, 0, 0);
        let (mut failing, mut row) = (None, Row::default());
        loop {
            let refusal = match self.ask(self.limit, self.token.as_deref()).await {
                Ok(page) => match self.take(page, failing.is_none()) {
                    Ok(page) => return Ok(page),
                    Err(refusal) => refusal,
                },
                Err(refusal) => refusal,
            };
            let since = *failing.get_or_insert_with(Instant::now);
            let next = step(&refusal, tries, row.lasted(&refusal), self.token.is_some());
            tries += u32::from(refusal.counts());
            if matches!(next, Step::ContinueWith(_) | Step::StartOver) {
                // One that has expired may have; further ones in a row are somebody's mistake, which may pass.
                if anew > 0 {
                    self.wait(&refusal, anew, None).await;
                }
                anew += 1;
            }
            match next {
                Step::Wait(asked) => {
                    waits += 1;
                    self.wait(&refusal, waits, asked).await;
                }
                Step::Fewer if self.limit <= 1 => return Err(self.stuck(&refusal)),
                Step::Fewer => self.limit = self.limit.div_ceil(4),
                Step::ContinueWith(token) => self.token = Some(token),
                Step::ContinueNewest => {
                    let token = self.token.as_deref().and_then(Token::decode);
                    let token = token.ok_or_else(|| self.stuck(&refusal))?;
                    self.token = Some(Token { resource_version: NEWEST, ..token }.encode());
                }
                Step::StartOver => self.start_over(&refusal)?,
                Step::Isolate => match self.isolate(&refusal, since).await? {
                    Isolated::Elsewhere(page) => match self.take(page, false) {
                        Ok(page) => return Ok(page),
                        Err(refusal) if since.elapsed() >= OUTAGE_TIMEOUT => {
                            return Err(self.unavailable(refusal));
                        }
                        Err(refusal) => {
                            waits += 1;
                            self.wait(&refusal, waits, None).await;
                        }
                    },
                    // The error stays, so smaller pages need no further patience.
                    Isolated::Within => {}
                    Isolated::Behind => {
                        (tries, waits) = (0, 0);
                        (failing, row) = (None, Row::default());
                    }
                    Isolated::Nowhere => {
                        if since.elapsed() >= OUTAGE_TIMEOUT {
                            return Err(self.unavailable(refusal));
                        }
                        tries = 0;
                        waits += 1;
                        self.wait(&refusal, waits, None).await;
                    }
                },
                Step::Vanished => return Err(PageError::Vanished(self.target.name.clone())),
                Step::GiveUp => return Err(self.unavailable(refusal)),
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

    /// Begins the list anew, unless that has led nowhere before.
    fn start_over(&mut self, refusal: &Refusal) -> Result<(), PageError> {
        self.restarts += 1;
        if is_stuck(self.restarts) {
            let message = format!("the list began anew {} times: {}", self.restarts - 1, refusal.message);
            return Err(self.unavailable(Refusal { message, ..refusal.clone() }));
        }
        self.token = None;
        self.sequence = Sequence::default();
        Ok(())
    }

    /// Comes nearer to what cannot be read since then, or gets around it.
    async fn isolate(&mut self, refusal: &Refusal, since: Instant) -> Result<Isolated, PageError> {
        if let Some(page) = self.elsewhere(self.limit, self.token.as_deref()).await {
            return Ok(Isolated::Elsewhere(page));
        }
        if self.limit > 1 {
            self.limit = self.limit.div_ceil(2);
            return Ok(Isolated::Within);
        }
        let stepped = self.step_over(refusal, since).await?;
        if stepped {
            self.limit = self.page_size;
        }
        Ok(if stepped { Isolated::Behind } else { Isolated::Nowhere })
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
        self.throttle.list().await;
        let longest = longest(limit, self.throttle.bandwidth());
        let answer = page_within(self.server, self.target, &path, longest).await;
        self.throttle
            .transferred(answer.as_ref().map_or_else(|refusal| refusal.bytes, |(page, _)| page.bytes));
        answer
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

    /// Takes a page in, unless it cannot follow the one before; `smooth` says that nothing failed on the way.
    fn take(&mut self, (mut page, version): (Page, i64), smooth: bool) -> Result<Page, Refusal> {
        let shown = sequence::PageSummary {
            ends: page.items.first().zip(page.items.last()).map(|(a, b)| (a.fingerprint(), b.fingerprint())),
            items: page.items.len() as u64,
            next: page.next.clone(),
            version,
            remaining: page.remaining,
        };
        self.sequence.take(self.token.as_deref(), &shown).map_err(|fault| Refusal {
            code: 200,
            before: PriorAnswers::ALL,
            message: fault.to_string(),
            malformed: true,
            ..Refusal::default()
        })?;
        self.last_version = version;
        if let Some(last) = page.items.last() {
            self.last_key = last.key();
            if self.last_key > self.furthest {
                self.furthest.clone_from(&self.last_key);
                self.restarts = 0;
            }
        }
        self.token.clone_from(&page.next);
        let longest = longest(self.page_size, self.throttle.bandwidth());
        self.limit = next_limit(self.limit, self.page_size, page.items.len(), page.bytes, longest, smooth);
        page.unreadable = std::mem::take(&mut self.unreadable);
        Ok(page)
    }

    /// The one object the next page would begin with cannot be read: names it and moves behind it, unless it is in
    /// doubt whether that is the object's own fault.
    async fn step_over(&mut self, refusal: &Refusal, since: Instant) -> Result<bool, PageError> {
        let floor = match self.token.as_deref().map(Token::decode) {
            Some(Some(token)) => token.start,
            // Nothing can be searched for with tokens of another form.
            Some(None) if since.elapsed() < OUTAGE_TIMEOUT => return Ok(false),
            Some(None) => return Err(self.stuck(refusal)),
            None => String::new(),
        };
        let blind = self.is_blind();
        let mut search = BadKeySearch::from(&floor, self.sequence.announced());
        let mut readable = false;
        while let Some(start) = search.probe() {
            // With its webhook down, a server can read nothing; a search would blame the last object for that.
            if blind && search.sees_several() {
                return Ok(false);
            }
            let Some(shown) = self.probe(&start).await else { return Ok(false) };
            let first = shown.as_ref().and_then(|page| page.items.first()).map(Item::key);
            let from =
                shown.as_ref().and_then(|page| if page.last { Some(1) } else { Some(page.remaining? + 1) });
            readable |= first.is_some();
            search.learn(match (&shown, &first) {
                (None, _) => ProbeResult::Nothing,
                (Some(_), Some(key)) => ProbeResult::Object { key, from },
                (Some(_), None) => ProbeResult::End,
            });
        }
        // A key below where the list stands would send it round in circles.
        let Some(bad) = search.end().filter(|bad| bad.key >= floor) else { return Ok(false) };
        if !self.is_to_blame(&bad.key, readable, refusal, since).await {
            return Ok(false);
        }
        self.leave(bad, refusal);
        Ok(true)
    }

    /// Whether objects are read only by a webhook's leave.
    fn is_blind(&self) -> bool {
        self.target.conversion.as_ref().is_some_and(|conversion| conversion.blind)
    }

    /// Whether an object still cannot be read after long enough, while what lies beside it can.
    async fn is_to_blame(&self, key: &str, mut readable: bool, refusal: &Refusal, since: Instant) -> bool {
        let mut waits = 0;
        loop {
            // It may be readable by now, or gone.
            if !matches!(self.probe(key).await, Some(None)) {
                return false;
            }
            if !readable && !self.last_key.is_empty() {
                let before = self.probe(&self.last_key).await.flatten();
                readable = before.is_some_and(|page| !page.items.is_empty());
            }
            // Where a webhook has to read all of them, it is the webhook that is away.
            if !readable && self.is_blind() {
                return false;
            }
            let left = blame_after(readable).saturating_sub(since.elapsed());
            if left.is_zero() {
                break;
            }
            waits += 1;
            let wait = backoff(waits, None).min(left);
            self.waiting.waiting(&refusal.message, wait);
            tokio::time::sleep(wait).await;
        }
        matches!(self.probe(&format!("{key}\0")).await, Some(Some(_)))
    }

    /// Names an object that cannot be read, and moves behind it.
    fn leave(&mut self, bad: &BadKey, refusal: &Refusal) {
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
        self.sequence.stepped_over();
        self.token = Some(Token::behind(key, self.last_version).encode());
    }

    /// A page of one object from there; `Some(None)` when that object cannot be read, and `None` when the answer says
    /// nothing about it.
    async fn probe(&self, start: &str) -> Option<Option<Page>> {
        let (mut tries, mut waits, mut row) = (0, 0, Row::default());
        let mut token = Token { resource_version: self.last_version, start: start.to_owned() };
        loop {
            let refusal = match self.ask(1, Some(&token.encode())).await {
                Ok((page, _)) => return Some(Some(page)),
                Err(refusal) => refusal,
            };
            let next = step(&refusal, tries, row.lasted(&refusal), true);
            tries += u32::from(refusal.counts());
            match next {
                next if next == Step::Isolate || refusal.code == 500 => {
                    let page = self.elsewhere(1, Some(&token.encode())).await;
                    return Some(page.map(|(page, _)| page));
                }
                Step::Wait(asked) => {
                    waits += 1;
                    self.wait(&refusal, waits, asked).await;
                }
                Step::ContinueNewest | Step::ContinueWith(_) | Step::StartOver
                    if token.resource_version != NEWEST =>
                {
                    token.resource_version = NEWEST;
                }
                _ => return None,
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
