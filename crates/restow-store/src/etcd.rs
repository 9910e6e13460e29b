//! A store in etcd, with the keys and revisions etcd has: several servers can share it, a kube-apiserver among them.

mod client;
mod compaction;
mod messages;
mod watch;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use client::{Client, Refused};
use compaction::Compaction;
use messages::{
    CompactionRequest, CompactionResponse, Compare, CompareResult, CompareTarget, DeleteRangeRequest,
    KeyValue, PutRequest, RangeRequest, RangeResponse, Request, RequestOp, ResponseHeader, TxnRequest,
    TxnResponse,
};

use crate::{Changes, Entry, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const COMPACT: &str = "/etcdserverpb.KV/Compact";

/// Where etcd is and how to speak with it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The members, as `http://` or `https://` URLs.
    pub endpoints: Vec<String>,
    /// The authority of their certificates, in PEM; needed for `https://`.
    pub ca: Option<Vec<u8>>,
    /// What to show them.
    pub identity: Option<Identity>,
    /// How long to wait for any answer.
    pub timeout: Duration,
    /// How often to forget what is older than that, if nobody else on this etcd does; none to keep everything.
    pub compact_every: Option<Duration>,
}

/// A client certificate and its key.
#[derive(Clone)]
pub struct Identity {
    /// The certificate, in PEM.
    pub certificate: Vec<u8>,
    /// The key, in PEM.
    pub key: Vec<u8>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Settings {
    /// Members at these URLs.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let endpoints = endpoints.into_iter().map(Into::into).collect();
        let (timeout, compact_every) = (Duration::from_secs(10), Some(Duration::from_secs(5 * 60)));
        Self { endpoints, ca: None, identity: None, timeout, compact_every }
    }
}

/// Why a store in etcd cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// None is named.
    #[error("no etcd endpoint is given")]
    NoEndpoints,
    /// Not one it can be reached at.
    #[error("{url:?} is not an endpoint of etcd")]
    Endpoint {
        /// The endpoint.
        url: String,
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// Not a URL of a known kind.
    #[error("{url:?} is not an endpoint of etcd: it begins with neither http:// nor https://")]
    Scheme {
        /// The endpoint.
        url: String,
    },
    /// Nothing to check its certificate with.
    #[error("{url:?} needs the certificate of its authority")]
    NoAuthority {
        /// The endpoint.
        url: String,
    },
}

/// A store in etcd.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    client: Arc<Client>,
    // Ends with the last clone.
    _compaction: Arc<Option<Compaction>>,
}

impl EtcdStore {
    /// A store in the etcd at these endpoints; it is connected to when it is first asked. Call it within a runtime.
    pub fn new(settings: &Settings) -> Result<Self, EtcdError> {
        let client = Arc::new(Client::new(settings)?);
        let compaction = settings.compact_every.map(|every| Compaction::start(&client, every));
        Ok(Self { client, _compaction: Arc::new(compaction) })
    }

    async fn range(&self, ask: RangeRequest) -> Result<RangeResponse, Refused> {
        self.client.ask(RANGE, ask).await
    }

    /// Why etcd refused a revision: both have the same code, but only one is beyond the newest.
    async fn out_of_range(&self, asked: u64) -> StoreError {
        match self.revision().await {
            Ok(newest) if asked > newest => StoreError::Future { asked, newest },
            Ok(_) => match watch::oldest(&self.client, asked).await {
                Ok(oldest) => StoreError::Compacted { asked, oldest },
                Err(error) => error,
            },
            Err(error) => error,
        }
    }
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Got, StoreError> {
        let answer = self.range(RangeRequest { key: key.into(), ..RangeRequest::default() }).await?;
        let entry = answer.kvs.into_iter().next().map(entry).transpose()?;
        Ok(Got { entry, revision: newest(answer.header)? })
    }

    async fn list(&self, range: Range) -> Result<Listed, StoreError> {
        let start = range.start.as_deref().unwrap_or_default().max(range.prefix.as_str());
        let (end, revision) = (end(&range.prefix), range.revision.unwrap_or(0));
        if !end.is_empty() && end != [0] && start.as_bytes() >= end.as_slice() {
            let revision = range.revision.map_or(self.revision().await?, |revision| revision);
            return Ok(Listed { entries: Vec::new(), remaining: 0, revision });
        }
        let ask = RangeRequest {
            key: if start.is_empty() { vec![0] } else { start.into() },
            range_end: end,
            limit: i64::try_from(range.limit).unwrap_or(i64::MAX),
            revision: signed(revision),
        };
        let answer = match self.range(ask).await {
            Err(Refused::OutOfRange) => return Err(self.out_of_range(revision).await),
            answer => answer?,
        };
        let shown = answer.kvs.len() as u64;
        let remaining = unsigned(answer.count)?.saturating_sub(shown);
        let entries = answer.kvs.into_iter().map(entry).collect::<Result<_, _>>()?;
        let revision = range.revision.map_or_else(|| newest(answer.header), Ok)?;
        Ok(Listed { entries, remaining, revision })
    }

    async fn write(&self, write: Write) -> Result<Written, StoreError> {
        let Write { key, expected, value } = write;
        if value.is_none() && expected == 0 {
            // Nothing to delete: etcd would agree that there is nothing, and call it done.
            return Ok(Written::Conflict { current: self.get(&key).await?.entry });
        }
        let answer: TxnResponse = self.client.ask(TXN, transaction(&key, expected, value, &[])).await?;
        if answer.succeeded {
            return Ok(Written::Done { revision: newest(answer.header)? });
        }
        let (current, _) = found(answer)?;
        Ok(Written::Conflict { current })
    }

