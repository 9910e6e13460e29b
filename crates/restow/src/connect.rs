//! From connection flags to a cluster.

use kube::config::{KubeConfigOptions, Kubeconfig};
use restow_migrate::cluster::{Cluster, Trust};
use restow_migrate::server::{RequestError, Server};

use crate::args::Connection;
use crate::failure::Failure;

/// Connects; nothing is sent yet.
pub(crate) async fn connect(flags: &Connection) -> Result<Cluster, Failure> {
    let mut config = config(flags).await?;
    if let Some(server) = &flags.server {
        config.cluster_url = server.clone();
    }
    config.accept_invalid_certs |= flags.insecure_skip_tls_verify;
    if let Some(user) = &flags.as_user {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = (!flags.as_group.is_empty()).then(|| flags.as_group.clone());
    }
    let trust = if flags.assume_single_server {
        Trust::Single
    } else if let Some(period) = flags.sample_servers {
        Trust::Sampled(period)
    } else if !flags.api_server.is_empty() {
        Trust::Named(named(&flags.api_server)?)
    } else {
        Trust::Members
    };
    Cluster::connect(config, trust)
        .map_err(|error| Failure::failed(format!("cannot set the connection up: {error}")))
}

/// Each server counts once, however often it is named.
fn named(urls: &[http::Uri]) -> Result<Vec<http::Uri>, Failure> {
    let mut named: Vec<http::Uri> = Vec::new();
    for url in urls {
        if url.scheme().is_none() || url.host().is_none() {
            return Err(Failure::usage(format!("--api-server {url} is no URL"))
                .hint("give scheme, host and port, such as https://10.0.0.11:6443"));
        }
        if !named.contains(url) {
            named.push(url.clone());
        }
    }
    Ok(named)
}

async fn config(flags: &Connection) -> Result<kube::Config, Failure> {
    let options = KubeConfigOptions {
        context: flags.context.clone(),
        cluster: flags.cluster.clone(),
        user: flags.user.clone(),
    };
    let chosen = options.context.is_some() || options.cluster.is_some() || options.user.is_some();
    let kubeconfig = match &flags.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None if chosen || std::env::var_os("KUBECONFIG").is_some() => Kubeconfig::read(),
        None => {
            return kube::Config::infer().await.map_err(|error| {
                Failure::failed(format!("no cluster to connect to: {error}"))
                    .hint("give --kubeconfig FILE, set KUBECONFIG, or run inside a cluster")
            });
        }
    };
    let kubeconfig = kubeconfig.map_err(|error| unreadable(&error, flags))?;
    let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| {
        Failure::usage(format!("the kubeconfig cannot be used: {error}"))
            .hint(format!("its contexts are: {}", contexts.join(", ")))
    })
}

fn unreadable(error: &kube::config::KubeconfigError, flags: &Connection) -> Failure {
    let path = match &flags.kubeconfig {
        Some(path) => path.display().to_string(),
        None => std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".to_owned()),
    };
    Failure::usage(format!("the kubeconfig {path} cannot be read: {error}"))
        .hint("kubectl config view shows what kubectl makes of it")
}

/// Says what it means that the cluster could not be asked for its resources.
pub(crate) async fn unanswered(cluster: &Cluster, error: RequestError) -> Failure {
    let RequestError::Refused { code: 403, message } = &error else {
        return unreached(cluster.server(), &error);
    };
    let needed =
        [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];
    let mut rules = Vec::new();
    for (group, resource) in needed {
        let name = restow_core::resource::GroupResource::new(group, resource);
        let missing = restow_migrate::access::missing(cluster.server(), &name, &["list"]).await;
        rules.extend(missing.unwrap_or_default().iter().map(restow_migrate::access::Missing::rule));
    }
    Failure::failed(format!("no permission: {message}"))
        .hint(format!("a ClusterRole with this would grant it: rules: [{}]", rules.join(", ")))
}

/// Says what it means that a server gave no answer, or an error that has nothing to do with what was asked for.
pub(crate) fn unreached(server: &Server, error: &RequestError) -> Failure {
    let server = server.name();
    match error {
        RequestError::Broken(broken) => Failure::failed(format!("cannot reach {server}: {broken}"))
            .hint("is the address right and the server up? kubectl cluster-info asks the same server"),
        RequestError::Refused { code: 401, .. } => {
            Failure::failed(format!("{server} does not accept these credentials"))
                .hint("kubectl auth whoami shows who you are to it")
        }
        _ => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
            Failure::failed(format!("{server}: {error}{}", cause.unwrap_or_default()))
        }
    }
}
