//! The API servers that are alive, as their identity Leases or the `kubernetes` endpoints show them.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

/// One API server, as its identity Lease or the `kubernetes` endpoints tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name of the Lease, or the address.
    pub name: String,
    /// The holder: it changes when the process starts anew.
    pub holder: String,
    /// Where it can be asked, as `host:port`.
    pub address: Option<String>,
    /// Until when it counts as alive; endpoints have no end.
    pub expires: Option<Timestamp>,
    /// The kind of server it is, as its Lease is labelled; endpoints are those of kube-apiservers.
    pub component: String,
}

/// The kind of server that stores what no aggregated API server does.
pub const KUBE_APISERVER: &str = "kube-apiserver";

/// Those members that are alive at `now`.
pub fn live(members: &[Member], now: Timestamp) -> Vec<&Member> {
    members.iter().filter(|member| member.expires.is_none_or(|end| end > now)).collect()
}

/// Who holds the identity Leases at `now`: it changes when a server comes, goes or restarts.
pub fn holders(members: &[Member], now: Timestamp) -> Vec<String> {
    let holders: BTreeSet<&str> = live(members, now).iter().map(|member| member.holder.as_str()).collect();
    holders.into_iter().map(str::to_owned).collect()
}

/// Until when a server counts as alive by its identity Lease; one that was never renewed is not known to have ended.
pub fn expires(renewed: Option<Timestamp>, seconds: Option<u64>) -> Timestamp {
    const USUAL: u64 = 3600;
    let lasts = Duration::from_secs(seconds.unwrap_or(USUAL));
    renewed.and_then(|renewed| renewed.checked_add(lasts).ok()).unwrap_or(Timestamp::MAX)
}
