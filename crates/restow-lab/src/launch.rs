//! How each part is started: its program and its flags.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{Assets, ClusterSpec, Flags, ServerSpec};

/// The name in the certificate that API servers present to the aggregated one.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";
/// The name in the certificate of conversion webhooks.
pub(crate) const WEBHOOK: &str = "webhook";

/// The folder in which the embedded API server keeps its certificate authority.
pub(crate) const CREDENTIALS: &str = "credentials";
/// The folder in which the embedded API server keeps everything else.
pub(crate) const EMBEDDED: &str = "apiserver-0";

/// The command of a part.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    /// The subcommand, if the program has several.
    pub(crate) subcommand: Option<&'static str>,
    pub(crate) flags: Flags,
    /// The host name, set in a UTS namespace: the identity of an API server is a hash of it.
    pub(crate) host: Option<String>,
    pub(crate) log: PathBuf,
}

/// The command of etcd.
pub(crate) fn etcd(assets: &Assets, dir: &Path, port: u16, durable: bool) -> Launch {
    let url = format!("http://127.0.0.1:{port}");
    let mut flags = Flags::default();
    flags
        .set("data-dir", text(&dir.join("etcd")))
        .set("listen-client-urls", &url)
        .set("advertise-client-urls", &url)
        .set("listen-peer-urls", "http://127.0.0.1:0")
        .set("log-level", "warn")
        .set("quota-backend-bytes", (8_u64 << 30).to_string())
        .set("unsafe-no-fsync", (!durable).to_string());
    Launch { program: assets.etcd.clone(), subcommand: None, flags, host: None, log: dir.join("etcd.log") }
}

/// The command of one API server.
pub(crate) fn api_server(
    assets: &Assets,
    dir: &Path,
    spec: &ClusterSpec,
    index: usize,
    etcd_port: u16,
    port: u16,
) -> Launch {
    let name = format!("apiserver-{index}");
    let file = |suffix: &str| text(&dir.join(format!("{name}.{suffix}")));
    let mut flags = Flags::default();
    flags
        .set("authorization-mode", "RBAC")
        .set("bind-address", "127.0.0.1")
        .set("cert-dir", text(&dir.join(&name)))
        .set("disable-admission-plugins", "ServiceAccount")
        .set("etcd-servers", format!("http://127.0.0.1:{etcd_port}"))
        .set("secure-port", port.to_string())
        .set("service-account-issuer", "https://kubernetes.default.svc")
        .set("service-account-key-file", text(&dir.join("sa.pub")))
        .set("service-account-signing-key-file", text(&dir.join("sa.key")))
        .set("service-cluster-ip-range", "10.0.0.0/24")
        .set("tls-cert-file", file("crt"))
        .set("tls-private-key-file", file("key"))
        .set("token-auth-file", text(&dir.join("tokens.csv")));
    if spec.storage_version_api {
        flags.add("feature-gates", "APIServerIdentity=true,StorageVersionAPI=true");
        flags.add("runtime-config", "internal.apiserver.k8s.io/v1alpha1=true");
    }
    if spec.storage_migration_api {
        flags.add("feature-gates", "StorageVersionMigrator=true");
        flags.add("runtime-config", "storagemigration.k8s.io/v1beta1=true");
    }
    if spec.encryption.is_some() {
        flags.set("encryption-provider-config", text(&encryption_file(dir, index)));
        flags.set("encryption-provider-config-automatic-reload", "true");
    }
    if spec.front_proxy {
        front_proxy_flags(&mut flags, dir);
    }
    if let Some(server) = spec.servers.get(index) {
        server_flags(&mut flags, server);
    }
    settle_emulation(&mut flags);
    let host = Some(format!("restow-lab-{index}"));
    let own = spec.servers.get(index).and_then(|server| server.program.clone());
    let program = own.unwrap_or_else(|| assets.kube_apiserver.clone());
    Launch { program, subcommand: None, flags, host, log: dir.join(format!("{name}.log")) }
}

