//! Reads the fields of a protobuf message one after the other.

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field<'m> {
    Number(u64),
    Bytes(&'m [u8]),
    /// Of a fixed size, which no message that is read here uses.
    Fixed,
}

/// The rest of a message. It yields `None` at the end, and `Some(None)` once if the rest is not a message.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'m> {
    rest: &'m [u8],
}

impl<'m> Fields<'m> {
    pub(crate) fn new(message: &'m [u8]) -> Self {
        Self { rest: message }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'m [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(length).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u64, Field<'m>)> {
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => Field::Number(self.varint()?),
            1 => self.take(8).map(|_| Field::Fixed)?,
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Field::Fixed)?,
            _ => return None,
        };
        (tag >> 3 != 0).then_some((tag >> 3, field))
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Option<(u64, Field<'m>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.rest = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::{Field, Fields};

    #[test]
    fn fields_are_read_to_the_end_or_refused() {
        for (message, expected) in [
            (&b""[..], vec![]),
            (b"\x0a\x02ab\x10\x96\x01", vec![Some((1, Field::Bytes(b"ab"))), Some((2, Field::Number(150)))]),
            (b"\x09\0\0\0\0\0\0\0\0", vec![Some((1, Field::Fixed))]),
            (b"\x0a\x03ab", vec![None]),
            (b"\x10\x80", vec![None]),
            (b"\0\0", vec![None]),
            (b"\x0b", vec![None]),
            (b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", vec![None]),
            (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", vec![None]),
        ] {
            assert_eq!(Fields::new(message).collect::<Vec<_>>(), expected, "{message:?}");
        }
    }
}
