//! A list in chunks, which skips objects that cannot be read.

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

use super::pages::{Item, Page, PageError, RefusalStreak, Target, Waiting, page_within};
use crate::client::{Server, Throttle};

/// A list in chunks. It retries errors that may pass, and finds and skips objects that cannot be read.
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
    /// The greatest key so far, and how many times the list started over since.
    furthest: String,
    restarts: u32,
    unreadable: Vec<Quarantined>,
}

/// What a page of one object shows.
enum Probe {
    Page(Page),
    /// The object cannot be read.
    Unreadable,
    /// The answer says nothing about the object.
    Unknown,
}

/// Where the object is that cannot be read.
enum Isolated {
    /// Another version shows the page.
    OtherVersion((Page, i64)),
    /// In a smaller page, or after it.
    Within,
    /// The list has skipped it.
    Behind,
    /// Unknown: maybe nothing can be read at the moment.
    Nowhere,
}

impl<'a> Chunks<'a> {
    /// A list that starts at a continue token, or at the beginning.
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

    /// Expects as many objects after the token as the server announced before the run was interrupted.
    pub(crate) fn announced(mut self, objects: Option<u64>) -> Self {
        self.sequence = Sequence::resumed(self.token.as_deref(), objects);
        self
    }

    /// The next page. `new` takes its `next` to go on after it.
    pub(crate) async fn next(&mut self) -> Result<Page, PageError> {
        let (mut tries, mut waits, mut anew) = (0, 0, 0);
        let (mut failing, mut streak) = (None, RefusalStreak::default());
        loop {
            let refusal = match self.ask(self.limit, self.token.as_deref()).await {
                Ok(page) => match self.take(page, failing.is_none()) {
                    Ok(page) => return Ok(page),
                    Err(refusal) => refusal,
                },
                Err(refusal) => refusal,
            };
            let since = *failing.get_or_insert_with(Instant::now);
            let next = step(&refusal, tries, streak.lasted(&refusal), self.token.is_some());
            tries += u32::from(refusal.counts());
            if matches!(next, Step::ContinueWith(_) | Step::StartOver) {
                // One token may expire. Several in a row are an error, which may pass.
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
                    Isolated::OtherVersion(page) => match self.take(page, false) {
                        Ok(page) => return Ok(page),
                        Err(refusal) if since.elapsed() >= OUTAGE_TIMEOUT => {
                            return Err(self.unavailable(refusal));
                        }
                        Err(refusal) => {
                            waits += 1;
                            self.wait(&refusal, waits, None).await;
                        }
                    },
                    // The error persists, so a smaller page is tried without waiting.
                    Isolated::Within => {}
                    Isolated::Behind => {
                        (tries, waits) = (0, 0);
                        (failing, streak) = (None, RefusalStreak::default());
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

    /// Starts the list over, unless that has not helped before.
    fn start_over(&mut self, refusal: &Refusal) -> Result<(), PageError> {
        self.restarts += 1;
        if is_stuck(self.restarts) {
            let message = format!("the list started over {} times: {}", self.restarts - 1, refusal.message);
            return Err(self.unavailable(Refusal { message, ..refusal.clone() }));
        }
        self.token = None;
        self.sequence = Sequence::default();
        Ok(())
    }

    /// Narrows down which object cannot be read, or avoids it.
    async fn isolate(&mut self, refusal: &Refusal, since: Instant) -> Result<Isolated, PageError> {
        if let Some(page) = self.through_other_versions(self.limit, self.token.as_deref()).await {
            return Ok(Isolated::OtherVersion(page));
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

    /// The same page through another version, in which its objects may be stored. No webhook converts them there.
    async fn through_other_versions(&self, limit: u32, token: Option<&str>) -> Option<(Page, i64)> {
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

    /// Accepts a page, unless it cannot follow the one before. `smooth` says that no request failed in between.
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

    /// Reports and skips the one object at the start of the next page that cannot be read, unless the error may not be the
    /// object's own fault.
    async fn step_over(&mut self, refusal: &Refusal, since: Instant) -> Result<bool, PageError> {
        let floor = match self.token.as_deref().map(Token::decode) {
            Some(Some(token)) => token.start,
            // Tokens of another form cannot be used to search.
            Some(None) if since.elapsed() < OUTAGE_TIMEOUT => return Ok(false),
            Some(None) => return Err(self.stuck(refusal)),
            None => String::new(),
        };
        let blind = self.is_blind();
        let mut search = BadKeySearch::from(&floor, self.sequence.announced());
        let mut readable = false;
        while let Some(start) = search.probe() {
            // While its webhook is down, a server can read nothing; the search would blame the last object.
            if blind && search.sees_several() {
                return Ok(false);
            }
            let shown = match self.probe(&start).await {
                Probe::Page(page) => Some(page),
                Probe::Unreadable => None,
                Probe::Unknown => return Ok(false),
            };
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
        // A key before the current position would make the list go in circles.
        let Some(bad) = search.end().filter(|bad| bad.key >= floor) else { return Ok(false) };
        if !self.is_to_blame(&bad.key, readable, refusal, since).await {
            return Ok(false);
        }
        self.leave(bad, refusal);
        Ok(true)
    }

    /// Whether objects can only be read through a webhook.
    fn is_blind(&self) -> bool {
        self.target.conversion.as_ref().is_some_and(|conversion| conversion.blind)
    }

    /// Whether an object still cannot be read after a while, although its neighbours can.
    async fn is_to_blame(&self, key: &str, mut readable: bool, refusal: &Refusal, since: Instant) -> bool {
        let mut waits = 0;
        loop {
            // It may be readable or deleted by now.
            if !matches!(self.probe(key).await, Probe::Unreadable) {
                return false;
            }
            if !readable && !self.last_key.is_empty() {
                let before = self.probe(&self.last_key).await;
                readable = matches!(before, Probe::Page(page) if !page.items.is_empty());
            }
            // If a webhook converts all of them, the webhook is down.
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
        matches!(self.probe(&format!("{key}\0")).await, Probe::Page(_))
    }

    /// Reports an object that cannot be read, and skips it.
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
            let message =
                format!("{others} more unreadable objects are between {:?} and this one", self.last_key);
            Quarantined { message, ..left.clone() }
        });
        self.unreadable.push(left);
        self.unreadable.extend(others);
        self.sequence.stepped_over();
        self.token = Some(Token::behind(key, self.last_version).encode());
    }

    /// Asks for a page of one object that starts at a key.
    async fn probe(&self, start: &str) -> Probe {
        let (mut tries, mut waits, mut streak) = (0, 0, RefusalStreak::default());
        let mut token = Token { resource_version: self.last_version, start: start.to_owned() };
        loop {
            let refusal = match self.ask(1, Some(&token.encode())).await {
                Ok((page, _)) => return Probe::Page(page),
                Err(refusal) => refusal,
            };
            let next = step(&refusal, tries, streak.lasted(&refusal), true);
            tries += u32::from(refusal.counts());
            match next {
                next if next == Step::Isolate || refusal.code == 500 => {
                    let page = self.through_other_versions(1, Some(&token.encode())).await;
                    return page.map_or(Probe::Unreadable, |(page, _)| Probe::Page(page));
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
                _ => return Probe::Unknown,
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
