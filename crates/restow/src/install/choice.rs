//! What an install is to be like: what it was given, and what it keeps of an earlier one.

use std::time::Duration;

use clap::{Parser as _, ValueEnum};
use restow_migrate::server::Server;
use serde_json::Value;

use super::apply::{installed_in, refused};
use super::manifest::is_ours;
use super::rules::NAME;
use super::{ControllerFlags, Install};
use crate::args::{Args, Command, Connection};
use crate::controller::{ALL, Name as Controller};
use crate::failure::Failure;
use crate::output::say;

/// The annotation of the ClusterRole that has the words `restow install` was given, as a list in JSON.
pub(crate) const GIVEN: &str = "restow.dev/install";

/// What was chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Choice {
    /// The resources that may be rewritten; all when there is none, unsaid when nothing was given.
    pub(crate) resources: Option<Vec<String>>,
    /// Whether events are among all resources.
    pub(crate) include_events: bool,
    /// The flags of `restow controller`.
    pub(crate) controller: ControllerFlags,
    /// How API servers are told apart.
    servers: Servers,
}

/// The connection flags on how API servers are told apart.
#[derive(Clone, Debug, Default, PartialEq)]
struct Servers {
    named: Vec<String>,
    single: bool,
    sampled: Option<Duration>,
}

/// What is in place.
#[derive(Default)]
pub(crate) struct Earlier {
    choice: Choice,
    image: Option<String>,
}

impl Choice {
    /// What the command line says.
    pub(crate) fn given(connection: &Connection, flags: &Install) -> Self {
        let said = flags.all || !flags.resources.is_empty();
        Self {
            resources: said.then(|| flags.resources.clone()),
            include_events: flags.include_events,
            controller: flags.controller.clone(),
            servers: Servers {
                named: connection.api_server.iter().map(ToString::to_string).collect(),
                single: connection.assume_single_server,
                sampled: connection.sample_servers,
            },
        }
    }

    /// What is left unsaid is as it was.
    pub(crate) fn or(self, earlier: Self) -> Self {
        let kept = self.resources.is_none();
        let (given, before) = (self.controller, earlier.controller);
        let either = |given: Vec<String>, before: Vec<String>| if given.is_empty() { before } else { given };
        // Each of the two excludes the other.
        let in_tree = if given.backend.is_some() || given.adopt.is_some() {
            (given.backend, given.adopt)
        } else {
            (before.backend, before.adopt)
        };
        Self {
            resources: self.resources.or(earlier.resources),
            include_events: self.include_events || (kept && earlier.include_events),
            controller: ControllerFlags {
                controllers: if given.controllers.is_empty() {
                    before.controllers
                } else {
                    given.controllers
                },
                pace: given.pace.or(before.pace),
                concurrent_migrations: given.concurrent_migrations.or(before.concurrent_migrations),
                poll_interval: given.poll_interval.or(before.poll_interval),
                encryption_resources: either(given.encryption_resources, before.encryption_resources),
                backend: in_tree.0,
                adopt: in_tree.1,
            },
            servers: if self.servers == Servers::default() { earlier.servers } else { self.servers },
        }
    }

    /// The controllers to run.
    pub(crate) fn controllers(&self) -> Vec<Controller> {
        let chosen = &self.controller.controllers;
        if chosen.is_empty() { ALL.to_vec() } else { chosen.clone() }
    }

    /// The resources that were named.
    pub(crate) fn named(&self) -> &[String] {
        self.resources.as_deref().unwrap_or_default()
    }

    /// What the Deployment gives `restow controller`: always which controllers run, else what was chosen.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut all = vec![controllers_flag(&self.controllers())];
        all.extend(self.flags());
        all
    }

    /// The words that an upgrade keeps.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = self.named().to_vec();
        words.extend(self.include_events.then(|| "--include-events".to_owned()));
        if !self.controller.controllers.is_empty() {
            words.push(controllers_flag(&self.controller.controllers));
        }
        words.extend(self.flags());
        words
    }

    /// The flags that were given, but for which controllers run.
    fn flags(&self) -> Vec<String> {
        let flags = &self.controller;
        let mut all = Vec::new();
        all.extend(flags.pace.map(|pace| format!("--pace={}", name(pace))));
        all.extend(flags.concurrent_migrations.map(|count| format!("--concurrent-migrations={count}")));
        all.extend(flags.poll_interval.map(|period| format!("--poll-interval={}s", period.as_secs())));
        if !flags.encryption_resources.is_empty() {
            all.push(format!("--encryption-resources={}", flags.encryption_resources.join(",")));
        }
        all.extend(flags.backend.map(|backend| format!("--backend={}", name(backend))));
        all.extend(flags.adopt.map(|api| format!("--adopt={}", name(api))));
        all.extend(self.servers.named.iter().map(|url| format!("--api-server={url}")));
        all.extend(self.servers.single.then(|| "--assume-single-server".to_owned()));
        all.extend(self.servers.sampled.map(|period| format!("--sample-servers={}s", period.as_secs())));
        all
    }

    /// Reads the words of an earlier install.
    fn read(words: &[String]) -> Option<Self> {
        let typed = ["restow", "install"].into_iter().chain(words.iter().map(String::as_str));
        let args = Args::try_parse_from(typed).ok()?;
        match &args.command {
            Command::Install(flags) => Some(Self::given(&args.connection, flags)),
            _ => None,
        }
    }
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn controllers_flag(controllers: &[Controller]) -> String {
    let names: Vec<String> = controllers.iter().copied().map(name).collect();
    format!("--controllers={}", names.join(","))
}

