//! The object of one Conversion: every write has the resourceVersion that was last read as its precondition.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use kube::{Api, Resource as _, ResourceExt as _};
use restow_api::{Conversion, ConversionStatus, Reason};
use restow_core::controller::condition::Stage;
use restow_core::controller::conversion::{self as decide, Work};
use restow_core::controller::troubleshooting::explained;
use restow_lease::Stop;

use super::error::RoundError;
use crate::context::Context;
use crate::observe::events::EventType;
use crate::requests::code;

/// A Conversion, as it was last read or written.
pub(super) struct Record<'a> {
    pub(super) context: &'a Context,
    pub(super) stop: &'a Stop,
    pub(super) api: Api<Conversion>,
    pub(super) object: Conversion,
}

impl Record<'_> {
    /// The status as it was last read or written.
    pub(super) fn status(&self) -> ConversionStatus {
        self.object.status.clone().unwrap_or_default()
    }

    /// Writes the status, unless that changes nothing.
    pub(super) async fn update(
        &mut self,
        change: impl FnOnce(&mut ConversionStatus),
    ) -> Result<(), RoundError> {
        let mut new = self.object.clone();
        let status = new.status.get_or_insert_default();
        status.observed_generation = new.metadata.generation;
        change(status);
        if new.status == self.object.status {
            return Ok(());
        }
        if self.stop.is_stopped() {
            return Err(RoundError::Changed);
        }
        match self.api.replace_status(&self.object.name_any(), &PostParams::default(), &new).await {
            Ok(written) => {
                self.object = written;
                Ok(())
            }
            // The next round reads what has changed, or that it is gone.
            Err(error) if matches!(code(&error), Some(404 | 409)) => Err(RoundError::Changed),
            Err(error) => Err(error.into()),
        }
    }

    /// Reports what the Conversion is doing.
    pub(super) async fn working(
        &mut self,
        work: Work,
        reason: Reason,
        message: &str,
    ) -> Result<(), RoundError> {
        let now = restow_clock::now();
        self.update(|status| decide::report(status, (Stage::Running, Some(work)), reason, message, now)).await
    }

    /// Reports what the Conversion waits for.
    pub(super) async fn waits(&mut self, reason: Reason, message: &str) -> Result<(), RoundError> {
        let now = restow_clock::now();
        let message = explained(reason, message);
        self.update(|status| decide::report(status, (Stage::Waiting, None), reason, &message, now)).await
    }

    /// Ends the Conversion.
    pub(super) async fn ends(
        &mut self,
        stage: Stage,
        reason: Reason,
        message: &str,
    ) -> Result<(), RoundError> {
        let now = restow_clock::now();
        let message = if stage == Stage::Failed { explained(reason, message) } else { message.to_owned() };
        self.update(|status| decide::end(status, stage, reason, &message, now)).await?;
        self.context.metrics.conversion_ended(stage == Stage::Succeeded);
        let kind = if stage == Stage::Failed { EventType::Warning } else { EventType::Normal };
        tracing::info!(
            conversion = self.object.name_any(),
            reason = reason.as_str(),
            message,
            "{}",
            stage.name()
        );
        self.publish(kind, reason, &message);
        Ok(())
    }

    /// Sends an Event about the Conversion.
    pub(super) fn publish(&self, kind: EventType, reason: Reason, message: &str) {
        let reference: ObjectReference = self.object.object_ref(&());
        self.context.events.publish(&reference, kind, reason.as_str(), message);
    }
}
