//! Why a request failed, and how an error is shown.

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Broken {
    message: String,
    /// Whether nobody that is trusted has signed the server's certificate.
    pub untrusted: bool,
    /// Whether it was not sent: there was nobody to connect to.
    pub(crate) unsent: bool,
}

impl Broken {
    pub(super) fn new(message: String) -> Self {
        Self { message, untrusted: false, unsent: false }
    }

    /// What an error of the client means.
    pub(super) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        if is_untrusted(error) {
            let message = "its certificate is signed by an unknown authority".to_owned();
            return Self { message, untrusted: true, unsent: true };
        }
        // That it was the client's service that failed says nothing to anybody.
        let message = match error.downcast_ref() {
            Some(kube::Error::Service(cause)) => chain(cause.as_ref()),
            _ => chain(error),
        };
        Self { unsent: is_unconnected(error), ..Self::new(message) }
    }
}

/// Whether an error is about a certificate of an unknown authority, however deep inside.
fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    use tokio_rustls::rustls::{CertificateError, Error};
    if let Some(error) = error.downcast_ref::<Error>() {
        return matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer));
    }
    // An I/O error hides what it holds from those who ask for its cause.
    let held = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    match held {
        Some(held) => is_untrusted(held),
        None => error.source().is_some_and(is_untrusted),
    }
}

/// Whether an error is that of a connection that did not come about, however deep inside.
fn is_unconnected(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let error_kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(error_kind, Some(ConnectionRefused | HostUnreachable | NetworkUnreachable))
        || error.source().is_some_and(is_unconnected)
}

/// A request that was answered with an error, or not at all.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No answer.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// An error.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// Something else than was asked for.
    #[error("{path} is not what it should be")]
    Unreadable {
        /// What was asked for.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl RequestError {
    /// The HTTP status code, when there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether asking again would bring the same answer: the server was well and said no.
    pub fn is_final(&self) -> bool {
        self.code().is_some_and(|code| (400..500).contains(&code) && code != 408 && code != 429)
    }
}

/// An error for a log: an API server's own words where it has answered, and else the error with its causes.
///
/// The client's errors print the whole Status as Rust has it.
pub fn plain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = Some(error);
    while let Some(one) = cause {
        let boxed = || one.downcast_ref::<Box<kube::core::Status>>().map(AsRef::as_ref);
        if let Some(status) = one.downcast_ref::<kube::core::Status>().or_else(boxed) {
            return format!("{} ({})", status.message, status.code);
        }
        cause = one.source();
    }
    chain(error)
}

/// An error and its causes in one line, each said once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_broke_is_said_without_the_clients_own_words() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(Broken::of(&error).to_string(), "connection refused");
    }

    #[test]
    fn logs_have_the_servers_words() {
        #[derive(Debug, thiserror::Error)]
        #[error("the list failed: {0}")]
        struct Outer(#[source] kube::Error);
        let status = kube::core::Status {
            code: 403,
            message: "you may not".to_owned(),
            reason: "Forbidden".to_owned(),
            ..kube::core::Status::default()
        };
        let refused = || kube::Error::Api(Box::new(status.clone()));
        assert_eq!(plain(&refused()), "you may not (403)");
        assert_eq!(plain(&Outer(refused())), "you may not (403)");
        let other = Outer(kube::Error::Service("connection refused".into()));
        assert!(plain(&other).starts_with("the list failed: "), "{}", plain(&other));
    }
}
