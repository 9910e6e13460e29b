//! Reads discovery documents, CustomResourceDefinitions and APIServices.
//!
//! Only the server's list of groups shows what is served. A 404 for something that it lists is an error, because a proxy
//! may have answered.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use restow_core::resource::inventory::{Crd, Document, Served};
use restow_core::resource::name::{GroupResource, GroupVersion};
use serde::Deserialize;

use crate::client::{RequestError, Server};

/// How many discovery documents are requested concurrently.
const CONCURRENT_REQUESTS: usize = 8;
/// How many times, and how far apart, a document is requested again that is listed and missing: the group of a deleted
/// CRD is listed for a moment longer.
const DOCUMENT_TRIES: u32 = 5;
const ASK_EVERY: Duration = Duration::from_secs(1);

const APIEXTENSIONS: &str = "apiextensions.k8s.io/v1";
const APIREGISTRATION: &str = "apiregistration.k8s.io/v1";

#[derive(Deserialize)]
struct Groups {
    kind: String,
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
#[serde(rename_all = "camelCase")]
struct ResourceList {
    group_version: String,
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

/// The part of an APIService that is needed; k8s-openapi's type has its CA bundle too.
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

/// A CustomResourceDefinition without its schemas, which are large and which k8s-openapi's type would parse.
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
    #[serde(default)]
    annotations: BTreeMap<String, String>,
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
            converting: object.metadata.annotations.contains_key(restow_api::CONVERTING),
            webhook: object.spec.conversion.is_some_and(|conversion| conversion.strategy == "Webhook"),
        }
    }
}

/// Every discovery document, the preferred version of a group first.
///
/// A document that cannot be read is in the list with the reason, so that resources of an aggregated API server that is
/// down do not look deleted.
pub(crate) async fn documents(server: &Server) -> Result<Vec<Document>, RequestError> {
    let mut versions = group_versions(server).await?;
    let aggregated = aggregated(server, &versions).await?;
    // An API server that is starting may not know the aggregated ones yet.
    let unlisted: Vec<_> = aggregated.iter().filter(|version| !versions.contains(version)).cloned().collect();
    versions.extend(unlisted);
    let ask = |version: GroupVersion| async { (document(server, &version).await, version) };
    let mut asked: Vec<_> = stream::iter(versions).map(ask).buffered(CONCURRENT_REQUESTS).collect().await;
    // Documents of aggregated servers may be missing for long; the server's own are always there.
    let doubtful = |(answer, version): &(Result<_, RequestError>, GroupVersion)| {
        !aggregated.contains(version) && answer.as_ref().is_err_and(is_doubtful)
    };
    for _ in 0..DOCUMENT_TRIES {
        if !asked.iter().any(doubtful) {
            break;
        }
        tokio::time::sleep(ASK_EVERY).await;
        let listed = group_versions(server).await?;
        asked.retain(|one| !doubtful(one) || listed.contains(&one.1));
        for one in asked.iter_mut().filter(|one| doubtful(one)) {
            one.0 = document(server, &one.1).await;
        }
    }
    let each = |(answer, version): (Result<Vec<Served>, RequestError>, GroupVersion)| Document {
        aggregated: aggregated.contains(&version),
        resources: answer.map_err(|error| match error.code() {
            Some(404) => format!("/apis lists {version}, but its discovery document is missing: {error}"),
            _ => error.to_string(),
        }),
        version,
    };
    Ok(asked.into_iter().map(each).collect())
}

/// Whether an answer may come from a proxy: what is listed should be there.
fn is_doubtful(error: &RequestError) -> bool {
    error.code() == Some(404) || matches!(error, RequestError::Unreadable { .. })
}

/// Every version of every group that a server lists, the preferred one of each group first.
async fn group_versions(server: &Server) -> Result<Vec<GroupVersion>, RequestError> {
    let groups: Groups = server.get("/apis").await?;
    is_kind("/apis", &groups.kind, "APIGroupList")?;
    // Every API server serves the core group.
    let mut versions = vec![GroupVersion::new("", "v1")];
    for group in groups.groups {
        let preferred = group.preferred_version.as_ref();
        let mut names: Vec<_> = group.versions.iter().collect();
        names.sort_by_key(|name| Some(*name) != preferred);
        versions.extend(names.into_iter().map(|name| GroupVersion::parse(&name.group_version)));
    }
    Ok(versions)
}

