//! `restow controller`: runs the controllers.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use restow_controller::run::{self, Options};
use restow_controller::settings::{Backend, ControllerSettings, Controllers};
use restow_core::agreement::encryption::Pattern;
use restow_core::resource::name::GroupResource;
use restow_lease::election::{self, Election};
use restow_migrate::migration;
use restow_migrate::rewrite::WriteOptions;
use tokio::net::TcpListener;

use crate::args::{Connection, DEFAULT_NAMESPACE, Pace, duration, period};
use crate::connect::connect;
use crate::error::CliError;
use crate::logging::LogFormat;
use crate::signals::stop_on_signals;

/// The file with the namespace of a pod.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Run the controllers: they create migrations when storage versions or encryption keys change, and run them
#[derive(Args)]
#[command(after_help = "Controllers:
  migrator    runs StorageVersionMigrations (migration.k8s.io/v1alpha1)
  trigger     keeps a StorageState for each resource, and creates a migration when its version changes
  encryption  the same when all API servers have loaded another encryption configuration
  pruner      reduces a CRD's storedVersions after a verified migration
  conversion  carries out Conversions (restow.dev/v1alpha1); only if named: it changes CRDs and reads objects

Examples:
  restow controller --kubeconfig F --leader-elect=false     on your own machine
  restow controller --controllers migrator                  only the migrations that you create
  restow controller --controllers migrator,pruner,conversion        and the Conversions
  restow controller --backend in-tree                       Kubernetes rewrites, restow verifies
  restow controller --adopt in-tree                         serve storagemigration.k8s.io objects")]
pub(crate) struct Controller {
    /// The controllers to run
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME", default_values_t = ALL)]
    controllers: Vec<Name>,
    /// Whether replicas elect a leader with a Lease
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: bool,
    /// The namespace of that Lease [default: the pod's own, else restow-system]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,
    /// How long a leader may be silent before another replica takes over
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "15s")]
    lease_duration: Duration,
    /// How often to check all storage versions, besides watching
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "10m")]
    poll_interval: Duration,
    /// The address that serves /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How many migrations run at the same time; never two of one resource
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    concurrent_migrations: u16,
    /// Watch the storage versions of only these resources, such as secrets,widgets.example.com [default: all]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE")]
    resources: Vec<String>,
    /// What your encryption configuration covers, such as secrets,configmaps or *.*, or none: these are verified
    /// only if every API server reports the same configuration [default: secrets, if reported]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE")]
    encryption_resources: Vec<String>,
    /// Quarantine objects with managedFields of versions that are no longer served, instead of moving those entries
    #[arg(long)]
    keep_managed_fields: bool,
    /// Who rewrites objects: restow, or Kubernetes' own controller (in-tree); restow verifies either way
    #[arg(long, value_enum, default_value_t = BackendName::Restow, value_name = "WHO")]
    backend: BackendName,
    /// Serve migrations of this API too: in-tree, storagemigration.k8s.io where its own controller does not run
    #[arg(long, value_enum, value_name = "API", conflicts_with = "backend")]
    adopt: Option<Adopted>,
    /// The log format
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    log_format: LogFormat,
    #[command(flatten)]
    pace: Pace,
}

/// A controller, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Name {
    Migrator,
    /// Also checks whether the API servers agree.
    #[value(alias = "agreement")]
    Trigger,
    Encryption,
    Pruner,
    /// It changes the spec of CRDs and reads the content of objects, so it must be asked for.
    Conversion,
}

/// The controllers that run by default.
pub(crate) const ALL: [Name; 4] = [Name::Migrator, Name::Trigger, Name::Encryption, Name::Pruner];

/// Who rewrites objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    Restow,
    InTree,
}

/// Whose migrations are served besides restow's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Adopted {
    InTree,
}

impl Controller {
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    fn controllers(&self) -> Controllers {
        let runs = |name| self.controllers.contains(&name);
        Controllers {
            migrator: runs(Name::Migrator),
            trigger: runs(Name::Trigger),
            encryption: runs(Name::Encryption),
            pruner: runs(Name::Pruner),
            conversion: runs(Name::Conversion),
        }
    }

    fn settings(&self) -> ControllerSettings {
        ControllerSettings {
            migration: migration::MigrationSettings {
                write_options: WriteOptions {
                    dry_run: false,
                    repair_managed_fields: !self.keep_managed_fields,
                },
                ..self.pace.settings()
            },
            concurrent_migrations: usize::from(self.concurrent_migrations),
            poll: self.poll_interval,
            resources: (!self.resources.is_empty()).then(|| named(&self.resources)),
            // Without that controller, keys are not watched and metrics need not be readable.
            encryption_resources: if !self.controllers.contains(&Name::Encryption) {
                Some(Vec::new())
            } else if self.encryption_resources.is_empty() {
                None
            } else {
                Some(self.encryption_resources.iter().map(|name| Pattern::new(name.trim())).collect())
            },
            backend: match self.backend {
                BackendName::Restow => Backend::Restow,
                BackendName::InTree => Backend::InTree,
            },
            adopt: self.adopt.is_some(),
            only_conversion: None,
        }
    }

    fn namespace(&self) -> String {
        self.leader_election_namespace.clone().unwrap_or_else(own_namespace)
    }
}

/// The namespace of this pod, or the one that restow is installed in by default.
pub(crate) fn own_namespace() -> String {
    let own = std::fs::read_to_string(NAMESPACE_FILE).ok().map(|name| name.trim().to_owned());
    own.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned())
}

fn named(names: &[String]) -> Vec<GroupResource> {
    names.iter().map(|name| GroupResource::parse(name)).collect()
}

pub(crate) async fn run(connection: &Connection, flags: &Controller) -> Result<u8, CliError> {
    if flags.lease_duration < Duration::from_secs(1) {
        return Err(CliError::usage("--lease-duration must be at least 1s"));
    }
    let cluster = connect(connection).await?;
    let listener = TcpListener::bind(flags.listen).await.map_err(|error| {
        CliError::failed(format!("cannot listen on {}: {error}", flags.listen))
            .hint("use --listen 127.0.0.1:0 to take any free port")
    })?;
    let address = listener.local_addr().map_err(CliError::failed)?;
    tracing::info!(%address, "serving /healthz, /readyz and /metrics");
    let identity = election::identity();
    let election = flags.leader_elect.then(|| Election {
        client: cluster.server().client().clone(),
        namespace: flags.namespace(),
        name: restow_api::MANAGER.to_owned(),
        identity: identity.clone(),
        duration: flags.lease_duration,
        renew_every: flags.lease_duration / 3,
    });
    let stop = stop_on_signals(None).map_err(CliError::failed)?;
    let options = Options {
        cluster,
        controllers: flags.controllers(),
        settings: flags.settings(),
        bounds: flags.pace.bounds(),
        identity,
        election,
        listener: Some(listener),
    };
    run::run(options, stop).await;
    Ok(0)
}
