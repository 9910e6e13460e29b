//! Tries a conversion on objects: each is converted to every other version and back.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::kept::{Counterpart, Sections, compare};
use crate::schema::Schema;
use crate::{Chain, Convertible, Error, causes};

/// What came of the conversions from one version to another one and back.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// The version of the objects.
    pub from: String,
    /// The version that they were converted to.
    pub to: String,
    /// How many objects were tried.
    pub objects: usize,
    /// The objects that could not be converted, and why.
    pub refused: Vec<Refusal>,
    /// The fields that did not come back as they were, and in how many objects.
    pub lost: BTreeMap<String, usize>,
    /// The fields that the other version cannot express, which are kept in the annotation, and in how many objects.
    pub kept: BTreeMap<String, usize>,
}

/// An object that could not be converted.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The name of the object, or where it was read.
    pub object: String,
    /// Why.
    pub message: String,
}

/// Tries a chain on objects, each with a name for reports.
///
/// # Errors
/// When an object is of another kind, or of a version that the chain does not have.
pub fn try_on(chain: &Chain, objects: Vec<(String, Value)>) -> Result<Vec<Trial>, (String, Error)> {
    let mut trials: BTreeMap<(usize, usize), Trial> = BTreeMap::new();
    for (name, object) in objects {
        let from = match chain.place(&object) {
            Ok(place) => place,
            Err(error) => return Err((name, error)),
        };
        for to in (0..chain.versions().len()).filter(|to| *to != from) {
            let trial = trials.entry((from, to)).or_insert_with(|| Trial {
                from: chain.versions()[from].clone(),
                to: chain.versions()[to].clone(),
                ..Trial::default()
            });
            trial.add(chain, &name, &object);
        }
    }
    Ok(trials.into_values().collect())
}

/// The fields of an object that did not come back as they were, such as `spec.ports[].name`. What came back besides, like
/// a default, is not lost.
pub fn lost_fields(object: &Value, back: &Value) -> Vec<String> {
    let kept = compare(Some(object), Some(back), Counterpart::Unknown, Schema::default());
    let entries = kept.map(|kept| kept.into_entries()).unwrap_or_default();
    let lost = entries.iter().filter(|entry| entry.replacement.value.is_some() || !entry.order.is_empty());
    let mut places: Vec<_> = lost.map(|entry| entry.pattern()).collect();
    places.sort();
    places.dedup();
    places
}

impl Trial {
    /// Whether every object was converted and came back as it was.
    pub fn is_clean(&self) -> bool {
        self.refused.is_empty() && self.lost.is_empty()
    }

    fn add(&mut self, chain: &Chain, name: &str, object: &Value) {
        self.objects += 1;
        match self.round_trip(chain, object) {
            Ok((kept, lost)) => {
                kept.into_iter().for_each(|place| *self.kept.entry(place).or_default() += 1);
                lost.into_iter().for_each(|place| *self.lost.entry(place).or_default() += 1);
            }
            Err(error) => {
                self.refused.push(Refusal { object: name.to_owned(), message: causes(&error) });
            }
        }
    }

    fn round_trip(&self, chain: &Chain, object: &Value) -> Result<(Vec<String>, Vec<String>), Error> {
        let mut converted = chain.convert(object.clone(), &self.to)?;
        let back = chain.convert(converted.clone(), &self.from)?;
        let kept = Sections::take(&mut converted).remove(&self.from);
        let lost = compare(Some(object), Some(&back), Counterpart::Unknown, Schema::default());
        let lost = lost.map(|lost| lost.into_entries()).unwrap_or_default();
        let places = |entries: Vec<crate::kept::Entry>| {
            let mut places: Vec<_> = entries.iter().map(|entry| entry.pattern()).collect();
            places.sort();
            places.dedup();
            places
        };
        Ok((places(kept), places(lost)))
    }
}
