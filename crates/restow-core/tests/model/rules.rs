//! The decisions, taken by restow-core's own functions.
//!
//! What they read and write is kept as it is, and known in the state by a number. As they are pure, what was decided
//! once is remembered.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, LazyLock, RwLock};
use std::thread::LocalKey;

use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::StorageVersionStatus;
use restow_api::StorageStateStatus;
use restow_core::agreement;
use restow_core::agreement::consensus::Consensus;
use restow_core::agreement::member::Member;
use restow_core::agreement::version::{Agreement, Disagreement, DiscoveryAnswers, ServerObservation};
use restow_core::protocol::storage_version::{
    self, CollectAction, Entry, Membership, StatusContext, Versions,
};
use restow_core::resource::hash::storage_version_hash;
use restow_core::resource::name::GroupVersion;

use super::state::{Age, Change, SERVERS, Version};

const GROUP: &str = "example.com";
const KIND: &str = "Widget";
pub(crate) const NAMES: [&str; SERVERS] = ["a", "b", "c"];

/// The time of every decision that is not about how long ago something was.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

pub(crate) fn name(version: Version) -> &'static str {
    match version {
        Version::V1 => "v1",
        Version::V2 => "v2",
    }
}

pub(crate) fn hash(version: Version) -> String {
    storage_version_hash(&GroupVersion::new(GROUP, name(version)), KIND)
}

fn version_of_hash(wanted: &str) -> Option<Version> {
    Version::BOTH.into_iter().find(|version| hash(*version) == wanted)
}

/// Values that the state knows by number.
pub(crate) struct Table<T> {
    values: Vec<Arc<T>>,
    numbers: HashMap<String, u16>,
}

impl<T: serde::Serialize> Table<T> {
    const fn new() -> RwLock<Option<Self>> {
        RwLock::new(None)
    }

    fn number(table: &RwLock<Option<Self>>, value: T) -> u16 {
        let mut table = table.write().unwrap();
        let table = table.get_or_insert_with(|| Self { values: Vec::new(), numbers: HashMap::new() });
        let text = serde_json::to_string(&value).unwrap();
        *table.numbers.entry(text).or_insert_with(|| {
            table.values.push(Arc::new(value));
            u16::try_from(table.values.len()).unwrap()
        })
    }

    fn value(table: &RwLock<Option<Self>>, number: u16) -> Option<Arc<T>> {
        let table = table.read().unwrap();
        table.as_ref()?.values.get(usize::from(number).checked_sub(1)?).cloned()
    }
}

static STATUSES: RwLock<Option<Table<StorageVersionStatus>>> = Table::new();
static STATES: RwLock<Option<Table<StorageStateStatus>>> = Table::new();

/// A StorageVersion's status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct Status(u16);

impl Status {
    /// That of an object that was just created; and of one that nobody will look at again.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(status: StorageVersionStatus) -> Self {
        Self(Table::number(&STATUSES, status))
    }

    pub(crate) fn read(self) -> Option<Arc<StorageVersionStatus>> {
        Table::value(&STATUSES, self.0)
    }

    /// Who has registered which version.
    pub(crate) fn entries(self) -> [Option<Version>; SERVERS] {
        thread_local!(static KNOWN: Memory<Status, [Option<Version>; SERVERS]> = Memory::default());
        remember(&KNOWN, self, || {
            let entries = storage_version::entries(self.read().as_deref());
            NAMES.map(|name| {
                let own = entries.iter().find(|entry| entry.server == name)?;
                Version::BOTH.into_iter().find(|version| versions(*version) == own.versions)
            })
        })
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.read() else { return f.write_str("{}") };
        for entry in storage_version::entries(Some(&status)) {
            write!(f, "{}={} ", entry.server, entry.versions.encoding())?;
        }
        write!(f, "common={:?}", status.common_encoding_version)
    }
}

/// A StorageState's status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Persisted(u16);

impl Persisted {
    pub(crate) fn new(status: StorageStateStatus) -> Self {
        Self(Table::number(&STATES, status))
    }

    pub(crate) fn read(self) -> Option<Arc<StorageStateStatus>> {
        Table::value(&STATES, self.0)
    }

    /// The version that everything is stored in and all write, if it is one.
    pub(crate) fn settled(self) -> Option<Version> {
        let status = self.read()?;
        let current = status.current_storage_version_hash.as_deref()?;
        let persisted = &status.persisted_storage_version_hashes;
        (persisted.len() == 1 && persisted[0] == current).then(|| version_of_hash(current)).flatten()
    }
}