/// Returns an error unless a document has the expected kind.
pub(crate) fn is_kind(path: &str, kind: &str, wanted: &str) -> Result<(), RequestError> {
    if kind == wanted {
        return Ok(());
    }
    let source = serde::de::Error::custom(format!("its kind is {kind:?}, not {wanted}"));
    Err(RequestError::Unreadable { path: path.to_owned(), source })
}

/// One discovery document.
pub(crate) async fn document(server: &Server, version: &GroupVersion) -> Result<Vec<Served>, RequestError> {
    let path = version.path();
    let list: ResourceList = server.get(&path).await?;
    if list.group_version != version.to_string() {
        let source = serde::de::Error::custom(format!("its groupVersion is {:?}", list.group_version));
        return Err(RequestError::Unreadable { path, source });
    }
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

/// One discovery document; `None` if the server is ready and does not list that version.
pub(crate) async fn document_if_listed(
    server: &Server,
    version: &GroupVersion,
) -> Result<Option<Vec<Served>>, RequestError> {
    match document(server, version).await {
        Ok(served) => Ok(Some(served)),
        Err(error) if error.code() == Some(404) => {
            // A server that is starting does not list everything yet.
            let ready = server.lines("/readyz", |_| ()).await.is_ok();
            if ready && !group_versions(server).await?.contains(version) { Ok(None) } else { Err(error) }
        }
        Err(error) => Err(error),
    }
}

/// The versions of groups that aggregated API servers serve.
async fn aggregated(server: &Server, listed: &[GroupVersion]) -> Result<Vec<GroupVersion>, RequestError> {
    #[derive(Deserialize)]
    struct List {
        kind: String,
        items: Vec<ApiService>,
    }
    // Without an aggregation layer there are none.
    if !listed.contains(&GroupVersion::parse(APIREGISTRATION)) {
        return Ok(Vec::new());
    }
    let path = format!("/apis/{APIREGISTRATION}/apiservices");
    let list: List = server.get(&path).await?;
    is_kind(&path, &list.kind, "APIServiceList")?;
    let of_services = list.items.into_iter().filter(|service| service.spec.service.is_some());
    Ok(of_services.map(|service| GroupVersion::new(service.spec.group, service.spec.version)).collect())
}

#[derive(Deserialize)]
struct CrdPage {
    kind: String,
    metadata: CrdPageMeta,
    items: Vec<CrdObject>,
}

#[derive(Deserialize)]
struct CrdPageMeta {
    #[serde(rename = "continue", default)]
    next: String,
}

pub(crate) fn crds_path() -> String {
    format!("/apis/{APIEXTENSIONS}/customresourcedefinitions")
}

async fn crd_page(server: &Server, query: &str) -> Result<CrdPage, RequestError> {
    let path = format!("{}?{query}", crds_path());
    let page: CrdPage = server.get(&path).await?;
    is_kind(&path, &page.kind, "CustomResourceDefinitionList")?;
    Ok(page)
}

/// Every CustomResourceDefinition, read in pages because schemas are large.
pub(crate) async fn crds(server: &Server) -> Result<Vec<Crd>, RequestError> {
    let mut crds = Vec::new();
    let mut query = "limit=20".to_owned();
    loop {
        let page = match crd_page(server, &query).await {
            Ok(page) => page,
            // The server does not list the API group of CRDs.
            Err(error) if error.code() == Some(404) && crds.is_empty() => {
                let listed = group_versions(server).await?.contains(&GroupVersion::parse(APIEXTENSIONS));
                return if listed { Err(error) } else { Ok(crds) };
            }
            Err(error) => return Err(error),
        };
        crds.extend(page.items.into_iter().map(Crd::from));
        if page.metadata.next.is_empty() {
            return Ok(crds);
        }
        query = format!("limit=20&continue={}", page.metadata.next);
    }
}

/// Whether there is no CustomResourceDefinition of this name. A list shows it, because a 404 may come from a proxy.
pub(crate) async fn is_undefined(server: &Server, name: &GroupResource) -> Result<bool, RequestError> {
    let page = crd_page(server, &format!("limit=1&fieldSelector=metadata.name%3D{name}")).await?;
    // A server that ignores the selector lists others.
    Ok(page.items.is_empty() && page.metadata.next.is_empty())
}

/// One CustomResourceDefinition, and the server's time.
pub(crate) async fn crd(
    server: &Server,
    name: &GroupResource,
) -> Result<(Crd, Option<Timestamp>), RequestError> {
    let path = format!("{}/{name}", crds_path());
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
    let path = format!("{}/{name}", crds_path());
    let object: Object = server.get_metadata(&path).await?;
    Ok(format!("{}/{}", object.metadata.uid, object.metadata.generation))
}
