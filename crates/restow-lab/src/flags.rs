//! The command line flags of a part, by name, so that a test can change one of them.

use std::collections::BTreeMap;

/// Flags of the form `--name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags(BTreeMap<String, String>);

impl Flags {
    /// Sets a flag, replacing its earlier value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) -> &mut Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Adds an item to a flag that is a comma-separated list.
    pub fn add(&mut self, name: &str, item: &str) -> &mut Self {
        let list = self.0.entry(name.to_owned()).or_default();
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(item);
        self
    }

    /// Removes a flag, so that its default applies.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.0.remove(name);
        self
    }

    /// The value of a flag, if it is set.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The flags as arguments of a command.
    pub(crate) fn to_args(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(name, value)| format!("--{name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::Flags;

    #[test]
    fn a_flag_is_set_extended_and_removed() {
        let mut flags = Flags::default();
        flags.set("b", "1").add("a", "X=true").add("a", "Y=true").set("c", "3").remove("c");
        assert_eq!(flags.to_args().collect::<Vec<_>>(), ["--a=X=true,Y=true", "--b=1"]);
        assert_eq!(flags.get("b"), Some("1"));
        assert_eq!(flags.get("c"), None);
    }
}
