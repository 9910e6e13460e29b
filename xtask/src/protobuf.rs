//! `cargo xtask protobuf-fields`: writes the table by which the embedded API server reads protobuf bodies.
//!
//! The table is derived from the Go types of the Kubernetes release that the lab builds: their `protobuf` tags have the
//! numbers, their `json` tags the names, and their types say the rest. The objects to cover are those that the table
//! names already with an apiVersion; to add one, add its header line (`=apps.v1.StatefulSet apps/v1`) and run this.

mod go;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use go::{Definition, Markers, Package, Type};

/// The table, from the root of the workspace.
const TABLE: &str = "crates/restow-apiserver/src/object/protobuf/fields.txt";
/// The Go module whose requirements name the release.
const LAB_MODULE: &str = "lab/kubernetes";
/// Types that are not read field by field, by package and name.
const SPECIAL: [(&str, &str); 10] = [
    ("k8s.io/apimachinery/pkg/apis/meta/v1.Time", "@time"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime", "@microtime"),
    ("k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1", "@raw"),
    ("k8s.io/apimachinery/pkg/api/resource.Quantity", "@quantity"),
    ("k8s.io/apimachinery/pkg/util/intstr.IntOrString", "@intstr"),
    ("k8s.io/apimachinery/pkg/runtime.RawExtension", "@raw"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON", "@raw"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool", "@orbool"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray", "@orarray"),
    ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray", "@orstrings"),
];

/// Whether to write the table or to compare it.
#[derive(Args)]
pub(crate) struct ProtobufFields {
    /// Write nothing; fail if the table is not what would be written.
    #[arg(long)]
    check: bool,
}

/// Derives the table from Go's module cache.
pub(crate) fn run(chore: &ProtobufFields) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let path = root.join(TABLE);
    let before = std::fs::read_to_string(&path).with_context(|| format!("cannot read {TABLE}"))?;
    let mut table = Table { modules: modules(&root.join(LAB_MODULE))?, ..Table::default() };
    for (name, api_version) in objects(&before) {
        table.add(name, Some(api_version))?;
    }
    // The options of a DELETE come with the apiVersion of any group.
    table.add("meta.v1.DeleteOptions", None)?;
    if table.text == before {
        println!("{TABLE} is up to date");
        return Ok(());
    }
    ensure!(!chore.check, "{TABLE} is not what `cargo xtask protobuf-fields` writes; run it");
    std::fs::write(&path, &table.text).with_context(|| format!("cannot write {TABLE}"))?;
    println!("wrote {TABLE}");
    Ok(())
}

/// The types of objects in a table, with their apiVersions.
fn objects(table: &str) -> impl Iterator<Item = (&str, &str)> {
    table.lines().filter_map(|line| line.strip_prefix('=')?.split_once(' '))
}

/// The module paths that the table needs, with their folders.
fn modules(lab: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let names =
        ["k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator"];
    let output = Command::new("go")
        .args(["mod", "download", "-json"])
        .args(names)
        .current_dir(lab)
        .output()
        .context("cannot run go; the table is derived from Go's module cache")?;
    ensure!(output.status.success(), "go mod download: {}", String::from_utf8_lossy(&output.stderr));
    let mut modules = BTreeMap::new();
    for module in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>() {
        let module = module?;
        let text = |key: &str| module[key].as_str().map(str::to_owned);
        let (path, dir) = text("Path").zip(text("Dir")).context("go mod download printed no folder")?;
        modules.insert(path, PathBuf::from(dir));
    }
    Ok(modules)
}

/// The table while it is written.
#[derive(Default)]
struct Table {
    modules: BTreeMap<String, PathBuf>,
    packages: BTreeMap<String, Package>,
    written: BTreeSet<String>,
    text: String,
}

impl Table {
    /// Writes a type and, behind it, those that its fields need.
    fn add(&mut self, name: &str, api_version: Option<&str>) -> Result<()> {
        if !self.written.insert(name.to_owned()) {
            return Ok(());
        }
        let (import, type_name) = import_of(name)?;
        let Definition::Struct { mut fields, atomic } = self.definition(&import, type_name)? else {
            bail!("{name} is not a struct");
        };
        let header = api_version.map_or(String::new(), |api_version| format!(" {api_version}"));
        self.text += &format!("={name}{header}\n");
        if atomic {
            self.text += "!atomic\n";
        }
        fields.sort_by_key(|field| field.number);
        let mut needed = Vec::new();
        for field in fields {
            let (mut marks, mut of, mut always) = (String::new(), &field.type_, false);
            if let Type::Pointer(inner) = of {
                (marks, of) = ("*".to_owned(), inner.as_ref());
            } else if !field.optional && !field.inline {
                marks = "!".to_owned();
            }
            if let Type::Slice(inner) = of
                && !of.is_bytes()
            {
                // An empty list cannot be told from none in protobuf.
                marks = "+".to_owned();
                always = !field.optional;
                of = inner.as_ref();
            }
            if field.inline {
                marks.push('^');
            }
            let kind = self.kind(of, &mut needed)?;
            let json = if field.inline { "-" } else { &field.json };
            let always = if always { " always" } else { "" };
            self.text +=
                &format!("{} {json} {marks}{kind}{}{always}\n", field.number, managed(&field.managed));
        }
        needed.into_iter().try_for_each(|name| self.add(&name, None))
    }

    /// How the table writes a type; messages are added to what is needed.
    fn kind(&mut self, of: &Type, needed: &mut Vec<String>) -> Result<String> {
        Ok(match of {
            _ if of.is_bytes() => "y".to_owned(),
            Type::Pointer(inner) => self.kind(inner, needed)?,
            Type::Slice(inner) => format!("L{}", self.kind(inner, needed)?),
            Type::Map(inner) => format!("M{}", self.kind(inner, needed)?),
            Type::Basic(name) => match name.as_str() {
                "string" => "s",
                "bool" => "b",
                "float32" | "float64" => "f",
                "int" | "int32" | "int64" | "uint32" | "uint64" | "byte" | "uint8" => "i",
                other => bail!("no kind for the Go type {other}"),
            }
            .to_owned(),
            Type::Named(import, name) => {
                let full = format!("{import}.{name}");
                if let Some((_, kind)) = SPECIAL.iter().find(|(special, _)| *special == full) {
                    return Ok((*kind).to_owned());
                }
                match self.definition(import, name)? {
                    Definition::Struct { .. } => {
                        let short = short_of(import, name)?;
                        needed.push(short.clone());
                        format!("m{short}")
                    }
                    Definition::Other(other) => self.kind(&other, needed)?,
                }
            }
        })
    }

    fn definition(&mut self, import: &str, name: &str) -> Result<Definition> {
        if !self.packages.contains_key(import) {
            let inside = |module: &&String| import.strip_prefix(module.as_str()).is_some();
            let module = self.modules.keys().filter(inside).max_by_key(|module| module.len());
            let module = module.with_context(|| format!("no module has the package {import}"))?;
            let dir = self.modules[module].join(import[module.len()..].trim_start_matches('/'));
            self.packages.insert(import.to_owned(), Package::read(import, &dir)?);
        }
        let found = self.packages[import].definitions.get(name).cloned();
        found.with_context(|| format!("the package {import} has no type {name}"))
    }
}

/// What field managers need to know of a field, behind what it is. Lists are atomic and maps are not unless it is said.
fn managed(markers: &Markers) -> String {
    let list = match markers.list.as_deref() {
        Some("set") => " set".to_owned(),
        Some("map") => format!(" keys:{}", markers.keys.join(",")),
        _ => String::new(),
    };
    let map = markers.map.as_ref().map(|map| format!(" {map}"));
    // Only keys of lists need their defaults, and those are scalars.
    let scalar = |default: &&String| {
        let value: Result<serde_json::Value, _> = serde_json::from_str(default);
        value.is_ok_and(|value| !value.is_object() && !value.is_array()) && !default.contains(' ')
    };
    let default = markers.default.as_ref().filter(scalar).map(|default| format!(" default:{default}"));
    [Some(list), map, default].into_iter().flatten().collect()
}

/// The package of a name in the table, as Go imports it, and the type.
fn import_of(name: &str) -> Result<(String, &str)> {
    let mut parts = name.splitn(3, '.');
    let (Some(group), Some(version), Some(type_name)) = (parts.next(), parts.next(), parts.next()) else {
        bail!("{name} is not GROUP.VERSION.TYPE");
    };
    let import = match group {
        "meta" => format!("k8s.io/apimachinery/pkg/apis/meta/{version}"),
        "apiextensions" => format!("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/{version}"),
        "apiregistration" => format!("k8s.io/kube-aggregator/pkg/apis/apiregistration/{version}"),
        group => format!("k8s.io/api/{group}/{version}"),
    };
    Ok((import, type_name))
}

/// The name of a type in the table.
fn short_of(import: &str, name: &str) -> Result<String> {
    let mut parts = import.rsplit('/');
    let (version, group) = parts.next().zip(parts.next()).context("a package without group and version")?;
    Ok(format!("{group}.{version}.{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_the_table_are_go_types() {
        for name in
            ["core.v1.Pod", "meta.v1.ObjectMeta", "apiextensions.v1.JSONSchemaProps", "apps.v1.Deployment"]
        {
            let (import, type_name) = import_of(name).unwrap();
            assert_eq!(short_of(&import, type_name).unwrap(), name, "{import}");
        }
        assert!(import_of("Pod").is_err());
    }

    #[test]
    fn objects_are_the_headers_with_an_api_version() {
        let table = "=core.v1.Pod v1\n1 metadata mmeta.v1.ObjectMeta\n=meta.v1.ObjectMeta\n1 name s\n";
        assert_eq!(objects(table).collect::<Vec<_>>(), [("core.v1.Pod", "v1")]);
    }
}
