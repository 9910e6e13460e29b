//! Reads type definitions from Go sources: as much of the language as Kubernetes' API types use.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// The types that a package defines.
#[derive(Default)]
pub(super) struct Package {
    pub(super) definitions: BTreeMap<String, Definition>,
}

/// What a type is defined as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Definition {
    Struct {
        fields: Vec<Field>,
        /// Whether its values have a single field manager.
        atomic: bool,
    },
    Other(Type),
}

/// A field that has a protobuf number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) json: String,
    pub(super) type_: Type,
    /// Whether JSON leaves it out when it is empty.
    pub(super) optional: bool,
    /// Whether JSON has its fields in its place.
    pub(super) inline: bool,
    /// What its comments and tags say to field managers.
    pub(super) managed: Markers,
}

/// What comments and tags say to field managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Markers {
    /// `atomic`, `set` or `map`.
    pub(super) list: Option<String>,
    pub(super) keys: Vec<String>,
    /// `atomic` or `granular`.
    pub(super) map: Option<String>,
    /// The default, in JSON.
    pub(super) default: Option<String>,
}

impl Markers {
    /// Reads the comments above a field or type.
    fn of(comments: &[&str]) -> Self {
        let mut markers = Self::default();
        for comment in comments {
            let Some((key, value)) = comment
                .trim_start_matches('/')
                .trim()
                .strip_prefix('+')
                .and_then(|marker| marker.split_once('='))
            else {
                continue;
            };
            let value = value.trim().to_owned();
            match key {
                "listType" => markers.list = Some(value),
                "listMapKey" => markers.keys.push(value.trim_matches('"').to_owned()),
                "mapType" | "structType" => markers.map = Some(value),
                "default" => markers.default = Some(value),
                _ => {}
            }
        }
        markers
    }

    /// The tags of strategic patches count where no comment says what kind of list it is.
    fn with_tags(mut self, tags: &str) -> Self {
        let strategy = tag(tags, "patchStrategy").unwrap_or_default();
        if self.list.is_none() && strategy.split(',').any(|part| part == "merge") {
            let key = tag(tags, "patchMergeKey");
            self.list = Some(if key.is_some() { "map" } else { "set" }.to_owned());
            self.keys = key.map(str::to_owned).into_iter().collect();
        }
        self
    }
}

/// A type as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Pointer(Box<Type>),
    Slice(Box<Type>),
    /// By strings.
    Map(Box<Type>),
    Basic(String),
    /// A package, as it is imported, and a name.
    Named(String, String),
}

impl Type {
    pub(super) fn is_bytes(&self) -> bool {
        matches!(self, Self::Slice(inner) if matches!(inner.as_ref(), Self::Basic(name) if name == "byte"))
    }
}

impl Package {
    /// Reads all files of a folder but tests.
    pub(super) fn read(import: &str, dir: &Path) -> Result<Self> {
        let mut package = Self::default();
        let files = std::fs::read_dir(dir).with_context(|| format!("no package {import}"))?;
        for file in files {
            let path = file?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let generated = name.starts_with("zz_") || name.starts_with("generated");
            if name.ends_with(".go") && !name.ends_with("_test.go") && !generated {
                package.add(import, &std::fs::read_to_string(&path)?);
            }
        }
        Ok(package)
    }

    fn add(&mut self, import: &str, source: &str) {
        let imports = imports(source);
        let mut lines = source.lines();
        let mut comments = Vec::new();
        while let Some(line) = lines.next() {
            if line.starts_with("//") {
                comments.push(line);
                continue;
            }
            let above = if line.starts_with("type ") { std::mem::take(&mut comments) } else { Vec::new() };
            if !line.is_empty() {
                comments.clear();
            }
            let Some(definition) = line.strip_prefix("type ") else { continue };
            let Some((name, what)) = definition.split_once(' ') else { continue };
            let what = what.split(" //").next().unwrap_or_default().trim();
            let definition = if what == "struct {" {
                let body = lines.by_ref().take_while(|line| !line.starts_with('}'));
                let atomic = Markers::of(&above).map.as_deref() == Some("atomic");
                Definition::Struct { fields: fields(body, import, &imports), atomic }
            } else if what == "struct{}" || what == "struct {}" {
                Definition::Struct { fields: Vec::new(), atomic: false }
            } else if let Some(other) = type_of(what, import, &imports) {
                Definition::Other(other)
            } else {
                continue;
            };
            self.definitions.insert(name.to_owned(), definition);
        }
    }
}

/// The packages that a file imports, by the names it gives them.
fn imports(source: &str) -> BTreeMap<&str, &str> {
    let quoted = |line| -> Option<(&str, &str)> {
        let line: &str = str::trim(line).trim_start_matches("import ");
        let (before, rest) = line.split_once('"')?;
        let path = rest.strip_suffix('"')?;
        let name = Some(before.trim()).filter(|name| !name.is_empty()).or(path.rsplit('/').next())?;
        Some((name, path))
    };
    let head = source.lines().take_while(|line| !line.starts_with("type ") && !line.starts_with("func "));
    head.filter_map(quoted).collect()
}

