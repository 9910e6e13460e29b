//! Whether all API servers store a resource in one version now.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use restow_api::UNKNOWN;

use crate::agreement::basis::Basis;
use crate::agreement::member::{Member, live};
use crate::agreement::transient;
use crate::resource::hash::{is_hash, storage_version_hash};
use crate::resource::name::GroupVersion;

/// A StorageVersion object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageVersion {
    /// Compared before and after a pass: any change of the object shows.
    pub resource_version: String,
    /// The version each API server encodes to.
    pub entries: Vec<(String, String)>,
    /// The version all of them encode to.
    pub common: Option<String>,
    /// Since when they all encode to it.
    pub since: Option<Timestamp>,
}

/// What one API server answered about its storage version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAnswer {
    /// The name of the server's Lease, or its URL.
    pub server: String,
    /// The hash that it publishes, or why it could not be queried.
    pub hash: Result<String, String>,
}

/// How the servers were queried for their discovery, and what they answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoveryAnswers {
    /// Each live member was queried at its own address.
    Members(Vec<ServerAnswer>),
    /// The servers that the user named with `--api-server`.
    Named {
        /// Their answers.
        answers: Vec<ServerAnswer>,
        /// How many different servers answered, if that could be determined.
        distinct: Option<usize>,
    },
    /// The one address of the kubeconfig, on fresh connections over a settling period.
    Samples {
        /// One answer for each connection.
        answers: Vec<ServerAnswer>,
        /// Whether the set of members stayed the same for the whole period.
        steady: bool,
    },
    /// The one address of the kubeconfig; the user says that there is one server.
    Single(ServerAnswer),
    /// None: an aggregated API server stores the resource, and its replicas are behind a Service. kube-apiservers forward a
    /// request to any one of them.
    Aggregated,
}

/// Everything observed about how the API servers store one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerObservation {
    /// The kind of the resource's objects.
    pub kind: String,
    /// The API servers that may store it, or why they could not be listed. These are the kube-apiservers, or all others for
    /// an aggregated resource.
    pub members: Result<Vec<Member>, String>,
    /// The StorageVersion object, if there is one, or why it may not be read.
    pub storage_version: Result<Option<StorageVersion>, String>,
    /// The servers' own discovery.
    pub asked: DiscoveryAnswers,
    /// The CRD of a custom resource, as uid and generation. A CRD that changed and changed back has the same hash again.
    pub definition: Option<String>,
}

/// All servers store the resource in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The hash of that version.
    pub hash: String,
    /// What it rests on.
    pub basis: Basis,
    /// Changes whenever the set of servers, what they registered or the definition has changed.
    pub mark: String,
    /// The CustomResourceDefinition, as uid and generation, of a custom resource.
    pub definition: Option<String>,
    /// Since when it has held without interruption, if a StorageVersion object records that.
    pub since: Option<Timestamp>,
    /// Whether identity Leases show which servers exist, so that the mark changes when one restarts.
    pub leased: bool,
}

/// Why there is no agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disagreement {
    /// Servers store the resource differently.
    Split(Vec<(String, String)>),
    /// A live server could not be queried.
    NotReached(Vec<(String, String)>),
    /// It could not be determined which servers exist.
    UnknownMembers(String),
    /// More servers are alive than were named.
    NotAllNamed {
        /// How many are alive.
        live: usize,
        /// How many addresses were named.
        addresses: usize,
        /// How many servers were reached at those addresses.
        named: usize,
    },
    /// Servers use different encryption configurations, with these hashes.
    Encryption(Vec<String>),
    /// The set of servers changed while it was sampled.
    ServersChanged,
    /// An aggregated API server stores the resource and has not registered its storage version.
    Aggregated,
    /// An aggregated API server stores the resource, and its StorageVersion may not be read.
    StorageVersionUnreadable(String),
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |rows: &[(String, String)], between: &str| {
            rows.iter()
                .map(|(server, what)| format!("{server}{between}{what}"))
                .collect::<Vec<_>>()
                .join("; ")
        };
        match self {
            Self::Split(rows) => write!(f, "the API servers disagree: {}", list(rows, " stores ")),
            Self::NotReached(rows) => {
                write!(f, "could not query every live API server: {}", list(rows, ": "))
            }
            Self::UnknownMembers(why) => write!(f, "cannot determine which API servers exist: {why}"),
            Self::NotAllNamed { live, addresses, named } if addresses == named => {
                write!(f, "{live} API servers are alive and {named} named with --api-server")
            }
            Self::NotAllNamed { live, addresses, named } => write!(
                f,
                "{live} API servers are alive, and the {addresses} addresses named with --api-server lead to {named} of \
                 them"
            ),
            Self::Encryption(hashes) => {
                write!(f, "the API servers use different encryption configurations: {}", hashes.join("; "))
            }
            Self::ServersChanged => f.write_str("the set of API servers changed while it was sampled"),
            Self::Aggregated => f.write_str(
                "it is served by an aggregated API server that shows no StorageVersion, and whose replicas cannot \
                 be asked one by one",
            ),
            Self::StorageVersionUnreadable(why) => {
                write!(f, "it is served by an aggregated API server, and its StorageVersion cannot be read: {why}")
            }
        }
    }
}

