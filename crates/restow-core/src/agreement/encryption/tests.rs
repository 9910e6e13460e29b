//! Tables of what metrics tell and prove.

use super::*;

#[test]
fn the_configuration_is_read_from_metrics() {
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
fn every_live_server_must_be_reached() {
    for (answers, live, expected) in [
        (vec!["x", "y"], 2, None),
        // Two names of one server.
        (vec!["x", "x"], 2, Some("the metrics of 1 of 2 API servers were not read")),
        (vec!["x", "x"], 1, None),
        (vec!["x", "403"], 2, None),
        (vec!["", ""], 2, Some("the metrics of 1 of 2 API servers were not read")),
        (vec!["x"], 3, Some("the metrics of 2 of 3 API servers were not read")),
        (vec!["x"], 0, None),
    ] {
        let answer = |process: &&str| {
            let config = match *process {
                "403" => Err(MetricsError::Refused("403".to_owned())),
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
    let down = || Err(MetricsError::Silent("down".to_owned()));
    let forbidden = || Err(MetricsError::Refused("forbidden".to_owned()));
    for (answers, expected) in [
        (vec![ok("a")], Some(Consensus::Agreed("a".to_owned()))),
        (vec![ok("a"), ok("a")], Some(Consensus::Agreed("a".to_owned()))),
        (vec![ok("a"), ok("b")], Some(Consensus::Split(list("a b")))),
        (vec![ok("-"), ok("-")], Some(Consensus::Agreed(UNREPORTED.to_owned()))),
        (vec![ok("-"), ok("b")], Some(Consensus::Split(list("b unreported")))),
        (vec![ok("a"), down()], Some(Consensus::Silent(list("a")))),
        (vec![ok("a"), forbidden()], Some(Consensus::Silent(list("a")))),
        (vec![ok("-"), down()], Some(Consensus::Silent(list("unreported")))),
        (vec![ok("-"), forbidden()], None),
        (vec![ok("-"), forbidden(), down()], None),
        (vec![down()], Some(Consensus::Silent(Vec::new()))),
    ] {
        let answers: Vec<_> =
            answers.into_iter().enumerate().map(|(index, answer)| (index.to_string(), answer)).collect();
        assert_eq!(agree(&answers).consensus, expected, "{answers:?}");
    }
    // The same configuration, taken up again: something else may have been in force in between.
    let at = |time: &str| {
        let config = Config { hash: Some("a".to_owned()), reloaded: time.to_owned(), ..Config::default() };
        agree(&[("one".to_owned(), Ok(config))]).fingerprint
    };
    assert_ne!(at("1"), at("2"));
}

/// A server that reports a configuration with a KMS v1 plugin.
fn kms_v1() -> Config {
    let mut config = Config { hash: Some("a".to_owned()), ..Config::default() };
    config.read("apiserver_envelope_encryption_dek_cache_inter_arrival_time_seconds_count 1");
    config
}

fn looked(answers: &[&str]) -> Encryption {
    let answer = |(index, answer): (usize, &&str)| {
        let config = match *answer {
            "down" => Err(MetricsError::Silent("down".to_owned())),
            "403" => Err(MetricsError::Refused("403".to_owned())),
            "v1" => Ok(kms_v1()),
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
        // A key that cannot be told is not proven for what is usually encrypted.
        (vec!["v1"], Some("s0: a KMS v1 plugin does not report which key it uses"), true, false, false),
    ] {
        let check = looked(&answers).check();
        assert_eq!(check.open().as_deref(), open, "{answers:?}");
        assert_eq!(KeyRequirement::Nothing.unmet(&check), None, "{answers:?}");
        assert_eq!(KeyRequirement::Reported.unmet(&check).is_none(), reported, "{answers:?}");
        assert_eq!(KeyRequirement::Usual.unmet(&check).is_none(), usual, "{answers:?}");
        assert_eq!(KeyRequirement::Declared.unmet(&check).is_none(), declared, "{answers:?}");
    }
    // A checkpoint of a version that did not keep it.
    assert!(KeyRequirement::Usual.unmet(&Check::default()).is_some());
}

#[test]
fn a_pass_checks_the_keys_at_both_ends() {
    for (before, after, checked, unchecked) in [
        (vec!["a", "a"], vec!["a", "a"], true, 0),
        (vec!["a", "down"], vec!["a", "a"], false, 1),
        (vec!["a", "a"], vec!["a", "403"], false, 1),
        (vec!["a", "down"], vec!["a", "down"], false, 1),
        (vec!["a"], vec!["403"], false, 1),
        (vec!["a"], vec!["down"], false, 1),
    ] {
        let both = looked(&before).check().and(looked(&after).check());
        assert_eq!((both.checked, both.unchecked.len()), (checked, unchecked), "{before:?} {after:?}");
        let unmet = KeyRequirement::Reported.unmet(&both).is_some();
        assert_eq!(unmet, !checked, "a configuration was reported: {before:?} {after:?}");
    }
}

#[test]
fn a_kms_key_is_proven_only_if_reported_after_the_pass_began() {
    let look = |times: [&str; 2]| {
        let config = |time: &str| {
            let mut config = Config { hash: Some("a".to_owned()), ..Config::default() };
            config.read(&format!(
                "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{{key_id_hash=\"k\",provider_name=\"p\"}} {time}"
            ));
            Ok(config)
        };
        agree(&[("one".to_owned(), config(times[0])), ("two".to_owned(), config(times[1]))])
    };
    let first = look(["1.7e+09", "1.7e+09"]);
    for (later, checked) in [
        (["1.7e+09", "1.7e+09"], false),
        (["1.70000006e+09", "1.7e+09"], false),
        (["1.70000006e+09", "1.700000061e+09"], true),
    ] {
        let later = look(later);
        assert_eq!(first.check().is_followed_by(&later), checked, "{later:?}");
        let both = first.check().and(later.check());
        assert_eq!((both.checked, both.open().is_none()), (checked, checked), "{both:?}");
        assert_eq!(KeyRequirement::Usual.unmet(&both).is_none(), checked, "{both:?}");
        // The first look is what counts.
        assert!(both.and(look(["1.8e+09", "1.8e+09"]).check()).named.values().all(|time| time == "1.7e+09"));
    }
    assert!(looked(&["a"]).check().is_followed_by(&looked(&["a"])));
}

#[test]
fn servers_that_report_different_configurations_disagree() {
    assert_eq!(looked(&["a", "down"]).common(), Ok(Some("a")));
    assert_eq!(looked(&["-", "-"]).common(), Ok(None));
    assert_eq!(looked(&["down"]).common(), Ok(None));
    assert_eq!(looked(&["-", "b", "403"]).common(), Err(vec![UNREPORTED.to_owned(), "b".to_owned()]));
}

#[test]
fn the_key_requirement_follows_the_declared_patterns() {
    let patterns = |text: &str| text.split(',').map(Pattern::new).collect::<Vec<_>>();
    for (resource, declared, expected) in [
        ("secrets", None, KeyRequirement::Usual),
        ("configmaps", None, KeyRequirement::Reported),
        ("configmaps", Some("configmaps"), KeyRequirement::Declared),
        ("secrets", Some("configmaps"), KeyRequirement::Nothing),
        ("secrets", Some("none"), KeyRequirement::Nothing),
        ("widgets.example.com", Some("secrets,widgets.example.com"), KeyRequirement::Declared),
        ("widgets.example.com", Some("*.example.com"), KeyRequirement::Declared),
        ("widgets.example.com", Some("*."), KeyRequirement::Nothing),
        ("configmaps", Some("*."), KeyRequirement::Declared),
        ("widgets.example.com", Some("*.*"), KeyRequirement::Declared),
    ] {
        let declared = declared.map(patterns);
        let resource = GroupResource::parse(resource);
        let key_requirement = KeyRequirement::of(&resource, declared.as_deref());
        assert_eq!(key_requirement, expected, "{resource} {declared:?}");
        let controller = KeyRequirement::of_controller(&resource, declared.as_deref());
        let expected = if expected == KeyRequirement::Nothing { KeyRequirement::Reported } else { expected };
        assert_eq!(controller, expected, "{resource} {declared:?}");
    }
}

#[test]
fn reloads_are_listed_by_server_once_they_happen() {
    let config = |id: &str, reloaded: &str| {
        let (id, reloaded) = (id.to_owned(), reloaded.to_owned());
        Ok(Config { hash: Some("a".to_owned()), reloaded, id, ..Config::default() })
    };
    let answers = [
        ("one".to_owned(), config("id-1", "1.7e+09")),
        ("two".to_owned(), config("id-2", "")),
        ("three".to_owned(), config("", "1.8e+09")),
        ("four".to_owned(), Err(MetricsError::Silent("down".to_owned()))),
    ];
    let expected = [("id-1", "1.7e+09"), ("three", "1.8e+09")].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(agree(&answers).reloads, BTreeMap::from(expected));
}
