//! When a resource is to be migrated: what becomes of its StorageState and its migrations after one look.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{PendingMigration, StorageStateStatus, UNKNOWN};

pub use self::news::name_versions;
use self::news::{describe, forget_key, knows_key, missed, parted, reloaded, take_in};
use self::replace::{Pending, Replacement, left_over, outdated, pending, replacement, resume, superseded};
use crate::agreement::{Agreement, Disagreement};

mod news;
mod replace;

/// A state whose heartbeat is older than this may have missed a change.
pub const STALE: Duration = Duration::from_secs(600);
/// How long API servers may be silent before that counts as disagreement.
pub const SILENCE: Duration = Duration::from_secs(300);
/// How far the clocks of two controllers may differ.
pub const SKEW: Duration = Duration::from_secs(60);

/// What the API servers say of how a resource is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// All say this.
    Agreed(String),
    /// They say different things.
    Split(Vec<String>),
    /// Not all could be asked; those that could say this.
    Silent(Vec<String>),
}

/// What a migration was for, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Its name.
    pub name: String,
    /// Whether it has ended, well or not.
    pub finished: bool,
    /// Whether it ended well, and verified.
    pub verified: bool,
    /// Whether somebody has suspended it.
    pub suspended: bool,
    /// The storage version hash it ran for.
    pub hash: Option<String>,
    /// The hash of the encryption configuration it ran under.
    pub encryption: Option<String>,
    /// The definition it ran under.
    pub definition: Option<String>,
    /// What the trigger made it for; none when somebody else made it.
    pub made_for: Option<Wanted>,
    /// How it failed.
    pub failed: Option<Failed>,
}

/// How a migration failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The reason of its condition.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// All that was seen of one resource at one moment.
#[derive(Clone, Debug)]
pub struct Look<'a> {
    /// Its storage version.
    pub storage: &'a Word,
    /// What that rests on, or why there is no agreement.
    pub agreement: &'a Result<Agreement, Disagreement>,
    /// The encryption configuration, where it is watched for this resource.
    pub encryption: Option<&'a Word>,
    /// When each API server last took up an encryption configuration without a restart.
    pub reloads: &'a BTreeMap<String, String>,
    /// The hashes of all versions that the API server itself says were stored, for a custom resource.
    pub stored: &'a [String],
    /// Its CustomResourceDefinition, as uid and generation.
    pub definition: Option<&'a str>,
    /// The versions its CustomResourceDefinition serves.
    pub served: &'a [String],
    /// Its StorageState.
    pub state: Option<&'a StorageStateStatus>,
    /// Its migrations.
    pub migrations: &'a [Attempt],
    /// A heartbeat older than this is stale.
    pub stale: Duration,
    /// A heartbeat older than this is renewed.
    pub renew: Duration,
    /// How long servers have been silent.
    pub silent_for: Duration,
    /// The name of a migration that is made by this look.
    pub name: &'a str,
    /// When the look began: what is older than this was not heard by it.
    pub began: Timestamp,
    /// Now.
    pub now: Timestamp,
}

/// What is to be done; [`steps`](Self::steps) has the order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Migrations to delete.
    pub delete: Vec<String>,
    /// What the migration to make is for; its name is in the state.
    pub create: Option<Wanted>,
    /// The state to write.
    pub state: Option<StorageStateStatus>,
    /// Why, for logs and Events; none for a mere heartbeat.
    pub reason: Option<Reason>,
}

/// One request of those that carry a decision out.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Writes the state.
    Write(Box<StorageStateStatus>),
    /// Deletes the migration of this name.
    Delete(String),
    /// Makes a migration.
    Create(PendingMigration, Wanted),
}

