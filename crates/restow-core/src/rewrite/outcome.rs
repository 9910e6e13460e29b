//! What the answer to a rewrite means. Nothing else classifies answers.

use std::time::Duration;

use crate::agreement::transient;

/// The answer to one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server answered.
    Http {
        /// The HTTP status code.
        code: u16,
        /// Whether the body is a Status, as an API server sends it; a load balancer sends something else.
        status: bool,
        /// `reason` of the Status; empty if there is none.
        reason: String,
        /// `message` of the Status, or the beginning of another body.
        message: String,
        /// The target of a redirect.
        location: Option<String>,
        /// `Retry-After`, how long the server asks the client to wait.
        retry_after: Option<Duration>,
        /// The resourceVersion that was sent.
        sent: String,
        /// The object in a successful answer, if it is the one that was written.
        returned: Option<Returned>,
    },
    /// There was no answer: refused, reset, cut short or timed out.
    Broken {
        /// The error of the connection.
        message: String,
        /// Whether the request was not sent.
        unsent: bool,
    },
}

/// The written object in a successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// Identifies the object of a write or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// `metadata.name`.
    pub name: &'a str,
    /// `metadata.uid`.
    pub uid: &'a str,
}

impl Answer {
    /// Whether it shows that an API server has accepted the credentials.
    pub fn accepts(&self) -> bool {
        match self {
            Self::Http { code, status, returned, .. } => {
                *code != 401 && (returned.is_some() || *status && *code >= 400)
            }
            Self::Broken { .. } => false,
        }
    }

    /// Whether the write may have been carried out although the answer does not show it. A server that refuses or postpones
    /// a write has not carried it out.
    pub fn hides_a_write(&self) -> bool {
        match self {
            Self::Http { code, returned, .. } => {
                returned.is_none() && matches!(code, 200..=299 | 408 | 500..=599)
            }
            Self::Broken { unsent, .. } => !unsent,
        }
    }

    /// An answer of an API server with only a status code.
    pub fn http(code: u16) -> Self {
        Self::Http {
            code,
            status: true,
            reason: String::new(),
            message: String::new(),
            location: None,
            retry_after: None,
            sent: String::new(),
            returned: None,
        }
    }

    /// Adds the resourceVersions before and after the write.
    pub fn with_versions(mut self, before: &str, after: Option<&str>) -> Self {
        if let Self::Http { sent, returned, .. } = &mut self {
            *sent = before.to_owned();
            *returned =
                after.map(|version| Returned { resource_version: version.to_owned(), terminating: false });
        }
        self
    }
}

/// The outcome for one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was stored again, in the current version and under the current key.
    Rewritten,
    /// It was already stored in the current version and under the current key; nothing was written.
    Current,
    /// Another client wrote it after it was listed; under agreement, that write used the storage version.
    Conflicted,
    /// It no longer exists.
    Gone,
    /// The server accepted a dry run, which does not show whether the object would be rewritten.
    Accepted,
    /// The server refused this object, and it is not known yet whether the refusal lasts. Other objects continue.
    Refused {
        /// The reason that the server gives.
        reason: String,
        /// The message of the server.
        message: String,
    },
    /// The server refuses this object for good. Other objects continue.
    Quarantined {
        /// The reason that the server gives.
        reason: String,
        /// The message of the server.
        message: String,
    },
    /// Undecided: the answer may not be about the object, so the object must be looked up.
    Doubtful(Doubt),
    /// Undecided: wait and send it again.
    Retry {
        /// `Retry-After`, how long the server asks the client to wait.
        after: Option<Duration>,
        /// What may be the cause.
        blame: Blame,
        /// Whether the server is overloaded, so that the pace must fall.
        overloaded: bool,
        /// The reason to report if it lasts.
        reason: String,
        /// The message of the server or the connection.
        message: String,
    },
}

