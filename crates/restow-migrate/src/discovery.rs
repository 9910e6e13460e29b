//! Reads discovery documents, CustomResourceDefinitions and APIServices.

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use restow_core::inventory::{Crd, Document, Served};
use restow_core::resource::{GroupResource, GroupVersion};
use serde::Deserialize;

use crate::server::{RequestError, Server};

/// How many documents are asked for at once.
const AT_ONCE: usize = 8;

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    versions: Vec<GroupVersionName>,
    preferred_version: Option<GroupVersionName>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct GroupVersionName {
    group_version: String,
}

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource {
    name: String,
    #[serde(default)]
    singular_name: String,
    kind: String,
    namespaced: bool,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    storage_version_hash: Option<String>,
}

#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct ApiService {
    spec: ApiServiceSpec,
}

#[derive(Deserialize)]
struct ApiServiceSpec {
    #[serde(default)]
    group: String,
    version: String,
    service: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
pub(crate) struct CrdObject {
    metadata: CrdMeta,
    spec: CrdSpec,
    #[serde(default)]
    status: CrdStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CrdMeta {
    uid: String,
    resource_version: String,
    #[serde(default)]
    generation: i64,
    creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    managed_fields: Vec<CrdManagedFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CrdManagedFields {
    time: Option<Timestamp>,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct CrdSpec {
    group: String,
    names: CrdNames,
    versions: Vec<CrdVersion>,
    conversion: Option<CrdConversion>,
}

#[derive(Deserialize)]
struct CrdConversion {
    strategy: String,
}

#[derive(Deserialize)]
struct CrdNames {
    plural: String,
}

#[derive(Deserialize)]
struct CrdVersion {
    name: String,
    served: bool,
    storage: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CrdStatus {
    #[serde(default)]
    stored_versions: Vec<String>,
}

impl From<CrdObject> for Crd {
    fn from(object: CrdObject) -> Self {
        let times = object.metadata.managed_fields.iter().filter(|entry| entry.subresource.is_empty());
        Self {
            name: GroupResource::new(object.spec.group, object.spec.names.plural),
            resource_version: object.metadata.resource_version,
            uid: object.metadata.uid,
            generation: object.metadata.generation,
            storage_version: object
                .spec
                .versions
                .iter()
                .find(|version| version.storage)
                .map(|version| version.name.clone())
                .unwrap_or_default(),
            changed: times.filter_map(|entry| entry.time).max().or(object.metadata.creation_timestamp),
            versions: object
                .spec
                .versions
                .into_iter()
                .map(|version| (version.name, version.served))
                .collect(),
            stored_versions: object.status.stored_versions,
            webhook: object.spec.conversion.is_some_and(|conversion| conversion.strategy == "Webhook"),
        }
    }
}

/// Every discovery document, the preferred version of a group first.
///
/// A document that cannot be had is in the list with the reason: an aggregated API server that is down does not
/// make its resources look gone.
pub async fn documents(server: &Server) -> Result<Vec<Document>, RequestError> {
    let groups: Groups = server.get("/apis").await?;
    let aggregated = aggregated(server).await?;
    let mut versions = vec![GroupVersion::new("", "v1")];
    for group in groups.groups {
        let preferred = group.preferred_version.as_ref();
        let mut names: Vec<_> = group.versions.iter().collect();
        names.sort_by_key(|name| Some(*name) != preferred);
        versions.extend(names.into_iter().map(|name| GroupVersion::parse(&name.group_version)));
    }
    // An API server that starts may not have heard of those behind it yet.
    let unlisted: Vec<_> = aggregated.iter().filter(|version| !versions.contains(version)).cloned().collect();
    versions.extend(unlisted);
    let ask = |version: GroupVersion| async {
        let aggregated = aggregated.contains(&version);
        let resources = match document(server, &version).await {
            // A definition that was deleted since the groups were listed; who stands behind another server may
            // only not be known yet.
            Err(error) if error.code() == Some(404) && !aggregated => Ok(Vec::new()),
            document => document.map_err(|error| error.to_string()),
        };
        Document { aggregated, version, resources }
    };
    Ok(stream::iter(versions).map(ask).buffered(AT_ONCE).collect().await)
}

/// One discovery document.
pub(crate) async fn document(server: &Server, version: &GroupVersion) -> Result<Vec<Served>, RequestError> {
    let list: ResourceList = server.get(&version.path()).await?;
    let served = list.resources.into_iter().map(|resource| Served {
        name: resource.name,
        singular: resource.singular_name,
        kind: resource.kind,
        namespaced: resource.namespaced,
        verbs: resource.verbs,
        short_names: resource.short_names,
        hash: resource.storage_version_hash,
    });
    Ok(served.collect())
}

async fn aggregated(server: &Server) -> Result<Vec<GroupVersion>, RequestError> {
    let services: Items<ApiService> = match server.get("/apis/apiregistration.k8s.io/v1/apiservices").await {
        Ok(services) => services,
        // A server without an aggregation layer has none.
        Err(error) if error.code() == Some(404) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let of_services = services.items.into_iter().filter(|service| service.spec.service.is_some());
    Ok(of_services.map(|service| GroupVersion::new(service.spec.group, service.spec.version)).collect())
}

/// Every CustomResourceDefinition, read in pages because schemas are large.
pub async fn crds(server: &Server) -> Result<Vec<Crd>, RequestError> {
    #[derive(Deserialize)]
    struct Page {
        metadata: Meta,
        items: Vec<CrdObject>,
    }
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "continue", default)]
        next: String,
    }
    let mut crds = Vec::new();
    let mut next = String::new();
    loop {
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=20{}{next}",
            if next.is_empty() { "" } else { "&continue=" }
        );
        let page: Page = match server.get(&path).await {
            Ok(page) => page,
            // A server that has none; but a page in the middle of a list does not go.
            Err(error) if error.code() == Some(404) && next.is_empty() => return Ok(crds),
            Err(error) => return Err(error),
        };
        crds.extend(page.items.into_iter().map(Crd::from));
        if page.metadata.next.is_empty() {
            return Ok(crds);
        }
        next = page.metadata.next;
    }
}

/// One CustomResourceDefinition, and its server's own time.
pub(crate) async fn crd(
    server: &Server,
    name: &GroupResource,
) -> Result<(Crd, Option<Timestamp>), RequestError> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let (object, date) = server.get_dated::<CrdObject>(&path).await?;
    Ok((object.into(), date))
}

/// The uid and generation of one CustomResourceDefinition, without its schemas.
pub(crate) async fn crd_generation(server: &Server, name: &GroupResource) -> Result<String, RequestError> {
    #[derive(Deserialize)]
    struct Object {
        metadata: Meta,
    }
    #[derive(Deserialize)]
    struct Meta {
        uid: String,
        #[serde(default)]
        generation: i64,
    }
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
    let object: Object = server.get_metadata(&path).await?;
    Ok(format!("{}/{}", object.metadata.uid, object.metadata.generation))
}
