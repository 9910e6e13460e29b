//! What the demo shows, step by step.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use restow_clock::Instant;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::commands::demo::boats;
use crate::commands::demo::stage::{Stage, request};
use crate::commands::demo::users::Users;
use crate::error::CliError;
use crate::output::show;
use crate::program::program;
use crate::render::table::{width, wrap};
use crate::render::text::{count, time};
use crate::signals;

/// How long a step may take that should take a moment.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a step is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many writes the restarted server refuses before its storage is fast again.
const ENOUGH: u64 = 30;
/// The most objects per second of the migration that is killed, so that it does not end too early.
const VISIBLE: &str = "1500";

/// The demo, its servers and its users.
pub(crate) struct Story {
    stage: Stage,
    users: Users,
    objects: u64,
    step: u32,
}

impl Story {
    /// Starts two servers, creates a resource and its objects, and starts the users.
    pub(crate) async fn begin(objects: u64, dir: Option<&Path>) -> Result<Self, CliError> {
        show!(
            "\x1b[1mrestow demo\x1b[0m: two API servers, one store, {} boats, and users who never stop.",
            count(objects)
        );
        headline(1, "Two API servers start on one store");
        let stage = Stage::set(dir).await?;
        for server in stage.servers() {
            say(&format!("{}  {}  ready after {} ms", server.id, server.url, server.ready_after.as_millis()));
        }
        let began = Instant::now();
        let client = &stage.clients()[0];
        request(client, "POST", boats::DEFINITIONS, &boats::definition("v1")).await?;
        until("boats to be served", async || {
            Ok(request(client, "GET", &boats::all("v1"), &Value::Null).await.is_ok())
        })
        .await?;
        stream::iter(0..objects)
            .map(|number| async move {
                let boat = boats::boat("v1", &boats::name(number), number);
                request(client, "POST", &boats::all("v1"), &boat).await
            })
            .buffer_unordered(32)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        say(&format!(
            "{} boats were created in {}, stored as {}/v1. Four users start to write through both servers.",
            count(objects),
            time(began.elapsed()),
            boats::GROUP
        ));
        let users = Users::start(stage.clients());
        Ok(Self { stage, users, objects, step: 1 })
    }

    /// Runs all steps.
    pub(crate) async fn run(mut self, keep: bool) -> Result<u8, CliError> {
        self.restart().await?;
        self.disagree().await?;
        self.agree().await?;
        self.crash().await?;
        self.resume().await?;
        self.audit(keep).await
    }

    fn next(&mut self, title: &str) {
        self.step += 1;
        headline(self.step, title);
    }

    /// A server restarts while its storage is slow: it refuses writes until it has registered.
    async fn restart(&mut self) -> Result<(), CliError> {
        self.next("api-2 restarts, and its storage is slow");
        let before = self.users.tally().turned_away.load(Ordering::Relaxed);
        self.stage.holds().registrations(true);
        let starting = self.stage.restart_second().await?;
        until("writes to be turned away", async || {
            Ok(self.users.tally().turned_away.load(Ordering::Relaxed) >= before + ENOUGH)
        })
        .await?;
        let ready = self.stage.is_ready(1).await;
        self.stage.holds().registrations(false);
        self.stage.restarted(starting).await?;
        // It answers once boats are registered again as well.
        let boat = format!("{}/{}", boats::all("v1"), boats::name(0));
        request(&self.stage.clients()[1], "PATCH", &boat, &json!({})).await?;
        let turned_away = self.users.tally().turned_away.load(Ordering::Relaxed) - before;
        if ready {
            return Err(CliError::failed("api-2 let writes in before it was registered"));
        }
        say(&format!(
            "A server must register its storage versions before it writes. Until then it was not ready: {} writes \
            were refused (503, Retry-After) and sent to api-1. Now it is ready.",
            count(turned_away)
        ));
        Ok(())
    }

    /// The storage version changes, and one server has not noticed yet.
    async fn disagree(&mut self) -> Result<(), CliError> {
        self.next("v2 becomes the storage version, and api-2 does not know it yet");
        self.stage.holds().definitions(true);
        let spec = json!({"spec": {"versions": boats::versions("v2")}});
        let path = format!("{}/{}", boats::DEFINITIONS, boats::NAME);
        request(&self.stage.clients()[0], "PATCH", &path, &spec).await?;
        until("api-1 to write v2", async || Ok(self.writes("v2").await? == 1)).await?;
        self.show_registered().await?;
        let code = self.restow(&["migrate", boats::NAME]).await?;
        if code != 4 {
            return Err(CliError::failed(format!(
                "restow should have refused with exit code 4, it ended with {code}"
            )));
        }
        say("Exit code 4: restow writes nothing while a server still stores the old version.");
        Ok(())
    }

    /// The other server notices the change.
    async fn agree(&mut self) -> Result<(), CliError> {
        self.next("api-2 learns of it: it pauses writes, registers v2, and accepts writes again");
        self.stage.holds().definitions(false);
        until("both to write v2", async || Ok(self.writes("v2").await? == 2)).await?;
        self.show_registered().await?;
        self.show_stored().await?;
        Ok(())
    }