/// An answer that may not be about the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A refusal with a code that means that the object is gone or was changed.
    Refusal {
        /// Whether an API server sent it, and not something in front of it.
        status: bool,
        /// `Retry-After`, how long the server asks the client to wait.
        after: Option<Duration>,
        /// The reason that the server gives.
        reason: String,
        /// The message of the server.
        message: String,
    },
    /// A success without a write for an object that is being deleted: the write may have completed the deletion.
    Terminating,
}

/// What a look-up shows about an object after a doubtful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// It is no longer listed, or another object has its name.
    Absent,
    /// It has changed since it was listed.
    Changed,
    /// It is stored as it was listed.
    Unchanged,
    /// The look-up failed, which proves nothing.
    Unknown {
        /// The error of the look-up.
        message: String,
    },
}

impl LookupResult {
    /// The result of a look-up that lists this uid and resourceVersion under the object's name, or nothing.
    pub fn of(uid: &str, resource_version: &str, listed: Option<(&str, &str)>) -> Self {
        match listed {
            Some((other, _)) if other != uid => Self::Absent,
            None => Self::Absent,
            Some((_, version)) if version == resource_version => Self::Unchanged,
            Some(_) => Self::Changed,
        }
    }
}

/// What may be the cause of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The server or the connection; the object only if all other writes succeed for long.
    Server,
    /// The object, if other writes succeed.
    Object,
    /// The object: an API server refused it while it was stored as it was listed.
    Refusal,
    /// The credentials, or the object if other writes succeed.
    Credentials,
}

/// Decides what an answer means.
pub fn classify(answer: &Answer) -> Outcome {
    let (code, status, reason, message, location, retry_after, sent, returned) = match answer {
        Answer::Broken { message, .. } => {
            return Outcome::Retry {
                after: None,
                blame: Blame::Server,
                overloaded: true,
                reason: "ConnectionLost".to_owned(),
                message: message.clone(),
            };
        }
        Answer::Http { code, status, reason, message, location, retry_after, sent, returned } => {
            (*code, *status, reason, message, location.as_deref(), *retry_after, sent, returned)
        }
    };
    let again = |blame, overloaded| Outcome::Retry {
        after: retry_after,
        blame,
        overloaded,
        reason: reason_or_code(reason, code),
        message: message_or_code(message, code, location),
    };
    match code {
        200..=299 => match returned {
            Some(returned) if returned.resource_version != *sent => Outcome::Rewritten,
            Some(returned) if returned.terminating => Outcome::Doubtful(Doubt::Terminating),
            Some(_) => Outcome::Current,
            // A success without the object proves nothing.
            None => Outcome::Retry {
                after: retry_after,
                blame: Blame::Object,
                overloaded: false,
                reason: "UnexpectedAnswer".to_owned(),
                message: format!("the server answered {code} with something other than this object"),
            },
        },
        300..=399 => again(Blame::Object, false),
        401 => again(Blame::Credentials, true),
        404 | 409 | 410 => Outcome::Doubtful(Doubt::Refusal {
            status,
            after: retry_after,
            reason: reason_or_code(reason, code),
            message: message_or_code(message, code, location),
        }),
        408 | 429 | 502 | 503 | 504 => again(Blame::Server, true),
        500..=599 => again(Blame::Object, false),
        _ => Outcome::Refused {
            reason: reason_or_code(reason, code),
            message: message_or_code(message, code, location),
        },
    }
}

/// How long an object must have been refused before it is quarantined: RBAC rules may be being replaced, an admission
/// webhook may be starting, a proxy may answer instead of the server.
pub const REFUSAL_TIMEOUT: Duration = Duration::from_secs(15);

/// Turns a refusal into quarantine once it has lasted for [`REFUSAL_TIMEOUT`].
pub fn quarantine_if_lasting(outcome: Outcome, lasted: Duration) -> Outcome {
    match outcome {
        Outcome::Refused { reason, message } if lasted >= REFUSAL_TIMEOUT => {
            Outcome::Quarantined { reason, message }
        }
        outcome => outcome,
    }
}

