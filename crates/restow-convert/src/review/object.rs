//! Converts one object of a review, and checks what the converter did to it.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde_json::Value;

use super::limits::{Limits, Scope};
use super::observer::{Observer, Place, shortened};
use super::reason::Reason;
use crate::converters::{Converter, Converters};
use crate::convertible::{MAX_DEPTH, kind_name};
use crate::kept::{Sections, is_deeper};
use crate::untouched::{self, Aside, Untouched};
use crate::{Convertible as _, Error, metadata};

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
    Anew { by: &'a Converter, from: &'a str, to: &'a str },
}

/// What is known of objects of one version of a kind. It is mostly true of the next object too.
pub(super) struct Known<'a> {
    api_version: String,
    kind: String,
    untouched: Option<&'a Untouched>,
}

impl Known<'_> {
    fn is_of(&self, object: &Value) -> bool {
        let text = |field| object.get(field).and_then(Value::as_str);
        text("apiVersion") == Some(&self.api_version) && text("kind") == Some(&self.kind)
    }
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
    #[error("it has {bytes} bytes; the limit is {limit}")]
    TooLarge { bytes: usize, limit: usize },
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
            Self::TooLarge { .. } | Self::TooDeep(_) | Self::AnswerTooLarge(_) => Reason::TooLarge,
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

/// The kind of an object, read without the rest of it.
#[derive(Default, Deserialize)]
struct Kind<'t> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Cow<'t, str>,
    #[serde(borrow)]
    kind: Cow<'t, str>,
}

impl<'a> Task<'a> {
    /// Converts an object and writes it. The observer is told of it just before, and can stop it.
    pub(super) fn convert(
        &self,
        index: usize,
        text: &str,
        known: &mut Option<Known<'a>>,
        observer: &dyn Observer,
        to_bytes: &mut Vec<u8>,
    ) -> Result<Converted<'a>, Box<Failed<'a>>> {
        let failed = |place, between, error| Err(Box::new(Failed { place, between, error }));
        if text.len() > self.limits.object_bytes {
            let error = ObjectError::TooLarge { bytes: text.len(), limit: self.limits.object_bytes };
            return failed(Place::of_text(index, text), None, error);
        }
        let (object, aside) = match self.read(text, known) {
            Ok(read) => read,
            Err(error) => return failed(Place::of_text(index, text), None, ObjectError::NotJson(error)),
        };
        let place = Place::of(index, &object);
        let (converter, from) = match self.converter(&object) {
            Ok(Some(found)) => found,
            Ok(None) => {
                to_bytes.extend_from_slice(text.as_bytes());
                return Ok(Converted::AsItWas);
            }
            Err(error) => return failed(place, None, error),
        };
        let to = self.desired.rsplit_once('/').map_or(self.desired, |(_, version)| version);
        let (from, to) = match (converter.known(from), converter.known(to)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(error), _) | (_, Err(error)) => return failed(place, None, error.into()),
        };
        let converted = if observer.begin(&place) {
            self.written(text, object, &aside, converter, (from, to), to_bytes)
        } else {
            Err(ObjectError::Stopped)
        };
        observer.end(&place);
        match converted {
            Ok(()) => Ok(Converted::Anew { by: converter, from, to }),
            Err(error) => failed(place, Some((converter, from, to)), error),
        }
    }

    /// Reads an object. Fields that its conversion does not touch are set aside.
    fn read<'t>(
        &self,
        text: &'t str,
        known: &mut Option<Known<'a>>,
    ) -> Result<(Value, Aside<'t>), serde_json::Error> {
        if known.is_none() {
            *known = self.known(serde_json::from_str(text).unwrap_or_default());
        }
        if let Some(known) = known
            && let Some(untouched) = known.untouched
            && let Some((object, aside)) = untouched::read(untouched, text, self.limits.depth.min(MAX_DEPTH))
            && known.is_of(&object)
            // What is kept of a field belongs to the whole of it.
            && !Sections::places(&object).iter().any(|place| untouched.has(place))
        {
            return Ok((object, aside));
        }
        let object: Value = serde_json::from_str(text)?;
        if !known.as_ref().is_some_and(|known| known.is_of(&object)) {
            let text = |field| object.get(field).and_then(Value::as_str).unwrap_or_default().into();
            *known = self.known(Kind { api_version: text("apiVersion"), kind: text("kind") });
        }
        Ok((object, Aside::default()))
    }

    /// What is known of all objects of a kind. None if there is no converter for them.
    fn known(&self, Kind { api_version, kind }: Kind<'_>) -> Option<Known<'a>> {
        let (group, from) = api_version.split_once('/').unwrap_or(("", &api_version));
        let to = self.desired.rsplit_once('/').map_or(self.desired, |(_, version)| version);
        let untouched = self.converters.get(group, &kind)?.untouched(from, to);
        Some(Known { api_version: api_version.into_owned(), kind: kind.into_owned(), untouched })
    }

    /// Converts an object and writes it, with what was set aside.
    fn written(
        &self,
        text: &str,
        object: Value,
        aside: &Aside<'_>,
        converter: &Converter,
        (from, to): (&str, &str),
        to_bytes: &mut Vec<u8>,
    ) -> Result<(), ObjectError> {
        let converted = self.checked(object, converter, from, to)?;
        let written = if aside.fits(&converted) {
            aside.write(&converted, to_bytes)
        } else {
            // What was restored took the place of an object that had untouched fields.
            let object = serde_json::from_str(text).map_err(ObjectError::NotJson)?;
            serde_json::to_writer(to_bytes, &self.checked(object, converter, from, to)?)
        };
        written.map_err(ObjectError::NotWritten)
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
