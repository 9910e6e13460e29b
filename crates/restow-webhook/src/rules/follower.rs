//! Follows the ConversionRules of a cluster and the CRDs they are for, serves what is valid, and reports.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use kube::runtime::reflector::{Store, store::Writer};
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use restow_convert::Converter;
use restow_convert::rules::{ConversionRules, ConversionRulesStatus};
use restow_lease::request::in_words;
use tokio_util::sync::CancellationToken;

use super::definitions::{Definitions, Revision, revision};
use super::objects::{Registration, RulesObjects, kind, parse, status};
use super::plan::{Served, Validity, Verdict, plan};
use super::replicas::{self, RENEW, UNREADY, every_replica_serves, is_behind};
use super::status::updated;
use super::watches::{CrdMetadata, RULES, Watching, config};
use crate::LiveConverters;

/// How long to wait before what failed is tried again.
const RETRY: Duration = Duration::from_secs(3);

/// Follows the ConversionRules of a cluster.
pub struct RulesFollower {
    client: Client,
    rules: RulesObjects,
    replica: String,
    live: Arc<LiveConverters>,
    others: Vec<Converter>,
    /// The CRDs that are served; all that there are rules for if none.
    crds: Option<Vec<String>>,
    served: ArcSwap<Served>,
    /// The names of the objects with rules for these CRDs.
    followed: ArcSwap<BTreeSet<String>>,
    reported: Mutex<Reported>,
    watching: Watching,
}

/// When everything was reported last, and what went wrong since.
#[derive(Debug, Default)]
struct Reported {
    at: Option<Timestamp>,
    problem: Option<String>,
    /// Rules that this replica cannot serve, and others do.
    behind: Option<String>,
}

/// All that a plan depends on.
#[derive(Debug, Default, PartialEq)]
struct Inputs {
    rules: BTreeSet<Identity>,
    definitions: BTreeSet<Revision>,
}

impl RulesFollower {
    /// A follower that is called `replica` in the status of rules. `others` are served for kinds without rules.
    pub fn new(
        client: Client,
        live: Arc<LiveConverters>,
        replica: impl Into<String>,
        others: Vec<Converter>,
    ) -> Self {
        Self {
            rules: RulesObjects::new(client.clone()),
            client,
            replica: replica.into(),
            live,
            others,
            crds: None,
            served: ArcSwap::default(),
            followed: ArcSwap::default(),
            reported: Mutex::default(),
            watching: Watching::default(),
        }
    }

    /// Follows only these CRDs, and needs no permission on others. Rules for other CRDs are left to other webhooks.
    #[must_use]
    pub fn only(mut self, crds: Vec<String>) -> Self {
        self.crds = Some(crds);
        self
    }

    /// The rules that this replica serves.
    pub fn served(&self) -> Arc<Served> {
        self.served.load_full()
    }

    /// Whether this replica serves what the cluster has, and has said so not long ago.
    ///
    /// # Errors
    /// When it has not: it must not get requests.
    pub fn check(&self, now: Timestamp) -> Result<(), String> {
        let reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = reported.problem.clone().or_else(|| self.watching.problem());
        let problem = problem.unwrap_or_else(|| "they are being read".to_owned());
        match reported.at {
            None => Err(format!("the ConversionRules are not loaded yet: {problem}")),
            Some(at) if now.duration_since(at) >= UNREADY => {
                Err(format!("what is served could not be reported since {at}: {problem}"))
            }
            Some(_) => match &reported.behind {
                Some(rules) => {
                    Err(format!("the rules {rules} cannot be used, and other replicas serve earlier ones"))
                }
                None => Ok(()),
            },
        }
    }

