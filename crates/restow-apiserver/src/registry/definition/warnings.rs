//! Warnings about a definition.

use serde_json::Value;

use crate::http::status::golang::quote;
use crate::object::schema::Schema;

/// Warns of validation rules that this server cannot evaluate, and so does not enforce.
pub(crate) fn warnings(definition: &Value) -> Vec<String> {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten().enumerate();
    let of_version = |(index, version): (usize, &Value)| {
        let schema = Schema::parse(&version["schema"]["openAPIV3Schema"]);
        let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
        let warning = |rule| format!("{field}: validation rule not enforced by this server: {}", quote(rule));
        schema.unenforced().into_iter().map(warning).collect::<Vec<_>>()
    };
    versions.flat_map(of_version).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_cannot_be_evaluated_cause_a_warning() {
        let schema = |rule: &str| {
            json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "x-kubernetes-validations": [{"rule": rule}]}}}}})
        };
        let versions = [schema("self == oldSelf"), schema("self.name.startsWith('a')"), json!({})];
        assert_eq!(
            warnings(&json!({"spec": {"versions": versions}})),
            ["spec.versions[1].schema.openAPIV3Schema: validation rule not enforced by this server: \
                 \"self.name.startsWith('a')\""]
        );
        assert!(warnings(&json!({})).is_empty());
    }
}
