//! The engine: carries out through a client what `restow-core` decides.
//!
//! In the order in which a resource meets them:
//!
//! | module | what it does |
//! |---|---|
//! | [`client`] | plain requests to one API server, the permissions they need, and the pace of writes |
//! | [`cluster`] | finds resources, and whether all API servers agree on how they are stored |
//! | [`list`] | lists the metadata of a resource's objects, page by page |
//! | [`rewrite`] | sends each object a patch that changes nothing, and decides its outcome |
//! | [`migration`] | runs one migration from its first page to its proof |
//! | [`prune`] | removes versions from a CRD's `status.storedVersions` afterwards |
//! | [`owners`] | counts who owns fields through one version |
//! | [`definition`] | reads a CRD as a whole, and changes its versions |
//!
//! ```no_run
//! use restow_migrate::cluster::{Cluster, Trust};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = Cluster::connect(kube::Config::infer().await?, Trust::Members)?;
//! for resource in cluster.inventory(false).await?.resources {
//!     println!("{} is stored as {}", resource.name, resource.storage_version_name());
//! }
//! # Ok(())
//! # }
//! ```

pub mod client;
pub mod cluster;
pub mod definition;
pub mod list;
pub mod migration;
pub mod owners;
pub mod prune;
pub mod rewrite;