impl Disagreement {
    /// What the user can do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Encryption(_) => {
                "wait until every API server has taken up the new configuration, then run it again; if this resource \
                 is not encrypted, say what is with --encrypted"
            }
            Self::Split(_) | Self::ServersChanged => {
                "wait until the rolling upgrade or rollback has ended on every API server, then run it again"
            }
            Self::NotReached(_) | Self::UnknownMembers(_) | Self::NotAllNamed { .. } => {
                "name every API server with --api-server URL; on a managed cluster, whose servers hide behind one \
                 address, --sample-servers 60s; where there is just one, --assume-single-server (a server that is gone \
                 for good leaves its Lease in kube-system for an hour: delete that)"
            }
            Self::StorageVersionUnreadable(_) => {
                "get on storageversions (internal.apiserver.k8s.io) is needed to compare its replicas"
            }
            Self::Aggregated => {
                "when every replica of that server runs one version, migrate its resources by themselves with \
                 --assume-single-server"
            }
        }
    }
}

/// How long a run waits for API servers that do not answer.
pub const SILENT_SERVER_TIMEOUT: Duration = Duration::from_secs(300);
/// How long a run waits for an API server that has never answered: it may be starting, or unreachable.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for a disagreement to go away by itself; `known` if there was an agreement before.
pub fn disagreement_timeout(why: &Disagreement, known: bool) -> Duration {
    match why {
        // Nothing is written meanwhile.
        Disagreement::NotReached(_) if known => SILENT_SERVER_TIMEOUT,
        Disagreement::NotReached(_) => FIRST_ANSWER_TIMEOUT,
        Disagreement::ServersChanged => SILENT_SERVER_TIMEOUT,
        // The servers could be listed before, so something other than an API server may have answered.
        Disagreement::UnknownMembers(_) | Disagreement::StorageVersionUnreadable(_) if known => {
            transient::TRANSIENT_ANSWER_TIMEOUT
        }
        _ => Duration::ZERO,
    }
}

/// Decides whether the API servers agree.
pub fn decide(seen: &ServerObservation, now: Timestamp) -> Result<Agreement, Disagreement> {
    let mut agreement = decide_servers(seen, now)?;
    if let Some(definition) = &seen.definition {
        agreement.mark = format!("{} {definition}", agreement.mark).trim_start().to_owned();
        agreement.definition = Some(definition.clone());
    }
    Ok(agreement)
}

fn decide_servers(seen: &ServerObservation, now: Timestamp) -> Result<Agreement, Disagreement> {
    if let DiscoveryAnswers::Single(answer) = &seen.asked {
        let hash = one_hash(std::slice::from_ref(answer))?;
        let (basis, mark) = (Basis::Assumed, String::new());
        return Ok(Agreement { hash, basis, mark, definition: None, since: None, leased: false });
    }
    let live = match &seen.members {
        Ok(members) => Ok(live(members, now)),
        Err(why) => Err(Disagreement::UnknownMembers(why.clone())),
    };
    if let Ok(Some(storage_version)) = &seen.storage_version {
        return registered(seen, storage_version, live);
    }
    let (hash, basis) = match asked(seen, live.as_deref())? {
        Some(asked) => asked,
        None => {
            return Err(match &seen.storage_version {
                Err(why) => Disagreement::StorageVersionUnreadable(why.clone()),
                Ok(_) => Disagreement::Aggregated,
            });
        }
    };
    let live = live.unwrap_or_default();
    let (mark, leased) = (mark_of(&live), leased(&live));
    Ok(Agreement { hash, basis, mark, definition: None, since: None, leased })
}

