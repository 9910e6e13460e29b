//! Converts the objects of a review in blocks, which several threads can share.
//!
//! The result does not depend on the threads: blocks are begun in the order of the objects, and every block that was begun
//! is finished unless one before it has failed. So the first object that fails is the same whoever converts it.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::value::RawValue;

use super::answer::{Pair, PairCount};
use super::object::{Converted, Failed, Known, ObjectError, Task};
use super::observer::{Observer, Place};
use crate::converters::Converter;

/// How much of a review is one block. Smaller reviews are not worth another thread.
const BLOCK: usize = 128 * 1024;

/// All blocks of a review.
pub(super) struct Blocks<'a> {
    task: &'a Task<'a>,
    texts: &'a [&'a RawValue],
    /// What the first block begins with.
    beginning: &'a str,
    ranges: Vec<Range<usize>>,
    results: Vec<OnceLock<Block<'a>>>,
    /// The number of the next block.
    next: AtomicUsize,
    /// The number of the first block that has failed.
    failed: AtomicUsize,
    /// How many bytes all blocks have.
    bytes: AtomicUsize,
}

/// What came of one block.
pub(super) struct Block<'a> {
    pub bytes: Vec<u8>,
    pub counts: Vec<PairCount>,
    pub failed: Option<Box<Failed<'a>>>,
    /// The place of its first object, and where each object ends in the bytes.
    pub first: usize,
    pub ends: Vec<usize>,
}

impl<'a> Blocks<'a> {
    pub(super) fn new(task: &'a Task<'a>, texts: &'a [&'a RawValue], beginning: &'a str) -> Self {
        let ranges = ranges(texts);
        let results = ranges.iter().map(|_| OnceLock::new()).collect();
        let (next, failed, bytes) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        Self { task, texts, beginning, ranges, results, next, failed, bytes }
    }

    /// Converts all blocks, on this thread and on up to so many others.
    pub(super) fn convert(&self, helpers: usize, observer: &dyn Observer) {
        let helpers = helpers.min(self.ranges.len().saturating_sub(1));
        std::thread::scope(|scope| {
            for _ in 0..helpers {
                let helper = std::thread::Builder::new().name("convert".to_owned());
                // Without another thread, this one does all the work.
                if helper.spawn_scoped(scope, || self.work(observer)).is_err() {
                    break;
                }
            }
            self.work(observer);
        });
    }

    fn work(&self, observer: &dyn Observer) {
        let mut known = None;
        while self.bytes.load(Ordering::Relaxed) <= self.task.limits.answer_bytes {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.ranges.len() || number > self.failed.load(Ordering::Relaxed) {
                return;
            }
            let block = self.block(number, &mut known, observer);
            self.bytes.fetch_add(block.bytes.len(), Ordering::Relaxed);
            if block.failed.is_some() {
                self.failed.fetch_min(number, Ordering::Relaxed);
            }
            // Nobody else has this number.
            let _ = self.results[number].set(block);
        }
    }

    fn block(&self, number: usize, known: &mut Option<Known<'a>>, observer: &dyn Observer) -> Block<'a> {
        let range = self.ranges[number].clone();
        let texts = &self.texts[range.clone()];
        let length: usize = texts.iter().map(|text| text.get().len()).sum();
        let mut bytes = Vec::with_capacity(length + length / 16 + 1024);
        if number == 0 {
            bytes.extend_from_slice(self.beginning.as_bytes());
        }
        let mut block =
            Block { bytes, counts: Vec::new(), failed: None, first: range.start, ends: Vec::new() };
        for (index, text) in range.zip(texts) {
            if index > 0 {
                block.bytes.push(b',');
            }
            match self.task.convert(index, text.get(), known, observer, &mut block.bytes) {
                Ok(Converted::AsItWas) => {}
                Ok(Converted::Anew { by, from, to }) => count(&mut block.counts, by, from, to),
                Err(failed) => {
                    block.failed = Some(failed);
                    return block;
                }
            }
            block.ends.push(block.bytes.len());
            if block.bytes.len() > self.task.limits.answer_bytes {
                return block;
            }
        }
        block
    }

    /// The chunks of the answer and the objects that were converted, or the first object that failed.
    pub(super) fn finish(self) -> (Vec<Vec<u8>>, Vec<PairCount>, Option<Box<Failed<'a>>>) {
        let limit = self.task.limits.answer_bytes;
        let (mut chunks, mut counts, mut length) = (Vec::new(), Vec::new(), 0);
        for block in self.results.into_iter().map_while(OnceLock::into_inner) {
            for known in block.counts {
                add(&mut counts, known);
            }
            if let Some(place) = block.ends.iter().position(|end| length + end > limit) {
                let index = block.first + place;
                let place = Place::of_text(index, self.texts[index].get());
                let error = ObjectError::AnswerTooLarge(limit);
                return (chunks, counts, Some(Box::new(Failed { place, between: None, error })));
            }
            if block.failed.is_some() {
                return (chunks, counts, block.failed);
            }
            length += block.bytes.len();
            chunks.push(block.bytes);
        }
        if chunks.is_empty() {
            chunks.push(self.beginning.as_bytes().to_vec());
        }
        (chunks, counts, None)
    }
}

fn ranges(texts: &[&RawValue]) -> Vec<Range<usize>> {
    let (mut ranges, mut from, mut length) = (Vec::new(), 0, 0);
    for (index, text) in texts.iter().enumerate() {
        length += text.get().len();
        if length >= BLOCK {
            ranges.push(from..index + 1);
            (from, length) = (index + 1, 0);
        }
    }
    if from < texts.len() {
        ranges.push(from..texts.len());
    }
    ranges
}

/// Nearly always, all objects of a review have the same version.
fn count(counts: &mut Vec<PairCount>, by: &Converter, from: &str, to: &str) {
    let same = |pair: &Pair| {
        (&*pair.group, &*pair.kind, &*pair.from, &*pair.to) == (by.group(), by.kind(), from, to)
    };
    match counts.iter_mut().find(|known| same(&known.pair)) {
        Some(known) => known.objects += 1,
        None => counts.push(PairCount { pair: Pair::of(by, from, to), objects: 1 }),
    }
}

fn add(counts: &mut Vec<PairCount>, more: PairCount) {
    match counts.iter_mut().find(|known| known.pair == more.pair) {
        Some(known) => known.objects += more.objects,
        None => counts.push(more),
    }
}
