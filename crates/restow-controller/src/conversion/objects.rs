//! Lists the objects of a kind with their content, page by page.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind, Selector, TypeMeta};
use restow_api::ConversionSpec;
use serde_json::Value;

use super::error::RoundError;
use crate::requests::code;

/// How many objects the first page has. Objects may be large; the pages grow while they are small.
const FIRST_PAGE: u32 = 20;
/// How many objects a page has at most.
const LARGEST_PAGE: u32 = 500;
/// Pages grow while they have fewer bytes than this.
const SMALL_PAGE: usize = 1 << 20;

/// One page of objects.
pub(super) struct Page {
    pub(super) objects: Vec<Value>,
    /// The resourceVersion of the list.
    pub(super) resource_version: Option<String>,
    /// The continue token of the next page, if there is one.
    pub(super) next: Option<String>,
}

/// The objects of a kind in one version.
pub(super) struct Objects {
    client: kube::Client,
    resource: ApiResource,
    namespaced: bool,
    namespace: Option<String>,
    selector: Option<Selector>,
    limit: u32,
}

impl Objects {
    /// The objects that a Conversion is about, in this version.
    pub(super) fn new(
        client: &kube::Client,
        crd: &CustomResourceDefinition,
        spec: &ConversionSpec,
        version: &str,
    ) -> Result<Self, RoundError> {
        let kind = GroupVersionKind::gvk(&spec.group, version, &spec.kind);
        let selector = spec.selector.clone().map(Selector::try_from).transpose();
        Ok(Self {
            client: client.clone(),
            resource: ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural),
            namespaced: crd.spec.scope == "Namespaced",
            namespace: spec.namespace.clone(),
            selector: selector
                .map_err(|error| RoundError::Invalid(format!("spec.selector is not valid: {error}")))?,
            limit: FIRST_PAGE,
        })
    }

    /// Reads or writes the objects of one namespace; of all, if none is given.
    pub(super) fn api(&self, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &self.resource),
            None => Api::all_with(self.client.clone(), &self.resource),
        }
    }

    /// Reads the page behind a token. A list expires after minutes, and a long one would never end if it always began again: it
    /// goes on with the token that the server gives instead. If it gives none, there is no page, and the list must begin again.
    pub(super) async fn page(&mut self, token: Option<&str>) -> Result<Option<Page>, RoundError> {
        let expired = |result: &Result<Page, RoundError>| match result {
            Err(RoundError::Kube(error)) if code(error) == Some(410) => Some(renewed_token(error)),
            _ => None,
        };
        let page = self.read(token).await;
        let Some(renewed) = expired(&page).filter(|_| token.is_some()) else { return page.map(Some) };
        let Some(renewed) = renewed else { return Ok(None) };
        let page = self.read(Some(&renewed)).await;
        if expired(&page).is_some() { Ok(None) } else { page.map(Some) }
    }

    async fn read(&mut self, token: Option<&str>) -> Result<Page, RoundError> {
        let mut params = ListParams::default().limit(self.limit);
        params.continue_token = token.map(str::to_owned);
        if let Some(selector) = &self.selector {
            params = params.labels_from(selector);
        }
        let list = self.api(self.namespace.as_deref()).list(&params).await?;
        let (mut objects, mut bytes) = (Vec::new(), 0);
        for mut item in list.items {
            item.metadata.managed_fields = None;
            // The items of a list may leave out what the list says of them.
            item.types.get_or_insert_with(|| TypeMeta {
                api_version: self.resource.api_version.clone(),
                kind: self.resource.kind.clone(),
            });
            let object = serde_json::to_value(item).map_err(|error| RoundError::Answer(error.to_string()))?;
            bytes += object.to_string().len();
            objects.push(object);
        }
        self.limit = match bytes {
            bytes if bytes < SMALL_PAGE => (self.limit * 2).min(LARGEST_PAGE),
            bytes if bytes > SMALL_PAGE * 8 => (self.limit / 2).max(1),
            _ => self.limit,
        };
        Ok(Page {
            objects,
            resource_version: list.metadata.resource_version,
            next: list.metadata.continue_.filter(|next| !next.is_empty()),
        })
    }

    /// The resourceVersion of the list now.
    pub(super) async fn resource_version(&self) -> Result<u64, RoundError> {
        let page = self.api(None).list_metadata(&ListParams::default().limit(1)).await?;
        let version = page.metadata.resource_version.and_then(|version| version.parse().ok());
        version
            .ok_or_else(|| RoundError::Answer("a list without a resourceVersion that is a number".to_owned()))
    }
}

/// The token with which a list goes on that has expired. What was written meanwhile is seen only behind it.
fn renewed_token(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    let token = status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone());
    token.filter(|token| !token.is_empty())
}
