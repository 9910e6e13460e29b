//! The review APIs: resources that are answered and never stored.

/// A review resource.
#[derive(Debug)]
pub(crate) struct Review {
    /// The API group.
    pub group: &'static str,
    pub kind: &'static str,
    /// The plural name.
    pub plural: &'static str,
    /// Whether it is namespaced.
    pub namespaced: bool,
}

/// The version of all of them.
pub(crate) const VERSION: &str = "v1";

const AUTHENTICATION: &str = "authentication.k8s.io";

const AUTHORIZATION: &str = "authorization.k8s.io";

/// All of them.
pub(crate) static REVIEWS: &[Review] = &[
    Review {
        group: AUTHENTICATION,
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        namespaced: false,
    },
    Review { group: AUTHENTICATION, kind: "TokenReview", plural: "tokenreviews", namespaced: false },
    Review {
        group: AUTHORIZATION,
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        namespaced: true,
    },
    Review {
        group: AUTHORIZATION,
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        namespaced: false,
    },
    Review {
        group: AUTHORIZATION,
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        namespaced: false,
    },
    Review {
        group: AUTHORIZATION,
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        namespaced: false,
    },
];

/// The review of a path.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Review> {
    REVIEWS.iter().find(|review| review.group == group && version == VERSION && review.plural == plural)
}
