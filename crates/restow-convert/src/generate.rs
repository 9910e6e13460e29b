//! Makes objects from a schema, to try a conversion on what nobody thought of.

use serde_json::{Map, Number, Value, json};

use crate::schema::Schema;

/// Draws objects that fit a schema. The same seed draws the same objects.
pub struct Generator<'a> {
    random: fastrand::Rng,
    texts: &'a dyn Fn(&[String]) -> Vec<String>,
}

impl<'a> Generator<'a> {
    /// `texts` proposes values for the string at a path, such as `1Gi` for a quantity; elements of lists are `[]` there.
    pub fn new(seed: u64, texts: &'a dyn Fn(&[String]) -> Vec<String>) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), texts }
    }

    /// A whole object of a kind. `schema` is that of its version.
    pub fn object(&mut self, api_version: &str, kind: &str, name: &str, schema: &Value) -> Value {
        let mut object = json!({});
        if let Some(value) = self.fields(schema, &mut Vec::new()) {
            object = value;
        }
        object["apiVersion"] = Value::from(api_version);
        object["kind"] = Value::from(kind);
        object["metadata"] = json!({"name": name});
        object
    }

    fn value(&mut self, schema: &Value, path: &mut Vec<String>) -> Option<Value> {
        if schema["nullable"] == true && self.random.u8(..8) == 0 {
            return Some(Value::Null);
        }
        if let Some(values) = schema["enum"].as_array() {
            return self.random.choice(values).cloned();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return Some(if self.random.bool() { json!(self.random.i32(0..100)) } else { json!("50%") });
        }
        match schema["type"].as_str() {
            Some("string") => self.text(schema, path),
            Some("integer") => Some(self.integer(schema).into()),
            Some("number") => {
                let number = f64::from(self.random.i32(-1000..1000)) / 8.0;
                Number::from_f64(clamp(number, schema)).map(Value::Number)
            }
            Some("boolean") => Some(self.random.bool().into()),
            Some("array") => self.list(schema, path),
            Some("object") => self.fields(schema, path),
            _ => Some(json!({"any": self.random.u8(..)})),
        }
    }

    /// None if the string must match a pattern: what fits it is not known.
    fn text(&mut self, schema: &Value, path: &[String]) -> Option<Value> {
        let proposed = (self.texts)(path);
        if !proposed.is_empty() {
            return self.random.choice(proposed).map(Value::from);
        }
        if schema["format"] == "date-time" {
            return Some(json!("2026-01-02T03:04:05Z"));
        }
        if schema.get("pattern").is_some() || schema.get("format").is_some() {
            return None;
        }
        let least = schema["minLength"].as_u64().unwrap_or(0).min(100);
        let most = schema["maxLength"].as_u64().unwrap_or(6).clamp(least, least + 6);
        let length = self.random.u64(least..=most);
        Some((0..length).map(|_| self.random.lowercase()).collect::<String>().into())
    }

    #[allow(clippy::cast_possible_truncation)]
    fn integer(&mut self, schema: &Value) -> i64 {
        clamp(f64::from(self.random.i32(-10..5000)), schema).round() as i64
    }

    fn list(&mut self, schema: &Value, path: &mut Vec<String>) -> Option<Value> {
        let items = schema.get("items")?;
        let least = schema["minItems"].as_u64().unwrap_or(0);
        let most = schema["maxItems"].as_u64().unwrap_or(3).clamp(least, least + 3);
        path.push("[]".to_owned());
        let mut list = Vec::new();
        for _ in 0..self.random.u64(least..=most) {
            let mut item = self.value(items, path)?;
            for key in Schema::new(Some(schema)).list_keys() {
                // Elements with keys have their own.
                if let Some(Value::String(text)) = item.get_mut(key) {
                    text.push_str(&list.len().to_string());
                }
            }
            list.push(item);
        }
        path.pop();
        Some(Value::Array(list))
    }

    fn fields(&mut self, schema: &Value, path: &mut Vec<String>) -> Option<Value> {
        let mut object = Map::new();
        let required = schema["required"].as_array();
        for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
            let is_required = required.is_some_and(|names| names.iter().any(|required| required == name));
            if is_required || self.random.u8(..3) != 0 {
                path.push(name.clone());
                match self.value(schema, path) {
                    Some(value) => drop(object.insert(name.clone(), value)),
                    None if is_required => return None,
                    None => {}
                }
                path.pop();
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            path.push("[]".to_owned());
            for name in ["alpha", "beta"] {
                if self.random.bool() {
                    object.insert(name.to_owned(), self.value(values, path)?);
                }
            }
            path.pop();
        }
        if schema["x-kubernetes-preserve-unknown-fields"] == true {
            object.insert("unknown".to_owned(), json!(["x"]));
        }
        Some(Value::Object(object))
    }
}

fn clamp(number: f64, schema: &Value) -> f64 {
    let least = schema["minimum"].as_f64().unwrap_or(f64::MIN);
    let most = schema["maximum"].as_f64().unwrap_or(f64::MAX);
    number.max(least).min(most)
}
