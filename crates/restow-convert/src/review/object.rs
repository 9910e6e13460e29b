//! Converts one object of a review, and checks what the converter did to it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde_json::Value;

use super::limits::{Limits, Scope};
use super::reason::Reason;
use crate::converters::{Converter, Converters};
use crate::convertible::kind_name;
use crate::kept::is_deeper;
use crate::{Convertible as _, Error, metadata};

/// No message repeats more of a name than this: names of Kubernetes objects are not longer.
const LONGEST_NAME: usize = 253;

/// An object's place in the review, and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    index: usize,
    kind: String,
    namespace: String,
    name: String,
}

/// What all objects of a review have in common.
pub(super) struct Task<'a> {
    pub converters: &'a Converters,
    pub scope: Scope<'a>,
    pub desired: &'a str,
    pub limits: Limits,
}

/// An object that was converted, or needs no conversion.
pub(super) enum Converted<'a> {
    AsItWas,
    Anew { object: Value, by: &'a Converter, from: &'a str, to: &'a str },
}

/// Why an object was not converted, and the versions as far as a converter knows them.
pub(super) struct Failed<'a> {
    pub place: Place,
    pub between: Option<(&'a Converter, &'a str, &'a str)>,
    pub error: ObjectError,
}

/// Why an object was not converted.
#[derive(Debug, thiserror::Error)]
pub(super) enum ObjectError {
    #[error("not a Kubernetes object")]
    NotJson(#[source] serde_json::Error),
    #[error("it is nested more than {0} levels deep")]
    TooDeep(usize),
    #[error("this path is for {expected}, not for {found}")]
    AnotherPath { expected: String, found: String },
    #[error("desiredAPIVersion is {desired}, which is not of the group of {found}")]
    AnotherGroup { desired: String, found: String },
    #[error("there is no converter for {0}")]
    NoConverter(String),
    #[error(transparent)]
    Conversion(#[from] Error),
    #[error("the converter panicked; the log of the webhook has the message")]
    Panicked,
    #[error("the converter changed {0}")]
    Changed(&'static str),
    #[error("the converter returned metadata.{0} that is not a map of texts")]
    NotTexts(&'static str),
    #[error("the converter returned an object that cannot be written")]
    NotWritten(#[source] serde_json::Error),
    #[error("the converted objects take more than {0} bytes; list fewer objects at a time")]
    AnswerTooLarge(usize),
    #[error("the conversion was stopped")]
    Stopped,
}

impl ObjectError {
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::NotJson(_) | Self::Conversion(Error::NotAnObject(_)) => Reason::NotAnObject,
            Self::TooDeep(_) | Self::AnswerTooLarge(_) => Reason::TooLarge,
            Self::AnotherPath { .. }
            | Self::AnotherGroup { .. }
            | Self::NoConverter(_)
            | Self::Conversion(Error::WrongKind { .. }) => Reason::UnknownKind,
            Self::Conversion(Error::UnknownVersion { .. }) => Reason::UnknownVersion,
            Self::Conversion(Error::MetadataChanged { .. })
            | Self::Changed(_)
            | Self::NotTexts(_)
            | Self::NotWritten(_) => Reason::BrokenResult,
            Self::Conversion(_) => Reason::Refused,
            Self::Panicked => Reason::Panicked,
            Self::Stopped => Reason::Stopped,
        }
    }
}

impl<'a> Task<'a> {
    /// Converts an object. `proceed` is told of it just before, and stops the conversion with false.
    pub(super) fn convert(
        &self,
        index: usize,
        text: &str,
        proceed: &(dyn Fn(&Place) -> bool + Sync),
    ) -> Result<Converted<'a>, Box<Failed<'a>>> {
        let failed = |place, between, error| Err(Box::new(Failed { place, between, error }));
        let object: Value = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return failed(Place::of_text(index, text), None, ObjectError::NotJson(error)),
        };
        let place = Place::of(index, &object);
        let (converter, from) = match self.converter(&object) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Converted::AsItWas),
            Err(error) => return failed(place, None, error),
        };
        let to = self.desired.rsplit_once('/').map_or(self.desired, |(_, version)| version);
        let (from, to) = match (converter.known(from), converter.known(to)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return failed(place, None, error.into()),
        };
        let converted = if !proceed(&place) {
            Err(ObjectError::Stopped)
        } else {
            self.checked(object, converter, from, to)
        };
        match converted {
            Ok(object) => Ok(Converted::Anew { object, by: converter, from, to }),
            Err(error) => failed(place, Some((converter, from, to)), error),
        }
    }

