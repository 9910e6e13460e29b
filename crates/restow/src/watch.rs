//! Watches all objects of a kind, or one object until a condition holds.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;

use futures::{Stream, StreamExt as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use restow_core::resource::name::GroupResource;
use restow_migrate::client::access;
use restow_migrate::client::{RequestError, Server};

use crate::error::CliError;
use crate::objects::{Object, refused};

/// The timeout of a watch in seconds; it is shorter than the client's timeout for a silent server.
const WATCH_TIMEOUT: u32 = 50;

/// A kind of object that can be watched.
pub(crate) trait Watched: Object + Clone + Debug + Send + Sync + 'static {}
impl<K: Object + Clone + Debug + Send + Sync + 'static> Watched for K {}

/// The objects of a kind, kept up to date by the events of a watch.
///
/// Unlike a reflector's store, it reports which objects each event changed, also those that a new list no longer has.
#[derive(Debug)]
pub(crate) struct WatchedObjects<K> {
    objects: BTreeMap<String, K>,
    /// A list that is being received and will replace them.
    listed: BTreeMap<String, K>,
    /// Whether a whole list was received.
    pub(crate) complete: bool,
}

impl<K> Default for WatchedObjects<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new(), complete: false }
    }
}

impl<K: Watched> WatchedObjects<K> {
    /// All objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = &K> {
        self.objects.values()
    }

    /// The object of a name.
    pub(crate) fn get(&self, name: &str) -> Option<&K> {
        self.objects.get(name)
    }

    /// Applies an event; returns the names that it changed.
    pub(crate) fn take(&mut self, event: Event<K>) -> Vec<String> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.insert(object.name_any(), object);
            }
            Event::InitDone => return self.replace(),
            Event::Apply(object) => {
                let name = object.name_any();
                self.objects.insert(name.clone(), object);
                return vec![name];
            }
            Event::Delete(object) => {
                let name = object.name_any();
                return self.objects.remove(&name).map(|_| name).into_iter().collect();
            }
        }
        Vec::new()
    }

    fn replace(&mut self) -> Vec<String> {
        self.complete = true;
        let before = std::mem::replace(&mut self.objects, std::mem::take(&mut self.listed));
        let version = |object: Option<&K>| object.map(|object| (object.uid(), object.resource_version()));
        let mut names: Vec<String> = self.objects.keys().chain(before.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names.retain(|name| version(self.objects.get(name)) != version(before.get(name)));
        names
    }
}

/// The events of a kind, or of one object, without end: a broken watch is started again.
pub(crate) fn events<K: Watched>(
    server: &Server,
    name: Option<&str>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send + use<K> {
    let config = watcher::Config::default().timeout(WATCH_TIMEOUT);
    let config = match name {
        Some(name) => config.fields(&format!("metadata.name={name}")),
        None => config,
    };
    watcher(Api::<K>::all(server.client().clone()), config).default_backoff()
}

/// Fails if the error of a watch is permanent.
///
/// A server that is starting may answer 401, 403 or 404 without reason, so it is asked again.
pub(crate) async fn check<K: Object>(server: &Server, error: &watcher::Error) -> Result<(), CliError> {
    let (verb, code) = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) => ("list", status.code),
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => ("watch", status.code),
        _ => return Ok(()),
    };
    if !matches!(code, 401 | 403 | 404) {
        return Ok(());
    }
    let name = GroupResource::new(K::group(&()), K::plural(&()));
    let denied = access::missing(server, &name, &[verb]).await.is_ok_and(|missing| !missing.is_empty());
    if denied {
        return Err(refused::<K>(server, verb, &RequestError::Refused { code: 403, message: String::new() }));
    }
    match server.get::<serde::de::IgnoredAny>(&K::url_path(&(), None)).await {
        Err(error) if error.is_final() => Err(refused::<K>(server, verb, &error)),
        _ => Ok(()),
    }
}

/// Watches one object until `ask` returns an answer; `ask` gets none if the object does not exist.
pub(crate) async fn until<K: Watched, T>(
    server: &Server,
    name: &str,
    mut ask: impl FnMut(Option<&K>) -> Option<T>,
) -> Result<T, CliError> {
    let mut events = pin!(events::<K>(server, Some(name)));
    let mut kept = WatchedObjects::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let changed = !kept.take(event).is_empty() || kept.get(name).is_none();
                if kept.complete
                    && changed
                    && let Some(answer) = ask(kept.get(name))
                {
                    return Ok(answer);
                }
            }
            Err(error) => {
                tracing::info!(error = %restow_migrate::client::plain(&error), "the watch failed; retrying");
                check::<K>(server, &error).await?;
            }
        }
    }
    Err(CliError::failed(format!("the watch of {name} has ended")))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(name: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    #[test]
    fn a_new_list_shows_what_the_watch_missed() {
        let mut kept = WatchedObjects::default();
        let mut take = |event| kept.take(event).join(" ");
        assert_eq!(take(Event::Init), "");
        for name in ["a", "b", "c"] {
            assert_eq!(take(Event::InitApply(object(name, "1"))), "");
        }
        assert_eq!(take(Event::InitDone), "a b c");
        assert_eq!(take(Event::Apply(object("a", "2"))), "a");
        assert_eq!(take(Event::Delete(object("b", "3"))), "b");
        assert_eq!(take(Event::Delete(object("b", "3"))), "");
        // While the watch was broken, c was deleted and d made.
        assert_eq!(take(Event::Init), "");
        assert_eq!(take(Event::InitApply(object("a", "2"))), "");
        assert_eq!(take(Event::InitApply(object("d", "4"))), "");
        assert_eq!(take(Event::InitDone), "c d");
        assert_eq!(kept.all().map(kube::ResourceExt::name_any).collect::<Vec<_>>(), ["a", "d"]);
        assert!(kept.get("c").is_none() && kept.complete);
    }
}
