//! Changes the versions of a CRD in a YAML file: only the lines that have to change, so that comments stay.

use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::error::CliError;

/// Why a file was not changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum EditError {
    #[error("it has no CustomResourceDefinition {0}, or that is not plain YAML")]
    Missing(String),
    #[error(
        "its versions are {file}, but those of the CRD in the cluster are {cluster}; apply the file first"
    )]
    Differs { file: String, cluster: String },
    #[error("its versions are not written one field to a line")]
    Form,
}

/// Edits a file; false if there was nothing to change. The versions of the CRD in the cluster are `cluster`.
pub(super) fn edit_file(
    path: &Path,
    name: &str,
    cluster: &[Value],
    change: impl Fn(&[Value]) -> Vec<Value>,
) -> Result<bool, CliError> {
    let at = |what: &str, error: &dyn std::fmt::Display| {
        CliError::failed(format!("{what} {}: {error}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| at("cannot read", &error))?;
    let edited = edit(&text, name, cluster, change)
        .map_err(|error| at("cannot edit", &error).hint("make the change that is shown above by hand"))?;
    if edited == text {
        return Ok(false);
    }
    replace(path, &edited).map_err(|error| at("cannot write", &error))?;
    Ok(true)
}

/// Replaces a file as a whole, so that a full disk does not cost the user's file.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // Not the link, but the file it leads to.
    let path = path.canonicalize()?;
    let mut new = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("/")))?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(path.metadata()?.permissions())?;
    new.as_file().sync_all()?;
    new.persist(&path)?;
    Ok(())
}

/// Names, and what a step may change, in any order.
fn states(versions: &[Value]) -> String {
    let flag = |version: &Value, field: &str| {
        if version[field] == true { format!(" {field}") } else { String::new() }
    };
    let each = |version: &Value| {
        let name = version["name"].as_str().unwrap_or("unnamed");
        format!("{name}{}{}", flag(version, "served"), flag(version, "storage"))
    };
    let mut states: Vec<String> = versions.iter().map(each).collect();
    states.sort();
    states.join(", ")
}

/// The text with the versions of a CRD changed.
fn edit(
    text: &str,
    name: &str,
    cluster: &[Value],
    change: impl Fn(&[Value]) -> Vec<Value>,
) -> Result<String, EditError> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let missing = || EditError::Missing(name.to_owned());
    let (start, end, before) = documents(&lines)
        .into_iter()
        .filter_map(|(start, end)| Some((start, end, parse(&lines[start..end].concat())?)))
        .find(|(_, _, object)| {
            object["kind"] == "CustomResourceDefinition" && object["metadata"]["name"] == name
        })
        .ok_or_else(missing)?;
    let versions = before["spec"]["versions"].as_array().ok_or_else(missing)?;
    let (file, now) = (states(versions), states(cluster));
    if file == states(&change(cluster)) {
        return Ok(text.to_owned());
    }
    // Applied, it would undo earlier steps or take others that no gate has opened.
    if file != now {
        return Err(EditError::Differs { file, cluster: now });
    }
    let wanted = change(versions);
    let edited = edit_document(&lines[start..end], &wanted).ok_or(EditError::Form)?;
    let mut expected = before.clone();
    expected["spec"]["versions"] = wanted.into();
    // Whatever the text looked like, the result must be exactly this change.
    if parse(&edited).as_ref() != Some(&expected) {
        return Err(EditError::Form);
    }
    Ok([lines[..start].concat(), edited, lines[end..].concat()].concat())
}

fn parse(document: &str) -> Option<Value> {
    serde_saphyr::from_str(document).ok()
}

/// The lines of each document, without the separators.
fn documents(lines: &[&str]) -> Vec<(usize, usize)> {
    let separators =
        lines.iter().enumerate().filter(|(_, line)| line.trim_end() == "---" || line.starts_with("--- "));
    let mut documents = Vec::new();
    let mut start = 0;
    for (index, _) in separators {
        documents.push((start, index));
        start = index + 1;
    }
    documents.push((start, lines.len()));
    documents
}

