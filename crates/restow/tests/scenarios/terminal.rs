//! A pseudo-terminal for restow, and what it shows.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::{Child, Command};

use crate::support::wait;

/// A program on a terminal of its own.
pub(crate) struct OnTerminal {
    pub(crate) child: Child,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl OnTerminal {
    /// Starts a program with its stdout on a terminal of this size.
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let (ours, theirs) = pair(columns, rows);
        let child = command.stdout(Stdio::from(theirs)).spawn().unwrap();
        // It holds the other end too, and reading would not end before it lets go.
        drop(command);
        let written = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&written);
        let reader = std::thread::spawn(move || {
            let mut ours = File::from(ours);
            let mut buffer = [0; 4096];
            // The end of a terminal is an error.
            while let Ok(count @ 1..) = ours.read(&mut buffer) {
                kept.lock().unwrap().extend_from_slice(&buffer[..count]);
            }
        });
        Self { child, written, reader: Some(reader) }
    }

    /// All that was written so far.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).replace("\r\n", "\n")
    }

    /// Waits until a text was written.
    pub(crate) async fn shows(&self, text: &str) {
        wait(&format!("the terminal to show {text:?}"), || async { self.written().contains(text) }).await;
    }

    /// Its exit code, and all that was written.
    pub(crate) async fn end(mut self) -> (i32, String) {
        let code = self.child.wait().await.unwrap().code().unwrap_or(-1);
        let reader = self.reader.take().unwrap();
        tokio::task::spawn_blocking(move || reader.join().unwrap()).await.unwrap();
        (code, self.written())
    }
}

/// As if somebody had pressed ctrl-C.
pub(crate) fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id().expect("it runs")).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
}

/// Both ends of a new terminal: the one to read from first.
pub(crate) fn pair(columns: u16, rows: u16) -> (OwnedFd, OwnedFd) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let theirs = open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(theirs.as_fd(), size).unwrap();
    (ours, theirs)
}
