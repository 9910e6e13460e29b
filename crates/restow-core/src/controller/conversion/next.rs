//! The next step of a Conversion.

use restow_api::ConversionConditionType as Condition;
use restow_api::{ConversionSpec, ConversionStatus, Reason};

use super::definition::Definition;
use super::refusal::Refusal;
use super::status::rechecked_summary;

/// The name of a check whose objects rules convert in place.
pub const IN_PLACE: &str = "rules";

/// What was seen of a Conversion and its surroundings.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// What the user wants.
    pub spec: &'a ConversionSpec,
    /// What was done so far.
    pub status: &'a ConversionStatus,
    /// The definition of the kind; none if there is none.
    pub definition: Option<&'a Definition>,
    /// The storage version hash of the new version.
    pub hash: &'a str,
    /// The name of the Conversion's own migration in this state of the definition.
    pub own: &'a str,
    /// All migrations of the resource that are not being deleted.
    pub migrations: &'a [Candidate],
    /// Whether the trigger is about to create a migration by itself.
    pub trigger_is_due: bool,
}

/// A migration of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// `metadata.name`.
    pub name: String,
    /// The storage version hash that it was created for.
    pub made_for: Option<String>,
    /// The storage version hash that it ran for, if it has begun.
    pub hash: Option<String>,
    /// The uid and generation of the definition in its last pass.
    pub definition: Option<String>,
    /// Whether it succeeded and a second pass has proven it.
    pub verified: bool,
    /// Whether it has finished.
    pub finished: bool,
    /// The reason and message of its failure.
    pub failed: Option<(Option<Reason>, String)>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is possible yet; if it lasts, it is refused.
    Wait(Refusal),
    /// It cannot be carried out.
    Refuse(Refusal),
    /// The migration has failed, and so has the Conversion.
    Fail {
        /// The reason of the migration.
        reason: Option<Reason>,
        /// What the migration says.
        message: String,
    },
    /// Every object is to be checked, or the rest of them.
    Check,
    /// The objects are to be checked again as the definition is now, and nothing may rewrite them meanwhile: those with a greater
    /// resourceVersion than this, or all.
    Recheck(Option<u64>),
    /// Objects that were written while the storage version was set would not survive: it is set back before one is rewritten.
    SetBack,
    /// A tool manages the definition, and this change must come from its source.
    AwaitSource {
        /// The tool, and what shows it.
        manager: String,
        /// What the source must change.
        change: String,
    },
    /// The check is done and it was a trial.
    EndTrial,
    /// Migrations of the resource are at work, and must end before objects are converted in place.
    AwaitMigrations,
    /// The new version is to become the storage version.
    SetStorageVersion,
    /// The objects are to be converted in place, or the rest of them.
    ConvertInPlace,
    /// All objects are converted in place: migrations may run again.
    EndInPlace,
    /// The new version is the storage version since this state of the definition.
    RecordStorageVersion(String),
    /// The trigger is about to create the migration.
    AwaitTrigger,
    /// A migration is to be created.
    Migrate,
    /// The migration of this name is at work.
    Follow(String),
    /// The migration of this name has proven that all objects are stored in the new version.
    RecordProof(String),
    /// The definition was changed since the proof; a new one is needed.
    ProveAgain(String),
    /// storedVersions is to be pruned by the proof of this migration.
    Prune(String),
    /// storedVersions has only the new version.
    RecordPruned,
    /// The old version is to be served no more.
    StopServing,
    /// The old version is served no more.
    RecordServingStopped,
    /// Everything is done.
    Succeed,
}

impl Step {
    /// Whether migrations of the resource that this Conversion has suspended may go on: not before every object is known to survive.
    pub fn lets_migrations_run(&self) -> bool {
        let waits = matches!(self, Self::Wait(_) | Self::Refuse(_) | Self::Fail { .. });
        !waits && !matches!(self, Self::Check | Self::Recheck(_) | Self::SetBack)
    }
}

