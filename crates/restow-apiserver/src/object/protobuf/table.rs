//! Which field has which number: a table of the types of Kubernetes 1.36, written by `cargo xtask protobuf-fields`.
//!
//! It is a table because the crate for Kubernetes' protobuf types (k8s-pb) does not know JSON, into which bodies are read.
//! `=type [apiVersion]`, then a line for each field: number, name in JSON (`-` for one whose fields stand in its place),
//! and what it is. Before that stand marks: `*` may be absent, `+` many, `^` its fields stand in its place, `!` is
//! written even if it is empty. Behind it stands what field managers need to know: `set` or `keys:a,b` for a list that is
//! not atomic, `atomic` or `granular` for an object, `default:JSON`, and `always` for a list that is written even if there
//! is none. Below the header of a type whose objects are atomic stands `!atomic`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use serde_json::Value;

/// What a field is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    Integer,
    Float,
    Bytes,
    /// Of this type.
    Message(&'static str),
    /// By text.
    Map(Box<Kind>),
    /// Wrapped in a message of its own.
    List(Box<Kind>),
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON in bytes.
    Raw,
    /// A schema, or a flag, schemas or texts.
    Or(&'static str),
}

/// One field of a type.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) pointer: bool,
    pub(super) repeated: bool,
    pub(super) inline: bool,
    pub(super) required: bool,
    /// What field managers need to know.
    pub(super) managed: Managed,
}

/// What field managers need to know of a field.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed {
    /// The list has no duplicates.
    pub(super) set: bool,
    /// The keys of a list.
    pub(super) keys: Vec<&'static str>,
    /// Whether an object is one value, if that is said here.
    pub(super) atomic: Option<bool>,
    pub(super) default: Option<Value>,
    /// Whether the list is written even if there is none.
    pub(super) always: bool,
}

/// The fields of a type, by their numbers.
pub(super) type Message = BTreeMap<u32, Field>;

struct Table {
    messages: HashMap<&'static str, Message>,
    /// The types whose objects are one value.
    atomic: HashSet<&'static str>,
    roots: HashMap<(&'static str, &'static str), &'static str>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| parse(include_str!("fields.txt")));

/// A type.
pub(super) fn message(name: &str) -> Option<&'static Message> {
    TABLE.messages.get(name)
}

/// The names of all types.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.messages.keys().copied()
}

/// The apiVersion, kind and type of all objects.
pub(super) fn roots() -> impl Iterator<Item = (&'static str, &'static str, &'static Message)> {
    let table: &'static Table = &TABLE;
    table.roots.iter().filter_map(|((version, kind), name)| Some((*version, *kind, message(name)?)))
}

/// Whether the objects of a type are one value.
pub(super) fn is_atomic(name: &str) -> bool {
    TABLE.atomic.contains(name)
}

/// The type of objects.
pub(super) fn root(api_version: &str, kind: &str) -> Option<&'static Message> {
    // The options of a DELETE come with the apiVersion of any group.
    if kind == "DeleteOptions" {
        return message("meta.v1.DeleteOptions");
    }
    let table: &'static Table = &TABLE;
    let name = table.roots.iter().find(|((version, own), _)| *version == api_version && *own == kind)?.1;
    message(name)
}

fn parse(text: &'static str) -> Table {
    let mut table = Table { messages: HashMap::new(), atomic: HashSet::new(), roots: HashMap::new() };
    let mut current = "";
    for line in text.lines() {
        if let Some(header) = line.strip_prefix('=') {
            let (name, api_version) = header.split_once(' ').unwrap_or((header, ""));
            current = name;
            table.messages.insert(name, Message::new());
            if !api_version.is_empty() {
                let kind = name.rsplit('.').next().unwrap_or_default();
                table.roots.insert((api_version, kind), name);
            }
        } else if line == "!atomic" {
            table.atomic.insert(current);
        } else if let Some((number, field)) = field(line)
            && let Some(message) = table.messages.get_mut(current)
        {
            message.insert(number, field);
        }
    }
    table
}

fn field(line: &'static str) -> Option<(u32, Field)> {
    let mut parts = line.split(' ');
    let (number, name, what) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
    let marks = what.len() - what.trim_start_matches(['*', '+', '^', '!']).len();
    let (marks, what) = what.split_at(marks);
    let field = Field {
        name,
        kind: kind(what)?,
        pointer: marks.contains('*'),
        repeated: marks.contains('+'),
        inline: marks.contains('^'),
        required: marks.contains('!'),
        managed: managed(parts)?,
    };
    Some((number, field))
}

/// None if a word is unknown.
fn managed(words: impl Iterator<Item = &'static str>) -> Option<Managed> {
    let mut managed = Managed::default();
    for word in words {
        match word.split_once(':').unwrap_or((word, "")) {
            ("set", "") => managed.set = true,
            ("keys", keys) => managed.keys = keys.split(',').collect(),
            ("atomic", "") => managed.atomic = Some(true),
            ("granular", "") => managed.atomic = Some(false),
            ("default", default) => managed.default = Some(serde_json::from_str(default).ok()?),
            ("always", "") => managed.always = true,
            _ => return None,
        }
    }
    Some(managed)
}

fn kind(what: &'static str) -> Option<Kind> {
    Some(match what {
        "s" => Kind::Text,
        "b" => Kind::Flag,
        "i" => Kind::Integer,
        "f" => Kind::Float,
        "y" => Kind::Bytes,
        "@time" => Kind::Time,
        "@microtime" => Kind::MicroTime,
        "@quantity" => Kind::Quantity,
        "@intstr" => Kind::IntOrString,
        "@raw" => Kind::Raw,
        "@orbool" => Kind::Or("flag"),
        "@orarray" => Kind::Or("schemas"),
        "@orstrings" => Kind::Or("texts"),
        _ => match what.split_at_checked(1)? {
            ("m", name) => Kind::Message(name),
            ("M", value) => Kind::Map(Box::new(kind(value)?)),
            ("L", item) => Kind::List(Box::new(kind(item)?)),
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_parsed_and_every_type_is_defined() {
        let text = include_str!("fields.txt");
        let lines = text.lines().filter(|line| !line.starts_with(['=', '!'])).count();
        assert_eq!(TABLE.messages.values().map(Message::len).sum::<usize>(), lines);
        let mut kinds: Vec<&Kind> = TABLE.messages.values().flatten().map(|(_, field)| &field.kind).collect();
        while let Some(kind) = kinds.pop() {
            match kind {
                Kind::Map(kind) | Kind::List(kind) => kinds.push(kind),
                Kind::Message(name) => assert!(message(name).is_some(), "{name}"),
                _ => {}
            }
        }
    }

    #[test]
    fn every_built_in_kind_is_in_the_table() {
        for built_in in crate::registry::built_in::ALL_BUILT_IN {
            assert!(root(&built_in.api_version(), built_in.kind).is_some(), "{}", built_in.kind);
        }
        assert!(root("v1", "DeleteOptions").is_some());
    }
}
