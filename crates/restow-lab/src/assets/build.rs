//! Builds the programs from the Go modules under `lab/`, once for each content of those modules.

use std::{
    env, fs,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sha2::{Digest, Sha256};

use super::error::AssetsError;

/// The version of Kubernetes that the lab builds.
pub const KUBERNETES_VERSION: &str = "1.36.3";
/// The previous minor version, of which the lab builds only the API server, for a test that upgrades.
pub const FORMER_KUBERNETES_VERSION: &str = "1.35.4";
/// The version of etcd that the lab builds.
pub const ETCD_VERSION: &str = "3.6.16";

/// A Go module of this repository, embedded so that the library works from any folder.
struct Module {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
}

const ETCD: Module = Module {
    name: "etcd",
    files: &[
        ("go.mod", include_str!("../../../../lab/etcd/go.mod")),
        ("go.sum", include_str!("../../../../lab/etcd/go.sum")),
        ("main.go", include_str!("../../../../lab/etcd/main.go")),
    ],
};

const KUBERNETES: Module = Module {
    name: "kubernetes",
    files: &[
        ("go.mod", include_str!("../../../../lab/kubernetes/go.mod")),
        ("go.sum", include_str!("../../../../lab/kubernetes/go.sum")),
        ("tools.go", include_str!("../../../../lab/kubernetes/tools.go")),
    ],
};

const FORMER_KUBERNETES: Module = Module {
    name: "kubernetes-1.35",
    files: &[
        ("go.mod", include_str!("../../../../lab/kubernetes-1.35/go.mod")),
        ("go.sum", include_str!("../../../../lab/kubernetes-1.35/go.sum")),
        ("tools.go", include_str!("../../../../lab/kubernetes-1.35/tools.go")),
    ],
};

const CONVERSION_WEBHOOK: Module = Module {
    name: "conversion-webhook",
    files: &[
        ("go.mod", include_str!("../../../../lab/conversion-webhook/go.mod")),
        ("go.sum", include_str!("../../../../lab/conversion-webhook/go.sum")),
        ("main.go", include_str!("../../../../lab/conversion-webhook/main.go")),
    ],
};

/// Programs that are built together, and the folder in the cache that they are kept in.
pub(super) struct Set {
    kubernetes: &'static str,
    modules: &'static [&'static Module],
    programs: &'static [Program],
}

/// A whole control plane.
pub(super) const CURRENT: Set =
    Set { kubernetes: KUBERNETES_VERSION, modules: &[&ETCD, &KUBERNETES], programs: &PROGRAMS };

/// The API server of the previous minor version.
pub(super) const FORMER: Set = Set {
    kubernetes: FORMER_KUBERNETES_VERSION,
    modules: &[&FORMER_KUBERNETES],
    programs: &[Program {
        name: "kube-apiserver",
        module: &FORMER_KUBERNETES,
        package: KUBE_APISERVER,
        first_time: "about 5 minutes",
    }],
};

/// A conversion webhook with controller-runtime, to compare with. It is a client of any version of Kubernetes.
pub(super) const WEBHOOK: Set = Set {
    kubernetes: KUBERNETES_VERSION,
    modules: &[&CONVERSION_WEBHOOK],
    programs: &[Program {
        name: CONVERSION_WEBHOOK.name,
        module: &CONVERSION_WEBHOOK,
        package: ".",
        first_time: "about a minute",
    }],
};

const KUBE_APISERVER: &str = "k8s.io/kubernetes/cmd/kube-apiserver";

/// One program to build: its module, its package, and how long the first build takes.
struct Program {
    name: &'static str,
    module: &'static Module,
    package: &'static str,
    first_time: &'static str,
}

const PROGRAMS: [Program; 5] = [
    Program { name: "etcd", module: &ETCD, package: ".", first_time: "about a minute" },
    Program {
        name: "kube-apiserver",
        module: &KUBERNETES,
        package: KUBE_APISERVER,
        first_time: "about 5 minutes",
    },
    Program {
        name: "kube-controller-manager",
        module: &KUBERNETES,
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        first_time: "about 2 minutes",
    },
    Program {
        name: "kubectl",
        module: &KUBERNETES,
        package: "k8s.io/kubernetes/cmd/kubectl",
        first_time: "about a minute",
    },
    Program {
        name: "sample-apiserver",
        module: &KUBERNETES,
        package: "k8s.io/sample-apiserver",
        first_time: "about 20 seconds",
    },
];

