//! Whether all API servers write under one encryption configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::resource::GroupResource;
use crate::trigger::Word;

/// Stands for the hash of a server that reports none: it has no configuration, or one it does not reload by itself.
pub const UNREPORTED: &str = "unreported";

/// The metric that names the configuration an API server uses.
const INFO: &str = "apiserver_encryption_config_controller_last_config_info";
/// The metric that tells when it last took one up.
const RELOADED: &str = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds";
/// The metric that tells when the process started.
const STARTED: &str = "process_start_time_seconds";
/// The label that tells which server it is.
const ID: &str = "apiserver_id_hash";

/// What one API server's metrics say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The hash of its configuration; none when it has none.
    pub hash: Option<String>,
    /// When it took one up, in the server's own words.
    pub reloaded: String,
    /// Which server it is, as a hash of its identity.
    pub id: String,
    /// When its process started, in the server's own words.
    pub started: String,
    /// The address it tells its clients, which is not in its metrics.
    pub address: String,
    /// Whether an API server's metrics were read, up to behind those about encryption: they are sorted by name. Of
    /// anything else nothing can be missing.
    pub complete: bool,
}

impl Config {
    /// Takes one line of metrics in.
    pub fn read(&mut self, line: &str) {
        let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let value = || rest.rsplit_once(' ').map_or("", |(_, value)| value).trim().to_owned();
        if name.starts_with("apiserver_")
            && let Some(id) = label(rest, ID)
        {
            id.clone_into(&mut self.id);
        }
        match name {
            INFO => self.hash = label(rest, "hash").map(str::to_owned),
            RELOADED if label(rest, "status") == Some("success") => self.reloaded = value(),
            STARTED => self.started = value(),
            _ => {}
        }
        self.complete |= name.starts_with("apiserver_") && name > INFO;
    }

    /// Which process it is; empty when it does not tell.
    pub fn process(&self) -> String {
        if self.id.is_empty() && self.started.is_empty() {
            return String::new();
        }
        format!("{}@{}", self.id, self.started)
    }

    /// All that tells it from other servers.
    pub fn name(&self) -> String {
        format!("{} {}", self.address, self.process()).trim().to_owned()
    }
}

/// What is said of API servers that are alive and not among those that answered; none when all are.
///
/// Those that do not tell which they are count as one.
pub fn missed(answers: &[(String, Result<Config, Unread>)], live: usize) -> Option<String> {
    let configs = answers.iter().filter_map(|(_, config)| config.as_ref().ok());
    let met = configs.map(Config::name).collect::<BTreeSet<_>>().len();
    let unread = answers.iter().filter(|(_, config)| config.is_err()).count();
    let missing = live.saturating_sub(met + unread);
    (missing > 0).then(|| format!("the metrics of {missing} of {live} API servers were not met with"))
}

/// The value of one label, in `a="x",b="y"} 1`.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let labels = labels.trim_start_matches('{').split_once('}').map_or(labels, |(labels, _)| labels);
    labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

/// What all servers' configurations come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Their word; none when some refuse to tell, and those that were read have nothing to report.
    pub word: Option<Word>,
    /// Changes whenever one of them has taken a configuration up.
    pub seal: String,
    /// When each server last took one up without a restart, by the hash of its identity; a server that has not done so
    /// since it started is not in it.
    pub reloads: BTreeMap<String, String>,
    /// Those that could not be asked, and why; asking again may help.
    pub unasked: Vec<(String, String)>,
    /// Those that refused to show their metrics, and why; asking again does not help.
    pub refused: Vec<(String, String)>,
    /// Those that were read, and the hash each reports.
    pub heard: Vec<(String, Option<String>)>,
}

/// Why one API server's configuration could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It did not answer.
    Silent(String),
    /// It answered that its metrics may not be read, or it can never be asked.
    Refused(String),
}