impl Decision {
    /// The requests that carry it out, given the state as it was seen.
    ///
    /// A stop after any of them loses nothing. A migration is written down in the state before those it replaces are
    /// deleted, and taken out of it when it is there; who looks next goes on with it. Where none can be made yet, the
    /// state says first that nothing is known, so that the next agreement is news, whatever it is. Where one was made
    /// already, the state is written last, so that who looks next deletes the rest.
    pub fn steps(&self, known: Option<&StorageStateStatus>) -> Vec<Step> {
        let deletes = self.delete.iter().cloned().map(Step::Delete);
        let Some(state) = &self.state else { return deletes.collect() };
        let (Some(wanted), Some(pending)) = (&self.create, &state.pending_migration) else {
            let write = [Step::Write(Box::new(state.clone()))];
            return match self.reason {
                Some(_) => write.into_iter().chain(deletes).collect(),
                None => deletes.chain(write).collect(),
            };
        };
        let recorded = (known != Some(state)).then(|| Step::Write(Box::new(state.clone())));
        let made = StorageStateStatus { pending_migration: None, ..state.clone() };
        let create = Step::Create(pending.clone(), wanted.clone());
        recorded.into_iter().chain(deletes).chain([create, Step::Write(Box::new(made))]).collect()
    }

    /// Whether it does no more than renew the heartbeat of the state as it was seen.
    pub fn is_heartbeat(&self, known: Option<&StorageStateStatus>) -> bool {
        let same = |(new, known): (&StorageStateStatus, &StorageStateStatus)| {
            let last_heartbeat_time = known.last_heartbeat_time.clone();
            StorageStateStatus { last_heartbeat_time, ..new.clone() } == *known
        };
        self.delete.is_empty() && self.create.is_none() && self.state.as_ref().zip(known).is_some_and(same)
    }
}

/// What a new migration is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The storage version hash.
    pub hash: String,
    /// The hash of the encryption configuration.
    pub encryption: Option<String>,
}

impl Wanted {
    /// Whether one that was made for this does for another purpose too.
    fn covers(&self, other: &Self) -> bool {
        self.hash == other.hash && (other.encryption.is_none() || self.encryption == other.encryption)
    }
}

/// Why something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was no state yet.
    NewResource,
    /// The controller was away for too long to know.
    StaleHeartbeat,
    /// Another controller wrote the state.
    ForeignState,
    /// The storage version is another.
    StorageVersionChanged,
    /// The API server stored objects in a version in between.
    StorageVersionChangedTwice,
    /// The encryption configuration is another.
    EncryptionChanged,
    /// An API server used another encryption configuration in between.
    EncryptionChangedTwice,
    /// The encryption configuration was not watched until now.
    EncryptionUnwatched,
    /// The encryption configuration cannot be seen any more.
    EncryptionUnseen,
    /// A version is served no more, and managedFields may still be of it.
    VersionRetired,
    /// The API servers do not agree.
    Disagreement,
    /// A verified migration has ended.
    Migrated,
    /// A migration failed for a reason that may pass by itself, and is to be replaced.
    RetryPlanned,
    /// It is replaced.
    Retried,
}

impl Reason {
    /// Says it for a person.
    pub fn explain(self) -> &'static str {
        match self {
            Self::NewResource => "its storage is not known yet",
            Self::StaleHeartbeat => "nobody watched its storage version for too long",
            Self::ForeignState => {
                "its state was written by another controller, which does not verify migrations"
            }
            Self::StorageVersionChanged => "its storage version has changed",
            Self::StorageVersionChangedTwice => "its storage version was another one in between",
            Self::VersionRetired => "a version is served no more, and managedFields may be of it",
            Self::EncryptionChanged => "the encryption configuration has changed",
            Self::EncryptionChangedTwice => "an API server used another encryption configuration in between",
            Self::EncryptionUnwatched => "nobody watched its encryption configuration until now",
            Self::EncryptionUnseen => {
                "its encryption configuration cannot be seen, so a key rotation goes unnoticed"
            }
            Self::Disagreement => "the API servers do not agree on its storage",
            Self::Migrated => "a migration was verified",
            Self::RetryPlanned => "its migration failed for a reason that may pass",
            Self::Retried => "its migration had failed for a reason that may have passed",
        }
    }
}

/// Decides by one look at a resource.
pub fn decide(look: &Look<'_>) -> Decision {
    // A key that is known and cannot be seen is waited for, as one that a silent server does not tell.
    let silent = Word::Silent(Vec::new());
    let waits = look.silent_for < SILENCE && hides_key(look.encryption, look.state);
    decide_by(&Look { encryption: if waits { Some(&silent) } else { look.encryption }, ..look.clone() })
}

