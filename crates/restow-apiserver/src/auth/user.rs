//! The user who sends a request, as authentication found it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Members of this group may do everything.
pub(crate) const MASTERS: &str = "system:masters";

/// Everybody who has shown who they are is in this group.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// Everybody else is in this one.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The name of those who have not shown who they are.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// Somebody who sends requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// What tells apart two users of one name.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who has shown who they are.
    pub fn known(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// Somebody who has not.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.to_owned(), groups: vec![UNAUTHENTICATED.to_owned()], ..Self::default() }
    }

    /// The user whose token is in the kubeconfig that the server writes.
    pub fn admin() -> Self {
        Self::known("restow:admin", [MASTERS])
    }

    /// The server itself.
    pub fn loopback() -> Arc<Self> {
        static LOOPBACK: LazyLock<Arc<User>> =
            LazyLock::new(|| Arc::new(User::known("system:apiserver", [MASTERS])));
        Arc::clone(&LOOPBACK)
    }

    /// Whether everything is allowed.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Whether it is one of a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// Who sends a request: an extension of each request that reaches a handler.
#[derive(Clone, Debug)]
pub(crate) struct Sender(pub Arc<User>);

/// Who sent a request; what comes without a sender is the server's own, since the way in gives every other one.
pub(crate) fn sender(head: &http::request::Parts) -> Arc<User> {
    let sender = head.extensions.get::<Sender>();
    sender.map_or_else(User::loopback, |Sender(user)| Arc::clone(user))
}
