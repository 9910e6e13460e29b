//! What the answer to one rewrite means: the only place that decides it.

use std::time::Duration;

use crate::agreement::transient;

/// What came back for one write, before anything is concluded from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The server answered.
    Http {
        /// The HTTP status code.
        code: u16,
        /// Whether the body is a Status, as an API server sends it; a load balancer sends something else.
        status: bool,
        /// `reason` of the Status body, empty when there is none.
        reason: String,
        /// `message` of the Status body, or the start of a body that is none.
        message: String,
        /// Where a redirect points to.
        location: Option<String>,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
        /// The resourceVersion that was sent.
        sent: String,
        /// What came back with a success that is about the object.
        returned: Option<Returned>,
    },
    /// There was no answer: refused, reset, cut short or timed out.
    Broken {
        /// What the connection said.
        message: String,
        /// Whether the request was not sent.
        unsent: bool,
    },
}

/// What a successful answer says of the object that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returned {
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub terminating: bool,
}

/// Which object a write is for, or an answer about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Its namespace, empty for cluster-wide objects.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

impl Answer {
    /// Whether it shows that an API server has accepted the credentials, whatever it says of the object.
    pub fn accepts(&self) -> bool {
        match self {
            Self::Http { code, status, returned, .. } => {
                *code != 401 && (returned.is_some() || *status && *code >= 400)
            }
            Self::Broken { .. } => false,
        }
    }

    /// Whether the write may have been carried out although the answer does not say so. A server that refuses a write,
    /// or puts it off, has not carried it out.
    pub fn hides_a_write(&self) -> bool {
        match self {
            Self::Http { code, returned, .. } => {
                returned.is_none() && matches!(code, 200..=299 | 408 | 500..=599)
            }
            Self::Broken { unsent, .. } => !unsent,
        }
    }

    /// An answer with just a status code, from an API server.
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

    /// The same with the resourceVersions before and after.
    pub fn with_versions(mut self, before: &str, after: Option<&str>) -> Self {
        if let Self::Http { sent, returned, .. } = &mut self {
            *sent = before.to_owned();
            *returned =
                after.map(|version| Returned { resource_version: version.to_owned(), terminating: false });
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
    /// The server refused this object; whether that lasts is to be seen. The others go on meanwhile.
    Refused {
        /// The server's own reason.
        reason: String,
        /// The server's own words.
        message: String,
    },
    /// The server will not take this object; the others go on.
    Quarantined {
        /// The server's own reason.
        reason: String,
        /// The server's own words.
        message: String,
    },
    /// Not decided: the answer may be about something else, so the object itself must be looked up.
    Doubtful(Doubt),
    /// Not decided: wait and send it again.
    Again {
        /// How long the server asks to wait.
        after: Option<Duration>,
        /// Whose fault it may be.
        blame: Blame,
        /// Whether the server is short of strength, so that the pace must fall.
        overloaded: bool,
        /// What to tell when it does not pass.
        reason: String,
        /// The words that came with it.
        message: String,
    },
}

/// An answer that may be about something else than the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// A refusal with a code that says that the object is gone or was changed.
    Refusal {
        /// Whether an API server sent it, and not something in front of it.
        status: bool,
        /// How long the server asks to wait.
        after: Option<Duration>,
        /// The server's own reason.
        reason: String,
        /// The server's own words.
        message: String,
    },
    /// A success without a write, for an object that is being deleted: the write may have let it go.
    Terminating,
}

/// What a look-up shows of an object whose write was answered in a doubtful way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupResult {
    /// It is not listed any more, or another object has its name.
    Absent,
    /// It was changed since it was listed.
    Changed,
    /// It is stored just as it was listed.
    Unchanged,
    /// The look-up failed, which proves nothing.
    Unknown {
        /// Why.
        message: String,
    },
}

impl LookupResult {
    /// What it means that a list shows this uid and resourceVersion under the object's name, or nothing.
    pub fn of(uid: &str, resource_version: &str, listed: Option<(&str, &str)>) -> Self {
        match listed {
            Some((other, _)) if other != uid => Self::Absent,
            None => Self::Absent,
            Some((_, version)) if version == resource_version => Self::Unchanged,
            Some(_) => Self::Changed,
        }
    }
}

/// Whose fault a failed write may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The server's or the wire's; the object's only if everything else is written well for long.
    Server,
    /// The object's, if others are written well.
    Object,
    /// The object's: an API server refused it while it was stored as it was listed.
    Refusal,
    /// The credentials', or the object's if others are written well.
    Credentials,
}

