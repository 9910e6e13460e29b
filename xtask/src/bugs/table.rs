//! The table of bugs: defects that restow once had, written into a copy of the sources as they are today.
//!
//! An edit replaces a text that stands exactly once in its file. In the wrong text, `BUG` stands for "this bug is
//! switched on". A defect that several rules keep away today is put back with an edit of each of them.
//!
//! What seeds cannot show is not in it, and is held by other tests:
//!
//! - Exit codes, reports, state files, resumption by name, a closed stderr: the simulation drives the engine, not the
//!   command line. `restow/tests/scenarios/resuming.rs`, `terminal.rs` and `cli.rs` do.
//! - Servers behind one address: a sample may miss one by chance, so that no seed tells a defect from bad luck. The table
//!   in `restow-migrate/src/sampling.rs` and the scenario `a_restart_of_a_server_starts_a_new_sampling_period` do.
//! - Memory: the simulation's objects are small. `pages_of_large_objects_stay_small` in `list_faults.rs`.
//! - Conversion webhooks that reject objects: the simulated definitions have none. `denied.rs` and `webhook.rs`.
//! - Changes that fall between two looks of a run (a definition that is changed forth and back while a pass verifies, before
//!   a resume, or before a prune): forty dense seeds did not hit the moment. `agreement.rs`, and the model check's bugs.
//! - A continue token that repeats: `a_repeated_continue_token_is_not_followed` in `list_faults.rs`; seeds hit it too seldom.
//! - An object that is blamed for a short outage of all lists: `list_faults.rs`; seeds hit it too seldom.
//! - A state that nobody has watched for too long while a server is silent: simulated servers tell anew at a restart when they took
//!   their key up, so that another rule notices. The tables of `restow-core/src/controller/trigger`, and `forgotten.rs`.
//! - A leader's term that is over and renewed: it takes a clock that is set forward less than a second before a renewal. The
//!   table in `restow-lease/src/stop.rs`, and seed 1213 of `controllers`.
//! - A write of restow's own that a verifying pass takes for somebody else's: simulated objects do not change with every write, so
//!   that hardly any such pass has something to rewrite. `restless.rs`.
//! - What API servers register: the model check in `restow-core/tests/model`, which has its own bugs.
//! - A storage version that is not served: `proof.rs`.
//! - Progress that is kept before its page is written: the verifying pass finds what a crash then leaves out, so that no
//!   invariant breaks by that alone. `storm.rs` kills runs and counts.

/// A defect that the simulation must catch.
pub(crate) struct Bug {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// The defect in one sentence.
    pub(crate) what: &'static str,
    /// How it is put back.
    pub(crate) edits: &'static [Edit],
    /// The scene it shows in; any when none is given.
    pub(crate) scene: Option<&'static str>,
    /// Within how many seeds it must be caught, counted from 0.
    pub(crate) seeds: u64,
    /// The invariant it violates.
    pub(crate) invariant: &'static str,
}

impl Bug {
    /// The simulator's arguments for the plans that it must be caught by.
    pub(crate) fn plans(&self) -> Vec<&'static str> {
        let scene = self.scene.into_iter().flat_map(|scene| ["--scene", scene]);
        std::iter::once("--dense").chain(scene).collect()
    }
}

/// A change of one place in the sources.
pub(crate) struct Edit {
    /// The file, from the root of the workspace.
    pub(crate) file: &'static str,
    /// What stands there.
    pub(crate) right: &'static str,
    /// What is put in its place.
    pub(crate) wrong: &'static str,
}

const NEWS: &str = "crates/restow-core/src/controller/trigger/state_update.rs";
const REPLACE: &str = "crates/restow-core/src/controller/trigger/replace.rs";
const OUTCOME: &str = "crates/restow-core/src/rewrite/outcome.rs";
const PAGE: &str = "crates/restow-core/src/rewrite/page.rs";
const AGREEMENT: &str = "crates/restow-core/src/agreement/version.rs";
const ENCRYPTION: &str = "crates/restow-core/src/agreement/encryption.rs";
const MANAGED_FIELDS: &str = "crates/restow-core/src/rewrite/managed_fields.rs";
const SEQUENCE: &str = "crates/restow-core/src/rewrite/sequence.rs";
const CHUNKS: &str = "crates/restow-migrate/src/list/chunks.rs";
const CLUSTER_KEYS: &str = "crates/restow-migrate/src/cluster/keys.rs";
const CONFIRM: &str = "crates/restow-migrate/src/migration/confirm.rs";
const MIGRATION: &str = "crates/restow-migrate/src/migration/run.rs";
const RUN_AGREEMENT: &str = "crates/restow-migrate/src/migration/agreement.rs";
const KEYS: &str = "crates/restow-migrate/src/migration/keys.rs";
const HEALTH: &str = "crates/restow-migrate/src/rewrite/health.rs";
const WRITE: &str = "crates/restow-migrate/src/rewrite/write.rs";
const PAGES: &str = "crates/restow-migrate/src/list/pages.rs";

