//! The order of versions: which of two versions of an API is the newer one.

use std::cmp::Ordering;

use kube_core::Version;

/// Orders two versions by [Kubernetes' version priority][priority]: the newer one is the greater.
///
/// GA versions come before beta versions, beta before alpha, and higher numbers before lower ones. A name that is
/// not of the form `v1`, `v1beta1` or `v1alpha1` is older than all that are; such names are in alphabetical order.
///
/// ```
/// let mut versions = ["foo10", "v1", "v3beta1", "v10", "v12alpha1", "foo1", "v2", "v11beta2"];
/// versions.sort_by(|one, other| restow_convert::version_order(other, one));
/// assert_eq!(versions, ["v10", "v2", "v1", "v11beta2", "v3beta1", "v12alpha1", "foo1", "foo10"]);
/// ```
///
/// [priority]: https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority
pub fn version_order(one: &str, other: &str) -> Ordering {
    parse(one).priority().cmp(&parse(other).priority())
}

fn parse(version: &str) -> Version {
    // kube also takes v1beta, v01 and v0 for versions. Kubernetes does not.
    if is_conformant(version) { Version::parse(version) } else { Version::Nonconformant(version.to_owned()) }
}

fn is_conformant(version: &str) -> bool {
    let Some(rest) = version.strip_prefix('v') else { return false };
    let suffix = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let major = &rest[..rest.len() - suffix.len()];
    let minor = suffix.strip_prefix("alpha").or_else(|| suffix.strip_prefix("beta"));
    is_number(major) && (suffix.is_empty() || minor.is_some_and(is_number))
}

fn is_number(digits: &str) -> bool {
    !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_the_order_of_the_kubernetes_documentation() {
        let documented =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        for (place, newer) in documented.iter().enumerate() {
            assert_eq!(version_order(newer, newer), Ordering::Equal, "{newer}");
            for older in &documented[place + 1..] {
                assert_eq!(version_order(newer, older), Ordering::Greater, "{newer} and {older}");
                assert_eq!(version_order(older, newer), Ordering::Less, "{older} and {newer}");
            }
        }
    }

    #[test]
    fn a_name_of_another_form_is_older_than_every_alpha_version() {
        for name in
            ["v1beta", "v01", "v0", "v1alpha0", "v1beta01", "v", "V1", "1", "v1gamma1", "v1-beta1", ""]
        {
            assert_eq!(version_order("v1alpha1", name), Ordering::Greater, "{name}");
        }
    }
}
