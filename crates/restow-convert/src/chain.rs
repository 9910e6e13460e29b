//! A chain of versions: each is converted to its neighbours, and along the chain to every other one.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::OnceLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::convertible::{set_version, version_of};
use crate::hop::{Direction, End, Hop, Step};
use crate::schema::{Schema, schemas};
use crate::untouched::Untouched;
use crate::{Convertible, Error, metadata, version_order};

/// How many bytes of annotation may be used to keep what a version cannot express. Kubernetes allows 256 KiB for all
/// annotations of an object.
pub const DEFAULT_LIMIT: usize = 128 * 1024;

/// A version of a kind that knows its older neighbour: one hop up and one hop down.
///
/// Only the module of the newer version knows the older one, so a chain of versions is a line of modules without
/// cycles. Neither function has to care about what the other version cannot express: that is kept by the [`Chain`].
pub trait SimpleConverter: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static {
    /// The version before this one.
    type Older: Resource<DynamicType = ()> + Serialize + DeserializeOwned + 'static;
    /// Why an object cannot be converted.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>>;

    /// Makes an object of this version from one of the older version.
    ///
    /// # Errors
    /// When the object cannot be converted.
    fn upgrade_from(older: Self::Older) -> Result<Self, Self::Error>;

    /// Makes an object of the older version from this one.
    ///
    /// # Errors
    /// When the object cannot be converted.
    fn downgrade(self) -> Result<Self::Older, Self::Error>;
}

/// Converts objects of one kind between all versions of a chain, hop by hop, without losing anything.
pub struct Chain {
    group: String,
    kind: String,
    /// The oldest version first.
    versions: Vec<String>,
    /// The schemas of the versions, as far as they are known.
    schemas: BTreeMap<String, Value>,
    /// The hop at place n is between the versions n and n + 1.
    hops: Vec<Box<dyn Hop>>,
    limit: usize,
    /// What conversions do not touch, for each pair of versions. Empty if that is not known.
    untouched: Vec<OnceLock<Option<Untouched>>>,
}

/// A [`Chain`] whose newest version so far is `Newest`.
pub struct ChainBuilder<Newest> {
    chain: Chain,
    kinds: Vec<(String, String)>,
    newest: PhantomData<fn() -> Newest>,
}

/// Why versions do not make a chain.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ChainError {
    /// A version is of another group or kind than the first one.
    #[error("version {version} is of {found}, not of {expected}")]
    AnotherKind {
        /// The version that does not belong to the chain.
        version: String,
        /// The kind and group of the oldest version.
        expected: String,
        /// The kind and group of this version.
        found: String,
    },
    /// A version is not newer than the one before it.
    #[error("version {newer} follows {older}, but is not newer by Kubernetes' order of versions")]
    NotNewer {
        /// The version before.
        older: String,
        /// The version that follows it.
        newer: String,
    },
}

impl Chain {
    /// A chain that begins with its oldest version.
    pub fn oldest<Oldest: Resource<DynamicType = ()>>() -> ChainBuilder<Oldest> {
        let group = Oldest::group(&()).into_owned();
        let kind = Oldest::kind(&()).into_owned();
        let (versions, schemas, hops) = (Vec::new(), BTreeMap::new(), Vec::new());
        let chain =
            Self { group, kind, versions, schemas, hops, limit: DEFAULT_LIMIT, untouched: Vec::new() };
        ChainBuilder { chain, kinds: Vec::new(), newest: PhantomData }.add()
    }

    /// A chain of hops that need no types. There is one more version than hops.
    pub(crate) fn of_hops(
        group: String,
        kind: String,
        versions: Vec<String>,
        schemas: BTreeMap<String, Value>,
        hops: Vec<Box<dyn Hop>>,
    ) -> Self {
        let mut untouched = Vec::new();
        untouched.resize_with(versions.len().pow(2), OnceLock::new);
        Self { group, kind, versions, schemas, hops, limit: DEFAULT_LIMIT, untouched }
    }

    /// The API group of the kind.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The kind of the objects that it converts, such as Widget.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The versions, the oldest first.
    pub fn versions(&self) -> &[String] {
        &self.versions
    }

    /// The schema of a version, if it is known.
    pub fn schema(&self, version: &str) -> Option<&Value> {
        self.schemas.get(version)
    }

    /// The place of an object's version in the chain.
    pub(crate) fn place(&self, object: &Value) -> Result<usize, Error> {
        self.place_of(&version_of(object, &self.group, &self.kind)?)
    }

    fn place_of(&self, version: &str) -> Result<usize, Error> {
        self.versions.iter().position(|known| known == version).ok_or_else(|| Error::UnknownVersion {
            version: version.to_owned(),
            known: self.versions.clone(),
        })
    }

    /// The fields that a conversion between two versions does not touch. None if that is not known.
    pub(crate) fn untouched(&self, from: &str, to: &str) -> Option<&Untouched> {
        let (from, to) = (self.place_of(from).ok()?, self.place_of(to).ok()?);
        let (first, last) = (from.min(to), from.max(to));
        let pair = self.untouched.get(first * self.versions.len() + last)?;
        pair.get_or_init(|| self.untouched_between(first, last)).as_ref()
    }

    fn untouched_between(&self, first: usize, last: usize) -> Option<Untouched> {
        let touched: Vec<_> =
            self.hops[first..last].iter().map(|hop| hop.touched()).collect::<Option<_>>()?;
        let schemas = self.versions[first..=last].iter().map(|version| self.schemas.get(version));
        Some(Untouched::of(&schemas.collect::<Option<Vec<_>>>()?, &touched.concat()))
    }

