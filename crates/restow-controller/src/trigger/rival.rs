//! Another controller that writes the same StorageStates, such as kube-storage-version-migrator.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use restow_api::{Reason, StorageState, StorageStateStatus};
use restow_clock::Instant;
use restow_core::controller::trigger::is_foreign;
use restow_core::controller::troubleshooting::explained;

use crate::context::Context;
use crate::observe::events::EventType;

/// Without a write for this long it counts as stopped: kube-storage-version-migrator writes every ten minutes.
const STOPPED_AFTER: Duration = Duration::from_secs(15 * 60);

/// What is known about the other controller.
#[derive(Default)]
pub(super) struct Rival {
    /// The states as they were last read.
    seen: BTreeMap<String, StorageStateStatus>,
    /// When its last write was seen.
    wrote: Option<Instant>,
}

impl Rival {
    /// A state that it has written since the last check. Writes before the first check do not count.
    pub(super) fn wrote<'a>(
        &mut self,
        states: &'a BTreeMap<String, StorageState>,
    ) -> Option<&'a StorageState> {
        let status = |state: &StorageState| state.status.clone().unwrap_or_default();
        let now: BTreeMap<String, StorageStateStatus> =
            states.iter().map(|(name, state)| (name.clone(), status(state))).collect();
        let before = std::mem::replace(&mut self.seen, now);
        let changed =
            |name: &String, now: &StorageStateStatus| before.get(name).is_some_and(|old| old != now);
        let written =
            |name: &String| self.seen.get(name).is_some_and(|now| is_foreign(now) && changed(name, now));
        let (_, state) = states.iter().find(|(name, _)| written(name))?;
        self.wrote = Some(Instant::now());
        Some(state)
    }

    /// Whether it may still be running.
    pub(super) fn is_active(&self) -> bool {
        self.wrote.is_some_and(|wrote| wrote.elapsed() < STOPPED_AFTER)
    }
}

/// Reports that another controller has written a state.
pub(super) fn report(context: &Context, state: &StorageState) {
    let message = "another controller, such as kube-storage-version-migrator, writes this StorageState and marks resources as \
        migrated without verifying them. restow triggers no migration until the other controller has not written for \
        15 minutes: scale it down";
    tracing::warn!(state = state.metadata.name, "{message}");
    let reference: ObjectReference = state.object_ref(&());
    context.events.publish(
        &reference,
        EventType::Warning,
        Reason::AnotherController.as_str(),
        &explained(Reason::AnotherController, message),
    );
}
