//! The errors of an API server, each with the message of kube-apiserver.

use restow_core::resource::name::GroupResource;

use super::cause::{Cause, CauseKind, MOST_CAUSES};
use super::error::{Details, GroupKind, Reason, StatusError};
use super::golang::quote;

/// A denied request, for its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeniedAccess<'a> {
    pub user: &'a str,
    /// The verb of the API, such as `list`.
    pub verb: &'a str,
    /// The resource; none for a non-resource path.
    pub resource: Option<&'a GroupResource>,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// The namespace, empty at the cluster scope.
    pub namespace: &'a str,
    /// The name of the object, empty for a collection.
    pub name: &'a str,
    /// The path of a request that names no resource.
    pub path: &'a str,
}

fn about(resource: &GroupResource, name: &str) -> Details {
    Details {
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        name: name.into(),
        ..Details::default()
    }
}

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";
const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";
const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. \
     You can start a new list without the continue parameter.";
const CONTINUE_INCONSISTENT: &str = "The provided continue parameter is too old to display a consistent list result. \
     You can start a new list without the continue parameter, or use the continue token in this response to \
     retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - \
     objects that were created, modified, or deleted between the time the first chunk was returned and now may \
     show up in the list.";

impl StatusError {
    /// 404: the object does not exist.
    pub(crate) fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, Reason::NotFound, format!("{resource} {} not found", quote(name)))
            .with_details(about(resource, name))
    }

    /// 404: nothing is served under this path.
    pub(crate) fn unknown_path() -> Self {
        Self::new(404, Reason::NotFound, "the server could not find the requested resource")
            .with_details(Details::default())
    }

    /// 404: nothing is served under this path, and its API group is unknown.
    pub(crate) fn no_page() -> Self {
        Self::new(404, Reason::NoPage, "404 page not found")
    }

    /// 409: the object already exists.
    pub(crate) fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, Reason::AlreadyExists, format!("{resource} {} already exists", quote(name)))
            .with_details(about(resource, name))
    }

    /// 409: all generated names already exist.
    pub(crate) fn generated_name_exists(resource: &GroupResource, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quote(name)
        );
        Self::new(409, Reason::AlreadyExists, message)
            .with_details(Details { retry_after_seconds: 1, ..about(resource, name) })
    }

    /// 409 with a reason.
    pub(crate) fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quote(name));
        Self::new(409, Reason::Conflict, message).with_details(about(resource, name))
    }

    /// 409: the resourceVersion sent is not the object's.
    pub(crate) fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(resource, name, MODIFIED)
    }

    /// 409: other managers own fields of an applied configuration with other values.
    pub(crate) fn apply_conflict(message: String, causes: Vec<Cause>) -> Self {
        Self::new(409, Reason::Conflict, message).with_details(Details { causes, ..Details::default() })
    }

    /// 409: the uid an update was sent with is not the object's. `key` is the storage key.
    pub(crate) fn uid_precondition(
        resource: &GroupResource,
        name: &str,
        key: &str,
        wanted: &str,
        found: &str,
    ) -> Self {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        );
        Self::conflict(resource, name, &why)
    }

    /// 409: the uid a delete is for is not the object's.
    pub(crate) fn delete_uid_precondition(kind: &GroupKind, name: &str, wanted: &str, found: &str) -> Self {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({found}). \
             The object might have been deleted and then recreated"
        );
        Self::conflict(&GroupResource::new(&kind.group, &kind.kind), name, &why)
    }

    /// 409: the resourceVersion a delete is for is not the object's.
    pub(crate) fn delete_version_precondition(
        kind: &GroupKind,
        name: &str,
        wanted: &str,
        found: &str,
    ) -> Self {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({found}). The object might have been modified"
        );
        Self::conflict(&GroupResource::new(&kind.group, &kind.kind), name, &why)
    }

    /// 422: the object is not valid, for these causes.
    pub(crate) fn invalid(kind: &GroupKind, name: &str, mut causes: Vec<Cause>) -> Self {
        if causes.len() > MOST_CAUSES {
            causes.truncate(MOST_CAUSES);
            let more =
                format!("only the first {MOST_CAUSES} errors are listed; correct them to see the rest");
            causes.push(Cause::bare(CauseKind::Invalid, more, "<nil>"));
        }
        let mut message = format!("{kind} {} is invalid", quote(name));
        if !causes.is_empty() {
            message.push_str(": ");
            message.push_str(&Cause::aggregate(&causes));
        }
        let details = Details {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            name: name.into(),
            causes,
            ..Details::default()
        };
        Self::new(422, Reason::Invalid, message).with_details(details)
    }

    /// 422: a JSON patch that does not fit the object; kube-apiserver does not say why.
    pub(crate) fn unprocessable() -> Self {
        Self::new(422, Reason::Invalid, "the server rejected our request due to an error in our request")
            .with_details(Details::default())
    }

    /// 422: a patch that made something else of the object than its kind.
    pub(crate) fn unfit_patch(patched: &serde_json::Value, why: &str) -> Self {
        let cause = Cause::invalid_text("patch", &super::golang::json(patched), why);
        Self::invalid(&GroupKind::default(), "", vec![cause])
    }

    /// 400 with a message.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    /// 401: the user is unknown.
    pub(crate) fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 403: the user may not do this. `why` is added if it is not empty.
    pub(crate) fn forbidden(attempt: &DeniedAccess<'_>, why: &str) -> Self {
        let mut message = attempt.message();
        if !why.is_empty() {
            message = format!("{message}: {why}");
        }
        match attempt.resource {
            None => Self::new(403, Reason::Forbidden, format!("forbidden: {message}"))
                .with_details(Details::default()),
            Some(resource) => Self::forbidden_object(resource, attempt.name, &message),
        }
    }

    /// 403: refused for another reason than permissions.
    pub(crate) fn forbidden_object(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quote(name))
        };
        Self::new(403, Reason::Forbidden, message).with_details(about(resource, name))
    }

    /// 405: the path does not support the method.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(
            405,
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        )
        .with_details(Details::default())
    }

    /// 405: the custom resource does not support the verb.
    pub(crate) fn verb_not_supported(resource: &GroupResource, verb: &str) -> Self {
        let message =
            format!("{verb} is not supported on resources of kind {}", quote(&resource.to_string()));
        Self::new(405, Reason::MethodNotAllowed, message).with_details(about(resource, ""))
    }

    /// 406: none of the accepted media types is supported.
    pub(crate) fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", accepted.join(", "));
        Self::new(406, Reason::NotAcceptable, message)
    }

    /// 415: the media type of the body is not one of these.
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, Reason::UnsupportedMediaType, message)
    }

    /// 410 with a message: the requested state is no longer kept.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    /// 410: the resourceVersion of a list is no longer kept.
    pub(crate) fn list_expired() -> Self {
        Self::expired(LIST_EXPIRED)
    }

    /// 410: the continue token has expired; `token` continues the list at the newest state.
    pub(crate) fn continue_expired(token: Option<String>) -> Self {
        match token {
            None => Self::expired(CONTINUE_EXPIRED),
            Some(token) => Self { continue_token: Some(token), ..Self::expired(CONTINUE_INCONSISTENT) },
        }
    }

    /// 410: the resourceVersion that a watch starts after is no longer kept.
    pub(crate) fn watch_expired(wanted: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {wanted} ({oldest})"))
    }

    /// 410: a watch has missed changes. Only after this status do clients list again; after any other one they continue from
    /// the last resourceVersion that they know.
    pub(crate) fn missed(why: &str) -> Self {
        Self::expired(format!("list again: {why}"))
    }

    /// 504: the resourceVersion is newer than the newest state.
    pub(crate) fn version_too_large(wanted: u64, current: u64) -> Self {
        let mut failure =
            Self::timeout(&format!("Too large resource version: {wanted}, current: {current}"), 1);
        if let Some(details) = &mut failure.details {
            details.causes =
                vec![Cause::bare(CauseKind::ResourceVersionTooLarge, "Too large resource version", "")];
        }
        failure
    }

    /// 413: the body, or a count in it, is too large.
    pub(crate) fn too_large(why: &str) -> Self {
        Self::new(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {why}"))
    }

    /// 429: the client should retry later.
    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, Reason::TooManyRequests, message)
            .with_details(Details { retry_after_seconds, ..Details::default() })
    }

    /// 500: an internal error.
    pub(crate) fn internal(why: &str) -> Self {
        Self::new(500, Reason::InternalError, format!("Internal error occurred: {why}")).with_details(
            Details { causes: vec![Cause::bare(CauseKind::None, why, "")], ..Details::default() },
        )
    }

    /// 500 with only a message, as kube-apiserver reports errors without a Status.
    pub(crate) fn plain(message: impl Into<String>) -> Self {
        Self::new(500, Reason::Unknown, message)
    }

    /// 503: the server cannot do this now.
    pub(crate) fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(503, Reason::ServiceUnavailable, message)
    }

    /// 504: the request timed out.
    pub(crate) fn timeout(why: &str, retry_after_seconds: u32) -> Self {
        Self::new(504, Reason::Timeout, format!("Timeout: {why}"))
            .with_details(Details { retry_after_seconds, ..Details::default() })
    }
}

impl DeniedAccess<'_> {
    fn message(&self) -> String {
        let (user, verb) = (quote(self.user), self.verb);
        let Some(resource) = self.resource else {
            return escape_html(&format!("User {user} cannot {verb} path {}", quote(self.path)));
        };
        let mut path = resource.resource.clone();
        if !self.subresource.is_empty() {
            path = format!("{path}/{}", self.subresource);
        }
        let scope = match self.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {}", quote(namespace)),
        };
        let (path, group) = (quote(&path), quote(&resource.group));
        escape_html(&format!("User {user} cannot {verb} resource {path} in API group {group} {scope}"))
    }
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
