//! Follows calls of methods: a module uses every file that defines a method it calls, though it imports
//! nothing for that.
//!
//! The type of a receiver is known where it begins with `self`, a parameter, or a variable that is bound to
//! such an expression, and goes on with fields and methods of the crate's types: `self.core.state.inode(nr)`.
//! A type is its declaration: of several with one name, a file means its own, else the one that it imports.
//! References and smart pointers stand for what they point to.
//!
//! What it is not: type inference. Receivers that come from patterns, closures' parameters or generic calls
//! are not followed; neither are methods of traits.

use super::{File, paths};
use std::collections::{BTreeMap, BTreeSet};

/// A type: the file that declares it, and its name.
type Type<'a> = (Option<usize>, &'a str);

/// Pointers that stand for what they point to.
const POINTERS: [&str; 5] = ["Arc", "Box", "Rc", "MutexGuard", "Option"];

/// Modules and the modules whose methods they call.
pub(super) fn calls(files: &[File]) -> BTreeSet<(&[String], &[String])> {
    let crate_ = Crate::of(files);
    let mut found = BTreeSet::new();
    for (at, file) in files.iter().enumerate() {
        for (owner, text) in functions(&file.code) {
            let mut variables = crate_.parameters(at, owner, text);
            let body = text.find("{\n").map_or("", |start| &text[start..]);
            for line in statements(body) {
                for chain in chains(line) {
                    crate_.follow(&variables, &chain, &mut |owner| {
                        if owner != at {
                            found.insert((&file.path[..], &files[owner].path[..]));
                        }
                    });
                }
                if let Some((name, ty)) = crate_.binding(&variables, line) {
                    variables.insert(name, ty);
                }
            }
        }
    }
    found
}

/// What a crate declares.
struct Crate<'a> {
    /// The files that declare a type, by its name.
    declared: BTreeMap<&'a str, Vec<usize>>,
    /// What each file imports, or names, of the crate.
    imports: Vec<Vec<Vec<String>>>,
    files: &'a [File],
    fields: BTreeMap<(Type<'a>, &'a str), Type<'a>>,
    /// The file of a method, and the type it returns.
    methods: BTreeMap<(Type<'a>, &'a str), (usize, Option<Type<'a>>)>,
}

impl<'a> Crate<'a> {
    fn of(files: &'a [File]) -> Self {
        let mut declared: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            for (name, _) in structs(&file.code) {
                declared.entry(name).or_default().push(at);
            }
        }
        let imports = files.iter().map(paths).collect();
        let (fields, methods) = (BTreeMap::new(), BTreeMap::new());
        let mut crate_ = Self { declared, imports, files, fields, methods };
        for (at, file) in files.iter().enumerate() {
            for (name, body) in structs(&file.code) {
                for (field, ty) in typed_names(body) {
                    if let Some(ty) = crate_.pointed_to(at, None, ty) {
                        crate_.fields.insert(((Some(at), name), field), ty);
                    }
                }
            }
            for (owner, text) in functions(&file.code) {
                let (Some(owner), Some(name)) = (owner, function_name(text)) else { continue };
                let ty = crate_.resolve(at, owner);
                let head = text.split("{\n").next().unwrap_or_default();
                let returned =
                    head.split_once("-> ").and_then(|(_, to)| crate_.pointed_to(at, Some(owner), to));
                crate_.methods.insert((ty, name), (at, returned));
            }
        }
        crate_
    }

    /// The type that a name means in a file.
    fn resolve(&self, at: usize, name: &'a str) -> Type<'a> {
        let Some(declared) = self.declared.get(name) else { return (None, name) };
        let is_imported = |file: &&usize| {
            let own = &self.files[**file].path;
            let names =
                |path: &Vec<String>| path.split_last().is_some_and(|(last, m)| last == name && m == own);
            self.imports[at].iter().any(names)
        };
        let own = declared.iter().find(|file| **file == at);
        let found = own.or_else(|| declared.iter().find(is_imported));
        (found.or_else(|| declared.first().filter(|_| declared.len() == 1)).copied(), name)
    }

    /// The type that a type's text leads to, through references and pointers.
    fn pointed_to(&self, at: usize, owner: Option<&'a str>, text: &'a str) -> Option<Type<'a>> {
        let mut words =
            text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '\''))).filter(|word| {
                !word.is_empty()
                    && !word.starts_with('\'')
                    && !matches!(*word, "mut" | "dyn" | "impl" | "std" | "sync")
            });
        let name = words.find(|word| !POINTERS.contains(word))?;
        let name = if name == "Self" { owner? } else { name };
        let known = self.declared.contains_key(name) || Some(name) == owner;
        known.then(|| self.resolve(at, name))
    }

    /// The parameters of a function whose type is known, `self` among them.
    fn parameters(&self, at: usize, owner: Option<&'a str>, text: &'a str) -> BTreeMap<&'a str, Type<'a>> {
        let mut known = BTreeMap::new();
        if let Some(owner) = owner {
            known.insert("self", self.resolve(at, owner));
        }
        let head = text.split("{\n").next().unwrap_or_default();
        let (_, list) = head.split_once('(').unwrap_or_default();
        for (name, ty) in typed_names(list) {
            if let Some(ty) = self.pointed_to(at, owner, ty) {
                known.insert(name, ty);
            }
        }
        known
    }

    /// Follows fields and calls as far as their types are known; `visit` gets the file of every method
    /// called.
    fn follow(
        &self,
        variables: &BTreeMap<&'a str, Type<'a>>,
        chain: &[(&'a str, bool)],
        visit: &mut dyn FnMut(usize),
    ) -> Option<Type<'a>> {
        let ((root, false), rest) = chain.split_first()? else { return None };
        let mut ty = *variables.get(root)?;
        for (name, is_call) in rest {
            ty = if *is_call {
                let (owner, returned) = self.methods.get(&(ty, *name))?;
                visit(*owner);
                (*returned)?
            } else {
                *self.fields.get(&(ty, *name))?
            };
        }
        Some(ty)
    }

    /// The variable that a statement binds to an expression of a known type.
    fn binding(&self, variables: &BTreeMap<&'a str, Type<'a>>, line: &'a str) -> Option<(&'a str, Type<'a>)> {
        let (name, value) = line.trim_start().strip_prefix("let ")?.split_once(" = ")?;
        let value = value.trim_start_matches(['&', '*']);
        let chain = chains(value).into_iter().next()?;
        let whole = value.trim_end().trim_end_matches(['?', ';']);
        let ends = whole.ends_with(chain.last()?.0) && whole.starts_with(chain.first()?.0);
        Some((name.trim_start_matches("mut "), self.follow(variables, &chain, &mut |_| ()).filter(|_| ends)?))
    }
}

