//! What to do with the answer to one page of a list.

use std::time::Duration;

use crate::agreement::transient::{PriorAnswers, TRANSIENT_ANSWER_TIMEOUT, may_be_transient};

/// How often a page that fails with a server error is retried before a bad object is searched for.
const MAX_REFUSALS: u32 = 3;
/// How often a page may expire before the list fails.
const EXPIRIES: u32 = 8;
/// How often a list may start over without progress.
const RESTARTS: u32 = 5;

/// The longest page of several objects, in bytes. Two pages are in memory at a time.
const MAX_PAGE_BYTES: usize = 8 << 20;
/// The longest page of one object. By default, etcd accepts no request above 1.5 MiB.
const MAX_SINGLE_OBJECT_BYTES: usize = 32 << 20;
/// The lowest limit for the length of a page, however low the bandwidth is.
const SHORTEST: usize = 64 << 10;

/// The number of objects from which on a list is streamed, unless the user chooses.
const STREAMED: u64 = 10_000;

/// Whether to request a list as one stream, given the number of objects.
///
/// A server builds a separate list for each chunk, and answers a stream from its cache. But only chunks can be resumed
/// exactly and show which object cannot be read, so they are used for all lists that cost little.
pub fn is_worth_streaming(objects: Option<u64>) -> bool {
    objects.is_some_and(|objects| objects >= STREAMED)
}

/// An answer that is not a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code; 0 when the connection broke.
    pub code: u16,
    /// Whether the body is a Status, as an API server sends it; a load balancer sends something else.
    pub status: bool,
    /// Which requests the server has answered successfully before.
    pub before: PriorAnswers,
    /// `message` of the Status body.
    pub message: String,
    /// The continue token in a 410.
    pub fresh: Option<String>,
    /// `Retry-After`, how long the server asks the client to wait.
    pub retry_after: Option<Duration>,
    /// Whether the server has not reached the requested resourceVersion yet.
    pub too_new: bool,
    /// Whether it was a success that is not the requested page.
    pub malformed: bool,
    /// Whether it is too long for a page.
    pub too_long: bool,
    /// How many bytes were read.
    pub bytes: usize,
}

