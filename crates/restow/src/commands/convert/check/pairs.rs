//! What would be lost, by pair of versions and field.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use restow_convert::Trial;
use serde::Serialize;
use serde_json::Value;

use crate::render::text::counted;

/// How many objects are named for each pair.
const NAMED: usize = 20;
/// How many of them a person sees.
const SHOWN: usize = 5;

/// What was found, for all pairs of versions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pairs {
    resource: String,
    /// Who converted.
    by: &'static str,
    /// What could not be checked, and why.
    not_checked: BTreeSet<String>,
    /// Versions that nobody can read or write.
    not_served: BTreeSet<String>,
    #[serde(serialize_with = "values")]
    pairs: BTreeMap<(String, String), Pair>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    from: String,
    to: String,
    objects: u64,
    refused: u64,
    /// Objects that would lose something.
    losing: u64,
    /// The fields that would be lost, and in how many objects.
    lost: BTreeMap<String, u64>,
    /// The fields that the rules say may be lost.
    accepted: BTreeSet<String>,
    /// The fields that are kept in the annotation, and in how many objects.
    kept: BTreeMap<String, u64>,
    /// Some of these objects, and why.
    named: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    object: String,
    message: String,
}

fn values<S: serde::Serializer>(
    pairs: &BTreeMap<(String, String), Pair>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(pairs.values())
}

impl Pairs {
    pub(super) fn new(resource: String, by: &'static str) -> Self {
        Self {
            resource,
            by,
            not_checked: BTreeSet::new(),
            not_served: BTreeSet::new(),
            pairs: BTreeMap::new(),
        }
    }

    fn of(&mut self, from: &str, to: &str) -> &mut Pair {
        let new = || Pair { from: from.to_owned(), to: to.to_owned(), ..Pair::default() };
        self.pairs.entry((from.to_owned(), to.to_owned())).or_insert_with(new)
    }

    pub(super) fn not_checked(&mut self, what: String) {
        self.not_checked.insert(what);
    }

    pub(super) fn not_served(&mut self, version: String) {
        self.not_served.insert(version);
    }

    pub(super) fn counted(&mut self, from: &str, to: &str, objects: u64) {
        self.of(from, to).objects += objects;
    }

    pub(super) fn refused(&mut self, from: &str, to: &str, object: &str, message: &str) {
        let pair = self.of(from, to);
        pair.refused += 1;
        pair.name(object, format!("cannot be converted: {message}"));
    }

    pub(super) fn lost(&mut self, from: &str, to: &str, object: &str, fields: Vec<String>) {
        if fields.is_empty() {
            return;
        }
        let pair = self.of(from, to);
        pair.losing += 1;
        pair.name(object, format!("would lose {}", fields.join(", ")));
        for field in fields {
            *pair.lost.entry(field).or_default() += 1;
        }
    }

    /// Which objects would not survive, and what they would lose; the rest is counted.
    pub(super) fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        for pair in self.pairs.values() {
            losses.extend(pair.named.iter().map(|named| format!("{} {}", named.object, named.message)));
            let more = (pair.refused + pair.losing).saturating_sub(pair.named.len() as u64);
            if more > 0 {
                losses.push(format!("and {} more from {}", counted(more, "object"), pair.from));
            }
        }
        losses
    }

    /// Adds what came of the trial of one object.
    pub(super) fn tried(&mut self, object: &str, trial: &Trial, accepted: Vec<String>) {
        self.counted(&trial.from, &trial.to, 1);
        for refusal in &trial.refused {
            self.refused(&trial.from, &trial.to, object, &refusal.message);
        }
        self.lost(&trial.from, &trial.to, object, trial.lost.keys().cloned().collect());
        let pair = self.of(&trial.from, &trial.to);
        pair.accepted.extend(accepted);
        trial.kept.keys().for_each(|field| *pair.kept.entry(field.clone()).or_default() += 1);
    }

    /// 0 only if nothing would be lost and everything that clients can read was checked.
    pub(super) fn exit_code(&self) -> u8 {
        let is_clean = self.pairs.values().all(|pair| pair.refused == 0 && pair.losing == 0);
        match (is_clean, self.not_checked.is_empty()) {
            (false, _) => 3,
            (true, false) => 4,
            (true, true) => 0,
        }
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}, converted by {}\n", self.resource, self.by);
        if self.pairs.is_empty() {
            text.push_str("  there is nothing to convert\n");
        }
        for pair in self.pairs.values() {
            text.push_str(&pair.text());
        }
        for what in &self.not_checked {
            let _ = writeln!(text, "not checked: {what}");
        }
        for version in &self.not_served {
            let _ = writeln!(text, "not served: {version}");
        }
        text
    }
}

