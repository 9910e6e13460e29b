//! What others got wrong, and what would be wrong: each is a variant of the model.

/// One thing done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The collector takes a Lease that it could not read for that of a dead server (StorageVersion garbage collection
    /// in kube-controller-manager).
    UnreadLeaseIsDeath,
    /// The collector deletes without a precondition (the same).
    UnconditionalDelete,
    /// The collector writes without a precondition.
    UnconditionalCollection,
    /// The collector reads the members before the entries.
    MembersBeforeEntries,
    /// A server registers before it is a member.
    RegisteredBeforeMember,
    /// A server registers without a precondition.
    UnconditionalRegistration,
    /// A server that starts anew leaves no trace where it registers what is there already.
    NoTraceOfALife,
    /// A server writes before it has registered.
    ServedBeforeRegistered,
    /// A server that was silent for too long writes on.
    GateOutlivesTenure,
    /// A custom resource's version is not registered when it changes (upstream: custom resources never came).
    CustomNeverRegistered,
    /// A custom resource's version is registered while writes in the old one are under way (kubernetes#130235).
    Undrained,
    /// A custom resource is enabled in the version that was registered, though the definition has another by then.
    EnabledUnasked,
    /// One API server's word counts as that of all (kube-storage-version-migrator, and the built-in migrator).
    OneServersWord,
    /// What was written since the migration began is skipped, though a server may lag (the built-in migrator).
    WrittenSinceSkipped,
    /// A migration's success refines whatever version is current by then (kube-storage-version-migrator).
    CurrentRefined,
    /// A migration counts as done after its first pass (kube-storage-version-migrator, and all others).
    NeverVerified,
    /// A pass verifies though servers came and went during it.
    ShiftIgnored,
    /// storedVersions are cut down without looking at the definition again (knative's job).
    PruneUnguarded,
    /// Whether servers have disagreed between two looks is not asked.
    BetweenLooksUnasked,
    /// A migration that failed for a passing reason is not replaced.
    FailureIsFinal,
    /// A StorageState is written after the migrations it is about are deleted and made, so that a stop in between is not
    /// seen in it.
    StateWrittenLast,
    /// Nobody clears up after servers that have gone.
    NoCollector,
    /// A server gives up when somebody else wrote at the same time.
    ConflictIsFinal,
    /// Not a bug but a limit: a write is under way for longer than what is left of a Lease whose tenure is over.
    WriteOutlivesLease,
    /// Not a bug but a limit: a write of a process that has died is stored after its next life has registered.
    WriteOutlivesLife,
}
