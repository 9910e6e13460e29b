//! Walks over the text of an object. The text is JSON; that was checked when the review was read.
//!
//! Whatever is unusual ends the walk with None. Then the object is read as a whole, and what is wrong with it is reported
//! there.

use serde_json::{Map, Number, Value};

use super::aside::Aside;
use super::fields::{Untouched, Use};
use super::shape::Shape;

/// The longest integer whose digits need no look: all of them fit into 64 bits.
const SHORT_NUMBER: usize = 18;

/// A text and a place in it.
struct Text<'t> {
    text: &'t str,
    at: usize,
}

/// Reads an object that is nested at most `depth` levels deep, and sets the text of untouched fields aside. None if it must
/// be read as a whole.
pub(crate) fn read<'t>(untouched: &Untouched, text: &'t str, depth: usize) -> Option<(Value, Aside<'t>)> {
    let mut text = Text { text, at: 0 };
    let read = text.object(untouched, depth)?;
    text.peek().is_none().then_some(read)
}

impl<'t> Text<'t> {
    fn object(&mut self, untouched: &Untouched, depth: usize) -> Option<(Value, Aside<'t>)> {
        let depth = depth.checked_sub(1)?;
        let (mut fields, mut aside) = (Map::new(), Aside::default());
        self.fields(|text, name| match untouched.field(name) {
            Use::SetAside(shape) => {
                let from = text.at;
                text.value(shape, depth)?;
                aside.add(name, text.text.get(from..text.at)?).then_some(())
            }
            Use::Below(untouched) if text.peek()? == b'{' => {
                let (value, below) = text.object(untouched, depth)?;
                aside.add_below(name, below);
                fields.insert(name.to_owned(), value).is_none().then_some(())
            }
            Use::Below(_) | Use::Read => {
                let value = text.read()?;
                fields.insert(name.to_owned(), value).is_none().then_some(())
            }
        })?;
        Some((Value::Object(fields), aside))
    }

    /// Walks over a value. None if it has another shape, or is nested deeper.
    fn value(&mut self, shape: &Shape, depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' => {
                let depth = depth.checked_sub(1)?;
                self.fields(|text, name| text.value(shape.field(name)?, depth))
            }
            b'[' => {
                let depth = depth.checked_sub(1)?;
                self.items(|text| text.value(shape.items(), depth))
            }
            b'"' => self.string(),
            _ => self.scalar(),
        }
    }

    /// Walks over an object. `field` walks over the value of one field.
    fn fields(&mut self, mut field: impl FnMut(&mut Self, &'t str) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            return self.expect(b'}');
        }
        loop {
            let name = self.name()?;
            self.expect(b':')?;
            self.peek()?;
            field(self, name)?;
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.expect(b'}'),
            }
        }
    }

    /// Walks over a list.
    fn items(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            return self.expect(b']');
        }
        loop {
            self.peek()?;
            item(self)?;
            match self.peek()? {
                b',' => self.at += 1,
                _ => return self.expect(b']'),
            }
        }
    }

    /// The name of a field, if it is written without escapes.
    fn name(&mut self) -> Option<&'t str> {
        self.expect(b'"')?;
        let rest = self.text.get(self.at..)?;
        let length = rest.bytes().position(|byte| byte == b'"' || byte == b'\\')?;
        let name = rest.get(..length)?;
        self.at += length;
        self.expect(b'"')?;
        Some(name)
    }

    fn string(&mut self) -> Option<()> {
        self.expect(b'"')?;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let length = rest.iter().position(|byte| *byte == b'"' || *byte == b'\\')?;
            self.at += length + 1;
            match rest.get(length..)? {
                [b'"', ..] => return Some(()),
                // Half of a pair has no meaning alone, so the pair must be looked at.
                [_, b'u', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..] => return None,
                _ => self.at += 1,
            }
        }
    }

    /// Walks over a number, true, false or null.
    fn scalar(&mut self) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let ends = |byte: u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r');
        let scalar = rest.get(..rest.bytes().position(ends).unwrap_or(rest.len()))?;
        self.at += scalar.len();
        let is_word = matches!(scalar, "true" | "false" | "null");
        let is_short = || {
            scalar.len() <= SHORT_NUMBER
                && scalar.bytes().all(|byte| byte.is_ascii_digit())
                && !scalar.is_empty()
        };
        (is_word || is_short() || serde_json::from_str::<Number>(scalar).is_ok()).then_some(())
    }

    /// Reads the value that begins here.
    fn read(&mut self) -> Option<Value> {
        let mut values = serde_json::Deserializer::from_str(self.text.get(self.at..)?).into_iter();
        let value = values.next()?.ok()?;
        self.at += values.byte_offset();
        Some(value)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let found = self.peek()? == byte;
        self.at += usize::from(found);
        found.then_some(())
    }

    /// The next byte that is not space.
    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}
