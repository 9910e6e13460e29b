//! When a resource is to be migrated: what becomes of its StorageState and its migrations after one look.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::{StorageStateStatus, UNKNOWN};

use crate::agreement::{Agreement, Disagreement};
use crate::retry;

/// A state whose heartbeat is older than this may have missed a change.
pub const STALE: Duration = Duration::from_secs(600);
/// How long API servers may be silent before that counts as disagreement.
pub const SILENCE: Duration = Duration::from_secs(300);

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
    /// Now.
    pub now: Timestamp,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// Migrations to delete.
    pub delete: Vec<String>,
    /// The migration to make.
    pub create: Option<Wanted>,
    /// The state to write.
    pub state: Option<StorageStateStatus>,
    /// Why, for logs and Events; none for a mere heartbeat.
    pub reason: Option<Reason>,
}

/// What a new migration is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The storage version hash.
    pub hash: String,
    /// The hash of the encryption configuration.
    pub encryption: Option<String>,
}

/// Why something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was no state yet.
    NewResource,
    /// The controller was away for too long to know.
    StaleHeartbeat,
    /// The storage version is another.
    StorageVersionChanged,
    /// The API server stored objects in a version in between.
    StorageVersionChangedTwice,
    /// The encryption configuration is another.
    EncryptionChanged,
    /// An API server used another encryption configuration in between.
    EncryptionChangedTwice,
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
            Self::StorageVersionChanged => "its storage version has changed",
            Self::StorageVersionChangedTwice => "its storage version was another one in between",
            Self::VersionRetired => "a version is served no more, and managedFields may be of it",
            Self::EncryptionChanged => "the encryption configuration has changed",
            Self::EncryptionChangedTwice => "an API server used another encryption configuration in between",
            Self::Disagreement => "the API servers do not agree on its storage",
            Self::Migrated => "a migration was verified",
            Self::RetryPlanned => "its migration failed for a reason that may pass",
            Self::Retried => "its migration had failed for a reason that may have passed",
        }
    }
}

