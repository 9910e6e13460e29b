//! The StorageVersion protocol for API servers: a server registers how it stores objects before it stores any.
//!
//! The StorageVersions are in any Kubernetes API that a client reaches: in the server itself, or for an aggregated API
//! server in the kube-apiserver in front of it.
//!
//! ```no_run
//! # use restow_core::protocol::storage_version::Versions;
//! # use restow_core::resource::inventory::Origin;
//! # use restow_core::resource::name::{GroupResource, GroupVersion};
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use restow_storageversion::{Gate, Identity, Participation, Resource};
//!
//! let (v1, v2) = (GroupVersion::parse("example.com/v1"), GroupVersion::parse("example.com/v2"));
//! let versions = Versions::new(&v2, &[v1.clone(), v2.clone()], &[v1, v2.clone()])?;
//! let widgets = Resource { name: GroupResource::parse("widgets.example.com"), versions };
//! let gate = Gate::closed(vec![widgets], |_| Origin::BuiltIn);
//! let layer = gate.layer(); // wraps the handlers, which hold `gate.write()` while they store an object
//! let ready = gate.readiness(); // for `/readyz`
//! let identity = Identity::new(client.clone(), "widgets-apiserver", "apiserver-widgets-0");
//! let stop = tokio_util::sync::CancellationToken::new().into();
//! Participation { identity, client, gate, has_custom: false }.run(&stop).await?;
//! # drop((layer, ready)); Ok(())
//! # }
//! ```
//!
//! In the order in which a server uses them: an [`Identity`] makes it a member, [`registration`] writes its versions into
//! StorageVersions, the [`gate`] lets writes in, and [`readiness`] reports that. [`participation`] does these steps, and
//! repeats them when the Lease is lost. [`custom`] changes the version of a custom resource while the server runs, and
//! [`collector`] removes entries of servers that are gone.
//!
//! The decisions are in `restow_core::protocol`.

pub mod collector;
pub mod custom;
pub mod gate;
mod membership;
pub mod participation;
pub mod readiness;
pub mod registration;

pub use collector::{Collector, Scope};
pub use custom::CustomResource;
pub use gate::Gate;
pub use participation::Participation;
pub use readiness::Readiness;
pub use registration::{Registered, Resource, Unregistered, drop_unhandled, register};
pub use restow_lease::{Identity, Tenure};
