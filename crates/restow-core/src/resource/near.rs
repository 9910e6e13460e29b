//! Which names are similar to a mistyped one.

/// How similar two names must be.
const ALIKE: f64 = 0.84;
/// The most names to suggest.
const OFFERED: usize = 3;

/// The names that are similar to the wanted one, the most similar first. Each name comes with its aliases.
pub fn nearest(wanted: &str, names: impl IntoIterator<Item = (String, Vec<String>)>) -> Vec<String> {
    let alike = |name: &str| strsim::jaro_winkler(wanted, name);
    let mut scored: Vec<(f64, f64, String)> = names
        .into_iter()
        .map(|(name, others)| {
            let own = alike(&name);
            (others.iter().map(|other| alike(other)).fold(own, f64::max), own, name)
        })
        .filter(|(best, _, _)| *best > ALIKE)
        .collect();
    // If several have the same alias, their own names decide.
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    scored.into_iter().take(OFFERED).map(|(_, _, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_come_first_and_others_are_left_out() {
        let names = [
            ("secrets-x7k2p", "secrets"),
            ("widgets.example.com-aaaaa", "widgets.example.com"),
            ("widgets.example.com-bbbbb", "widgets.example.com"),
            ("deployments.apps-ccccc", "deployments.apps"),
        ];
        let near = |wanted: &str| {
            nearest(wanted, names.map(|(name, other)| (name.to_owned(), vec![other.to_owned()])))
        };
        assert_eq!(near("secret"), ["secrets-x7k2p"]);
        assert_eq!(near("widgets.example.com-bbbb")[0], "widgets.example.com-bbbbb");
        assert_eq!(near("widgts.example.com").len(), 2);
        assert_eq!(near("widgets.example.com-b")[0], "widgets.example.com-bbbbb");
        assert!(near("zzz").is_empty());
    }
}