    /// The converter of an object and its version. None if the object has the wanted version already.
    fn converter<'o>(&self, object: &'o Value) -> Result<Option<(&'a Converter, &'o str)>, ObjectError> {
        let missing = |what| ObjectError::Conversion(Error::NotAnObject(what));
        let text = |field| object.get(field).and_then(Value::as_str);
        let api_version = text("apiVersion").ok_or_else(|| missing("it has no apiVersion"))?;
        let kind = text("kind").ok_or_else(|| missing("it has no kind"))?;
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = || kind_name(shortened(group), shortened(kind));
        if let Some(expected) = self.scope.refuses(group, kind) {
            return Err(ObjectError::AnotherPath { expected, found: found() });
        }
        if self.desired.split_once('/').map_or("", |(group, _)| group) != group {
            let desired = shortened(self.desired).to_owned();
            return Err(ObjectError::AnotherGroup { desired, found: found() });
        }
        if api_version == self.desired {
            return Ok(None);
        }
        let converter = self.converters.get(group, kind);
        converter.map(|converter| Some((converter, version))).ok_or_else(|| ObjectError::NoConverter(found()))
    }

    fn checked(
        &self,
        object: Value,
        converter: &Converter,
        from: &str,
        to: &str,
    ) -> Result<Value, ObjectError> {
        if is_deeper(&object, self.limits.depth) {
            return Err(ObjectError::TooDeep(self.limits.depth));
        }
        if !object.get("metadata").is_some_and(Value::is_object) {
            return Err(Error::NotAnObject("it has no metadata").into());
        }
        let before = metadata::unchangeable(&object);
        // The set of converters is shared by requests, but a panic leaves nothing half done in it: they only read.
        let converted = catch_unwind(AssertUnwindSafe(|| converter.convert(object, to)));
        let converted = converted.map_err(|_| ObjectError::Panicked)??;
        let text = |field| converted.get(field).and_then(Value::as_str);
        if text("kind") != Some(converter.kind()) {
            return Err(ObjectError::Changed("kind"));
        }
        if text("apiVersion") != Some(self.desired) {
            return Err(ObjectError::Changed("apiVersion to another version than the wanted one"));
        }
        let after = converted.get("metadata").unwrap_or(&Value::Null);
        if let Some(field) = metadata::changed_field(&before, after) {
            return Err(Error::MetadataChanged { from: from.to_owned(), to: to.to_owned(), field }.into());
        }
        match metadata::not_texts(after) {
            Some(field) => Err(ObjectError::NotTexts(field)),
            None => Ok(converted),
        }
    }
}

impl Place {
    fn of(index: usize, object: &Value) -> Self {
        let text =
            |value: Option<&Value>| shortened(value.and_then(Value::as_str).unwrap_or_default()).to_owned();
        let metadata = |field| text(object.get("metadata").and_then(|metadata| metadata.get(field)));
        Self {
            index,
            kind: text(object.get("kind")),
            namespace: metadata("namespace"),
            name: metadata("name"),
        }
    }

    /// The name of an object that is nested too deep to be read as a whole.
    pub(super) fn of_text(index: usize, text: &str) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Named {
            kind: String,
            metadata: Metadata,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            namespace: String,
            name: String,
        }
        let Named { kind, metadata } = serde_json::from_str(text).unwrap_or_default();
        let short = |text: String| shortened(&text).to_owned();
        Self { index, kind: short(kind), namespace: short(metadata.namespace), name: short(metadata.name) }
    }

    /// The number of objects before it.
    pub fn index(&self) -> usize {
        self.index
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), self.namespace.as_str(), self.name.as_str()) {
            ("", ..) | (.., "") => write!(f, "object {}", self.index + 1),
            (kind, "", name) => write!(f, "{kind} {name}"),
            (kind, namespace, name) => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

fn shortened(text: &str) -> &str {
    text.char_indices().nth(LONGEST_NAME).map_or(text, |(end, _)| &text[..end])
}
