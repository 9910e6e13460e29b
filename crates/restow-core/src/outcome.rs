//! What the answer to one rewrite means: the only place that decides it.

use std::time::Duration;

/// What came back for one write, before anything is concluded from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server answered.
    Http {
        /// The HTTP status code.
        code: u16,
        /// `reason` of the Status body, empty when there is none.
        reason: String,
        /// `message` of the Status body, or the start of a body that is none.
        message: String,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
        /// The resourceVersion that was sent.
        sent: String,
        /// The resourceVersion that came back with a success.
        returned: Option<String>,
    },
    /// There was no answer: refused, reset, cut short or timed out.
    Broken {
        /// What the connection said.
        message: String,
    },
}

impl Answer {
    /// An answer with just a status code.
    pub fn http(code: u16) -> Self {
        Self::Http {
            code,
            reason: String::new(),
            message: String::new(),
            retry_after: None,
            sent: String::new(),
            returned: None,
        }
    }

    /// The same with the resourceVersions before and after.
    pub fn with_versions(mut self, before: &str, after: Option<&str>) -> Self {
        if let Self::Http { sent, returned, .. } = &mut self {
            *sent = before.to_owned();
            *returned = after.map(str::to_owned);
        }
        self
    }
}

/// What became of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stored anew, in the storage version and under the key of now.
    Rewritten,
    /// Already stored as it should be; nothing was written.
    Current,
    /// Somebody else wrote it since it was listed; under agreement that write was in the storage version.
    Conflicted,
    /// It no longer exists.
    Gone,
    /// The server would take it; a dry run does not tell what it would write.
    Accepted,
    /// The server will not take this object; the others go on.
    Quarantined {
        /// The server's own reason.
        reason: String,
        /// The server's own words.
        message: String,
    },
    /// Not decided: wait and send it again.
    Again {
        /// How long the server asks to wait.
        after: Option<Duration>,
        /// Whether the number of tries is bounded, because the fault may be the object's own.
        bounded: bool,
        /// Whether the server is short of strength, so that the pace must fall.
        overloaded: bool,
        /// What to tell when it does not pass.
        reason: String,
        /// The words that came with it.
        message: String,
    },
    /// The credentials no longer hold; nothing else can succeed either.
    Unauthorized {
        /// The server's own words.
        message: String,
    },
}

/// Decides what an answer means.
pub fn classify(answer: &Answer) -> Outcome {
    let (code, reason, message, retry_after, sent, returned) = match answer {
        Answer::Broken { message } => {
            return Outcome::Again {
                after: None,
                bounded: false,
                overloaded: true,
                reason: "ConnectionLost".to_owned(),
                message: message.clone(),
            };
        }
        Answer::Http { code, reason, message, retry_after, sent, returned } => {
            (*code, reason, message, *retry_after, sent, returned)
        }
    };
    let again = |bounded, overloaded| Outcome::Again {
        after: retry_after,
        bounded,
        overloaded,
        reason: reason_or_code(reason, code),
        message: message.clone(),
    };
    match code {
        200..=299 => match returned {
            Some(returned) if returned == sent => Outcome::Current,
            Some(_) => Outcome::Rewritten,
            // A success that does not say what it did proves nothing.
            None => again(true, false),
        },
        401 => Outcome::Unauthorized { message: message.clone() },
        404 => Outcome::Gone,
        409 => Outcome::Conflicted,
        408 | 429 | 502 | 503 | 504 => again(false, true),
        500..=599 => again(true, false),
        _ => Outcome::Quarantined { reason: reason_or_code(reason, code), message: message.clone() },
    }
}

/// What becomes of an object when the bounded number of tries is used up.
pub fn give_up(reason: String, message: String) -> Outcome {
    Outcome::Quarantined { reason, message }
}

/// How often a write fails before the fault is taken to be the object's own.
const TRIES: u32 = 5;
/// How long a server is waited for that does nothing well.
pub const OUTAGE: Duration = Duration::from_secs(300);

/// What to do about an object whose writes fail with an error that may be its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Try it again.
    Again,
    /// Leave it; the others go on.
    GiveUp,
    /// Leave everything for later: the server cannot write such objects now.
    Later,
}

/// Decides by how many tries count against the object, and for how long it has failed. A try counts if the server was
/// well otherwise since the one before.
///
/// `outage` says that a webhook converts these objects, and that others fail alike: then it is no object's fault,
/// however long it lasts.
pub fn patience(counted: u32, lasted: Duration, outage: bool) -> Patience {
    match (counted >= TRIES, lasted >= OUTAGE) {
        (true, _) => Patience::GiveUp,
        (false, true) if outage => Patience::Later,
        (false, true) => Patience::GiveUp,
        (false, false) => Patience::Again,
    }
}

/// Who had a part in a write, besides the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// Nobody.
    None,
    /// A webhook, if the object was stored in another version.
    Perhaps,
    /// A webhook: the object's managedFields had to be converted.
    Webhook,
}

/// Whether the outcome of one write shows that the server, with what it needs, could have done another one.
pub fn shows_well(outcome: &Outcome, helper: Helper) -> bool {
    match (outcome, helper) {
        (Outcome::Again { .. } | Outcome::Unauthorized { .. }, _) => false,
        (_, Helper::None) => true,
        // Only an object in an old version has to be rewritten.
        (Outcome::Rewritten, _) => true,
        (Outcome::Current | Outcome::Accepted, Helper::Webhook) => true,
        _ => false,
    }
}

