//! `restow audit` counts what was really stored, and names what is stale.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use restow_audit::{Meter, snapshot};
use restow_lab::{Cluster, ClusterSpec, Encryption, Part};
use restow_store::encryption::Transformers;
use restow_store::file::{FileSettings, FileStore};
use restow_store::{Store as _, Write, Written};
use serde_json::{Value, json};

use crate::support::{Lab, Restow, Widgets, create_all, name, send};

scenarios! {
    an_object_that_was_put_back_in_the_old_version_is_named,
    the_data_of_secrets_is_in_no_output_log_or_file,
    ; real:
    // They need etcd and its files.
    every_count_equals_what_was_stored_and_all_sources_agree,
}

const CANARY: &str = "canary-5d1e77a0";

/// An object of a CRD that is deleted.
const LEFTOVER: &str = r#"{"apiVersion":"gone.example.com/v1","kind":"Leftover"}"#;

/// Under the key that writes first, two older ones, and plain text.
const KEYS: [(&str, &str); 3] = [("aesgcm", "key3"), ("aescbc", "key1"), ("secretbox", "key2")];

/// An encryption configuration of these providers, in this order.
fn encryption(providers: &[(&str, &str)]) -> Encryption {
    let key = |name: &str| format!("{:A<43}=", name);
    let provider = |(provider, name): &(&str, &str)| {
        format!("  - {provider}: {{ keys: [ {{ name: {name}, secret: \"{}\" }} ] }}\n", key(name))
    };
    let providers: String = providers.iter().map(provider).collect();
    Encryption::from_yaml(&format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n\
         - resources: [secrets]\n  providers:\n{providers}  - identity: {{}}\n"
    ))
}

/// A Secret as an API server with this configuration would store it.
fn sealed(providers: &[(&str, &str)], key: &str) -> Vec<u8> {
    let transformers = Transformers::parse(encryption(providers).yaml().as_bytes()).unwrap();
    let plain = json!({"apiVersion": "v1", "kind": "Secret", "data": {"password": CANARY}}).to_string();
    transformers.of("", "secrets").encrypt(key, plain.into_bytes().into()).unwrap().to_vec()
}