/// The folder of the programs of a set under `cache`; builds them if no earlier run has.
pub(super) fn ensure_built(set: &Set, cache: &Path) -> Result<PathBuf, AssetsError> {
    let key = set.key();
    let done = cache.join(&key);
    if done.is_dir() {
        return Ok(done);
    }
    require_go()?;
    fs::create_dir_all(cache).map_err(io("making the folder"))?;
    let lock = File::create(cache.join(format!("{key}.lock"))).map_err(io("making the lock"))?;
    // Parallel test processes wait here for the one that builds; the lock is released when that one ends.
    lock.lock().map_err(io("waiting for the lock"))?;
    if !done.is_dir() {
        let scratch = tempfile::Builder::new()
            .prefix(".build-")
            .tempdir_in(cache)
            .map_err(io("making the build folder"))?;
        let bin = scratch.path().join("bin");
        set.build(scratch.path(), &bin)?;
        fs::rename(&bin, &done).map_err(io("moving the built programs"))?;
    }
    Ok(done)
}

impl Set {
    fn build(&self, scratch: &Path, bin: &Path) -> Result<(), AssetsError> {
        for module in self.modules {
            let dir = scratch.join(module.name);
            fs::create_dir_all(&dir).map_err(io("making the module's folder"))?;
            for (name, content) in module.files {
                fs::write(dir.join(name), content).map_err(io("writing the module"))?;
            }
        }
        for program in self.programs {
            let version = match program.module.name {
                name if name == ETCD.name => ETCD_VERSION,
                name if name == CONVERSION_WEBHOOK.name => "with controller-runtime",
                _ => self.kubernetes,
            };
            eprintln!("building {} {version} ({} the first time)", program.name, program.first_time);
            let failed = |reason| AssetsError::Build { program: program.name, reason };
            let output = Command::new("go")
                .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &self.ldflags(), "-o"])
                .arg(bin.join(program.name))
                .arg(program.package)
                .current_dir(scratch.join(program.module.name))
                .env("CGO_ENABLED", "0")
                .env("GOWORK", "off")
                .env_remove("GOFLAGS")
                .stdin(Stdio::null())
                .output()
                .map_err(|error| failed(error.to_string()))?;
            if !output.status.success() {
                let stderr = String::from_utf8_lossy(&output.stderr);
                return Err(failed(format!("{}\n{}", output.status, stderr.trim_end())));
            }
        }
        Ok(())
    }

    /// The linker flags; those for Kubernetes name no symbol of etcd, so the same flags work for both.
    fn ldflags(&self) -> String {
        let version = self.kubernetes;
        let mut parts = version.split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let package = "k8s.io/component-base/version";
        format!(
            "-s -w -X {package}.gitMajor={major} -X {package}.gitMinor={minor} -X {package}.gitVersion=v{version}"
        )
    }

    /// The name of the folder for these versions, module files and machine.
    fn key(&self) -> String {
        let mut hash = Sha256::new();
        for text in [env::consts::OS, env::consts::ARCH, &self.ldflags()] {
            hash.update(text);
        }
        for (name, content) in self.modules.iter().flat_map(|module| module.files) {
            hash.update(name);
            hash.update(content);
        }
        let digest = format!("{:x}", hash.finalize());
        if let [module] = self.modules
            && module.name == CONVERSION_WEBHOOK.name
        {
            return format!("{}-{}", module.name, &digest[..12]);
        }
        let has_etcd = self.modules.iter().any(|module| module.name == ETCD.name);
        let etcd = if has_etcd { format!("-etcd-{ETCD_VERSION}") } else { String::new() };
        format!("kubernetes-{}{etcd}-{}", self.kubernetes, &digest[..12])
    }
}

fn require_go() -> Result<(), AssetsError> {
    let status = Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(AssetsError::Unavailable),
    }
}

fn io(step: &'static str) -> impl Fn(io::Error) -> AssetsError {
    move |source| AssetsError::Io { step, source }
}