/// Statements, more or less: texts up to the end of a line that ends one.
fn statements(body: &str) -> Vec<&str> {
    body.split_inclusive(";\n").flat_map(|text| text.split_inclusive("{\n")).collect()
}

/// Chains of fields and calls (`a.b.c(...)`): names, and whether each is called. Arguments are chains of
/// their own.
fn chains(text: &str) -> Vec<Vec<(&str, bool)>> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(start) = rest.find(is_name) {
        let joined = rest[..start].trim_end().ends_with('.');
        rest = &rest[start..];
        let mut chain = Vec::new();
        let mut at = rest;
        loop {
            let end = at.find(|c| !is_name(c)).unwrap_or(at.len());
            chain.push((&at[..end], at[end..].starts_with('(')));
            at = &at[end..];
            let next = at.trim_start().strip_prefix('.').filter(|next| next.starts_with(is_name));
            let empty_call = at.strip_prefix("()").map(|next| next.strip_prefix('?').unwrap_or(next));
            let after_call = empty_call.and_then(|next| next.trim_start().strip_prefix('.'));
            match next.or(after_call).filter(|next| next.starts_with(is_name)) {
                Some(next) => at = next,
                None => break,
            }
        }
        rest = at;
        if !joined && chain.len() > 1 {
            found.push(chain);
        }
    }
    found
}