/// Whether a successful answer is about the object that was written.
pub fn is_about(sent: Identity<'_>, kind: &str, answered_kind: &str, answered: Identity<'_>) -> bool {
    (answered_kind == "PartialObjectMetadata" || answered_kind == kind) && sent == answered
}

/// Decides a doubtful answer by a look-up of the object.
pub fn resolve(doubt: Doubt, sighting: LookupResult) -> Outcome {
    match (doubt, sighting) {
        (_, LookupResult::Absent) => Outcome::Gone,
        (_, LookupResult::Changed) => Outcome::Conflicted,
        (Doubt::Terminating, LookupResult::Unchanged) => Outcome::Current,
        (Doubt::Refusal { status, after, reason, message }, LookupResult::Unchanged) => Outcome::Retry {
            after,
            blame: if status { Blame::Refusal } else { Blame::Object },
            overloaded: false,
            reason,
            message: format!("{message}; the object is still stored unchanged"),
        },
        (Doubt::Refusal { after, reason, message, .. }, LookupResult::Unknown { message: why }) => {
            Outcome::Retry {
                after,
                blame: Blame::Object,
                overloaded: false,
                reason,
                message: format!("{message}; could not determine whether the object still exists: {why}"),
            }
        }
        (Doubt::Terminating, LookupResult::Unknown { message }) => Outcome::Retry {
            after: None,
            blame: Blame::Object,
            overloaded: false,
            reason: "Terminating".to_owned(),
            message: format!(
                "it is being deleted, and restow could not determine whether it still exists: {message}"
            ),
        },
    }
}

/// The outcome for a listed object that lacks what a write needs as a precondition.
pub fn unsendable(object: Identity<'_>, resource_version: &str) -> Option<Outcome> {
    let (reason, missing) = match (object.name, object.uid, resource_version) {
        ("", ..) => ("NoName", "name"),
        (_, "", _) => ("NoUid", "uid"),
        (_, _, "") => ("NoResourceVersion", "resourceVersion"),
        _ => return None,
    };
    Some(Outcome::Quarantined {
        reason: reason.to_owned(),
        message: format!(
            "it is listed without a {missing}, so that no write can be bound to it; delete it and create it again"
        ),
    })
}

/// The outcome for an object that is still listed although nothing is found under its name.
pub fn misplaced() -> Outcome {
    Outcome::Quarantined {
        reason: "Misplaced".to_owned(),
        message: "it is listed, but there is no such object under its name: it is stored under another key, and no \
                  write reaches it; delete that key from etcd, or move the object to the key of its name"
            .to_owned(),
    }
}

/// The outcome for an object when its tries are used up.
pub fn give_up(reason: String, message: String) -> Outcome {
    Outcome::Refused { reason, message }
}

/// How often a write fails before the object counts as the cause.
const TRIES: u32 = 5;
/// How often an API server refuses an object that is stored as it was listed before that is final.
const REFUSALS: u32 = 3;
/// How often, and for how long, a server error affects one object alone before the object counts as the cause.
const SERVER_TRIES: u32 = 10;
const SERVER_FOR: Duration = Duration::from_secs(30);
/// How long to wait for a server on which every write fails.
pub const OUTAGE_TIMEOUT: Duration = Duration::from_secs(300);

/// What to do about an object whose writes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Send it again.
    Retry,
    /// Set it aside; other objects continue.
    GiveUp,
    /// Interrupt the run: the server cannot write such objects now.
    Later,
    /// End the run: the credentials are no longer accepted.
    Unauthorized,
}

/// The failures of one object so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureHistory {
    /// How often an API server refused it while it was stored unchanged.
    pub refused: u32,
    /// How many failures count against it: those between which other writes succeeded.
    pub counted: u32,
    /// For how long it has failed; with a 401, for how long it has failed with a 401.
    pub lasted: Duration,
    /// Whether other objects fail in the same way.
    pub elsewhere: bool,
    /// Whether the server answers lists and there is no other object to try a write on.
    pub alone: bool,
}

