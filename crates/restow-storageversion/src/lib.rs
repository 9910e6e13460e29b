//! How an API server takes part in storage version migration: it says how it stores things before it stores any.
//!
//! It speaks to any Kubernetes API through a client: a server's own, or, for an aggregated API server, that of the
//! kube-apiserver behind which it stands.
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
//! let layer = gate.layer(); // goes around the handlers, which hold `gate.write()` while they store something
//! let ready = gate.readiness(); // answers `/readyz`
//! let identity = Identity::new(client.clone(), "widgets-apiserver", "apiserver-widgets-0");
//! let stop = tokio_util::sync::CancellationToken::new().into();
//! Participation { identity, client, gate, has_custom: false }.run(&stop).await?;
//! # drop((layer, ready)); Ok(())
//! # }
//! ```
//!
//! In the order of a server's life: an [`Identity`] makes it a member, [`registration`] writes down its versions, [`gate`]
//! lets writes in, [`readiness`] tells the world, [`participation`] does these in turn and again when need be; [`custom`]
//! changes the version of a custom resource under way, [`collector`] clears up after servers that have gone.
//!
//! What is decided is decided in `restow_core`: `storage_version`, `write_gate`, `request`.

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