/// Puts the servers' answers together.
pub fn agree(answers: &[(String, Result<Config, Unread>)]) -> Encryption {
    let (mut heard, mut unasked, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (server, config) in answers {
        match config {
            Ok(config) => heard.push((server.clone(), config.hash.clone())),
            Err(Unread::Silent(why)) => unasked.push((server.clone(), why.clone())),
            Err(Unread::Refused(why)) => refused.push((server.clone(), why.clone())),
        }
    }
    let hash = |(_, hash): &(String, Option<String>)| hash.clone().unwrap_or_else(|| UNREPORTED.to_owned());
    let hashes: Vec<String> = heard.iter().map(hash).collect::<BTreeSet<_>>().into_iter().collect();
    let complete = unasked.is_empty() && refused.is_empty();
    let word = match hashes.as_slice() {
        [one] if complete => Some(Word::Agreed(one.clone())),
        [_, ..] if complete => Some(Word::Split(hashes)),
        // Nothing says that this cluster encrypts at all, and nothing ever will.
        [one] if one == UNREPORTED && !refused.is_empty() => None,
        _ => Some(Word::Silent(hashes)),
    };
    let seal = |(server, config): &(String, Result<Config, Unread>)| {
        let config = config.as_ref().ok()?;
        Some(format!("{server}={}@{}", config.hash.as_deref().unwrap_or_default(), config.reloaded))
    };
    let seal = answers.iter().filter_map(seal).collect::<Vec<_>>().join(" ");
    let reload = |(server, config): &(String, Result<Config, Unread>)| {
        let config = config.as_ref().ok().filter(|config| !config.reloaded.is_empty())?;
        let id = if config.id.is_empty() { server } else { &config.id };
        Some((id.clone(), config.reloaded.clone()))
    };
    let reloads = answers.iter().filter_map(reload).collect();
    Encryption { word, seal, reloads, unasked, refused, heard }
}

impl Encryption {
    /// The one hash that those that were read report; an error holds the different ones.
    pub fn common(&self) -> Result<Option<&str>, Vec<String>> {
        let hashes: BTreeSet<Option<&str>> = self.heard.iter().map(|(_, hash)| hash.as_deref()).collect();
        match hashes.len() {
            0 | 1 => Ok(hashes.into_iter().next().flatten()),
            _ => Err(hashes.into_iter().map(|hash| hash.unwrap_or(UNREPORTED).to_owned()).collect()),
        }
    }

    /// What can be said of the key after this look.
    pub fn check(&self) -> Check {
        let each = |(server, reason): &(String, String)| Unchecked {
            server: server.clone(),
            reason: reason.clone(),
        };
        let unchecked: Vec<Unchecked> = self.refused.iter().chain(&self.unasked).map(each).collect();
        let config_hash = self.common().ok().flatten().map(str::to_owned);
        Check {
            checked: unchecked.is_empty() && config_hash.is_some(),
            config_hash,
            servers: self.heard.iter().map(|(server, _)| server.clone()).collect(),
            unchecked,
        }
    }
}

/// What a run has seen of the API servers' encryption configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Check {
    /// Whether every live API server reported the same configuration.
    pub checked: bool,
    /// The hash of the configuration that those that were read report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// The API servers whose metrics were read.
    pub servers: Vec<String>,
    /// Those whose metrics were not read.
    pub unchecked: Vec<Unchecked>,
}

/// An API server whose encryption configuration was not checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unchecked {
    /// The server.
    pub server: String,
    /// Why.
    pub reason: String,
}

impl Check {
    /// Nothing was read, for this reason.
    pub fn none(server: &str, reason: &str) -> Self {
        let unchecked = vec![Unchecked { server: server.to_owned(), reason: reason.to_owned() }];
        Self { unchecked, ..Self::default() }
    }

    /// What holds after another look, if this held before it.
    pub fn and(self, later: Self) -> Self {
        let mut unchecked = self.unchecked;
        unchecked.retain(|one| !later.unchecked.iter().any(|other| other.server == one.server));
        unchecked.extend(later.unchecked);
        Self { checked: self.checked && later.checked, unchecked, ..later }
    }

