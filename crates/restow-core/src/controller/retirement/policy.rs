//! Kubernetes' deprecation policy: how long a version is served after it was deprecated.

/// How stable a version is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Such as v1alpha1.
    Alpha,
    /// Such as v1beta1.
    Beta,
    /// Such as v1, and every name of another form.
    Stable,
}

impl Stability {
    /// What the policy promises to clients of a deprecated version; nothing for alpha versions.
    pub fn policy(self) -> Option<&'static str> {
        match self {
            Self::Alpha => None,
            Self::Beta => Some(
                "a beta version is served for 9 months or 3 releases after its deprecation, whichever is longer",
            ),
            Self::Stable => Some("a stable version is not removed within a major release"),
        }
    }
}

/// How stable a version is, by its name.
pub fn stability(version: &str) -> Stability {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = |stage: &str| {
        version
            .strip_prefix('v')
            .and_then(|rest| rest.split_once(stage))
            .is_some_and(|(major, minor)| number(major) && number(minor))
    };
    match version {
        _ if numbered("alpha") => Stability::Alpha,
        _ if numbered("beta") => Stability::Beta,
        _ => Stability::Stable,
    }
}

/// Whether a text can be the name of a version: a DNS label. A CRD that lacks another one proves nothing.
pub fn is_version_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= 63
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(inner)
        && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_without_its_group() {
        for (text, expected) in [
            ("v1beta1", true),
            ("odd-one", true),
            ("", false),
            ("example.com/v1beta1", false),
            ("V1", false),
            ("1", false),
            ("v1-", false),
            ("v1 ", false),
        ] {
            assert_eq!(is_version_name(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_conformant_names_are_alpha_or_beta() {
        for (version, expected) in [
            ("v1alpha1", Stability::Alpha),
            ("v2beta10", Stability::Beta),
            ("v1", Stability::Stable),
            ("v1beta", Stability::Stable),
            ("alpha", Stability::Stable),
            ("valpha1", Stability::Stable),
            ("v1gamma1", Stability::Stable),
        ] {
            assert_eq!(stability(version), expected, "{version}");
        }
    }
}
