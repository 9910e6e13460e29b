//! Removes the webhook from a CRD, if nothing needs a conversion.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use restow_lease::request::{ObjectError, find};

use super::error::RegistrationError;
use super::removal::may_unregister;
use super::stanza;
use super::write::write;

/// What is done about a CRD whose webhook nobody needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is unregistered.
    Unregister,
    /// Nothing: only whether it may be unregistered is checked.
    Check,
}

/// Removes a webhook that restow registered from a CRD, if nothing needs a conversion. It does not register itself again
/// before somebody removes the annotation [`stanza::ANNOUNCED`]. Returns whether it was registered.
///
/// # Errors
/// When the CRD needs the webhook, calls another one, or could not be changed.
pub async fn unregister(client: &kube::Client, name: &str, mode: Mode) -> Result<bool, RegistrationError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    loop {
        let crd =
            find(api.get(name)).await.map_err(|error| RegistrationError::Crd(name.to_owned(), error))?;
        let crd = crd.ok_or_else(|| RegistrationError::NotFound(name.to_owned()))?;
        let conversion = crd.spec.conversion.as_ref();
        if conversion.is_none_or(|conversion| conversion.strategy != "Webhook") {
            return Ok(false);
        }
        if stanza::registrant(&crd).is_none() {
            return Err(RegistrationError::Foreign(name.to_owned()));
        }
        may_unregister(&crd)?;
        if mode == Mode::Check {
            return Ok(true);
        }
        match write(&api, name, &crd, stanza::unregister(&crd)).await {
            Err(RegistrationError::Crd(_, ObjectError::Conflict)) => {}
            done => return done.map(|_| true),
        }
    }
}
