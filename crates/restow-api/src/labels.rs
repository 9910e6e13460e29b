//! Labels and annotations that restow sets on objects.

/// The label of objects that restow creates, with the value [`MANAGER`].
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The name of restow in labels, Leases and Events.
pub const MANAGER: &str = "restow";
/// The annotation that requests a retry of a failed migration, whose controller removes it when the retry begins, or of a failed
/// Conversion, whose status then has its value.
pub const RETRY: &str = "restow.dev/retry";

/// The label of migrations that a controller creates by itself, with the value [`TRIGGER`] or [`CONVERSION`].
pub const CREATED_BY: &str = "restow.dev/created-by";
/// The trigger, as the value of [`CREATED_BY`].
pub const TRIGGER: &str = "trigger";
/// The controller of Conversions, as the value of [`CREATED_BY`].
pub const CONVERSION: &str = "conversion";
/// The annotation of a migration that was suspended with the Conversion that waits for it: the uid of that Conversion.
pub const SUSPENDED_BY: &str = "restow.dev/suspended-by";

/// The label of a migration that restow created for one of the built-in API.
pub const ADOPTED: &str = "restow.dev/adopted";
/// The annotation of such a migration with the resourceVersion of the resource's list when it was created.
pub const ADOPTED_AT: &str = "restow.dev/adopted-at";
/// The annotation of a migration delegated to the built-in controller, which identifies the run that it is for.
pub const DELEGATED_RUN: &str = "restow.dev/delegated-run";

/// The annotation of a CustomResourceDefinition whose objects are being converted in place: the version they are converted to,
/// and the resourceVersion at which that began. No migration may run meanwhile.
pub const CONVERTING: &str = "restow.dev/converting-in-place";
/// The annotation of an object that was converted in place: the value of [`CONVERTING`] then.
pub const CONVERTED: &str = "restow.dev/converted-in-place";
/// The annotation of a CustomResourceDefinition with the versions that `restow retire` has dropped from it, separated by
/// commas. It tells a version that was retired from one that was never there.
pub const RETIRED: &str = "restow.dev/retired-versions";