/// Whether there are servers, each with an identity Lease.
fn leased(live: &[&Member]) -> bool {
    !live.is_empty() && live.iter().all(|member| member.expires.is_some())
}

/// The hash that the servers publish in their discovery, and the basis; none if no server is to be queried.
///
/// If the API servers may not be listed, there may still be others: only the servers that the user named can replace the
/// list.
fn asked(
    seen: &ServerObservation,
    live: Result<&[&Member], &Disagreement>,
) -> Result<Option<(String, Basis)>, Disagreement> {
    let (answers, basis) = match &seen.asked {
        DiscoveryAnswers::Members(answers) => match live.map_err(Clone::clone)? {
            [] => return Err(nobody()),
            live if leased(live) => (answers, Basis::Direct),
            _ => (answers, Basis::Endpoints),
        },
        DiscoveryAnswers::Named { answers, distinct } => match live {
            // If all Leases look expired, a clock is wrong, here or on the servers.
            Ok([]) => return Err(nobody()),
            Ok(live) => {
                // Servers that did not answer count, because restow waits for them.
                let silent = answers.iter().filter(|answer| answer.hash.is_err()).count();
                (answers, named(live, answers.len(), distinct.map(|distinct| distinct + silent))?)
            }
            Err(_) => (answers, Basis::Named),
        },
        DiscoveryAnswers::Samples { answers, steady } => {
            // Only the members show whether a server was added that the samples did not reach.
            if live.map_err(Clone::clone)?.is_empty() {
                return Err(nobody());
            }
            if !steady {
                return Err(Disagreement::ServersChanged);
            }
            (answers, Basis::Sampled)
        }
        DiscoveryAnswers::Single(answer) => {
            return Ok(Some((one_hash(std::slice::from_ref(answer))?, Basis::Assumed)));
        }
        DiscoveryAnswers::Aggregated => return Ok(None),
    };
    Ok(Some((one_hash(answers)?, basis)))
}

/// The basis that the answers of named servers give, compared with the live members.
fn named(live: &[&Member], addresses: usize, distinct: Option<usize>) -> Result<Basis, Disagreement> {
    let named = distinct.unwrap_or(addresses);
    if named < live.len() {
        return Err(Disagreement::NotAllNamed { live: live.len(), addresses, named });
    }
    // It is clear which servers answered if they can be distinguished, or if there is only one.
    let all = leased(live) && (distinct.is_some() || live.len() == 1);
    Ok(if all { Basis::Direct } else { Basis::Named })
}

fn nobody() -> Disagreement {
    Disagreement::UnknownMembers("no identity Lease and no endpoint shows one".to_owned())
}

/// The live members of the same kind as those that have registered.
///
/// kube-controller-manager removes the entries of servers that are not kube-apiservers. If the entry of a live replica is
/// missing, the version of the others must not count as that of all.
fn replicas<'a>(live: Vec<&'a Member>, storage_version: &StorageVersion) -> Vec<&'a Member> {
    let has_registered = |member: &&&Member| storage_version.entries.iter().any(|(id, _)| *id == member.name);
    let kinds: BTreeSet<&str> =
        live.iter().filter(has_registered).map(|member| member.component.as_str()).collect();
    live.iter().copied().filter(|member| kinds.contains(member.component.as_str())).collect()
}

fn registered(
    seen: &ServerObservation,
    storage_version: &StorageVersion,
    live: Result<Vec<&Member>, Disagreement>,
) -> Result<Agreement, Disagreement> {
    // Servers that were named or sampled are compared too; with DiscoveryAnswers::Members, the object is enough.
    let heard = match &seen.asked {
        DiscoveryAnswers::Members(_) => None,
        _ => asked(seen, live.as_deref())?,
    };
    let listed = live.is_ok();
    let must = match (live, &heard) {
        (Ok(live), _) if seen.asked == DiscoveryAnswers::Aggregated => replicas(live, storage_version),
        (Ok(live), _) => {
            // Endpoints do not show which entry belongs to which server.
            if !live.iter().any(|member| member.expires.is_some()) {
                return Err(Disagreement::UnknownMembers("no API server has an identity Lease".to_owned()));
            }
            live
        }
        (Err(_), Some((_, Basis::Named))) => Vec::new(),
        (Err(why), _) => return Err(why),
    };
    let silent: Vec<_> = must
        .iter()
        .filter(|member| member.expires.is_some())
        .filter(|member| !storage_version.entries.iter().any(|(id, _)| *id == member.name))
        .map(|member| (member.name.clone(), "has not registered its storage version".to_owned()))
        .collect();
    if !silent.is_empty() {
        return Err(Disagreement::NotReached(silent));
    }
    let registered = common(storage_version.entries.iter().map(|(_, version)| version.as_str()));
    let hash = match (&storage_version.common, registered) {
        (Some(common), Some(version)) if common == version => {
            storage_version_hash(&GroupVersion::parse(common), &seen.kind)
        }
        _ => return Err(Disagreement::Split(storage_version.entries.clone())),
    };
    let basis = match heard {
        Some((shown, _)) if shown != hash => {
            let (object, servers) =
                ("the StorageVersion object".to_owned(), "the API servers' own discovery".to_owned());
            return Err(Disagreement::Split(vec![(object, hash), (servers, shown)]));
        }
        Some(_) if !listed => Basis::Named,
        _ => Basis::StorageVersion,
    };
    // A server that restarts under the same name leaves the object unchanged, and may use another key.
    let mark = format!("{} {}", storage_version.resource_version, mark_of(&must)).trim_end().to_owned();
    let (since, leased) = (storage_version.since, leased(&must));
    Ok(Agreement { hash, basis, mark, definition: None, since, leased })
}

