//! The progress of one resource's migration, and how it ended.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agreement::basis::Basis;
use crate::agreement::encryption::Check;
use crate::agreement::version::Agreement;
use crate::resource::name::GroupResource;
use crate::rewrite::outcome::Outcome;
use crate::rewrite::token::{NEWEST, Token};

/// The number of objects for each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Objects in lists.
    pub listed: u64,
    /// Objects that were stored again.
    pub rewritten: u64,
    /// Objects that were already stored in the current version and under the current key.
    pub current: u64,
    /// Objects that another client wrote meanwhile.
    pub conflicted: u64,
    /// Objects that were deleted meanwhile.
    pub gone: u64,
    /// Objects that the server refused.
    pub quarantined: u64,
    /// Objects accepted in a dry run, which does not show what would be written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub accepted: u64,
}

/// A number of objects as text: "1 object", "2 objects".
pub fn objects(count: u64) -> String {
    format!("{count} object{}", if count == 1 { "" } else { "s" })
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Counts {
    /// Counts one outcome; an undecided outcome is not counted.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Rewritten => self.rewritten += 1,
            Outcome::Current => self.current += 1,
            Outcome::Conflicted => self.conflicted += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::Quarantined { .. } => self.quarantined += 1,
            Outcome::Accepted => self.accepted += 1,
            Outcome::Refused { .. } | Outcome::Retry { .. } | Outcome::Doubtful(_) => {}
        }
    }

    /// Adds the counts of a page.
    pub fn add(&mut self, other: &Self) {
        self.listed += other.listed;
        self.rewritten += other.rewritten;
        self.current += other.current;
        self.conflicted += other.conflicted;
        self.gone += other.gone;
        self.quarantined += other.quarantined;
        self.accepted += other.accepted;
    }

    /// How many objects are decided.
    pub fn done(&self) -> u64 {
        self.rewritten + self.current + self.conflicted + self.gone + self.quarantined + self.accepted
    }
}

/// The phase of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The first pass.
    #[default]
    Rewriting,
    /// A later pass, which must find nothing to rewrite.
    Verifying,
    /// The migration has ended.
    Done,
}

/// An object that was left unchanged, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// The namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub namespace: String,
    /// The name; of an unreadable object, as far as it is known.
    pub name: String,
    /// The uid; empty if the object could not be read.
    #[serde(default)]
    pub uid: String,
    /// The reason that the server or restow gives.
    pub reason: String,
    /// The message of the server or restow.
    pub message: String,
}

/// The progress of one resource's migration, saved after each page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The resource that is migrated.
    #[serde(with = "crate::resource::name::text")]
    pub resource: GroupResource,
    /// The storage version it is migrated to.
    pub storage_version: String,
    /// The storage version hash of that version, as discovery shows it.
    pub storage_version_hash: String,
    /// The weakest basis of the agreement in the pass; none before the first agreement.
    pub basis: Option<Basis>,
    /// Whether identity Leases showed throughout the pass which API servers exist.
    #[serde(default)]
    pub leased: bool,
    /// The phase of a migration.
    pub phase: Phase,
    /// Where the next page starts; none at the beginning of a pass.
    pub continue_token: Option<String>,
    /// How many objects the server announced after the continue token, if it did.
    #[serde(default)]
    pub announced: Option<u64>,
    /// The key of the last object of the last page, for lists without tokens.
    pub last_key: Option<String>,
    /// Whether objects of the pass seemed gone or changed, and no list has confirmed it yet.
    #[serde(default)]
    pub unconfirmed: bool,
    /// The mark of the agreement of the pass; none before it begins.
    pub mark: Option<String>,
    /// Whether that mark, or the fingerprint, changed during the pass.
    pub shifted: bool,
    /// Whether an object of the pass that looks written or deleted by others may have been written by restow.
    #[serde(default)]
    pub unsure: bool,
    /// Whether an earlier process began the pass, which may have written objects that it did not count.
    #[serde(skip)]
    pub resumed: bool,
    /// The resourceVersion of the list when the pass began, if it is a number.
    #[serde(default)]
    pub began_at: Option<i64>,
    /// The CRD in the pass, as uid and generation.
    #[serde(default)]
    pub definition: Option<String>,
    /// The hash of the encryption configuration it is migrated to, if the key is watched.
    #[serde(default)]
    pub encryption: Option<String>,
    /// The fingerprint of that configuration in the pass; none before it begins.
    #[serde(default)]
    #[serde(rename = "seal")]
    pub fingerprint: Option<String>,
    /// The CRD that the API servers' handlers have had time to follow.
    #[serde(default)]
    pub settled: Option<String>,
    /// What was observed of the API servers' encryption configurations in the pass.
    #[serde(default)]
    pub keys: Check,
    /// What remains unproven although the pass found nothing to rewrite, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven: Option<String>,
    /// How many objects there were when the pass began, if the server reports that.
    pub expected: Option<u64>,
    /// The counts of the first pass.
    pub counts: Counts,
    /// The counts of the verifying pass.
    pub verify: Counts,
    /// The number of verifying passes, including the current one.
    pub passes: u32,
    /// Whether a pass under one agreement rewrote nothing.
    pub verified: bool,
    /// When the migration began.
    pub started: Timestamp,
    /// When the progress was last saved.
    pub updated: Timestamp,
    /// The seconds spent, including those before it was resumed.
    pub seconds: f64,
}