impl Refusal {
    /// Whether it counts as a try: an outage shows nothing about the list, however long it lasts.
    pub fn counts(&self) -> bool {
        self.malformed || self.too_new || !matches!(self.code, 0 | 408 | 429 | 502 | 503 | 504)
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Request the page again after a wait.
    Wait(Option<Duration>),
    /// Request fewer objects.
    Fewer,
    /// Continue with this token.
    ContinueWith(String),
    /// Continue from the same key at the newest resourceVersion.
    ContinueNewest,
    /// Start the list over.
    StartOver,
    /// A stored object cannot be read: find it and skip it.
    Isolate,
    /// Fail: the resource no longer exists.
    Vanished,
    /// Fail, for a reason that may go away.
    GiveUp,
    /// Fail for good.
    Stop,
}

/// Decides what to do next, given how often this page was tried, for how long it has failed, and whether it continues from
/// a token.
pub fn step(refusal: &Refusal, tries: u32, lasted: Duration, continued: bool) -> Step {
    if refusal.too_long {
        return Step::Fewer;
    }
    let passes = may_be_transient(refusal.code, refusal.status, refusal.before, lasted);
    match refusal.code {
        200..=299 if passes => Step::Wait(None),
        200..=399 if !passes => Step::GiveUp,
        410 if passes && !refusal.status => Step::Wait(None),
        410 if tries >= EXPIRIES => Step::GiveUp,
        410 => match &refusal.fresh {
            Some(token) if !token.is_empty() => Step::ContinueWith(token.clone()),
            _ => Step::StartOver,
        },
        // A watch cache that a bad object has stopped never catches up; a read from etcd does.
        504 if refusal.too_new && tries >= MAX_REFUSALS && continued => Step::ContinueNewest,
        504 if refusal.too_new && tries >= MAX_REFUSALS => Step::Isolate,
        0 | 408 | 429 | 502 | 503 | 504 => Step::Wait(refusal.retry_after),
        500..=599 if tries >= MAX_REFUSALS => Step::Isolate,
        500..=599 => Step::Wait(refusal.retry_after),
        // The token came from another server, or is too old.
        400 if continued && refusal.status => Step::StartOver,
        _ if passes => Step::Wait(refusal.retry_after),
        // Discovery has shown the resource, and a starting server does not know all its resources yet.
        404 if lasted < TRANSIENT_ANSWER_TIMEOUT => Step::Wait(refusal.retry_after),
        404 => Step::Vanished,
        _ => Step::Stop,
    }
}

/// Whether a list that started over this often without progress fails.
pub fn is_stuck(restarts: u32) -> bool {
    restarts > RESTARTS
}

/// The most bytes in a page with this limit; with a bandwidth limit, such a page takes about a second.
pub fn longest(limit: u32, bandwidth: Option<f64>) -> usize {
    match bandwidth {
        _ if limit <= 1 => MAX_SINGLE_OBJECT_BYTES,
        Some(bandwidth) => (bandwidth as usize).clamp(SHORTEST, MAX_PAGE_BYTES),
        None => MAX_PAGE_BYTES,
    }
}

/// How many objects to request next, after a page of `items` objects with `bytes`: up to twice as many as before if nothing
/// went wrong, but no more than fill half of the `longest` page.
pub fn next_limit(
    limit: u32,
    page_size: u32,
    items: usize,
    bytes: usize,
    longest: usize,
    smooth: bool,
) -> u32 {
    let grown = if smooth { limit.saturating_mul(2) } else { limit };
    let fitting = match bytes.checked_div(items) {
        Some(each) => longest / 2 / each.max(1),
        None => usize::MAX,
    };
    grown.min(page_size).min(u32::try_from(fitting).unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_lists_are_streamed() {
        for (objects, streamed) in
            [(None, false), (Some(0), false), (Some(9_999), false), (Some(10_000), true)]
        {
            assert_eq!(is_worth_streaming(objects), streamed, "{objects:?}");
        }
    }

    #[test]
    fn every_list_failure_has_one_next_step() {
        let all = Refusal { status: true, before: PriorAnswers::ALL, ..Refusal::default() };
        let refusal = |code| Refusal { code, ..all.clone() };
        let text = |code| Refusal { code, status: false, ..all.clone() };
        let at_first = |code| Refusal { code, before: PriorAnswers::default(), ..all.clone() };
        let forbidden =
            Refusal { code: 403, before: PriorAnswers { anything: true, this: false }, ..all.clone() };
        let too_new = Refusal { code: 504, too_new: true, ..all.clone() };
        let fresh = Refusal { code: 410, fresh: Some("next".to_owned()), ..all.clone() };
        let empty = Refusal { code: 410, fresh: Some(String::new()), ..all.clone() };
        let asked = Refusal { code: 429, retry_after: Some(Duration::from_secs(2)), ..all.clone() };
        let malformed = Refusal { code: 200, malformed: true, ..all.clone() };
        let too_long = Refusal { code: 200, too_long: true, ..all.clone() };
        // What came, how often it was asked for and failed for how many seconds before, and whether it continues.
        for (what, refusal, tries, seconds, continued, expected) in [
            ("expired, with a fresh token", fresh.clone(), 0, 0, true, Step::ContinueWith("next".to_owned())),
            ("expired again and again", fresh, 8, 0, true, Step::GiveUp),
            ("expired, with an empty token", empty, 0, 0, true, Step::StartOver),
            ("expired, with none", refusal(410), 0, 0, true, Step::StartOver),
            ("a proxy's 410", text(410), 99, 59, true, Step::Wait(None)),
            ("a proxy's 410 for long", text(410), 99, 60, true, Step::GiveUp),
            ("overload", asked, 99, 999, true, Step::Wait(Some(Duration::from_secs(2)))),
            ("unavailable", refusal(503), 99, 999, false, Step::Wait(None)),
            ("broken connection", refusal(0), 99, 999, false, Step::Wait(None)),
            ("cache lags", too_new.clone(), 0, 0, true, Step::Wait(None)),
            ("cache has stopped", too_new.clone(), 3, 0, true, Step::ContinueNewest),
            ("cache has stopped at the first page", too_new, 3, 0, false, Step::Isolate),
            ("a passing error", refusal(500), 0, 0, true, Step::Wait(None)),
            ("an unreadable object", refusal(500), 3, 0, true, Step::Isolate),
            ("a foreign token", refusal(400), 0, 0, true, Step::StartOver),
            ("a bad request", refusal(400), 0, 0, false, Step::Stop),
            ("a proxy's bad request", text(400), 99, 59, true, Step::Wait(None)),
            ("a proxy's bad request for long", text(400), 99, 60, true, Step::Stop),
            ("a 404 that passes", refusal(404), 99, 59, true, Step::Wait(None)),
            ("a 404 at the beginning", at_first(404), 99, 59, true, Step::Wait(None)),
            ("a deleted definition", refusal(404), 0, 60, true, Step::Vanished),
            ("no permission", forbidden, 0, 0, false, Step::Stop),
            ("a permission that is being replaced", refusal(403), 99, 59, false, Step::Wait(None)),
            ("a permission that was taken away", refusal(403), 99, 60, false, Step::Stop),
            ("no list", malformed.clone(), 99, 59, true, Step::Wait(None)),
            ("still no list", malformed, 0, 60, true, Step::GiveUp),
            ("a redirect", refusal(302), 99, 59, true, Step::Wait(None)),
            ("still a redirect", refusal(302), 0, 60, true, Step::GiveUp),
            ("credentials that are renewed", refusal(401), 99, 59, true, Step::Wait(None)),
            ("credentials that have ended", refusal(401), 0, 60, true, Step::Stop),
            ("credentials that were never accepted", at_first(401), 0, 0, false, Step::Stop),
            ("a proxy's word", text(418), 99, 59, true, Step::Wait(None)),
            ("an API server's word", refusal(405), 0, 0, true, Step::Stop),
            ("a page that is too long", too_long, 99, 999, true, Step::Fewer),
        ] {
            let next = step(&refusal, tries, Duration::from_secs(seconds), continued);
            assert_eq!(next, expected, "{what}");
        }
    }

    #[test]
    fn an_outage_uses_up_no_tries() {
        for (code, too_new, malformed, expected) in [
            (0, false, false, false),
            (503, false, false, false),
            (504, false, false, false),
            (504, true, false, true),
            (500, false, false, true),
            (401, false, false, true),
            (200, false, true, true),
        ] {
            let refusal = Refusal { code, too_new, malformed, ..Refusal::default() };
            assert_eq!(refusal.counts(), expected, "{code} {too_new} {malformed}");
        }
    }

    #[test]
    fn pages_are_bounded_in_bytes() {
        const MIB: usize = 1 << 20;
        for (what, limit, items, bytes, smooth, expected) in [
            ("small objects", 500, 500, MIB / 2, true, 500),
            ("after a shrink", 12, 12, MIB / 100, true, 24),
            ("after trouble", 12, 12, MIB / 100, false, 12),
            ("large objects", 25, 25, 6 * MIB, true, 16),
            ("an object as large as a page", 2, 2, 8 * MIB, true, 1),
            ("an object larger than a page", 1, 1, 20 * MIB, true, 1),
            ("nothing", 1, 0, 0, true, 2),
            ("an empty list", 500, 0, 100, true, 500),
        ] {
            assert_eq!(next_limit(limit, 500, items, bytes, 8 * MIB, smooth), expected, "{what}");
        }
        for (limit, bandwidth, expected) in [
            (500, None, 8 * MIB),
            (1, None, 32 * MIB),
            (500, Some(1e6), 1_000_000),
            (500, Some(1e9), 8 * MIB),
            (500, Some(10.0), 64 << 10),
            (1, Some(10.0), 32 * MIB),
        ] {
            assert_eq!(longest(limit, bandwidth), expected, "{limit} {bandwidth:?}");
        }
    }
}