/// Decides by one look at a resource.
pub fn decide(look: &Look<'_>) -> Decision {
    let stale = look.state.is_some_and(|state| is_stale(look, state));
    if !stale && look.state.is_some_and(|state| is_borne(look, state)) {
        return Decision::default();
    }
    // A stale state is forgotten: everything may have been stored meanwhile. That is written down even while servers
    // are silent, because the next look may be another controller's.
    let known = look.state.filter(|_| !stale);
    let mut state = known.cloned().unwrap_or_default();
    if state.persisted_storage_version_hashes.is_empty() {
        state.persisted_storage_version_hashes.push(UNKNOWN.to_owned());
    }
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
    let in_between = missed(look, &mut state) | parted(look, storage_changed, &mut state);
    let reloaded = reloaded(look, encryption_changed, &mut state);
    let retired = state.served_versions.iter().any(|version| !look.served.contains(version));
    describe(look, &mut state);
    let wanted = wanted(look);
    let reason = match () {
        () if stale => Some(Reason::StaleHeartbeat),
        () if known.is_none() => Some(Reason::NewResource),
        () if wanted.is_none() && (storage_changed || encryption_changed) => Some(Reason::Disagreement),
        () if storage_changed => Some(Reason::StorageVersionChanged),
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
        state.last_heartbeat_time = beat;
        return Decision {
            delete: superseded(look, wanted.is_some()),
            create: wanted,
            state: Some(state),
            reason,
        };
    }
    let Some(wanted) = wanted else { return kept(look, state, None) };
    if refine(look, &wanted, &mut state) {
        return kept(look, state, Some(Reason::Migrated));
    }
    match replacement(look, &wanted, &mut state) {
        Replacement::None => kept(look, state, None),
        Replacement::Planned => {
            let planned = known.is_some_and(|known| known.next_migration_time == state.next_migration_time);
            kept(look, state, (!planned).then_some(Reason::RetryPlanned))
        }
        Replacement::Due(delete) => {
            state.last_heartbeat_time = beat;
            Decision { delete, create: Some(wanted), state: Some(state), reason: Some(Reason::Retried) }
        }
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

/// Whether a state may have missed a change. One that knows nothing, and waits for all servers to be heard, can miss
/// nothing: their agreement will be news to it.
fn is_stale(look: &Look<'_>, state: &StorageStateStatus) -> bool {
    let anything =
        |persisted: &[String]| persisted.is_empty() || persisted.iter().any(|hash| hash == UNKNOWN);
    let nothing_known = anything(&state.persisted_storage_version_hashes)
        && anything(&state.persisted_encryption_config_hashes);
    let waits = !is_known(&state.current_storage_version_hash)
        || (look.encryption.is_some() && !is_known(&state.current_encryption_config_hash));
    age(state, look.now) > look.stale && !(nothing_known && waits)
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

/// The heartbeat after this look. A look that did not hear every server does not renew it.
fn heartbeat(look: &Look<'_>) -> Option<Time> {
    if is_silent(look) {
        return look.state.and_then(|state| state.last_heartbeat_time.clone());
    }
    Some(Time(look.now))
}

/// How old its heartbeat is. One in the future was written by another clock, and is as doubtful as an old one.
fn age(state: &StorageStateStatus, now: Timestamp) -> Duration {
    let beat = state.last_heartbeat_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    now.duration_since(beat).unsigned_abs()
}

/// Takes the servers' word in; says whether the current hash became another.
fn take_in(word: &Word, persisted: &mut Vec<String>, current: &mut Option<String>) -> bool {
    let unknown = [UNKNOWN.to_owned()];
    let (now, seen): (&str, Vec<&String>) = match word {
        Word::Agreed(hash) => (hash, vec![hash]),
        Word::Split(hashes) => (UNKNOWN, hashes.iter().collect()),
        // A server that is not heard may be writing anything.
        Word::Silent(hashes) => (UNKNOWN, hashes.iter().chain(&unknown).collect()),
    };
    let changed = current.as_deref() != Some(now);
    if changed {
        // A resource seen for the first time is stored in unknown versions, whatever the current one is.
        let first = current.is_none() && persisted.iter().any(|hash| hash == UNKNOWN);
        let agreed = matches!(word, Word::Agreed(_));
        for hash in seen.into_iter().filter(|_| !(first && agreed)) {
            if !persisted.contains(hash) {
                persisted.push(hash.clone());
            }
        }
        *current = Some(now.to_owned());
    } else if !matches!(word, Word::Agreed(_)) {
        for hash in seen {
            if !persisted.contains(hash) {
                persisted.push(hash.clone());
            }
        }
    }
    changed
}

/// Versions that the API server stored objects in since the last verified migration, and that no look has seen.
fn missed(look: &Look<'_>, state: &mut StorageStateStatus) -> bool {
    let persisted = &mut state.persisted_storage_version_hashes;
    let verified = look.definition.is_some() && state.verified_definition.as_deref() == look.definition;
    if verified || persisted.iter().any(|hash| hash == UNKNOWN) {
        return false;
    }
    let before = persisted.len();
    for hash in look.stored {
        if !persisted.contains(hash) {
            persisted.push(hash.clone());
        }
    }
    persisted.len() > before
}

/// Whether the API servers have agreed anew since the last look, on the version they had agreed on by then: nobody has
/// seen what was stored in between.
fn parted(look: &Look<'_>, storage_changed: bool, state: &mut StorageStateStatus) -> bool {
    let Some(since) = look.agreement.as_ref().ok().and_then(|agreement| agreement.since) else {
        return false;
    };
    let before = state.agreed_since.replace(Time(since));
    let parted = !storage_changed && before.is_some_and(|before| before.0 != since);
    let persisted = &mut state.persisted_storage_version_hashes;
    if parted && !persisted.iter().any(|hash| hash == UNKNOWN) {
        persisted.push(UNKNOWN.to_owned());
    }
    parted
}

/// Whether an API server has taken up an encryption configuration since the last look, although all use the one they
/// used by then: nobody has seen what was stored in between.
///
/// A server tells when it last took one up only until it is restarted. So a restart under the same configuration counts
/// as no change.
fn reloaded(look: &Look<'_>, encryption_changed: bool, state: &mut StorageStateStatus) -> bool {
    let Some(word) = look.encryption else { return false };
    let before = state.encryption_config_reloads.take();
    let another = |before: &BTreeMap<String, String>| {
        look.reloads.iter().any(|(server, time)| before.get(server) != Some(time))
    };
    let reloaded =
        !encryption_changed && matches!(word, Word::Agreed(_)) && before.as_ref().is_some_and(another);
    // What a silent server said before still stands.
    let mut after = before.filter(|_| matches!(word, Word::Silent(_))).unwrap_or_default();
    after.extend(look.reloads.clone());
    state.encryption_config_reloads = Some(after);
    let persisted = &mut state.persisted_encryption_config_hashes;
    if reloaded && !persisted.iter().any(|hash| hash == UNKNOWN) {
        persisted.push(UNKNOWN.to_owned());
    }
    reloaded
}

fn describe(look: &Look<'_>, state: &mut StorageStateStatus) {
    let (agreement, message) = match look.agreement {
        Ok(agreement) => (agreement.basis.to_string(), None),
        Err(why) => ("none".to_owned(), Some(why.to_string())),
    };
    let differs = match look.encryption {
        Some(Word::Split(_)) => Some("the API servers use different encryption configurations".to_owned()),
        Some(Word::Silent(_)) => {
            Some("not every API server tells which encryption configuration it uses".to_owned())
        }
        _ => None,
    };
    state.agreement = Some(agreement);
    state.message = message.or(differs);
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

/// Migrations that are for something else now: all of them when a new one is made, else those under way.
fn superseded(look: &Look<'_>, all: bool) -> Vec<String> {
    let goes = |attempt: &&Attempt| all || !attempt.finished;
    look.migrations.iter().filter(goes).map(|attempt| attempt.name.clone()).collect()
}

/// Takes in a verified migration for just what is current; another one proves nothing.
fn refine(look: &Look<'_>, wanted: &Wanted, state: &mut StorageStateStatus) -> bool {
    let fits = |attempt: &&Attempt| {
        attempt.verified
            && attempt.hash.as_ref() == Some(&wanted.hash)
            && (wanted.encryption.is_none() || attempt.encryption == wanted.encryption)
    };
    let Some(attempt) = look.migrations.iter().find(fits) else { return false };
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

/// What becomes of a failed migration.
enum Replacement {
    /// Nothing: none failed, or it has to be looked at by somebody.
    None,
    /// It is replaced later.
    Planned,
    /// It is replaced now, and these are deleted.
    Due(Vec<String>),
}

/// Whether a migration that failed for a reason that may pass by itself is replaced, and when.
fn replacement(look: &Look<'_>, wanted: &Wanted, state: &mut StorageStateStatus) -> Replacement {
    let planned = state.next_migration_time.take();
    if state.is_settled() || look.migrations.iter().any(|attempt| !attempt.finished) {
        return Replacement::None;
    }
    let own = |attempt: &&Attempt| attempt.made_for.as_ref() == Some(wanted);
    let failed = look.migrations.iter().filter(own).filter_map(|attempt| attempt.failed.as_ref());
    let Some(last) = failed.max_by_key(|failed| failed.at) else { return Replacement::None };
    let before = state.replaced_migrations.unwrap_or_default();
    let Some(pause) = retry::pause(&last.reason, before) else { return Replacement::None };
    // A time in the future is another clock's.
    let due = match planned {
        Some(planned) if last.at > look.now => planned.0,
        _ => last.at.min(look.now).checked_add(pause).unwrap_or(look.now),
    };
    if due > look.now {
        state.next_migration_time = Some(Time(due));
        return Replacement::Planned;
    }
    state.replaced_migrations = Some(before.saturating_add(1));
    let gone = look.migrations.iter().filter(|attempt| attempt.made_for.is_some() && !attempt.verified);
    Replacement::Due(gone.map(|attempt| attempt.name.clone()).collect())
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
