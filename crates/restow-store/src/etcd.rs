//! A store in etcd with etcd's keys and revisions. Several servers can share it, including a kube-apiserver.

mod client;
mod compaction;
mod entry;
mod messages;
mod pages;
mod settings;
mod store;
mod watch;

pub use pages::{Page, PageRange};
pub use settings::{EtcdError, EtcdSettings, Identity};
pub use store::EtcdStore;
