//! Limits the connections of each peer.

use std::net::{IpAddr, Ipv6Addr};

use crate::shares::{Share, Shares};

/// Counts connections by peer. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Peers(Shares<IpAddr>);

/// One connection of a peer, counted until it is dropped.
pub(crate) type PeerConnection = Share<IpAddr>;

impl Peers {
    /// Limits each peer to `most` connections.
    pub(crate) fn new(most: usize) -> Self {
        Self(Shares::new(most))
    }

    /// Counts one more connection; none if the peer has reached its limit.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<PeerConnection> {
        let mut share = self.0.of(network(address));
        share.grow(1).then_some(share)
    }
}

/// What counts as one peer: an IPv4 address, or an IPv6 /64 network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_own_share() {
        let peers = Peers::new(1);
        let enter = |address: &str| peers.enter(address.parse().unwrap());
        for (first, same, other) in [
            ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
            ("10.0.1.1", "::ffff:10.0.1.1", "::ffff:10.0.1.2"),
            ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        ] {
            let held = enter(first);
            assert!(held.is_some() && enter(same).is_none() && enter(other).is_some(), "{first}");
            drop(held);
            assert!(enter(same).is_some(), "{first}");
        }
        assert!(peers.0.is_unused());
    }
}
