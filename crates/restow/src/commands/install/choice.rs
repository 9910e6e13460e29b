//! The settings of an install: from the command line, and those kept from an earlier install.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Parser as _, ValueEnum};
use restow_migrate::client::Server;
use serde_json::Value;

use super::apply::{installed_in, refused};
use super::flags::{ControllerFlags, Install};
use super::manifest::is_ours;
use super::rules::NAME;

use crate::args::{Connection, typed_duration};
use crate::commands::controller::{ALL, Name as Controller};
use crate::error::CliError;
use crate::output::say;
use crate::resources::is_name;

/// The annotation of the ClusterRole with the arguments of `restow install`, as a JSON list.
pub(crate) const GIVEN: &str = "restow.dev/install";

/// The hint if it is not known which resources are wanted.
const NAME_RESOURCES: &str =
    "name the resources that restow may rewrite, or use --all for all that can be migrated";

/// The chosen settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InstallChoice {
    /// The resources that may be rewritten; empty for all, none if not specified.
    pub(crate) resources: Option<Vec<String>>,
    /// Whether events are among all resources.
    pub(crate) include_events: bool,
    /// The flags of `restow controller`.
    pub(crate) controller: ControllerFlags,
    /// How API servers are found.
    servers: Servers,
}

/// The connection flags that say how API servers are found.
#[derive(Clone, Debug, Default, PartialEq)]
struct Servers {
    named: Vec<String>,
    single: bool,
    sampled: Option<Duration>,
}

/// The arguments of `restow install`, without the name of the program.
#[derive(clap::Parser)]
struct Typed {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    install: Install,
}

#[derive(Default)]
pub(crate) struct ExistingInstall {
    choice: InstallChoice,
    image: Option<String>,
    /// Whether it is not known which resources it was for.
    unclear: bool,
}

impl InstallChoice {
    /// The settings on the command line.
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

    /// Takes settings that are not specified from the earlier install.
    pub(crate) fn or(self, earlier: Self) -> Self {
        let kept = self.resources.is_none();
        let (given, before) = (self.controller, earlier.controller);
        let either = |given: Vec<String>, before: Vec<String>| if given.is_empty() { before } else { given };
        // The two exclude each other.
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
                list: given.list.or(before.list),
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

    /// All named resources, also the encrypted ones; some may be named twice.
    pub(crate) fn all_named(&self) -> Vec<String> {
        let encrypted = self.controller.encryption_resources.iter().filter(|word| is_name(word));
        self.named().iter().chain(encrypted).cloned().collect()
    }

    /// Drops resources of the earlier install that are gone, and prints them. If none is left, it fails, because an empty
    /// list would mean all resources.
    pub(crate) fn drop_gone(&mut self, given: &Self, is_gone: impl Fn(&str) -> bool) -> Result<(), CliError> {
        let had = self.named().len();
        let mut gone = BTreeSet::new();
        let mut drop = |kept: &mut Vec<String>| {
            let (without, left): (Vec<String>, Vec<String>) =
                std::mem::take(kept).into_iter().partition(|name| is_name(name) && is_gone(name));
            gone.extend(without);
            *kept = left;
        };
        if given.resources.is_none() {
            self.resources.iter_mut().for_each(&mut drop);
        }
        if given.controller.encryption_resources.is_empty() {
            drop(&mut self.controller.encryption_resources);
        }
        let gone = gone.into_iter().collect::<Vec<_>>().join(", ");
        if had > 0 && self.named().is_empty() {
            let all = "no resource of the earlier install is served any more";
            return Err(CliError::usage(format!("{all}: {gone}")).hint(NAME_RESOURCES));
        }
        if !gone.is_empty() {
            say!("dropped, because no API server serves it any more: {gone}");
        }
        Ok(())
    }

    /// The settings of an install, from the flags of its Deployment.
    fn deployed(args: &[String]) -> Option<Self> {
        const ALWAYS: [&str; 3] = ["--leader-election-namespace=", "--listen=", "--log-format="];
        let chosen = args.iter().skip_while(|word| *word == "controller");
        let chosen = chosen.filter(|word| !ALWAYS.iter().any(|always| word.starts_with(always)));
        let words: Vec<String> =
            chosen.map(|word| word.strip_prefix("--resources=").unwrap_or(word).to_owned()).collect();
        Self::read(&words)
    }

    /// The flags of `restow controller` in the Deployment: always the controllers, and whatever was chosen.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut all = vec![controllers_flag(&self.controllers())];
        all.extend(self.flags());
        all
    }

