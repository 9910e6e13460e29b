//! The version harness: one object through every version and back, with your test at each step.

use std::error::Error;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::{Convertible, causes, version_order};
use serde_json::Value;

use crate::compare::difference;
use crate::failures::{Failure, Failures};
use crate::object::version_of;

/// One object through the versions of a CRD, from the lowest to the highest and back, with your own test before the first
/// step and after each.
///
/// What takes the steps is given to [`run`](Self::run): [`WithoutServer`] calls the converter, and with
/// [`OnServer`](crate::OnServer) an API server stores the object in the version of the step.
#[derive(Clone, Debug)]
pub struct VersionTest {
    versions: Vec<String>,
    min: String,
    max: String,
    seed: Value,
}

/// The object after a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// The version of this step.
    pub version: String,
    /// The object in this version.
    pub object: Value,
    /// The object as it is stored, if that could be read.
    pub stored: Option<Value>,
}

/// Takes the steps of a [`VersionTest`].
#[allow(async_fn_in_trait)] // It is used in tests, where no future is sent to another thread.
pub trait Steps {
    /// Begins with this object, in its own version.
    ///
    /// # Errors
    /// When the object cannot be used.
    async fn begin(&mut self, seed: Value) -> Result<Converted, StepsError>;

    /// Makes it an object of this version.
    ///
    /// # Errors
    /// When it cannot be converted.
    async fn convert(&mut self, version: &str) -> Result<Converted, StepsError>;

    /// What differs between the object as it was at the beginning and as it is now, both in the same version. None if nothing
    /// was lost.
    fn lost(&self, before: &Value, after: &Value) -> Option<String> {
        difference(before, after)
    }
}

/// Why a step failed.
pub type StepsError = Box<dyn Error + Send + Sync>;

impl VersionTest {
    /// The seed object through all versions of the CRD.
    pub fn new(definition: &CustomResourceDefinition, seed: Value) -> Self {
        let mut versions: Vec<_> =
            definition.spec.versions.iter().map(|version| version.name.clone()).collect();
        versions.sort_by(|one, other| version_order(one, other));
        let [min, max] =
            [versions.first(), versions.last()].map(|version| version.cloned().unwrap_or_default());
        Self { versions, min, max, seed }
    }

    /// The lowest version; the oldest one of the CRD otherwise.
    #[must_use]
    pub fn min(mut self, version: &str) -> Self {
        self.min = version.to_owned();
        self
    }

    /// The highest version; the newest one of the CRD otherwise.
    #[must_use]
    pub fn max(mut self, version: &str) -> Self {
        self.max = version.to_owned();
        self
    }

    /// Runs the test before the first step and after each. The seed object must be of the lowest version, and the object must
    /// be the same at the end.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub async fn run<E: Into<StepsError>>(
        &self,
        steps: &mut impl Steps,
        test: impl AsyncFn(&Converted) -> Result<(), E>,
    ) -> Result<(), Failures> {
        let way = self.way().map_err(|why| self.failed(0, "the versions", why))?;
        let mut first = None;
        for (number, version) in way.iter().enumerate() {
            let name = || match number {
                0 => format!("at the start, in {version}"),
                number => format!("step {number}, from {} to {version}", way[number - 1]),
            };
            let taken = match number {
                0 => steps.begin(self.seed.clone()).await,
                _ => steps.convert(version).await,
            };
            let converted = taken.map_err(|error| self.failed(way.len(), &name(), causes(&*error)))?;
            if let Some(why) = wrong_version(&converted, version) {
                return Err(self.failed(way.len(), &name(), why));
            }
            let tested = test(&converted).await.map_err(Into::into);
            tested.map_err(|error| {
                self.failed(way.len(), &name(), format!("the test failed: {}", causes(&*error)))
            })?;
            let before = first.get_or_insert_with(|| converted.object.clone());
            if number + 1 == way.len()
                && let Some(shown) = steps.lost(before, &converted.object)
            {
                let why = format!("the object is not as it was at the start (- before, + after)\n{shown}");
                return Err(self.failed(way.len(), &name(), why));
            }
        }
        Ok(())
    }

    /// The versions to go through: up and down again.
    fn way(&self) -> Result<Vec<String>, String> {
        let place = |version: &String| {
            let found = self.versions.iter().position(|known| known == version);
            found.ok_or_else(|| {
                format!("the CRD has no version {version}; it has {}", self.versions.join(", "))
            })
        };
        let (min, max) = (place(&self.min)?, place(&self.max)?);
        if min >= max {
            return Err(format!("{} is not newer than {}", self.max, self.min));
        }
        let found = version_of(&self.seed).unwrap_or("missing");
        if found != self.min {
            return Err(format!("the version of the seed object is {found}; it must be {}", self.min));
        }
        let up = &self.versions[min..=max];
        Ok(up.iter().chain(up.iter().rev().skip(1)).cloned().collect())
    }

    fn failed(&self, steps: usize, name: &str, detail: String) -> Failures {
        let checked = format!("{steps} versions on the way from {} to {} and back", self.min, self.max);
        Failures { checked, failures: vec![Failure::new(name, detail)] }
    }
}

fn wrong_version(converted: &Converted, wanted: &str) -> Option<String> {
    let found = version_of(&converted.object).unwrap_or("missing");
    if found != wanted {
        return Some(format!("the version of the object is {found}"));
    }
    let stored = version_of(converted.stored.as_ref()?).unwrap_or("missing");
    (stored != wanted).then(|| format!("the object is stored in {stored}, not in {wanted}"))
}

/// Takes the steps by calling the converter. No server is needed, and nothing is stored.
pub struct WithoutServer<'a> {
    converter: &'a dyn Convertible,
    object: Value,
}

impl<'a> WithoutServer<'a> {
    /// Steps of this converter.
    pub fn new(converter: &'a dyn Convertible) -> Self {
        Self { converter, object: Value::Null }
    }

    fn converted(&self) -> Converted {
        let version = version_of(&self.object).unwrap_or_default().to_owned();
        Converted { version, object: self.object.clone(), stored: None }
    }
}

impl Steps for WithoutServer<'_> {
    async fn begin(&mut self, seed: Value) -> Result<Converted, StepsError> {
        self.object = seed;
        Ok(self.converted())
    }

    async fn convert(&mut self, version: &str) -> Result<Converted, StepsError> {
        self.object = self.converter.convert(self.object.clone(), version)?;
        Ok(self.converted())
    }
}
