//! The rules between two versions as a hop of a chain.

use serde_json::Value;

use super::apply::{Way, apply, sides};
use super::document::{Each, HopRules, Remove, Rule};
use super::path::Path;
use super::programs::Programs;
use crate::Error;
use crate::hop::{Direction, Hop};
use crate::kept::Pattern;
use crate::schema::Schema;

/// The rules between two neighbouring versions, and the versions' schemas.
pub(super) struct RuleHop {
    pub rules: HopRules,
    pub older_schema: Value,
    pub newer_schema: Value,
    pub programs: Programs,
}

impl RuleHop {
    fn convert(&self, object: &Value, direction: Direction) -> Result<Value, Error> {
        let older = (&self.rules.older, Schema::new(Some(&self.older_schema)));
        let newer = (&self.rules.newer, Schema::new(Some(&self.newer_schema)));
        let ((from, source_schema), (to, schema)) = match direction {
            Direction::Up => (older, newer),
            Direction::Down => (newer, older),
        };
        let way = Way { direction, source_schema, schema, programs: &self.programs };
        let mut converted = apply(&self.rules.rules, object, way).map_err(|source| Error::Refused {
            from: from.clone(),
            to: to.clone(),
            source: source.into(),
        })?;
        // The API server prunes what the schema does not know. It is kept only if that is seen here.
        schema.prune(&mut converted);
        Ok(converted)
    }
}

impl Hop for RuleHop {
    fn upgrade(&self, object: &Value) -> Result<Value, Error> {
        self.convert(object, Direction::Up)
    }

    fn downgrade(&self, object: &Value) -> Result<Value, Error> {
        self.convert(object, Direction::Down)
    }

    fn need_not_be_kept(&self, direction: Direction) -> Vec<Vec<Pattern>> {
        lossy(&self.rules.rules, direction)
    }

    fn touched(&self) -> Option<Vec<&[String]>> {
        Some(self.rules.rules.iter().flat_map(sides).flatten().map(Path::fields).collect())
    }
}

/// The fields that rules remove without keeping them.
pub(super) fn lossy(rules: &[Rule], direction: Direction) -> Vec<Vec<Pattern>> {
    let pattern = |path: &Path| path.fields().iter().cloned().map(Pattern::Field).collect::<Vec<_>>();
    let of_rule = |rule: &Rule| match rule {
        Rule::Remove(Remove { older, newer, lossy: Some(_) }) => {
            let path = match direction {
                Direction::Up => older,
                Direction::Down => newer,
            };
            path.iter().map(pattern).collect()
        }
        Rule::Each(Each { older, newer, rules }) => {
            let path = match direction {
                Direction::Up => older,
                Direction::Down => newer,
            };
            let element = [pattern(path), vec![Pattern::Any]].concat();
            lossy(rules, direction).into_iter().map(|below| [element.clone(), below].concat()).collect()
        }
        _ => Vec::new(),
    };
    rules.iter().flat_map(of_rule).collect()
}