fn decide_by(look: &Look<'_>) -> Decision {
    let foreign = look.state.is_some_and(is_foreign);
    let stale = foreign || look.state.is_some_and(|state| is_stale(look, state));
    if !stale && look.state.is_some_and(|state| is_borne(look, state)) {
        return Decision::default();
    }
    // A stale state is forgotten: everything may have been stored meanwhile. That is written down even while servers
    // are silent, because the next look may be another controller's. So is one that rests on nobody's proof.
    let known = look.state.filter(|_| !stale);
    let mut state = known.cloned().unwrap_or_default();
    if state.persisted_storage_version_hashes.is_empty() {
        state.persisted_storage_version_hashes.push(UNKNOWN.to_owned());
    }
    let forgotten = if look.encryption.is_none() { forget_key(look.state, &mut state) } else { None };
    let unwatched = look.encryption.is_some() && !knows_key(&state);
    if look.encryption.is_some() && state.persisted_encryption_config_hashes.is_empty() {
        state.persisted_encryption_config_hashes.push(UNKNOWN.to_owned());
    }
    let storage_changed = take_in(
        look.storage,
        &mut state.persisted_storage_version_hashes,
        &mut state.current_storage_version_hash,
    );
    let encryption_changed = look.encryption.is_some_and(|word| {
        take_in(
            word,
            &mut state.persisted_encryption_config_hashes,
            &mut state.current_encryption_config_hash,
        )
    });
    let wanted = wanted(look);
    let in_between = missed(look, &mut state)
        | parted(look, storage_changed, &mut state)
        | wanted.as_ref().is_some_and(|wanted| outdated(look, wanted, &state));
    let reloaded = reloaded(look, encryption_changed, &mut state);
    let retired = state.served_versions.iter().any(|version| !look.served.contains(version));
    describe(look, &mut state);
    let reason = match () {
        () if foreign => Some(Reason::ForeignState),
        () if stale => Some(Reason::StaleHeartbeat),
        () if known.is_none() => Some(Reason::NewResource),
        () if wanted.is_none() && (storage_changed || encryption_changed) => Some(Reason::Disagreement),
        () if storage_changed => Some(Reason::StorageVersionChanged),
        () if encryption_changed && unwatched => Some(Reason::EncryptionUnwatched),
        // What was waited for will not come.
        () if forgotten.as_deref() == Some(UNKNOWN) && wanted.is_some() => Some(Reason::EncryptionUnseen),
        () if encryption_changed => Some(Reason::EncryptionChanged),
        () if in_between => Some(Reason::StorageVersionChangedTwice),
        () if reloaded => Some(Reason::EncryptionChangedTwice),
        // Its owners' entries are to be moved before it is dropped, when the next write would wipe them all.
        () if retired && wanted.is_some() => Some(Reason::VersionRetired),
        () => None,
    };
    let beat = heartbeat(look);
    if reason.is_some() {
        if wanted.is_some() {
            state.served_versions = look.served.to_vec();
        }
        (state.replaced_migrations, state.next_migration_time) = (None, None);
        state.pending_migration = wanted.as_ref().map(|_| pending(look));
        state.last_heartbeat_time = beat;
        return Decision {
            delete: superseded(look, wanted.is_some()),
            create: wanted,
            state: Some(state),
            reason,
        };
    }
    let unseen = forgotten.map(|_| Reason::EncryptionUnseen);
    let Some(wanted) = wanted else {
        return Decision { delete: left_over(look), ..kept(look, state, unseen) };
    };
    if let Some(decision) = go_on(look, &wanted, &mut state) {
        return decision;
    }
    if refine(look, &wanted, &mut state) {
        return kept(look, state, Some(Reason::Migrated));
    }
    match replacement(look, &wanted, &mut state) {
        Replacement::None => kept(look, state, unseen),
        Replacement::Planned => {
            let planned = known.is_some_and(|known| known.next_migration_time == state.next_migration_time);
            kept(look, state, (!planned).then_some(Reason::RetryPlanned))
        }
        Replacement::Due(delete) => {
            state.pending_migration = Some(pending(look));
            state.last_heartbeat_time = beat;
            Decision { delete, create: Some(wanted), state: Some(state), reason: Some(Reason::Retried) }
        }
    }
}

