//! Round trips of generated objects: each is converted to every other version and back.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use restow_convert::{Convertible, Generator, causes};
use serde_json::Value;

use crate::compare::{difference, yaml};
use crate::failures::{Failure, Failures};
use crate::object::{remove, without_annotation};
use crate::schema::{misfit, schemas};
use crate::shrink::shrink;

type Texts = Box<dyn Fn(&[String]) -> Vec<String>>;

/// Objects of every version that a CRD's schemas allow, converted to every other version and back.
///
/// The object must come back as it was, and in the other version it must fit that version's schema. The same seed makes
/// the same objects. An object that fails is reported with everything left out that does not matter.
pub struct RoundTrips {
    group: String,
    kind: String,
    schemas: Vec<(String, Value)>,
    objects: usize,
    seed: u64,
    texts: Texts,
    lossy: Vec<String>,
}

/// An object on its way, and what became of it.
struct Trip<'a> {
    converter: &'a dyn Convertible,
    from: &'a str,
    to: &'a str,
    /// The schema of the other version.
    schema: &'a Value,
    lossy: &'a [String],
}

impl RoundTrips {
    /// A hundred objects of every version of the CRD, with seed 0.
    pub fn of(definition: &CustomResourceDefinition) -> Self {
        Self {
            group: definition.spec.group.clone(),
            kind: definition.spec.names.kind.clone(),
            schemas: schemas(definition),
            objects: 100,
            seed: 0,
            texts: Box::new(|_| Vec::new()),
            lossy: Vec::new(),
        }
    }

    /// How many objects of every version are made.
    #[must_use]
    pub fn objects(mut self, objects: usize) -> Self {
        self.objects = objects;
        self
    }

    /// Another seed makes other objects.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Proposes texts for the string at a path, such as `a:80` for `["spec", "address"]`; elements of lists are `[]` there.
    /// Without a proposal a string has a few letters, and one with a pattern or format is left out.
    #[must_use]
    pub fn texts(mut self, texts: impl Fn(&[String]) -> Vec<String> + 'static) -> Self {
        self.texts = Box::new(texts);
        self
    }

    /// Accepts that a field such as `spec.comment` or `spec.ports[].note` does not come back.
    #[must_use]
    pub fn lossy(mut self, path: &str) -> Self {
        self.lossy.push(path.to_owned());
        self
    }

    /// Converts the objects. At most one failure is reported for each pair of versions.
    ///
    /// # Errors
    /// Pairs of versions with an object that could not be converted, or did not come back as it was. An error too if no
    /// object can be made of a version.
    pub fn check(&self, converter: &dyn Convertible) -> Result<(), Failures> {
        let mut failures = Vec::new();
        for (from, schema) in &self.schemas {
            let objects = self.generate(from, schema);
            if objects.iter().any(|object| misfit(object, schema).is_some()) {
                failures.push(Failure::new(
                    from,
                    "its objects need strings that match a pattern: propose some with texts()",
                ));
                continue;
            }
            for (to, schema) in self.schemas.iter().filter(|(to, _)| to != from) {
                let trip = Trip { converter, from, to, schema, lossy: &self.lossy };
                let failed = objects.iter().find(|object| trip.failure(object).is_some());
                failures.extend(failed.map(|object| self.report(&trip, object)));
            }
        }
        let pairs = self.schemas.len() * self.schemas.len().saturating_sub(1);
        if pairs == 0 {
            failures.push(Failure::new("the CRD", "it has fewer than two versions with a schema"));
        }
        Failures::unless_empty(
            format!("{pairs} pairs of versions, {} objects each, seed {}", self.objects, self.seed),
            failures,
        )
    }

    fn generate(&self, version: &str, schema: &Value) -> Vec<Value> {
        let mut generator = Generator::new(self.seed, &*self.texts);
        let api_version = format!("{}/{version}", self.group);
        (0..self.objects)
            .map(|number| generator.object(&api_version, &self.kind, &format!("generated-{number}"), schema))
            .collect()
    }

    fn report(&self, trip: &Trip<'_>, object: &Value) -> Failure {
        let own = self.schemas.iter().find(|(version, _)| version == trip.from).map(|(_, schema)| schema);
        // It stays an object that the API server would accept.
        let is_valid = |object: &Value| own.is_some_and(|schema| misfit(object, schema).is_none());
        let smallest = shrink(object.clone(), &|object| is_valid(object) && trip.failure(object).is_some());
        let why = trip.failure(&smallest).unwrap_or_default();
        let detail = format!("{why}\nthe object is (seed {})\n{}", self.seed, yaml(&smallest));
        Failure::new(format!("{} to {} and back", trip.from, trip.to), detail)
    }
}

impl Trip<'_> {
    /// Why the object does not survive.
    fn failure(&self, object: &Value) -> Option<String> {
        let there = match self.converter.convert(object.clone(), self.to) {
            Ok(there) => there,
            Err(error) => return Some(format!("the conversion to {} failed: {}", self.to, causes(&error))),
        };
        if let Some(misfit) = misfit(&there, self.schema) {
            return Some(format!(
                "the object in {} does not fit its schema: {misfit}\n{}",
                self.to,
                yaml(&without_annotation(there))
            ));
        }
        let back = match self.converter.convert(there.clone(), self.from) {
            Ok(back) => back,
            Err(error) => {
                return Some(format!("the conversion back to {} failed: {}", self.from, causes(&error)));
            }
        };
        let shown = difference(&self.without_lossy(object.clone()), &self.without_lossy(back))?;
        Some(format!("it comes back changed (- before, + after)\n{shown}"))
    }

    fn without_lossy(&self, mut object: Value) -> Value {
        for path in self.lossy {
            remove(&mut object, &path.split('.').collect::<Vec<_>>());
        }
        object
    }
}
