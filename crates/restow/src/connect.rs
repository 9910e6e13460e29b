//! Connects to a cluster, from the connection flags and the kubeconfig.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use http::uri::{PathAndQuery, Scheme};
use kube::client::AuthError;
use kube::config::{AuthInfo, ExecConfig, KubeConfigOptions, Kubeconfig, KubeconfigError};
use restow_api::Reason;
use restow_core::controller::troubleshooting::explained;
use restow_core::resource::name::GroupResource;
use restow_migrate::client::access::{self, Missing};
use restow_migrate::client::{RequestError, Server};
use restow_migrate::cluster::{Cluster, Trust};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::args::Connection;
use crate::error::CliError;

/// Connects; nothing is sent yet.
pub(crate) async fn connect(flags: &Connection) -> Result<Cluster, CliError> {
    let mut config = config(flags).await?;
    if let Some(server) = &flags.server {
        config.cluster_url = server.clone();
    }
    let authority = flags.certificate_authority.as_deref().map(certificates).transpose()?;
    verify(&mut config, authority, flags.insecure_skip_tls_verify);
    if let Some(token) = &flags.token {
        config.auth_info = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
    }
    // Zero means no limit, as in kubectl; then only the general timeout of requests applies.
    config.read_timeout = flags.request_timeout.filter(|timeout| !timeout.is_zero()).or(config.read_timeout);
    let plugin = config.auth_info.exec.clone();
    let secured =
        config.root_cert.is_some() || config.accept_invalid_certs || has_certificate(&config.auth_info);
    config.cluster_url = address(&config.cluster_url, secured)?;
    if let Some(user) = &flags.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = (!flags.as_group.is_empty()).then(|| flags.as_group.clone());
    }
    tracing::info!(server = %config.cluster_url, as_user = flags.as_user, "connecting");
    let trust = if flags.assume_single_server {
        Trust::Single
    } else if let Some(period) = flags.sample_servers {
        Trust::Sampled(period)
    } else if !flags.api_server.is_empty() {
        Trust::Named(named(&flags.api_server)?)
    } else {
        Trust::Members
    };
    Cluster::connect(config, trust).map_err(|error| match (&error, plugin) {
        (kube::Error::Auth(AuthError::AuthExecStart(cause)), Some(plugin)) => unrunnable(&plugin, cause),
        _ => CliError::failed(format!("cannot set up the connection: {error}")),
    })
}

/// The error for a credential plugin that cannot be run, usually because it is not installed.
fn unrunnable(plugin: &ExecConfig, cause: &std::io::Error) -> CliError {
    let command = plugin.command.as_deref().unwrap_or_default();
    let failure =
        CliError::failed(format!("cannot run the kubeconfig's credential plugin {command:?}: {cause}"));
    match plugin.install_hint.as_deref().map(str::trim).filter(|hint| !hint.is_empty()) {
        Some(hint) => failure.hint(hint),
        None => failure.hint("install it, or put it on the PATH"),
    }
}

