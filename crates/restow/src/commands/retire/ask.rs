//! Asks a person before a step.

use std::io::{IsTerminal as _, Write as _};

use tokio::sync::oneshot;

/// Whether there is somebody to ask.
pub(super) fn can_ask() -> bool {
    std::io::stdin().is_terminal()
}

/// Asks, and waits for the answer; everything but yes means no.
pub(super) async fn ask(question: &str) -> bool {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{question} [y/N] ").and_then(|()| stderr.flush());
    let (answer, answered) = oneshot::channel();
    // A thread of its own, because a read of stdin cannot be cancelled and must not delay the end of the program.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        let _ = answer.send(read.is_ok() && is_yes(&line));
    });
    answered.await.unwrap_or(false)
}

fn is_yes(line: &str) -> bool {
    ["y", "yes"].contains(&line.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (line, expected) in
            [("y\n", true), ("Yes\r\n", true), ("\n", false), ("", false), ("yep\n", false)]
        {
            assert_eq!(is_yes(line), expected, "{line:?}");
        }
    }
}
