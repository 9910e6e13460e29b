//! The programs that the lab runs: from `KUBEBUILDER_ASSETS`, else built once with Go into a cache outside the tree.

mod build;
mod error;

use std::{env, fmt, path::PathBuf};

pub use build::{ETCD_VERSION, FORMER_KUBERNETES_VERSION, KUBERNETES_VERSION};
pub use error::AssetsError;

/// The programs of one control plane.
#[derive(Clone, Debug)]
pub struct Assets {
    /// The folder that holds the programs.
    pub dir: PathBuf,
    /// The etcd server.
    pub etcd: PathBuf,
    /// The API server.
    pub kube_apiserver: PathBuf,
    /// The controller manager, which `KUBEBUILDER_ASSETS` may lack.
    pub kube_controller_manager: Option<PathBuf>,
    /// The command line client, which `KUBEBUILDER_ASSETS` may lack.
    pub kubectl: Option<PathBuf>,
    /// The aggregated API server of Kubernetes' own examples, which `KUBEBUILDER_ASSETS` may lack.
    pub sample_apiserver: Option<PathBuf>,
}

impl Assets {
    /// Finds the programs, and builds them if needed, which takes minutes the first time.
    pub fn find() -> Result<Self, AssetsError> {
        match env::var_os("KUBEBUILDER_ASSETS").filter(|dir| !dir.is_empty()) {
            Some(dir) => Self::in_dir(PathBuf::from(dir)),
            None => Self::in_dir(build::ensure_built(&build::CURRENT, &cache_dir()?)?),
        }
    }

    /// Uses the programs in a folder.
    pub fn in_dir(dir: PathBuf) -> Result<Self, AssetsError> {
        let optional = |program: &str| Some(dir.join(program)).filter(|path| path.is_file());
        let required = |program: &'static str| {
            optional(program)
                .ok_or_else(|| AssetsError::Incomplete { dir: dir.display().to_string(), program })
        };
        Ok(Self {
            etcd: required("etcd")?,
            kube_apiserver: required("kube-apiserver")?,
            kube_controller_manager: optional("kube-controller-manager"),
            kubectl: optional("kubectl"),
            sample_apiserver: optional("sample-apiserver"),
            dir: dir.clone(),
        })
    }
}

/// Finds the API server of the previous minor version, and builds it if needed, whatever `KUBEBUILDER_ASSETS` has.
pub fn former_apiserver() -> Result<PathBuf, AssetsError> {
    Ok(build::ensure_built(&build::FORMER, &cache_dir()?)?.join("kube-apiserver"))
}

/// Finds the conversion webhook that is written in Go with controller-runtime, and builds it if needed.
pub fn conversion_webhook() -> Result<PathBuf, AssetsError> {
    Ok(build::ensure_built(&build::WEBHOOK, &cache_dir()?)?.join("conversion-webhook"))
}

/// The folder for everything that the lab keeps between runs, outside any work tree.
pub fn cache_dir() -> Result<PathBuf, AssetsError> {
    let var = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    var("RESTOW_LAB_CACHE")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("restow/lab")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache/restow/lab")))
        .ok_or(AssetsError::NoCache)
}

/// The programs for a test, or a message that it did not run; with `CI=true` missing programs are a failure.
pub fn or_skip(test: &str) -> Option<Assets> {
    match Assets::find() {
        Ok(assets) => Some(assets),
        Err(error @ AssetsError::Unavailable) => not_run(test, &error),
        Err(error) => fail(test, &error),
    }
}

/// The same for a test that also needs the API server of the previous minor version.
pub fn former_or_skip(test: &str) -> Option<(Assets, PathBuf)> {
    let assets = or_skip(test)?;
    match former_apiserver() {
        Ok(former) => Some((assets, former)),
        Err(error @ AssetsError::Unavailable) => not_run(test, &error),
        Err(error) => fail(test, &error),
    }
}

/// The same for a test that also needs the aggregated API server.
pub fn aggregated_or_skip(test: &str) -> Option<Assets> {
    let assets = or_skip(test)?;
    if assets.sample_apiserver.is_some() {
        return Some(assets);
    }
    let dir = assets.dir.display().to_string();
    not_run(test, &AssetsError::Incomplete { dir, program: "sample-apiserver" })
}

/// The same for a test that also needs kubectl.
pub fn kubectl_or_skip(test: &str) -> Option<(Assets, PathBuf)> {
    let assets = or_skip(test)?;
    match assets.kubectl.clone() {
        Some(kubectl) => Some((assets, kubectl)),
        None => {
            let dir = assets.dir.display().to_string();
            not_run(test, &AssetsError::Incomplete { dir, program: "kubectl" })
        }
    }
}

fn not_run<T>(test: &str, error: &AssetsError) -> Option<T> {
    if env::var("CI").as_deref() == Ok("true") {
        fail(test, error);
    }
    eprintln!("NOT RUN: {test} needs the real lab: {error}");
    None
}

#[allow(clippy::panic)] // a broken or, in CI, a missing lab must fail the test that asked for it
fn fail(test: &str, error: &dyn fmt::Display) -> ! {
    panic!("{test} needs the real lab: {error}")
}
