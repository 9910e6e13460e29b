//! How far the migration of one resource is, and what its end means.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::agreement::basis::Basis;
use crate::agreement::encryption::Check;
use crate::agreement::version::Agreement;
use crate::resource::name::GroupResource;
use crate::rewrite::outcome::Outcome;
use crate::rewrite::token::{NEWEST, Token};

/// Counts of what became of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Seen in lists.
    pub listed: u64,
    /// Stored anew.
    pub rewritten: u64,
    /// Already stored as they should be.
    pub current: u64,
    /// Written by somebody else meanwhile.
    pub conflicted: u64,
    /// Deleted meanwhile.
    pub gone: u64,
    /// Refused by the server.
    pub quarantined: u64,
    /// Accepted in a dry run, which does not tell what would be written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub accepted: u64,
}

/// A number of objects in words: "1 object", "2 objects".
pub fn objects(count: u64) -> String {
    format!("{count} object{}", if count == 1 { "" } else { "s" })
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Counts {
    /// Counts one outcome; an undecided one counts as nothing.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Rewritten => self.rewritten += 1,
            Outcome::Current => self.current += 1,
            Outcome::Conflicted => self.conflicted += 1,
            Outcome::Gone => self.gone += 1,
            Outcome::Quarantined { .. } => self.quarantined += 1,
            Outcome::Accepted => self.accepted += 1,
            Outcome::Refused { .. } | Outcome::Again { .. } | Outcome::Doubtful(_) => {}
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

/// What is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The first pass.
    #[default]
    Rewriting,
    /// A further pass, which must find nothing to rewrite.
    Verifying,
    /// Ended.
    Done,
}

/// An object that was left as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantined {
    /// Its namespace, empty for cluster-wide objects.
    #[serde(default)]
    pub namespace: String,
    /// Its name; of an unreadable object, as far as it could be told.
    pub name: String,
    /// Its uid; empty when it could not be read.
    #[serde(default)]
    pub uid: String,
    /// The server's own reason, or restow's.
    pub reason: String,
    /// The server's own words, or restow's.
    pub message: String,
}

/// The migration of one resource, as it is kept between pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Which resource.
    #[serde(with = "crate::resource::name::text")]
    pub resource: GroupResource,
    /// The storage version it is migrated to.
    pub storage_version: String,
    /// The hash of that version.
    pub storage_version_hash: String,
    /// What the agreement rests on, at the weakest moment of the pass; none before there is one.
    pub basis: Option<Basis>,
    /// Whether identity Leases showed throughout the pass which API servers there are.
    #[serde(default)]
    pub leased: bool,
    /// What is being done.
    pub phase: Phase,
    /// Where the next page starts; none at the beginning of a pass.
    pub continue_token: Option<String>,
    /// How many objects the server announced behind that place, where it tells.
    #[serde(default)]
    pub announced: Option<u64>,
    /// The key of the last object of the last page, for lists that have no tokens.
    pub last_key: Option<String>,
    /// Whether objects of the pass seemed gone or changed, and no list has confirmed it yet.
    #[serde(default)]
    pub unconfirmed: bool,
    /// The mark of the agreement the pass stands under; none before it begins.
    pub mark: Option<String>,
    /// Whether that mark, or the fingerprint, changed during the pass.
    pub shifted: bool,
    /// Whether restow itself may have written an object of the pass that looks written or deleted by others.
    #[serde(default)]
    pub unsure: bool,
    /// Whether an earlier process began the pass: it may have written objects without telling.
    #[serde(skip)]
    pub resumed: bool,
    /// The resourceVersion of the resource when the pass began, where its server tells.
    #[serde(default)]
    pub began_at: Option<i64>,
    /// The CustomResourceDefinition, as uid and generation, that the pass stands under.
    #[serde(default)]
    pub definition: Option<String>,
    /// The hash of the encryption configuration it is migrated to, where that is watched.
    #[serde(default)]
    pub encryption: Option<String>,
    /// The fingerprint of that configuration in the pass; none before it begins.
    #[serde(default)]
    #[serde(rename = "seal")]
    pub fingerprint: Option<String>,
    /// The definition that the API servers' handlers have had time to follow.
    #[serde(default)]
    pub settled: Option<String>,
    /// What was seen of the API servers' encryption configurations in the pass.
    #[serde(default)]
    pub keys: Check,
    /// What a pass that found nothing to rewrite leaves unproven all the same, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unproven: Option<String>,
    /// How many objects there were when the pass began, where the server tells.
    pub expected: Option<u64>,
    /// What became of the objects in the first pass.
    pub counts: Counts,
    /// What became of them in the pass that verifies.
    pub verify: Counts,
    /// How many passes have verified, the present one included.
    pub passes: u32,
    /// Whether a pass under one agreement rewrote nothing.
    pub verified: bool,
    /// When it began.
    pub started: Timestamp,
    /// When it was last saved.
    pub updated: Timestamp,
    /// Seconds spent, over all resumptions.
    pub seconds: f64,
}

impl Progress {
    /// A migration to a storage version, of this hash, that begins at `now`.
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

    /// The counts of the pass under way.
    pub fn pass(&self) -> &Counts {
        if self.phase == Phase::Rewriting { &self.counts } else { &self.verify }
    }

    /// The counts that tell what became of all objects: those of the first pass, or of the pass that verifies when
    /// the first was somebody else's.
    pub fn told(&self) -> &Counts {
        if self.counts == Counts::default() { &self.verify } else { &self.counts }
    }

