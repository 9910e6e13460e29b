//! Storage version hashes, as discovery publishes them, and the version that a hash stands for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::resource::name::GroupVersion;

/// The hash that discovery publishes for objects stored as `version` and `kind`.
pub fn storage_version_hash(version: &GroupVersion, kind: &str) -> String {
    let digest = Sha256::digest(format!("{}/{}/{kind}", version.group, version.version));
    STANDARD.encode(&digest[..8])
}

/// Whether a text has the form of a storage version hash.
pub fn is_hash(text: &str) -> bool {
    STANDARD.decode(text).is_ok_and(|bytes| bytes.len() == 8)
}

/// Versions in which a built-in resource may be stored without being served; tried if a hash matches no served version.
const UNSERVED: [&str; 12] = [
    "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v1alpha2", "v1alpha3", "v1", "v2", "v2beta1", "v2beta2",
    "v2alpha1", "v3",
];

/// Finds the version that a hash stands for, among those `served` and then those that a group may store without serving.
///
/// `served` may include versions of other groups, because some resources, such as events, share their storage.
pub fn version_of_hash<'a>(
    hash: &str,
    kind: &str,
    group: &str,
    served: impl IntoIterator<Item = &'a GroupVersion>,
) -> Option<GroupVersion> {
    served.into_iter().find(|version| storage_version_hash(version, kind) == hash).cloned().or_else(|| {
        UNSERVED
            .iter()
            .map(|version| GroupVersion::new(group, *version))
            .find(|version| storage_version_hash(version, kind) == hash)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that a kube-apiserver 1.36.3 published.
    #[test]
    fn hashes_equal_those_of_a_real_server() {
        for (version, kind, hash) in [
            ("v1", "Event", "r2yiGXH7wu8="),
            ("autoscaling/v2", "HorizontalPodAutoscaler", "qwQve8ut294="),
            ("example.com/v1", "Widget", "gIwvi5rymmg="),
        ] {
            assert_eq!(storage_version_hash(&GroupVersion::parse(version), kind), hash, "{version} {kind}");
        }
    }

    #[test]
    fn a_hash_resolves_to_its_version() {
        let served = [GroupVersion::parse("autoscaling/v1"), GroupVersion::parse("autoscaling/v2")];
        let find = |hash, kind, group| version_of_hash(hash, kind, group, &served).map(|v| v.to_string());
        assert_eq!(
            find("qwQve8ut294=", "HorizontalPodAutoscaler", "autoscaling").as_deref(),
            Some("autoscaling/v2")
        );
        // Served as v1 only, stored in a version that is not served.
        assert_eq!(
            find("jfWCUB31mvA=", "CustomResourceDefinition", "apiextensions.k8s.io").as_deref(),
            Some("apiextensions.k8s.io/v1beta1")
        );
        assert_eq!(find("AAAAAAAAAAA=", "Widget", "example.com"), None);
    }
}