/// The command of the embedded API server, `restow apiserver`, with a file store.
pub(crate) fn embedded(program: &Path, dir: &Path, spec: &ClusterSpec, port: u16) -> Launch {
    let mut flags = Flags::default();
    flags
        .set("audit-log", "none")
        .set("credentials-dir", text(&dir.join(CREDENTIALS)))
        .set("data-dir", text(&dir.join(EMBEDDED)))
        .set("listen", format!("127.0.0.1:{port}"))
        .set("token-auth-file", text(&dir.join("tokens.csv")));
    if spec.encryption.is_some() {
        flags.set("encryption-provider-config", text(&encryption_file(dir, 0)));
    }
    let program = program.to_owned();
    Launch { program, subcommand: Some("apiserver"), flags, host: None, log: dir.join("apiserver-0.log") }
}

/// Lets an API server authenticate to the aggregated one as a front proxy, which forwards requests of users.
fn front_proxy_flags(flags: &mut Flags, dir: &Path) {
    flags
        .set("proxy-client-cert-file", text(&dir.join(format!("{FRONT_PROXY}.crt"))))
        .set("proxy-client-key-file", text(&dir.join(format!("{FRONT_PROXY}.key"))))
        .set("requestheader-allowed-names", FRONT_PROXY)
        .set("requestheader-client-ca-file", text(&dir.join("ca.crt")))
        .set("requestheader-extra-headers-prefix", "X-Remote-Extra-")
        .set("requestheader-group-headers", "X-Remote-Group")
        .set("requestheader-username-headers", "X-Remote-User");
}

fn server_flags(flags: &mut Flags, server: &ServerSpec) {
    if let Some(version) = &server.emulated_version {
        flags.set("emulated-version", version);
    }
    for (gate, on) in &server.feature_gates {
        flags.add("feature-gates", &format!("{gate}={on}"));
    }
    for (name, value) in &server.flags {
        flags.set(name, value);
    }
}

/// Keeps a server startable when its emulated version changes.
///
/// With an emulated version, APIs newer than it stop the start unless this flag is set; without one, the flag does.
pub(crate) fn settle_emulation(flags: &mut Flags) {
    let name = "runtime-config-emulation-forward-compatible";
    if flags.get("emulated-version").is_some() && flags.get("runtime-config").is_some() {
        flags.set(name, "true");
    } else {
        flags.remove(name);
    }
}

/// The command of the controller manager, which talks to the first API server.
pub(crate) fn controller_manager(
    assets: &Assets,
    dir: &Path,
    controllers: &[String],
    kubeconfig: &Path,
    port: u16,
) -> Result<Launch> {
    let program = assets
        .kube_controller_manager
        .clone()
        .with_context(|| format!("no kube-controller-manager in {}", assets.dir.display()))?;
    let file = |suffix: &str| text(&dir.join(format!("controller-manager.{suffix}")));
    let mut flags = Flags::default();
    flags
        .set("bind-address", "127.0.0.1")
        .set("controllers", controllers.join(","))
        .set("feature-gates", "StorageVersionMigrator=true")
        .set("kubeconfig", text(kubeconfig))
        .set("leader-elect", "false")
        .set("secure-port", port.to_string())
        .set("tls-cert-file", file("crt"))
        .set("tls-private-key-file", file("key"));
    Ok(Launch { program, subcommand: None, flags, host: None, log: dir.join("controller-manager.log") })
}

/// The command of the aggregated API server, which delegates authentication and authorization to the first API server.
pub(crate) fn aggregated(
    assets: &Assets,
    dir: &Path,
    kubeconfig: &Path,
    etcd_port: u16,
    port: u16,
) -> Result<Launch> {
    let program = assets
        .sample_apiserver
        .clone()
        .with_context(|| format!("no sample-apiserver in {}", assets.dir.display()))?;
    let mut flags = Flags::default();
    flags
        .set("authentication-kubeconfig", text(kubeconfig))
        .set("authorization-kubeconfig", text(kubeconfig))
        .set("bind-address", "127.0.0.1")
        .set("etcd-servers", format!("http://127.0.0.1:{etcd_port}"))
        .set("kubeconfig", text(kubeconfig))
        .set("secure-port", port.to_string())
        .set("tls-cert-file", text(&dir.join("aggregated.crt")))
        .set("tls-private-key-file", text(&dir.join("aggregated.key")));
    Ok(Launch { program, subcommand: None, flags, host: None, log: dir.join("aggregated.log") })
}

/// The file with the encryption configuration of one API server.
pub(crate) fn encryption_file(dir: &Path, index: usize) -> PathBuf {
    dir.join(format!("apiserver-{index}.encryption.yaml"))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