    /// The arguments that an upgrade keeps.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = self.named().to_vec();
        words.extend(self.include_events.then(|| "--include-events".to_owned()));
        if !self.controller.controllers.is_empty() {
            words.push(controllers_flag(&self.controller.controllers));
        }
        words.extend(self.flags());
        words
    }

    /// The flags that were given, without the one for the controllers.
    fn flags(&self) -> Vec<String> {
        let flags = &self.controller;
        let mut all = Vec::new();
        all.extend(flags.pace.map(|pace| format!("--pace={}", name(pace))));
        all.extend(flags.list.map(|list| format!("--list={}", name(list))));
        all.extend(flags.concurrent_migrations.map(|count| format!("--concurrent-migrations={count}")));
        all.extend(flags.poll_interval.map(|period| format!("--poll-interval={}", typed_duration(period))));
        if !flags.encryption_resources.is_empty() {
            all.push(format!("--encryption-resources={}", flags.encryption_resources.join(",")));
        }
        all.extend(flags.backend.map(|backend| format!("--backend={}", name(backend))));
        all.extend(flags.adopt.map(|api| format!("--adopt={}", name(api))));
        all.extend(self.server_flags());
        all
    }

    /// The flags that say how API servers are found.
    pub(crate) fn server_flags(&self) -> Vec<String> {
        let Servers { named, single, sampled } = &self.servers;
        let mut all: Vec<String> = named.iter().map(|url| format!("--api-server={url}")).collect();
        all.extend(single.then(|| "--assume-single-server".to_owned()));
        all.extend(sampled.map(|period| format!("--sample-servers={}", typed_duration(period))));
        all
    }

    /// Parses the arguments of an earlier install.
    fn read(words: &[String]) -> Option<Self> {
        let typed = std::iter::once("install").chain(words.iter().map(String::as_str));
        let typed = Typed::try_parse_from(typed).ok()?;
        Some(Self::given(&typed.connection, &typed.install))
    }
}

fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn controllers_flag(controllers: &[Controller]) -> String {
    let names: Vec<String> = controllers.iter().copied().map(name).collect();
    format!("--controllers={}", names.join(","))
}

impl ExistingInstall {
    /// Reads what is installed now. To print manifests, this may fail.
    pub(crate) async fn find(server: &Server, flags: &Install) -> Result<Self, CliError> {
        if flags.reset {
            return Ok(Self::default());
        }
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}");
        let role: Value = match server.get(&path).await {
            Ok(role) => role,
            Err(error) if error.code() == Some(404) => return Ok(Self::default()),
            Err(error) if error.code() == Some(403) && !flags.apply => {
                say!("warning: cannot read the settings of an earlier install, so none are kept: {error}");
                return Ok(Self::default());
            }
            Err(error) => return Err(refused(server, &format!("clusterrole/{NAME}"), &error)),
        };
        if !is_ours(&role) {
            return Ok(Self::default());
        }
        let Deployed { image, args } = deployed(server).await?;
        let Some(words) = words(&role) else {
            // An earlier version of restow created it and did not record its arguments.
            let choice = InstallChoice::deployed(&args).unwrap_or_default();
            return Ok(Self { unclear: choice.resources.is_none(), choice, image });
        };
        let choice = InstallChoice::read(&words).ok_or_else(|| {
            CliError::failed(format!(
                "this version of restow cannot read the settings of the earlier install: {}",
                words.join(" ")
            ))
            .hint("use --reset to ignore them, and say what to install")
        })?;
        Ok(Self { choice, image, unclear: false })
    }

    /// The settings to install, given those on the command line; prints what is kept.
    pub(crate) fn keep(
        self,
        given: InstallChoice,
        new_image: Option<&String>,
    ) -> Result<(InstallChoice, Option<String>), CliError> {
        if self.unclear && given.resources.is_none() {
            let why = format!("clusterrole/{NAME} does not say which resources the earlier install was for");
            return Err(CliError::usage(why).hint(NAME_RESOURCES));
        }
        let said = given.words();
        let choice = given.or(self.choice);
        let kept: Vec<String> = choice.words().into_iter().filter(|word| !said.contains(word)).collect();
        if !kept.is_empty() {
            say!("kept from the earlier install: {} (use --reset to ignore it)", kept.join(" "));
        }
        Ok((choice, new_image.cloned().or(self.image)))
    }
}

/// The arguments that a ClusterRole records.
fn words(role: &Value) -> Option<Vec<String>> {
    serde_json::from_str(role["metadata"]["annotations"][GIVEN].as_str()?).ok()
}

