//! Cycles that are found, and those that are none, in small sources.

use std::path::Path;

use anyhow::Context as _;

use super::{find, source};

/// The cycles of a crate that has these files, each by the modules in it.
fn cycles(files: &[(&str, &str)]) -> Vec<String> {
    let read = |path: &Path| {
        let found = files.iter().find(|(name, _)| path == Path::new(&format!("src/{name}.rs")));
        let (_, text) = found.with_context(|| format!("no {}", path.display()))?;
        Ok((*text).to_owned())
    };
    let tree = source::read(Path::new("src/lib.rs"), &read).unwrap();
    find(&tree).iter().map(|cycle| cycle.modules.join(" ")).collect()
}

#[test]
fn modules_that_use_each_other_form_a_cycle() {
    let b = ("b", "pub fn b() { crate::a::a() }");
    for (a, expected) in [
        // No use, and every way to use something.
        ("pub fn a() {}", &[][..]),
        ("use crate::b::b; pub fn a() { b() }", &["a b"]),
        ("use crate::{b, c::C}; pub fn a() {}", &["a b"]),
        ("use crate::b::{self as other}; pub fn a() {}", &["a b"]),
        ("use super::b; pub fn a() {}", &["a b"]),
        ("pub fn a() { super::b::b() }", &["a b"]),
        ("pub fn a() { use crate::b; b::b() }", &["a b"]),
        ("pub fn a(_: Vec<crate::b::B>) {}", &["a b"]),
        ("pub fn a() { println!(\"{}\", crate::b::b()) }", &["a b"]),
        ("#[derive(crate::b::B)] pub struct A;", &["a b"]),
        ("#[serde(with = \"crate::b\")] pub struct A;", &["a b"]),
        ("mod inner { pub fn a() { super::super::b::b() } } pub use inner::a;", &["a::inner b"]),
        // What only looks like a use.
        ("use b::b; pub fn a() {}", &[]),
        ("use b; pub fn a() {}", &[]),
        ("pub fn a() { b::b() }", &[]),
        ("pub fn a(b: u8) -> u8 { println!(\"{}\", b); b }", &[]),
        ("pub(super) fn a() {} pub(crate) fn b() {}", &[]),
        ("/// See [`crate::b`].\npub fn a() {}", &[]),
        // Tests.
        ("#[cfg(test)] use crate::b; pub fn a() {}", &[]),
        ("pub fn a() {} #[cfg(test)] mod tests { use crate::b; }", &[]),
        ("pub fn a() {} #[cfg(test)] mod tests;", &[]),
        ("pub fn a() {} #[cfg(all(test, unix))] fn b() { crate::b::b() }", &[]),
    ] {
        let found =
            cycles(&[("lib", "pub mod a; pub mod b; pub mod c;"), ("a", a), b, ("c", "pub struct C;")]);
        assert_eq!(found, expected, "{a}");
    }
}

#[test]
fn a_cycle_lists_all_its_modules_and_only_those() {
    let files = [
        ("lib", "mod a; mod b; mod c; mod d; mod e;"),
        ("a", "fn f() { crate::b::f() }"),
        ("b", "fn f() { crate::c::f() }"),
        ("c", "fn f() { crate::a::f(); crate::d::f() }"),
        ("d", "fn f() {}"),
        ("e", "fn f() { crate::a::f() }"),
    ];
    assert_eq!(cycles(&files), ["a b c"]);
}

#[test]
fn a_child_may_use_its_parent_only_if_the_parent_just_re_exports() {
    for (parent, child, expected) in [
        ("mod child; pub struct P;", "use super::P; pub fn f() {}", &[][..]),
        (
            "mod child; pub struct P; fn g() { child::f() }",
            "use super::P; pub fn f() {}",
            &["parent parent::child"],
        ),
        ("mod child; pub use child::f; pub struct P;", "fn f(_: super::P) {}", &["parent parent::child"]),
        ("mod child; mod other; pub use child::f; pub use other::P;", "use super::P; pub fn f() {}", &[]),
        (
            "mod child; mod other; pub use child::f; pub use other::Q;",
            "use crate::parent::Q; pub fn f() {}",
            &["parent::child parent::other"],
        ),
    ] {
        let other = "pub struct P; pub struct Q; impl Q { fn f() { super::f() } }";
        let other = if parent.contains("Q") { other } else { "pub struct P;" };
        let files =
            [("lib", "mod parent;"), ("parent", parent), ("parent/child", child), ("parent/other", other)];
        assert_eq!(cycles(&files), expected, "{parent} / {child}");
    }
}

#[test]
fn the_root_is_a_module_if_it_has_code() {
    assert_eq!(
        cycles(&[("lib", "mod a; fn help(a: u8) -> u8 { a }"), ("a", "fn f() { crate::help(1) }")]),
        [""; 0]
    );
    let a = ("a", "pub fn f() { crate::help() }");
    assert_eq!(cycles(&[("lib", "mod a; fn help() {} fn go() { a::f() }"), a]), ["crate a"]);
    assert_eq!(
        cycles(&[("lib", "mod a; mod b; pub use a::f; use b::help;"), a, ("b", "pub fn help() {}")]),
        [""; 0]
    );
}
