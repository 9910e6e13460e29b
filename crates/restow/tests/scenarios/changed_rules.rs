//! Rules that are changed while API servers call the webhook are used only after all live objects have survived them.

use restow_lab::ClusterSpec;
use serde_json::{Value, json};

use crate::rotating::{prepare, register};
use crate::serving::{Gadgets, RULES, expected, persist};
use crate::support::{Lab, Restow, name, patch, send, wait};
use crate::webhook_pool::{Pool, Replica, Replicas};

scenarios!(rules_that_live_objects_would_not_survive_are_not_used);

/// The reason and status of the condition Registered, the generation in force, and those that replicas serve.
async fn seen(client: &kube::Client, rules: &str) -> (String, Option<i64>, Vec<i64>) {
    let status = send(client, "GET", rules, None).await["status"].clone();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let registered = conditions.iter().find(|condition| condition["type"] == "Registered");
    let text = |condition: &Value| {
        format!("{} {}", condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap())
    };
    let replicas = status["replicas"].as_array().cloned().unwrap_or_default();
    let served = replicas.iter().map(|replica| replica["generation"].as_i64().unwrap()).collect();
    (registered.map(text).unwrap_or_default(), status["inForce"]["generation"].as_i64(), served)
}

/// The rules of the gadgets, with another default.
fn with_default(gadgets: &Gadgets, replicas: u32) -> Value {
    let mut spec = gadgets.rules()["spec"].clone();
    spec["hops"][1]["rules"][1]["default"]["value"] = replicas.into();
    json!({ "spec": spec })
}

/// Rules that fit the CRD, and that no live object survives, because all have the size 0.
fn dividing(gadgets: &Gadgets) -> Value {
    let mut spec = gadgets.rules()["spec"].clone();
    spec["hops"][1]["rules"][0] = json!({"cel": {
        "older": [{"path": "spec.size", "value": "10 / self.spec.length"}],
        "newer": [{"path": "spec.length", "value": "10 / self.spec.size"}],
    }});
    json!({ "spec": spec })
}

async fn rules_that_live_objects_would_not_survive_are_not_used(lab: Lab) {
    let (cluster, gadgets) = (lab.cluster(ClusterSpec::new()).await, Gadgets { plural: "changedgadgets" });
    let (client, restow) = (cluster.client(0).unwrap(), Restow::new(&cluster));
    prepare(&cluster, &client, &gadgets).await;
    let pool = Pool::start().await;
    let how = Replicas {
        restow: &restow,
        pool: &pool,
        namespace: "default",
        secret: "gadget-webhook",
        settle: "4s",
        more: &[],
    };
    let (one, two) = register(&client, &gadgets, &how).await;
    let rules = format!("{RULES}/{}", gadgets.crd_name());
    let reaches = async |what: &'static str, expected: (&str, i64, &[i64])| {
        wait(what, || async {
            let (registered, in_force, served) = seen(&client, &rules).await;
            (registered.as_str(), in_force, served.as_slice()) == (expected.0, Some(expected.1), expected.2)
        })
        .await;
    };
    reaches("the rules to be in force", ("True Registered", 1, &[1, 1])).await;

    patch(&client, &rules, &dividing(&gadgets)).await;
    reaches("the gate to say no", ("True ObjectsWouldChange", 1, &[1, 1])).await;
    let object = persist(&client, "GET", &gadgets.path("v1", &name(0)), None).await;
    assert_eq!(object["spec"], expected(0, "v1", 0));
    // A replica that is started now serves those that are in force, too.
    one.end(&pool).await;
    let three = Replica::join(&client, &how).await;
    two.end(&pool).await;
    reaches("the new replica to serve them", ("True ObjectsWouldChange", 1, &[1])).await;
    let object = persist(&client, "GET", &gadgets.path("v1", &name(0)), None).await;
    assert_eq!(object["spec"], expected(0, "v1", 0));

    patch(&client, &rules, &with_default(&gadgets, 2)).await;
    reaches("good rules to be in force", ("True Registered", 3, &[3])).await;
    wait("API servers to see them", || async {
        let object = persist(&client, "GET", &gadgets.path("v1", &name(0)), None).await;
        object["spec"]["replicas"] == 2
    })
    .await;
    three.end(&pool).await;
}
