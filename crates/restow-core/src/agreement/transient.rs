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
pub struct Before {
    /// Any request: the server accepts the credentials.
    pub anything: bool,
    /// The same request: its resource exists and may be read.
    pub this: bool,
}

impl Before {
    /// Every request succeeded before.
    pub const ALL: Self = Self { anything: true, this: true };
}

/// Whether to wait out an unexpected answer with this code that has lasted for so long.
///
/// `status` says whether the body is a Status, as an API server sends it.
pub fn is_waited_out(code: u16, status: bool, before: Before, lasted: Duration) -> bool {
    let passes = match code {
        // A success with something else in it, a redirect to a login page, a token that is just being renewed.
        200..=399 | 401 => before.anything,
        // An API server says it of what it has never had, too.
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
    fn an_answer_that_may_be_somebody_elses_is_waited_out_once_something_was_answered_well() {
        let nothing = Before::default();
        let others = Before { anything: true, this: false };
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
            (403, true, Before::ALL, 59, true),
            (403, false, Before::ALL, 60, false),
            (404, false, Before::ALL, 59, true),
            (404, true, Before::ALL, 60, false),
            // An API server's own word, and a proxy's.
            (405, true, Before::ALL, 0, false),
            (400, true, Before::ALL, 0, false),
            (405, false, others, 59, true),
            (418, false, others, 60, false),
            // Trouble of the server has rules of its own.
            (503, false, Before::ALL, 0, false),
            (0, false, Before::ALL, 0, false),
        ] {
            let waited = is_waited_out(code, status, before, Duration::from_secs(seconds));
            assert_eq!(waited, expected, "{code} {status} {before:?} {seconds}");
        }
    }
}
