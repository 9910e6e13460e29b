//! What to do with the answer to one page of a list.

use std::time::Duration;

/// How often an error that may be a bad object's is tried again before the object is looked for.
const PATIENCE: u32 = 3;

/// What is known of an answer that was not a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code; 0 when the connection broke.
    pub code: u16,
    /// `message` of the Status body.
    pub message: String,
    /// The token that a 410 gives to go on with.
    pub fresh: Option<String>,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// Whether the server says that it has not come as far as the asked resourceVersion.
    pub too_new: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask again after a wait.
    Wait(Option<Duration>),
    /// Go on with this token.
    ContinueWith(String),
    /// Go on from the same key at whatever is newest.
    ContinueNewest,
    /// Begin the list anew.
    StartOver,
    /// A stored object cannot be read: find it and step over it.
    Isolate,
    /// Nothing can be listed; the resource is gone.
    Vanished,
    /// Nothing can be listed.
    Stop,
}

/// Decides, given how often this same page was asked for already and whether it continues from a token.
pub fn step(refusal: &Refusal, tries: u32, continued: bool) -> Step {
    match refusal.code {
        410 => match &refusal.fresh {
            Some(token) if !token.is_empty() => Step::ContinueWith(token.clone()),
            _ => Step::StartOver,
        },
        // A watch cache that a bad object has stopped never catches up; etcd itself does.
        504 if refusal.too_new && tries >= PATIENCE && continued => Step::ContinueNewest,
        504 if refusal.too_new && tries >= PATIENCE => Step::Isolate,
        0 | 408 | 429 | 502 | 503 | 504 => Step::Wait(refusal.retry_after),
        500..=599 if tries >= PATIENCE => Step::Isolate,
        500..=599 => Step::Wait(refusal.retry_after),
        // The token was made by another server, or kept for too long.
        400 if continued => Step::StartOver,
        404 => Step::Vanished,
        _ => Step::Stop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_one_next_step() {
        let refusal = |code| Refusal { code, ..Refusal::default() };
        let too_new = Refusal { code: 504, too_new: true, ..Refusal::default() };
        let fresh = Refusal { code: 410, fresh: Some("next".to_owned()), ..Refusal::default() };
        let empty = Refusal { code: 410, fresh: Some(String::new()), ..Refusal::default() };
        let asked = Refusal { code: 429, retry_after: Some(Duration::from_secs(2)), ..Refusal::default() };
        for (what, refusal, tries, continued, expected) in [
            ("expired, with a fresh token", fresh, 0, true, Step::ContinueWith("next".to_owned())),
            ("expired, with an empty token", empty, 0, true, Step::StartOver),
            ("expired, with none", refusal(410), 0, true, Step::StartOver),
            ("overload", asked, 99, true, Step::Wait(Some(Duration::from_secs(2)))),
            ("unavailable", refusal(503), 99, false, Step::Wait(None)),
            ("broken connection", refusal(0), 99, false, Step::Wait(None)),
            ("cache lags", too_new.clone(), 0, true, Step::Wait(None)),
            ("cache has stopped", too_new.clone(), 3, true, Step::ContinueNewest),
            ("cache has stopped at the first page", too_new, 3, false, Step::Isolate),
            ("a passing error", refusal(500), 0, true, Step::Wait(None)),
            ("an unreadable object", refusal(500), 3, true, Step::Isolate),
            ("a foreign token", refusal(400), 0, true, Step::StartOver),
            ("a bad request", refusal(400), 0, false, Step::Stop),
            ("a deleted definition", refusal(404), 0, true, Step::Vanished),
            ("no permission", refusal(403), 0, false, Step::Stop),
        ] {
            assert_eq!(step(&refusal, tries, continued), expected, "{what}");
        }
    }
}