/// Decides what to do next.
pub fn next(seen: &Observation<'_>) -> Step {
    let Some(definition) = seen.definition else {
        let (kind, group) = (seen.spec.kind.clone(), seen.spec.group.clone());
        return Step::Wait(Refusal::Undefined { kind, group });
    };
    if let Some(step) = obstacle(seen, definition) {
        return step;
    }
    if !seen.status.is(Condition::StorageVersionSet) {
        return prepare(seen, definition);
    }
    if is_in_place(seen.status) && !seen.status.is(Condition::ConvertedInPlace) {
        return Step::ConvertInPlace;
    }
    if definition.converting.is_some() && is_in_place(seen.status) {
        return Step::EndInPlace;
    }
    if let Some(step) = recheck(seen, definition) {
        return step;
    }
    // The storage version may have been changed forth and back since an earlier proof.
    let proof = proof(seen, definition);
    let holds = proof.filter(|proof| proof.definition == Some(definition.mark()));
    if !seen.status.is(Condition::Verified) {
        return match (holds, proof) {
            (Some(holds), _) => Step::RecordProof(holds.name.clone()),
            (None, Some(_)) => Step::ProveAgain(definition.mark()),
            (None, None) => rewrite(seen, definition),
        };
    }
    let pruned = definition.stored_versions == [seen.spec.new_version.clone()];
    if !seen.status.is(Condition::Pruned) {
        return match holds {
            Some(_) if pruned => Step::RecordPruned,
            Some(proof) => Step::Prune(proof.name.clone()),
            None => Step::ProveAgain(definition.mark()),
        };
    }
    if !pruned {
        return Step::ProveAgain(definition.mark());
    }
    if seen.spec.stop_serving == Some(true) && !seen.status.is(Condition::ServingStopped) {
        let served = definition.version(&seen.spec.old_version).is_some_and(|version| version.served);
        return match managed(seen, definition) {
            _ if !served => Step::RecordServingStopped,
            Some(manager) => {
                Step::AwaitSource { manager, change: format!("served: false for {}", seen.spec.old_version) }
            }
            None => Step::StopServing,
        };
    }
    Step::Succeed
}

/// What must hold at every step.
fn obstacle(seen: &Observation<'_>, definition: &Definition) -> Option<Step> {
    let (spec, name) = (seen.spec, definition.name.to_string());
    if definition.deleting {
        return Some(Step::Wait(Refusal::NotEstablished(name, "being deleted")));
    }
    let before = seen.status.definition.as_deref();
    let before = before.or(seen.status.check.as_ref().map(|check| check.definition.as_str()));
    if before.is_some_and(|mark| definition.generation_of(mark).is_none()) {
        return Some(Step::Refuse(Refusal::Replaced(name)));
    }
    if !definition.established {
        return Some(Step::Wait(Refusal::NotEstablished(name, "not established yet")));
    }
    // The old version may be removed by others once nothing is stored in it.
    let pruned = seen.status.is(Condition::Pruned);
    let needed = [&spec.new_version, &spec.old_version];
    let needed = if pruned { &needed[..1] } else { &needed[..] };
    if let Some(version) = needed.iter().find(|version| definition.version(version).is_none()) {
        return Some(Step::Refuse(Refusal::unknown(definition, version)));
    }
    let storage = definition.storage_version();
    if seen.status.is(Condition::StorageVersionSet) && storage != spec.new_version {
        // This Conversion has set it back, and was killed before it could say so.
        if storage == spec.old_version && refused_since(seen.status) {
            return Some(lost(seen.status));
        }
        let (storage, new) = (storage.to_owned(), spec.new_version.clone());
        return Some(Step::Refuse(Refusal::Superseded { definition: name, storage, new }));
    }
    if storage != spec.new_version && storage != spec.old_version {
        let (storage, old) = (storage.to_owned(), spec.old_version.clone());
        return Some(Step::Refuse(Refusal::OtherVersion { definition: name, storage, old }));
    }
    if !definition.version(&spec.new_version).is_some_and(|version| version.served) {
        let version = spec.new_version.clone();
        return Some(Step::Refuse(Refusal::NewNotServed { definition: name, version }));
    }
    // Objects that are not converted yet would be read without the fields that only their own version has.
    let converting = definition.converting.as_ref();
    let other =
        converting.filter(|one| one.version != spec.new_version || spec.convert_in_place != Some(true));
    if let Some(in_place) = other {
        let version = in_place.version.clone();
        return Some(Step::Refuse(Refusal::HalfConverted { definition: name, version }));
    }
    None
}

/// Whether rules convert the objects, and no webhook does.
fn is_in_place(status: &ConversionStatus) -> bool {
    status.check.as_ref().is_some_and(|check| check.converter == IN_PLACE)
}

/// The steps up to the storage version.
fn prepare(seen: &Observation<'_>, definition: &Definition) -> Step {
    let spec = seen.spec;
    let is_new = definition.storage_version() == spec.new_version;
    let checked = seen.status.check.as_ref().filter(|_| seen.status.is(Condition::Checked));
    let checked = checked.and_then(|check| definition.generation_of(&check.definition));
    // A generation later, the storage version was set in place, and that was not recorded. Without the annotation another
    // client may have set it, together with a schema that was not checked.
    let set_in_place = is_in_place(seen.status) && is_new && definition.converting.is_some();
    let holds = checked.is_some_and(|generation| {
        generation == definition.generation || (set_in_place && generation + 1 == definition.generation)
    });
    if !holds {
        let served = definition.version(&spec.old_version).is_some_and(|version| version.served);
        if !served {
            let (definition, version) = (definition.name.to_string(), spec.old_version.clone());
            return Step::Refuse(Refusal::OldNotServed { definition, version });
        }
        return Step::Check;
    }
    let unfinished = || seen.migrations.iter().any(|candidate| !candidate.finished);
    match () {
        () if spec.is_trial() => Step::EndTrial,
        // It would go on rewriting objects that are not converted yet.
        () if is_in_place(seen.status) && !is_new && unfinished() => Step::AwaitMigrations,
        () if is_new => Step::RecordStorageVersion(definition.mark()),
        () => match managed(seen, definition) {
            Some(manager) => Step::AwaitSource {
                manager,
                change: format!("storage: true for {}, and for no other version", spec.new_version),
            },
            None => Step::SetStorageVersion,
        },
    }
}