/// The version that all servers encode to, if there is exactly one. It is registered as the common encoding version.
pub fn common<'a>(encodings: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut encodings = encodings.into_iter();
    let first = encodings.next()?;
    encodings.all(|encoding| encoding == first).then_some(first)
}

fn one_hash(answers: &[ServerAnswer]) -> Result<String, Disagreement> {
    let failed: Vec<_> = answers
        .iter()
        .filter_map(|answer| answer.hash.as_ref().err().map(|why| (answer.server.clone(), why.clone())))
        .collect();
    if !failed.is_empty() {
        return Err(Disagreement::NotReached(failed));
    }
    let shown: Vec<(String, String)> = answers
        .iter()
        .filter_map(|answer| answer.hash.as_ref().ok().map(|hash| (answer.server.clone(), hash.clone())))
        .collect();
    match shown.iter().map(|(_, hash)| hash).collect::<BTreeSet<_>>().len() {
        1 => Ok(shown[0].1.clone()),
        0 => Err(Disagreement::UnknownMembers("none was asked".to_owned())),
        _ => Err(Disagreement::Split(shown)),
    }
}

fn mark_of(live: &[&Member]) -> String {
    live.iter()
        .map(|member| member.holder.as_str())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The hashes that the servers which answered store a resource in; "Unknown" for one that cannot be determined.
pub fn hashes(seen: &ServerObservation) -> Vec<String> {
    let known = |hash: &String| if is_hash(hash) { hash.clone() } else { UNKNOWN.to_owned() };
    let of_answers = |answers: &[ServerAnswer]| -> BTreeSet<String> {
        answers.iter().filter_map(|answer| answer.hash.as_ref().ok()).map(known).collect()
    };
    let mut hashes = match &seen.asked {
        DiscoveryAnswers::Members(answers)
        | DiscoveryAnswers::Named { answers, .. }
        | DiscoveryAnswers::Samples { answers, .. } => of_answers(answers),
        DiscoveryAnswers::Single(answer) => of_answers(std::slice::from_ref(answer)),
        DiscoveryAnswers::Aggregated => BTreeSet::new(),
    };
    let object = seen.storage_version.iter().flatten();
    let registered = object.flat_map(|object| &object.entries);
    hashes.extend(
        registered.map(|(_, version)| storage_version_hash(&GroupVersion::parse(version), &seen.kind)),
    );
    hashes.into_iter().collect()
}

/// How long it takes until the handlers of a changed CRD have followed its discovery (kubernetes#130235).
pub const CRD_SETTLE_TIME: Duration = Duration::from_secs(5);
/// How old a change must be, by the API server's clock, to need no wait. It is much longer than [`CRD_SETTLE_TIME`] because that
/// clock may have been set forward since.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

/// How long to wait until the handlers of a CRD store what its discovery shows.
pub fn settle(changed: Option<Timestamp>, server_now: Timestamp) -> Duration {
    let Some(changed) = changed else { return Duration::ZERO };
    let age = Duration::try_from(server_now.duration_since(changed)).unwrap_or(Duration::ZERO);
    // Timestamps of objects are truncated to whole seconds.
    if age < SETTLED_AFTER { CRD_SETTLE_TIME + Duration::from_secs(1) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests;