/// An object in protobuf, as kube-apiserver stores it.
fn protobuf(api_version: &str, kind: &str) -> Vec<u8> {
    let field = |tag: u8, bytes: &[u8]| [&[tag, bytes.len() as u8], bytes].concat();
    let meta = [field(0x0a, api_version.as_bytes()), field(0x12, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(0x0a, &meta), field(0x12, b"")].concat()
}

/// The counts of one resource.
fn resource<'r>(report: &'r Value, name: &str) -> &'r Value {
    let found = report["resources"].as_array().unwrap().iter().find(|one| one["resource"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn every_count_equals_what_was_stored_and_all_sources_agree(lab: Lab) {
    let (current, old, older) = ([KEYS[0], KEYS[1], KEYS[2]], [KEYS[1]], [KEYS[2]]);
    let cluster = lab.cluster(ClusterSpec::new().encryption(encryption(&current))).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let etcd = cluster.etcd();

    // Custom resources in JSON, some of them stored before the storage version changed.
    let widgets = Widgets { plural: "audited" };
    widgets.define(&client).await;
    widgets.create_range(&client, 0..7).await;
    widgets.store_as(&client, "v2").await;
    widgets.create_range(&client, 7..12).await;
    // Built-ins in protobuf: kube-apiserver's own, and some in a version that it no longer knows.
    let config = |index| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name(index)}});
    create_all(&client, "/api/v1/namespaces/default/configmaps", 0..6, config).await;
    let mut planted: Vec<(String, Vec<u8>)> = Vec::new();
    for index in 0..4 {
        let version = if index < 3 { "apps/v1beta2" } else { "apps/v1" };
        let key = format!("/registry/controllerrevisions/default/r-{index}");
        planted.push((key, protobuf(version, "ControllerRevision")));
    }
    // Secrets under three keys and in plain text: the first ones by kube-apiserver.
    let secret = |index| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}, "stringData": {"password": CANARY}});
    create_all(&client, "/api/v1/namespaces/default/secrets", 0..5, secret).await;
    for (index, providers) in [&old[..], &old, &old, &older, &older, &[]].into_iter().enumerate() {
        let key = format!("/registry/secrets/default/planted-{index}");
        planted.push((key.clone(), sealed(providers, &key)));
    }
    // Garbage, and what a deleted CRD has left behind.
    planted.push((format!("{}default/garbage", widgets.prefix()), CANARY.into()));
    planted.push(("/registry/secrets/default/unknown".to_owned(), b"k8s:enc:rot13:v1:x:y".to_vec()));
    planted.push(("/registry/gone.example.com/leftovers/a/b".to_owned(), LEFTOVER.into()));
    // Written, and deleted again.
    planted.push((format!("{}default/deleted", widgets.prefix()), b"{}".to_vec()));
    etcd.put_all(&planted).await.unwrap();
    assert!(etcd.delete(&format!("{}default/deleted", widgets.prefix())).await.unwrap());

    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("encryption.yaml");
    std::fs::write(&config, encryption(&current).yaml()).unwrap();
    let audit = async |args: &[&str]| {
        let mut all = vec!["audit", "-o", "json", "--encryption-config", text(&config)];
        all.extend(args);
        let ran = restow.run(&all).await;
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains(CANARY), "{ran:#?}");
        ran
    };

    // Compared with the cluster.
    let ran = audit(&["--etcd", etcd.url()]).await.expect(4);
    let report = ran.report();
    let found = resource(&report, &widgets.name());
    let (v1, v2) = (format!("{}/v1", widgets.group()), format!("{}/v2", widgets.group()));
    assert_eq!(found["versions"], json!({v1: 7, v2.as_str(): 5}), "{found:#}");
    assert_eq!((&found["objects"], &found["stale"]), (&json!(13), &json!(7)));
    let names: Vec<String> = (0..7).map(|index| format!("default/{}", name(index))).collect();
    assert_eq!(found["staleNames"], json!(names));
    let found = resource(&report, "controllerrevisions.apps");
    assert_eq!(found["versions"], json!({"apps/v1beta2": 3, "apps/v1": 1}));
    assert_eq!(
        (&found["stale"], &found["staleNames"]),
        (&json!(3), &json!(["default/r-0", "default/r-1", "default/r-2"]))
    );
    let found = resource(&report, "secrets");
    let keys = json!({"aesgcm:key3": 5, "aescbc:key1": 3, "secretbox:key2": 2, "identity": 1});
    assert_eq!((&found["encryption"], &found["objects"]), (&keys, &json!(12)), "{found:#}");
    assert_eq!((&found["stale"], &found["versions"]), (&json!(6), &json!({"v1": 11})));
    let undecodable: Vec<&str> =
        report["undecodable"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    let garbage = format!("{}default/garbage", widgets.prefix());
    assert_eq!(undecodable, [garbage.as_str(), "/registry/secrets/default/unknown"]);
    assert_eq!(
        report["unserved"],
        json!([{"resource": "leftovers.gone.example.com", "objects": 1, "bytes": LEFTOVER.len()}])
    );
    // Nothing else is stale in a new cluster, and everything is counted.
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for one in report["resources"].as_array().unwrap() {
        let name = one["resource"].as_str().unwrap().to_owned();
        let is_planted =
            [widgets.name().as_str(), "controllerrevisions.apps", "secrets"].contains(&name.as_str());
        assert!(is_planted || one["stale"] == 0 || name == "leftovers.gone.example.com", "{one:#}");
        counts.insert(name, one["objects"].as_u64().unwrap());
    }
    let mut stored = 0;
    let is_own = |key: &str| {
        ["masterleases", "ranges", "peerserverleases"]
            .iter()
            .any(|own| key.starts_with(&format!("/registry/{own}/")))
    };
    etcd.for_each("/registry/", |key, _| stored += u64::from(!is_own(key))).await.unwrap();
    // Leases and Events come and go.
    assert!(counts.values().sum::<u64>().abs_diff(stored) < 10, "{counts:?} of {stored}");

    // Without writers, all sources give the same report.
    cluster.kill(Part::ApiServer(0)).unwrap();
    let expect = format!("{v2},apps/v1");
    let compare = ["--offline", "--expect", &expect];
    let live = audit(&[&["--etcd", etcd.url()][..], &compare].concat()).await.expect(4).report();
    assert_eq!(resource(&live, &widgets.name())["stale"], 7);
    let file = files.path().join("backup.db");
    std::fs::write(&file, etcd.snapshot().await.unwrap()).unwrap();
    let snapshot_report =
        audit(&[&["--snapshot", text(&file)][..], &compare].concat()).await.expect(4).report();
    let db = cluster.dir().join("etcd/member/snap/db");
    let refused = audit(&["--snapshot", text(&db), "--offline"]).await.expect(1);
    assert!(refused.stderr.contains("is in use by etcd"), "{refused:#?}");
    cluster.terminate(Part::Etcd).await.unwrap();
    let before = std::fs::read(&db).unwrap();
    let database_report = audit(&[&["--snapshot", text(&cluster.dir().join("etcd"))][..], &compare].concat())
        .await
        .expect(4)
        .report();
    assert!(before == std::fs::read(&db).unwrap(), "it is only read");
    for (report, source) in [(&snapshot_report, text(&file)), (&database_report, text(&db))] {
        let mut same = report.clone();
        assert_eq!(same["source"], source);
        same["source"] = live["source"].clone();
        assert_eq!(same, live);
    }
    // A silent cluster is no reason to call anything current.
    let ran = restow.run(&["audit", "--snapshot", text(&file), "-o", "csv"]).await;
    assert!(ran.code == 3 && ran.stderr.contains("are not compared with the cluster"), "{ran:#?}");
    damage(&std::fs::read(&file).unwrap(), &before);
}

