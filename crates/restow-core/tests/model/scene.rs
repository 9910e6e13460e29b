//! Where the model begins, and how much may happen from there.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use restow_api::StorageStateStatus;

use super::migration_rules::RUN;
use super::rules::{self, Persisted, Registrant, Status, hash};
use super::state::{
    Age, Budget, Definition, Ghost, Lease, OBJECTS, Run, SERVERS, Server, State, Step, Version,
};

/// What there is at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// Nothing: no server has ever run.
    Nothing,
    /// All servers have registered v1, and everything is stored so.
    Settled,
    /// All servers have registered v2, an object is stored in v1, and its migration is made.
    Upgraded,
}

/// One part of what can happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) beginning: Beginning,
    pub(crate) servers: usize,
    pub(crate) objects: usize,
    /// Whether the resource is a custom one, whose version is changed while servers run, rather than with a restart.
    pub(crate) custom: bool,
    pub(crate) migrator: bool,
    /// Whether a registration, and a collection, is one step rather than requests that others come in between of.
    pub(crate) coarse: bool,
    /// How many collectors may be at work at once.
    pub(crate) collectors: usize,
    pub(crate) budget: Budget,
}

impl Scene {
    pub(crate) fn starts(&self) -> Vec<State> {
        let version = match self.beginning {
            Beginning::Upgraded => Version::V2,
            Beginning::Nothing | Beginning::Settled => Version::V1,
        };
        let empty = self.beginning == Beginning::Nothing;
        let mut stored = [None; OBJECTS];
        stored[0] = Some(Version::V1).filter(|_| !empty);
        let persisted = match self.beginning {
            Beginning::Nothing => Persisted::default(),
            Beginning::Settled => self.persisted(&[Version::V1]),
            Beginning::Upgraded => self.persisted(&Version::BOTH),
        };
        vec![State {
            servers: self.servers(version),
            object: (!empty).then(|| self.object(version)),
            network: Vec::new(),
            collecting: Vec::new(),
            definition: self.custom.then(|| self.definition(version)),
            stored,
            writes: Vec::new(),
            persisted: if self.migrator { persisted } else { Persisted::default() },
            run: (self.migrator && self.beginning == Beginning::Upgraded).then(|| Run::made(RUN, version)),
            budget: self.budget,
            ghost: Ghost::default(),
        }]
    }

    fn servers(&self, version: Version) -> [Server; SERVERS] {
        let down = Server { step: Step::Down, version, life: 1, lease: None };
        let lease = Some(Lease { life: 1, age: Age::Fresh });
        let registered = Server { step: Step::Registered, lease, ..down };
        let up = if self.beginning == Beginning::Nothing { 0 } else { self.servers };
        std::array::from_fn(|server| if server < up { registered } else { down })
    }

    fn object(&self, version: Version) -> Status {
        let ages = std::array::from_fn(|server| (server < self.servers).then_some(Age::Fresh));
        (0..self.servers).fold(Status::NONE, |status, server| {
            let own = Registrant { server, version, life: Some(1), clock: 0 };
            rules::register(status, Some(ages), own).unwrap()
        })
    }

    fn definition(&self, version: Version) -> Definition {
        let upgraded = self.beginning == Beginning::Upgraded;
        Definition { version, generation: 1, stored: [true, upgraded] }
    }

    fn persisted(&self, versions: &[Version]) -> Persisted {
        let hashes: Vec<String> = versions.iter().map(|version| hash(*version)).collect();
        Persisted::new(StorageStateStatus {
            current_storage_version_hash: hashes.last().cloned(),
            persisted_storage_version_hashes: hashes,
            last_heartbeat_time: Some(Time(rules::now())),
            served_versions: if self.custom { vec!["v1".to_owned(), "v2".to_owned()] } else { Vec::new() },
            agreement: Some("storageversion".to_owned()),
            agreed_since: Some(Time(Timestamp::UNIX_EPOCH)),
            ..StorageStateStatus::default()
        })
    }
}

const fn budget(faults: u8, restarts: u8, writes: u8, redefinitions: u8) -> Budget {
    Budget { faults, restarts, writes, redefinitions }
}

/// Three servers, all registered in v1; one of them may be restarted in another version, and one thing goes wrong.
pub(crate) const MEMBERS: Scene = Scene {
    name: "members",
    beginning: Beginning::Settled,
    servers: 3,
    objects: 1,
    custom: false,
    migrator: false,
    coarse: false,
    collectors: 1,
    budget: budget(1, 1, 1, 0),
};

/// Three servers that start where there was none; one thing goes wrong.
pub(crate) const FOUNDING: Scene =
    Scene { name: "founding", beginning: Beginning::Nothing, budget: budget(1, 0, 0, 0), ..MEMBERS };

/// Two servers, of which one may be restarted in another version, and one thing goes wrong, with two collectors.
pub(crate) const PAIR: Scene = Scene { name: "pair", servers: 2, collectors: 2, ..MEMBERS };

/// Three servers are restarted one after the other, and what is stored is migrated to their version.
pub(crate) const ROLLOUT: Scene =
    Scene { name: "rollout", migrator: true, coarse: true, budget: budget(0, 3, 1, 0), ..MEMBERS };

/// What is stored is migrated, while one of three servers is restarted and one thing goes wrong.
pub(crate) const DISTURBED: Scene = Scene {
    name: "disturbed migration",
    beginning: Beginning::Upgraded,
    objects: 2,
    budget: budget(1, 1, 1, 0),
    ..ROLLOUT
};

/// What is stored is migrated, while one of two servers goes back to the old version and comes again.
pub(crate) const FORTH_AND_BACK: Scene =
    Scene { name: "forth and back", servers: 2, budget: budget(0, 2, 2, 0), ..DISTURBED };

/// One server alone changes its version twice.
pub(crate) const OVERTURNED: Scene =
    Scene { name: "overturned", servers: 1, budget: budget(1, 2, 1, 0), ..DISTURBED };

/// The list is refused to a migration, and the trigger dies while it replaces it.
pub(crate) const INTERRUPTED: Scene =
    Scene { name: "interrupted trigger", servers: 1, budget: budget(2, 0, 1, 0), ..DISTURBED };

/// A custom resource of two servers is redefined twice.
pub(crate) const CUSTOM: Scene =
    Scene { name: "custom", servers: 2, custom: true, migrator: true, budget: budget(0, 0, 1, 2), ..MEMBERS };

/// A custom resource of three servers is redefined.
pub(crate) const CUSTOM_TRIO: Scene =
    Scene { name: "custom of three", servers: 3, budget: budget(0, 0, 1, 1), ..CUSTOM };

/// A custom resource of two servers is redefined, and one thing goes wrong.
pub(crate) const CUSTOM_DISTURBED: Scene =
    Scene { name: "disturbed custom", coarse: true, budget: budget(1, 0, 1, 1), ..CUSTOM };

/// All that the protocol must be safe in.
pub(crate) const SCENES: [&Scene; 11] = [
    &MEMBERS,
    &FOUNDING,
    &PAIR,
    &ROLLOUT,
    &DISTURBED,
    &FORTH_AND_BACK,
    &OVERTURNED,
    &INTERRUPTED,
    &CUSTOM,
    &CUSTOM_TRIO,
    &CUSTOM_DISTURBED,
];