/// The fields with protobuf tags, from the lines of a struct.
fn fields<'a>(
    body: impl Iterator<Item = &'a str>,
    import: &str,
    imports: &BTreeMap<&str, &str>,
) -> Vec<Field> {
    let (mut fields, mut comments) = (Vec::new(), Vec::new());
    for line in body {
        if line.trim().starts_with("//") {
            comments.push(line.trim());
            continue;
        }
        fields.extend(field(line, &comments, import, imports));
        comments.clear();
    }
    fields
}

/// A field with a protobuf tag, from its line in a struct and the comments above it.
fn field(line: &str, comments: &[&str], import: &str, imports: &BTreeMap<&str, &str>) -> Option<Field> {
    let (declared, tags) = line.trim().split_once('`').filter(|(declared, _)| !declared.starts_with("//"))?;
    let (json, protobuf) = (tag(tags, "json")?, tag(tags, "protobuf")?);
    let number = protobuf.split(',').nth(1)?.parse().ok()?;
    // An embedded type has no name of its own.
    let written = declared.split_whitespace().last()?;
    let mut json = json.split(',');
    let name = json.next()?.to_owned();
    let options: Vec<&str> = json.collect();
    Some(Field {
        number,
        inline: name.is_empty(),
        json: name,
        type_: type_of(written, import, imports)?,
        optional: options.contains(&"omitempty") || options.contains(&"omitzero"),
        managed: Markers::of(comments).with_tags(tags),
    })
}

fn tag<'a>(tags: &'a str, key: &str) -> Option<&'a str> {
    tags.split_once(&format!("{key}:\""))?.1.split('"').next()
}

fn type_of(written: &str, import: &str, imports: &BTreeMap<&str, &str>) -> Option<Type> {
    let inner = |written: &str| Some(Box::new(type_of(written, import, imports)?));
    if let Some(rest) = written.strip_prefix('*') {
        return Some(Type::Pointer(inner(rest)?));
    }
    if let Some(rest) = written.strip_prefix("[]") {
        return Some(Type::Slice(inner(rest)?));
    }
    if let Some(rest) = written.strip_prefix("map[") {
        return Some(Type::Map(inner(rest.split_once(']')?.1)?));
    }
    if let Some((package, name)) = written.split_once('.') {
        return Some(Type::Named((*imports.get(package)?).to_owned(), name.to_owned()));
    }
    let is_name = !written.is_empty() && written.chars().all(|letter| letter.is_ascii_alphanumeric());
    is_name.then(|| match written.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        true => Type::Named(import.to_owned(), written.to_owned()),
        false => Type::Basic(written.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A comment.
// +structType=atomic
type Widget struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Another one, with `quotes`.
	// Gone int32 `json:"gone" protobuf:"varint,9,opt,name=gone"`
	UID types.UID `json:"uid" protobuf:"bytes,2,opt,name=uid,casttype=UID"`
	// +listType=map
	// +listMapKey=name
	// +listMapKey=kind
	Parts []Part `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,3,rep,name=parts"`
	Part `json:",inline" protobuf:"bytes,4,opt,name=part"`
	Data map[string][]byte `json:"data,omitempty" protobuf:"bytes,5,rep,name=data"`
	// +default=1
	Size *int32 `json:"size,omitempty" protobuf:"varint,6,opt,name=size"`
}

type Phase string // of a widget
type Extra []string
"#;

    #[test]
    fn fields_have_the_numbers_names_and_types_of_their_tags() {
        let mut package = Package::default();
        package.add("k8s.io/api/example/v1", SOURCE);
        let Some(Definition::Struct { fields, atomic: true }) = package.definitions.get("Widget") else {
            panic!("no atomic struct")
        };
        let named = |import: &str, name: &str| Type::Named(import.to_owned(), name.to_owned());
        let own = |name: &str| named("k8s.io/api/example/v1", name);
        let basic = |name: &str| Box::new(Type::Basic(name.to_owned()));
        let expected = [
            (1, "metadata", named("k8s.io/apimachinery/pkg/apis/meta/v1", "ObjectMeta"), true, false),
            (2, "uid", named("k8s.io/apimachinery/pkg/types", "UID"), false, false),
            (3, "parts", Type::Slice(Box::new(own("Part"))), true, false),
            (4, "", own("Part"), false, true),
            (5, "data", Type::Map(Box::new(Type::Slice(basic("byte")))), true, false),
            (6, "size", Type::Pointer(basic("int32")), true, false),
        ];
        let read: Vec<_> = fields
            .iter()
            .map(|field| (field.number, &*field.json, field.type_.clone(), field.optional, field.inline))
            .collect();
        assert_eq!(read, expected);
        assert_eq!(fields[2].managed.list.as_deref(), Some("map"));
        assert_eq!(fields[2].managed.keys, ["name", "kind"]);
        assert_eq!(fields[5].managed.default.as_deref(), Some("1"));
        assert_eq!(fields[0].managed, Markers::default());
        assert_eq!(package.definitions.get("Phase"), Some(&Definition::Other(*basic("string"))));
        assert_eq!(package.definitions.get("Extra"), Some(&Definition::Other(Type::Slice(basic("string")))));
    }
}
