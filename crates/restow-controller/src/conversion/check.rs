//! The check: every object is converted to the new version and back, and compared with what it was.
//!
//! This is the only place where restow reads the content of objects, besides a conversion in place. Nothing of it is kept or
//! logged: the status names fields, and never values.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::ConversionConditionType as Condition;
use restow_api::{ConversionCheck, Reason};
use restow_core::controller::condition::Stage;
use restow_core::controller::conversion::{self as decide, Pass, Work};
use serde_json::Value;

use super::converter::Converter;
use super::definitions::Found;
use super::error::RoundError;
use super::objects::Objects;
use super::record::Record;
use crate::observe::events::EventType;

/// How long one page may take before the loop counts as stuck.
const PAGE_TIMEOUT: Duration = Duration::from_secs(180);
const MESSAGE: &str = "converting every object to the new version and back";

/// One check of objects.
pub(super) struct Check {
    /// Which one.
    pub(super) pass: Pass,
    /// Only objects with a greater resourceVersion are converted; all, if there is none.
    pub(super) since: Option<u64>,
}

impl Check {
    /// The check before anything is changed.
    pub(super) fn first() -> Self {
        Self { pass: Pass::First, since: None }
    }

    /// The check after the storage version was set.
    pub(super) fn again(since: Option<u64>) -> Self {
        Self { pass: Pass::Again, since }
    }

    fn so_far(&self, record: &Record<'_>) -> Option<ConversionCheck> {
        self.pass.of(&mut record.status()).take()
    }

    /// Checks the objects, or the rest of them, while `goes_on` says so after a page.
    pub(super) async fn run(
        &self,
        record: &mut Record<'_>,
        found: &Found,
        goes_on: impl Fn() -> bool,
    ) -> Result<(), RoundError> {
        let spec = record.object.spec.clone();
        let client = record.context.client();
        let mut objects = Objects::new(client, &found.crd, &spec, &spec.old_version)?;
        let converter = Converter::of(client, found, &spec).await?;
        let mark = found.definition.mark();
        let resumes = self.so_far(record).is_some_and(|check| {
            check.definition == mark && check.converter == converter.name() && !check.completed
        });
        if !resumes {
            self.begin(record, &mark, converter.name()).await?;
        }
        if let Converter::Unchanged = converter {
            return self
                .conclude(record, Some("all versions have the same schema, so nothing can be lost"))
                .await;
        }
        loop {
            record.context.health.beat("conversion", PAGE_TIMEOUT);
            let token = self.so_far(record).and_then(|check| check.continue_token);
            let Some(mut page) = objects.page(token.as_deref()).await? else {
                tracing::info!("the list has expired; checking from the beginning");
                self.begin(record, &mark, converter.name()).await?;
                continue;
            };
            page.objects.retain(|object| self.since.is_none_or(|since| is_newer(object, since)));
            let (count, next) = (page.objects.len() as u64, page.next);
            let refused = converter.refused(page.objects, &spec).await?;
            let (last, now) = (next.is_none(), restow_clock::now());
            record
                .update(|status| {
                    if let Some(check) = self.pass.of(status) {
                        check.objects += count;
                        check.continue_token = next;
                        if token.is_none() {
                            check.resource_version = page.resource_version;
                        }
                    }
                    decide::name_refused(status, self.pass, refused);
                    let work = (Stage::Running, Some(Work::Checking));
                    decide::report(status, work, Reason::Checking, MESSAGE, now);
                })
                .await?;
            if last {
                return self.conclude(record, None).await;
            }
            if record.stop.is_stopped() || !goes_on() {
                return Ok(());
            }
        }
    }

    async fn begin(&self, record: &mut Record<'_>, mark: &str, converter: &str) -> Result<(), RoundError> {
        let now = restow_clock::now();
        record
            .update(|status| {
                status.refused.clear();
                *self.pass.of(status) = Some(ConversionCheck {
                    definition: mark.to_owned(),
                    converter: converter.to_owned(),
                    started_at: Some(Time(now)),
                    ..ConversionCheck::default()
                });
                if self.pass == Pass::First {
                    decide::record(status, Condition::Checked, false, Reason::Checking, MESSAGE, now);
                }
                let work = (Stage::Running, Some(Work::Checking));
                decide::report(status, work, Reason::Checking, MESSAGE, now);
            })
            .await
    }

    /// Writes what the check has found. What follows from the second one is decided with the definition as it is then.
    async fn conclude(&self, record: &mut Record<'_>, message: Option<&str>) -> Result<(), RoundError> {
        let (now, status) = (restow_clock::now(), record.status());
        let survive = self.so_far(record).is_some_and(|check| check.refused == 0);
        let reason = if survive { Reason::Checked } else { Reason::FieldsLost };
        let summary = match (message, self.pass) {
            (Some(message), _) => message.to_owned(),
            (None, Pass::First) => decide::summary(&status),
            (None, Pass::Again) => decide::rechecked_summary(&status),
        };
        let ends = self.pass == Pass::First && !survive;
        record
            .update(|status| {
                if let Some(check) = self.pass.of(status) {
                    check.completed = true;
                    check.continue_token = None;
                }
                decide::record(status, Condition::Checked, survive, reason, &summary, now);
                if ends {
                    decide::end(status, Stage::Failed, reason, &summary, now);
                }
            })
            .await?;
        if ends {
            return record.ends(Stage::Failed, reason, &summary).await;
        }
        let kind = if survive { EventType::Normal } else { EventType::Warning };
        record.publish(kind, reason, &summary);
        Ok(())
    }
}

/// Whether an object was written after a resourceVersion; one that cannot be compared may have been.
fn is_newer(object: &Value, since: u64) -> bool {
    let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    version.is_none_or(|version: u64| version > since)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_whose_version_cannot_be_compared_may_have_been_written_since() {
        for (version, expected) in [
            (json!("41"), false),
            (json!("42"), true),
            (json!("9"), false),
            (json!("x"), true),
            (json!(null), true),
        ] {
            assert_eq!(
                is_newer(&json!({"metadata": {"resourceVersion": version}}), 41),
                expected,
                "{version}"
            );
        }
    }
}
