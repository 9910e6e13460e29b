//! Random writes of several managers on both servers: objects and managedFields must be equal.
//!
//! `RESTOW_APPLY_SEEDS` sets how many sequences of writes are compared, `RESTOW_APPLY_SEED` the first.

use serde_json::{Map, Value, json};

use crate::apply_versions::two_versions;
use crate::definition::define;
use crate::subject::{ApiRequest, Place, Subject};

/// How many writes each object gets.
const WRITES: usize = 14;
const GROUP: &str = "random.example";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A generator of configurations and writes.
struct Random(fastrand::Rng);

impl Random {
    fn one_of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.0.usize(..choices.len())]
    }

    fn often(&mut self) -> bool {
        self.0.u8(..10) < 6
    }

    fn rarely(&mut self) -> bool {
        self.0.u8(..10) == 0
    }

    fn some<'a>(&mut self, of: &[&'a str]) -> Vec<&'a str> {
        let mut kept: Vec<_> = of.iter().copied().filter(|_| self.0.bool()).collect();
        self.0.shuffle(&mut kept);
        kept
    }

    fn map(&mut self) -> Value {
        let keys = self.some(&["a", "b", "c"]);
        Value::Object(keys.into_iter().map(|key| (key.to_owned(), json!(self.one_of(&["1", "2"])))).collect())
    }

    fn keyed(&mut self) -> Value {
        let mut items = Vec::new();
        for key in self.some(&["1", "2", "3 UDP", "3 TCP", "1 UDP"]) {
            let (port, protocol) = key.split_once(' ').unwrap_or((key, ""));
            let mut item = json!({"port": port.parse::<u8>().unwrap()});
            if !protocol.is_empty() {
                item["protocol"] = json!(protocol);
            }
            if self.0.bool() {
                item["name"] = json!(self.one_of(&["x", "y"]));
            }
            if self.0.bool() {
                item["tags"] = json!(self.some(&["t", "u", "v"]));
            }
            items.push(item);
        }
        Value::Array(items)
    }

    fn free(&mut self, depth: usize) -> Value {
        match self.0.u8(..5) {
            0 => json!(self.0.u8(..3)),
            1 => json!(self.one_of(&["s", "t"])),
            2 => json!(self.some(&["a", "b"])),
            _ if depth == 0 => json!({}),
            _ => {
                let keys = self.some(&["p", "q"]);
                Value::Object(keys.into_iter().map(|key| (key.to_owned(), self.free(depth - 1))).collect())
            }
        }
    }

    /// A spec of widgets that both versions have, with each field there or not.
    fn spec(&mut self) -> Value {
        let mut spec = Map::new();
        let names = [
            "size",
            "flag",
            "defaulted",
            "maybe",
            "port",
            "list",
            "set",
            "keyed",
            "map",
            "atomic",
            "inner",
            "free",
        ];
        for name in names {
            if self.often() {
                continue;
            }
            let value = match name {
                "size" => json!(self.0.u8(..3)),
                "flag" => json!(self.0.bool()),
                "defaulted" => json!(self.one_of(&["d", "e"])),
                "maybe" if self.0.bool() => Value::Null,
                "maybe" => json!("m"),
                "port" if self.0.bool() => json!(80),
                "port" => json!("http"),
                "list" | "set" => json!(self.some(&["a", "b", "c", "d"])),
                "keyed" => self.keyed(),
                "map" | "atomic" => self.map(),
                "inner" => {
                    let mut inner = self.map();
                    inner.as_object_mut().unwrap().remove("c");
                    if self.0.bool() {
                        inner["deep"] = if self.0.bool() { json!({"c": self.0.u8(..2)}) } else { json!({}) };
                    }
                    inner
                }
                _ => json!({"z": self.free(2)}),
            };
            spec.insert(name.to_owned(), value);
        }
        Value::Object(spec)
    }

    fn metadata(&mut self, name: &str) -> Value {
        let mut metadata = json!({"name": name});
        if self.0.bool() {
            metadata["labels"] = self.map();
        }
        if self.rarely() {
            metadata["annotations"] = self.map();
        }
        metadata
    }
}

/// One write: how, where and what.
struct Write {
    verb: &'static str,
    version: &'static str,
    path: String,
    body: Value,
}