    /// Why the key is not proven; none when it is.
    pub fn open(&self) -> Option<String> {
        if self.checked {
            return None;
        }
        let each = |one: &Unchecked| format!("{}: {}", one.server, one.reason);
        if !self.unchecked.is_empty() {
            return Some(self.unchecked.iter().map(each).collect::<Vec<_>>().join("; "));
        }
        Some(if self.servers.is_empty() {
            "the API servers' metrics were not read".to_owned()
        } else {
            "no API server reports an encryption configuration in its metrics".to_owned()
        })
    }
}

/// What a run has to prove about the encryption of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// Nothing: the user says that the resource is not encrypted, or its server's key cannot be known.
    Nothing,
    /// API servers that report different configurations stop the run. Where one reports a configuration, which may
    /// cover the resource, every one must; where none does, nothing is missing.
    #[default]
    Reported,
    /// As before, and unreadable metrics leave the run unverified: the resource is usually encrypted.
    Usual,
    /// Every API server must report one configuration: the user says that the resource is encrypted.
    Declared,
}

impl Demand {
    /// What is demanded for a resource, given what the user says is encrypted, if anything.
    pub fn of(resource: &GroupResource, declared: Option<&[Pattern]>) -> Self {
        match declared {
            Some(patterns) if patterns.iter().any(|pattern| pattern.covers(resource)) => Self::Declared,
            Some(_) => Self::Nothing,
            // Secrets are what every encryption configuration covers.
            None if *resource == GroupResource::new("", "secrets") => Self::Usual,
            None => Self::Reported,
        }
    }

    /// Why a run that saw this is not verified; none when nothing that matters went unchecked.
    pub fn unmet(self, check: &Check) -> Option<String> {
        let open = check.open()?;
        let missing = match self {
            Self::Nothing => false,
            Self::Reported => check.config_hash.is_some() && !check.unchecked.is_empty(),
            Self::Usual => !check.unchecked.is_empty() || check.servers.is_empty(),
            Self::Declared => true,
        };
        missing.then_some(open)
    }
}

