//! restow's webhook makes its certificates, registers itself, and rotates under load; its replicas are restarted.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use restow_lab::{Cluster, ClusterSpec};
use serde_json::Value;

use crate::serving::{Gadgets, RULES, VERSIONS, define_rules, expected, persist, write_once};
use crate::support::{CRDS, Lab, Restow, name, send, wait};
use crate::webhook_pool::{Pool, Replica, Replicas, rotate};

scenarios!(a_webhook_registers_itself_and_rotates_without_a_failed_request);

pub(crate) const OBJECTS: usize = 8;
/// How many rotations there are, unless `RESTOW_ROTATIONS` says another number.
const ROTATIONS: usize = 4;
/// From this number on, certificates live for so short a time that authorities are forgotten meanwhile: at most 64 are kept.
const MANY: usize = 40;

fn rotations() -> usize {
    let given = std::env::var("RESTOW_ROTATIONS").ok();
    given.map_or(ROTATIONS, |number| number.parse().expect("a number of rotations"))
}

/// A CRD without a conversion, objects in it, and rules.
pub(crate) async fn prepare(cluster: &Cluster, client: &kube::Client, gadgets: &Gadgets) {
    define_rules(client).await;
    let mut crd = gadgets.crd(cluster, 1);
    crd["spec"].as_object_mut().unwrap().remove("conversion");
    send(client, "POST", CRDS, Some(&crd)).await;
    gadgets.served(client).await;
    for index in 0..OBJECTS {
        send(client, "POST", &gadgets.path("v1alpha1", ""), Some(&gadgets.object(index))).await;
    }
    send(client, "POST", RULES, Some(&gadgets.rules())).await;
}

/// Starts two replicas without a certificate, which register themselves when API servers can reach them.
pub(crate) async fn register(
    client: &kube::Client,
    gadgets: &Gadgets,
    how: &Replicas<'_>,
) -> (Replica, Replica) {
    let pool = how.pool;
    let (one, two) = (Replica::start(how).await, Replica::start(how).await);
    futures::join!(one.is_ready(client), two.is_ready(client));
    wait("the gate to say that nobody answers", || async {
        one.has_logged("NoAnswer") || two.has_logged("NoAnswer")
    })
    .await;
    let path = format!("{CRDS}/{}", gadgets.crd_name());
    let conversion = || async { send(client, "GET", &path, None).await["spec"]["conversion"].clone() };
    assert_eq!(
        conversion().await["strategy"],
        "None",
        "API servers would call a webhook that they cannot reach"
    );
    pool.add(&one);
    pool.add(&two);
    wait("the webhook to be registered", || async { conversion().await["strategy"] == "Webhook" }).await;
    let url = format!("https://127.0.0.1:{}/convert/{}/Gadget", pool.port, gadgets.group());
    assert_eq!(conversion().await["webhook"]["clientConfig"]["url"], url);
    // API servers hear of it a moment later.
    wait("API servers to convert", || async {
        let object = persist(client, "GET", &gadgets.path("v1", &name(0)), None).await;
        object["spec"] == expected(0, "v1", 0)
    })
    .await;
    (one, two)
}

async fn a_webhook_registers_itself_and_rotates_without_a_failed_request(lab: Lab) {
    let (cluster, gadgets) = (lab.cluster(ClusterSpec::new()).await, Gadgets { plural: "rotatedgadgets" });
    let (client, restow) = (cluster.client(0).unwrap(), Restow::new(&cluster));
    prepare(&cluster, &client, &gadgets).await;
    let (pool, rotations) = (Pool::start().await, rotations());
    let how = Replicas {
        restow: &restow,
        pool: &pool,
        namespace: "default",
        secret: "gadget-webhook",
        settle: if rotations < MANY { "4s" } else { "2s" },
        more: if rotations < MANY { &[] } else { &["--certificate-lifetime", "2m", "--clock-skew", "10s"] },
    };
    let (one, two) = register(&client, &gadgets, &how).await;
    let done = AtomicBool::new(false);
    let churn = async |index: usize| {
        let mut round = 0;
        while !done.load(Ordering::SeqCst) {
            round += 1;
            write_once(&client, &gadgets, index, round).await;
        }
        round
    };
    let lists = async {
        let mut lists = 0;
        while !done.load(Ordering::SeqCst) {
            for version in VERSIONS {
                lists += 1;
                let list = persist(&client, "GET", &gadgets.path(version, ""), None).await;
                assert_eq!(list["items"].as_array().unwrap().len(), OBJECTS);
            }
        }
        lists
    };
    let began = std::time::Instant::now();
    let changes = async {
        for number in 0..rotations / 2 {
            rotate(&client, &gadgets, [&one, &two], number).await;
        }
        one.end(&pool).await;
        let three = Replica::join(&client, &how).await;
        for number in rotations / 2..rotations * 3 / 4 {
            rotate(&client, &gadgets, [&two, &three], number).await;
        }
        two.end(&pool).await;
        let four = Replica::join(&client, &how).await;
        for number in rotations * 3 / 4..rotations {
            rotate(&client, &gadgets, [&three, &four], number).await;
        }
        done.store(true, Ordering::SeqCst);
        (three, four)
    };
    let (rounds, lists, replicas) = futures::join!(join_all((0..OBJECTS).map(churn)), lists, changes);
    let (writes, seconds) = (rounds.iter().sum::<usize>(), began.elapsed().as_secs());
    eprintln!("{rotations} rotations in {seconds} s: {writes} reads and writes, {lists} lists, none failed");
    for (index, rounds) in rounds.iter().enumerate() {
        assert!(*rounds > rotations, "object {index} was written {rounds} times");
        for version in VERSIONS {
            let object = send(&client, "GET", &gadgets.path(version, &name(index)), None).await;
            assert_eq!(object["spec"], expected(index, version, *rounds), "{version} of {index}");
        }
    }
    let mut stored = 0;
    let check = |key: &str, bytes: &[u8]| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let index: usize = object["metadata"]["labels"]["number"].as_str().unwrap().parse().unwrap();
        assert_eq!(object["apiVersion"], format!("{}/v1alpha1", gadgets.group()), "{key}");
        assert_eq!(object["spec"], expected(index, "v1alpha1", rounds[index]), "{key}");
        stored += 1;
    };
    let prefix = format!("/registry/{}/{}/", gadgets.group(), gadgets.plural);
    cluster.store().for_each(&prefix, check).await.unwrap();
    assert_eq!(stored, OBJECTS);
    drop(replicas);
}
