//! Which rules are served, and what is wrong with the others.
//!
//! - For each kind, the oldest object with rules for it counts.
//! - Rules that cannot be used keep what was served for the same kind before, for as long as the process runs.
//! - While API servers call the webhook, rules that were changed are served only when they have passed its gates. Until
//!   then those are served that passed them last, which are kept in the status.
//! - Rules that were deleted are served for as long as API servers call the webhook and the process runs: without them,
//!   objects could not be read.
//! - A CRD that could not be read is not one that does not exist.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::rules::{ConversionRules, compile};
use restow_convert::{Converter, Converters};

use crate::announcement::announced;

/// No message of a condition is longer: Kubernetes allows 32768.
const LONGEST_MESSAGE: usize = 8192;

/// A ConversionRules object as it was read.
#[derive(Clone, Debug)]
pub struct RulesObject {
    /// `metadata.name`, by which objects of the same age are told apart.
    pub name: String,
    /// `metadata.uid`, so that an object that was made again is another one.
    pub uid: String,
    /// `metadata.generation`, which counts changes of the rules.
    pub generation: i64,
    /// When it was created, in seconds.
    pub created: i64,
    /// Its content, or why it cannot be read.
    pub rules: Result<ConversionRules, String>,
    /// The generation and content that passed the gates of the webhook last.
    pub in_force: Option<(i64, ConversionRules)>,
}

/// What is known about the CRD of a kind.
#[derive(Clone, Copy, Debug)]
pub enum Definition<'a> {
    /// It exists.
    Found(&'a CustomResourceDefinition),
    /// There is none.
    Absent,
    /// It could not be read.
    Unreadable(&'a str),
    /// It is none of those that are followed: its rules are left to other webhooks.
    NotFollowed,
}

/// The rules that are served, by the names of their objects.
#[derive(Clone, Debug, Default)]
pub struct Served(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
struct Entry {
    uid: String,
    generation: i64,
    definition: Revision,
    converter: Converter,
}

/// A CRD as it was at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Revision {
    name: String,
    uid: String,
    generation: i64,
}

impl Revision {
    fn of(definition: &CustomResourceDefinition) -> Self {
        let metadata = &definition.metadata;
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
        }
    }
}

/// Whether an object's rules can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// They fit the CRD.
    Valid,
    /// They do not.
    Invalid,
    /// That could not be found out.
    Unknown,
}

/// What is said about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The ConversionRules object that gets it in its status.
    pub name: String,
    /// The generation that this is about.
    pub generation: i64,
    /// Whether its rules can be used.
    pub validity: Validity,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, in a sentence.
    pub message: String,
    /// The generations of rules and CRD that are served for it; zero if none is.
    pub served: (i64, i64),
}

impl Served {
    /// The converters of all rules that are served, and `others` where there are no rules for their kind.
    pub fn converters(&self, others: &[Converter]) -> Converters {
        let ruled: Vec<_> = self.0.values().map(|entry| entry.converter.clone()).collect();
        let is_ruled = |other: &&Converter| {
            ruled.iter().any(|own| (own.group(), own.kind()) == (other.group(), other.kind()))
        };
        let mut unruled: Vec<Converter> = Vec::new();
        for other in others.iter().filter(|other| !is_ruled(other)) {
            if !unruled.iter().any(|known| (known.group(), known.kind()) == (other.group(), other.kind())) {
                unruled.push(other.clone());
            }
        }
        // Neither part has two for one kind, and they have none in common.
        Converters::new(ruled.into_iter().chain(unruled)).unwrap_or_default()
    }

    /// The names of the CRDs that rules are served for.
    pub fn crds(&self) -> Vec<String> {
        self.0.values().map(|entry| entry.definition.name.clone()).collect()
    }

    /// The converter that rules give for a CRD, by the CRD's name.
    pub fn for_crd(&self, name: &str) -> Option<&Converter> {
        self.0.values().find(|entry| entry.definition.name == name).map(|entry| &entry.converter)
    }

    /// The name of the object whose rules are served for a CRD.
    pub fn rules_for_crd(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(_, entry)| entry.definition.name == name).map(|(rules, _)| rules.as_str())
    }
}

