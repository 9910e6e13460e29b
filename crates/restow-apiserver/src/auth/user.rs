//! The user who sends a request.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Members of this group may do everything.
pub(crate) const MASTERS: &str = "system:masters";

/// The group of all authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// The group of all other users.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The name of unauthenticated users.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// A user of the API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name that RBAC knows it by.
    pub name: String,
    /// Distinguishes users of the same name.
    pub uid: String,
    /// Its groups, to which roles may be bound.
    pub groups: Vec<String>,
    /// Extra attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// An authenticated user.
    pub fn known(name: impl Into<String>, groups: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(Into::into).collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// The unauthenticated user.
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

    /// Whether the user may do everything.
    pub fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// The user who sends a request: an extension of each request from the network.
#[derive(Clone, Debug)]
pub(crate) struct Sender(pub Arc<User>);

/// The user who sent a request. A request without a sender is the server's own, because the filters set it for others.
pub(crate) fn sender(head: &http::request::Parts) -> Arc<User> {
    let sender = head.extensions.get::<Sender>();
    sender.map_or_else(User::loopback, |Sender(user)| Arc::clone(user))
}
