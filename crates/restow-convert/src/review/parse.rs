//! Reads a ConversionReview within limits, without copying its objects.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::limits::Limits;

/// The group of ConversionReviews.
const GROUP: &str = "apiextensions.k8s.io";
/// Their versions. API servers before Kubernetes 1.16 send v1beta1.
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// More objects are never remembered, only counted.
const MAX_OBJECTS: usize = 1_000_000;

/// What an answer repeats of its review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The apiVersion of the review, not of its objects.
    pub api_version: String,
    /// The review's own id.
    pub uid: String,
}

/// A ConversionReview. Its objects are still text.
#[derive(Debug)]
pub struct Review<'a> {
    pub(super) head: Head,
    desired: Cow<'a, str>,
    objects: Objects<'a>,
    pub(super) limits: Limits,
}

/// Why a body is not a ConversionReview that can be answered.
#[derive(Debug, thiserror::Error)]
pub enum MalformedReview {
    /// The body is longer than is allowed.
    #[error("the body has {bytes} bytes; the limit is {limit}")]
    TooLarge {
        /// The length of the body.
        bytes: usize,
        /// The most that [`Limits`](crate::review::Limits) allow.
        limit: usize,
    },
    /// It is not JSON, or fields are missing or of another type.
    #[error("the body is not a ConversionReview")]
    NotAReview(#[from] serde_json::Error),
    /// It is of another kind or version.
    #[error(
        "expected a ConversionReview of apiextensions.k8s.io/v1 or v1beta1, found {kind} of {api_version}"
    )]
    AnotherKind {
        /// What the body says it is.
        kind: String,
        /// The apiVersion.
        api_version: String,
    },
    /// It has no request.
    #[error("the ConversionReview has no request")]
    NoRequest,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: String,
    #[serde(borrow, rename = "desiredAPIVersion")]
    desired: Cow<'a, str>,
    #[serde(borrow, default)]
    objects: Objects<'a>,
}

/// The texts of the objects, as far as there are not too many.
#[derive(Debug, Default)]
struct Objects<'a> {
    texts: Vec<&'a RawValue>,
    total: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Objects<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Objects<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of objects")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Objects::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut objects = Objects::default();
                while objects.texts.len() < MAX_OBJECTS {
                    let Some(text) = list.next_element()? else { break };
                    objects.texts.push(text);
                }
                objects.total = objects.texts.len();
                while list.next_element::<IgnoredAny>()?.is_some() {
                    objects.total += 1;
                }
                Ok(objects)
            }
        }
        deserializer.deserialize_any(Collect)
    }
}

impl<'a> Review<'a> {
    /// Reads a review.
    ///
    /// # Errors
    /// When it is not a ConversionReview. Everything else that is wrong with it is an answer of its own.
    pub fn parse(body: &'a [u8], limits: Limits) -> Result<Self, MalformedReview> {
        if body.len() > limits.bytes {
            return Err(MalformedReview::TooLarge { bytes: body.len(), limit: limits.bytes });
        }
        let Body { api_version, kind, request } = serde_json::from_slice(body)?;
        let known = |version: &str| {
            version.split_once('/').is_some_and(|(group, name)| group == GROUP && VERSIONS.contains(&name))
        };
        if kind != "ConversionReview" || !known(&api_version) {
            let (kind, api_version) = (shortened(&kind), shortened(&api_version));
            return Err(MalformedReview::AnotherKind { kind, api_version });
        }
        let Request { uid, desired, objects } = request.ok_or(MalformedReview::NoRequest)?;
        let head = Head { api_version: api_version.into_owned(), uid };
        Ok(Self { head, desired, objects, limits })
    }

    /// What the answer repeats.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The wanted apiVersion.
    pub fn desired(&self) -> &str {
        &self.desired
    }

    /// How many objects it has.
    pub fn count(&self) -> usize {
        self.objects.total
    }

    /// The texts of its objects. None if there are too many.
    pub(super) fn texts(&self) -> Option<&[&'a RawValue]> {
        (self.objects.total <= self.most_objects()).then_some(&*self.objects.texts)
    }

    /// How many objects it may have.
    pub(super) fn most_objects(&self) -> usize {
        self.limits.objects.min(MAX_OBJECTS)
    }
}

/// A text of a request, short enough for a message.
fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
