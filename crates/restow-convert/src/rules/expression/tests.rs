//! What expressions may do, what they give, and how they fail.

use serde_json::{Value, json};

use super::{Expression, Visible};
use crate::rules::path::Path;
use crate::schema::Schema;

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "hidden": {"type": "string"},
        "spec": {"type": "object", "properties": {
            "text": {"type": "string"},
            "total": {"type": "integer"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "list": {"type": "array", "items": {"type": "string"}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "port": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}},
            }}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
    }})
}

/// The value of an expression that sees all of the spec, as a field of this type.
fn value_of(text: &str, spec: Value, wanted: Value) -> Result<Value, String> {
    let (schema, spec_path) = (schema(), "spec".parse::<Path>().unwrap());
    let visible = Visible { paths: &[&spec_path], schema: Schema::new(Some(&schema)) };
    let expression = Expression::compile(text, visible)?;
    expression.evaluate(&json!({"spec": spec, "hidden": "x"}), visible, Schema::new(Some(&wanted)))
}

fn any(text: &str, spec: Value) -> Result<Value, String> {
    value_of(text, spec, json!({}))
}

#[test]
fn values_are_computed_as_json() {
    let ports = json!({"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 443, "tags": ["x", "y"]}]});
    let cases = [
        ("self.spec.text + '!'", json!({"text": "a"}), json!("a!")),
        ("self.spec.total / self.spec.count", json!({"total": 7, "count": 2}), json!(3)),
        ("self.spec.ratio * 2.0", json!({"ratio": 1}), json!(2)),
        ("self.spec.ratio / 4.0", json!({"ratio": 1}), json!(0.25)),
        ("int(self.spec.text) * 1000", json!({"text": "3"}), json!(3000)),
        ("self.spec.text.split('/')[1]", json!({"text": "a/b"}), json!("b")),
        ("has(self.spec.text) ? self.spec.text : 'none'", json!({"text": null}), json!("none")),
        ("self.spec.ports.map(p, p.name + ':' + string(p.port))", ports.clone(), json!(["a:80", "b:443"])),
        ("self.spec.ports.filter(p, p.port > 100).map(p, p.name)", ports.clone(), json!(["b"])),
        (
            "self.spec.ports.map(p, has(p.tags) ? p.tags.map(t, t) : [])",
            ports.clone(),
            json!([[], ["x", "y"]]),
        ),
        ("self.spec.ports.exists(p, p.name == 'b')", ports.clone(), json!(true)),
        (
            "self.spec.list.join('-').replace('a', 'c').upperAscii()",
            json!({"list": ["a", "b"]}),
            json!("C-B"),
        ),
        ("{'first': self.spec.list[0]}", json!({"list": ["a", "b"]}), json!({"first": "a"})),
        ("self.spec.labels['x']", json!({"labels": {"x": "y"}}), json!("y")),
        ("base64.decode(base64.encode(b'a')) == b'a'", json!({}), json!(true)),
        ("0 - self.spec.total > -5", json!({"total": 4}), json!(true)),
        ("null", json!({}), Value::Null),
    ];
    for (text, spec, expected) in cases {
        assert_eq!(any(text, spec.clone()), Ok(expected), "{text} of {spec}");
    }
}

#[test]
fn what_an_expression_must_not_do_is_found_before_it_is_used() {
    let long = format!("'{}'", "x".repeat(2048));
    let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
    let cases = [
        ("self.spec.", "it cannot be parsed"),
        (deep.as_str(), "it cannot be parsed"),
        (long.as_str(), "it has 2050 bytes; 2048 are allowed"),
        ("Foo{a: 1}", "it makes a message"),
        ("[1].map(x, Foo{a: x})", "it makes a message"),
        ("self.hidden", "it reads self.hidden, but the rule is not about that field"),
        ("self['hidden']", "it reads self.hidden, but the rule is not about that field"),
        ("-self.spec.total", "write 0 - value"),
        ("other.spec", "there is no other; the object is called self"),
        ("lists.range(1000000000)", "there is no function range"),
        ("timestamp('2026-01-01T00:00:00Z')", "there is no function timestamp"),
        ("self.spec.labels.map(k, k)", "it iterates over something that may be a map"),
        ("self.spec.labels.exists(k, k == 'a')", "it iterates over something that may be a map"),
        (
            "self.spec.text.matches(self.spec.text)",
            "the pattern of matches must be written in the expression",
        ),
    ];
    for (text, expected) in cases {
        let problem = any(text, json!({})).unwrap_err();
        assert!(problem.contains(expected), "{text}: {problem}");
    }
}

#[test]
fn an_expression_without_a_value_says_why() {
    let integer = json!({"type": "integer"});
    let cases = [
        ("self.spec.total / self.spec.count", json!({"total": 1, "count": 0}), "division by zero"),
        ("self.spec.total % self.spec.count", json!({"total": 1, "count": 0}), "division by zero"),
        ("self.spec.total + 1", json!({"total": i64::MAX}), "verflow"),
        ("self.spec.total / self.spec.count", json!({"total": i64::MIN, "count": -1}), "verflow"),
        ("self.spec.total", json!({}), "there is no total; has() tells whether there is"),
        ("int(self.spec.text)", json!({"text": "many"}), "invalid digit"),
        ("self.spec.list[3]", json!({"list": ["a"]}), "3"),
        (
            "self.spec.text",
            json!({"text": "a"}),
            "the result does not fit the schema: \"a\" is not of type integer",
        ),
        (
            "self.spec.ratio",
            json!({"ratio": 1.5}),
            "the result does not fit the schema: 1.5 is not of type integer",
        ),
        ("b'a'", json!({}), "not a JSON value"),
        ("{1: 2}", json!({}), "a key of a map is not a string"),
        ("1.0 / 0.0", json!({}), "not a JSON value"),
        ("self.spec.text + 1", json!({"text": "a"}), ""),
    ];
    for (text, spec, expected) in cases {
        let problem = value_of(text, spec.clone(), integer.clone()).unwrap_err();
        assert!(problem.contains(expected), "{text} of {spec}: {problem}");
    }
}

#[test]
fn the_cost_of_an_evaluation_is_bounded() {
    let list: Vec<_> = (0..3000).map(|number| number.to_string()).collect();
    let spec = json!({"list": list, "text": "a".repeat(10_000)});
    let costly = [
        "self.spec.list.map(a, self.spec.list.map(b, self.spec.list.map(c, c)))",
        "self.spec.list.exists(a, self.spec.list.exists(b, self.spec.list.exists(c, c == 'none')))",
        "self.spec.list.all(a, self.spec.list.all(b, a in self.spec.list) || true)",
        "self.spec.list.map(a, self.spec.text + self.spec.text)",
    ];
    for text in costly {
        assert_eq!(any(text, spec.clone()), Err("it takes too many steps".to_owned()), "{text}");
    }
    let growing = "self.spec.text.replace('a', self.spec.text).replace('a', self.spec.text)";
    assert!(any(growing, spec).unwrap_err().contains("the text is too long"));
    let large = any("1", json!({"text": "a".repeat(40_000)}));
    assert_eq!(large, Err("its input is larger than 32768 bytes".to_owned()));
}

#[test]
fn a_hundred_elements_are_no_problem() {
    let ports: Vec<_> =
        (0..100).map(|number| json!({"name": format!("port-{number}"), "port": number})).collect();
    let spec = json!({"ports": ports});
    let result =
        any("self.spec.ports.filter(p, p.port > 49).map(p, p.name + ':' + string(p.port))", spec).unwrap();
    assert_eq!(result.as_array().map(Vec::len), Some(50));
}
