//! The store: each operation is a request or transaction of etcd's KV API.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use super::{
    client::{COMPACT, Client, RANGE, Refused, TXN},
    compaction::Compaction,
    entry::{damaged, end, entry, newest, signed, unsigned},
    messages::{
        CompactionRequest, CompactionResponse, Compare, CompareResult, CompareTarget, DeleteRangeRequest,
        PutRequest, RangeRequest, RangeResponse, Request, RequestOp, TxnRequest, TxnResponse,
    },
    settings::{EtcdError, EtcdSettings},
    watch,
};
use crate::{Changes, Entry, Got, Listed, Range, Store, StoreError, Unchanged, Write, Written};

/// Stores objects in an etcd, which kube-apiservers may share.
#[derive(Clone, Debug)]
pub struct EtcdStore {
    client: Arc<Client>,
    // The task ends with the last clone.
    _compaction: Arc<Option<Compaction>>,
}

impl EtcdStore {
    /// A store in the etcd at these endpoints. It connects at the first request. Call it within a runtime.
    pub fn new(settings: &EtcdSettings) -> Result<Self, EtcdError> {
        let client = Arc::new(Client::new(settings)?);
        let compaction = settings.compact_every.map(|every| Compaction::start(&client, every));
        Ok(Self { client, _compaction: Arc::new(compaction) })
    }

    pub(super) async fn range(&self, ask: RangeRequest) -> Result<RangeResponse, Refused> {
        self.client.ask(RANGE, ask).await
    }

    /// Whether a refused revision is compacted or in the future: etcd uses the same code for both.
    pub(super) async fn out_of_range(&self, asked: u64) -> StoreError {
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
            // Deleting a missing key would succeed in etcd.
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
        // Deleting a key that must not exist can never match.
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
            // A lagging member may not have the newest revision.
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
                    // It is already compacted further.
                    false => Ok(()),
                }
            }
            Err(refused) => Err(refused.into()),
        }
    }
}

/// A transaction that changes a key if the key and others have the expected revisions, and otherwise reads all of them.
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

/// The entries that a failed transaction has read: the key's and the others'.
fn found(answer: TxnResponse) -> Result<(Option<Entry>, Vec<Option<Entry>>), StoreError> {
    let lacking = || damaged("a transaction lacks a response");
    let mut read = answer.responses.into_iter().map(|response| {
        let found = response.range.ok_or_else(lacking)?;
        found.kvs.into_iter().next().map(entry).transpose()
    });
    let first = read.next().ok_or_else(lacking)??;
    Ok((first, read.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::{EtcdSettings, EtcdStore};

    #[tokio::test]
    async fn invalid_endpoints_are_reported() {
        for (endpoints, expected) in [
            (vec![], "no etcd endpoint is set"),
            (vec!["http://a:1", "unix:///a"], "invalid etcd endpoint \"unix:///a\""),
            (vec!["127.0.0.1:2379"], "invalid etcd endpoint \"127.0.0.1:2379\""),
            (vec!["http://"], "invalid etcd endpoint \"http://\""),
            (vec!["https://a:1"], "etcd endpoint \"https://a:1\" needs a CA certificate"),
        ] {
            let error = EtcdStore::new(&EtcdSettings::new(endpoints)).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