/// Decides what is served from now on, and what to say about each object.
pub fn plan<'a>(
    objects: &[RulesObject],
    definition: impl Fn(&str, &str) -> Definition<'a>,
    before: &Served,
) -> (Served, Vec<Verdict>) {
    let mut sorted: Vec<_> = objects.iter().collect();
    sorted.sort_by_key(|object| (object.created, &object.name));
    let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for object in &sorted {
        if let Ok(rules) = &object.rules {
            owners.entry((&rules.spec.group, &rules.spec.kind)).or_insert(&object.name);
        }
    }
    let mut served = Served::default();
    let mut verdicts = Vec::new();
    let is_followed = |object: &&RulesObject| match &object.rules {
        Ok(rules) => !matches!(definition(&rules.spec.group, &rules.spec.kind), Definition::NotFollowed),
        // It may be for any kind.
        Err(_) => true,
    };
    for object in sorted.into_iter().filter(is_followed) {
        let last = before.0.get(&object.name).filter(|last| is_last_good(last, object, &owners));
        let in_force = in_force(object, &definition, last, &owners);
        let (entry, validity, reason, message) = match judge(object, &definition, last, &owners) {
            Ok(entry) => {
                let versions = entry.converter.versions().join(", ");
                let mut message = format!("{versions} of {}", entry.definition.name);
                if let Some(in_force) = &in_force {
                    let generation = in_force.generation;
                    message.push_str(&format!(
                        "; generation {generation} is served until these rules have passed the gates of the webhook"
                    ));
                }
                (Some(in_force.unwrap_or(entry)), Validity::Valid, "Compiled", message)
            }
            Err((validity, reason, message)) => {
                let kept = in_force.or_else(|| last.cloned());
                let message = keeping(message, kept.as_ref());
                (kept, validity, reason, message)
            }
        };
        verdicts.push(Verdict {
            name: object.name.clone(),
            generation: object.generation,
            validity,
            reason,
            message,
            served: entry.as_ref().map_or((0, 0), |entry| (entry.generation, entry.definition.generation)),
        });
        served.0.extend(entry.map(|entry| (object.name.clone(), entry)));
    }
    let gone = before.0.iter().filter(|(name, _)| objects.iter().all(|object| object.name != **name));
    let needed = gone.filter(|(_, entry)| {
        let kind = (entry.converter.group(), entry.converter.kind());
        let called = matches!(definition(kind.0, kind.1), Definition::Found(crd) if announced(crd).is_some());
        called && !owners.contains_key(&kind)
    });
    served.0.extend(needed.map(|(name, entry)| (name.clone(), entry.clone())));
    (served, verdicts)
}

/// Whether what was served before may go on if the object cannot be used: it is the same object and kind, and no other
/// object has rules for that kind now.
fn is_last_good(last: &Entry, object: &RulesObject, owners: &BTreeMap<(&str, &str), &str>) -> bool {
    let kind = (last.converter.group(), last.converter.kind());
    let same_kind =
        object.rules.as_ref().map_or(true, |rules| kind == (&*rules.spec.group, &*rules.spec.kind));
    last.uid == object.uid && same_kind && owners.get(&kind).is_none_or(|owner| *owner == object.name)
}

fn judge<'a>(
    object: &RulesObject,
    definition: &impl Fn(&str, &str) -> Definition<'a>,
    last: Option<&Entry>,
    owners: &BTreeMap<(&str, &str), &str>,
) -> Result<Entry, Problem> {
    let unreadable = |problem: &String| (Validity::Invalid, "CannotBeRead", problem.clone());
    let rules = object.rules.as_ref().map_err(unreadable)?;
    let kind = (&*rules.spec.group, &*rules.spec.kind);
    match owners.get(&kind) {
        Some(owner) if *owner != object.name => {
            let message = format!("{owner} has rules for the same kind, and is older");
            Err((Validity::Invalid, "AnotherIsServed", message))
        }
        _ => entry(object, rules, definition(kind.0, kind.1), last),
    }
}

/// What is served instead of changed rules that have not passed the gates of the webhook, while API servers call it.
fn in_force<'a>(
    object: &RulesObject,
    definition: &impl Fn(&str, &str) -> Definition<'a>,
    last: Option<&Entry>,
    owners: &BTreeMap<(&str, &str), &str>,
) -> Option<Entry> {
    let (generation, rules) = object.in_force.as_ref().filter(|(passed, _)| *passed != object.generation)?;
    let kind = (rules.spec.group.as_str(), rules.spec.kind.as_str());
    let same_kind = object.rules.as_ref().map_or(true, |now| kind == (&*now.spec.group, &*now.spec.kind));
    let is_owner = owners.get(&kind).is_none_or(|owner| *owner == object.name);
    let Definition::Found(crd) = definition(kind.0, kind.1) else { return None };
    if !same_kind || !is_owner || announced(crd).is_none() {
        return None;
    }
    let passed = RulesObject { generation: *generation, ..object.clone() };
    let entry = entry(&passed, rules, Definition::Found(crd), last).ok();
    // The CRD may have changed since, together with the rules.
    entry.or_else(|| last.filter(|last| last.generation == *generation).cloned())
}

fn keeping(mut message: String, last: Option<&Entry>) -> String {
    if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    match last {
        Some(entry) => format!("{message}; generation {} is still served", entry.generation),
        None => format!("{message}; nothing is served"),
    }
}

type Problem = (Validity, &'static str, String);

fn entry(
    object: &RulesObject,
    rules: &ConversionRules,
    definition: Definition<'_>,
    last: Option<&Entry>,
) -> Result<Entry, Problem> {
    let (group, kind) = (&rules.spec.group, &rules.spec.kind);
    let definition = match definition {
        Definition::Found(definition) => definition,
        Definition::Absent | Definition::NotFollowed => {
            let message = format!("there is no CRD for {kind}.{group}; create it");
            return Err((Validity::Invalid, "NoDefinition", message));
        }
        Definition::Unreadable(problem) => {
            let message = format!("the CRD for {kind}.{group} could not be read: {problem}");
            return Err((Validity::Unknown, "DefinitionUnreadable", message));
        }
    };
    let revision = Revision::of(definition);
    if let Some(last) =
        last.filter(|last| last.generation == object.generation && last.definition == revision)
    {
        return Ok(last.clone());
    }
    let chain = compile(&rules.spec, definition).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        (Validity::Invalid, "DoesNotCompile", problems.join("\n"))
    })?;
    Ok(Entry {
        uid: object.uid.clone(),
        generation: object.generation,
        definition: revision,
        converter: chain.into(),
    })
}

#[cfg(test)]
mod tests;