/// Goes on with a migration that an earlier look was to make, until there is nothing left to do about it.
fn go_on(look: &Look<'_>, wanted: &Wanted, state: &mut StorageStateStatus) -> Option<Decision> {
    let pending = state.pending_migration.take()?;
    match resume(look, state, &pending) {
        Pending::Due(delete) => {
            state.pending_migration = Some(pending);
            let state = kept(look, state.clone(), None).state.unwrap_or_else(|| state.clone());
            Some(Decision { delete, create: Some(wanted.clone()), state: Some(state), reason: None })
        }
        Pending::Made(delete) if !delete.is_empty() => {
            Some(Decision { delete, ..kept(look, state.clone(), None) })
        }
        Pending::Made(_) | Pending::Dropped => None,
    }
}

/// Writes a state that starts nothing, if it is another one or its heartbeat is due.
fn kept(look: &Look<'_>, mut state: StorageStateStatus, reason: Option<Reason>) -> Decision {
    let due = !is_silent(look) && look.state.is_none_or(|known| age(known, look.now) >= look.renew);
    if !due && look.state.is_some_and(|known| *known == state) {
        return Decision::default();
    }
    state.last_heartbeat_time = heartbeat(look);
    Decision { state: Some(state), reason, ..Decision::default() }
}

/// Whether a controller other than restow wrote a state, such as kube-storage-version-migrator: what it calls migrated,
/// nobody has verified. restow always says what an agreement rests on.
pub fn is_foreign(state: &StorageStateStatus) -> bool {
    state.last_heartbeat_time.is_some() && state.agreement.is_none()
}

/// Why a state is not relied on at a time: another controller wrote it, or its heartbeat is older than `stale`, so that
/// a change may have been missed.
pub fn distrust(state: &StorageStateStatus, at: Timestamp, stale: Duration) -> Option<Reason> {
    match () {
        () if is_foreign(state) => Some(Reason::ForeignState),
        () if age(state, at) > stale => Some(Reason::StaleHeartbeat),
        () => None,
    }
}

/// Whether a state may have missed a change. One that knows nothing, and waits for all servers to be heard, can miss
/// nothing: their agreement will be news to it.
fn is_stale(look: &Look<'_>, state: &StorageStateStatus) -> bool {
    let anything =
        |persisted: &[String]| persisted.is_empty() || persisted.iter().any(|hash| hash == UNKNOWN);
    let nothing_known = anything(&state.persisted_storage_version_hashes)
        && anything(&state.persisted_encryption_config_hashes);
    let waits = !is_known(&state.current_storage_version_hash)
        || (look.encryption.is_some() && !is_known(&state.current_encryption_config_hash));
    distrust(state, look.began, look.stale).is_some() && !(nothing_known && waits)
}

/// Whether servers that are silent are waited for: what is current was known until now, and those that are heard say
/// nothing else.
fn is_borne(look: &Look<'_>, state: &StorageStateStatus) -> bool {
    let nothing_new = |word: &Word, current: &Option<String>| match word {
        Word::Agreed(hash) => current.as_ref() == Some(hash),
        Word::Split(_) => false,
        Word::Silent(heard) => is_known(current) && heard.iter().all(|hash| current.as_ref() == Some(hash)),
    };
    look.silent_for < SILENCE
        && is_silent(look)
        && nothing_new(look.storage, &state.current_storage_version_hash)
        && look.encryption.is_none_or(|word| nothing_new(word, &state.current_encryption_config_hash))
}

fn is_known(current: &Option<String>) -> bool {
    current.as_ref().is_some_and(|current| current != UNKNOWN)
}

fn is_silent(look: &Look<'_>) -> bool {
    [Some(look.storage), look.encryption].into_iter().flatten().any(|word| matches!(word, Word::Silent(_)))
}

