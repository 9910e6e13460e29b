//! The answer to a review.

use serde_json::json;

use super::parse::Head;
use super::reason::Reason;
use crate::converters::Converter;

/// Two versions of a kind that objects were converted between. The converter knows all of these names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// The API group.
    pub group: String,
    /// The kind of the objects, such as Widget.
    pub kind: String,
    /// The version of the objects.
    pub from: String,
    /// The wanted version.
    pub to: String,
}

impl Pair {
    pub(super) fn of(by: &Converter, from: &str, to: &str) -> Self {
        let (group, kind) = (by.group().to_owned(), by.kind().to_owned());
        Self { group, kind, from: from.to_owned(), to: to.to_owned() }
    }
}

/// How many objects of a review were converted between two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairCount {
    /// Between which versions, and of which kind.
    pub pair: Pair,
    /// How many objects.
    pub objects: u64,
}

/// Why a review failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In one word.
    pub reason: Reason,
    /// The versions of the object that it failed on, if a converter knows them.
    pub pair: Option<Pair>,
    /// What the API server's client reads.
    pub message: String,
}

/// The answer to a review, and what it says in numbers.
#[derive(Debug)]
pub struct Answer {
    /// A ConversionReview with the response.
    pub body: Body,
    /// The objects that were converted. Those of a review that failed are in no answer.
    pub converted: Vec<PairCount>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// The bytes of an answer, in chunks: a large answer is nowhere in one piece, so each chunk can be given back once it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(Vec<Vec<u8>>);

impl Body {
    /// The chunks, in their order.
    pub fn into_chunks(self) -> Vec<Vec<u8>> {
        self.0
    }

    /// All bytes in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![bytes])
    }
}

impl Answer {
    pub(super) fn failed(head: &Head, failure: Failure, converted: Vec<PairCount>) -> Self {
        Self { body: self::failure(head, &failure.message), converted, failure: Some(failure) }
    }

    /// The answer to a review that succeeds. The chunks are a beginning and the converted objects.
    pub(super) fn succeeded(mut chunks: Vec<Vec<u8>>, converted: Vec<PairCount>) -> Self {
        let end = br#"],"result":{"metadata":{},"status":"Success"}}}"#;
        match chunks.last_mut() {
            Some(last) => last.extend_from_slice(end),
            None => chunks.push(end.to_vec()),
        }
        Self { body: Body(chunks), converted, failure: None }
    }
}

/// The answer to a review that failed.
pub fn failure(head: &Head, message: &str) -> Body {
    let review = json!({
        "apiVersion": head.api_version,
        "kind": "ConversionReview",
        "response": {
            "uid": head.uid,
            "result": {"metadata": {}, "status": "Failure", "reason": "BadRequest", "code": 400, "message": message},
        },
    });
    Body::from(review.to_string().into_bytes())
}

/// How the answer to a review that succeeds begins, up to the first object.
pub(super) fn beginning(head: &Head) -> String {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        r#"{{"apiVersion":{},"kind":"ConversionReview","response":{{"uid":{},"convertedObjects":["#,
        text(&head.api_version),
        text(&head.uid),
    )
}
