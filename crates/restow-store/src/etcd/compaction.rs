//! Compacts etcd like kube-apiserver does, and coordinates with other servers on the same etcd.
//!
//! Each server periodically updates one key, on condition that the key still has the version which it last saw. The first
//! one to do so compacts to the revision that was the newest at its last update; the others see that it did. Without
//! compaction etcd would keep everything until it is full.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time};

use crate::StoreError;

use super::{
    client::{COMPACT, Client, Refused, TXN},
    messages::{
        CompactionRequest, CompactionResponse, Compare, CompareResult, CompareTarget, PutRequest,
        RangeRequest, Request, RequestOp, TxnRequest, TxnResponse,
    },
};

/// The key that kube-apiserver uses too.
const KEY: &str = "compact_rev_key";

/// A background task that compacts until it is dropped.
#[derive(Debug)]
pub(super) struct Compaction(JoinHandle<()>);

impl Drop for Compaction {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The state at the last round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The version of the key.
    version: i64,
    /// The newest revision at that time; 0 before the first round.
    newest: i64,
}

impl Compaction {
    pub(super) fn start(client: &Arc<Client>, every: Duration) -> Self {
        let client = Arc::clone(client);
        Self(tokio::spawn(async move {
            let mut seen = Seen::default();
            loop {
                time::sleep(every).await;
                match round(&client, seen).await {
                    Ok(now) => seen = now,
                    Err(refused) => {
                        tracing::warn!("cannot compact etcd: {}; retrying", StoreError::from(refused));
                    }
                }
            }
        }))
    }
}

/// Tries once to be the first, and compacts to the newest revision of the last round if it is.
async fn round(client: &Client, last: Seen) -> Result<Seen, Refused> {
    let answer: TxnResponse = client.ask(TXN, turn(last)).await?;
    let (now, is_first) = seen(last, &answer);
    if is_first && last.newest > 0 {
        match client.ask::<_, CompactionResponse>(COMPACT, CompactionRequest { revision: last.newest }).await
        {
            Ok(_) => tracing::info!(revision = last.newest, "compacted etcd"),
            // Another server has compacted further.
            Err(Refused::OutOfRange) => {}
            Err(refused) => return Err(refused),
        }
    }
    Ok(now)
}

/// The transaction that updates the key, or reads it if another server was first.
fn turn(last: Seen) -> TxnRequest {
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Version.into(),
        key: KEY.into(),
        version: Some(last.version),
        mod_revision: None,
    };
    let put = PutRequest { key: KEY.into(), value: last.newest.to_string().into() };
    let get = RangeRequest { key: KEY.into(), ..RangeRequest::default() };
    let only = |request| vec![RequestOp { request: Some(request) }];
    TxnRequest {
        compare: vec![compare],
        success: only(Request::Put(put)),
        failure: only(Request::Range(get)),
    }
}

/// The new state, and whether this server was first.
fn seen(last: Seen, answer: &TxnResponse) -> (Seen, bool) {
    let newest = answer.header.map_or(last.newest, |header| header.revision);
    if answer.succeeded {
        return (Seen { version: last.version + 1, newest }, true);
    }
    let found = answer.responses.first().and_then(|response| response.range.as_ref());
    let version = found.and_then(|range| range.kvs.first()).map_or(0, |key| key.version);
    (Seen { version, newest }, false)
}

#[cfg(test)]
mod tests {
    use super::super::messages::{KeyValue, RangeResponse, ResponseHeader, ResponseOp};
    use super::{Seen, TxnResponse, seen};

    #[test]
    fn the_first_server_compacts() {
        let last = Seen { version: 3, newest: 70 };
        let header = Some(ResponseHeader { revision: 100 });
        let taken = TxnResponse { header, succeeded: true, responses: Vec::new() };
        assert_eq!(seen(last, &taken), (Seen { version: 4, newest: 100 }, true));
        let another = |kvs| {
            let range = Some(RangeResponse { header, kvs, count: 1 });
            TxnResponse { header, succeeded: false, responses: vec![ResponseOp { range }] }
        };
        let key = KeyValue { version: 5, ..KeyValue::default() };
        assert_eq!(seen(last, &another(vec![key])), (Seen { version: 5, newest: 100 }, false));
        // The key was deleted.
        assert_eq!(seen(last, &another(Vec::new())), (Seen { version: 0, newest: 100 }, false));
    }
}