/// Whether a look is incomplete: a server does not tell its storage version or its key, or a key that is known cannot be
/// seen any more.
pub fn is_incomplete(storage: &Word, encryption: Option<&Word>, state: Option<&StorageStateStatus>) -> bool {
    let silent = |word: &Word| matches!(word, Word::Silent(_));
    silent(storage) || encryption.is_some_and(silent) || hides_key(encryption, state)
}

/// Whether the key cannot be seen although it is known.
fn hides_key(encryption: Option<&Word>, state: Option<&StorageStateStatus>) -> bool {
    encryption.is_none() && state.is_some_and(knows_key)
}

/// The heartbeat after this look. A look that did not hear every server does not renew it.
fn heartbeat(look: &Look<'_>) -> Option<Time> {
    if is_silent(look) {
        return look.state.and_then(|state| state.last_heartbeat_time.clone());
    }
    Some(Time(look.now))
}

/// How old its heartbeat is. One in the future was written by another clock; too far in the future, it says nothing.
fn age(state: &StorageStateStatus, now: Timestamp) -> Duration {
    let beat = state.last_heartbeat_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let age = now.duration_since(beat);
    match Duration::try_from(age) {
        Ok(age) => age,
        Err(_) if age.unsigned_abs() <= SKEW => Duration::ZERO,
        Err(_) => Duration::MAX,
    }
}

/// What a migration would be for, when all servers agree on everything.
fn wanted(look: &Look<'_>) -> Option<Wanted> {
    let Word::Agreed(hash) = look.storage else { return None };
    let encryption = match look.encryption {
        None => None,
        Some(Word::Agreed(hash)) => Some(hash.clone()),
        Some(_) => return None,
    };
    Some(Wanted { hash: hash.clone(), encryption })
}

/// The verified migrations for just what is current, and whether what they prove still holds: a definition that was
/// changed since may have stored another version in between.
fn proofs<'a>(look: &'a Look<'_>, wanted: &Wanted) -> impl Iterator<Item = (&'a Attempt, bool)> {
    let fits = |attempt: &&Attempt| {
        attempt.verified
            && attempt.hash.as_ref() == Some(&wanted.hash)
            && (wanted.encryption.is_none() || attempt.encryption == wanted.encryption)
    };
    let holds = |attempt: &Attempt| match (attempt.definition.as_deref(), look.definition) {
        (Some(then), Some(now)) => then == now || look.stored.iter().all(|hash| *hash == wanted.hash),
        _ => true,
    };
    look.migrations.iter().filter(fits).map(move |attempt| (attempt, holds(attempt)))
}

/// Takes in a verified migration for just what is current; another one proves nothing.
fn refine(look: &Look<'_>, wanted: &Wanted, state: &mut StorageStateStatus) -> bool {
    let Some((attempt, _)) = proofs(look, wanted).find(|(_, holds)| *holds) else { return false };
    let persisted = vec![wanted.hash.clone()];
    let keys: Vec<String> = wanted.encryption.clone().into_iter().collect();
    let refined = state.persisted_storage_version_hashes != persisted
        || (!keys.is_empty() && state.persisted_encryption_config_hashes != keys);
    if refined {
        state.persisted_storage_version_hashes = persisted;
        if !keys.is_empty() {
            state.persisted_encryption_config_hashes = keys;
        }
        state.verified_definition.clone_from(&attempt.definition);
        (state.replaced_migrations, state.next_migration_time) = (None, None);
    }
    refined
}

/// How old a heartbeat may be, for controllers that look this often.
pub fn stale_after(poll: Duration) -> Duration {
    STALE.max(poll)
}

/// How often to look, so that no heartbeat of a controller that runs becomes stale.
///
/// A look may come early and find a heartbeat that is not quite due, so the next one must come soon enough; a third of
/// the time is left for looks that take long and for another controller to take over.
pub fn look_every(poll: Duration) -> Duration {
    poll.min(stale_after(poll) / 3)
}

/// How old a heartbeat is renewed.
pub fn renew_after(poll: Duration) -> Duration {
    look_every(poll)
}

#[cfg(test)]
mod tests;
