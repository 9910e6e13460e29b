//! The columns of built-in resources.

mod cell;
mod pod;
mod service;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::age_of;
use super::column::{Column, column, name_column};
use crate::object::selector::LabelSelector;
use cell::{at, count, created, items, name, number, text, text_or};

type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// Column names; those after the bar are shown only with `-o wide`.
const COLUMNS: &[(&str, &str, &str, Cells)] = &[
    ("", "namespaces", "Name,Status,Age", namespace),
    ("", "configmaps", "Name,Data,Age", config_map),
    ("", "secrets", "Name,Type,Data,Age", secret),
    ("", "serviceaccounts", "Name,Age", service_account),
    ("", "services", "Name,Type,Cluster-IP,External-IP,Port(s),Age|Selector", service::cells),
    ("", "pods", "Name,Ready,Status,Restarts,Age|IP,Node,Nominated Node,Readiness Gates", pod::cells),
    ("", "events", EVENT, event),
    ("events.k8s.io", "events", EVENT, event),
    ("apps", "deployments", "Name,Ready,Up-to-date,Available,Age|Containers,Images,Selector", deployment),
    ("coordination.k8s.io", "leases", "Name,Holder,Age", lease),
    ("rbac.authorization.k8s.io", "rolebindings", BINDING, binding),
    ("rbac.authorization.k8s.io", "clusterrolebindings", BINDING, binding),
    ("apiregistration.k8s.io", "apiservices", "Name,Service,Available,Age", api_service),
    (
        "internal.apiserver.k8s.io",
        "storageversions",
        "Name,CommonEncodingVersion,StorageVersions,Age",
        storage_version,
    ),
    ("storagemigration.k8s.io", "storageversionmigrations", "Name,Resource,Status", migration),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        "Name,PriorityLevel,MatchingPrecedence,DistinguisherMethod,Age,MissingPL",
        flow_schema,
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        "Name,Type,NominalConcurrencyShares,Queues,HandSize,QueueLengthLimit,Age",
        priority_level,
    ),
];

const EVENT: &str = "Last Seen,Type,Reason,Object,/Subobject,/Source,Message,/First Seen,/Count,/Name";
const BINDING: &str = "Name,Role,Age|Users,Groups,ServiceAccounts";

/// The columns of a resource and its cells; the default is name and creation time.
pub(super) fn columns(group: &str, resource: &str) -> (Vec<Column>, Cells) {
    match COLUMNS.iter().find(|(of, name, ..)| (*of, *name) == (group, resource)) {
        Some((_, _, names, cells)) => (headers(names), *cells),
        None => {
            let created = column("Created At", "date", "", 0, "When the object was created.");
            (vec![name_column(), created], plain)
        }
    }
}

fn headers(names: &str) -> Vec<Column> {
    let (always, wide) = names.split_once('|').unwrap_or((names, ""));
    let header = |name: &str, priority: i64| match name.strip_prefix('/') {
        Some(name) => column(name, "string", "", 1, "What the resource shows of itself."),
        None if name == "Name" => name_column(),
        None => column(name, "string", "", priority, "What the resource shows of itself."),
    };
    let always = always.split(',').map(|name| header(name, 0));
    always.chain(wide.split(',').filter(|name| !name.is_empty()).map(|name| header(name, 1))).collect()
}

fn plain(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        at(object, "/metadata/creationTimestamp").cloned().unwrap_or_else(|| json!("0001-01-01T00:00:00Z")),
    ]
}

fn namespace(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(text(object, "/status/phase")), created(object, now)]
}

fn config_map(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(count(object, "/data") + count(object, "/binaryData")), created(object, now)]
}

fn secret(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(text(object, "/type")), json!(count(object, "/data")), created(object, now)]
}

fn service_account(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), created(object, now)]
}

fn lease(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), json!(text(object, "/spec/holderIdentity")), created(object, now)]
}

fn deployment(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas"));
    let containers = items(object, "/spec/template/spec/containers");
    let joined = |path: &str| containers.iter().map(|one| text(one, path)).collect::<Vec<_>>().join(",");
    let selector = at(object, "/spec/selector").map(LabelSelector::from_value);
    let selector = match selector {
        Some(Ok(selector)) => plain_selector(&selector),
        Some(Err(_)) => "<invalid>".to_owned(),
        None => String::new(),
    };
    vec![
        name(object),
        json!(ready),
        json!(number(object, "/status/updatedReplicas")),
        json!(number(object, "/status/availableReplicas")),
        created(object, now),
        json!(joined("/name")),
        json!(joined("/image")),
        json!(selector),
    ]
}