/// Decides what an answer means.
pub fn classify(answer: &Answer) -> Outcome {
    let (code, status, reason, message, location, retry_after, sent, returned) = match answer {
        Answer::Broken { message, .. } => {
            return Outcome::Again {
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
    let again = |blame, overloaded| Outcome::Again {
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
            // A success that does not say what it did, or to what, proves nothing.
            None => Outcome::Again {
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

/// How long an object must have been refused before it is named for that: RBAC rules may be being replaced, an admission
/// webhook may be starting, a proxy may answer in the server's place.
pub const LASTING: Duration = Duration::from_secs(15);

/// What an outcome comes to when the object was refused for so long.
pub fn lasting(outcome: Outcome, lasted: Duration) -> Outcome {
    match outcome {
        Outcome::Refused { reason, message } if lasted >= LASTING => Outcome::Quarantined { reason, message },
        outcome => outcome,
    }
}

/// Whether a successful answer is about the object that was written.
pub fn is_about(sent: Identity<'_>, kind: &str, answered_kind: &str, answered: Identity<'_>) -> bool {
    (answered_kind == "PartialObjectMetadata" || answered_kind == kind) && sent == answered
}

/// Decides by what a look-up shows of the object itself.
pub fn resolve(doubt: Doubt, sighting: LookupResult) -> Outcome {
    match (doubt, sighting) {
        (_, LookupResult::Absent) => Outcome::Gone,
        (_, LookupResult::Changed) => Outcome::Conflicted,
        (Doubt::Terminating, LookupResult::Unchanged) => Outcome::Current,
        (Doubt::Refusal { status, after, reason, message }, LookupResult::Unchanged) => Outcome::Again {
            after,
            blame: if status { Blame::Refusal } else { Blame::Object },
            overloaded: false,
            reason,
            message: format!("{message}; the object is still stored unchanged"),
        },
        (Doubt::Refusal { after, reason, message, .. }, LookupResult::Unknown { message: why }) => {
            Outcome::Again {
                after,
                blame: Blame::Object,
                overloaded: false,
                reason,
                message: format!("{message}; could not determine whether the object still exists: {why}"),
            }
        }
        (Doubt::Terminating, LookupResult::Unknown { message }) => Outcome::Again {
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

/// What becomes of a listed object that cannot be sent, because the write would not be bound to it.
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

/// What becomes of an object that is listed still although nothing is found under its name.
pub fn misplaced() -> Outcome {
    Outcome::Quarantined {
        reason: "Misplaced".to_owned(),
        message: "it is listed, but there is no such object under its name: it is stored under another key, and no \
                  write reaches it; delete that key from etcd, or move the object to the key of its name"
            .to_owned(),
    }
}

/// What becomes of an object when the bounded number of tries is used up.
pub fn give_up(reason: String, message: String) -> Outcome {
    Outcome::Refused { reason, message }
}

/// How often a write fails before the fault is taken to be the object's own.
const TRIES: u32 = 5;
/// How often an API server refuses an object that is stored as it was listed, before that is final.
const REFUSALS: u32 = 3;
/// How often, and for how long, a fault that looks like the server's hits one object alone before it is the object's.
const SERVER_TRIES: u32 = 10;
const SERVER_FOR: Duration = Duration::from_secs(30);
/// How long a server is waited for that does nothing well.
pub const OUTAGE: Duration = Duration::from_secs(300);

/// What to do about an object whose writes fail with an error that may be its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Try it again.
    Again,
    /// Leave it for now; the others go on.
    GiveUp,
    /// Leave everything for later: the server cannot write such objects now.
    Later,
    /// End: the credentials are no longer accepted for anything.
    Unauthorized,
}

/// The failures of one object so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// How often an API server refused it while it was stored unchanged.
    pub refused: u32,
    /// How many failures count against it: those since whose predecessor the server was well otherwise.
    pub counted: u32,
    /// For how long it has failed; with a 401, for how long it has failed so.
    pub lasted: Duration,
    /// Whether others fail alike.
    pub elsewhere: bool,
    /// Whether the server answers lists, and there is no other object that it could be asked to write.
    pub alone: bool,
}

/// Decides whether an object is tried again after a failure.
///
/// Where others fail alike and nothing is written well, it is no object's fault, however long it lasts.
pub fn patience(blame: Blame, failed: Failed) -> Patience {
    let Failed { refused, counted, lasted, elsewhere, alone } = failed;
    match blame {
        Blame::Refusal if refused >= REFUSALS => Patience::GiveUp,
        Blame::Refusal => Patience::Again,
        Blame::Server if counted >= SERVER_TRIES && lasted >= SERVER_FOR => Patience::GiveUp,
        Blame::Server if alone && lasted >= OUTAGE => Patience::GiveUp,
        Blame::Server => Patience::Again,
        Blame::Object | Blame::Credentials if counted >= TRIES => Patience::GiveUp,
        Blame::Credentials if lasted >= transient::TRANSIENT_ANSWER_TIMEOUT => Patience::Unauthorized,
        Blame::Credentials => Patience::Again,
        // It failed, another was written well, and it failed again.
        Blame::Object if lasted >= OUTAGE && (!elsewhere || counted > 1) => Patience::GiveUp,
        Blame::Object if lasted >= OUTAGE => Patience::Later,
        Blame::Object => Patience::Again,
    }
}

/// Who had a part in a write, besides the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helper {
    /// Nobody.
    None,
    /// A webhook, if the object was stored in another version.
    Perhaps,
    /// A webhook: the object's managedFields had to be converted, or it was written through another version than it
    /// is stored in.
    Webhook,
}

/// Whether the outcome of one write shows that the server, with what it needs, could have done another one.
pub fn shows_well(outcome: &Outcome, helper: Helper) -> bool {
    match (outcome, helper) {
        (Outcome::Again { .. } | Outcome::Doubtful(_), _) => false,
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