/// The certificates in a file, as DER.
fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, CliError> {
    let wrong = |why: &str| CliError::usage(format!("--certificate-authority {}: {why}", path.display()));
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error.to_string()))?;
    let found: Result<Vec<_>, _> = found.map(|one| one.map(|one| one.to_vec())).collect();
    match found {
        Ok(found) if found.is_empty() => Err(wrong("it contains no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(wrong(&error.to_string())),
    }
}

/// Sets how the server's certificate is verified. A named CA takes precedence over the kubeconfig.
fn verify(config: &mut kube::Config, authority: Option<Vec<Vec<u8>>>, skip: bool) {
    if let Some(authority) = authority {
        (config.root_cert, config.root_cert_file) = (Some(authority), None);
        config.accept_invalid_certs = false;
    }
    config.accept_invalid_certs |= skip;
}

/// Whether a user has a client certificate.
fn has_certificate(user: &AuthInfo) -> bool {
    user.client_certificate.is_some() || user.client_certificate_data.is_some()
}

/// The address of a server as in kubectl: without a scheme it is https if there are TLS settings.
fn address(url: &http::Uri, secured: bool) -> Result<http::Uri, CliError> {
    let wrong = || {
        CliError::usage(format!("{url} is not the address of an API server")).hint(
            "give scheme, host and port, such as https://10.0.0.11:6443, with --server or in the kubeconfig",
        )
    };
    let mut parts = url.clone().into_parts();
    let scheme = parts.scheme.take().unwrap_or(if secured { Scheme::HTTPS } else { Scheme::HTTP });
    if parts.authority.is_none() || ![Scheme::HTTP, Scheme::HTTPS].contains(&scheme) {
        return Err(wrong());
    }
    parts.scheme = Some(scheme);
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    http::Uri::from_parts(parts).map_err(|_| wrong())
}

/// Removes servers that are named twice.
fn named(urls: &[http::Uri]) -> Result<Vec<http::Uri>, CliError> {
    let mut named: Vec<http::Uri> = Vec::new();
    for url in urls {
        if url.scheme().is_none() || url.host().is_none() {
            return Err(CliError::usage(format!("--api-server {url} is not a URL"))
                .hint("give scheme, host and port, such as https://10.0.0.11:6443"));
        }
        if !named.contains(url) {
            named.push(url.clone());
        }
    }
    Ok(named)
}

async fn config(flags: &Connection) -> Result<kube::Config, CliError> {
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let chosen = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    let set = std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty());
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path).map(Some),
        None if set => merged().map(Some),
        None if chosen => Kubeconfig::read().map(Some),
        None => absent(Kubeconfig::read()),
    };
    let kubeconfig = kubeconfig.map_err(|error| unreadable(&error, flags))?;
    // A kubeconfig without a current context is ignored, unless it was named explicitly and nothing else was.
    let asked = chosen || flags.server.is_none() && (set || flags.kubeconfig.is_some());
    let speaks = |kubeconfig: &Kubeconfig| {
        asked || kubeconfig.current_context.as_ref().is_some_and(|name| !name.is_empty())
    };
    let Some(kubeconfig) = kubeconfig.filter(speaks) else { return without(flags) };
    known_user(&kubeconfig, &options)?;
    let contexts = names(&kubeconfig.contexts, |context| &context.name);
    let clusters = names(&kubeconfig.clusters, |cluster| &cluster.name);
    kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| match error {
        KubeconfigError::LoadClusterOfContext(name) => {
            CliError::usage(format!("the kubeconfig has no cluster {name:?}"))
                .hint(format!("its clusters are: {clusters}"))
        }
        KubeconfigError::LoadContext(name) => {
            CliError::usage(format!("the kubeconfig has no context {name:?}"))
                .hint(format!("its contexts are: {contexts}"))
        }
        _ => CliError::usage(format!("cannot use the kubeconfig: {error}"))
            .hint(format!("its contexts are: {contexts}")),
    })
}

fn names<T>(all: &[T], name: impl Fn(&T) -> &String) -> String {
    all.iter().map(|one| name(one).as_str()).collect::<Vec<_>>().join(", ")
}

