//! One object that `restow install` creates: its path, its labels, and its YAML with comments.

use restow_api::{MANAGED_BY, MANAGER};
use restow_core::resource::name::GroupVersion;
use serde_json::{Value, json};

use crate::render::text::yaml;

/// The label of objects that belong to restow, with the value [`MANAGER`].
pub(crate) const PART_OF: &str = "app.kubernetes.io/part-of";

/// An object, and why it is needed.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// The comment above it.
    why: &'static str,
    /// The comment above each rule of a role.
    notes: Vec<&'static str>,
    pub(crate) object: Value,
}

/// The labels of everything that restow creates.
pub(crate) fn labels() -> Value {
    json!({"app.kubernetes.io/name": MANAGER, PART_OF: MANAGER, MANAGED_BY: MANAGER})
}

/// Whether an object has the labels of `restow install`.
pub(crate) fn is_ours(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    [PART_OF, MANAGED_BY].iter().all(|label| labels[label] == MANAGER)
}

impl Manifest {
    /// Adds the labels of `restow install` to an object.
    pub(crate) fn new(why: &'static str, mut object: Value) -> Self {
        if let Value::Object(common) = labels() {
            match &mut object["metadata"]["labels"] {
                Value::Object(own) => own.extend(common),
                own => *own = Value::Object(common),
            }
        }
        Self { why, notes: Vec::new(), object }
    }

    /// An object that is not restow's own: an uninstall leaves it alone.
    pub(crate) fn foreign(why: &'static str, object: Value) -> Self {
        Self { why, notes: Vec::new(), object }
    }

    /// Adds a comment above each rule.
    pub(crate) fn noted(mut self, notes: Vec<&'static str>) -> Self {
        self.notes = notes;
        self
    }

    /// The kind of the object.
    pub(crate) fn kind(&self) -> &str {
        self.object["kind"].as_str().unwrap_or_default()
    }

    /// `metadata.name`.
    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// `metadata.namespace`, if the object is namespaced.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.object["metadata"]["namespace"].as_str()
    }

    /// Moves the object to another namespace.
    pub(crate) fn moved(mut self, namespace: &str) -> Self {
        self.object["metadata"]["namespace"] = namespace.into();
        self
    }

    /// The name in messages.
    pub(crate) fn title(&self) -> String {
        let place = self.namespace().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        format!("{}/{}{place}", self.kind().to_lowercase(), self.name())
    }

    /// The path of the object on an API server.
    pub(crate) fn path(&self) -> String {
        let version = GroupVersion::parse(self.object["apiVersion"].as_str().unwrap_or_default());
        let kind = self.kind().to_lowercase();
        let plural = match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if kind.ends_with('s') => format!("{kind}es"),
            None => format!("{kind}s"),
        };
        let place = self.namespace().map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        format!("{}/{place}{plural}/{}", version.path(), self.name())
    }

    /// Its YAML, with comments: what it is first, then its metadata, then the rest.
    pub(crate) fn yaml(&self) -> String {
        let mut rest = self.object.as_object().cloned().unwrap_or_default();
        let mut text = comment(self.why);
        for field in ["apiVersion", "kind", "metadata"] {
            let value = rest.remove(field);
            text.push_str(&yaml(&json!({ field: value })));
        }
        let rules = if self.notes.is_empty() { None } else { rest.remove("rules") };
        if !rest.is_empty() {
            text.push_str(&yaml(&rest));
        }
        if let Some(Value::Array(rules)) = rules {
            text.push_str("rules:\n");
            let mut said = "";
            for (rule, note) in rules.iter().zip(&self.notes) {
                if *note != said {
                    text.push_str(&comment(note));
                    said = note;
                }
                text.push_str(&yaml(&[rule]));
            }
        }
        text
    }
}

/// Lines of a comment.
pub(crate) fn comment(text: &str) -> String {
    text.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role() -> Manifest {
        let object = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "restow", "namespace": "here", "labels": {"own": "true"}},
            "rules": [
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "patch"]},
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
            ],
        });
        Manifest::new("A role.\nIn two lines.", object).noted(vec!["First.", "Second."])
    }

    #[test]
    fn a_manifest_has_the_path_of_its_object() {
        let of = |api: &str, kind: &str, namespace: Option<&str>| {
            let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": "x"}});
            if let Some(namespace) = namespace {
                object["metadata"]["namespace"] = namespace.into();
            }
            Manifest::new("", object)
        };
        for (manifest, path, title) in [
            (of("v1", "Namespace", None), "/api/v1/namespaces/x", "namespace/x"),
            (of("v1", "Service", Some("n")), "/api/v1/namespaces/n/services/x", "service/x in n"),
            (
                of("scheduling.k8s.io/v1", "PriorityClass", None),
                "/apis/scheduling.k8s.io/v1/priorityclasses/x",
                "priorityclass/x",
            ),
            (
                of("networking.k8s.io/v1", "NetworkPolicy", Some("n")),
                "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies/x",
                "networkpolicy/x in n",
            ),
        ] {
            assert_eq!((manifest.path().as_str(), manifest.title().as_str()), (path, title));
            assert!(is_ours(&manifest.object));
        }
        assert_eq!(
            role().moved("there").path(),
            "/apis/rbac.authorization.k8s.io/v1/namespaces/there/roles/restow"
        );
    }

    #[test]
    fn comments_leave_the_object_as_it_is() {
        let text = role().yaml();
        for line in ["# A role.", "# In two lines.", "# First.", "# Second."] {
            assert!(text.lines().any(|other| other == line), "{text}");
        }
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, role().object);
        assert_eq!(read["metadata"]["labels"]["own"], "true");
    }

    #[test]
    fn an_object_is_ours_only_with_both_labels() {
        for (labels, ours) in [
            (json!({MANAGED_BY: "restow", PART_OF: "restow"}), true),
            (json!({MANAGED_BY: "restow"}), false),
            (json!({PART_OF: "restow", MANAGED_BY: "Helm"}), false),
            (Value::Null, false),
        ] {
            assert_eq!(is_ours(&json!({"metadata": {"labels": labels}})), ours, "{labels}");
        }
    }
}
