//! Summarizes a Conversion for display, given the time.

use jiff::Timestamp;
use kube::ResourceExt as _;
use restow_api::ConversionConditionType as Condition;
use restow_api::{Conversion, RefusedObject};
use serde::Serialize;

use crate::render::migration::seconds;
use crate::render::table::Row;

/// The columns of the table of Conversions.
pub(crate) const HEADER: [&str; 6] = ["CONVERSION", "KIND", "VERSIONS", "PHASE", "PROGRESS", "AGE"];
/// How many refused objects are shown below a Conversion.
const SHOWN: usize = 3;

/// The summary of a Conversion.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversionSummary {
    pub(crate) name: String,
    group: String,
    kind: String,
    old_version: String,
    new_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    /// How many objects would not survive.
    refused: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused_objects: Vec<RefusedObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    created: Option<Timestamp>,
    #[serde(skip)]
    age: Option<f64>,
}

impl ConversionSummary {
    /// Summarizes a Conversion now.
    pub(crate) fn of(object: &Conversion, now: Timestamp) -> Self {
        let (spec, status) = (&object.spec, object.status.clone().unwrap_or_default());
        let told = [Condition::Failed, Condition::Succeeded].into_iter().find(|one| status.is(*one));
        let told = status.condition(told.unwrap_or(Condition::Running));
        let checks = [&status.check, &status.recheck].into_iter().flatten();
        let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let checked = status.check.as_ref().filter(|check| !check.completed);
        let percent = status.progress.as_ref().and_then(|progress| progress.percent.clone());
        Self {
            name: object.name_any(),
            group: spec.group.clone(),
            kind: spec.kind.clone(),
            old_version: spec.old_version.clone(),
            new_version: spec.new_version.clone(),
            resource: status.resource.clone(),
            phase: status.phase.clone().unwrap_or_else(|| "Waiting".to_owned()),
            step: status.step.clone(),
            progress: percent.or_else(|| checked.map(|check| format!("{} checked", check.objects))),
            refused: checks.map(|check| check.refused).sum(),
            refused_objects: status.refused.clone(),
            reason: told.map(|one| one.reason.clone()),
            message: told.map(|one| one.message.clone()).filter(|message| !message.is_empty()),
            created,
            age: created.map(|created| now.duration_since(created).as_secs_f64().max(0.0)),
        }
    }

    /// Whether one of the names is that of the Conversion, of its kind or of its resource.
    pub(crate) fn is_named(&self, typed: &str) -> bool {
        let resource = self.resource.as_deref();
        let plural = resource.and_then(|resource| resource.split_once('.')).map(|(plural, _)| plural);
        self.name == typed || resource == Some(typed) || plural == Some(typed)
    }

    /// Sorts those that have not succeeded first, then by name.
    pub(crate) fn order(&self) -> (bool, &str) {
        (self.phase == "Succeeded", &self.name)
    }

    fn place(&self) -> String {
        match &self.step {
            Some(step) => format!("{}: {step}", self.phase),
            None => self.phase.clone(),
        }
    }

    /// The row in the table, and the lines below it.
    pub(crate) fn row(&self) -> Row {
        let cells = vec![
            self.name.clone(),
            self.kind.clone(),
            format!("{} to {}", self.old_version, self.new_version),
            self.place(),
            self.progress.clone().unwrap_or_default(),
            self.age.map(seconds).unwrap_or_default(),
        ];
        let ended_well = self.phase == "Succeeded";
        let mut beneath: Vec<String> = self.message.iter().filter(|_| !ended_well).cloned().collect();
        let name = |object: &RefusedObject| match object.namespace.as_str() {
            "" => object.name.clone(),
            namespace => format!("{namespace}/{}", object.name),
        };
        let shown = self.refused_objects.iter().take(SHOWN);
        beneath.extend(shown.map(|object| format!("refused {}: {}", name(object), object.message)));
        Row { cells, beneath }
    }

    /// The summary in one line.
    pub(crate) fn line(&self) -> String {
        let progress = self.progress.as_ref().map(|progress| format!(", {progress}")).unwrap_or_default();
        let message = self.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        format!("conversion {}: {}{progress}{message}", self.name, self.place())
    }
}