impl Progress {
    /// Begins a migration to a storage version with this hash at `now`.
    pub fn new(resource: GroupResource, storage_version: &str, hash: &str, now: Timestamp) -> Self {
        Self {
            resource,
            storage_version: storage_version.to_owned(),
            storage_version_hash: hash.to_owned(),
            basis: None,
            leased: false,
            phase: Phase::Rewriting,
            continue_token: None,
            announced: None,
            last_key: None,
            unconfirmed: false,
            mark: None,
            shifted: false,
            unsure: false,
            resumed: false,
            began_at: None,
            definition: None,
            encryption: None,
            fingerprint: None,
            settled: None,
            keys: Check::default(),
            unproven: None,
            expected: None,
            counts: Counts::default(),
            verify: Counts::default(),
            passes: 0,
            verified: false,
            started: now,
            updated: now,
            seconds: 0.0,
        }
    }

    /// The counts of the current pass.
    pub fn pass(&self) -> &Counts {
        if self.phase == Phase::Rewriting { &self.counts } else { &self.verify }
    }

    /// The counts to report for the whole migration: those of the first pass, or of the verifying pass if another
    /// controller did the first.
    pub fn overall_counts(&self) -> &Counts {
        if self.counts == Counts::default() { &self.verify } else { &self.counts }
    }

    /// Adds a page in which every object is decided.
    pub fn page_done(&mut self, page: &Counts, next: Option<String>, last_key: Option<String>) {
        match self.phase {
            Phase::Rewriting => self.counts.add(page),
            Phase::Verifying | Phase::Done => self.verify.add(page),
        }
        self.continue_token = next;
        // A page in which no object can be read has no last key.
        self.last_key = last_key.or(self.last_key.take());
    }

    /// Continues with the objects as they are now, and not as they were when the list began: objects that were written and
    /// not counted before a crash would otherwise look as if others had written them.
    ///
    /// A verifying pass continues with its list until that expires: there, a write before the crash shows as a conflict.
    pub fn restart_list(&mut self) {
        let token = self.continue_token.as_deref().and_then(Token::decode);
        if let Some(token) = token.filter(|_| self.phase == Phase::Rewriting) {
            self.continue_token = Some(Token { resource_version: NEWEST, ..token }.encode());
            self.announced = None;
        }
    }

    /// Changes the outcome that an object of the pass is counted under.
    pub fn recount(&mut self, before: &Outcome, now: &Outcome) {
        let pass = match self.phase {
            Phase::Rewriting => &mut self.counts,
            Phase::Verifying | Phase::Done => &mut self.verify,
        };
        match before {
            Outcome::Gone => pass.gone = pass.gone.saturating_sub(1),
            Outcome::Conflicted => pass.conflicted = pass.conflicted.saturating_sub(1),
            _ => return,
        }
        pass.count(now);
    }

    /// Adds the outcomes of objects that were refused at first and retried after their pages.
    ///
    /// No list has confirmed those that seem gone or changed since, so the pass proves nothing about them.
    pub fn count_retried(&mut self, tried: &Counts) {
        let tried = Counts { listed: 0, ..*tried };
        match self.phase {
            Phase::Rewriting => self.counts.add(&tried),
            Phase::Verifying | Phase::Done => self.verify.add(&tried),
        }
        self.shifted |= tried.gone + tried.conflicted > 0;
    }

    /// Adds the agreement as it is between two pages. It is saved with the progress, so that a change during a crash is
    /// noticed.
    pub fn observe_agreement(&mut self, agreement: &Agreement) {
        if self.mark.as_ref().is_some_and(|mark| *mark != agreement.mark) {
            self.shifted = true;
        }
        // The weakest basis of the pass counts.
        let begins = self.mark.is_none();
        self.leased = agreement.leased && (begins || self.leased);
        self.basis = self.basis.filter(|_| !begins).max(Some(agreement.basis));
        self.mark = Some(agreement.mark.clone());
        self.definition.clone_from(&agreement.definition);
    }