/// Resources as an EncryptionConfiguration names them: `secrets`, `widgets.example.com`, `*.apps`, `*.`, `*.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// A pattern as it is typed.
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Whether it covers a resource.
    pub fn covers(&self, resource: &GroupResource) -> bool {
        match self.0.strip_prefix("*.") {
            Some("*") => true,
            Some(group) => resource.group == group,
            None => resource.to_string() == self.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_tell_the_configuration() {
        let text = "# HELP apiserver_encryption_config_controller_last_config_info [ALPHA] x\n\
            apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:aa\",hash=\"sha256:bb\"} 1\n\
            apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds{apiserver_id_hash=\"sha256:aa\",status=\"failure\"} 1.5e+09\n\
            apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds{apiserver_id_hash=\"sha256:aa\",status=\"success\"} 1.7e+09\n\
            apiserver_request_total{code=\"200\"} 7\n\
            other_metric{hash=\"sha256:cc\"} 1\n\
            process_start_time_seconds 1.6e+09\n";
        let mut config = Config::default();
        text.lines().for_each(|line| config.read(line));
        let expected = Config {
            hash: Some("sha256:bb".to_owned()),
            reloaded: "1.7e+09".to_owned(),
            id: "sha256:aa".to_owned(),
            started: "1.6e+09".to_owned(),
            complete: true,
            ..Config::default()
        };
        assert_eq!(config, expected);
        assert_eq!(config.process(), "sha256:aa@1.6e+09");
    }

    #[test]
    fn only_metrics_of_an_api_server_show_that_it_has_no_configuration() {
        let whole = "aggregator_unavailable_apiservice 0\n\
            apiserver_audit_event_total 0\n\
            apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:aa\",hash=\"sha256:bb\"} 1\n\
            apiserver_request_total{code=\"200\"} 7\n\
            process_start_time_seconds 1.6e+09\n";
        let until = |end: &str| whole[..whole.find(end).unwrap_or(whole.len())].to_owned();
        for (what, text, complete) in [
            ("all of it", whole.to_owned(), true),
            ("without encryption", whole.replace("encryption_config", "admission"), true),
            ("cut off before encryption", until("apiserver_encryption"), false),
            ("cut off in its middle", until("sha256:bb"), false),
            (
                "somebody else's metrics",
                "go_goroutines 7\nprocess_start_time_seconds 1.6e+09\n".to_owned(),
                false,
            ),
            ("a page", "<html>log in</html>".to_owned(), false),
            ("an object", "{}".to_owned(), false),
            ("nothing", String::new(), false),
        ] {
            let mut config = Config::default();
            text.lines().for_each(|line| config.read(line));
            assert_eq!(config.complete, complete, "{what}");
        }
    }

    #[test]
    fn every_live_server_must_be_met() {
        for (answers, live, expected) in [
            (vec!["x", "y"], 2, None),
            // Two names of one server.
            (vec!["x", "x"], 2, Some("the metrics of 1 of 2 API servers were not met with")),
            (vec!["x", "x"], 1, None),
            (vec!["x", "403"], 2, None),
            (vec!["", ""], 2, Some("the metrics of 1 of 2 API servers were not met with")),
            (vec!["x"], 3, Some("the metrics of 2 of 3 API servers were not met with")),
            (vec!["x"], 0, None),
        ] {
            let answer = |process: &&str| {
                let config = match *process {
                    "403" => Err(Unread::Refused("403".to_owned())),
                    id => Ok(Config { id: id.to_owned(), ..Config::default() }),
                };
                ("s".to_owned(), config)
            };
            let answers: Vec<_> = answers.iter().map(answer).collect();
            assert_eq!(missed(&answers, live).as_deref(), expected, "{answers:?} {live}");
        }
    }

    #[test]
    fn servers_agree_or_not() {
        let ok = |hash: &str| {
            let hash = (hash != "-").then(|| hash.to_owned());
            Ok(Config { hash, ..Config::default() })
        };
        let list = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let down = || Err(Unread::Silent("down".to_owned()));
        let forbidden = || Err(Unread::Refused("forbidden".to_owned()));
        for (answers, expected) in [
            (vec![ok("a")], Some(Word::Agreed("a".to_owned()))),
            (vec![ok("a"), ok("a")], Some(Word::Agreed("a".to_owned()))),
            (vec![ok("a"), ok("b")], Some(Word::Split(list("a b")))),
            (vec![ok("-"), ok("-")], Some(Word::Agreed(UNREPORTED.to_owned()))),
            (vec![ok("-"), ok("b")], Some(Word::Split(list("b unreported")))),
            (vec![ok("a"), down()], Some(Word::Silent(list("a")))),
            (vec![ok("a"), forbidden()], Some(Word::Silent(list("a")))),
            (vec![ok("-"), down()], Some(Word::Silent(list("unreported")))),
            (vec![ok("-"), forbidden()], None),
            (vec![ok("-"), forbidden(), down()], None),
            (vec![down()], Some(Word::Silent(Vec::new()))),
        ] {
            let answers: Vec<_> =
                answers.into_iter().enumerate().map(|(index, answer)| (index.to_string(), answer)).collect();
            assert_eq!(agree(&answers).word, expected, "{answers:?}");
        }
        // The same configuration, taken up again: something else may have been in force in between.
        let at = |time: &str| {
            let config =
                Config { hash: Some("a".to_owned()), reloaded: time.to_owned(), ..Config::default() };
            agree(&[("one".to_owned(), Ok(config))]).seal
        };
        assert_ne!(at("1"), at("2"));
    }

    fn looked(answers: &[&str]) -> Encryption {
        let answer = |(index, answer): (usize, &&str)| {
            let config = match *answer {
                "down" => Err(Unread::Silent("down".to_owned())),
                "403" => Err(Unread::Refused("403".to_owned())),
                hash => Ok(Config { hash: (hash != "-").then(|| hash.to_owned()), ..Config::default() }),
            };
            (format!("s{index}"), config)
        };
        agree(&answers.iter().enumerate().map(answer).collect::<Vec<_>>())
    }

    #[test]
    fn a_key_is_proven_only_if_every_server_reported_it() {
        let unreported = "no API server reports an encryption configuration in its metrics";
        for (answers, open, reported, usual, declared) in [
            (vec!["a", "a"], None, true, true, true),
            (vec!["-", "-"], Some(unreported), true, true, false),
            (vec!["a", "403"], Some("s1: 403"), false, false, false),
            (vec!["-", "403"], Some("s1: 403"), true, false, false),
            (vec!["a", "down"], Some("s1: down"), false, false, false),
            (vec!["403", "down"], Some("s0: 403; s1: down"), true, false, false),
        ] {
            let check = looked(&answers).check();
            assert_eq!(check.open().as_deref(), open, "{answers:?}");
            assert_eq!(Demand::Nothing.unmet(&check), None, "{answers:?}");
            assert_eq!(Demand::Reported.unmet(&check).is_none(), reported, "{answers:?}");
            assert_eq!(Demand::Usual.unmet(&check).is_none(), usual, "{answers:?}");
            assert_eq!(Demand::Declared.unmet(&check).is_none(), declared, "{answers:?}");
        }
        // A checkpoint of a version that did not keep it.
        assert!(Demand::Usual.unmet(&Check::default()).is_some());
    }

    #[test]
    fn both_ends_of_a_pass_count() {
        for (before, after, checked, unchecked) in [
            (vec!["a", "a"], vec!["a", "a"], true, 0),
            (vec!["a", "down"], vec!["a", "a"], false, 1),
            (vec!["a", "a"], vec!["a", "403"], false, 1),
            (vec!["a", "down"], vec!["a", "down"], false, 1),
        ] {
            let both = looked(&before).check().and(looked(&after).check());
            assert_eq!((both.checked, both.unchecked.len()), (checked, unchecked), "{before:?} {after:?}");
        }
    }

    #[test]
    fn what_was_heard_differs_or_not() {
        assert_eq!(looked(&["a", "down"]).common(), Ok(Some("a")));
        assert_eq!(looked(&["-", "-"]).common(), Ok(None));
        assert_eq!(looked(&["down"]).common(), Ok(None));
        assert_eq!(looked(&["-", "b", "403"]).common(), Err(vec![UNREPORTED.to_owned(), "b".to_owned()]));
    }

    #[test]
    fn who_says_what_is_encrypted() {
        let patterns = |text: &str| text.split(',').map(Pattern::new).collect::<Vec<_>>();
        for (resource, declared, expected) in [
            ("secrets", None, Demand::Usual),
            ("configmaps", None, Demand::Reported),
            ("configmaps", Some("configmaps"), Demand::Declared),
            ("secrets", Some("configmaps"), Demand::Nothing),
            ("secrets", Some("none"), Demand::Nothing),
            ("widgets.example.com", Some("secrets,widgets.example.com"), Demand::Declared),
            ("widgets.example.com", Some("*.example.com"), Demand::Declared),
            ("widgets.example.com", Some("*."), Demand::Nothing),
            ("configmaps", Some("*."), Demand::Declared),
            ("widgets.example.com", Some("*.*"), Demand::Declared),
        ] {
            let declared = declared.map(patterns);
            let demand = Demand::of(&GroupResource::parse(resource), declared.as_deref());
            assert_eq!(demand, expected, "{resource} {declared:?}");
        }
    }

    #[test]
    fn reloads_are_told_by_server_and_none_before_the_first() {
        let config = |id: &str, reloaded: &str| {
            let (id, reloaded) = (id.to_owned(), reloaded.to_owned());
            Ok(Config { hash: Some("a".to_owned()), reloaded, id, ..Config::default() })
        };
        let answers = [
            ("one".to_owned(), config("id-1", "1.7e+09")),
            ("two".to_owned(), config("id-2", "")),
            ("three".to_owned(), config("", "1.8e+09")),
            ("four".to_owned(), Err(Unread::Silent("down".to_owned()))),
        ];
        let expected = [("id-1", "1.7e+09"), ("three", "1.8e+09")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(agree(&answers).reloads, BTreeMap::from(expected));
    }
}