impl fmt::Debug for Persisted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.read() else { return f.write_str("none") };
        let name = |hash: &String| version_of_hash(hash).map_or("Unknown", name);
        let all: Vec<_> = status.persisted_storage_version_hashes.iter().map(name).collect();
        write!(f, "{all:?} current {:?}", status.current_storage_version_hash.as_ref().map(name))
    }
}

pub(crate) type Memory<K, V> = RefCell<HashMap<K, V>>;

pub(crate) fn remember<K: Hash + Eq + Copy, V: Clone>(
    memory: &'static LocalKey<Memory<K, V>>,
    key: K,
    decide: impl FnOnce() -> V,
) -> V {
    if let Some(known) = memory.with_borrow(|memory| memory.get(&key).cloned()) {
        return known;
    }
    let decided = decide();
    memory.with_borrow_mut(|memory| memory.insert(key, decided.clone()));
    decided
}

fn versions(version: Version) -> Versions {
    static ALL: LazyLock<[Versions; 2]> = LazyLock::new(|| {
        let all = ["v1", "v2"].map(|version| GroupVersion::new(GROUP, version));
        all.clone().map(|encoding| Versions::new(&encoding, &all, &all).unwrap())
    });
    ALL[version as usize].clone()
}

pub(crate) type Ages = [Option<Age>; SERVERS];

/// What the identity Leases say, read at [`now`].
fn members(ages: Ages) -> Vec<Member> {
    let lasts = |age| match age {
        Age::Fresh | Age::Late => Timestamp::from_second(1_001_000).unwrap(),
        Age::Expired => Timestamp::from_second(999_000).unwrap(),
    };
    let member = |(name, age): (&str, Age)| Member {
        name: name.to_owned(),
        // The model asks nothing of a mark but that it changes with what is registered or defined.
        holder: String::new(),
        address: None,
        expires: Some(lasts(age)),
        component: agreement::member::KUBE_APISERVER.to_owned(),
    };
    NAMES.into_iter().zip(ages).filter_map(|(name, age)| Some(member((name, age?)))).collect()
}

/// The ids of those whose Lease has not expired.
fn live(ages: Ages) -> BTreeSet<String> {
    agreement::member::live(&members(ages), now()).into_iter().map(|member| member.name.clone()).collect()
}

/// Whether a server counts as alive, for everybody else.
pub(crate) fn is_live(ages: Ages, server: usize) -> bool {
    live(ages).contains(NAMES[server])
}

/// Who registers what, and when.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Registrant {
    pub(crate) server: usize,
    pub(crate) version: Version,
    pub(crate) life: Option<u8>,
    pub(crate) clock: u8,
}

/// What a server writes; none when it finds itself not to be a member. Without ages, the Leases could not be read.
pub(crate) fn register(read: Status, ages: Option<Ages>, own: Registrant) -> Option<Status> {
    thread_local!(static KNOWN: Memory<(Status, Option<Ages>, Registrant), Option<Status>> = Memory::default());
    remember(&KNOWN, (read, ages, own), || {
        let membership = match ages {
            Some(ages) => Membership::Known(live(ages)),
            None => Membership::Unknown("the Leases could not be read".to_owned()),
        };
        let before = read.read();
        let entry = Entry { server: NAMES[own.server].to_owned(), versions: versions(own.version) };
        let entries = storage_version::entries(before.as_deref());
        let entries = storage_version::register(&entries, &membership, &entry).ok()?;
        let holder = own.life.map(|life| format!("{}_{life}", NAMES[own.server]));
        let context =
            StatusContext { generation: Some(1), registrant: holder.as_deref(), now: at_clock(own.clock) };
        Some(Status::new(storage_version::status(before.as_deref(), &entries, context)))
    })
}

/// A time that is spoken of; of those only the order counts.
pub(crate) fn at_clock(clock: u8) -> Timestamp {
    Timestamp::from_second(i64::from(clock)).unwrap()
}

pub(crate) fn clock_of(time: Timestamp) -> u8 {
    u8::try_from(time.as_second()).unwrap()
}

