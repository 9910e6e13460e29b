//! The answer to a review.

use serde::Serialize;
use serde_json::json;

use super::parse::Head;
use super::reason::Reason;

/// Two versions of a kind that objects were converted between. The converter knows all of these names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// The API group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The version of the objects.
    pub from: String,
    /// The wanted version.
    pub to: String,
}

/// How many objects of a review were converted between two versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairCount {
    /// The versions.
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
    pub body: Vec<u8>,
    /// The objects that were converted. Those of a review that failed are in no answer.
    pub converted: Vec<PairCount>,
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

impl Answer {
    pub(super) fn failed(head: &Head, failure: Failure, converted: Vec<PairCount>) -> Self {
        Self { body: self::failure(head, &failure.message), converted, failure: Some(failure) }
    }
}

/// The answer to a review that failed.
pub fn failure(head: &Head, message: &str) -> Vec<u8> {
    let review = json!({
        "apiVersion": head.api_version,
        "kind": "ConversionReview",
        "response": {
            "uid": head.uid,
            "result": {"metadata": {}, "status": "Failure", "reason": "BadRequest", "code": 400, "message": message},
        },
    });
    review.to_string().into_bytes()
}

/// Writes the answer to a review that succeeds, object by object.
pub(super) struct Writer {
    body: Vec<u8>,
    objects: usize,
}

impl Writer {
    /// Begins the answer. It will be about as long as the review.
    pub(super) fn new(head: &Head, length: usize) -> Self {
        let mut body = Vec::with_capacity(length + 512);
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let start = format!(
            r#"{{"apiVersion":{},"kind":"ConversionReview","response":{{"uid":{},"convertedObjects":["#,
            text(&head.api_version),
            text(&head.uid),
        );
        body.extend_from_slice(start.as_bytes());
        Self { body, objects: 0 }
    }

    /// How long the answer is so far.
    pub(super) fn len(&self) -> usize {
        self.body.len()
    }

    /// Adds an object as it stands.
    pub(super) fn add_text(&mut self, text: &str) {
        self.separate();
        self.body.extend_from_slice(text.as_bytes());
    }

    /// Adds an object.
    pub(super) fn add(&mut self, object: &impl Serialize) -> Result<(), serde_json::Error> {
        self.separate();
        serde_json::to_writer(&mut self.body, object)
    }

    fn separate(&mut self) {
        if self.objects > 0 {
            self.body.push(b',');
        }
        self.objects += 1;
    }

    /// Ends the answer.
    pub(super) fn finish(mut self, converted: Vec<PairCount>) -> Answer {
        self.body.extend_from_slice(br#"],"result":{"metadata":{},"status":"Success"}}}"#);
        Answer { body: self.body, converted, failure: None }
    }
}
