//! Decodes built-in objects from Kubernetes' protobuf encoding, which clients in Go send, into JSON.
//!
//! Responses are JSON: all of these clients accept it.

mod omit_empty;
pub(crate) mod schema;
mod table;
mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::http::status::StatusError;
pub(crate) use omit_empty::omit_empty;
use table::{Field, Kind, Message, message, root};
use wire::{DecodeError, Wire, fields, is_zero};

/// The media type.
pub(crate) const MEDIA: &str = "application/vnd.kubernetes.protobuf";

/// The prefix of every protobuf body.
const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may be nested.
const DEPTH: usize = 64;

/// Decodes an object.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, StatusError> {
    let broken =
        |DecodeError| StatusError::bad_request("the provided data is not a Kubernetes object in protobuf");
    let envelope = bytes.strip_prefix(MAGIC).ok_or(DecodeError).map_err(broken)?;
    let (api_version, kind, raw) = envelope_of(envelope).map_err(broken)?;
    let unknown = || {
        StatusError::bad_request(format!("no kind {kind:?} is known in protobuf for version {api_version:?}"))
    };
    let message = root(&api_version, &kind).ok_or_else(unknown)?;
    let mut object = read(message, raw, DEPTH).map_err(broken)?;
    object.insert("apiVersion".to_owned(), Value::String(api_version));
    object.insert("kind".to_owned(), Value::String(kind));
    Ok(Value::Object(object))
}

/// The apiVersion, kind and bytes of an envelope.
fn envelope_of(envelope: &[u8]) -> Result<(String, String, &[u8]), DecodeError> {
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (number, wire) in fields(envelope)? {
        match (number, wire) {
            (1, Wire::Bytes(types)) => {
                for (number, wire) in fields(types)? {
                    match number {
                        1 => api_version = wire.text()?.to_owned(),
                        2 => kind = wire.text()?.to_owned(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    Ok((api_version, kind, raw))
}

fn read(message: &Message, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError)?;
    let mut object = Map::new();
    for (number, wire) in fields(bytes)? {
        // Fields of later versions are skipped.
        let Some(field) = message.get(&number) else { continue };
        add(&mut object, field, wire, depth)?;
    }
    Ok(object)
}

fn add(
    object: &mut Map<String, Value>,
    field: &Field,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(), DecodeError> {
    if let Kind::Map(kind) = &field.kind {
        let (key, value) = entry(kind, wire, depth)?;
        if let Some(map) = object.entry(field.name).or_insert_with(|| json!({})).as_object_mut() {
            map.insert(key, value);
        }
        return Ok(());
    }
    if field.repeated {
        let list = object.entry(field.name).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.extend(items(&field.kind, wire, depth)?);
        }
        return Ok(());
    }
    let value = value(&field.kind, wire, depth)?;
    match value {
        Value::Object(fields) if field.inline => object.extend(fields),
        value if field.pointer || field.required || !is_zero(&value) => {
            object.insert(field.name.to_owned(), value);
        }
        _ => {}
    }
    Ok(())
}

fn entry(kind: &Kind, wire: Wire<'_>, depth: usize) -> Result<(String, Value), DecodeError> {
    let (mut key, mut found) = (String::new(), None);
    for (number, wire) in fields(wire.bytes()?)? {
        match number {
            1 => key = wire.text()?.to_owned(),
            2 => found = Some(value(kind, wire, depth)?),
            _ => {}
        }
    }
    // An empty value may be omitted.
    let found = match found {
        Some(value) => value,
        None => value(kind, Wire::Bytes(&[]), depth).unwrap_or_default(),
    };
    Ok((key, found))
}

/// One item of a list, or several numbers that were packed together.
fn items(kind: &Kind, wire: Wire<'_>, depth: usize) -> Result<Vec<Value>, DecodeError> {
    match (kind, wire) {
        (Kind::Integer, Wire::Bytes(packed)) => {
            Ok(wire::packed(packed)?.into_iter().map(|number| json!(number)).collect())
        }
        _ => Ok(vec![value(kind, wire, depth)?]),
    }
}

fn value(kind: &Kind, wire: Wire<'_>, depth: usize) -> Result<Value, DecodeError> {
    let depth = depth.checked_sub(1).ok_or(DecodeError)?;
    Ok(match kind {
        Kind::Text => json!(wire.text()?),
        Kind::Flag => json!(wire.number()? != 0),
        Kind::Integer => json!(wire.number()?),
        Kind::Float => json!(wire.float()?),
        Kind::Bytes => json!(STANDARD.encode(wire.bytes()?)),
        Kind::Message(name) => Value::Object(read(message(name).ok_or(DecodeError)?, wire.bytes()?, depth)?),
        Kind::Map(_) => return Err(DecodeError),
        Kind::List(kind) => {
            let mut list = Vec::new();
            for (number, wire) in fields(wire.bytes()?)? {
                if number == 1 {
                    list.push(value(kind, wire, depth)?);
                }
            }
            Value::Array(list)
        }
        Kind::Time | Kind::MicroTime => time(wire.bytes()?, *kind == Kind::MicroTime)?,
        Kind::Quantity => {
            part(wire.bytes()?, 1)?.map_or(Ok(json!("")), |wire| wire.text().map(|text| json!(text)))?
        }
        Kind::IntOrString => int_or_string(wire.bytes()?)?,
        Kind::Raw => match part(wire.bytes()?, 1)? {
            Some(raw) => serde_json::from_slice(raw.bytes()?).map_err(|_| DecodeError)?,
            None => Value::Null,
        },
        Kind::Or(alone) => alternatives(alone, wire.bytes()?, depth)?,
    })
}

/// The last field of a number.
fn part(bytes: &[u8], wanted: u32) -> Result<Option<Wire<'_>>, DecodeError> {
    Ok(fields(bytes)?.into_iter().rfind(|(number, _)| *number == wanted).map(|(_, wire)| wire))
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let number = |at| part(bytes, at)?.map_or(Ok(0), |wire| wire.number());
    let nanos = i32::try_from(number(2)?).map_err(|_| DecodeError)?;
    let at = Timestamp::new(number(1)?, nanos).map_err(|_| DecodeError)?;
    let form = if micro { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(json!(at.strftime(form).to_string()))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let is_text = part(bytes, 1)?.map_or(Ok(0), |wire| wire.number())? == 1;
    if is_text {
        return part(bytes, 3)?.map_or(Ok(json!("")), |wire| wire.text().map(|text| json!(text)));
    }
    part(bytes, 2)?.map_or(Ok(json!(0)), |wire| wire.number().map(|number| json!(number)))
}

/// A schema, or one of its alternatives.
fn alternatives(alone: &str, bytes: &[u8], depth: usize) -> Result<Value, DecodeError> {
    const SCHEMA: Kind = Kind::Message("apiextensions.v1.JSONSchemaProps");
    let (schema_at, other_at) = if alone == "flag" { (2, 1) } else { (1, 2) };
    if let Some(schema) = part(bytes, schema_at)? {
        return value(&SCHEMA, schema, depth);
    }
    let mut others = Vec::new();
    for (number, wire) in fields(bytes)? {
        if number == other_at {
            others.push(match alone {
                "flag" => json!(wire.number()? != 0),
                "texts" => json!(wire.text()?),
                _ => value(&SCHEMA, wire, depth)?,
            });
        }
    }
    Ok(if alone == "flag" { others.pop().unwrap_or(json!(false)) } else { Value::Array(others) })
}

#[cfg(test)]
mod tests;
