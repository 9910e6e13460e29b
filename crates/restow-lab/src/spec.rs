//! What a cluster is to be made of.

use std::path::{Path, PathBuf};

use crate::Encryption;

/// A cluster to start: by default one API server on one etcd.
#[derive(Clone, Debug)]
pub struct ClusterSpec {
    pub(crate) servers: Vec<ServerSpec>,
    pub(crate) storage_version_api: bool,
    pub(crate) storage_migration_api: bool,
    pub(crate) encryption: Option<Encryption>,
    pub(crate) controllers: Vec<String>,
    pub(crate) front_proxy: bool,
    pub(crate) aggregated: bool,
    pub(crate) users: Vec<(String, Vec<String>)>,
    pub(crate) durable: bool,
}

impl Default for ClusterSpec {
    fn default() -> Self {
        Self::new()
    }
}

impl ClusterSpec {
    /// One API server, and the users `admin` (in `system:masters`) and `alice` (who may nothing).
    pub fn new() -> Self {
        Self {
            servers: vec![ServerSpec::default()],
            storage_version_api: false,
            storage_migration_api: false,
            encryption: None,
            controllers: Vec::new(),
            front_proxy: false,
            aggregated: false,
            users: vec![
                ("admin".to_owned(), vec!["system:masters".to_owned()]),
                ("alice".to_owned(), Vec::new()),
            ],
            durable: false,
        }
    }

    /// This many API servers on the one etcd, each with an identity of its own.
    pub fn servers(mut self, count: usize) -> Self {
        self.servers.resize_with(count.max(1), ServerSpec::default);
        self
    }

    /// No API server: just an etcd.
    pub fn store_only(mut self) -> Self {
        self.servers.clear();
        self
    }

    /// Replaces the options of one server, adding servers up to it.
    pub fn server(mut self, index: usize, server: ServerSpec) -> Self {
        let count = self.servers.len().max(index + 1);
        self.servers.resize_with(count, ServerSpec::default);
        self.servers[index] = server;
        self
    }

    /// Serves `internal.apiserver.k8s.io` and has each server publish its storage versions.
    pub fn storage_version_api(mut self) -> Self {
        self.storage_version_api = true;
        self
    }

    /// Serves `storagemigration.k8s.io`, the API of the built-in migrator.
    pub fn storage_migration_api(mut self) -> Self {
        self.storage_migration_api = true;
        self
    }

    /// Starts every server with this encryption configuration, to be changed under it later.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = Some(encryption);
        self
    }

    /// Adds a controller manager that runs just these controllers.
    pub fn controller_manager(mut self, controllers: &[&str]) -> Self {
        self.controllers = controllers.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Adds the built-in migrator: its API and a controller manager with what it needs.
    pub fn built_in_migrator(self) -> Self {
        self.storage_migration_api()
            .controller_manager(&["storage-version-migrator-controller", "garbage-collector-controller"])
    }

    /// Gives the API servers the certificate that aggregated API servers recognise them by: `front-proxy-client.crt`
    /// and `.key` in the cluster's folder.
    pub fn front_proxy(mut self) -> Self {
        self.front_proxy = true;
        self
    }

    /// Adds an aggregated API server, Kubernetes' own example: it serves `wardle.example.com` v1beta1 and v1alpha1
    /// and stores v1alpha1, as JSON, below `/registry/wardle.example.com/`.
    pub fn aggregated(mut self) -> Self {
        self.aggregated = true;
        self.front_proxy()
    }

    /// Has etcd wait for the disk at each write, as in production. Tests do without, for speed.
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// Adds a user with a token of their own.
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        self.users.push((name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect()));
        self
    }
}

/// One API server's own options.
#[derive(Clone, Debug, Default)]
pub struct ServerSpec {
    pub(crate) program: Option<PathBuf>,
    pub(crate) emulated_version: Option<String>,
    pub(crate) feature_gates: Vec<(String, bool)>,
    pub(crate) flags: Vec<(String, String)>,
}

impl ServerSpec {
    /// A server with nothing of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs this kube-apiserver instead of the lab's.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    /// Has the server behave as this older minor version, as in the midst of an upgrade.
    pub fn emulated_version(mut self, version: &str) -> Self {
        self.emulated_version = Some(version.to_owned());
        self
    }

    /// Turns a feature gate on or off.
    pub fn feature_gate(mut self, name: &str, on: bool) -> Self {
        self.feature_gates.push((name.to_owned(), on));
        self
    }

    /// Sets any other flag, over what the lab would set.
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        self.flags.push((name.to_owned(), value.to_owned()));
        self
    }
}
