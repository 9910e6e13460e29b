//! A client of etcd's JSON gateway, which reads and writes stored bytes.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Keys per page, so that memory does not grow with the store.
const PAGE: u32 = 250;
/// The most writes in one transaction, a limit of etcd.
const AT_ONCE: usize = 128;

/// A client of the cluster's store.
#[derive(Clone, Debug)]
pub struct Etcd {
    url: String,
    http: Client<HttpConnector, Full<Bytes>>,
}

#[derive(Deserialize)]
struct RangeResponse {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    version: String,
}

#[derive(Deserialize)]
struct DeleteResponse {
    #[serde(default)]
    deleted: String,
}

impl Etcd {
    pub(crate) fn new(port: u16) -> Self {
        let http = Client::builder(TokioExecutor::new()).build_http();
        Self { url: format!("http://127.0.0.1:{port}"), http }
    }

    /// The address of the store.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The value of a key such as `/registry/secrets/default/name`, if it exists.
    pub async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let page: RangeResponse = self.call("/v3/kv/range", &json!({ "key": encode(key) })).await?;
        page.kvs.first().map(|kv| decode(&kv.value)).transpose()
    }

    /// Writes a value without an API server, as a broken disk or an old tool might.
    pub async fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        let body = json!({ "key": encode(key), "value": encode(value) });
        self.call::<serde::de::IgnoredAny>("/v3/kv/put", &body).await.map(drop)
    }

    /// Writes many values without an API server, in transactions as large as etcd allows.
    pub async fn put_all(&self, values: &[(String, Vec<u8>)]) -> Result<()> {
        for some in values.chunks(AT_ONCE) {
            let put = |(key, value): &(String, Vec<u8>)| json!({"requestPut": {"key": encode(key), "value": encode(value)}});
            let body = json!({"success": some.iter().map(put).collect::<Vec<_>>()});
            self.call::<serde::de::IgnoredAny>("/v3/kv/txn", &body).await?;
        }
        Ok(())
    }

    /// Deletes a key without an API server, and returns whether it existed.
    pub async fn delete(&self, key: &str) -> Result<bool> {
        let answer: DeleteResponse = self.call("/v3/kv/deleterange", &json!({ "key": encode(key) })).await?;
        Ok(answer.deleted == "1")
    }

    /// Visits every key below a prefix, in order, as of one revision.
    pub async fn for_each(&self, prefix: &str, mut visit: impl FnMut(&str, &[u8])) -> Result<()> {
        let end = encode(prefix_end(prefix.as_bytes()));
        let mut from = prefix.as_bytes().to_vec();
        let mut revision = "0".to_owned();
        loop {
            let body = json!({ "key": encode(&from), "range_end": end, "limit": PAGE, "revision": revision });
            let page: RangeResponse = self.call("/v3/kv/range", &body).await?;
            for kv in &page.kvs {
                let key = decode(&kv.key)?;
                visit(&String::from_utf8_lossy(&key), &decode(&kv.value)?);
                from = key;
            }
            if !page.more {
                return Ok(());
            }
            from.push(0);
            revision = page.header.revision;
        }
    }

    /// How often each key below a prefix was written, including its creation.
    pub async fn writes(&self, prefix: &str) -> Result<BTreeMap<String, u64>> {
        let end = encode(prefix_end(prefix.as_bytes()));
        let body = json!({ "key": encode(prefix), "range_end": end, "keys_only": true });
        let page: RangeResponse = self.call("/v3/kv/range", &body).await?;
        let count = |kv: &KeyValue| {
            let key = String::from_utf8_lossy(&decode(&kv.key)?).into_owned();
            Ok((key, kv.version.parse().context("etcd's answer has no version")?))
        };
        page.kvs.iter().map(count).collect()
    }

    /// Compacts the history, and returns the revision.
    pub async fn compact(&self) -> Result<u64> {
        let page: RangeResponse =
            self.call("/v3/kv/range", &json!({ "key": encode("/"), "limit": 1 })).await?;
        let revision = page.header.revision;
        self.call::<serde::de::IgnoredAny>("/v3/kv/compaction", &json!({ "revision": revision })).await?;
        revision.parse().context("etcd's answer has no revision")
    }

    /// Takes a snapshot, as `etcdctl snapshot save` does.
    pub async fn snapshot(&self) -> Result<Vec<u8>> {
        #[derive(Deserialize)]
        struct Answer {
            result: Piece,
        }
        #[derive(Deserialize)]
        struct Piece {
            #[serde(default)]
            blob: String,
        }
        let request =
            Request::post(format!("{}/v3/maintenance/snapshot", self.url)).body(Full::from("{}"))?;
        let response = self.http.request(request).await.context("asking etcd for a snapshot")?;
        let body = response.into_body().collect().await.context("reading etcd's snapshot")?.to_bytes();
        let mut snapshot = Vec::new();
        for answer in serde_json::Deserializer::from_slice(&body).into_iter::<Answer>() {
            snapshot.extend(decode(&answer.context("understanding etcd's snapshot")?.result.blob)?);
        }
        Ok(snapshot)
    }

    /// Makes etcd refuse writes, as if its quota were used up, or accept them again.
    pub async fn set_full(&self, full: bool) -> Result<()> {
        let action = if full { "ACTIVATE" } else { "DEACTIVATE" };
        let body = json!({ "action": action, "memberID": "0", "alarm": "NOSPACE" });
        self.call::<serde::de::IgnoredAny>("/v3/maintenance/alarm", &body).await.map(drop)
    }

    /// Whether the store has a leader and answers.
    pub(crate) async fn health(&self) -> Result<()> {
        let request = Request::get(format!("{}/health", self.url)).body(Full::default())?;
        let status = self.http.request(request).await?.status();
        ensure!(status.is_success(), "etcd answers {status}");
        Ok(())
    }

    async fn call<T: for<'de> Deserialize<'de>>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        let request = Request::post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .body(Full::from(serde_json::to_vec(body)?))?;
        let response = self.http.request(request).await.with_context(|| format!("asking etcd for {path}"))?;
        let status = response.status();
        let body = response.into_body().collect().await.context("reading etcd's answer")?.to_bytes();
        ensure!(status.is_success(), "etcd answers {path} with {status}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).with_context(|| format!("understanding etcd's answer to {path}"))
    }
}

/// The first key after all keys with this prefix; a zero byte means the end of the store.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn decode(text: &str) -> Result<Vec<u8>> {
    BASE64_STANDARD.decode(text).context("etcd's answer is not base64")
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        for (prefix, end) in
            [(&b"/a/"[..], &b"/a0"[..]), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")]
        {
            assert_eq!(prefix_end(prefix), end);
        }
    }
}