/// A selector by one value is shown as an equality.
fn plain_selector(selector: &LabelSelector) -> String {
    use crate::object::selector::label::Operator;
    let mut selector = selector.clone();
    for one in &mut selector.requirements {
        if one.operator == Operator::In && one.values.len() == 1 {
            one.operator = Operator::Equals;
        }
    }
    selector.to_string()
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    // The newer API has other names for the same fields.
    let about = if at(object, "/regarding").is_some() { "/regarding" } else { "/involvedObject" };
    let first = ["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"];
    let last = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp"];
    let since = |paths: &[&str]| age_of(paths.iter().find_map(|path| at(object, path)), now);
    let mut last_paths = last.to_vec();
    last_paths.extend(first);
    let kind = text(object, &format!("{about}/kind")).to_lowercase();
    let target = match text(object, &format!("{about}/name")) {
        name if name.is_empty() => kind,
        name => format!("{kind}/{name}"),
    };
    let times = ["/series/count", "/count", "/deprecatedCount"].iter().map(|path| number(object, path));
    let times = times.into_iter().find(|times| *times != 0).unwrap_or(1);
    let message = text_or(object, "/message", &text(object, "/note"));
    vec![
        json!(since(&last_paths)),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(target),
        json!(text(object, &format!("{about}/fieldPath"))),
        json!(event_source(object)),
        json!(message.trim()),
        json!(since(&first)),
        json!(times),
        name(object),
    ]
}

fn event_source(object: &Value) -> String {
    let controller = text_or(object, "/reportingComponent", &text(object, "/reportingController"));
    let component = text_or(object, "/source/component", &controller);
    match text_or(object, "/source/host", &text(object, "/reportingInstance")) {
        host if host.is_empty() => component,
        host => format!("{component}, {host}"),
    }
}

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!("{}/{}", text(object, "/roleRef/kind"), text(object, "/roleRef/name"));
    let subjects = |kind: &str| {
        let own = items(object, "/subjects").iter().filter(|one| text(one, "/kind") == kind);
        let shown = own.map(|one| match text(one, "/namespace") {
            namespace if kind == "ServiceAccount" && !namespace.is_empty() => {
                format!("{namespace}/{}", text(one, "/name"))
            }
            _ => text(one, "/name"),
        });
        json!(shown.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(object),
        json!(role),
        created(object, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn api_service(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = match at(object, "/spec/service") {
        None => "Local".to_owned(),
        Some(service) => format!("{}/{}", text(service, "/namespace"), text(service, "/name")),
    };
    let condition = items(object, "/status/conditions").iter().find(|one| text(one, "/type") == "Available");
    let available = condition.map_or_else(
        || "Unknown".to_owned(),
        |one| match (text(one, "/status"), text(one, "/reason")) {
            (status, reason) if status == "True" || reason.is_empty() => status,
            (status, reason) => format!("{status} ({reason})"),
        },
    );
    vec![name(object), json!(service), json!(available), created(object, now)]
}

fn storage_version(object: &Value, now: Timestamp) -> Vec<Value> {
    let entries = items(object, "/status/storageVersions");
    let shown = |one: &Value| format!("{}={}", text(one, "/apiServerID"), text(one, "/encodingVersion"));
    let mut versions = entries.iter().take(3).map(shown).collect::<Vec<_>>().join(",");
    if entries.is_empty() {
        versions = "<unset>".to_owned();
    } else if entries.len() > 3 {
        versions = format!("{versions} + {} more...", entries.len() - 3);
    }
    let common = text_or(object, "/status/commonEncodingVersion", "<unset>");
    vec![name(object), json!(common), json!(versions), created(object, now)]
}

fn migration(object: &Value, _: Timestamp) -> Vec<Value> {
    let (resource, group) = (text(object, "/spec/resource/resource"), text(object, "/spec/resource/group"));
    let resource = if group.is_empty() { resource } else { format!("{resource}.{group}") };
    let known = ["Running", "Failed", "Succeeded"];
    let conditions = items(object, "/status/conditions").iter();
    let mut held = conditions.filter(|one| text(one, "/status") == "True").map(|one| text(one, "/type"));
    let status = held.rfind(|kind| known.contains(&kind.as_str())).unwrap_or_else(|| "Unknown".to_owned());
    vec![name(object), json!(resource), json!(status)]
}

fn flow_schema(object: &Value, now: Timestamp) -> Vec<Value> {
    let conditions = items(object, "/status/conditions").iter();
    let dangling =
        conditions.filter(|one| text(one, "/type") == "Dangling").map(|one| text(one, "/status")).next();
    vec![
        name(object),
        json!(text(object, "/spec/priorityLevelConfiguration/name")),
        json!(number(object, "/spec/matchingPrecedence")),
        json!(text_or(object, "/spec/distinguisherMethod/type", "<none>")),
        created(object, now),
        json!(dangling.unwrap_or_else(|| "?".to_owned())),
    ]
}

fn priority_level(object: &Value, now: Timestamp) -> Vec<Value> {
    let or_none = |path: &str| at(object, path).cloned().unwrap_or_else(|| json!("<none>"));
    vec![
        name(object),
        json!(text(object, "/spec/type")),
        or_none("/spec/limited/nominalConcurrencyShares"),
        or_none("/spec/limited/limitResponse/queuing/queues"),
        or_none("/spec/limited/limitResponse/queuing/handSize"),
        or_none("/spec/limited/limitResponse/queuing/queueLengthLimit"),
        created(object, now),
    ]
}
