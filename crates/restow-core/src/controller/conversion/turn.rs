//! Which of several Conversions of one kind is carried out: one at a time, the one that has begun or the oldest first.

use jiff::Timestamp;

/// A Conversion, as far as it matters for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `metadata.name`.
    pub name: String,
    /// The API group and the kind.
    pub kind: (String, String),
    /// `metadata.creationTimestamp`.
    pub created: Timestamp,
    /// Whether it has changed the definition and is not finished.
    pub begun: bool,
    /// Whether it has finished, is suspended before it has begun, or is being deleted.
    pub idle: bool,
}

/// The Conversion that this one waits for; none if it is its turn.
pub fn turn<'a>(name: &str, all: &'a [Waiting]) -> Option<&'a str> {
    let this = all.iter().find(|one| one.name == name)?;
    let rank = |one: &Waiting| (!one.begun, one.created, one.name.clone());
    let others = all.iter().filter(|one| one.name != name && !one.idle && one.kind == this.kind);
    let first = others.min_by_key(|one| rank(one))?;
    (rank(first) < rank(this)).then_some(first.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, kind: &str, second: i64, begun: bool, idle: bool) -> Waiting {
        let kind = ("example.com".to_owned(), kind.to_owned());
        Waiting { name: name.to_owned(), kind, created: Timestamp::from_second(second).unwrap(), begun, idle }
    }

    #[test]
    fn conversions_of_one_kind_take_turns() {
        for (what, all, expected) in [
            ("alone", vec![one("a", "W", 5, false, false)], None),
            (
                "the older one first",
                vec![one("a", "W", 5, false, false), one("b", "W", 4, false, false)],
                Some("b"),
            ),
            (
                "of one age by name",
                vec![one("a", "W", 5, false, false), one("b", "W", 5, false, false)],
                None,
            ),
            (
                "one that has begun",
                vec![one("a", "W", 4, false, false), one("b", "W", 5, true, false)],
                Some("b"),
            ),
            (
                "finished ones do not matter",
                vec![one("a", "W", 5, false, false), one("b", "W", 4, true, true)],
                None,
            ),
            (
                "other kinds do not matter",
                vec![one("a", "W", 5, false, false), one("b", "X", 4, true, false)],
                None,
            ),
        ] {
            assert_eq!(turn("a", &all), expected, "{what}");
        }
    }
}