fn custom_write(random: &mut Random, name: &str) -> Write {
    let version = if random.0.u8(..4) == 0 { "v2" } else { "v1" };
    let manager = random.one_of(&["one", "two", "three"]);
    let status = random.rarely();
    let mut body = json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Widget", "metadata": random.metadata(name),
        "spec": random.spec()});
    if status || random.rarely() {
        body["status"] = json!({"phase": random.one_of(&["a", "b"])});
    }
    let path = format!("widgets/{name}{}?fieldManager={manager}", if status { "/status" } else { "" });
    match random.0.u8(..10) {
        0 if random.0.bool() => {
            Write { verb: "MERGE", version, path, body: json!({"metadata": {"managedFields": [{}]}}) }
        }
        0..=2 => {
            body.as_object_mut().unwrap().remove("metadata");
            Write { verb: "MERGE", version, path, body }
        }
        3 => {
            // An update of the whole spec.
            let replace = json!([{"op": "add", "path": "/spec", "value": body["spec"]}]);
            Write { verb: "JSON", version, path, body: replace }
        }
        _ => {
            let force = if random.0.u8(..3) == 0 { "&force=true" } else { "" };
            Write { verb: "APPLY", version, path: format!("{path}{force}"), body }
        }
    }
}

fn built_in_write(random: &mut Random, name: &str) -> Write {
    let manager = random.one_of(&["one", "two", "three"]);
    let mut body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": random.metadata(name)});
    for list in ["secrets", "imagePullSecrets"] {
        if random.0.bool() {
            body[list] =
                random.some(&["a", "b", "c"]).into_iter().map(|name| json!({"name": name})).collect();
        }
    }
    if random.0.bool() {
        body["automountServiceAccountToken"] = json!(random.0.bool());
    }
    if random.rarely() {
        body["metadata"]["finalizers"] =
            random.some(&["x.y/a", "x.y/b"]).into_iter().map(Value::from).collect();
    }
    let path = format!("serviceaccounts/{name}?fieldManager={manager}");
    match random.0.u8(..10) {
        0..=1 => Write { verb: "MERGE", version: "v1", path, body },
        2 => Write { verb: "STRATEGIC", version: "v1", path, body },
        _ => {
            let force = if random.0.u8(..3) == 0 { "&force=true" } else { "" };
            Write { verb: "APPLY", version: "v1", path: format!("{path}{force}"), body }
        }
    }
}

/// What must be equal: all but what a server draws or reads from a clock. The order of entries depends on their times.
fn comparable(answer: &crate::answer::Answer) -> Value {
    let mut body = answer.body.clone();
    if answer.code() >= 300 {
        let mut causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.sort_by_key(Value::to_string);
        // Which of several managers of one name comes first does not count.
        let message = body["message"].as_str().unwrap_or_default().replace(" conflicts: ", " conflicts\n");
        let mut lines: Vec<String> = message.lines().map(str::to_owned).collect();
        lines.sort();
        return json!({"code": answer.code(), "causes": causes, "message": lines});
    }
    let metadata = body["metadata"].as_object_mut().unwrap();
    for key in ["uid", "resourceVersion", "creationTimestamp"] {
        metadata.remove(key);
    }
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        for entry in entries.iter_mut() {
            entry["time"] = json!(entry["time"].is_string());
        }
        entries.sort_by_key(Value::to_string);
    }
    json!({"code": answer.code(), "object": body})
}

struct Pair<'a> {
    real: Place<'a>,
    embedded: Place<'a>,
}

impl Pair<'_> {
    async fn compare(&self, group: &str, seed: u64, make: fn(&mut Random, &str) -> Write) {
        let mut random = Random(fastrand::Rng::with_seed(seed));
        let name = format!("s{seed}");
        let mut history = Vec::new();
        for _ in 0..WRITES {
            let write = make(&mut random, &name);
            let version = if group.is_empty() {
                write.version.to_owned()
            } else {
                format!("{group}/{}", write.version)
            };
            let call = || ApiRequest::new(write.verb, &write.path).json(&write.body);
            let one = self.real.of(&version).send(call()).await;
            let other = self.embedded.of(&version).send(call()).await;
            history.push(format!("{} {version} {} {}", write.verb, write.path, write.body));
            let (expected, found) = (comparable(&one), comparable(&other));
            assert!(
                expected == found,
                "seed {seed}\n{}\nkube-apiserver: {expected}\nembedded:       {found}",
                history.join("\n")
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_writes_have_equal_results_on_both_servers() {
    let (Some(real), Some(embedded)) = (Subject::real().await, Subject::embedded().await) else { return };
    let custom = Pair {
        real: define(&real, GROUP, two_versions).await,
        embedded: define(&embedded, GROUP, two_versions).await,
    };
    let space = "random-built-in";
    let built_in = Pair { real: real.namespace(space).await, embedded: embedded.namespace(space).await };
    let first = number("RESTOW_APPLY_SEED", 0);
    for seed in first..first + number("RESTOW_APPLY_SEEDS", 25) {
        custom.compare(GROUP, seed, custom_write).await;
        built_in.compare("", seed, built_in_write).await;
    }
}
