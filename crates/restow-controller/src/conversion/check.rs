//! The check: every object is converted to the new version and back, and compared with what it was.
//!
//! This is the only place where restow reads the content of objects, besides a conversion in place. Nothing of it is kept or
//! logged: the status names fields, and never values.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::ConversionConditionType as Condition;
use restow_api::{ConversionCheck, Reason};
use restow_core::controller::condition::Stage;
use restow_core::controller::conversion::{self as decide, Work};

use super::converter::Converter;
use super::definitions::Found;
use super::error::RoundError;
use super::objects::{Objects, renewed_token};
use super::record::Record;
use crate::observe::events::EventType;
use crate::requests::code;

/// How long one page may take before the loop counts as stuck.
const PAGE_TIMEOUT: Duration = Duration::from_secs(180);
const MESSAGE: &str = "converting every object to the new version and back";

/// Checks all objects, or the rest of them, while `goes_on` says so after a page.
pub(super) async fn check(
    record: &mut Record<'_>,
    found: &Found,
    goes_on: impl Fn() -> bool,
) -> Result<(), RoundError> {
    let spec = record.object.spec.clone();
    let client = record.context.client();
    let converter = Converter::of(client, found, &spec).await?;
    let mark = found.definition.mark();
    let old = record.status().check;
    let resumes = old.is_some_and(|check| {
        check.definition == mark && check.converter == converter.name() && !check.completed
    });
    if !resumes {
        begin(record, &mark, converter.name()).await?;
    }
    if let Converter::Unchanged = converter {
        return conclude(record, "all versions have the same schema, so nothing can be lost").await;
    }
    let mut objects = Objects::new(client, &found.crd, &spec, &spec.old_version)?;
    let mut renewed = None;
    loop {
        record.context.health.beat("conversion", PAGE_TIMEOUT);
        let token = record.status().check.and_then(|check| check.continue_token);
        let page = match objects.page(renewed.as_deref().or(token.as_deref())).await {
            // A list expires after minutes: a long check would never end if it always began again.
            Err(RoundError::Kube(error)) if code(&error) == Some(410) && token.is_some() => {
                renewed = renewed_token(&error).filter(|_| renewed.is_none());
                if renewed.is_none() {
                    tracing::info!("the list has expired; checking from the beginning");
                    begin(record, &mark, converter.name()).await?;
                }
                continue;
            }
            page => page?,
        };
        renewed = None;
        let (count, next) = (page.objects.len() as u64, page.next);
        let refused = converter.refused(page.objects, &spec).await?;
        let (last, now) = (next.is_none(), restow_clock::now());
        record
            .update(|status| {
                if let Some(check) = &mut status.check {
                    check.objects += count;
                    check.continue_token = next;
                }
                decide::name_refused(status, refused);
                decide::report(
                    status,
                    (Stage::Running, Some(Work::Checking)),
                    Reason::Checking,
                    MESSAGE,
                    now,
                );
            })
            .await?;
        if last {
            let message = decide::summary(&record.status());
            return conclude(record, &message).await;
        }
        if record.stop.is_stopped() || !goes_on() {
            return Ok(());
        }
    }
}

/// Begins a check.
async fn begin(record: &mut Record<'_>, mark: &str, converter: &str) -> Result<(), RoundError> {
    let now = restow_clock::now();
    record
        .update(|status| {
            status.refused.clear();
            status.check = Some(ConversionCheck {
                definition: mark.to_owned(),
                converter: converter.to_owned(),
                started_at: Some(Time(now)),
                ..ConversionCheck::default()
            });
            decide::record(status, Condition::Checked, false, Reason::Checking, MESSAGE, now);
            decide::report(status, (Stage::Running, Some(Work::Checking)), Reason::Checking, MESSAGE, now);
        })
        .await
}

/// Writes what the check has found.
async fn conclude(record: &mut Record<'_>, message: &str) -> Result<(), RoundError> {
    let now = restow_clock::now();
    let survive = record.status().check.is_some_and(|check| check.refused == 0);
    let reason = if survive { Reason::Checked } else { Reason::FieldsLost };
    record
        .update(|status| {
            if let Some(check) = &mut status.check {
                check.completed = true;
                check.continue_token = None;
            }
            decide::record(status, Condition::Checked, survive, reason, message, now);
            if !survive {
                decide::end(status, Stage::Failed, reason, message, now);
            }
        })
        .await?;
    if survive {
        record.publish(EventType::Normal, reason, message);
        return Ok(());
    }
    record.ends(Stage::Failed, reason, message).await
}
