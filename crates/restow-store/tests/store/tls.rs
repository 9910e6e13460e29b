//! A store in an etcd that requires TLS client certificates.

use std::{sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use restow_store::{
    Store, StoreError,
    etcd::{EtcdSettings, EtcdStore, Identity},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig, crypto::ring::default_provider, pki_types::PrivatePkcs8KeyDer,
        server::WebPkiClientVerifier,
    },
};

use crate::{etcd, support::done};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn issue(authority: &Authority) -> (rcgen::Certificate, KeyPair) {
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap(), key)
}

fn identity(authority: &Authority) -> Identity {
    let (certificate, key) = issue(authority);
    Identity { certificate: certificate.pem().into(), key: key.serialize_pem().into() }
}

/// Starts a TLS proxy in front of etcd that requires client certificates; returns its URL.
async fn front(etcd: &str, authority: &Authority) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().unwrap();
    let (certificate, key) = issue(authority);
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let target = etcd.trim_start_matches("http://").to_owned();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (acceptor, target) = (acceptor.clone(), target.clone());
            tokio::spawn(async move {
                let Ok(mut inside) = acceptor.accept(connection).await else { return };
                let mut outside = TcpStream::connect(target).await.unwrap();
                tokio::io::copy_bidirectional(&mut inside, &mut outside).await.ok();
            });
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_authenticate() {
    let Some(cluster) = etcd::start("both_sides_show_who_they_are").await else { return };
    let (known, unknown) = (authority("known"), authority("unknown"));
    let url = front(cluster.etcd().url(), &known).await;
    let settings = |ca: &Authority, identity| {
        let timeout = Duration::from_secs(10);
        EtcdSettings { ca: Some(ca.pem().into()), identity, timeout, ..EtcdSettings::new([&url]) }
    };
    let store = EtcdStore::new(&settings(&known, Some(identity(&known)))).unwrap();
    let revision = done(&store, "/a", 0, Some("a")).await;
    assert_eq!(store.revision().await.unwrap(), revision);

    for (ca, identity) in
        [(&known, None), (&known, Some(identity(&unknown))), (&unknown, Some(identity(&known)))]
    {
        let store = EtcdStore::new(&settings(ca, identity)).unwrap();
        let error = store.get("/a").await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }
}

#[test]
fn debug_output_shows_no_key() {
    let shown = format!(
        "{:?}",
        EtcdSettings { identity: Some(identity(&authority("a"))), ..EtcdSettings::new(["a"]) }
    );
    assert!(shown.contains("Identity") && !shown.contains("45, 45"), "{shown}");
}
