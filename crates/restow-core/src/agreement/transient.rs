//! How long an answer is waited out that may be somebody else's.
//!
//! A load balancer answers in an API server's place, a token is renewed a moment late, RBAC rules are replaced, a server
//! that starts does not know all its resources yet. While a run is under way, such an answer proves nothing until it has
//! lasted. Where nothing was ever answered well it is most likely true, and is told at once.

use std::time::Duration;

/// How long an answer that may be somebody else's is waited out while a run is under way.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a server has answered well before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Anything at all: it accepts the credentials.
    pub anything: bool,
    /// This very request: what it asks for is there, and may be read.
    pub this: bool,
}

impl Before {
    /// Everything.
    pub const ALL: Self = Self { anything: true, this: true };
}

/// Whether an answer of this code, which is not what was asked for, is waited out after it has lasted for so long.
///
/// `status` says whether its body is a Status, as an API server sends it.
pub fn is_waited_out(code: u16, status: bool, before: Before, lasted: Duration) -> bool {
    let passes = match code {
        // A success with something else in it, a redirect to a login page, a token that is just being renewed.
        200..=399 | 401 => before.anything,
        // An API server says it of what it has never had, too.
        403 | 404 => before.this,
        400..=499 => before.anything && !status,
        _ => false,
    };
    passes && lasted < PATIENCE
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
