//! Server-side apply as pure functions.
//!
//! An API server keeps in `metadata.managedFields` who set which field. This crate computes it for every write, and
//! merges applied configurations: [`FieldManager`] is what a server calls. Below it are [`Writer`] (how a write changes
//! the managers), [`Managers`] (the entries), [`Set`] (their fields) and [`Schema`] (which lists have keys, and which
//! values are atomic). The rules are those of Kubernetes' structured-merge-diff and field managers.
//!
//! ```
//! use restow_apply::{FieldManager, Schema, Set, Unconverted, Versions};
//! use serde_json::{Value, json};
//!
//! /// A resource with one version.
//! struct Widgets(Schema);
//!
//! impl Versions for Widgets {
//!     fn schema(&self, api_version: &str) -> Option<&Schema> {
//!         (api_version == "example.com/v1").then_some(&self.0)
//!     }
//!     fn convert(&self, _: &Value, _: &str) -> Result<Value, Unconverted> {
//!         Err(Unconverted::Missing)
//!     }
//!     fn reset_fields(&self, _: &str) -> Option<&Set> {
//!         None
//!     }
//! }
//!
//! let widgets = Widgets(Schema::of_custom_resource(&json!({"type": "object", "properties": {
//!     "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
//! }}), false));
//! let manager = FieldManager {
//!     versions: &widgets,
//!     api_version: "example.com/v1",
//!     subresource: "",
//!     now: "2026-01-01T00:00:00Z",
//! };
//! let empty = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
//! let config = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 3}});
//! let made = manager.apply(&empty, &config, &empty, "alice", false).unwrap();
//! assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
//! ```

mod element;
mod field_manager;
mod fields_v1;
mod managers;
mod schema;
mod set;
mod typed;
mod updater;

pub use element::{Element, InvalidElement};
pub use field_manager::{ApplyError, FieldManager};
pub use fields_v1::InvalidFields;
pub use managers::{InvalidManagers, Managed, ManagerId, Managers, Operation};
pub use schema::{Field, List, ListKind, Map, Ref, Scalar, Schema, Type};
pub use set::{Path, Set};
pub use typed::TypeErrors;
pub use updater::{Conflict, Merged, Unconverted, UpdateError, Versions, Writer};
