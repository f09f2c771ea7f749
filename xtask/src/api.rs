//! Snapshots of the public interface of the crates that others depend on.
//!
//! A snapshot has, for each module, what is `pub` in it, without bodies, private fields and documentation, in
//! a fixed order. It is committed ([`SNAPSHOTS`]), and `tidy` fails when the sources say something else: a
//! break of the interface is then a line of the commit. `cargo xtask api --bless` writes it anew.
//!
//! It is made from the sources with `syn`, which takes milliseconds, needs no second toolchain, and does not
//! change with rustc (docs/decisions/0020-the-interface-from-the-sources.md). The lint `unreachable_pub` sees to
//! it that what is `pub` can be reached from outside; under which name, the lines with `pub use` say.
//!
//! Hazard: what macros of the crate itself make is not seen, only that they are called. Nor is what follows from
//! private fields (`Send` and `Sync`), which tests of these crates assert.

use hectare_tools::steps::root;
use quote::ToTokens;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::{
    Attribute, Block, Expr, Fields, File, FnArg, GenericParam, ImplItem, Item, ItemImpl, Pat, Signature,
    TraitItem, Type, Visibility, parse_quote,
};

/// The directory of a crate, and its snapshot.
const SNAPSHOTS: [(&str, &str); 2] =
    [("crates/base/device", "docs/api/hectare-device.txt"), ("crates/hectare", "docs/api/hectare.txt")];

/// What differs from a snapshot.
pub(crate) struct Drift {
    /// The snapshot.
    pub(crate) file: &'static str,
    /// Its first line that is another, from 1.
    pub(crate) line: usize,
    /// What to do about it.
    pub(crate) message: String,
}

/// `cargo xtask api [--bless]`.
pub(crate) fn run(words: &[&str]) -> bool {
    match words {
        ["--bless"] => SNAPSHOTS.iter().all(|snapshot| bless(*snapshot)),
        [] => {
            let drift = drift();
            drift.iter().for_each(|drift| eprintln!("{}:{}: {}", drift.file, drift.line, drift.message));
            drift.is_empty()
        }
        _ => {
            eprintln!("usage: cargo xtask api [--bless]");
            false
        }
    }
}

fn bless((folder, file): (&str, &str)) -> bool {
    let written = snapshot(&root().join(folder))
        .and_then(|text| fs::write(root().join(file), text).map_err(|error| format!("{file}: {error}")));
    written.inspect_err(|error| eprintln!("{error}")).is_ok()
}

/// Where the sources differ from the snapshots.
pub(crate) fn drift() -> Vec<Drift> {
    SNAPSHOTS.iter().filter_map(|(folder, file)| drift_of(folder, file)).collect()
}

fn drift_of(folder: &str, file: &'static str) -> Option<Drift> {
    let found = match snapshot(&root().join(folder)) {
        Ok(found) => found,
        Err(message) => return Some(Drift { file, line: 1, message }),
    };
    let kept = fs::read_to_string(root().join(file)).unwrap_or_default();
    let (line, kept, found) = first_difference(&kept, &found)?;
    let message = format!(
        "the public interface of {folder} differs: here is {kept:?}, the sources have {found:?}; if that is \
         meant, run cargo xtask api --bless, and say so in CHANGELOG.md if it breaks users"
    );
    Some(Drift { file, line, message })
}

/// The first line in which two texts differ, from 1, in both.
fn first_difference<'t>(one: &'t str, other: &'t str) -> Option<(usize, &'t str, &'t str)> {
    let (mut ones, mut others) = (one.lines(), other.lines());
    for line in 1.. {
        match (ones.next(), others.next()) {
            (None, None) => return None,
            (one, other) if one == other => {}
            (one, other) => return Some((line, one.unwrap_or("its end"), other.unwrap_or("its end"))),
        }
    }
    None
}