    /// Takes in a page whose every object is decided.
    pub fn page_done(&mut self, page: &Counts, next: Option<String>, last_key: Option<String>) {
        match self.phase {
            Phase::Rewriting => self.counts.add(page),
            Phase::Verifying | Phase::Done => self.verify.add(page),
        }
        self.continue_token = next;
        // A page of objects that cannot be read ends no earlier than the one before.
        self.last_key = last_key.or(self.last_key.take());
    }

    /// Goes on with the objects as they are now, and not as they were when the list began: those that were written and
    /// not counted before a crash would look as if others had written them.
    ///
    /// A pass that verifies goes on with its list, as long as it has not expired: there a write before the crash shows as
    /// a conflict.
    pub fn list_anew(&mut self) {
        let token = self.continue_token.as_deref().and_then(Token::decode);
        if let Some(token) = token.filter(|_| self.phase == Phase::Rewriting) {
            self.continue_token = Some(Token { resource_version: NEWEST, ..token }.encode());
            self.announced = None;
        }
    }

    /// Counts an object of the pass otherwise than before.
    pub fn decided_anew(&mut self, before: &Outcome, now: &Outcome) {
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

    /// Takes in what became of objects of finished pages that were refused at first, and tried once more.
    ///
    /// No list has confirmed those of them that seem gone or changed since, so the pass proves nothing about them.
    pub fn tried_again(&mut self, tried: &Counts) {
        let tried = Counts { listed: 0, ..*tried };
        match self.phase {
            Phase::Rewriting => self.counts.add(&tried),
            Phase::Verifying | Phase::Done => self.verify.add(&tried),
        }
        self.shifted |= tried.gone + tried.conflicted > 0;
    }

    /// Takes in the agreement as it is between two pages; it is kept with the progress, so that a crash does not
    /// hide a change.
    pub fn watch(&mut self, agreement: &Agreement) {
        if self.mark.as_ref().is_some_and(|mark| *mark != agreement.mark) {
            self.shifted = true;
        }
        // A pass is proven by no more than every look of it rests on.
        let begins = self.mark.is_none();
        self.leased = agreement.leased && (begins || self.leased);
        self.basis = self.basis.filter(|_| !begins).max(Some(agreement.basis));
        self.mark = Some(agreement.mark.clone());
        self.definition.clone_from(&agreement.definition);
    }

    /// Whether the pass stands under a mark that changes when a server restarts.
    pub fn is_marked(&self) -> bool {
        self.mark.is_some() && self.leased
    }

    /// Takes in the encryption configurations as they are at one end of a pass.
    ///
    /// An API server that was not heard has changed nothing: only two complete looks are compared.
    pub fn watch_keys(&mut self, fingerprint: &str, check: Check) {
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

    /// Begins from the first object, for whatever encryption configuration the API servers have now.
    pub fn begin_anew(&mut self) {
        let resource = self.resource.clone();
        let fresh = Self::new(resource, &self.storage_version, &self.storage_version_hash, self.started);
        *self = Self { settled: self.settled.take(), seconds: self.seconds, updated: self.updated, ..fresh };
    }

    /// Begins a pass that verifies.
    pub fn begin_verifying(&mut self) {
        // Where the first pass was somebody else's, the first of restow's own counts.
        self.counts = *self.told();
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

    /// Begins the pass under way from its first object.
    pub fn verify_anew(&mut self) {
        self.passes = self.passes.saturating_sub(1);
        self.begin_verifying();
    }

    /// Takes in what may hide a write of restow's own: its answer was lost, or an earlier process sent it. The pass does
    /// not prove then that there was nothing to rewrite. One that was interrupted is not counted.
    pub fn doubt(&mut self, answer_lost: bool, seems_written: bool) {
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

    /// How many objects of this pass are left, where that can be told.
    pub fn remaining(&self) -> Option<u64> {
        self.expected.map(|expected| expected.saturating_sub(self.pass().done()))
    }
}

/// How often a pass may find something to rewrite before it is given up.
const PASSES: u32 = 5;
/// How often answers may be lost before it is given up: that shows nothing of the objects.
const UNSURE_PASSES: u32 = 20;

/// What a finished pass that verifies means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Every object is stored as it should be.
    Verified,
    /// Something moved: one more pass.
    Again,
    /// It does not come to rest.
    Restless,
}

/// Judges a pass that verified, given whether the agreement shifted meanwhile, or a write of restow's own may be hidden,
/// and how many passes there were.
pub fn judge(pass: &Counts, shifted: bool, unsure: bool, passes: u32) -> Proof {
    let still = pass.rewritten == 0 && !shifted;
    match (still, unsure) {
        (true, false) => Proof::Verified,
        (true, true) if passes < UNSURE_PASSES => Proof::Again,
        (false, _) if passes < PASSES => Proof::Again,
        _ => Proof::Restless,
    }
}

/// How the migration of one resource ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Done, and verified unless that was not wanted.
    Succeeded,
    /// Some objects were left.
    Left,
    /// The servers disagree, or the version changed.
    Unsafe,
    /// It failed.
    Failed,
    /// The user stopped it; it can be resumed.
    Stopped,
}

/// The exit code of a run, by how its resources ended: the gravest counts.
pub fn exit_code(ends: impl IntoIterator<Item = End>) -> u8 {
    let grave = |end: End| match end {
        End::Succeeded => (0, 0),
        End::Left => (1, 3),
        End::Unsafe => (2, 4),
        End::Failed => (3, 1),
        End::Stopped => (4, 130),
    };
    ends.into_iter().map(grave).max().map_or(0, |(_, code)| code)
}

#[cfg(test)]
mod tests;