/// None if there is no kubeconfig file.
fn absent(read: Result<Kubeconfig, KubeconfigError>) -> Result<Option<Kubeconfig>, KubeconfigError> {
    match read {
        Err(KubeconfigError::FindPath) => Ok(None),
        Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// The cluster without a kubeconfig: the named server, else that of the pod. The credentials of a pod are only used for
/// its own cluster.
fn without(flags: &Connection) -> Result<kube::Config, CliError> {
    match &flags.server {
        Some(server) => Ok(kube::Config::new(server.clone())),
        None => kube::Config::incluster().map_err(|error| {
            CliError::failed(format!("no cluster to connect to: there is no kubeconfig, and {error}"))
                .hint("give --kubeconfig FILE or --server URL, set KUBECONFIG, or run inside a cluster")
        }),
    }
}

/// Merges the files of KUBECONFIG; missing files are ignored, unless all are missing.
fn merged() -> Result<Kubeconfig, KubeconfigError> {
    let paths = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let paths: Vec<PathBuf> =
        std::env::split_paths(&paths).filter(|path| !path.as_os_str().is_empty()).collect();
    let mut merged = Kubeconfig::default();
    let some = paths.iter().any(|path| path.exists());
    for path in paths.iter().filter(|path| !some || path.exists()) {
        merged = merged.merge(Kubeconfig::read_from(path)?)?;
    }
    Ok(merged)
}

/// Fails if the user of the context, or the named user, is not in the kubeconfig: the client would continue as an anonymous
/// user.
fn known_user(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Result<(), CliError> {
    let context = options.context.as_ref().or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|named| Some(&named.name) == context);
    let user = options.user.as_ref().or_else(|| context?.context.as_ref()?.user.as_ref());
    let known = |user: &&String| kubeconfig.auth_infos.iter().any(|named| named.name == **user);
    match user.filter(|user| !user.is_empty()) {
        Some(user) if !known(&user) => {
            let users = names(&kubeconfig.auth_infos, |named| &named.name);
            let of = match context.filter(|_| options.user.is_none()) {
                Some(context) => format!(", which its context {:?} names", context.name),
                None => String::new(),
            };
            Err(CliError::usage(format!("the kubeconfig has no user {user:?}{of}"))
                .hint(format!("its users are: {users}")))
        }
        _ => Ok(()),
    }
}

fn unreadable(error: &KubeconfigError, flags: &Connection) -> CliError {
    let path = match (error, &flags.kubeconfig) {
        (KubeconfigError::ReadConfig(_, path), _) | (_, Some(path)) => path.display().to_string(),
        _ => std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".to_owned()),
    };
    let why = match error {
        KubeconfigError::ReadConfig(cause, _) => cause.to_string(),
        _ => error.to_string(),
    };
    CliError::usage(format!("cannot read the kubeconfig {path}: {why}"))
        .hint("kubectl config view shows how kubectl reads it")
}

/// The error for a failed discovery, with what to do about it.
pub(crate) async fn unanswered(cluster: &Cluster, error: RequestError) -> CliError {
    let RequestError::Refused { code: 403, message } = &error else {
        return unreached(cluster.server(), &error);
    };
    let needed =
        [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];
    let mut missing = Vec::new();
    for (group, resource) in needed {
        let name = GroupResource::new(group, resource);
        missing.extend(access::missing(cluster.server(), &name, &["list"]).await.unwrap_or_default());
    }
    let failure = CliError::failed(format!("no permission: {message}"));
    match missing.is_empty() {
        // By default, every authenticated user may read discovery.
        true => failure
            .hint("check your credentials: kubectl auth whoami shows which user you are for the server"),
        false => failure.hint(Missing::grant(&missing)),
    }
}

/// The error for a server that did not answer, or whose error is not about the request, with what to do about it.
pub(crate) fn unreached(server: &Server, error: &RequestError) -> CliError {
    let server = server.name();
    match error {
        RequestError::NoAnswer(broken) if broken.untrusted => CliError::failed(format!(
            "cannot reach {server}: {broken}"
        ))
        .hint("give its CA certificates with --certificate-authority FILE, or add them to the kubeconfig"),
        RequestError::NoAnswer(broken) => CliError::failed(format!("cannot reach {server}: {broken}"))
            .hint("check the address, and that the server is up; kubectl cluster-info asks the same server"),
        RequestError::Refused { code: 401, .. } => {
            let text = format!("{server} does not accept these credentials");
            CliError::failed(explained(Reason::Unauthorized, &text))
                .hint("check them: kubectl auth whoami shows which user you are for the server")
        }
        _ => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            CliError::failed(format!("{server}: {error}{}", cause.unwrap_or_default()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_a_scheme_or_is_refused() {
        for (given, secured, expected) in [
            ("https://10.0.0.11:6443", false, Some("https://10.0.0.11:6443/")),
            ("http://localhost:8001/prefix", true, Some("http://localhost:8001/prefix")),
            ("127.0.0.1:1", true, Some("https://127.0.0.1:1/")),
            ("127.0.0.1:1", false, Some("http://127.0.0.1:1/")),
            ("localhost", true, Some("https://localhost/")),
            ("ftp://localhost", true, None),
            ("/prefix", true, None),
        ] {
            let url: http::Uri = given.parse().unwrap();
            let address = address(&url, secured).ok().map(|url| url.to_string());
            assert_eq!(address.as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn a_given_certificate_authority_overrides_the_kubeconfig() {
        let authority = vec![vec![1]];
        for (skipped, named, skip, expected) in [
            (false, None, false, false),
            (true, None, false, true),
            (false, None, true, true),
            (true, Some(&authority), false, false),
            (false, Some(&authority), false, false),
        ] {
            let mut config = kube::Config::new(http::Uri::from_static("https://localhost"));
            config.accept_invalid_certs = skipped;
            config.root_cert_file = Some(PathBuf::from("/other"));
            verify(&mut config, named.cloned(), skip);
            assert_eq!(config.accept_invalid_certs, expected, "{skipped} {named:?} {skip}");
            assert_eq!(config.root_cert.as_ref(), named);
            assert_eq!(config.root_cert_file.is_none(), named.is_some());
        }
    }

    #[test]
    fn an_unknown_user_is_refused() {
        let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({
            "current-context": "lab",
            "contexts": [
                {"name": "lab", "context": {"cluster": "lab", "user": "admin"}},
                {"name": "lost", "context": {"cluster": "lab", "user": "gone"}},
                {"name": "nobody", "context": {"cluster": "lab", "user": ""}},
            ],
            "users": [{"name": "admin", "user": {}}, {"name": "alice", "user": {}}],
        }))
        .unwrap();
        for (context, user, expected) in [
            (None, None, None),
            (None, Some("alice"), None),
            (None, Some("nope"), Some("the kubeconfig has no user \"nope\"")),
            (
                Some("lost"),
                None,
                Some("the kubeconfig has no user \"gone\", which its context \"lost\" names"),
            ),
            (Some("lost"), Some("alice"), None),
            (Some("nobody"), None, None),
            // A missing context is reported elsewhere.
            (Some("nowhere"), None, None),
        ] {
            let own = |name: Option<&str>| name.map(str::to_owned);
            let options = KubeConfigOptions { context: own(context), cluster: None, user: own(user) };
            let said = known_user(&kubeconfig, &options).err().map(|failure| failure.to_string());
            assert_eq!(said.as_deref(), expected, "{context:?} {user:?}");
        }
    }
}
