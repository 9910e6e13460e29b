//! The keys that simulated API servers encrypt Secrets with.

use std::sync::Arc;

use restow_store::encryption::Transformers;
use serde_json::json;

const KEYS: [(&str, &str); 2] = [
    ("key1", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
    ("key2", "MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
];

/// The name of the key with which the configuration of this hash encrypts; `None` if the hash is unknown.
pub(crate) fn key_of(hash: &str) -> Option<&'static str> {
    let is = |rotated| transformers(rotated).is_some_and(|transformers| hash == transformers.hash());
    if is(true) { Some("key2") } else { is(false).then_some("key1") }
}

/// The name of the key in use, before or after the rotation.
pub(crate) fn key_name(rotated: bool) -> &'static str {
    KEYS[usize::from(rotated)].0
}

/// The encryption configuration before or after the rotation.
pub(crate) fn transformers(rotated: bool) -> Option<Arc<Transformers>> {
    let order = if rotated { [1, 0] } else { [0, 1] };
    let keys: Vec<_> = order.iter().map(|at| json!({"name": KEYS[*at].0, "secret": KEYS[*at].1})).collect();
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": keys}}, {"identity": {}}]}],
    });
    Transformers::parse(file.to_string().as_bytes()).ok().map(Arc::new)
}
