//! The modules of a crate, read from its sources: what each declares, imports and names.

use std::collections::BTreeMap;
use std::mem;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// A path as its parts: of a module from the root of the crate, or as it is written in a source.
pub(super) type Names = Vec<String>;

/// How many imports and re-exports a path may lead through.
const MAX_HOPS: usize = 16;

/// All modules of a crate by their path; the root has the empty one.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<Names, Module>);

/// What one module has in its source.
#[derive(Default)]
pub(super) struct Module {
    /// Every path that is written in it.
    pub(super) paths: Vec<Names>,
    /// What names mean that are imported or re-exported.
    imports: BTreeMap<String, Names>,
    /// Whether it has anything but declarations of modules, imports and re-exports.
    defines: bool,
}

impl Module {
    /// Whether it has nothing of its own.
    pub(super) fn only_re_exports(&self) -> bool {
        !self.defines
    }
}

impl Tree {
    pub(super) fn modules(&self) -> impl Iterator<Item = (&Names, &Module)> {
        self.0.iter()
    }

    /// The module that a path leads to from within a module; none if it leads out of the crate.
    pub(super) fn resolve(&self, from: &Names, path: &[String]) -> Option<Names> {
        let mut path = self.absolute(from, path)?;
        for _ in 0..MAX_HOPS {
            let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
            let (found, rest) = path.split_at(length);
            let module = &self.0[found];
            if module.defines {
                return Some(found.to_vec());
            }
            let (first, rest) = rest.split_first()?;
            let mut next = self.absolute(&found.to_vec(), module.imports.get(first)?)?;
            next.extend_from_slice(rest);
            path = next;
        }
        None
    }

    /// A path from the root of the crate; none for one of another crate.
    fn absolute(&self, from: &Names, path: &[String]) -> Option<Names> {
        let (mut at, mut path) = (from.clone(), path.to_vec());
        for _ in 0..MAX_HOPS {
            let (first, rest) = path.split_first()?;
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                name => {
                    let child = [at.as_slice(), &[name.to_owned()]].concat();
                    if self.0.contains_key(&child) || at != *from {
                        at.extend_from_slice(&path);
                        return Some(at);
                    }
                    let import = self.0.get(&at)?.imports.get(name).filter(|import| import[0] != *name)?;
                    path = [import.as_slice(), rest].concat();
                    continue;
                }
            }
            // What follows `crate`, `self` or `super` is looked up in that module, never in another crate.
            let rest = rest.to_vec();
            if rest.first().is_none_or(|next| next != "super") {
                at.extend(rest);
                return Some(at);
            }
            path = rest;
        }
        None
    }
}

/// Reads a crate from its root file, `lib.rs` or `main.rs`, and the files of its modules.
pub(super) fn read(root: &Path, file: &dyn Fn(&Path) -> Result<String>) -> Result<Tree> {
    let mut reader = Reader { tree: Tree::default(), file };
    let folder = root.parent().context("a root file is in a folder")?;
    reader.file(root, folder, Vec::new())?;
    Ok(reader.tree)
}

struct Reader<'a> {
    tree: Tree,
    file: &'a dyn Fn(&Path) -> Result<String>,
}

impl Reader<'_> {
    /// Reads the file of a module whose children have their files in `folder`.
    fn file(&mut self, path: &Path, folder: &Path, module: Names) -> Result<()> {
        let source = syn::parse_file(&(self.file)(path)?);
        let source = source.map_err(|error| anyhow!("{}: {error}", path.display()))?;
        if source.attrs.iter().any(is_for_tests) {
            return Ok(());
        }
        self.module(&source.items, folder, module)
    }

    fn module(&mut self, items: &[Item], folder: &Path, path: Names) -> Result<()> {
        let mut module = Module::default();
        for item in items.iter().filter(|item| !attributes(item).iter().any(is_for_tests)) {
            match item {
                Item::Mod(child) => {
                    let name = child.ident.to_string();
                    let inside: PathBuf = folder.join(&name);
                    let child_path = [path.as_slice(), &[name]].concat();
                    match &child.content {
                        Some((_, items)) => self.module(items, &inside, child_path)?,
                        None => self.file(&inside.with_extension("rs"), &inside, child_path)?,
                    }
                }
                Item::Use(_) | Item::ExternCrate(_) => module.visit_item(item),
                _ => {
                    module.defines = true;
                    module.visit_item(item);
                }
            }
        }
        self.tree.0.insert(path, module);
        Ok(())
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.imported(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.named(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    // `pub(super)` and the like name a module and use nothing of it.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}

impl Module {
    fn imported(&mut self, before: &mut Names, tree: &UseTree) {
        let (name, path) = match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.imported(before, &path.tree);
                before.pop();
                return;
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.imported(before, tree));
                return;
            }
            UseTree::Name(name) if name.ident == "self" => (before.last().cloned(), before.clone()),
            UseTree::Name(name) => {
                (Some(name.ident.to_string()), [before.as_slice(), &[name.ident.to_string()]].concat())
            }
            UseTree::Rename(rename) => {
                (Some(rename.rename.to_string()), [before.as_slice(), &[rename.ident.to_string()]].concat())
            }
            _ => (None, before.clone()),
        };
        if let Some(name) = name {
            self.imports.insert(name, path.clone());
        }
        self.paths.push(path);
    }

    /// Paths in what a macro is given, which may be no Rust, and in attributes, where they may be in quotes.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Names::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.named(mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.named(mem::take(&mut path));
                    self.tokens(group.stream());
                }
                TokenTree::Literal(literal) => {
                    self.named(mem::take(&mut path));
                    let text = literal.to_string();
                    let text = text.trim_matches('"');
                    if ["crate::", "super::", "self::"].iter().any(|start| text.starts_with(start)) {
                        self.paths.push(text.split("::").map(str::to_owned).collect());
                    }
                }
                TokenTree::Punct(_) => self.named(mem::take(&mut path)),
            }
        }
        self.named(mem::take(&mut path));
    }

    /// A path in code. A single name there is never a module.
    fn named(&mut self, path: Names) {
        if path.len() > 1 {
            self.paths.push(path);
        }
    }
}

/// Whether an attribute keeps something out of all builds but those for tests.
fn is_for_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let text = list.tokens.to_string();
    list.path.is_ident("cfg") && (text == "test" || text.starts_with("all (test"))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