    /// The generation and content of the rules for a CRD, if every replica serves them as they and the CRD are now.
    ///
    /// # Errors
    /// With the reason, and what to do.
    pub async fn rules_served_by_all(
        &self,
        definition: &CustomResourceDefinition,
        now: Timestamp,
    ) -> Result<(i64, ConversionRules), String> {
        let name = definition.name_any();
        let served = self.served();
        let rules =
            served.rules_for_crd(&name).ok_or_else(|| format!("there are no valid rules for {name}"))?;
        let failed = |error| format!("could not read the ConversionRules: {}", in_words(&error));
        let mut all = self.rules.list().await.map_err(failed)?;
        let place = all.iter().position(|object| object.name_any() == rules);
        let object = all.swap_remove(place.ok_or_else(|| format!("{rules} does not exist any more"))?);
        let followed = self.followed.load();
        let others: Vec<_> =
            all.iter().filter(|other| followed.contains(&other.name_any())).map(status).collect();
        let generation = object.metadata.generation.unwrap_or_default();
        let wanted = definition.metadata.generation.unwrap_or_default();
        every_replica_serves(&status(&object), generation, wanted, &others, now)
            .map_err(|error| error.to_string())?;
        Ok((generation, parse(&object).rules?))
    }

    /// The object whose rules are served for a CRD, as it is now.
    async fn object_for(&self, crd: &str) -> Result<Option<DynamicObject>, String> {
        let served = self.served();
        let Some(name) = served.rules_for_crd(crd) else { return Ok(None) };
        let failed = |error| format!("could not read the rules {name}: {}", in_words(&error));
        self.rules.0.get_opt(name).await.map_err(failed)
    }

    /// Rules for a CRD that calls the webhook which were changed, and have not passed its gates; none if there are none.
    ///
    /// # Errors
    /// When the rules could not be read.
    pub async fn changed_rules(&self, crd: &str) -> Result<Option<(i64, ConversionRules)>, String> {
        let served = self.served();
        let Some(name) = served.rules_for_crd(crd) else { return Ok(None) };
        let object = self.object_for(crd).await?.ok_or_else(|| {
            format!("the rules {name} were deleted; replicas serve them until they end, so create them again")
        })?;
        let parsed = parse(&object);
        let passed = parsed.in_force.as_ref().is_some_and(|(passed, _)| *passed == parsed.generation);
        // What is wrong with rules that cannot be read, the condition Valid says.
        Ok(parsed.rules.ok().filter(|_| !passed).map(|rules| (parsed.generation, rules)))
    }

    /// Puts rules of a generation in force that have passed every gate: all replicas serve them from now on.
    ///
    /// # Errors
    /// When they were changed meanwhile, or could not be written.
    pub async fn put_in_force(&self, crd: &str, generation: i64) -> Result<(), String> {
        let object = self.object_for(crd).await?.ok_or("the rules do not exist any more")?;
        let changed = "the rules were changed while they were tried".to_owned();
        if object.metadata.generation != Some(generation) {
            return Err(changed);
        }
        let failed = |error| format!("could not write the status of the rules: {}", in_words(&error));
        if self.rules.put_in_force(&object).await.map_err(failed)? { Ok(()) } else { Err(changed) }
    }

    /// Writes into the status of the rules for a CRD whether API servers call the webhook.
    ///
    /// # Errors
    /// When the rules could not be read or written.
    pub async fn report_registration(&self, crd: &str, registration: &Registration) -> Result<(), String> {
        let Some(object) = self.object_for(crd).await? else { return Ok(()) };
        let failed = |error| format!("could not write the status of the rules: {}", in_words(&error));
        let now = restow_clock::now();
        self.rules.registered(&object, registration, now).await.map(drop).map_err(failed)
    }

