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

/// How long it has to be silent: kube-storage-version-migrator writes every ten minutes.
const SILENT: Duration = Duration::from_secs(15 * 60);

/// What is known of it.
#[derive(Default)]
pub(super) struct Rival {
    /// The states as they were last seen.
    seen: BTreeMap<String, StorageStateStatus>,
    /// When it was last seen to write.
    wrote: Option<Instant>,
}

impl Rival {
    /// A state that it has written since the last look. What was there before the first look is only taken over.
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
    pub(super) fn is_about(&self) -> bool {
        self.wrote.is_some_and(|wrote| wrote.elapsed() < SILENT)
    }
}

/// Reports that it has written a state.
pub(super) fn report(context: &Context, state: &StorageState) {
    let message = "another controller writes this storage state, such as kube-storage-version-migrator, and marks \
        resources as migrated that nobody has verified. restow triggers no migration until the other one has been \
        silent for 15 minutes: scale it down";
    tracing::warn!(state = state.metadata.name, "{message}");
    let reference: ObjectReference = state.object_ref(&());
    context.events.tell(
        &reference,
        EventType::Warning,
        Reason::AnotherController.as_str(),
        &explained(Reason::AnotherController, message),
    );
}