/// How long to wait before try `attempt` (1 is the first repeat): what the server asked for, else doubling.
pub fn backoff(attempt: u32, asked: Option<Duration>) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST_ASKED: Duration = Duration::from_secs(60);
    const LONGEST: Duration = Duration::from_secs(5);
    match asked {
        Some(asked) => asked.clamp(SHORTEST, LONGEST_ASKED),
        None => SHORTEST.saturating_mul(1 << attempt.clamp(1, 10).saturating_sub(1)).min(LONGEST),
    }
}

fn reason_or_code(reason: &str, code: u16) -> String {
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match code {
        400 => "BadRequest".to_owned(),
        403 => "Forbidden".to_owned(),
        405 => "MethodNotAllowed".to_owned(),
        413 => "RequestEntityTooLarge".to_owned(),
        415 => "UnsupportedMediaType".to_owned(),
        422 => "Invalid".to_owned(),
        500 => "InternalError".to_owned(),
        other => format!("Http{other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_one_meaning() {
        let name = |outcome: &Outcome| match outcome {
            Outcome::Rewritten => "rewritten",
            Outcome::Current => "current",
            Outcome::Conflicted => "conflicted",
            Outcome::Gone => "gone",
            Outcome::Accepted => "accepted",
            Outcome::Quarantined { .. } => "quarantined",
            Outcome::Again { bounded: true, .. } => "again, bounded",
            Outcome::Again { bounded: false, .. } => "again",
            Outcome::Unauthorized { .. } => "unauthorized",
        };
        for (code, expected) in [
            (400, "quarantined"),
            (401, "unauthorized"),
            (403, "quarantined"),
            (404, "gone"),
            (405, "quarantined"),
            (408, "again"),
            (409, "conflicted"),
            (413, "quarantined"),
            (415, "quarantined"),
            (422, "quarantined"),
            (429, "again"),
            (500, "again, bounded"),
            (501, "again, bounded"),
            (502, "again"),
            (503, "again"),
            (504, "again"),
        ] {
            assert_eq!(name(&classify(&Answer::http(code))), expected, "{code}");
        }
    }

    #[test]
    fn a_success_is_judged_by_the_resource_version() {
        for (before, after, expected) in [
            ("7", Some("7"), Outcome::Current),
            ("7", Some("8"), Outcome::Rewritten),
            // etcd restored from a backup may go back; it was written all the same.
            ("7", Some("6"), Outcome::Rewritten),
        ] {
            assert_eq!(classify(&Answer::http(200).with_versions(before, after)), expected);
        }
        assert!(matches!(classify(&Answer::http(200)), Outcome::Again { bounded: true, .. }));
    }

    #[test]
    fn an_object_is_given_up_while_the_server_is_well_otherwise() {
        for (counted, seconds, outage, expected) in [
            (1, 0, false, Patience::Again),
            (4, 299, false, Patience::Again),
            (5, 2, false, Patience::GiveUp),
            (1, 300, false, Patience::GiveUp),
            (5, 2, true, Patience::GiveUp),
            (5, 900, true, Patience::GiveUp),
            (4, 299, true, Patience::Again),
            (4, 300, true, Patience::Later),
        ] {
            let decided = patience(counted, Duration::from_secs(seconds), outage);
            assert_eq!(decided, expected, "{counted} in {seconds} s, {outage}");
        }
    }

    #[test]
    fn only_what_needed_the_same_shows_that_the_server_is_well() {
        let quarantined = give_up("Invalid".to_owned(), String::new());
        let failed = classify(&Answer::http(500));
        let unauthorized = classify(&Answer::http(401));
        for (outcome, none, perhaps, webhook) in [
            (Outcome::Rewritten, true, true, true),
            (Outcome::Current, true, false, true),
            (Outcome::Accepted, true, false, true),
            (Outcome::Conflicted, true, false, false),
            (Outcome::Gone, true, false, false),
            (quarantined, true, false, false),
            (failed, false, false, false),
            (unauthorized, false, false, false),
        ] {
            let shown =
                [Helper::None, Helper::Perhaps, Helper::Webhook].map(|helper| shows_well(&outcome, helper));
            assert_eq!(shown, [none, perhaps, webhook], "{outcome:?}");
        }
    }

    #[test]
    fn a_broken_connection_is_never_final() {
        let outcome = classify(&Answer::Broken { message: "connection refused".to_owned() });
        assert!(matches!(outcome, Outcome::Again { bounded: false, overloaded: true, .. }), "{outcome:?}");
    }

    #[test]
    fn waiting_honours_the_server_and_is_capped() {
        let s = Duration::from_secs;
        assert_eq!(backoff(1, Some(s(4))), s(4));
        assert_eq!(backoff(1, Some(s(4000))), s(60));
        assert_eq!(backoff(1, Some(s(0))), Duration::from_millis(100));
        assert_eq!(backoff(1, None), Duration::from_millis(100));
        assert_eq!(backoff(3, None), Duration::from_millis(400));
        assert_eq!(backoff(u32::MAX, None), s(5));
    }
}
