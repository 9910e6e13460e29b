//! The API servers that are alive, as their identity Leases or the `kubernetes` endpoints show them.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

/// One API server, from its identity Lease or the `kubernetes` endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of the Lease, or the address.
    pub name: String,
    /// The holder of the Lease, which changes when the process restarts.
    pub holder: String,
    /// Where to query it, as `host:port`.
    pub address: Option<String>,
    /// Until when it counts as alive; none for endpoints, which do not expire.
    pub expires: Option<Timestamp>,
    /// The kind of server, from a label of its Lease; endpoints belong to kube-apiservers.
    pub component: String,
}

/// The kind of server that stores everything that no aggregated API server does.
pub const KUBE_APISERVER: &str = "kube-apiserver";

/// The members that are alive at `now`.
pub fn live(members: &[Member], now: Timestamp) -> Vec<&Member> {
    members.iter().filter(|member| member.expires.is_none_or(|end| end > now)).collect()
}

/// The holders of the identity Leases at `now`; they change when a server is added, removed or restarted.
pub fn holders(members: &[Member], now: Timestamp) -> Vec<String> {
    let holders: BTreeSet<&str> = live(members, now).iter().map(|member| member.holder.as_str()).collect();
    holders.into_iter().map(str::to_owned).collect()
}

/// Until when a server counts as alive by its identity Lease; a Lease that was never renewed does not expire.
pub fn expires(renewed: Option<Timestamp>, seconds: Option<u64>) -> Timestamp {
    const USUAL: u64 = 3600;
    let lasts = Duration::from_secs(seconds.unwrap_or(USUAL));
    renewed.and_then(|renewed| renewed.checked_add(lasts).ok()).unwrap_or(Timestamp::MAX)
}
