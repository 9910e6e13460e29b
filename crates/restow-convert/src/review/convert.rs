//! Converts all objects of a review.

use std::error::Error;

use super::answer::{Answer, Failure, Pair, PairCount, Writer};
use super::limits::Scope;
use super::object::{Converted, Failed, ObjectError, Place, Task};
use super::parse::Review;
use super::reason::Reason;
use crate::converters::{Converter, Converters};

impl Review<'_> {
    /// Converts all objects. `proceed` is told of each just before its conversion, and ends the review with false.
    pub fn convert(
        &self,
        converters: &Converters,
        scope: Scope<'_>,
        proceed: &(dyn Fn(&Place) -> bool + Sync),
    ) -> Answer {
        let Some(texts) = self.texts() else {
            let message =
                format!("the review has {} objects; the limit is {}", self.count(), self.most_objects());
            let failure = Failure { reason: Reason::TooLarge, pair: None, message };
            return Answer::failed(&self.head, failure, Vec::new());
        };
        let task = Task { converters, scope, desired: self.desired(), limits: self.limits };
        let length = texts.iter().map(|text| text.get().len()).sum::<usize>();
        let mut writer = Writer::new(&self.head, length.min(self.limits.answer_bytes));
        let mut counts = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let text = text.get();
            let added = task.convert(index, text, proceed).and_then(|converted| {
                let failed =
                    |error| Box::new(Failed { place: Place::of_text(index, text), between: None, error });
                match converted {
                    Converted::AsItWas => writer.add_text(text),
                    Converted::Anew { object, by, from, to } => {
                        writer.add(&object).map_err(|error| failed(ObjectError::NotWritten(error)))?;
                        count(&mut counts, by, from, to);
                    }
                }
                let limit = self.limits.answer_bytes;
                if writer.len() > limit { Err(failed(ObjectError::AnswerTooLarge(limit))) } else { Ok(()) }
            });
            if let Err(failed) = added {
                return Answer::failed(&self.head, described(*failed), counts);
            }
        }
        writer.finish(counts)
    }
}

/// Nearly always, all objects of a review have the same version.
fn count(counts: &mut Vec<PairCount>, by: &Converter, from: &str, to: &str) {
    let same = |pair: &Pair| {
        (&*pair.group, &*pair.kind, &*pair.from, &*pair.to) == (by.group(), by.kind(), from, to)
    };
    match counts.iter_mut().find(|known| same(&known.pair)) {
        Some(known) => known.objects += 1,
        None => counts.push(PairCount { pair: pair(by, from, to), objects: 1 }),
    }
}

fn pair(by: &Converter, from: &str, to: &str) -> Pair {
    let (group, kind) = (by.group().to_owned(), by.kind().to_owned());
    Pair { group, kind, from: from.to_owned(), to: to.to_owned() }
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
    let pair = failed.between.map(|(by, from, to)| pair(by, from, to));
    Failure { reason: failed.error.reason(), pair, message }
}

/// API servers send the message to their clients, and log it.
const LONGEST_MESSAGE: usize = 4096;
