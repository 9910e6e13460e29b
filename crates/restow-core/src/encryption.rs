//! Whether all API servers write under one encryption configuration.

use std::collections::BTreeSet;

use crate::trigger::Word;

/// Stands for the hash of a server that reports none: it has no configuration, or one it does not reload by itself.
pub const UNREPORTED: &str = "unreported";

/// The metric that names the configuration an API server uses.
const INFO: &str = "apiserver_encryption_config_controller_last_config_info{";
/// The metric that tells when it last took one up.
const RELOADED: &str = "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds{";

/// What one API server's metrics say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The hash of its configuration; none when it has none.
    pub hash: Option<String>,
    /// When it took one up, in the server's own words.
    pub reloaded: String,
    /// Which server it is, as a hash of its identity.
    pub id: String,
}

impl Config {
    /// Takes one line of metrics in.
    pub fn read(&mut self, line: &str) {
        if let Some(labels) = line.strip_prefix(INFO) {
            self.hash = label(labels, "hash").map(str::to_owned);
            self.id = label(labels, "apiserver_id_hash").unwrap_or_default().to_owned();
        } else if let Some(rest) = line.strip_prefix(RELOADED)
            && label(rest, "status") == Some("success")
        {
            let value = rest.rsplit_once(' ').map_or("", |(_, value)| value);
            self.reloaded = value.trim().to_owned();
        }
    }
}

/// The value of one label, in `a="x",b="y"} 1`.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let labels = labels.split_once('}').map_or(labels, |(labels, _)| labels);
    labels.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

/// What all servers' configurations come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Their word; none when not all could be asked, and those that could have nothing to report.
    pub word: Option<Word>,
    /// Changes whenever one of them has taken a configuration up.
    pub seal: String,
    /// Those that could not be asked, and why.
    pub unasked: Vec<(String, String)>,
}

/// Puts the servers' answers together.
pub fn agree(answers: &[(String, Result<Config, String>)]) -> Encryption {
    let heard: Vec<&Config> = answers.iter().filter_map(|(_, config)| config.as_ref().ok()).collect();
    let unasked: Vec<(String, String)> = answers
        .iter()
        .filter_map(|(server, config)| config.as_ref().err().map(|why| (server.clone(), why.clone())))
        .collect();
    let hash = |config: &&Config| config.hash.clone().unwrap_or_else(|| UNREPORTED.to_owned());
    let hashes: Vec<String> = heard.iter().map(hash).collect::<BTreeSet<_>>().into_iter().collect();
    let word = match hashes.as_slice() {
        [one] if unasked.is_empty() => Some(Word::Agreed(one.clone())),
        [_, ..] if unasked.is_empty() => Some(Word::Split(hashes)),
        // Nothing says that this cluster encrypts at all.
        [one] if one == UNREPORTED => None,
        _ => Some(Word::Silent(hashes)),
    };
    let seal = |(server, config): &(String, Result<Config, String>)| {
        let config = config.as_ref().ok().cloned().unwrap_or_default();
        format!("{server}={}@{}", config.hash.unwrap_or_default(), config.reloaded)
    };
    Encryption { word, seal: answers.iter().map(seal).collect::<Vec<_>>().join(" "), unasked }
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
            other_metric{hash=\"sha256:cc\"} 1\n";
        let mut config = Config::default();
        text.lines().for_each(|line| config.read(line));
        let expected = Config {
            hash: Some("sha256:bb".to_owned()),
            reloaded: "1.7e+09".to_owned(),
            id: "sha256:aa".to_owned(),
        };
        assert_eq!(config, expected);
    }

    #[test]
    fn servers_agree_or_not() {
        let ok = |hash: &str| {
            let hash = (hash != "-").then(|| hash.to_owned());
            Ok(Config { hash, ..Config::default() })
        };
        let list = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for (answers, expected) in [
            (vec![ok("a")], Some(Word::Agreed("a".to_owned()))),
            (vec![ok("a"), ok("a")], Some(Word::Agreed("a".to_owned()))),
            (vec![ok("a"), ok("b")], Some(Word::Split(list("a b")))),
            (vec![ok("-"), ok("-")], Some(Word::Agreed(UNREPORTED.to_owned()))),
            (vec![ok("-"), ok("b")], Some(Word::Split(list("b unreported")))),
            (vec![ok("a"), Err("down".to_owned())], Some(Word::Silent(list("a")))),
            (vec![ok("-"), Err("down".to_owned())], None),
            (vec![Err("down".to_owned())], Some(Word::Silent(Vec::new()))),
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
}