    /// Follows until `stop` is cancelled.
    pub async fn run(&self, stop: &CancellationToken) {
        let writer = Writer::<DynamicObject>::new(kind());
        let rules = writer.as_reader();
        let events = watcher(self.rules.0.clone(), config());
        let rules_watch = self.watching.follow(RULES.to_owned(), writer, events);
        let (definitions, definitions_watch) = self.watching.definitions(&self.client, self.crds.as_deref());
        let work = async {
            // Without all lists, nothing is known to be absent.
            let mut ready = rules.wait_until_ready().await.is_ok();
            for definition in &definitions {
                ready &= definition.wait_until_ready().await.is_ok();
            }
            if ready {
                self.work(&rules, &definitions).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = rules_watch => {}
            () = definitions_watch => {}
            () = work => {}
        }
    }

    async fn work(&self, rules: &Store<DynamicObject>, metadata: &[Store<CrdMetadata>]) {
        let mut definitions = Definitions::new(self.client.clone(), self.crds.clone());
        let mut seen = Inputs::default();
        let mut due = restow_clock::Instant::now();
        loop {
            let objects = rules.state();
            let all: Vec<_> = metadata.iter().flat_map(Store::state).collect();
            let inputs = Inputs {
                rules: objects.iter().map(|object| identity(object)).collect(),
                definitions: all.iter().map(|metadata| revision(metadata)).collect(),
            };
            // A status that somebody wrote is no reason to write one: two of different opinion would never end.
            if inputs != seen || restow_clock::Instant::now() >= due {
                let good = self.reconcile(&objects, &all, &mut definitions).await;
                let pause = if good { RENEW.unsigned_abs() / 2 } else { RETRY };
                due = restow_clock::Instant::now() + pause;
                seen = inputs;
            }
            tokio::select! {
                () = self.watching.changed.notified() => {}
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    /// Serves what the objects say, and reports it. Returns whether all went well.
    async fn reconcile(
        &self,
        objects: &[Arc<DynamicObject>],
        all: &[Arc<CrdMetadata>],
        definitions: &mut Definitions,
    ) -> bool {
        let parsed: Vec<_> = objects.iter().map(|object| parse(object)).collect();
        let groups = parsed.iter().filter_map(|object| Some(object.rules.as_ref().ok()?.spec.group.clone()));
        let all_read = definitions.refresh(all, &groups.collect()).await;
        let before = self.served();
        let (served, verdicts) = plan(&parsed, |group, kind| definitions.get(group, kind), &before);
        self.followed.store(Arc::new(verdicts.iter().map(|verdict| verdict.name.clone()).collect()));
        self.live.replace(served.converters(&self.others));
        self.served.store(Arc::new(served));
        let mut problem = None;
        for (object, verdict) in objects.iter().filter_map(|object| {
            Some((object, verdicts.iter().find(|verdict| verdict.name == object.name_any())?))
        }) {
            if let Err(error) = self.report(object, verdict).await {
                let error = in_words(&error);
                tracing::warn!(rules = verdict.name, "could not report what is served: {error}");
                problem = Some(format!("{}: {error}", verdict.name));
            }
        }
        let now = restow_clock::now();
        let behind = objects.iter().find(|object| {
            let verdict = verdicts.iter().find(|verdict| verdict.name == object.name_any());
            let unserved = verdict.is_some_and(|verdict| verdict.served.0 == 0);
            unserved && is_behind(&status(object), &self.replica, now)
        });
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if problem.is_none() {
            reported.at = Some(now);
        }
        reported.behind = behind.map(|object| object.name_any());
        reported.problem = problem;
        all_read && reported.problem.is_none()
    }

    /// Writes the verdict and what this replica serves into the status, unless it is there already.
    async fn report(&self, object: &DynamicObject, verdict: &Verdict) -> Result<(), kube::Error> {
        let update =
            |current: &DynamicObject| updated(&status(current), verdict, &self.replica, restow_clock::now());
        if self.rules.write(object, &update).await? {
            match verdict.validity {
                Validity::Valid => tracing::debug!(rules = verdict.name, "serving {}", verdict.message),
                _ => tracing::warn!(rules = verdict.name, reason = verdict.reason, "{}", verdict.message),
            }
        }
        Ok(())
    }

    /// Removes this replica from the status of all rules, after it has answered its last request.
    ///
    /// # Errors
    /// When rules cannot be listed or written. Others forget the replica after some minutes.
    pub async fn leave(&self) -> Result<(), kube::Error> {
        let leave = |current: &DynamicObject| {
            let status = status(current);
            let replicas = replicas::leave(&status.replicas, &self.replica)?;
            Some(ConversionRulesStatus { replicas, ..status })
        };
        for object in self.rules.list().await? {
            self.rules.write(&object, &leave).await?;
        }
        Ok(())
    }
}

/// The name, uid and generation of rules, and the generation that is in force.
type Identity = (String, Option<String>, Option<i64>, Option<i64>);

fn identity(object: &DynamicObject) -> Identity {
    let in_force = object.data.pointer("/status/inForce/generation").and_then(serde_json::Value::as_i64);
    (object.name_any(), object.uid(), object.metadata.generation, in_force)
}
