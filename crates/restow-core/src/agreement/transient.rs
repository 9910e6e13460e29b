//! How long to wait out an answer that may not come from an API server.
//!
//! A load balancer answers instead of an API server, a token is renewed a moment late, RBAC rules are replaced, a server
//! that starts does not know all its resources yet. During a run, such an answer proves nothing until it has lasted for
//! a while. If no request has succeeded before, the answer is most likely true and is reported at once.

use std::time::Duration;

/// How long a run waits out an answer that may not come from an API server.
pub const TRANSIENT_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Which requests a server has answered successfully before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorAnswers {
    /// Any request: the server accepts the credentials.
    pub anything: bool,
    /// The same request: its resource exists and may be read.
    pub this: bool,
}

impl PriorAnswers {
    /// Every request succeeded before.
    pub const ALL: Self = Self { anything: true, this: true };
}

/// Whether to wait out an unexpected answer with this code that has lasted for so long.
///
/// `status` says whether the body is a Status, as an API server sends it.
pub fn may_be_transient(code: u16, status: bool, before: PriorAnswers, lasted: Duration) -> bool {
    let passes = match code {
        // A success with an unexpected body, a redirect to a login page, a token that is being renewed.
        200..=399 | 401 => before.anything,
        // An API server also sends these for a resource that never existed or was never allowed.
        403 | 404 => before.this,
        400..=499 => before.anything && !status,
        _ => false,
    };
    passes && lasted < TRANSIENT_ANSWER_TIMEOUT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unexpected_answer_is_waited_out_only_after_an_earlier_success() {
        let nothing = PriorAnswers::default();
        let others = PriorAnswers { anything: true, this: false };
        for (code, status, before, seconds, expected) in [
            // Bad credentials, a wrong address or missing rights at the start are told at once.
            (200, false, nothing, 0, false),
            (302, false, nothing, 0, false),
            (401, true, nothing, 0, false),
            (403, true, nothing, 0, false),
            (404, false, nothing, 0, false),
            (405, false, nothing, 0, false),
            // What was never seen may not be there, and may not be allowed.
            (403, true, others, 0, false),
            (404, true, others, 0, false),
            (404, false, others, 0, false),
            (200, false, others, 0, true),
            (302, false, others, 0, true),
            (401, true, others, 59, true),
            (401, true, others, 60, false),
            (403, true, PriorAnswers::ALL, 59, true),
            (403, false, PriorAnswers::ALL, 60, false),
            (404, false, PriorAnswers::ALL, 59, true),
            (404, true, PriorAnswers::ALL, 60, false),
            // An API server's own word, and a proxy's.
            (405, true, PriorAnswers::ALL, 0, false),
            (400, true, PriorAnswers::ALL, 0, false),
            (405, false, others, 59, true),
            (418, false, others, 60, false),
            // Trouble of the server has rules of its own.
            (503, false, PriorAnswers::ALL, 0, false),
            (0, false, PriorAnswers::ALL, 0, false),
        ] {
            let waited = may_be_transient(code, status, before, Duration::from_secs(seconds));
            assert_eq!(waited, expected, "{code} {status} {before:?} {seconds}");
        }
    }
}