/// What a collector in this server does; `dead` is a server whose Lease it could not read and takes for dead.
pub(crate) fn collect(
    read: Status,
    ages: Ages,
    collector: usize,
    dead: Option<usize>,
    clock: u8,
) -> Option<Change> {
    type Key = (Status, Ages, usize, Option<usize>, u8);
    thread_local!(static KNOWN: Memory<Key, Option<Change>> = Memory::default());
    remember(&KNOWN, (read, ages, collector, dead, clock), || {
        let mut seen = live(ages);
        let membership = match dead {
            Some(dead) => {
                seen.remove(NAMES[dead]);
                Membership::Known(seen)
            }
            None => Membership::as_seen_by(NAMES[collector], seen),
        };
        let before = read.read();
        match storage_version::collect(&storage_version::entries(before.as_deref()), &membership) {
            CollectAction::Keep => None,
            CollectAction::Delete => Some(Change::Delete),
            CollectAction::Update(entries) => {
                let context = StatusContext { generation: Some(1), registrant: None, now: at_clock(clock) };
                let status = storage_version::status(before.as_deref(), &entries, context);
                Some(Change::Update(Status::new(status)))
            }
        }
    })
}

/// What can be seen of the servers' agreement.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pub(crate) object: Option<Status>,
    pub(crate) ages: Ages,
    pub(crate) generation: Option<u8>,
    /// Whether it is an aggregated API server's resource, whose servers are not the members.
    pub(crate) aggregated: bool,
    /// What one server reports, where that counts for all.
    pub(crate) one: Option<Version>,
    /// Whether it is not asked since when they agree.
    pub(crate) blind_between: bool,
}

pub(crate) fn since(status: &StorageVersionStatus) -> Option<Timestamp> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let equal = conditions.iter().find(|condition| condition.type_ == storage_version::ALL_EQUAL)?;
    equal.last_transition_time.as_ref().filter(|_| equal.status == "True").map(|time| time.0)
}

impl Seen {
    fn sighting(&self) -> ServerObservation {
        let read = |status: Status| {
            let status = status.read();
            let entries = storage_version::entries(status.as_deref());
            let pair = |entry: &Entry| (entry.server.clone(), entry.versions.encoding().to_owned());
            agreement::version::StorageVersion {
                // Whoever kept an older one has another number for it.
                resource_version: CURRENT.to_owned(),
                entries: entries.iter().map(pair).collect(),
                common: status.as_deref().and_then(|status| status.common_encoding_version.clone()),
                since: status.as_deref().and_then(since).filter(|_| !self.blind_between),
            }
        };
        let answer =
            |version| agreement::version::ServerAnswer { server: "one".to_owned(), hash: Ok(hash(version)) };
        ServerObservation {
            kind: KIND.to_owned(),
            members: Ok(members(self.ages)),
            storage_version: Ok(self.object.map(read)),
            asked: match (self.one, self.object) {
                (Some(one), _) => DiscoveryAnswers::Single(answer(one)),
                (None, Some(_)) if !self.aggregated => DiscoveryAnswers::Members(Vec::new()),
                _ => DiscoveryAnswers::Aggregated,
            },
            definition: self.generation.map(definition),
        }
    }

    /// The agreement, or why there is none.
    pub(crate) fn agreement(&self) -> Result<Agreement, Disagreement> {
        agreement::version::decide(&self.sighting(), now())
    }

    /// The version that all agree on; an error tells whether it is worth waiting for servers that are silent.
    pub(crate) fn agreed(&self) -> Result<Version, Silent> {
        thread_local!(static KNOWN: Memory<Seen, Result<Version, Silent>> = Memory::default());
        remember(&KNOWN, *self, || match self.agreement() {
            Ok(agreement) => version_of_hash(&agreement.hash).ok_or(Silent(false)),
            Err(why) => Err(Silent(matches!(why, Disagreement::NotReached(_)))),
        })
    }

    /// What the servers report together, for the trigger.
    pub(crate) fn consensus(&self) -> Consensus {
        let seen = self.sighting();
        match agreement::version::decide(&seen, now()) {
            Ok(agreement) => Consensus::Agreed(agreement.hash),
            Err(Disagreement::Split(_)) => Consensus::Split(agreement::version::hashes(&seen)),
            Err(_) => Consensus::Silent(agreement::version::hashes(&seen)),
        }
    }
}

/// Whether servers are silent, rather than of different words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Silent(pub(crate) bool);

/// The resourceVersion of the StorageVersion as it is.
pub(crate) const CURRENT: &str = "1";
/// Any resourceVersion that it had before.
pub(crate) const FORMER: &str = "0";

/// A definition, as uid and generation.
pub(crate) fn definition(generation: u8) -> String {
    format!("u/{generation}")
}