/// The interface of the crate in a directory.
fn snapshot(folder: &Path) -> Result<String, String> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut modules = BTreeMap::new();
    read(&folder.join("src/lib.rs"), &folder.join("src"), name.to_owned(), &mut modules)?;
    Ok(rendered(modules))
}

/// Reads a file's modules; `beside` is where those of its own lie.
fn read(
    file: &Path,
    beside: &Path,
    module: String,
    modules: &mut BTreeMap<String, Vec<Item>>,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
    let parsed: File = syn::parse_str(&text).map_err(|error| failed(&error))?;
    gather(parsed.items, beside, module, modules)
}

fn gather(
    items: Vec<Item>,
    beside: &Path,
    module: String,
    modules: &mut BTreeMap<String, Vec<Item>>,
) -> Result<(), String> {
    let mut own = Vec::new();
    for item in items {
        match item {
            item if is_for_tests(attributes(&item)) => {}
            Item::Mod(mut inner) => {
                let name = inner.ident.to_string();
                let (module, below) = (format!("{module}::{name}"), beside.join(&name));
                match inner.content.take() {
                    Some((_, items)) => gather(items, &below, module, modules)?,
                    None => read(&file_of(beside, &name), &below, module, modules)?,
                }
                inner.semi = Some(syn::token::Semi::default());
                own.push(Item::Mod(inner));
            }
            other => own.push(other),
        }
    }
    modules.insert(module, own);
    Ok(())
}

fn file_of(beside: &Path, name: &str) -> PathBuf {
    beside.join(format!("{name}.rs"))
}

/// Whether an item is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let text = attribute.to_token_stream().to_string().replace(' ', "");
        attribute.path().is_ident("cfg") && (text.contains("(test") || text.contains("doctest"))
    })
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
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn rendered(modules: BTreeMap<String, Vec<Item>>) -> String {
    let public = modules.values().flatten().filter_map(public_type).collect();
    let mut text = String::new();
    for (module, items) in modules {
        let shown = items.into_iter().filter_map(|item| skeleton(item, &public));
        let mut shown: Vec<String> = shown
            .map(|item| prettyplease::unparse(&File { shebang: None, attrs: vec![], items: vec![item] }))
            .collect();
        if shown.is_empty() {
            continue;
        }
        shown.sort();
        text += &format!("// {module}\n{}\n", shown.concat());
    }
    text
}