/// Decides what to do about an object after a failure.
///
/// If other objects fail in the same way and no write succeeds, no object is the cause, however long it lasts.
pub fn retry_decision(blame: Blame, failed: FailureHistory) -> RetryDecision {
    let FailureHistory { refused, counted, lasted, elsewhere, alone } = failed;
    match blame {
        Blame::Refusal if refused >= REFUSALS => RetryDecision::GiveUp,
        Blame::Refusal => RetryDecision::Retry,
        Blame::Server if counted >= SERVER_TRIES && lasted >= SERVER_FOR => RetryDecision::GiveUp,
        Blame::Server if alone && lasted >= OUTAGE_TIMEOUT => RetryDecision::GiveUp,
        Blame::Server => RetryDecision::Retry,
        Blame::Object | Blame::Credentials if counted >= TRIES => RetryDecision::GiveUp,
        Blame::Credentials if lasted >= transient::TRANSIENT_ANSWER_TIMEOUT => RetryDecision::Unauthorized,
        Blame::Credentials => RetryDecision::Retry,
        // It failed, another write succeeded, and it failed again.
        Blame::Object if lasted >= OUTAGE_TIMEOUT && (!elsewhere || counted > 1) => RetryDecision::GiveUp,
        Blame::Object if lasted >= OUTAGE_TIMEOUT => RetryDecision::Later,
        Blame::Object => RetryDecision::Retry,
    }
}

/// Whether a write used the conversion webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookUse {
    /// It did not.
    None,
    /// It did if the object was stored in another version.
    Perhaps,
    /// It did: the object's managedFields had to be converted, or the request used another version than the stored one.
    Webhook,
}

/// Whether the outcome of a write shows that the server, and the webhook if one is needed, can write other objects.
pub fn shows_health(outcome: &Outcome, helper: WebhookUse) -> bool {
    match (outcome, helper) {
        (Outcome::Retry { .. } | Outcome::Doubtful(_), _) => false,
        (_, WebhookUse::None) => true,
        // A rewritten object was in an old version, so it was converted.
        (Outcome::Rewritten, _) => true,
        (Outcome::Current | Outcome::Accepted, WebhookUse::Webhook) => true,
        _ => false,
    }
}

/// How long to wait before retry `attempt` (from 1): what the server asks for, else an exponential backoff.
pub fn backoff(attempt: u32, asked: Option<Duration>) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST_ASKED: Duration = Duration::from_secs(60);
    const LONGEST: Duration = Duration::from_secs(5);
    match asked {
        Some(asked) => asked.clamp(SHORTEST, LONGEST_ASKED),
        None => SHORTEST.saturating_mul(1 << attempt.clamp(1, 10).saturating_sub(1)).min(LONGEST),
    }
}

fn message_or_code(message: &str, code: u16, location: Option<&str>) -> String {
    match (message, location) {
        ("", None) => format!("the server answered {code} without a message"),
        ("", Some(location)) => format!("the server answered {code} and pointed to {location}"),
        (message, None) => message.to_owned(),
        (message, Some(location)) => {
            format!("{message} (the server answered {code} and pointed to {location})")
        }
    }
}

fn reason_or_code(reason: &str, code: u16) -> String {
    if !reason.is_empty() {
        return reason.to_owned();
    }
    match code {
        400 => "BadRequest".to_owned(),
        401 => "Unauthorized".to_owned(),
        403 => "Forbidden".to_owned(),
        404 => "NotFound".to_owned(),
        405 => "MethodNotAllowed".to_owned(),
        409 => "Conflict".to_owned(),
        413 => "RequestEntityTooLarge".to_owned(),
        415 => "UnsupportedMediaType".to_owned(),
        422 => "Invalid".to_owned(),
        500 => "InternalError".to_owned(),
        other => format!("Http{other}"),
    }
}

#[cfg(test)]
mod tests;
