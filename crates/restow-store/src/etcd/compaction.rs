//! Forgets old revisions, as kube-apiserver does, and in turn with the kube-apiservers and others on the same etcd.
//!
//! Each of them writes the revision that it will compact to the next time under one key, on condition of that key's
//! version as it last saw it. Whoever is first compacts to the revision that was the newest at its last look; the others
//! see that somebody does. etcd keeps everything otherwise, until it is full.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinHandle, time};

use super::{
    COMPACT, TXN,
    client::{Client, Refused},
    messages::{
        CompactionRequest, CompactionResponse, Compare, CompareResult, CompareTarget, PutRequest,
        RangeRequest, Request, RequestOp, TxnRequest, TxnResponse,
    },
};

/// The key, as kube-apiserver has it.
const KEY: &str = "compact_rev_key";

/// Compacts in a task of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct Compaction(JoinHandle<()>);

impl Drop for Compaction {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What one look has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// The version of the key.
    version: i64,
    /// The newest revision then; 0 before the first look.
    newest: i64,
}

impl Compaction {
    pub(super) fn start(client: &Arc<Client>, every: Duration) -> Self {
        let client = Arc::clone(client);
        Self(tokio::spawn(async move {
            let mut seen = Seen::default();
            loop {
                time::sleep(every).await;
                match look(&client, seen).await {
                    Ok(now) => seen = now,
                    Err(refused) => tracing::warn!(?refused, "etcd could not be compacted; trying again"),
                }
            }
        }))
    }
}

/// Looks once, and compacts to where it was at the last look if it is the first to do so since.
async fn look(client: &Client, last: Seen) -> Result<Seen, Refused> {
    let answer: TxnResponse = client.ask(TXN, turn(last)).await?;
    let (now, is_first) = seen(last, &answer);
    if is_first && last.newest > 0 {
        match client.ask::<_, CompactionResponse>(COMPACT, CompactionRequest { revision: last.newest }).await
        {
            Ok(_) => tracing::info!(revision = last.newest, "etcd is compacted"),
            // Somebody has compacted further.
            Err(Refused::OutOfRange) => {}
            Err(refused) => return Err(refused),
        }
    }
    Ok(now)
}

/// Takes the turn, or reads who did.
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

/// What an answer shows, and whether the turn was taken.
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
    fn whoever_is_first_has_the_turn() {
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
