//! Which converter is for which kind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::convertible::kind_name;
use crate::untouched::Untouched;
use crate::{Chain, Convertible, Error, Unchanged};

/// A converter, and the kind and versions that it is for.
#[derive(Clone)]
pub struct Converter {
    group: String,
    kind: String,
    versions: Vec<String>,
    by: By,
}

/// How it converts. Of some strategies, more is known than that.
#[derive(Clone)]
enum By {
    Chain(Arc<Chain>),
    Unchanged(Arc<Unchanged>),
    Any(Arc<dyn Convertible>),
}

/// The converters of several kinds. A set never changes: a new one takes its place.
#[derive(Clone, Debug, Default)]
pub struct Converters {
    by_group: BTreeMap<String, BTreeMap<String, Converter>>,
}

/// Two converters are for the same kind.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("there are two converters for {0}; remove one of them")]
pub struct TwoConverters(String);

impl Converter {
    /// A converter of any strategy.
    pub fn new(
        group: impl Into<String>,
        kind: impl Into<String>,
        versions: impl IntoIterator<Item = impl Into<String>>,
        convertible: impl Convertible + 'static,
    ) -> Self {
        let versions = versions.into_iter().map(Into::into).collect();
        Self { group: group.into(), kind: kind.into(), versions, by: By::Any(Arc::new(convertible)) }
    }

    /// The API group of the kind.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The kind of the objects that it converts, such as Widget.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The versions that it converts between.
    pub fn versions(&self) -> &[String] {
        &self.versions
    }

    /// The fields that a conversion between two versions does not touch. None if that is not known.
    pub(crate) fn untouched(&self, from: &str, to: &str) -> Option<&Untouched> {
        match &self.by {
            By::Chain(chain) => chain.untouched(from, to),
            By::Unchanged(unchanged) => Some(unchanged.untouched()),
            By::Any(_) => None,
        }
    }

    /// Its own name for a version, if it knows the version.
    pub(crate) fn known(&self, version: &str) -> Result<&str, Error> {
        let known = self.versions.iter().find(|known| *known == version);
        known.map(String::as_str).ok_or_else(|| Error::UnknownVersion {
            version: version.to_owned(),
            known: self.versions.clone(),
        })
    }
}

impl Convertible for Converter {
    fn convert(&self, object: Value, version: &str) -> Result<Value, Error> {
        match &self.by {
            By::Chain(chain) => chain.convert(object, version),
            By::Unchanged(unchanged) => unchanged.convert(object, version),
            By::Any(convertible) => convertible.convert(object, version),
        }
    }
}

impl From<Chain> for Converter {
    fn from(chain: Chain) -> Self {
        let (group, kind) = (chain.group().to_owned(), chain.kind().to_owned());
        Self { group, kind, versions: chain.versions().to_vec(), by: By::Chain(Arc::new(chain)) }
    }
}

impl From<Unchanged> for Converter {
    fn from(unchanged: Unchanged) -> Self {
        let (group, kind) = (unchanged.group().to_owned(), unchanged.kind().to_owned());
        Self { group, kind, versions: unchanged.versions().to_vec(), by: By::Unchanged(Arc::new(unchanged)) }
    }
}

impl fmt::Debug for Converter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Converter({} {})", kind_name(&self.group, &self.kind), self.versions.join(", "))
    }
}

impl Converters {
    /// The set of these converters.
    ///
    /// # Errors
    /// When two of them are for the same kind.
    pub fn new(converters: impl IntoIterator<Item = Converter>) -> Result<Self, TwoConverters> {
        let mut set = Self::default();
        for converter in converters {
            let kinds = set.by_group.entry(converter.group.clone()).or_default();
            if kinds.contains_key(&converter.kind) {
                return Err(TwoConverters(kind_name(&converter.group, &converter.kind)));
            }
            kinds.insert(converter.kind.clone(), converter);
        }
        Ok(set)
    }

    /// The converter of a kind.
    pub fn get(&self, group: &str, kind: &str) -> Option<&Converter> {
        self.by_group.get(group)?.get(kind)
    }

    /// All converters.
    pub fn iter(&self) -> impl Iterator<Item = &Converter> {
        self.by_group.values().flat_map(BTreeMap::values)
    }

    /// The kinds that have a converter, as people write them.
    pub fn kinds(&self) -> Vec<String> {
        self.iter().map(|converter| kind_name(&converter.group, &converter.kind)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Never;

    impl Convertible for Never {
        fn convert(&self, _: Value, _: &str) -> Result<Value, Error> {
            Err(Error::NotAnObject("it is never one"))
        }
    }

    #[test]
    fn a_kind_has_one_converter() {
        let of = |group: &str, kind: &str| Converter::new(group, kind, ["v1"], Never);
        let set = Converters::new([of("a.com", "A"), of("b.com", "A"), of("", "B")]).unwrap();
        assert_eq!(set.kinds(), ["B", "A.a.com", "A.b.com"]);
        assert_eq!(set.get("a.com", "A").map(Converter::group), Some("a.com"));
        assert!(set.get("a.com", "B").is_none() && set.get("c.com", "A").is_none());
        let error = Converters::new([of("a.com", "A"), of("a.com", "A")]).unwrap_err();
        assert_eq!(error.to_string(), "there are two converters for A.a.com; remove one of them");
    }
}