impl Earlier {
    /// What is installed now. Who only prints need not be able to see it.
    pub(crate) async fn find(server: &Server, flags: &Install) -> Result<Self, Failure> {
        if flags.reset {
            return Ok(Self::default());
        }
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}");
        let role: Value = match server.get(&path).await {
            Ok(role) => role,
            Err(error) if error.code() == Some(404) => return Ok(Self::default()),
            Err(error) if error.code() == Some(403) && !flags.apply => {
                say!("warning: nothing is kept of an earlier install, because it cannot be read: {error}");
                return Ok(Self::default());
            }
            Err(error) => return Err(refused(&format!("clusterrole/{NAME}"), &error)),
        };
        if !is_ours(&role) {
            return Ok(Self::default());
        }
        let Some(words) = words(&role) else {
            say!(
                "warning: clusterrole/{NAME} does not tell what the earlier install was given: nothing is kept of it"
            );
            return Ok(Self { image: image(server).await?, ..Self::default() });
        };
        let choice = Choice::read(&words).ok_or_else(|| {
            Failure::failed(format!(
                "the earlier install was given {}, which this restow cannot read",
                words.join(" ")
            ))
            .hint("--reset forgets that; say then what is to be installed")
        })?;
        Ok(Self { choice, image: image(server).await? })
    }

    /// What is to be installed, given what the command line says; tells what is kept.
    pub(crate) fn keep(self, given: Choice, new_image: Option<&String>) -> (Choice, Option<String>) {
        let said = given.words();
        let choice = given.or(self.choice);
        let kept: Vec<String> = choice.words().into_iter().filter(|word| !said.contains(word)).collect();
        if !kept.is_empty() {
            say!("kept from the earlier install: {} (--reset forgets it)", kept.join(" "));
        }
        (choice, new_image.cloned().or(self.image))
    }
}

/// The words that a ClusterRole remembers.
fn words(role: &Value) -> Option<Vec<String>> {
    serde_json::from_str(role["metadata"]["annotations"][GIVEN].as_str()?).ok()
}

/// The image that runs.
async fn image(server: &Server) -> Result<Option<String>, Failure> {
    let Some(namespace) = installed_in(server).await? else { return Ok(None) };
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}");
    match server.get::<Value>(&path).await {
        Ok(deployment) => {
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            Ok(container["image"].as_str().map(str::to_owned))
        }
        Err(error) if error.code() == Some(404) => Ok(None),
        Err(error) => Err(refused(&format!("deployment/{NAME} in {namespace}"), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(words: &str) -> Choice {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Choice::read(&words).unwrap()
    }

    #[test]
    fn an_upgrade_keeps_what_it_does_not_change() {
        for (before, given, expected) in [
            ("secrets --controllers=migrator", "", "secrets --controllers=migrator"),
            ("secrets", "configmaps", "configmaps"),
            ("secrets", "--all", ""),
            ("secrets", "--pace=gentle", "secrets --pace=gentle"),
            (
                "secrets --pace=fast --poll-interval=60s",
                "--pace=gentle",
                "secrets --pace=gentle --poll-interval=60s",
            ),
            ("--include-events", "", "--include-events"),
            ("--include-events", "--all", ""),
            ("--controllers=migrator", "--controllers=migrator,pruner", "--controllers=migrator,pruner"),
            ("--adopt=in-tree", "", "--adopt=in-tree"),
            ("--adopt=in-tree", "--backend=restow", "--backend=restow"),
            ("--assume-single-server", "--sample-servers=60s", "--sample-servers=60s"),
            (
                "--api-server=https://a/ --api-server=https://b/",
                "secrets",
                "secrets --api-server=https://a/ --api-server=https://b/",
            ),
            ("--encryption-resources=secrets,configmaps", "", "--encryption-resources=secrets,configmaps"),
            ("", "", ""),
        ] {
            let merged = choice(given).or(choice(before));
            assert_eq!(merged.words().join(" "), expected, "{before} then {given}");
            assert_eq!(choice(expected).words(), merged.words(), "what is kept is read again");
        }
    }

    #[test]
    fn pods_are_always_told_which_controllers_to_run() {
        let all = "--controllers=migrator,trigger,encryption,pruner";
        for (words, expected) in [
            ("", all.to_owned()),
            ("secrets --pace=fast", format!("{all} --pace=fast")),
            (
                "--controllers=pruner --assume-single-server",
                "--controllers=pruner --assume-single-server".to_owned(),
            ),
        ] {
            assert_eq!(choice(words).arguments().join(" "), expected);
        }
    }

    #[test]
    fn words_of_another_version_are_not_guessed() {
        assert!(Choice::read(&["--no-such-flag".to_owned()]).is_none());
    }
}
