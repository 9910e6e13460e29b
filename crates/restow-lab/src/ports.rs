//! Loopback ports for servers that must get the same port after a restart.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::Path,
    process,
    sync::atomic::{AtomicU16, Ordering},
};

use anyhow::{Context, Result, bail};

/// Below the ephemeral range of Linux, so that no outgoing connection takes a port while its server is down.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that no other cluster of this user uses, until this value is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    _claim: File,
}

impl Port {
    /// Claims a free port with a file lock in `dir`, which is released when the process ends.
    pub(crate) fn claim(dir: &Path) -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        fs::create_dir_all(dir).context("making the folder of port claims")?;
        // Processes start at different places to avoid collisions.
        let start = (process::id() % u32::from(COUNT)) as u16;
        for _ in 0..COUNT {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let number = FIRST + ((u32::from(start) * 7 + u32::from(step)) % u32::from(COUNT)) as u16;
            let claim = File::create(dir.join(number.to_string())).context("making a port claim")?;
            if claim.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Ok(Self { number, _claim: claim });
            }
        }
        bail!("no free loopback port between {FIRST} and {}", FIRST + COUNT)
    }
}
