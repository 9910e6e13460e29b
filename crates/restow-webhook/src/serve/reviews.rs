//! Answers reviews on threads of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use restow_clock::Instant;
use restow_convert::Converters;
use restow_convert::review::{
    self, Answer, Body, Head, Limits, MalformedReview, Observer, Place, Review, Scope,
};
use restow_listen::Known;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use super::answer_body::AnyBody;
use super::helpers::Helpers;
use super::metrics::Metrics;
use super::respond::{Refusal, typed};
use super::workers::{Wanted, Workers};

/// The kind that a path is for; none is for all kinds.
pub(super) type PathKind = Option<(String, String)>;

/// Answers reviews.
pub(super) struct Reviews {
    pub workers: Workers,
    pub helpers: Helpers,
    pub limits: Limits,
    pub timeout: Duration,
}

/// What is known of a review while it is converted.
#[derive(Default)]
struct Progress {
    head: OnceLock<Head>,
    /// The objects that are being converted, by their places in the review.
    objects: Mutex<BTreeMap<usize, Place>>,
}

impl Progress {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<usize, Place>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes the progress of a review, and stops it when its answer is not wanted any more.
struct Following<'a> {
    progress: &'a Progress,
    wanted: &'a Wanted,
}

impl Observer for Following<'_> {
    fn begin(&self, place: &Place) -> bool {
        self.progress.objects().insert(place.index(), place.clone());
        self.wanted.get()
    }

    fn end(&self, place: &Place) {
        self.progress.objects().remove(&place.index());
    }
}

impl Reviews {
    /// Answers a review that arrived at `started`.
    pub(super) async fn answer(
        &self,
        body: Bytes,
        counted: OwnedSemaphorePermit,
        kind: PathKind,
        converters: Arc<Converters>,
        metrics: &Metrics,
        started: Instant,
    ) -> Result<Response<AnyBody>, Refusal> {
        let (deadline, read) = (started + self.timeout, Instant::now());
        let progress = Arc::new(Progress::default());
        let (limits, helpers, known) = (self.limits, self.helpers.clone(), Arc::clone(&progress));
        let work = move |wanted: Wanted| {
            let following = Following { progress: &known, wanted: &wanted };
            convert(&body, limits, &kind, &converters, &helpers, &following)
        };
        let working = match timeout_at(deadline, self.workers.start(work)).await {
            Ok(Ok(working)) => working,
            Ok(Err(error)) => {
                tracing::error!("could not start a thread for a conversion: {error}");
                return Err(Refusal::Busy);
            }
            Err(_) => return Err(Refusal::Busy),
        };
        let answered = timeout_at(deadline, working).await;
        let took = started.elapsed();
        let uid = progress.head.get().map(|head| head.uid.clone()).unwrap_or_default();
        let body = match answered {
            Ok(Some(Ok(answer))) => {
                metrics.answered(&answer, took, read.elapsed());
                log(&uid, &answer, took);
                answer.body
            }
            Ok(Some(Err(malformed))) => return Err(refused(malformed)),
            Ok(None) => failure(&progress, "the conversion panicked", "panicked", metrics, took)?,
            Err(_) => {
                let message = format!("the conversion took longer than {:?}", self.timeout);
                failure(&progress, &message, "timed_out", metrics, took)?
            }
        };
        let chunks = body.into_chunks().into_iter().map(Bytes::from);
        let mut response = typed(StatusCode::OK, "application/json", chunks, Some(counted));
        response.extensions_mut().insert(Known);
        Ok(response)
    }
}

fn convert(
    body: &[u8],
    limits: Limits,
    kind: &PathKind,
    converters: &Converters,
    helpers: &Helpers,
    following: &Following<'_>,
) -> Result<Answer, MalformedReview> {
    let review = Review::parse(body, limits)?;
    // It is set once.
    let _ = following.progress.head.set(review.head().clone());
    let scope = kind.as_ref().map_or(Scope::All, |(group, kind)| Scope::Kind { group, kind });
    let taken = helpers.take(body.len());
    let helpers = taken.as_ref().map_or(0, |(count, _)| *count);
    Ok(review.convert_on(helpers, converters, scope, following))
}

/// The answer to a review whose conversion has no end of its own.
fn failure(
    progress: &Progress,
    problem: &str,
    reason: &'static str,
    metrics: &Metrics,
    took: Duration,
) -> Result<Body, Refusal> {
    metrics.failed(None, reason, took);
    let place = progress.objects().values().next().cloned();
    let message = place.map_or_else(|| problem.to_owned(), |place| format!("{place}: {problem}"));
    let Some(head) = progress.head.get() else {
        tracing::error!("a review failed before it was read: {message}");
        return Err(Refusal::TimedOut);
    };
    tracing::error!(uid = head.uid, "a review failed: {message}");
    Ok(review::failure(head, &message))
}

fn refused(malformed: MalformedReview) -> Refusal {
    match malformed {
        MalformedReview::TooLarge { limit, .. } => Refusal::TooLarge(limit),
        MalformedReview::NotAReview(source) => {
            Refusal::Malformed(format!("the body is not a ConversionReview: {source}"))
        }
        other => Refusal::Malformed(other.to_string()),
    }
}

fn log(uid: &str, answer: &Answer, took: Duration) {
    let milliseconds = took.as_millis();
    match &answer.failure {
        Some(failure) => tracing::warn!(uid, milliseconds, "a review failed: {}", failure.message),
        None => {
            let objects: u64 = answer.converted.iter().map(|count| count.objects).sum();
            tracing::debug!(uid, objects, milliseconds, "answered a review");
        }
    }
}