    fn step(&self, from: usize, to: usize) -> Step<'_> {
        let direction = if from < to { Direction::Up } else { Direction::Down };
        let hop = &*self.hops[from.min(to)];
        Step { hop, direction, from: self.end(from), to: self.end(to), limit: self.limit }
    }

    fn end(&self, place: usize) -> End<'_> {
        let version = &self.versions[place];
        End { version, schema: Schema::new(self.schemas.get(version)) }
    }
}

impl Convertible for Chain {
    fn convert(&self, mut object: Value, version: &str) -> Result<Value, Error> {
        let mut place = self.place(&object)?;
        let wanted = self.place_of(version)?;
        while place != wanted {
            let next = if place < wanted { place + 1 } else { place - 1 };
            object = self.step(place, next).take(object)?;
            set_version(&mut object, &self.group, &self.versions[next]);
            place = next;
        }
        Ok(object)
    }
}

impl<Newest: Resource<DynamicType = ()>> ChainBuilder<Newest> {
    fn add(mut self) -> Self {
        self.chain.versions.push(Newest::version(&()).into_owned());
        self.kinds.push((Newest::group(&()).into_owned(), Newest::kind(&()).into_owned()));
        self
    }

    /// Adds the next newer version. It compiles only if that version names the last one as its older neighbour, so no
    /// version can be left out or stand in the wrong place:
    ///
    /// ```compile_fail,E0271
    /// # use kube_derive::CustomResource;
    /// # use restow_convert::{Chain, SimpleConverter};
    /// # use schemars::JsonSchema;
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    /// # #[kube(group = "e.com", version = "v1alpha1", kind = "A", crates(kube_core = "::kube_core"))]
    /// # struct ASpec {}
    /// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    /// # #[kube(group = "e.com", version = "v1beta1", kind = "B", crates(kube_core = "::kube_core"))]
    /// # struct BSpec {}
    /// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    /// # #[kube(group = "e.com", version = "v1", kind = "C", crates(kube_core = "::kube_core"))]
    /// # struct CSpec {}
    /// impl SimpleConverter for C {
    ///     type Older = B;
    ///     // …
    /// #     type Error = std::convert::Infallible;
    /// #     fn upgrade_from(_: B) -> Result<Self, Self::Error> { unreachable!() }
    /// #     fn downgrade(self) -> Result<B, Self::Error> { unreachable!() }
    /// }
    /// let chain = Chain::oldest::<A>().then::<C>();
    /// ```
    pub fn then<Newer: SimpleConverter<Older = Newest>>(mut self) -> ChainBuilder<Newer> {
        self.chain.hops.push(Box::new(TypedHop::<Newer>(PhantomData)));
        ChainBuilder { chain: self.chain, kinds: self.kinds, newest: PhantomData }.add()
    }

    /// Uses the schemas of the CRD: defaults that API servers fill in are then not taken for edits, and elements of lists
    /// are recognised by the keys of their list. It is not needed where the Rust types fill in the same defaults and
    /// the keys of lists are called `name`.
    #[must_use]
    pub fn definition(mut self, definition: &CustomResourceDefinition) -> Self {
        self.chain.schemas = schemas(definition);
        self
    }

    /// Sets how many bytes of annotation may be used; [`DEFAULT_LIMIT`] otherwise.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.chain.limit = bytes;
        self
    }

    /// The finished chain.
    ///
    /// # Errors
    /// When the versions are of several kinds, or not in Kubernetes' order of versions.
    pub fn build(self) -> Result<Chain, ChainError> {
        let expected = (&self.chain.group, &self.chain.kind);
        for (version, (group, kind)) in self.chain.versions.iter().zip(&self.kinds) {
            if (group, kind) != expected {
                return Err(ChainError::AnotherKind {
                    version: version.clone(),
                    expected: format!("{}.{}", expected.1, expected.0),
                    found: format!("{kind}.{group}"),
                });
            }
        }
        for pair in self.chain.versions.windows(2) {
            if version_order(&pair[0], &pair[1]) != Ordering::Less {
                return Err(ChainError::NotNewer { older: pair[0].clone(), newer: pair[1].clone() });
            }
        }
        Ok(self.chain)
    }
}

/// The hop between a version and its older neighbour.
struct TypedHop<Newer>(PhantomData<fn() -> Newer>);

impl<Newer: SimpleConverter> Hop for TypedHop<Newer> {
    fn upgrade(&self, object: &Value) -> Result<Value, Error> {
        typed(object, Newer::upgrade_from)
    }

    fn downgrade(&self, object: &Value) -> Result<Value, Error> {
        typed(object, Newer::downgrade)
    }
}

/// Converts through Rust types. Fields that they do not know are not in the result.
fn typed<From, To, E>(object: &Value, convert: impl FnOnce(From) -> Result<To, E>) -> Result<Value, Error>
where
    From: Resource<DynamicType = ()> + DeserializeOwned,
    To: Resource<DynamicType = ()> + Serialize,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (from, to) = (From::version(&()).into_owned(), To::version(&()).into_owned());
    let invalid = |version: &str| {
        let version = version.to_owned();
        |source| Error::Invalid { version, source }
    };
    let original = From::deserialize(object).map_err(invalid(&from))?;
    // Compared as the types see it: they may write a time in another way than the API server.
    let before = serde_json::to_value(original.meta()).map_err(invalid(&from))?;
    let converted = convert(original).map_err(|source| Error::Refused {
        from: from.clone(),
        to: to.clone(),
        source: source.into(),
    })?;
    let after = serde_json::to_value(converted.meta()).map_err(invalid(&to))?;
    if let Some(field) = metadata::changed_field(&before, &after) {
        return Err(Error::MetadataChanged { from, to, field });
    }
    serde_json::to_value(converted).map_err(invalid(&to))
}