/// What an object seems to be by its code alone is not confirmed.
const UNCONFIRMED: Edit = Edit {
    file: CONFIRM,
    right: "while !unconfirmed.is_empty() {",
    wrong: "while !unconfirmed.is_empty() {\n            if BUG {\n                break;\n            }",
};

/// All of them.
pub(crate) const BUGS: &[Bug] = &[
    Bug {
        name: "404-is-gone",
        what: "A write that is denied with 404 or 410 counts the object as deleted.",
        edits: &[
            Edit {
                file: OUTCOME,
                right: "404 | 409 | 410 => Outcome::Doubtful(",
                wrong: "404 | 410 if BUG => Outcome::Gone,\n        404 | 409 | 410 => Outcome::Doubtful(",
            },
            UNCONFIRMED,
        ],
        scene: Some("keys"),
        seeds: 95,
        invariant: "S2",
    },
    Bug {
        name: "409-is-a-conflict",
        what: "A write that is denied with 409 counts the object as written by another.",
        edits: &[
            Edit {
                file: OUTCOME,
                right: "404 | 409 | 410 => Outcome::Doubtful(",
                wrong: "409 if BUG => Outcome::Conflicted,\n        404 | 409 | 410 => Outcome::Doubtful(",
            },
            UNCONFIRMED,
        ],
        scene: Some("keys"),
        seeds: 200,
        invariant: "S2",
    },
    Bug {
        name: "503-is-retried-for-ever",
        what: "An object that a webhook denies with 429, 503 or 504 is tried for ever, and never named.",
        edits: &[Edit {
            file: OUTCOME,
            right: "Blame::Server if counted >= SERVER_TRIES",
            wrong: "Blame::Server if !BUG && counted >= SERVER_TRIES",
        }],
        scene: Some("single"),
        seeds: 85,
        invariant: "L1",
    },
    Bug {
        name: "302-is-a-refusal",
        what: "A single redirect quarantines the object whose write it answered.",
        edits: &[Edit {
            file: OUTCOME,
            right: "300..=399 => again(Blame::Object, false),",
            wrong: "300..=399 if BUG => {\n            \
                    let message = message_or_code(message, code, location);\n            \
                    Outcome::Quarantined { reason: reason_or_code(reason, code), message }\n        }\n        \
                    300..=399 => again(Blame::Object, false),",
        }],
        scene: Some("single"),
        seeds: 40,
        invariant: "L2",
    },
    Bug {
        name: "401-ends-the-run",
        what: "A single 401 in the middle of a run ends it.",
        edits: &[Edit {
            file: OUTCOME,
            right: "Blame::Credentials if lasted >= transient::TRANSIENT_ANSWER_TIMEOUT",
            wrong: "Blame::Credentials if BUG || lasted >= transient::TRANSIENT_ANSWER_TIMEOUT",
        }],
        scene: Some("single"),
        seeds: 40,
        invariant: "L1",
    },
    Bug {
        name: "anything-is-a-list",
        what: "A page that is no list counts as an empty last page.",
        edits: &[
            Edit {
                file: PAGES,
                right: "let list = List::read(&reply.body)",
                wrong: "if BUG\n        && List::read(&reply.body).is_err()\n        \
                        && serde_json::from_slice::<serde_json::Value>(&reply.body).is_ok()\n    {\n        \
                        return Ok((Page { last: true, ..Page::default() }, NEWEST));\n    }\n    \
                        let list = List::read(&reply.body)",
            },
            Edit {
                file: SEQUENCE,
                right: "self.check(asked, page)?;",
                wrong: "if !BUG {\n            self.check(asked, page)?;\n        }",
            },
        ],
        scene: Some("single"),
        seeds: 40,
        invariant: "S2",
    },
    Bug {
        name: "three-failing-lists-end-it",
        what: "Three failing list requests end a migration.",
        edits: &[Edit {
            file: CHUNKS,
            right: "Isolated::Nowhere => {\n                        if since.elapsed() >= OUTAGE_TIMEOUT",
            wrong: "Isolated::Nowhere => {\n                        if BUG || since.elapsed() >= OUTAGE_TIMEOUT",
        }],
        scene: Some("single"),
        seeds: 40,
        invariant: "L1",
    },
    Bug {
        name: "list-302-ends-it",
        what: "A single 302 or 401 to a list request ends the run.",
        edits: &[Edit {
            file: PAGE,
            right: "200..=299 if passes =>",
            wrong: "300..=399 | 401 if BUG => Step::Stop,\n        200..=299 if passes =>",
        }],
        scene: Some("single"),
        seeds: 40,
        invariant: "L1",
    },
    Bug {
        name: "never-settles",
        what: "A definition that was just changed is not given time to settle.",
        edits: &[Edit {
            file: RUN_AGREEMENT,
            right: "None => agreement::version::settle(",
            wrong: "None if BUG => Duration::ZERO,\n            None => agreement::version::settle(",
        }],
        scene: Some("lagging"),
        seeds: 40,
        invariant: "S2",
    },
    Bug {
        name: "one-server-speaks-for-all-keys",
        what: "One API server's encryption configuration counts as that of all.",
        edits: &[
            Edit {
                file: CLUSTER_KEYS,
                right: "for (server, peer) in self.peers(&members) {\n            let config",
                wrong: "for (server, peer) in self.peers(&members).into_iter().take(if BUG { 1 } else { usize::MAX }) {\n            let config",
            },
            Edit { file: ENCRYPTION, right: "(missing > 0).then(", wrong: "(!BUG && missing > 0).then(" },
        ],
        scene: Some("keys"),
        seeds: 40,
        invariant: "S6",
    },
    Bug {
        name: "begin-never-retries",
        what: "A server that does not answer at the beginning of a run ends it.",
        edits: &[Edit {
            file: RUN_AGREEMENT,
            right: "Err(AgreementError::Request(error)) => self.passing(error, known, since)?,",
            wrong: "Err(AgreementError::Request(error)) if BUG && stage == Stage::Starting => {\n                    \
                    return Err(error.into());\n                }\n                \
                    Err(AgreementError::Request(error)) => self.passing(error, known, since)?,",
        }],
        scene: Some("single"),
        seeds: 40,
        invariant: "L1",
    },
    Bug {
        name: "announced-is-forgotten",
        what: "A list that ends before all objects it announced were shown counts as complete.",
        edits: &[Edit {
            file: SEQUENCE,
            right: "if version != NEWEST && version == page.version && announced",
            wrong: "if !BUG && version != NEWEST && version == page.version && announced",
        }],
        scene: Some("single"),
        seeds: 75,
        invariant: "S2",
    },
    Bug {
        name: "silence-changes-the-key",
        what: "An API server that cannot be reached counts as one with another encryption configuration.",
        edits: &[Edit {
            file: KEYS,
            right: "Err(error) if doubtful => error.to_string(),",
            wrong: "Err(_) if BUG => {\n                    let heard = vec![(String::new(), Some(\"silent\".to_owned()))];\n                    \
                    return Ok(Some(Encryption { heard, ..restow_core::agreement::encryption::agree(&[]) }));\n                }\n                \
                    Err(error) if doubtful => error.to_string(),",
        }],
        scene: Some("single"),
        seeds: 165,
        invariant: "L1",
    },
    Bug {
        name: "refused-metrics-agree",
        what: "An API server that refuses to show its metrics counts as one that agrees on the key.",
        edits: &[Edit {
            file: ENCRYPTION,
            right: "Err(MetricsError::Refused(why)) => refused",
            wrong: "Err(MetricsError::Refused(_)) if BUG => {}\n            Err(MetricsError::Refused(why)) => refused",
        }],
        scene: Some("keys"),
        seeds: 40,
        invariant: "S6",
    },
    Bug {
        name: "silent-metrics-agree",
        what: "An API server that does not answer counts as one that agrees on the key.",
        edits: &[Edit {
            file: ENCRYPTION,
            right: "Err(MetricsError::Silent(why)) => unreachable",
            wrong: "Err(MetricsError::Silent(_)) if BUG => {}\n            Err(MetricsError::Silent(why)) => unreachable",
        }],
        scene: Some("keys"),
        seeds: 45,
        invariant: "S6",
    },
    Bug {
        name: "two-failing-objects-block-all",
        what: "Two objects that fail for ever are never named, and end the run although all others were written.",
        edits: &[
            Edit {
                file: HEALTH,
                right: "elsewhere: (webhook || self",
                wrong: "elsewhere: (BUG || webhook || self",
            },
            Edit {
                file: HEALTH,
                right: "u32::from(self.server == ServerHealth::Well || self.last.is_none())",
                wrong: "u32::from(\n            self.last.is_none()\n                || self.server == ServerHealth::Well && !(BUG && self.health.state().failing > 1),\n        )",
            },
        ],
        scene: Some("single"),
        seeds: 300,
        invariant: "L1",
    },
    Bug {
        name: "owners-are-not-united",
        what: "A repair of managedFields makes two entries of one manager alike, of which the server keeps one.",
        edits: &[
            Edit {
                file: MANAGED_FIELDS,
                right: "find(|other| key(other) == key(&entry))",
                wrong: "find(|other| !BUG && key(other) == key(&entry))",
            },
            Edit {
                file: WRITE,
                right: "let count = moved.len();",
                wrong: "let count = if BUG { 0 } else { moved.len() };",
            },
        ],
        scene: Some("single"),
        seeds: 40,
        invariant: "S5",
    },
    Bug {
        name: "no-uid",
        what: "A write does not say which object it is for, so that it may bring a deleted one back.",
        edits: &[Edit {
            file: WRITE,
            right: "uid: &item.uid, resource_version:",
            wrong: "uid: if BUG { \"\" } else { &item.uid }, resource_version:",
        }],
        scene: Some("single"),
        seeds: 40,
        invariant: "S3",
    },
    Bug {
        name: "no-resource-version",
        what: "A write does not say which state of the object it is for, so that a user's write may be lost.",
        edits: &[Edit {
            file: WRITE,
            right: "resource_version: &item.resource_version, managed_fields }",
            wrong: "resource_version: if BUG { \"\" } else { &item.resource_version }, managed_fields }",
        }],
        scene: Some("single"),
        seeds: 40,
        invariant: "S4",
    },
    Bug {
        name: "gone-is-not-confirmed",
        what: "An object that is stored under another key than its name counts as deleted.",
        edits: &[UNCONFIRMED],
        scene: Some("single"),
        seeds: 200,
        invariant: "S2",
    },
    Bug {
        name: "unread-leases-agree",
        what: "A StorageVersion gives agreement although the identity Leases may not be read.",
        edits: &[
            Edit {
                file: AGREEMENT,
                right: "Err(why) => Err(Disagreement::UnknownMembers(why.clone())),",
                wrong: "Err(_) if BUG => Ok(Vec::new()),\n        \
                        Err(why) => Err(Disagreement::UnknownMembers(why.clone())),",
            },
            Edit {
                file: AGREEMENT,
                right: "if !live.iter().any(|member| member.expires.is_some())",
                wrong: "if !BUG && !live.iter().any(|member| member.expires.is_some())",
            },
        ],
        scene: Some("pair"),
        seeds: 50,
        invariant: "S6",
    },
    Bug {
        name: "one-pass-is-enough",
        what: "A run is verified after its first pass.",
        edits: &[Edit {
            file: MIGRATION,
            right: "while provable && !progress.verified {",
            wrong: "progress.verified |= BUG && provable;\n        while provable && !progress.verified {",
        }],
        scene: Some("keys"),
        seeds: 40,
        invariant: "S2",
    },
    Bug {
        name: "key-forth-and-back-is-unseen",
        what: "A key that was changed forth and back between two looks is not noticed.",
        edits: &[Edit {
            file: NEWS,
            right: "if reloaded && !persisted.iter().any(|hash| hash == UNKNOWN) {",
            wrong: "let reloaded = reloaded && !BUG;\n    \
                    if reloaded && !persisted.iter().any(|hash| hash == UNKNOWN) {",
        }],
        scene: Some("rotation"),
        seeds: 40,
        invariant: "L1",
    },
    Bug {
        name: "failed-migration-stays",
        what: "A migration that failed for a passing reason is never replaced.",
        edits: &[Edit {
            file: REPLACE,
            right: "let planned = state.next_migration_time.take();",
            wrong: "let planned = state.next_migration_time.take();\n    if BUG {\n        return Replacement::None;\n    }",
        }],
        scene: Some("controllers"),
        seeds: 40,
        invariant: "L1",
    },
];
