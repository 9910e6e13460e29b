//! What was set aside of an object while the rest of it was converted.

use serde_json::Value;

/// The texts of an object's fields that are not in its value.
#[derive(Debug, Default)]
pub(crate) struct Aside<'t> {
    fields: Vec<(&'t str, &'t str)>,
    below: Vec<(&'t str, Aside<'t>)>,
}

impl<'t> Aside<'t> {
    /// Sets a field aside. False if it was already: which of the two counts is not decided here.
    pub(super) fn add(&mut self, name: &'t str, text: &'t str) -> bool {
        // Few objects have as many, and whoever makes one shall not make this slow.
        let is_new = self.fields.len() < 64 && self.fields.iter().all(|(known, _)| *known != name);
        self.fields.push((name, text));
        is_new
    }

    /// Adds what was set aside of a field.
    pub(super) fn add_below(&mut self, name: &'t str, below: Self) {
        if !below.is_empty() {
            self.below.push((name, below));
        }
    }

    fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.below.is_empty()
    }

    /// Whether the converted object still has the objects that the fields belong into, and no such fields of its own.
    pub(crate) fn fits(&self, object: &Value) -> bool {
        let fits_below = |fields: &serde_json::Map<String, Value>| {
            self.fields.iter().all(|(name, _)| !fields.contains_key(*name))
                && self
                    .below
                    .iter()
                    .all(|(name, below)| fields.get(*name).is_some_and(|field| below.fits(field)))
        };
        self.is_empty() || object.as_object().is_some_and(fits_below)
    }

    /// Writes an object that it fits, with everything that was set aside.
    pub(crate) fn write(&self, object: &Value, to: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let Value::Object(fields) = object else { return serde_json::to_writer(to, object) };
        if self.is_empty() {
            return serde_json::to_writer(to, fields);
        }
        let mut separator = b'{';
        for (name, value) in fields {
            to.push(std::mem::replace(&mut separator, b','));
            serde_json::to_writer(&mut *to, name)?;
            to.push(b':');
            match self.below.iter().find(|(known, _)| known == name) {
                Some((_, below)) => below.write(value, to)?,
                None => serde_json::to_writer(&mut *to, value)?,
            }
        }
        for (name, text) in &self.fields {
            to.push(std::mem::replace(&mut separator, b','));
            // The name was written without escapes.
            for part in ["\"", name, "\":", text] {
                to.extend_from_slice(part.as_bytes());
            }
        }
        to.push(b'}');
        Ok(())
    }
}