/// The tool that manages the definition, unless the user wants it changed all the same.
fn managed(seen: &Observation<'_>, definition: &Definition) -> Option<String> {
    let manager =
        definition.manager.as_ref().filter(|_| seen.spec.change_managed_definition != Some(true))?;
    Some(format!("{} ({})", manager.tool, manager.evidence))
}

/// Whether the check after the storage version was set has found objects that would not survive.
fn refused_since(status: &ConversionStatus) -> bool {
    status.recheck.as_ref().is_some_and(|recheck| recheck.completed && recheck.refused > 0)
}

fn lost(status: &ConversionStatus) -> Step {
    let message = format!("{}; migrations that were at work stay suspended", rechecked_summary(status));
    Step::Fail { reason: Some(Reason::FieldsLost), message }
}

/// What to do until every object was checked as the definition is now; none if all were, or nothing is converted any more.
///
/// Objects may be written between the check and the change of the storage version, and the schemas or the webhook may be changed
/// after it. A conversion in place looks at each object itself.
fn recheck(seen: &Observation<'_>, definition: &Definition) -> Option<Step> {
    let (status, mark) = (seen.status, definition.mark());
    let check = status.check.as_ref();
    if status.is(Condition::Pruned)
        || is_in_place(status)
        || check.is_some_and(|check| check.definition == mark)
    {
        return None;
    }
    let done = status.recheck.as_ref().filter(|recheck| recheck.completed && recheck.definition == mark);
    if let Some(done) = done {
        return match done.refused {
            0 => None,
            // Nobody else has changed the definition, so its former state is known.
            _ if status.definition == Some(mark) => Some(Step::SetBack),
            _ => Some(lost(status)),
        };
    }
    if !definition.version(&seen.spec.old_version).is_some_and(|version| version.served) {
        let (definition, version) = (definition.name.to_string(), seen.spec.old_version.clone());
        return Some(Step::Refuse(Refusal::OldNotServed { definition, version }));
    }
    let generation = check.and_then(|check| definition.generation_of(&check.definition));
    let only_set = status.definition == Some(mark) && generation == Some(definition.generation - 1);
    let since = check.filter(|_| only_set).and_then(|check| check.resource_version.as_ref()?.parse().ok());
    Some(Step::Recheck(since))
}

/// A migration that has proven that all objects are stored in the new version, since that was set.
fn proof<'a>(seen: &Observation<'a>, definition: &Definition) -> Option<&'a Candidate> {
    let since = seen.status.definition.as_deref().and_then(|mark| definition.generation_of(mark))?;
    let proves = |candidate: &&Candidate| {
        let at = candidate.definition.as_deref().and_then(|mark| definition.generation_of(mark));
        candidate.verified
            && candidate.hash.as_deref() == Some(seen.hash)
            && at.is_some_and(|generation| generation >= since)
    };
    // The latest one: an earlier one may be of a definition that has changed since.
    let generation = |candidate: &&Candidate| {
        candidate.definition.as_deref().and_then(|mark| definition.generation_of(mark))
    };
    seen.migrations.iter().filter(proves).max_by_key(generation)
}

/// The migration that is at work, or what to do without one.
fn rewrite(seen: &Observation<'_>, definition: &Definition) -> Step {
    let fits = |candidate: &&Candidate| {
        !candidate.finished && candidate.made_for.as_deref().is_none_or(|hash| hash == seen.hash)
    };
    // One that is at work goes on; two of one resource never run at a time.
    let at_work =
        seen.migrations.iter().filter(fits).max_by_key(|one| (one.hash.is_some(), one.name == seen.own));
    if let Some(candidate) = at_work {
        return Step::Follow(candidate.name.clone());
    }
    if seen.trigger_is_due {
        return Step::AwaitTrigger;
    }
    let changed = seen.status.definition != Some(definition.mark());
    match seen.migrations.iter().find(|candidate| candidate.name == seen.own) {
        // The definition was changed under it, and changed back.
        Some(Candidate { failed: Some((Some(Reason::StorageVersionChanged), _)), .. }) if changed => {
            Step::ProveAgain(definition.mark())
        }
        Some(Candidate { failed: Some((reason, message)), .. }) => {
            Step::Fail { reason: *reason, message: message.clone() }
        }
        // It succeeded without a proof for this version: another controller ended it.
        Some(own) => Step::Fail {
            reason: Some(Reason::Unverified),
            message: format!("the migration {} has ended without a proof", own.name),
        },
        None => Step::Migrate,
    }
}

#[cfg(test)]
mod tests;
