//! `restow status -w`: shows changes of the status, redrawn in place or line by line.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use restow_api::{Conversion, StorageState, StorageVersionMigration};
use restow_clock::Instant;
use restow_migrate::client::{Server, plain};
use serde_json::json;

use super::snapshot::{Snapshot, matches_conversion, matches_migration, matches_state};
use crate::args::Output;
use crate::error::CliError;
use crate::objects::typed_name;
use crate::output;
use crate::output::say;
use crate::render::conversion::ConversionSummary;
use crate::render::migration::MigrationSummary;
use crate::render::storage_state::StorageSummary;
use crate::render::text::yaml;
use crate::signals::in_time;
use crate::watch::{Watched, WatchedObjects, check, events};

/// How often a terminal is redrawn, because ages change even if nothing else does.
const EVERY: Duration = Duration::from_millis(500);
/// After this time without an error, a watch counts as healthy again; it is restarted more often than that.
const WELL_AFTER: Duration = Duration::from_secs(45);

/// Shows changes until the timeout.
pub(crate) async fn follow(
    server: &Server,
    names: &[String],
    form: Output,
    timeout: Option<Duration>,
    with_conversions: bool,
) -> Result<u8, CliError> {
    let picture = matches!(form, Output::Table | Output::Wide) && console::Term::stdout().is_term();
    let mut follower = Follower {
        server,
        names,
        form,
        migrations: WatchedObjects::default(),
        states: WatchedObjects::default(),
        conversions: with_conversions.then(WatchedObjects::default),
        screen: picture.then(Screen::default),
        said: HashMap::new(),
        broke: None,
    };
    in_time(timeout, follower.run()).await.unwrap_or(Ok(0))
}

struct Follower<'a> {
    server: &'a Server,
    names: &'a [String],
    form: Output,
    migrations: WatchedObjects<StorageVersionMigration>,
    states: WatchedObjects<StorageState>,
    /// Watched only if there are some: not every cluster has the resource.
    conversions: Option<WatchedObjects<Conversion>>,
    screen: Option<Screen>,
    /// The last line about each object.
    said: HashMap<String, String>,
    /// When the watch last failed, and why.
    broke: Option<(Instant, String)>,
}

impl Follower<'_> {
    async fn run(&mut self) -> Result<u8, CliError> {
        let mut migrations = pin!(events::<StorageVersionMigration>(self.server, None));
        let mut states = pin!(events::<StorageState>(self.server, None));
        let mut conversions = pin!(events::<Conversion>(self.server, None));
        let mut clock = tokio::time::interval(EVERY);
        loop {
            tokio::select! {
                Some(event) = migrations.next() => {
                    if let Some(event) = self.sound(event).await? {
                        self.migration(event);
                    }
                }
                Some(event) = states.next() => {
                    if let Some(event) = self.sound(event).await? {
                        self.state(event);
                    }
                }
                Some(event) = conversions.next(), if self.conversions.is_some() => {
                    if let Some(event) = self.sound(event).await? {
                        self.conversion(event);
                    }
                }
                _ = clock.tick() => self.draw(),
            }
        }
    }

    /// The event, unless the watch failed.
    async fn sound<K: Watched>(
        &mut self,
        event: watcher::Result<Event<K>>,
    ) -> Result<Option<Event<K>>, CliError> {
        match event {
            Ok(event) => Ok(Some(event)),
            Err(error) => {
                check::<K>(self.server, &error).await?;
                if self.trouble().is_none() && self.screen.is_none() {
                    say!("the watch failed; retrying: {}", plain(&error));
                }
                self.broke = Some((Instant::now(), plain(&error)));
                Ok(None)
            }
        }
    }

    fn trouble(&self) -> Option<&str> {
        let (when, how) = self.broke.as_ref()?;
        (when.elapsed() < WELL_AFTER).then_some(how)
    }

    fn migration(&mut self, event: Event<StorageVersionMigration>) {
        for name in self.migrations.take(event) {
            let typed = typed_name::<StorageVersionMigration>(&name);
            match self.migrations.get(&name) {
                Some(migration) if !matches_migration(self.names, migration) => {}
                Some(migration) => {
                    let standing = MigrationSummary::of(migration, restow_clock::now());
                    self.say(typed, standing.line(), &json!({"migration": standing}));
                }
                None => self.say_gone(typed, &name),
            }
        }
    }

    fn state(&mut self, event: Event<StorageState>) {
        for name in self.states.take(event) {
            let typed = typed_name::<StorageState>(&name);
            match self.states.get(&name) {
                Some(state) if !matches_state(self.names, state) => {}
                Some(state) => {
                    let storage = StorageSummary::of(state, restow_clock::now());
                    self.say(typed, storage.line(), &json!({"storageState": storage}));
                }
                None => self.say_gone(typed, &format!("storage state {name}")),
            }
        }
    }

    fn conversion(&mut self, event: Event<Conversion>) {
        let Some(conversions) = &mut self.conversions else { return };
        let now = restow_clock::now();
        let changed = conversions.take(event).into_iter().map(|name| {
            let summary = conversions.get(&name).map(|object| ConversionSummary::of(object, now));
            (name, summary)
        });
        for (name, summary) in changed.collect::<Vec<_>>() {
            let typed = typed_name::<Conversion>(&name);
            match summary {
                Some(summary) if !matches_conversion(self.names, &summary) => {}
                Some(summary) => self.say(typed, summary.line(), &json!({"conversion": summary})),
                None => self.say_gone(typed, &format!("conversion {name}")),
            }
        }
    }

    /// Prints an object, unless its line is unchanged.
    fn say(&mut self, typed: String, line: String, document: &serde_json::Value) {
        let text = change(self.form, &typed, line, document);
        if self.said.get(&typed) != Some(&text) {
            self.print(&text);
            self.said.insert(typed, text);
        }
    }

    /// Prints that an object is gone, if it was ever shown.
    fn say_gone(&mut self, typed: String, what: &str) {
        if self.said.remove(&typed).is_some() {
            let document = json!({"deleted": typed});
            self.print(&change(self.form, &typed, format!("{what}: deleted"), &document));
        }
    }

    /// Prints a line, unless the terminal is redrawn.
    fn print(&self, text: &str) {
        if self.screen.is_none() {
            output::print(text);
        }
    }

    fn draw(&mut self) {
        let note = self.trouble().map(|how| format!("\nthe watch failed; retrying: {how}\n"));
        let Some(screen) = &mut self.screen else { return };
        let unlisted = self.conversions.as_ref().is_some_and(|conversions| !conversions.complete);
        if unlisted || !(self.migrations.complete && self.states.complete) {
            return;
        }
        let (height, width) = console::Term::stdout().size();
        let (height, width) = (usize::from(height), usize::from(width));
        let now = restow_clock::now();
        let conversions = self.conversions.iter().flat_map(WatchedObjects::all);
        let snapshot = Snapshot::new(self.names, self.migrations.all(), self.states.all(), now).and(
            self.names,
            conversions,
            now,
        );
        let mut text = snapshot.text(self.form, Some(width));
        if snapshot.is_empty() {
            text.push_str("there are no migrations yet\n");
        }
        text.push_str(&note.unwrap_or_default());
        output::print(&screen.redraw(&text, height, width));
    }
}

