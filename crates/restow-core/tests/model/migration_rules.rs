//! The decisions on migrations, taken by restow-core's own functions.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use restow_api::Reason;
use restow_core::controller::trigger::{self, Attempt, AttemptFailure, Observation, Step, Wanted};
use restow_core::resource::inventory::Crd;
use restow_core::resource::name::GroupResource;
use restow_core::rewrite::progress::{Counts, PassVerdict, Phase, Progress, judge_pass};
use restow_core::rewrite::prune;

use super::rules::{CURRENT, FORMER, Memory, Persisted, Seen, definition, hash, name, now, remember};
use super::state::{At, Definition, Mark, Pass, Run, Version};

/// The migration there is, when none is to be made.
pub(crate) const RUN: &str = "run";
/// The one that is to be made, told apart from one that was to be made before.
const NEXT: &str = "next";
const OTHER: &str = "other";

/// A migration's checkpoint.
fn progress(run: &Run) -> Progress {
    let resource = GroupResource::parse("widgets.example.com");
    let mark = |mark: Mark| {
        let object = if mark.current { CURRENT } else { FORMER };
        let definition = mark.generation.map(definition).unwrap_or_default();
        format!("{object} {definition}").trim_end().to_owned()
    };
    let phase = match (run.at, run.pass) {
        (At::Ended | At::Failed, _) => Phase::Done,
        (_, Pass::Rewriting) => Phase::Rewriting,
        (_, Pass::Verifying) => Phase::Verifying,
    };
    Progress {
        phase,
        mark: run.mark.map(mark),
        shifted: run.shifted,
        definition: run.mark.and_then(|mark| mark.generation).map(definition),
        verified: run.verified,
        ..Progress::new(resource, name(run.version), &hash(run.version), Timestamp::default())
    }
}

/// Takes in the agreement as it is between two pages.
pub(crate) fn watch(run: &mut Run, seen: &Seen) {
    let Ok(agreement) = seen.agreement() else { return };
    let mut progress = progress(run);
    progress.observe_agreement(&agreement);
    run.shifted = progress.shifted;
    // One server's word has no mark.
    run.mark = seen.one.is_none().then_some(Mark { current: true, generation: seen.generation });
}

/// Begins a pass that verifies.
pub(crate) fn begin_verifying(run: &mut Run) {
    let mut progress = progress(run);
    progress.passes = u32::from(run.passes);
    progress.begin_verifying();
    *run = Run {
        at: At::Check,
        pass: Pass::Verifying,
        passes: u8::try_from(progress.passes).unwrap(),
        mark: run.mark.filter(|_| progress.mark.is_some()),
        shifted: progress.shifted,
        rewritten: progress.verify.rewritten > 0,
        ..*run
    };
}

/// What a finished pass proves.
pub(crate) fn judged(run: &Run) -> PassVerdict {
    let pass = Counts { rewritten: u64::from(run.rewritten), ..Counts::default() };
    judge_pass(&pass, run.shifted, false, u32::from(run.passes))
}

/// What becomes of storedVersions, if anything.
pub(crate) fn prune(run: &Run, now: &Definition) -> Option<Vec<Version>> {
    let stored = Version::BOTH.into_iter().filter(|version| now.stored[*version as usize]);
    let crd = Crd {
        name: GroupResource::parse("widgets.example.com"),
        resource_version: "5".to_owned(),
        uid: "u".to_owned(),
        generation: i64::from(now.generation),
        storage_version: name(now.version).to_owned(),
        versions: Vec::new(),
        stored_versions: stored.map(|version| name(version).to_owned()).collect(),
        changed: None,
        webhook: false,
        converting: false,
    };
    let pruned = prune::prune(&progress(run), &crd).ok()??;
    Some(
        Version::BOTH
            .into_iter()
            .filter(|version| pruned.iter().any(|kept| kept == name(*version)))
            .collect(),
    )
}

/// What a look of the trigger comes to.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) steps: Vec<Do>,
    pub(crate) refined: bool,
}