/// The structs of a file: name, and fields or nothing.
fn structs(code: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("struct ") {
        let line = code[..at].rsplit('\n').next().unwrap_or_default();
        if !line.is_empty() && !line.starts_with("pub") {
            continue;
        }
        let rest = &code[at + "struct ".len()..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let head = &rest[end..rest.find('\n').unwrap_or(rest.len())];
        let body = if head.ends_with('{') { rest[end..].split("\n}").next().unwrap_or_default() } else { "" };
        found.push((&rest[..end], body));
    }
    found
}

/// `name: Type` in a list of fields or parameters.
fn typed_names(list: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in list.match_indices(": ") {
        let start = list[..at].rfind(|c: char| !(c.is_alphanumeric() || c == '_')).map_or(0, |last| last + 1);
        let ty = &list[at + 2..];
        found.push((&list[start..at], ty.split([',', ')', '\n']).next().unwrap_or_default()));
    }
    found
}

fn function_name(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("fn ")?;
    rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next()
}

/// The functions of a file, with the type that each is a method of; those of traits among them.
fn functions(code: &str) -> Vec<(Option<&str>, &str)> {
    let mut found = Vec::new();
    let mut owner = None;
    let mut starts: Vec<usize> = code.match_indices('\n').map(|(at, _)| at + 1).collect();
    starts.insert(0, 0);
    for start in starts {
        let line = code[start..].split('\n').next().unwrap_or_default();
        if line.starts_with("impl") && line.ends_with('{') {
            owner = Some(type_of_impl(line));
        } else if line.starts_with('}') {
            owner = None;
        }
        let indent = line.len() - line.trim_start().len();
        let is_function =
            line.contains("fn ") && line.trim_start().split("fn ").next().is_some_and(is_prefix);
        if is_function && indent == if owner.is_some() { 4 } else { 0 } {
            let end = format!("\n{}}}", " ".repeat(indent));
            let text = code[start..].split(&end[..]).next().unwrap_or_default();
            found.push((owner, text));
        }
    }
    found
}

/// Whether a line before `fn` holds nothing but what may stand there.
fn is_prefix(text: &str) -> bool {
    text.split_whitespace().all(|word| word.starts_with("pub") || matches!(word, "const" | "async"))
}

fn type_of_impl(line: &str) -> &str {
    let head = line.trim_end_matches('{').trim_end();
    let head = head.rsplit(" for ").next().unwrap_or_default();
    let head = head.strip_prefix("impl").map_or(head, |rest| match rest.strip_prefix('<') {
        Some(rest) => rest.split_once("> ").map_or(rest, |(_, ty)| ty),
        None => rest.trim_start(),
    });
    let head = head.split(['<', ' ']).next().unwrap_or_default();
    head.rsplit("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, code: &str) -> File {
        File { path: path.split('/').map(str::to_owned).collect(), code: code.to_owned() }
    }

    fn calls_of(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files.iter().map(|(path, code)| file(path, code)).collect();
        calls(&files).into_iter().map(|(from, to)| format!("{}>{}", from.join("/"), to.join("/"))).collect()
    }

    const STATE: (&str, &str) = (
        "state",
        "pub(crate) struct State {\n    pub(crate) inodes: Inodes,\n}\n\
         pub(crate) struct Core {\n    pub(crate) state: Arc<State>,\n}\n",
    );
    const SYNC: (&str, &str) = ("state/sync", "impl Core {\n    pub(crate) fn relieve(&self) {\n    }\n}\n");
    const LOAD: (&str, &str) = (
        "state/load",
        "use crate::state::State;\nimpl State {\n    pub(crate) fn inode(&self, nr: u32) {\n    }\n}\n",
    );

    #[test]
    fn receivers_are_followed_by_parameters_fields_and_bindings() {
        let found = calls_of(&[
            STATE,
            SYNC,
            LOAD,
            ("a", "fn f(core: &Core) {\n    core.relieve();\n}\n"),
            ("b", "fn f(x: u32, core: &'a Core) {\n    g(core\n        .state\n        .inode(x));\n}\n"),
            (
                "c",
                "struct View<'a> {\n    core: &'a Core,\n}\nimpl<'a> View<'a> {\n    fn f(&self) {\n        \
                 if self.core.state.inode(7) {\n        }\n    }\n}\n",
            ),
            ("d", "fn f(core: &Core) {\n    let state = &*core.state;\n    state.inode(1);\n}\n"),
            ("e", "fn f(inodes: &Inodes) {\n    inodes.inode(1);\n    relieve();\n}\n"),
        ]);
        assert_eq!(found, ["a>state/sync", "b>state/load", "c>state/load", "d>state/load"]);
    }

    #[test]
    fn methods_that_return_a_type_lead_on() {
        let found = calls_of(&[
            STATE,
            SYNC,
            ("volume", "pub struct Volume {\n}\nimpl Volume {\n    fn core(&self) -> &Core {\n    }\n}\n"),
            ("volume/file", "impl Volume {\n    fn f(&self) {\n        self.core().relieve()\n    }\n}\n"),
        ]);
        assert_eq!(found, ["volume/file>state/sync", "volume/file>volume"]);
    }

    #[test]
    fn of_two_types_of_one_name_the_imported_one_counts() {
        let found = calls_of(&[
            STATE,
            LOAD,
            ("stores/orphans", "pub(crate) struct State {\n}\n"),
            ("stores/more", "use super::orphans::State;\nimpl State {\n    fn inode(&self) {\n    }\n}\n"),
            ("a", "use crate::stores::orphans::State;\nfn f(state: &State) {\n    state.inode();\n}\n"),
            ("b", "use crate::state::State;\nfn f(state: &State) {\n    state.inode();\n}\n"),
        ]);
        assert_eq!(found, ["a>stores/more", "b>state/load"]);
    }
}