    /// Whether the mark of the pass changes when a server restarts.
    pub fn is_marked(&self) -> bool {
        self.mark.is_some() && self.leased
    }

    /// Adds the encryption configurations as they are at the beginning or end of a pass.
    ///
    /// Only complete observations are compared, so a server that did not answer does not count as a change.
    pub fn observe_keys(&mut self, fingerprint: &str, check: Check) {
        let complete = check.unchecked.is_empty();
        match &self.fingerprint {
            Some(before) => {
                self.shifted |= complete && self.keys.unchecked.is_empty() && before != fingerprint;
                self.keys = std::mem::take(&mut self.keys).and(check);
            }
            None => self.keys = check,
        }
        self.fingerprint = Some(fingerprint.to_owned());
    }

    /// Starts over from the first object, for the encryption configuration that the API servers use now.
    pub fn restart(&mut self) {
        let resource = self.resource.clone();
        let fresh = Self::new(resource, &self.storage_version, &self.storage_version_hash, self.started);
        *self = Self { settled: self.settled.take(), seconds: self.seconds, updated: self.updated, ..fresh };
    }

    /// Begins a verifying pass.
    pub fn begin_verifying(&mut self) {
        // If another controller did the first pass, the first pass of restow counts.
        self.counts = *self.overall_counts();
        self.phase = Phase::Verifying;
        self.continue_token = None;
        self.announced = None;
        self.last_key = None;
        self.unconfirmed = false;
        self.verify = Counts::default();
        self.mark = None;
        self.fingerprint = None;
        self.keys = Check::default();
        self.unproven = None;
        self.shifted = false;
        self.unsure = false;
        self.resumed = false;
        self.began_at = None;
        self.passes += 1;
    }

    /// Starts the current pass over from its first object.
    pub fn restart_pass(&mut self) {
        self.passes = self.passes.saturating_sub(1);
        self.begin_verifying();
    }

    /// Records that a write of restow itself may look like another client's, because its answer was lost or an earlier
    /// process sent it. Then the pass does not prove that there was nothing to rewrite.
    pub fn note_hidden_write(&mut self, answer_lost: bool, seems_written: bool) {
        let interrupted = self.resumed && seems_written;
        if interrupted && !self.unsure {
            self.passes = self.passes.saturating_sub(1);
        }
        self.unsure |= answer_lost || interrupted;
    }

    /// Whether an object that is listed with this resourceVersion may have been written since the pass began.
    pub fn is_written_since(&self, resource_version: &str) -> bool {
        let began_at = self.began_at.unwrap_or(NEWEST);
        resource_version.parse().ok().is_none_or(|version: i64| version > began_at)
    }

    /// How many objects of this pass remain, if that is known.
    pub fn remaining(&self) -> Option<u64> {
        self.expected.map(|expected| expected.saturating_sub(self.pass().done()))
    }
}

/// How many verifying passes may find something to rewrite before the migration fails.
const PASSES: u32 = 5;
/// How many verifying passes may lose answers before the migration fails; lost answers show nothing about the objects.
const UNSURE_PASSES: u32 = 20;

/// The result of a verifying pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassVerdict {
    /// Every object is stored in the current version and under the current key.
    Verified,
    /// Something changed: another pass is needed.
    AnotherPass,
    /// Objects or servers kept changing in every pass.
    Restless,
}

/// Judges a verifying pass, given whether the agreement changed meanwhile, whether a write of restow itself may look like
/// another client's, and the number of passes.
pub fn judge_pass(pass: &Counts, shifted: bool, unsure: bool, passes: u32) -> PassVerdict {
    let still = pass.rewritten == 0 && !shifted;
    match (still, unsure) {
        (true, false) => PassVerdict::Verified,
        (true, true) if passes < UNSURE_PASSES => PassVerdict::AnotherPass,
        (false, _) if passes < PASSES => PassVerdict::AnotherPass,
        _ => PassVerdict::Restless,
    }
}

/// How the migration of one resource ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is done, and verified if that was requested.
    Succeeded,
    /// Some objects were quarantined.
    ObjectsLeft,
    /// The servers disagree, or the version changed.
    Unsafe,
    /// It failed.
    Failed,
    /// The user stopped it; it can be resumed.
    Stopped,
}

/// The exit code of a run: that of the resource with the most severe end.
pub fn exit_code(ends: impl IntoIterator<Item = End>) -> u8 {
    let grave = |end: End| match end {
        End::Succeeded => (0, 0),
        End::ObjectsLeft => (1, 3),
        End::Unsafe => (2, 4),
        End::Failed => (3, 1),
        End::Stopped => (4, 130),
    };
    ends.into_iter().map(grave).max().map_or(0, |(_, code)| code)
}

#[cfg(test)]
mod tests;
