//! Labels and annotations that restow sets on objects.

/// The label of objects that restow creates, with the value [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The name of restow in labels, Leases and Events.
pub const MANAGER: &str = "restow";
/// The annotation that requests a retry of a failed migration; the controller removes it when the retry begins.
pub const RETRY: &str = "restow.dev/retry";

/// The label of objects that the trigger creates, with the value [`TRIGGER`].
pub const CREATED_BY: &str = "restow.dev/created-by";
/// The trigger, as the value of [`CREATED_BY`].
pub const TRIGGER: &str = "trigger";

/// The label of a migration that restow created for one of the built-in API.
pub const ADOPTED: &str = "restow.dev/adopted";
/// The annotation of such a migration with the resourceVersion of the resource's list when it was created.
pub const ADOPTED_AT: &str = "restow.dev/adopted-at";
/// The annotation of a migration delegated to the built-in controller, which identifies the run that it is for.
pub const DELEGATED_RUN: &str = "restow.dev/delegated-run";
