//! What must hold before a CRD's stanza is changed, so that API servers begin to call the webhook.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::certificates::CrdTrust;

/// What must hold before a webhook is registered in a CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    /// Nobody has unregistered the webhook.
    Wanted,
    /// The CRD has several versions.
    Needed,
    /// Nobody else's webhook converts the CRD.
    Unclaimed,
    /// Every live replica serves a converter for the CRD as it is now.
    Served,
    /// The webhook answers a review, with a certificate that the CRD would trust.
    Answers,
    /// All live objects come back as they were from every other version.
    Objects,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wanted => "Unregistered",
            Self::Needed => "OneVersion",
            Self::Unclaimed => "ConvertedByOthers",
            Self::Served => "NotServed",
            Self::Answers => "NoAnswer",
            Self::Objects => "ObjectsWouldChange",
        })
    }
}

/// A gate that is closed, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Closed {
    /// The gate.
    pub gate: Gate,
    /// Why it is closed, and what to do.
    pub message: String,
}

impl Closed {
    pub(crate) fn new(gate: Gate, message: impl Into<String>) -> Self {
        Self { gate, message: message.into() }
    }
}

/// How a CRD stands with the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrdState {
    /// API servers call the webhook, and trust its certificates.
    Registered,
    /// API servers call the webhook; somebody else manages a part of the stanza, which is not as it shall be.
    LeftAlone(String),
    /// API servers call the webhook; converters that were changed are not used yet, because a gate is closed.
    Held(Closed),
    /// It is not registered, because a gate is closed.
    Waiting(Closed),
}

/// Tries a converter on objects, each with a name for reports. It may be called on any thread, and may not return.
pub type TryOn = Arc<dyn Fn(Vec<(String, Value)>) -> Result<(), String> + Send + Sync>;

/// What a webhook knows about its converters and replicas.
pub trait ConverterGates: Send + Sync {
    /// The names of the CRDs that there are converters for.
    fn crds(&self) -> Vec<String>;

    /// Whether every live replica serves a converter that is valid for this CRD as it is now.
    ///
    /// # Errors
    /// With the reason, and what to do.
    fn is_served(&self, crd: &CustomResourceDefinition) -> impl Future<Output = Result<(), String>> + Send;

    /// Tries the converter on objects, each with a name for reports.
    ///
    /// # Errors
    /// With the objects and fields that would not survive.
    fn try_on(&self, crd: &CustomResourceDefinition, objects: Vec<(String, Value)>) -> Result<(), String>;

    /// What else calls the webhook, such as an operator's admission handlers, and what it trusts. No authority signs that one
    /// of them does not trust.
    ///
    /// # Errors
    /// When not all of them could be read: what they trust is not known then.
    fn others(&self) -> impl Future<Output = Result<Vec<CrdTrust>, String>> + Send {
        std::future::ready(Ok(Vec::new()))
    }

    /// The same as [`Self::try_on`] for another thread, so that a converter that does not return costs nothing but that
    /// thread. Without it, objects are tried on the thread of the caller.
    fn trial(&self, _: &CustomResourceDefinition) -> Option<TryOn> {
        None
    }

    /// The revision of the converters that objects are tried on; the same number for the same converters.
    fn revision(&self, _: &CustomResourceDefinition) -> i64 {
        0
    }

    /// The revision of converters for a CRD that calls the webhook which have not passed the gates; none if there are
    /// none. Objects are tried on them next.
    ///
    /// # Errors
    /// When that is not known.
    fn changed(
        &self,
        _: &CustomResourceDefinition,
    ) -> impl Future<Output = Result<Option<i64>, String>> + Send {
        std::future::ready(Ok(None))
    }

    /// Lets all replicas use the converters that have passed every gate. It comes before a CRD is registered.
    ///
    /// # Errors
    /// When they are others than those that were tried, or it could not be written.
    fn passed(&self, _: &CustomResourceDefinition) -> impl Future<Output = Result<(), String>> + Send {
        std::future::ready(Ok(()))
    }

    /// Tells users how a CRD stands with the webhook, besides logs and Events.
    fn report(&self, _: &str, _: &CrdState) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}