/// The lines of one document, where each version in the wanted list has its fields and the others are gone.
fn edit_document(lines: &[&str], wanted: &[Value]) -> Option<String> {
    let mut text = String::new();
    let (first, items) = items(lines)?;
    text.extend(lines[..first].iter().copied());
    let mut end = first;
    for (start, next) in items {
        text.extend(lines[end..start].iter().copied());
        end = next;
        let name =
            lines[start..next].iter().find_map(|line| value_of(line, "name", indent(lines[start]) + 2))?;
        let Some(version) = wanted.iter().find(|version| version["name"] == name.trim_matches(['"', '\'']))
        else {
            continue;
        };
        for line in &lines[start..next] {
            let field = ["served", "storage"]
                .into_iter()
                .find(|field| value_of(line, field, indent(lines[start]) + 2).is_some());
            match field.and_then(|field| replaced(line, field, &version[field])) {
                Some(replaced) => text.push_str(&replaced),
                None => text.push_str(line),
            }
        }
    }
    text.extend(lines[end..].iter().copied());
    Some(text)
}

/// The line of the first item of `spec.versions`, and the lines of each item.
fn items(lines: &[&str]) -> Option<(usize, Vec<(usize, usize)>)> {
    let spec = lines.iter().position(|line| line.trim_end() == "spec:")?;
    let depth = lines[spec + 1..].iter().find(|line| !is_blank(line)).map(|line| indent(line))?;
    let versions = (spec + 1..lines.len()).find(|index| {
        let line = lines[*index];
        indent(line) == depth
            && line.trim().split('#').next().is_some_and(|key| key.trim_end() == "versions:")
    })?;
    let first = (versions + 1..lines.len()).find(|index| !is_blank(lines[*index]))?;
    let at = indent(lines[first]);
    let is_item = |line: &str| indent(line) == at && line.trim_start().starts_with("- ");
    if at < depth || !is_item(lines[first]) {
        return None;
    }
    let after = |line: &str| !is_blank(line) && (indent(line) < at || indent(line) == at && !is_item(line));
    let end = (first..lines.len()).find(|index| after(lines[*index])).unwrap_or(lines.len());
    let starts: Vec<usize> = (first..end).filter(|index| is_item(lines[*index])).collect();
    let ends = starts.iter().skip(1).copied().chain([end]);
    Some((first, starts.iter().copied().zip(ends).collect()))
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The value of a field that stands at this column, also behind the dash of an item.
fn value_of<'a>(line: &'a str, field: &str, column: usize) -> Option<&'a str> {
    let (before, rest) = line.split_at_checked(column)?;
    if !before.chars().all(|c| c == ' ' || c == '-') {
        return None;
    }
    let value = rest.strip_prefix(field)?.strip_prefix(':')?;
    let value = value.split(" #").next().unwrap_or_default().trim();
    (!value.is_empty()).then_some(value)
}

/// The line with another value of the field; the rest of it stays.
fn replaced(line: &str, field: &str, value: &Value) -> Option<String> {
    let colon = line.find(&format!("{field}:"))? + field.len() + 1;
    let (key, rest) = line.split_at(colon);
    let space = &rest[..rest.len() - rest.trim_start_matches(' ').len()];
    let old = rest.trim_start_matches(' ');
    let length = old.find(|c: char| c.is_whitespace()).unwrap_or(old.len());
    Some(format!("{key}{space}{value}{}", &old[length..]))
}

#[cfg(test)]
mod tests {
    use restow_core::controller::retirement::{Step, changed};

    use super::*;

    const NAME: &str = "widgets.example.com";
    const TEXT: &str = "# Generated.
apiVersion: v1
kind: Namespace
metadata: {name: x}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  versions:
  # The old one.
  - name: v1beta1
    served: true   # until autumn
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          served: {type: boolean}
          storage:
            type: string
  - served: true
    name: \"v1\" # the new one
    storage: false
    schema: {openAPIV3Schema: {type: object}}
  names: {plural: widgets, kind: Widget}
---
kind: Other
";

    /// The versions of the CRD in the cluster: name, served, storage.
    fn cluster(all: &[(&str, bool, bool)]) -> Vec<Value> {
        let each = |(name, served, storage): &(&str, bool, bool)| serde_json::json!({"name": name, "served": served, "storage": storage});
        all.iter().map(each).collect()
    }

