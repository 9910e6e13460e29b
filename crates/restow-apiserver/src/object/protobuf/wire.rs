//! The wire format: numbered fields, each a number or bytes.

use serde_json::Value;

/// Malformed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecodeError;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    /// A number of variable length.
    Number(u64),
    /// Eight bytes.
    Fixed(u64),
    /// Bytes with their length.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    #[allow(clippy::cast_possible_wrap, reason = "negative numbers are sent as large ones")]
    pub(super) fn number(self) -> Result<i64, DecodeError> {
        match self {
            Self::Number(number) => Ok(number as i64),
            Self::Bytes([]) => Ok(0),
            _ => Err(DecodeError),
        }
    }

    pub(super) fn float(self) -> Result<f64, DecodeError> {
        match self {
            Self::Fixed(bits) => Ok(f64::from_bits(bits)),
            _ => Err(DecodeError),
        }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(DecodeError),
        }
    }

    pub(super) fn text(self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError)
    }
}

/// All fields of a message, in order.
pub(super) fn fields(mut bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, DecodeError> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let number = u32::try_from(tag >> 3).map_err(|_| DecodeError)?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Fixed(u64::from_le_bytes(take(&mut bytes, 8)?.try_into().map_err(|_| DecodeError)?)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| DecodeError)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => {
                let four = take(&mut bytes, 4)?.try_into().map_err(|_| DecodeError)?;
                Wire::Fixed(u64::from(u32::from_le_bytes(four)))
            }
            _ => return Err(DecodeError),
        };
        all.push((number, wire));
    }
    Ok(all)
}

/// Packed numbers.
#[allow(clippy::cast_possible_wrap, reason = "negative numbers are sent as large ones")]
pub(super) fn packed(mut bytes: &[u8]) -> Result<Vec<i64>, DecodeError> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(varint(&mut bytes)? as i64);
    }
    Ok(all)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], DecodeError> {
    let (taken, rest) = bytes.split_at_checked(count).ok_or(DecodeError)?;
    *bytes = rest;
    Ok(taken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut number = 0;
    for at in 0..10 {
        let (&byte, rest) = bytes.split_first().ok_or(DecodeError)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(DecodeError)
}

/// Whether a value is the zero value, which Go writes for unset fields.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
