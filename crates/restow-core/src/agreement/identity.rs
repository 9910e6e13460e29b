//! Whether answers come from different API servers.

use std::collections::{BTreeMap, BTreeSet};

use crate::agreement::member::Member;

/// What identifies an API server that answered; empty where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its own address, in `serverAddressByClientCIDRs` of `/api`: the advertised one, or the same `--external-hostname`
    /// on every server.
    pub address: String,
    /// Its process, from its metrics.
    pub process: String,
}

/// How many different API servers answered; none if that cannot be determined.
///
/// Different addresses are different servers. Several servers may have the same address; then their processes distinguish
/// them.
pub fn distinct(answers: &[Identity]) -> Option<usize> {
    let mut by_address: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for answer in answers {
        by_address.entry(&answer.address).or_default().push(&answer.process);
    }
    let unnamed = by_address.contains_key("") && by_address.len() > 1;
    let mut count = 0;
    for processes in by_address.values() {
        let identified = processes.iter().all(|process| !process.is_empty());
        count += match processes.len() {
            1 => 1,
            _ if identified => processes.iter().collect::<BTreeSet<_>>().len(),
            _ => return None,
        };
    }
    // A server without an address may be any of the others.
    (!unnamed).then_some(count)
}

/// The address to query each API server at, or why it cannot be queried: an address that two servers share reaches only
/// one of them.
pub fn addresses(live: &[&Member]) -> Vec<(String, Result<String, String>)> {
    let each = |member: &&Member| {
        let Some(address) = &member.address else { return Err("its address is not known".to_owned()) };
        let shares = |other: &&&Member| other.name != member.name && other.address.as_ref() == Some(address);
        match live.iter().find(shares) {
            Some(other) => Err(format!("{} has the same address {address}", other.name)),
            None => Ok(address.clone()),
        }
    };
    live.iter().map(|member| (member.name.clone(), each(member))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::member::KUBE_APISERVER;

    #[test]
    fn servers_are_distinguished_by_address_then_by_process() {
        for (answers, expected) in [
            (vec![], Some(0)),
            (vec!["10.0.0.1 -"], Some(1)),
            (vec!["10.0.0.1 -", "10.0.0.2 -"], Some(2)),
            // Two names of one load balancer, whose connections lead to one server.
            (vec!["10.0.0.1 x", "10.0.0.1 x"], Some(1)),
            // The same --external-hostname on both.
            (vec!["lb x", "lb y"], Some(2)),
            (vec!["lb -", "lb -"], None),
            (vec!["lb x", "lb -"], None),
            (vec!["lb x", "lb x", "10.0.0.3 -"], Some(2)),
            // Servers that tell no address.
            (vec!["- x", "- y"], Some(2)),
            (vec!["- -", "- -"], None),
            (vec!["- x", "10.0.0.1 -"], None),
        ] {
            let identity = |text: &&str| {
                let told = |text: &str| if text == "-" { String::new() } else { text.to_owned() };
                let (address, process) = text.split_once(' ').unwrap_or_default();
                Identity { address: told(address), process: told(process) }
            };
            let identities: Vec<_> = answers.iter().map(identity).collect();
            assert_eq!(distinct(&identities), expected, "{answers:?}");
        }
    }

    #[test]
    fn two_servers_with_one_address_cannot_be_queried() {
        let member = |name: &str, address: &str| Member {
            name: name.to_owned(),
            holder: String::new(),
            address: (!address.is_empty()).then(|| address.to_owned()),
            expires: None,
            component: KUBE_APISERVER.to_owned(),
        };
        for (members, expected) in [
            (vec![("a", "10.0.0.1"), ("b", "10.0.0.2")], "a: 10.0.0.1; b: 10.0.0.2"),
            (
                vec![("a", "10.0.0.9"), ("b", "10.0.0.9")],
                "a: b has the same address 10.0.0.9; b: a has the same address 10.0.0.9",
            ),
            (vec![("a", "10.0.0.1"), ("b", "")], "a: 10.0.0.1; b: its address is not known"),
        ] {
            let members: Vec<_> = members.iter().map(|(name, address)| member(name, address)).collect();
            let each = |(name, address): (String, Result<String, String>)| {
                format!("{name}: {}", address.unwrap_or_else(|why| why))
            };
            let told: Vec<_> = addresses(&members.iter().collect::<Vec<_>>()).into_iter().map(each).collect();
            assert_eq!(told.join("; "), expected);
        }
    }
}
