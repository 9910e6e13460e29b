//! Where stored keys and values are read from.

mod data_dir;
mod etcd_file;
mod live;
mod reader;

pub use data_dir::DataDir;
pub use etcd_file::EtcdFile;
pub use live::LiveEtcd;
pub use reader::{Source, SourceError};
