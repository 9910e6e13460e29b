//! Converts all objects of a review.

use std::error::Error;

use super::answer::{Answer, Failure, Pair, beginning};
use super::blocks::Blocks;
use super::limits::Scope;
use super::object::{Failed, Task};
use super::observer::{Observer, Place};
use super::parse::Review;
use super::reason::Reason;
use crate::converters::Converters;

impl Review<'_> {
    /// Converts all objects, one after the other. `proceed` is told of each just before its conversion, and ends the review
    /// with false.
    pub fn convert(
        &self,
        converters: &Converters,
        scope: Scope<'_>,
        proceed: &(dyn Fn(&Place) -> bool + Sync),
    ) -> Answer {
        struct Proceed<'a>(&'a (dyn Fn(&Place) -> bool + Sync));
        impl Observer for Proceed<'_> {
            fn begin(&self, place: &Place) -> bool {
                (self.0)(place)
            }
            fn end(&self, _: &Place) {}
        }
        self.convert_on(0, converters, scope, &Proceed(proceed))
    }

    /// Converts all objects, on this thread and on up to so many others. The answer is the same with and without them. A
    /// small review needs no other thread.
    pub fn convert_on(
        &self,
        helpers: usize,
        converters: &Converters,
        scope: Scope<'_>,
        observer: &dyn Observer,
    ) -> Answer {
        let Some(texts) = self.texts() else {
            let message =
                format!("the review has {} objects; the limit is {}", self.count(), self.most_objects());
            let failure = Failure { reason: Reason::TooLarge, pair: None, message };
            return Answer::failed(&self.head, failure, Vec::new());
        };
        let task = Task { converters, scope, desired: self.desired(), limits: self.limits };
        let beginning = beginning(&self.head);
        let blocks = Blocks::new(&task, texts, &beginning);
        blocks.convert(helpers, observer);
        let (chunks, counts, failed) = blocks.finish();
        match failed {
            Some(failed) => Answer::failed(&self.head, described(*failed), counts),
            None => Answer::succeeded(chunks, counts),
        }
    }
}

fn described(failed: Failed<'_>) -> Failure {
    let mut message = format!("{}: {}", failed.place, failed.error);
    let mut source = failed.error.source();
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    let pair = failed.between.map(|(by, from, to)| Pair::of(by, from, to));
    Failure { reason: failed.error.reason(), pair, message }
}

/// API servers send the message to their clients, and log it.
const LONGEST_MESSAGE: usize = 4096;