/// Changes and cuts real files: each one is refused, or gives the same keys.
fn damage(backup: &[u8], database: &[u8]) {
    let keys = |file: Vec<u8>| {
        let mut keys = 0;
        snapshot::read(&file, &Meter::default(), &mut |_, _| keys += 1).map(|_| keys)
    };
    let sound = keys(database.to_vec()).unwrap();
    assert_eq!(keys(backup.to_vec()).unwrap(), sound);
    let mut random = fastrand::Rng::with_seed(20);
    let (mut refused, mut same) = (0, 0);
    for _ in 0..150 {
        let mut file = backup.to_vec();
        let at = random.usize(..file.len());
        file[at] ^= 1 << random.u8(..8);
        assert!(keys(file).is_err(), "byte {at} of the snapshot");
    }
    for _ in 0..500 {
        let mut file = database.to_vec();
        // Mostly where pages begin, because values are most of the rest.
        let page = random.usize(..file.len() / 4096) * 4096;
        let within = if random.u8(..4) == 0 { 4096 } else { 80 };
        let at = page + random.usize(..within);
        file[at] ^= 1 << random.u8(..8);
        match keys(file) {
            Err(_) => refused += 1,
            Ok(found) if found == sound => same += 1,
            Ok(found) => panic!("byte {at} of the database: {found} keys instead of {sound}"),
        }
    }
    assert!(refused > 20 && same > 20, "{refused} refused, {same} the same");
    for _ in 0..50 {
        let file = backup[..random.usize(..backup.len() - 32)].to_vec();
        assert!(keys(file).is_err());
    }
}

/// The flags that audit the stored bytes of a cluster. The embedded server has to be stopped for it.
fn stored(cluster: &Cluster, lab: &Lab) -> Vec<String> {
    match lab {
        Lab::Real(_) => vec!["--etcd".to_owned(), cluster.etcd().url().to_owned()],
        Lab::Embedded => {
            cluster.kill(Part::ApiServer(0)).unwrap();
            vec!["--data-dir".to_owned(), text(&data_dir(cluster)).to_owned(), "--offline".to_owned()]
        }
    }
}

fn data_dir(cluster: &Cluster) -> PathBuf {
    cluster.dir().join("apiserver-0")
}

