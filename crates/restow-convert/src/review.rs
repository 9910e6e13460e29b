//! Answers a ConversionReview: what an API server asks of a conversion webhook.
//!
//! [`Review::parse`] reads the body within limits and copies none of its objects. [`Review::convert`] converts one object
//! after the other and writes each into the answer, so at no time is there more than one object in memory besides the
//! body and the answer. [`Review::convert_on`] does the same on several threads, each with one object.
//!
//! The rules of the answer:
//!
//! - Its apiVersion and uid are those of the review. There are as many objects as in the review, in the same order.
//! - Kind, name, namespace, uid and all other metadata but labels and annotations are those of the original.
//! - An object that has the wanted version already is passed on byte for byte.
//! - If one object cannot be converted, the whole review fails, as Kubernetes expects. The message names the object.

mod answer;
mod blocks;
mod convert;
mod limits;
mod object;
mod observer;
mod parse;
mod reason;

pub use answer::{Answer, Body, Failure, Pair, PairCount, failure};
pub use limits::{Limits, Scope};
pub use observer::{Observer, Place};
pub use parse::{Head, MalformedReview, Review};
pub use reason::Reason;
