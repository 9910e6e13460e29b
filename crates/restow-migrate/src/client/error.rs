//! Why a request failed, and how errors are printed.

/// A request that got no answer.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct NoAnswer {
    message: String,
    /// Whether the server's certificate is signed by an unknown authority.
    pub untrusted: bool,
    /// Whether the request was not sent, because no connection could be made.
    pub(crate) unsent: bool,
}

impl NoAnswer {
    pub(super) fn new(message: String) -> Self {
        Self { message, untrusted: false, unsent: false }
    }

    /// Reads an error of the client.
    pub(super) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        if is_untrusted(error) {
            let message = "its certificate is signed by an unknown authority".to_owned();
            return Self { message, untrusted: true, unsent: true };
        }
        // "ServiceError" says nothing to users.
        let message = match error.downcast_ref() {
            Some(kube::Error::Service(cause)) => chain(cause.as_ref()),
            _ => chain(error),
        };
        Self { unsent: is_unconnected(error), ..Self::new(message) }
    }
}

/// Whether an error, or any of its causes, is about a certificate of an unknown authority.
fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    use tokio_rustls::rustls::{CertificateError, Error};
    if let Some(error) = error.downcast_ref::<Error>() {
        return matches!(error, Error::InvalidCertificate(CertificateError::UnknownIssuer));
    }
    // `source` of an I/O error skips the error that it holds.
    let held = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
    match held {
        Some(held) => is_untrusted(held),
        None => error.source().is_some_and(is_untrusted),
    }
}

/// Whether an error, or any of its causes, says that no connection was made.
fn is_unconnected(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    let error_kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(error_kind, Some(ConnectionRefused | HostUnreachable | NetworkUnreachable))
        || error.source().is_some_and(is_unconnected)
}

/// A request that was answered with an error, or not at all.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There was no answer.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
    /// The server answered with an error.
    #[error("{message} ({code})")]
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The server's message.
        message: String,
    },
    /// The answer is not of the expected form.
    #[error("unexpected answer to {path}")]
    Unreadable {
        /// The path of the request.
        path: String,
        /// What is wrong with the answer.
        source: serde_json::Error,
    },
}

impl RequestError {
    /// The HTTP status code, if there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the same request would fail again: the server is healthy and refused it.
    pub fn is_final(&self) -> bool {
        self.code().is_some_and(|code| (400..500).contains(&code) && code != 408 && code != 429)
    }
}

/// An error for a log: the API server's message if it answered, otherwise the error with its causes.
///
/// The client's own errors print the whole Status with Debug.
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

/// An error and its causes in one line, without repetitions.
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
    fn a_service_error_shows_only_its_cause() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let error = kube::Error::Service(Box::new(refused));
        assert_eq!(NoAnswer::of(&error).to_string(), "connection refused");
    }

    #[test]
    fn a_log_line_has_the_servers_message() {
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