/// One step of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    Delete(&'static str),
    Create(&'static str, Version),
    Write(Persisted),
}

/// The migration that a state is to have made.
pub(crate) fn pending(persisted: Persisted) -> Option<&'static str> {
    let name = persisted.read()?.pending_migration.as_ref()?.name.clone();
    [NEXT, OTHER].into_iter().find(|known| *known == name)
}

/// Looks at the resource.
pub(crate) fn look(
    seen: Seen,
    defined: Option<Definition>,
    persisted: Persisted,
    run: Option<Run>,
    failure_is_final: bool,
) -> Decided {
    // Of a migration nothing else is asked.
    let run =
        run.map(|run| Run { shifted: false, rewritten: false, passes: 0, pass: Pass::Verifying, ..run });
    type Key = (Seen, Option<Definition>, Persisted, Option<Run>, bool);
    thread_local!(static KNOWN: Memory<Key, Decided> = Memory::default());
    remember(&KNOWN, (seen, defined, persisted, run, failure_is_final), || {
        let attempt = run.as_ref().map(attempt);
        let failed =
            |attempt: Attempt| Attempt { failed: attempt.failed.filter(|_| !failure_is_final), ..attempt };
        decide(&seen, defined.as_ref(), persisted, attempt.map(failed))
    })
}

fn decide(seen: &Seen, defined: Option<&Definition>, persisted: Persisted, run: Option<Attempt>) -> Decided {
    let stored = |defined: &Definition| -> Vec<String> {
        Version::BOTH.into_iter().filter(|version| defined.stored[*version as usize]).map(hash).collect()
    };
    let migrations: Vec<Attempt> = run.into_iter().collect();
    let served = Version::BOTH.map(|version| name(version).to_owned());
    let (storage, agreement) = (seen.consensus(), seen.agreement());
    let next = if pending(persisted) == Some(NEXT) { OTHER } else { NEXT };
    let status = persisted.read();
    let decision = trigger::decide(&Observation {
        storage: &storage,
        agreement: &agreement,
        encryption: None,
        reloads: &BTreeMap::new(),
        stored: &defined.map(stored).unwrap_or_default(),
        definition: defined.map(|defined| definition(defined.generation)).as_deref(),
        served: if defined.is_some() { &served } else { &[] },
        state: status.as_deref(),
        migrations: &migrations,
        stale: trigger::HEARTBEAT_TIMEOUT,
        renew: trigger::HEARTBEAT_TIMEOUT,
        silent_for: Duration::ZERO,
        name: next,
        began: now(),
        now: now(),
    });
    let version = |wanted: &Wanted| Version::BOTH.into_iter().find(|version| hash(*version) == wanted.hash);
    let known = |name: &str| [RUN, NEXT, OTHER].into_iter().find(|known| *known == name).unwrap();
    let step = |step: Step| match step {
        Step::Delete(name) => Do::Delete(known(&name)),
        Step::Create(pending, wanted) => Do::Create(known(&pending.name), version(&wanted).unwrap()),
        Step::Write(state) => Do::Write(Persisted::new(*state)),
    };
    Decided {
        steps: decision.steps(status.as_deref()).into_iter().map(step).collect(),
        refined: decision.reason == Some(Reason::Migrated),
    }
}

/// What a migration object tells.
fn attempt(run: &Run) -> Attempt {
    let progress = progress(run);
    Attempt {
        name: run.name.to_owned(),
        finished: matches!(run.at, At::Ended | At::Failed),
        verified: run.at == At::Ended && progress.verified,
        suspended: false,
        hash: Some(progress.storage_version_hash),
        encryption: None,
        definition: progress.definition,
        made_for: Some(Wanted { hash: hash(run.version), encryption: None }),
        // So long ago that it is replaced now.
        failed: (run.at == At::Failed)
            .then_some(AttemptFailure { reason: Some(Reason::ListRefused), at: Timestamp::UNIX_EPOCH }),
    }
}
