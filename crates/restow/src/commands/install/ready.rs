//! Waits until applied objects are ready, or deleted objects are gone.

use std::time::Duration;

use restow_clock::Instant;
use restow_migrate::client::Server;
use serde_json::Value;

use super::manifest::Manifest;
use crate::error::CliError;
use crate::output::say;
use crate::render::text::time;

/// An object that was deleted.
pub(crate) struct Deleted {
    /// The name in messages.
    pub(crate) title: String,
    /// Its path on the API server.
    pub(crate) path: String,
    /// Its uid, which distinguishes it from later objects of the same name.
    pub(crate) uid: String,
}

const POLL: Duration = Duration::from_millis(500);

/// Waits until each object is ready, for kinds that report readiness.
pub(crate) async fn ready(
    server: &Server,
    manifests: &[Manifest],
    timeout: Duration,
) -> Result<(), CliError> {
    let deadline = Instant::now() + timeout;
    for manifest in manifests.iter().filter(|manifest| becomes_ready(manifest.kind())) {
        let title = manifest.title();
        let last = until(deadline, || async {
            match server.get::<Value>(&manifest.path()).await {
                Ok(object) => unready(&object),
                Err(error) => Some(error.to_string()),
            }
        });
        if let Some(why) = last.await {
            let look = match manifest.namespace() {
                Some(namespace) => format!("kubectl -n {namespace} describe deployments,pods"),
                None => format!("kubectl describe {}s {}", manifest.kind().to_lowercase(), manifest.name()),
            };
            return Err(CliError::failed(format!("waited {} for {title}: {why}", time(timeout)))
                .hint(format!("for details, run: {look}; to wait longer, use --timeout")));
        }
        say!("{title} is ready");
    }
    Ok(())
}

/// Waits until each of these is gone.
pub(crate) async fn gone(server: &Server, objects: &[Deleted], timeout: Duration) -> Result<(), CliError> {
    let deadline = Instant::now() + timeout;
    for Deleted { title, path, uid } in objects {
        let last = until(deadline, || async {
            match server.get::<Value>(path).await {
                Ok(object) => remains(&object, uid),
                Err(error) if error.code() == Some(404) => None,
                Err(error) => Some(error.to_string()),
            }
        });
        if let Some(why) = last.await {
            return Err(CliError::failed(format!("waited {} for {title} to be gone: {why}", time(timeout)))
                .hint(
                    "its finalizers and conditions show what it waits for; to wait longer, use --timeout",
                ));
        }
    }
    Ok(())
}

/// Checks until there is no reason to wait any more; returns the reason that remains at the deadline.
async fn until<F: Future<Output = Option<String>>>(
    deadline: Instant,
    mut ask: impl FnMut() -> F,
) -> Option<String> {
    loop {
        let why = ask().await?;
        if Instant::now() >= deadline {
            return Some(why);
        }
        tokio::time::sleep(POLL).await;
    }
}

fn becomes_ready(kind: &str) -> bool {
    ["CustomResourceDefinition", "Deployment"].contains(&kind)
}

/// Why an object is not ready yet.
fn unready(object: &Value) -> Option<String> {
    let status = &object["status"];
    let condition = |name: &str| {
        let conditions = status["conditions"].as_array();
        conditions.and_then(|all| all.iter().find(|condition| condition["type"] == name).cloned())
    };
    let holds = |name: &str| condition(name).is_some_and(|condition| condition["status"] == "True");
    match object["kind"].as_str() {
        Some("CustomResourceDefinition") if !holds("Established") => {
            let names = condition("NamesAccepted").filter(|condition| condition["status"] == "False");
            let why = names.and_then(|condition| condition["message"].as_str().map(str::to_owned));
            Some(format!("it is not established{}", why.map(|why| format!(": {why}")).unwrap_or_default()))
        }
        Some("Deployment") => {
            let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
            let count = |field: &str| status[field].as_u64().unwrap_or(0);
            let seen = status["observedGeneration"].as_u64() >= object["metadata"]["generation"].as_u64();
            let (updated, available) = (count("updatedReplicas"), count("availableReplicas"));
            (!seen || updated < wanted || available < wanted)
                .then(|| format!("{available} of {wanted} replicas are available, {updated} up to date"))
        }
        _ => None,
    }
}

/// Why a deleted object still exists.
fn remains(object: &Value, uid: &str) -> Option<String> {
    if object["metadata"]["uid"] != uid {
        return None;
    }
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let told = conditions.rfind(|condition| condition["status"] == "True");
    let told = told.and_then(|condition| condition["message"].as_str());
    Some(told.unwrap_or("it still exists").to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn readiness_follows_from_the_status() {
        let crd = |conditions: Value| json!({"kind": "CustomResourceDefinition", "status": {"conditions": conditions}});
        let deployment = |generation: u64, status: Value| json!({"kind": "Deployment", "metadata": {"generation": generation}, "spec": {"replicas": 2}, "status": status});
        let taken = json!([{"type": "NamesAccepted", "status": "False", "message": "taken"}]);
        let well = json!({"observedGeneration": 2, "updatedReplicas": 2, "availableReplicas": 2});
        for (object, expected) in [
            (crd(json!([{"type": "Established", "status": "True"}])), None),
            (crd(json!([])), Some("it is not established")),
            (crd(taken), Some("it is not established: taken")),
            (deployment(2, well.clone()), None),
            (deployment(3, well), Some("2 of 2 replicas are available, 2 up to date")),
            (deployment(1, json!({})), Some("0 of 2 replicas are available, 0 up to date")),
            (json!({"kind": "ClusterRole"}), None),
        ] {
            assert_eq!(unready(&object).as_deref(), expected, "{object}");
        }
    }

    #[test]
    fn another_object_of_the_name_is_not_the_deleted_one() {
        let condition =
            json!([{"status": "False", "message": "no"}, {"status": "True", "message": "has pods"}]);
        let object = json!({"metadata": {"uid": "a"}, "status": {"conditions": condition}});
        assert_eq!(remains(&object, "a").as_deref(), Some("has pods"));
        assert_eq!(remains(&object, "b"), None);
        assert_eq!(remains(&json!({"metadata": {"uid": "a"}}), "a").as_deref(), Some("it still exists"));
    }
}