    fn same() -> Vec<Value> {
        cluster(&[("v1", true, false), ("v1beta1", true, true)])
    }

    fn edited(step: &Step) -> String {
        edit(TEXT, NAME, &same(), |versions| changed(versions, "v1beta1", step)).unwrap()
    }

    #[test]
    fn a_file_that_is_not_what_was_applied_is_left_alone() {
        let set = Step::SetStorage { to: "v1".to_owned() };
        for (what, now, step, expected) in [
            (
                "the storage version was set in the cluster only",
                &[("v1", true, true), ("v1beta1", true, false)][..],
                Step::StopServing,
                false,
            ),
            (
                "it would be without a storage version",
                &[("v1", true, true), ("v1beta1", false, false)],
                Step::Drop,
                false,
            ),
            (
                "the file lacks a version",
                &[("v2", true, false), ("v1", true, false), ("v1beta1", true, true)],
                set.clone(),
                false,
            ),
            ("it is the same", &[("v1beta1", true, true), ("v1", true, false)], set, true),
        ] {
            let edited = edit(TEXT, NAME, &cluster(now), |versions| changed(versions, "v1beta1", &step));
            assert_eq!(edited.is_ok(), expected, "{what}: {edited:?}");
            if let Err(error) = edited {
                assert!(matches!(error, EditError::Differs { .. }), "{what}: {error}");
            }
        }
        // It was changed before, and not applied yet.
        let changed_before = edited(&Step::StopServing);
        let again =
            edit(&changed_before, NAME, &same(), |versions| changed(versions, "v1beta1", &Step::StopServing));
        assert_eq!(again, Ok(changed_before));
    }

    #[test]
    fn a_file_is_replaced_behind_its_link_and_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("crd.yaml"), folder.path().join("link.yaml"));
        std::fs::write(&file, TEXT).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let stop = |versions: &[Value]| changed(versions, "v1beta1", &Step::StopServing);
        assert!(edit_file(&link, NAME, &same(), stop).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), edited(&Step::StopServing));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.symlink_metadata().unwrap().is_symlink());
    }

    /// The lines that are only in one of two texts.
    fn difference(before: &str, after: &str) -> Vec<String> {
        let only = |one: &str, other: &str, sign: char| {
            let missing = |line: &&str| !other.lines().any(|also| also == *line);
            one.lines().filter(missing).map(|line| format!("{sign}{}", line.trim())).collect::<Vec<_>>()
        };
        [only(before, after, '-'), only(after, before, '+')].concat()
    }

    #[test]
    fn only_the_lines_of_the_step_change() {
        assert_eq!(
            difference(TEXT, &edited(&Step::StopServing)),
            ["-served: true   # until autumn", "+served: false   # until autumn",]
        );
        let stored = edited(&Step::SetStorage { to: "v1".to_owned() });
        let expected =
            TEXT.replacen("storage: true", "storage: X", 1).replacen("storage: false", "storage: true", 1);
        assert_eq!(stored, expected.replacen("storage: X", "storage: false", 1));
        let dropped = edited(&Step::Drop);
        assert!(
            dropped.contains("# The old one.\n  - served: true\n    name: \"v1\" # the new one"),
            "{dropped}"
        );
        assert!(!dropped.contains("v1beta1") && dropped.ends_with("kind: Other\n"), "{dropped}");
        assert_eq!(edited(&Step::Rewrite), TEXT);
    }

    #[test]
    fn a_file_of_another_form_is_left_alone() {
        let flow = "kind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\nspec:\n  versions: [{name: v1beta1, served: true}]\n";
        let template = format!("{{{{- if .Values.crds }}}}\n{TEXT}");
        let stop = |versions: &[Value]| changed(versions, "v1beta1", &Step::StopServing);
        let old = cluster(&[("v1beta1", true, false)]);
        assert_eq!(edit(flow, NAME, &old, stop), Err(EditError::Form));
        assert_eq!(
            edit(TEXT, "other.example.com", &same(), stop),
            Err(EditError::Missing("other.example.com".to_owned()))
        );
        assert!(edit(&template.replace("---\n", ""), NAME, &same(), stop).is_err());
    }
}