/// Replaces a stored value without the API server.
async fn put_back(cluster: &Cluster, lab: &Lab, key: &str, value: Vec<u8>) {
    match lab {
        Lab::Real(_) => cluster.etcd().put(key, &value).await.unwrap(),
        Lab::Embedded => {
            let store = FileStore::open(&data_dir(cluster).join("store"), FileSettings::default()).unwrap();
            let expected = store.get(key).await.unwrap().entry.unwrap().mod_revision;
            let write = Write { key: key.to_owned(), expected, value: Some(value.into()) };
            assert!(matches!(store.write(write).await.unwrap(), Written::Done { .. }));
        }
    }
}

async fn an_object_that_was_put_back_in_the_old_version_is_named(lab: Lab) {
    let cluster = lab.cluster(ClusterSpec::new()).await;
    let client = cluster.client(0).unwrap();
    let restow = Restow::new(&cluster);
    let widgets = Widgets { plural: "putback" };
    widgets.define(&client).await;
    widgets.create(&client, 20).await;
    let key = format!("{}default/{}", widgets.prefix(), name(7));
    let old = cluster.store().get(&key).await.unwrap().unwrap();
    widgets.store_as(&client, "v2").await;
    restow.migrate(&widgets.name(), &["--pace", "fast"]).await.expect(0);

    let source = stored(&cluster, &lab);
    let expect = format!("{}/v2", widgets.group());
    let names = restow.state.path().join("stale");
    let mut args = vec!["audit", "-o", "json", "--expect", &expect, "--stale-names", text(&names)];
    args.extend(source.iter().map(String::as_str));
    let report = restow.run(&args).await.expect(0).report();
    let found = resource(&report, &widgets.name());
    assert_eq!(
        (&found["objects"], &found["stale"], &found["staleNames"]),
        (&json!(20), &json!(0), &json!([]))
    );
    assert_eq!(std::fs::read_to_string(&names).unwrap(), "");

    put_back(&cluster, &lab, &key, old).await;
    let report = restow.run(&args).await.expect(4).report();
    let found = resource(&report, &widgets.name());
    assert_eq!((&found["objects"], &found["stale"]), (&json!(20), &json!(1)));
    assert_eq!(found["staleNames"], json!([format!("default/{}", name(7))]));
    assert_eq!(std::fs::read_to_string(&names).unwrap(), format!("{} default/{}\n", widgets.name(), name(7)));
}

async fn the_data_of_secrets_is_in_no_output_log_or_file(lab: Lab) {
    let keys = encryption(&KEYS);
    let cluster = lab.cluster(ClusterSpec::new().encryption(keys.clone())).await;
    let client = cluster.client(0).unwrap();
    let path = "/api/v1/namespaces/default/secrets";
    let secret = |index: usize| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name(index)}, "stringData": {"password": CANARY}});
    create_all(&client, path, 0..10, secret).await;
    // Not encrypted, and not decodable.
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"password": CANARY}});
    send(&client, "POST", "/api/v1/namespaces/default/configmaps", Some(&config)).await;
    send(&client, "POST", path, Some(&secret(10))).await;
    let source = stored(&cluster, &lab);
    let key = format!("/registry/secrets/default/{}", name(10));
    put_back(&cluster, &lab, &key, format!("garbage {CANARY}").into_bytes()).await;

    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("encryption.yaml");
    std::fs::write(&config, keys.yaml()).unwrap();
    let temporary = tempfile::tempdir().unwrap();
    for output in ["table", "json", "csv"] {
        for more in [&["--encryption-config", text(&config)][..], &[]] {
            let mut args = vec!["audit", "-vv", "-o", output];
            args.extend(source.iter().map(String::as_str).chain(more.iter().copied()));
            let restow = Restow::new(&cluster);
            let mut command = restow.command(&args);
            let ran = command.env("TMPDIR", temporary.path()).output().await.unwrap();
            let printed = [ran.stdout, ran.stderr].concat();
            let printed = String::from_utf8_lossy(&printed);
            assert!(!printed.contains("canary") && !printed.contains("Y2FuYXJ5"), "{printed}");
            assert!(printed.contains(&key), "the audit has seen it: {printed}");
            assert_eq!(ran.status.code(), Some(3), "{printed}");
            let left = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
            assert_eq!((left(temporary.path()), left(restow.state.path())), (0, 0), "nothing is written");
        }
    }
}
