//! What can be wrong with a bbolt file.

use std::io;

/// Why a bbolt file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BoltError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    /// It does not begin as a bbolt file does.
    #[error("it is not a database of etcd")]
    Foreign,
    /// One of the two pages that everything starts from is damaged.
    #[error("its meta page {page} is damaged: {problem}")]
    Meta {
        /// 0 or 1.
        page: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// It ends before its last page, or in the middle of one.
    #[error("it is cut short, or it is not a database of etcd: it has {has} bytes and needs {needs}")]
    Short {
        /// Its size in bytes.
        has: u64,
        /// The size that its meta page asks for.
        needs: u64,
    },
    /// A page is damaged.
    #[error("its page {page} is damaged: {problem}")]
    Page {
        /// The number of the page.
        page: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// A bucket is damaged.
    #[error("its bucket {bucket:?} is damaged: {problem}")]
    Bucket {
        /// The name of the bucket.
        bucket: String,
        /// What is wrong.
        problem: &'static str,
    },
}