/// The Deployment that runs.
#[derive(Default)]
struct Deployed {
    image: Option<String>,
    args: Vec<String>,
}

async fn deployed(server: &Server) -> Result<Deployed, CliError> {
    let Some(namespace) = installed_in(server).await? else { return Ok(Deployed::default()) };
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}");
    match server.get::<Value>(&path).await {
        Ok(deployment) => {
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            let args = container["args"].as_array().into_iter().flatten();
            Ok(Deployed {
                image: container["image"].as_str().map(str::to_owned),
                args: args.filter_map(Value::as_str).map(str::to_owned).collect(),
            })
        }
        Err(error) if error.code() == Some(404) => Ok(Deployed::default()),
        Err(error) => Err(refused(server, &format!("deployment/{NAME} in {namespace}"), &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(words: &str) -> InstallChoice {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        InstallChoice::read(&words).unwrap()
    }

    #[test]
    fn an_upgrade_keeps_what_it_does_not_change() {
        for (before, given, expected) in [
            ("secrets --controllers=migrator", "", "secrets --controllers=migrator"),
            ("secrets", "configmaps", "configmaps"),
            ("secrets", "--all", ""),
            ("secrets", "--pace=gentle", "secrets --pace=gentle"),
            ("secrets --list=streaming", "", "secrets --list=streaming"),
            ("secrets --list=streaming", "--list=chunked", "secrets --list=chunked"),
            (
                "secrets --pace=fast --poll-interval=60s",
                "--pace=gentle",
                "secrets --pace=gentle --poll-interval=60s",
            ),
            ("--include-events", "", "--include-events"),
            ("--include-events", "--all", ""),
            ("--controllers=migrator", "--controllers=migrator,pruner", "--controllers=migrator,pruner"),
            (
                "--poll-interval=500ms --sample-servers=1s500ms",
                "",
                "--poll-interval=0.5s --sample-servers=1.5s",
            ),
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
    fn resources_that_are_gone_are_dropped_and_nothing_is_added() {
        // No resource is called like a pattern.
        let gone = |name: &str| name.starts_with("gone") || ["*.*", "none"].contains(&name);
        for (before, given, expected) in [
            ("secrets gone.example.com", "", Some("secrets")),
            ("secrets --encryption-resources=*.*", "", Some("secrets --encryption-resources=*.*")),
            ("secrets --encryption-resources=none", "", Some("secrets --encryption-resources=none")),
            (
                "secrets gone.example.com --encryption-resources=secrets,gone.example.com",
                "",
                Some("secrets --encryption-resources=secrets"),
            ),
            ("secrets", "", Some("secrets")),
            ("", "", Some("")),
            // It would become everything.
            ("gone.example.com", "", None),
            ("gone.example.com", "--all", Some("")),
            // Who names it is told that there is none.
            ("secrets", "gone.example.com", Some("gone.example.com")),
        ] {
            let given = choice(given);
            let mut merged = given.clone().or(choice(before));
            let words = merged.drop_gone(&given, gone).ok().map(|()| merged.words().join(" "));
            assert_eq!(words.as_deref(), expected, "{before}");
        }
    }

    #[test]
    fn resources_of_an_install_without_annotation_come_from_its_flags() {
        let always = "controller --leader-election-namespace=ops --listen=0.0.0.0:8080 --log-format=json";
        for (flags, given, expected) in [
            (
                "--controllers=migrator --resources=secrets,configmaps",
                "--pace=fast",
                Some("secrets configmaps --controllers=migrator --pace=fast"),
            ),
            ("--controllers=migrator --pace=gentle", "", None),
            (
                "--controllers=migrator --pace=gentle",
                "secrets",
                Some("secrets --controllers=migrator --pace=gentle"),
            ),
            ("--controllers=migrator", "--all", Some("--controllers=migrator")),
            ("--unknown --resources=secrets", "", None),
        ] {
            let args: Vec<String> = always.split(' ').chain(flags.split(' ')).map(str::to_owned).collect();
            let earlier = InstallChoice::deployed(&args).unwrap_or_default();
            let earlier =
                ExistingInstall { unclear: earlier.resources.is_none(), choice: earlier, image: None };
            let kept = earlier.keep(choice(given), None).ok().map(|(kept, _)| kept.words().join(" "));
            assert_eq!(kept.as_deref(), expected, "{flags} then {given}");
        }
    }

    #[test]
    fn the_deployment_always_names_its_controllers() {
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
    fn settings_of_another_version_are_not_guessed() {
        assert!(InstallChoice::read(&["--no-such-flag".to_owned()]).is_none());
    }
}
