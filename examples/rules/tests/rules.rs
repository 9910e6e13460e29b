//! The rules do what the code of `examples/operator` does.
#![allow(clippy::unwrap_used, missing_docs)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{ConversionRules, compile, generate};
use restow_convert::{Chain, Convertible as _, Generator, try_on};
use restow_convert_test::{Failures, Fixtures, RoundTrips};

fn definition() -> CustomResourceDefinition {
    serde_saphyr::from_str(rules::CRD).unwrap()
}

fn rules() -> ConversionRules {
    serde_saphyr::from_str(rules::RULES).unwrap()
}

fn converter() -> Chain {
    compile(&rules().spec, &definition()).unwrap()
}

/// Addresses that can be split.
fn addresses(path: &[String]) -> Vec<String> {
    match path.last().map(String::as_str) {
        Some("address") => ["a", "a:80", "a:08080"].map(str::to_owned).to_vec(),
        _ => Vec::new(),
    }
}

#[test]
fn the_rules_give_the_snapshots_of_the_code() -> Result<(), Failures> {
    let fixtures = Fixtures::at(concat!(env!("CARGO_MANIFEST_DIR"), "/../operator/tests/fixtures"));
    fixtures.update(false).check(&converter())
}

#[test]
fn rules_and_code_convert_every_generated_page_alike() {
    let (code, rules) = (operator::chain(&operator::definition("v1").unwrap()).unwrap(), converter());
    for from in rules.versions() {
        let mut generator = Generator::new(7, &addresses);
        for number in 0..100 {
            let api_version = format!("example.com/{from}");
            let page =
                generator.object(&api_version, "Page", &number.to_string(), rules.schema(from).unwrap());
            for to in rules.versions() {
                let by_rules = rules.convert(page.clone(), to).unwrap();
                assert_eq!(by_rules, code.convert(page.clone(), to).unwrap(), "{page} to {to}");
            }
        }
    }
}

#[test]
fn generated_pages_survive_every_way() -> Result<(), Failures> {
    let objects = generate(&rules().spec, &converter(), 100, 7);
    for trial in try_on(&converter(), objects).unwrap() {
        assert!(trial.is_clean(), "{trial:#?}");
    }
    RoundTrips::of(&definition()).texts(addresses).check(&converter())
}
