//! What the proxies show and what they can break.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use http::{Method, StatusCode};
use k8s_openapi::api::{core::v1::ConfigMap, core::v1::Namespace};
use kube::{
    Api, Client, Config,
    api::{ListParams, ObjectMeta},
    config::{KubeConfigOptions, Kubeconfig},
};
use restow_lab::{Action, Cluster, ClusterSpec, Observer, Proxy, Recorder, Seen, assets};

/// A client as restow makes it from a file, without retries.
async fn client_from(path: &std::path::Path) -> Client {
    let file = Kubeconfig::read_from(path).unwrap();
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

#[derive(Default)]
struct Saboteur {
    writes: AtomicUsize,
    answered: Mutex<Vec<u8>>,
}

impl Observer for Saboteur {
    fn request(&self, request: &Seen) -> Action {
        if request.method != Method::POST {
            return Action::Forward;
        }
        match self.writes.fetch_add(1, Ordering::SeqCst) {
            0 => Action::reply(503, r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":503}"#),
            1 => Action::DropBefore,
            2 => Action::DropAfter,
            3 => Action::Wait(Box::pin(tokio::time::sleep(std::time::Duration::from_millis(10)))),
            4 => Action::Change(Box::new(|answer| answer.slice(..answer.len() / 2))),
            _ => Action::Forward,
        }
    }

    fn response(&self, _: &Seen, status: StatusCode, _: &http::HeaderMap) {
        assert!(status.is_success(), "{status}");
    }

    fn chunk(&self, _: &Seen, chunk: &[u8]) {
        self.answered.lock().unwrap().extend_from_slice(chunk);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_show_and_break_the_traffic() {
    let Some(assets) = assets::or_skip("proxies_show_and_break_the_traffic") else { return };
    let cluster = Cluster::start(&assets, ClusterSpec::new()).await.unwrap();
    recorder(&cluster).await;
    cut(&cluster).await;
    alice(&cluster).await;
}

async fn recorder(cluster: &Cluster) {
    let saboteur = Arc::new(Saboteur::default());
    let recorder = Recorder::start(cluster, 0, "admin", Arc::clone(&saboteur)).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client_from(recorder.kubeconfig()).await);
    let make = async |name: &str| {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..Default::default() };
        maps.create(&Default::default(), &ConfigMap { metadata, ..Default::default() }).await
    };

    let refused = make("refused").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 503), "{refused}");
    assert!(make("dropped-before").await.is_err());
    assert!(make("dropped-after").await.is_err());
    make("delayed").await.unwrap();
    assert!(make("halved").await.is_err());

    let mut names: Vec<_> = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .filter_map(|map| map.metadata.name)
        .collect();
    names.retain(|name| name != "kube-root-ca.crt");
    assert_eq!(names, ["delayed", "dropped-after", "halved"], "a lost answer is not a lost write");
    let answered = String::from_utf8(saboteur.answered.lock().unwrap().clone()).unwrap();
    assert!(answered.contains("ConfigMapList"), "{answered}");
    assert_eq!(saboteur.writes.load(Ordering::SeqCst), 5);
}

async fn cut(cluster: &Cluster) {
    let proxy = Proxy::start(cluster.addr(0)).await.unwrap();
    let kubeconfig = cluster.kubeconfig_at(&proxy.url(), "admin").unwrap();
    let namespaces: Api<Namespace> = Api::all(client_from(&kubeconfig).await);
    namespaces.get("default").await.unwrap();

    proxy.refuse(true);
    namespaces.get("default").await.expect("a connection there is goes on");
    proxy.cut_connections();
    assert!(namespaces.get("default").await.is_err(), "cut and refused");
    proxy.refuse(false);
    namespaces.get("default").await.unwrap();
    assert!(proxy.connections() >= 2);
}

async fn alice(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(client_from(&cluster.kubeconfig(0, "alice")).await);
    let denied = namespaces.get("default").await.unwrap_err();
    assert!(matches!(&denied, kube::Error::Api(status) if status.code == 403), "{denied}");
}