    /// A migration is killed.
    async fn crash(&mut self) -> Result<(), CliError> {
        self.next("The migration starts, and is killed halfway");
        let slowly = ["--pace", "fast", "--qps", VISIBLE, "--page-size", "100"];
        let args = [&["migrate", boats::NAME, "--prune-stored-versions"][..], &slowly].concat();
        let mut child = self.command(&args).spawn().map_err(CliError::failed)?;
        let half = self.objects / 2;
        let killed = until("half of the objects to be rewritten", async || {
            let ended = child.try_wait().map_err(CliError::failed)?.is_some();
            Ok(ended || self.stage.stored().await?.get("v2").copied().unwrap_or(0) >= half)
        })
        .await;
        child.kill().await.map_err(CliError::failed)?;
        killed?;
        show!("");
        say("The migration was killed with kill -9, as if its node had died. Its progress so far:");
        self.show_stored().await
    }

    /// The migration is resumed.
    async fn resume(&mut self) -> Result<(), CliError> {
        self.next("It resumes where it was killed, verifies, and prunes storedVersions");
        let code = self
            .restow(&["migrate", boats::NAME, "--prune-stored-versions", "--pace", "fast", "--resume"])
            .await?;
        if code == 0 {
            Ok(())
        } else {
            Err(CliError::failed(format!("the migration ended with exit code {code}")))
        }
    }

    /// Checks what is stored, and that no write of a user was lost.
    async fn audit(mut self, keep: bool) -> Result<u8, CliError> {
        self.next("What is stored now, read from the store");
        self.show_stored().await?;
        let stored = self.stage.stored().await?;
        let versions = self.stage.stored_versions().await?;
        say(&format!("status.storedVersions of the CRD: {}", versions.join(", ")));
        let acknowledged = self.users.tally().acknowledged.load(Ordering::Relaxed);
        let kept = self.users.stop().await.map_err(CliError::failed)?;
        say(&format!(
            "The servers acknowledged {} writes of users meanwhile: {} objects are as last written, {} are \
            deleted, {} are lost.",
            count(acknowledged),
            kept.intact,
            kept.gone,
            kept.lost
        ));
        if kept.lost > 0 || stored.keys().any(|version| version != "v2") || versions != ["v2"] {
            return Err(CliError::failed(
                "the demo failed: objects, storedVersions or writes are not as expected",
            ));
        }
        lesson();
        if keep {
            let kubeconfig = self.stage.kubeconfig();
            show!("\n\x1b[1mThe servers run until ctrl-C. In another terminal:\x1b[0m");
            show!("  export KUBECONFIG={}", kubeconfig.display());
            show!("  kubectl get boats\n  {} plan", program());
            signals::stop_on_signals(None).map_err(CliError::failed)?.cancelled().await;
        }
        self.stage.clear().await;
        Ok(0)
    }

    /// How many servers have registered that they write this version.
    async fn writes(&self, version: &str) -> Result<usize, CliError> {
        Ok(self.stage.encodings().await?.iter().filter(|(_, encoding)| encoding == version).count())
    }

    async fn show_registered(&self) -> Result<(), CliError> {
        let encodings = self.stage.encodings().await?;
        let each: Vec<String> =
            encodings.iter().map(|(server, version)| format!("{server} writes {version}")).collect();
        say(&format!("registered: {}", each.join(", ")));
        Ok(())
    }

    async fn show_stored(&self) -> Result<(), CliError> {
        let stored = self.stage.stored().await?;
        let each: Vec<String> =
            stored.iter().map(|(version, boats)| format!("{} as {version}", count(*boats))).collect();
        say(&format!("stored: {}", each.join(", ")));
        Ok(())
    }

    /// Runs restow as a user would, and shows its output.
    async fn restow(&self, args: &[&str]) -> Result<i32, CliError> {
        let status = self.command(args).status().await.map_err(CliError::failed)?;
        Ok(status.code().unwrap_or(-1))
    }

    fn command(&self, args: &[&str]) -> Command {
        show!("  \x1b[1m$ {} {}\x1b[0m", program(), args.join(" "));
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "restow".into()));
        command
            .args(args)
            .env("KUBECONFIG", self.stage.kubeconfig())
            .env("XDG_STATE_HOME", self.stage.dir())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

fn headline(step: u32, title: &str) {
    show!("\n\x1b[1;36m{step}  {title}\x1b[0m");
}

fn say(text: &str) {
    let mut lines = String::new();
    wrap(text, width(), &mut lines);
    anstream::print!("{lines}");
}

/// Prints the conclusion, and what to do next.
fn lesson() {
    show!("\n\x1b[1mWhat happened\x1b[0m");
    say(
        "The API servers registered their storage versions before they stored anything. restow waited until all \
        of them agreed, sent a patch that changes nothing to each object, saved its progress, and checked every \
        object again at the end.",
    );
    show!("\n\x1b[1mOn your own cluster\x1b[0m");
    let program = program();
    for (args, what) in [
        ("plan", "show what needs a migration"),
        ("migrate RESOURCE --prune-stored-versions", "migrate a resource, as above"),
        ("install --image IMAGE --apply --wait", "let restow's controllers migrate whenever it is needed"),
    ] {
        show!("  \x1b[1m{program} {args}\x1b[0m\n      {what}");
    }
}

/// Waits for something that should take a moment.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool, CliError>) -> Result<(), CliError> {
    let deadline = Instant::now() + STEP_TIMEOUT;
    while !is_so().await? {
        if Instant::now() > deadline {
            return Err(CliError::failed(format!("timed out waiting for {what}")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}