/// The name of a type or trait that others can name.
fn public_type(item: &Item) -> Option<String> {
    let (visibility, name) = match item {
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        Item::Union(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    is_public(visibility).then(|| name.to_string())
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// An item as others see it, if they do.
fn skeleton(mut item: Item, public: &BTreeSet<String>) -> Option<Item> {
    let shown = match &mut item {
        Item::Const(item) => {
            *item.expr = unshown();
            keep(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Enum(item) => {
            keep(&mut item.attrs);
            for variant in &mut item.variants {
                keep(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| keep(&mut field.attrs));
            }
            is_public(&item.vis)
        }
        Item::Fn(item) => {
            *item.block = empty();
            unpatterned(&mut item.sig);
            keep(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Impl(item) => return implementation(item, public).then(|| Item::Impl(item.clone())),
        // What it makes is not known here; that it is called is.
        Item::Macro(item) => {
            keep(&mut item.attrs);
            item.ident.is_none() && item.mac.tokens.to_string().contains("pub ")
        }
        Item::Mod(item) => {
            keep(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Static(item) => {
            *item.expr = unshown();
            keep(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Struct(item) => {
            keep(&mut item.attrs);
            item.fields = visible(std::mem::replace(&mut item.fields, Fields::Unit));
            is_public(&item.vis)
        }
        Item::Trait(item) => {
            keep(&mut item.attrs);
            item.items.iter_mut().for_each(required);
            is_public(&item.vis)
        }
        Item::Type(item) => {
            keep(&mut item.attrs);
            is_public(&item.vis)
        }
        Item::Use(item) => {
            keep(&mut item.attrs);
            is_public(&item.vis)
        }
        _ => false,
    };
    shown.then_some(item)
}

/// Leaves of an `impl` what others see; false if that is nothing.
fn implementation(item: &mut ItemImpl, public: &BTreeSet<String>) -> bool {
    keep(&mut item.attrs);
    if item.trait_.is_some() {
        item.items.retain_mut(|inner| match inner {
            ImplItem::Type(inner) => {
                keep(&mut inner.attrs);
                true
            }
            _ => false,
        });
        return concerns(item, public);
    }
    item.items.retain_mut(|inner| match inner {
        ImplItem::Fn(inner) => {
            inner.block = empty();
            unpatterned(&mut inner.sig);
            keep(&mut inner.attrs);
            is_public(&inner.vis)
        }
        ImplItem::Const(inner) => {
            inner.expr = unshown();
            keep(&mut inner.attrs);
            is_public(&inner.vis)
        }
        _ => false,
    });
    item.items.sort_by_key(|inner| match inner {
        ImplItem::Fn(inner) => inner.sig.ident.to_string(),
        ImplItem::Const(inner) => inner.ident.to_string(),
        _ => String::new(),
    });
    !item.items.is_empty() && concerns(item, public)
}

/// Whether an `impl` is for a type that others can name, or says something of one.
fn concerns(item: &ItemImpl, public: &BTreeSet<String>) -> bool {
    let is_generic = |name: &str| {
        item.generics.params.iter().any(|param| matches!(param, GenericParam::Type(t) if t.ident == name))
    };
    let names = |tokens: proc_macro2::TokenStream| {
        let text = tokens.to_string();
        let words = text.split(|char: char| !char.is_alphanumeric() && char != '_');
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let own = match &*item.self_ty {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    };
    // What the trait is of: of a name alone it can't be known whose it is.
    let last = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
    let of_trait = last.map(|last| names(last.arguments.to_token_stream())).unwrap_or_default();
    own.is_some_and(|own| public.contains(&own) || is_generic(&own))
        || of_trait.iter().any(|name| public.contains(name))
}

/// A trait's item without its default body, which others need not know; that it has one, they do.
fn required(item: &mut TraitItem) {
    match item {
        TraitItem::Fn(item) => {
            keep(&mut item.attrs);
            item.default = item.default.take().map(|_| empty());
        }
        TraitItem::Const(item) => {
            keep(&mut item.attrs);
            item.default = item.default.take().map(|(equals, _)| (equals, unshown()));
        }
        TraitItem::Type(item) => keep(&mut item.attrs),
        _ => {}
    }
}

/// The fields that others see; where some are hidden, one stands for them: it keeps others from making one.
fn visible(fields: Fields) -> Fields {
    match fields {
        Fields::Named(mut named) => {
            let all = named.named.len();
            let shown = named.named.into_iter().filter(|field| is_public(&field.vis));
            named.named = shown
                .map(|mut field| {
                    keep(&mut field.attrs);
                    field
                })
                .collect();
            if named.named.len() < all {
                let hidden: syn::FieldsNamed = parse_quote!({ _hidden: () });
                named.named.extend(hidden.named);
            }
            Fields::Named(named)
        }
        Fields::Unnamed(mut unnamed) => {
            for field in &mut unnamed.unnamed {
                keep(&mut field.attrs);
                if !is_public(&field.vis) {
                    field.vis = Visibility::Inherited;
                    field.ty = parse_quote!(_);
                }
            }
            Fields::Unnamed(unnamed)
        }
        Fields::Unit => Fields::Unit,
    }
}

/// Takes away that a function may change its own arguments.
fn unpatterned(signature: &mut Signature) {
    for argument in &mut signature.inputs {
        match argument {
            FnArg::Receiver(receiver) if receiver.reference.is_none() => receiver.mutability = None,
            FnArg::Typed(argument) => {
                if let Pat::Ident(name) = &mut *argument.pat {
                    name.mutability = None;
                }
            }
            FnArg::Receiver(_) => {}
        }
    }
}

/// Leaves the attributes that users notice.
fn keep(attributes: &mut Vec<Attribute>) {
    let noticed = ["cfg", "deprecated", "derive", "must_use", "non_exhaustive", "repr"];
    attributes.retain(|attribute| noticed.iter().any(|name| attribute.path().is_ident(name)));
}

fn unshown() -> Expr {
    parse_quote!(_)
}

fn empty() -> Block {
    parse_quote!({})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let mut modules = BTreeMap::new();
        gather(syn::parse_str::<File>(text).unwrap().items, Path::new("/"), "it".into(), &mut modules)
            .unwrap();
        rendered(modules)
    }

    #[test]
    fn only_what_others_see_is_in_it() {
        let text = of("
            //! Essay.
            mod inner { pub struct Seen { /// Doc.
                pub a: u8, b: u8 } pub(crate) struct Hidden; impl Hidden { pub fn lost(&self) {} } }
            pub use inner::Seen;
            impl Seen { /// Doc.
                #[must_use] pub fn z(&self) -> u8 { self.b } fn own(&self) {} pub fn a() {} }
            impl Clone for Seen { fn clone(&self) -> Self { *self } }
            impl From<Seen> for u8 { fn from(seen: Seen) -> u8 { 1 } }
            impl Iterator for Hidden { type Item = u8; }
            impl other::Seen for Hidden {}
            pub const N: usize = 7;
            const OWN: usize = 7;
            #[cfg(test)] mod tests { pub fn never() {} }
            #[cfg(feature = \"x\")] pub fn with_x<T: Into<u8>>(t: T) -> impl Iterator<Item = u8> { 1 }
        ");
        for seen in [
            "pub struct Seen {\n    pub a: u8,\n    _hidden: (),\n}",
            "pub use inner::Seen;",
            "#[must_use]",
            "impl Clone for Seen {}",
            "impl From<Seen> for u8 {}",
            "pub const N: usize = _;",
            "#[cfg(feature = \"x\")]",
            "pub fn with_x<T: Into<u8>>(t: T) -> impl Iterator<Item = u8> {}",
            "// it::inner",
        ] {
            assert!(text.contains(seen), "{seen} in {text}");
        }
        for hidden in ["Doc", "own", "Hidden", "lost", "never", "OWN", "Essay", "7"] {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
        assert!(text.find("fn a()") < text.find("fn z("), "in the order of names");
    }

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some((2, "b", "c")));
        assert_eq!(first_difference("a\n", "a\nc\n"), Some((2, "its end", "c")));
    }

    #[test]
    fn a_change_of_a_signature_is_seen() {
        let before = of("pub fn a(x: u8) {}");
        assert_ne!(before, of("pub fn a(x: u16) {}"));
        assert_eq!(before, of("/// Documented now.\npub fn a(x: u8) { drop(x) }"));
        assert_ne!(of("pub enum E { A }"), of("#[non_exhaustive] pub enum E { A }"));
        assert_ne!(of("pub struct S(u8);"), of("pub struct S(pub u8);"));
        assert_ne!(
            of("pub mod a { pub struct S; } pub use a::S;"),
            of("mod a { pub struct S; } pub use a::S;")
        );
        assert_ne!(
            of("pub mod a { pub fn f() {} }"),
            of("#[cfg(feature = \"x\")] pub mod a { pub fn f() {} }")
        );
        assert_eq!(
            of("impl S { pub fn f(mut self, mut a: u8) {} } pub struct S;"),
            of("impl S { pub fn f(self, a: u8) {} } pub struct S;")
        );
        assert_ne!(of("pub trait T { fn f(&self); }"), of("pub trait T { fn f(&self) {} }"));
    }
}