/// One change in an output format.
fn change(form: Output, typed: &str, line: String, document: &serde_json::Value) -> String {
    match form {
        Output::Table | Output::Wide => line + "\n",
        Output::Json => format!("{document}\n"),
        Output::Yaml => format!("---\n{}", yaml(document)),
        Output::Name => format!("{typed}\n"),
    }
}

/// What was last drawn on a terminal.
#[derive(Default)]
struct Screen {
    /// How many lines the terminal shows of it.
    lines: usize,
}

impl Screen {
    /// The output that replaces the last text on the terminal, as much of it as fits.
    fn redraw(&mut self, text: &str, height: usize, width: usize) -> String {
        let room = height.saturating_sub(1).max(1);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let rows = |line: &String| console::measure_text_width(line).max(1).div_ceil(width.max(1));
        if lines.iter().map(rows).sum::<usize>() > room {
            let mut used = 1;
            let fit = lines.iter().take_while(|line| {
                used += rows(line);
                used <= room
            });
            let kept = fit.count();
            let more = format!("… {} more lines", lines.len() - kept);
            lines.truncate(kept);
            lines.push(more);
        }
        let mut drawn = match self.lines {
            0 => String::new(),
            // Up, to the beginning of the first line.
            lines => format!("\x1b[{lines}F"),
        };
        self.lines = lines.iter().map(rows).sum();
        for line in lines {
            drawn.push_str(&format!("{line}\x1b[K\n"));
        }
        // What is left of a longer text.
        drawn + "\x1b[J"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redraw_replaces_the_previous_text() {
        let mut screen = Screen::default();
        assert_eq!(screen.redraw("one\ntwo\n", 24, 80), "one\x1b[K\ntwo\x1b[K\n\x1b[J");
        assert_eq!(screen.redraw("three\n", 24, 80), "\x1b[2Fthree\x1b[K\n\x1b[J");
        // No more than there is room for, and lines that wrap count as they do.
        assert_eq!(
            screen.redraw("1\n2\n3\n4\n5\n", 4, 80),
            "\x1b[1F1\x1b[K\n2\x1b[K\n… 3 more lines\x1b[K\n\x1b[J"
        );
        assert_eq!(screen.redraw("123456\n", 24, 4), "\x1b[3F123456\x1b[K\n\x1b[J");
        assert_eq!(screen.redraw("", 24, 4), "\x1b[2F\x1b[J");
    }

    #[test]
    fn a_change_is_one_line_or_document() {
        let (typed, document) = ("storagestate.migration.k8s.io/secrets", json!({"deleted": "secrets"}));
        for (form, text) in [
            (Output::Table, "secrets: deleted\n"),
            (Output::Json, "{\"deleted\":\"secrets\"}\n"),
            (Output::Name, "storagestate.migration.k8s.io/secrets\n"),
            (Output::Yaml, "---\ndeleted: secrets\n"),
        ] {
            assert_eq!(change(form, typed, "secrets: deleted".to_owned(), &document), text);
        }
    }
}
