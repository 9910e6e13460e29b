//! Compares what is printed with the files in `snapshots/`, so that a change of wording is reviewed in one place.

use std::path::Path;

/// Fails if a text is not the one that `snapshots/<name>.snap` has.
#[track_caller]
pub(crate) fn check(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(name);
    let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else { panic!("{name} is no path") };
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(file.to_string_lossy().into_owned(), text));
}