    async fn write_while(
        &self,
        write: Write,
        unchanged: Vec<Unchanged>,
    ) -> Result<Option<Written>, StoreError> {
        let Write { key, expected, value } = write;
        let nothing_to_delete = value.is_none() && expected == 0;
        // A key that is to be deleted and not to be there matches nothing.
        let expected = if nothing_to_delete { u64::MAX >> 1 } else { expected };
        let ask = transaction(&key, expected, value, &unchanged);
        let answer: TxnResponse = self.client.ask(TXN, ask).await?;
        if answer.succeeded {
            return Ok(Some(Written::Done { revision: newest(answer.header)? }));
        }
        let (current, others) = found(answer)?;
        let revisions = others.iter().map(|other| other.as_ref().map_or(0, |other| other.mod_revision));
        let is_unchanged = revisions.eq(unchanged.iter().map(|unchanged| unchanged.mod_revision));
        Ok(is_unchanged.then_some(Written::Conflict { current }))
    }

    async fn watch(
        &self,
        prefix: &str,
        after: u64,
    ) -> Result<BoxStream<'static, Result<Changes, StoreError>>, StoreError> {
        let (watch, seen) = watch::start(&self.client, prefix, after).await?;
        if after > seen {
            // A member that lags behind does not know what others do.
            let newest = self.revision().await?;
            if after > newest {
                return Err(StoreError::Future { asked: after, newest });
            }
        }
        Ok(watch)
    }

    async fn revision(&self) -> Result<u64, StoreError> {
        let ask = RangeRequest { key: vec![0], ..RangeRequest::default() };
        newest(self.range(ask).await?.header)
    }

    async fn compact(&self, revision: u64) -> Result<(), StoreError> {
        let ask = CompactionRequest { revision: signed(revision) };
        match self.client.ask::<_, CompactionResponse>(COMPACT, ask).await {
            Ok(_) => Ok(()),
            Err(Refused::OutOfRange) => {
                let newest = self.revision().await?;
                match revision > newest {
                    true => Err(StoreError::Future { asked: revision, newest }),
                    // Compacted further already.
                    false => Ok(()),
                }
            }
            Err(refused) => Err(refused.into()),
        }
    }
}

/// A change on condition of its key and of others; all of them are read if it is not made.
fn transaction(key: &str, expected: u64, value: Option<Bytes>, others: &[Unchanged]) -> TxnRequest {
    let compare = |key: &str, revision: u64| Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.into(),
        version: None,
        mod_revision: Some(signed(revision)),
    };
    let change = match value {
        Some(value) => Request::Put(PutRequest { key: key.into(), value }),
        None => Request::DeleteRange(DeleteRangeRequest { key: key.into() }),
    };
    let get = |key: &str| Request::Range(RangeRequest { key: key.into(), ..RangeRequest::default() });
    let operation = |request| RequestOp { request: Some(request) };
    let mut asked = TxnRequest {
        compare: vec![compare(key, expected)],
        success: vec![operation(change)],
        failure: vec![operation(get(key))],
    };
    for other in others {
        asked.compare.push(compare(&other.key, other.mod_revision));
        asked.failure.push(operation(get(&other.key)));
    }
    asked
}

/// What a transaction that was not made has read instead: its key and the others.
fn found(answer: TxnResponse) -> Result<(Option<Entry>, Vec<Option<Entry>>), StoreError> {
    let lacking = || damaged("a transaction lacks an answer");
    let mut read = answer.responses.into_iter().map(|response| {
        let found = response.range.ok_or_else(lacking)?;
        found.kvs.into_iter().next().map(entry).transpose()
    });
    let first = read.next().ok_or_else(lacking)??;
    Ok((first, read.collect::<Result<_, _>>()?))
}

fn entry(found: KeyValue) -> Result<Entry, StoreError> {
    Ok(Entry {
        key: String::from_utf8(found.key.into()).map_err(|_| damaged("a key is not text"))?,
        value: found.value,
        create_revision: unsigned(found.create_revision)?,
        mod_revision: unsigned(found.mod_revision)?,
    })
}

/// The first key after all keys with this prefix; a zero byte stands for the end of the store.
fn end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn newest(header: Option<ResponseHeader>) -> Result<u64, StoreError> {
    unsigned(header.ok_or_else(|| damaged("an answer has no header"))?.revision)
}

fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| damaged("a number is negative"))
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn damaged(reason: &str) -> StoreError {
    StoreError::Damaged(format!("etcd: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::{EtcdStore, Settings, end};

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        for (prefix, expected) in [("/a/", &b"/a0"[..]), ("é", &[0xc3, 0xaa]), ("", &[0])] {
            assert_eq!(end(prefix), expected);
        }
    }

    #[tokio::test]
    async fn endpoints_that_cannot_be_are_named() {
        for (endpoints, expected) in [
            (vec![], "no etcd endpoint is given"),
            (vec!["http://a:1", "unix:///a"], "\"unix:///a\" is not an endpoint of etcd"),
            (vec!["127.0.0.1:2379"], "\"127.0.0.1:2379\" is not an endpoint of etcd"),
            (vec!["http://"], "\"http://\" is not an endpoint of etcd"),
            (vec!["https://a:1"], "\"https://a:1\" needs the certificate of its authority"),
        ] {
            let error = EtcdStore::new(&Settings::new(endpoints)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