impl Pair {
    fn name(&mut self, object: &str, message: String) {
        if self.named.len() < NAMED {
            self.named.push(Named { object: object.to_owned(), message });
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "  {} to {} and back: {}, {} refused, {} would lose something\n",
            self.from,
            self.to,
            counted(self.objects, "object"),
            self.refused,
            self.losing,
        );
        for (field, objects) in &self.lost {
            let _ = writeln!(text, "    lost: {field} (in {})", counted(*objects, "object"));
        }
        for named in self.named.iter().take(SHOWN) {
            let _ = writeln!(text, "    {}: {}", named.object, named.message);
        }
        let more = (self.refused + self.losing).saturating_sub(SHOWN as u64);
        if more > 0 {
            let _ = writeln!(text, "    and {more} more; -o json names up to {NAMED}");
        }
        for field in &self.accepted {
            let _ = writeln!(text, "    lost, as the rules accept: {field}");
        }
        for (field, objects) in &self.kept {
            let _ =
                writeln!(text, "    kept in the annotation: {field} (in {})", counted(*objects, "object"));
        }
        text
    }
}

/// The fields of an object that another one lacks or has with another value; elements of lists count as one field.
pub(super) fn differences(before: &Value, after: &Value) -> Vec<String> {
    let mut found = BTreeSet::new();
    compare(before, after, "", &mut found);
    found.into_iter().collect()
}

fn compare(before: &Value, after: &Value, path: &str, found: &mut BTreeSet<String>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(one, other, &place, found),
                    _ => drop(found.insert(place)),
                }
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            one.iter().zip(other).for_each(|(one, other)| compare(one, other, &format!("{path}[]"), found));
        }
        _ if before != after => drop(found.insert(path.to_owned())),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_named_by_field() {
        let before = json!({"a": 1, "b": {"c": [1, {"d": 2}]}, "gone": null, "list": [1]});
        for (after, expected) in [
            (before.clone(), &[][..]),
            (json!({"a": 2, "b": {"c": [1, {"d": 2}]}, "gone": null, "list": [1]}), &["a"]),
            (json!({"a": 1, "b": {"c": [1, {"d": 3}]}, "list": [1]}), &["b.c[].d", "gone"]),
            (json!({"a": 1, "b": {}, "gone": null, "list": [1, 2], "new": 0}), &["b.c", "list", "new"]),
        ] {
            assert_eq!(differences(&before, &after), expected, "{after}");
        }
    }

    #[test]
    fn what_was_not_checked_is_never_a_success() {
        let mut pairs = Pairs::new("widgets.example.com".to_owned(), "API server");
        pairs.counted("v1", "v2", 30);
        pairs.not_served("v3".to_owned());
        assert_eq!(pairs.exit_code(), 0);
        pairs.not_checked("v2 to v1: forbidden".to_owned());
        assert_eq!(pairs.exit_code(), 4);
        pairs.lost("v1", "v2", "default/w", vec!["spec.size".to_owned()]);
        assert_eq!(pairs.exit_code(), 3);
    }

    #[test]
    fn the_report_names_some_objects_and_counts_all() {
        let mut pairs = Pairs::new("widgets.example.com".to_owned(), "rules");
        pairs.counted("v1", "v2", 30);
        pairs.counted("v2", "v1", 30);
        for index in 0..25 {
            pairs.lost("v1", "v2", &format!("default/w-{index:02}"), vec!["spec.size".to_owned()]);
        }
        pairs.refused("v1", "v2", "default/w-99", "spec.mode: no name for \"odd\"");
        pairs.not_checked("v2 to v1: forbidden".to_owned());
        pairs.not_served("v3".to_owned());
        assert_eq!(pairs.exit_code(), 3);
        crate::snapshots::check("convert/check", &pairs.text());
        let json = serde_json::to_value(&pairs).unwrap();
        assert_eq!(json["pairs"][0]["named"].as_array().map(Vec::len), Some(NAMED));
        assert_eq!(json["pairs"][0]["losing"], 25);
    }
}
