//! The floors inside a crate: which of its modules may use which (`cargo xtask tidy --layers`).
//!
//! Every crate of more than one module declares its floors ([`declared`]). Errors of `tidy` are an arrow from
//! a lower floor to a higher one, a *circle* (modules that use each other, directly or by way of others), a
//! module on no floor, and a floor of a module that does not exist. The root of a crate is its face, the top
//! floor: what other modules use is not defined there.
//!
//! **Modules** are the files of a crate, a file and its directory being one, but for directories that stand
//! on floors: there each file counts, and it and its parent may use each other. **Arrows** are paths in code
//! (`crate::a::B`, `super::a`, also inside braces, re-exports of the crate's root followed), and calls of
//! methods that a type has in another file ([`methods`]): an import is not needed for those. Tests have none:
//! they may use what they like.
//!
//! What it is not: a compiler. Macros and paths by way of re-exports of inner modules are not followed.

mod declared;
mod methods;

use super::{Finding, Severity, Source};
use declared::{FLOORS, Floors};
use std::collections::{BTreeMap, BTreeSet};

/// The node of a crate's root: no module has a keyword's name.
const ROOT: &str = "crate";

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// What is known of one crate.
struct Krate {
    name: String,
    /// Its directory, from the workspace's.
    folder: String,
    arrows: Arrows,
    modules: BTreeSet<String>,
    floors: Option<Floors>,
}

/// Findings about all crates but the jobs.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in krates(sources).iter().filter(|k| k.folder != "xtask") {
        for message in complaints(krate) {
            let file = format!("{}/src", krate.folder);
            findings.push(Finding { file, line: 1, severity: Severity::Error, message });
        }
    }
    findings
}

fn complaints(krate: &Krate) -> Vec<String> {
    let Some(floors) = krate.floors else {
        let message = "its modules have no floors (xtask/src/tidy/floors/declared.rs)".to_owned();
        return if krate.modules.len() > 1 { vec![message] } else { Vec::new() };
    };
    let declared: BTreeSet<&str> = floors.iter().flat_map(|floor| floor.iter().copied()).collect();
    let lost = declared.iter().filter(|module| !krate.modules.contains(**module));
    let homeless = krate.modules.iter().filter(|module| floor(floors, module).is_none());
    let mut found: Vec<String> =
        lost.map(|m| format!("{m} has a floor, but there is no such module")).collect();
    found.extend(homeless.map(|m| format!("{m} stands on no floor (xtask/src/tidy/floors/declared.rs)")));
    found.extend(upward(krate).into_iter().map(|(from, to)| match to {
        ROOT => format!("{from} uses what the crate's root defines, which is the top floor"),
        _ => format!("{from} uses {to}, which is on a higher floor (xtask/src/tidy/floors/declared.rs)"),
    }));
    found.extend(circles(&krate.arrows).iter().map(|circle| format!("a circle: {}", circle.join(" "))));
    found
}

/// The table that `--layers` prints: one line for each crate.
pub(super) fn table(sources: &[Source]) -> Vec<String> {
    let line = |krate: &Krate| {
        let circles = circles(&krate.arrows);
        let arrows: usize = krate.arrows.values().map(BTreeSet::len).sum();
        let up = if krate.floors.is_some() { upward(krate).len().to_string() } else { "-".to_owned() };
        let mut line = format!(
            "{:12} {:3} modules, {arrows:3} arrows, {up:>2} upward, {} circles",
            krate.name,
            krate.modules.len(),
            circles.len()
        );
        for circle in circles {
            line += &format!("\n    {}: {}", circle.len(), circle.join(" "));
        }
        line
    };
    krates(sources).iter().map(line).collect()
}

/// What lies in `src` of each crate; programs in `src/bin` are crates of one file.
fn krates(sources: &[Source]) -> Vec<Krate> {
    let mut by_crate: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|s| s.is_rust() && s.path.contains("/src/")) {
        let is_code = !source.is_test || source.path.starts_with("workshop/fuzz/");
        if is_code && !source.path.contains("/src/bin/") {
            by_crate.entry(source.crate_folder()).or_default().push(source);
        }
    }
    let floors = |folder: &str| FLOORS.iter().find(|(name, _)| folder.ends_with(&format!("/{name}")));
    let krate = |(folder, sources): (&str, Vec<&Source>)| {
        krate(folder, &sources, floors(folder).map(|(_, floors)| *floors))
    };
    by_crate.into_iter().map(krate).collect()
}

/// A file as far as it is looked at.
struct File {
    /// The names of its module, from the crate's root.
    path: Vec<String>,
    code: String,
}

fn krate(folder: &str, sources: &[&Source], floors: Option<Floors>) -> Krate {
    let files: Vec<File> = sources.iter().map(|source| file(source)).collect();
    let roots: BTreeSet<&str> = files.iter().filter_map(|f| f.path.first().map(String::as_str)).collect();
    let root_code: String = files.iter().filter(|f| f.path.is_empty()).map(|f| f.code.as_str()).collect();
    let (exports, defined) = (exports(&root_code), defined(&root_code));
    let is_split = |first: &str| {
        let mut declared = floors.into_iter().flatten().flat_map(|floor| floor.iter());
        declared.any(|module| module.split("::").next() == Some(first))
    };
    let node = |path: &[String]| match path {
        [] => ROOT.to_owned(),
        [first, second, ..]
            if is_split(first) && files.iter().any(|f| f.path[..] == [first.clone(), second.clone()]) =>
        {
            format!("{first}::{second}")
        }
        [first, ..] => first.clone(),
    };
    let mut arrows = Arrows::new();
    let mut modules = BTreeSet::new();
    for file in files.iter().filter(|file| !file.path.is_empty()) {
        let from = node(&file.path);
        modules.insert(from.clone());
        for mut path in paths(file) {
            let Some(first) = path.first() else { continue };
            if let Some(module) = exports.get(first.as_str()) {
                path.insert(0, (*module).to_owned());
            } else if defined.contains(first.as_str()) {
                path.clear();
            }
            if path.first().is_some_and(|first| !roots.contains(first.as_str())) {
                continue;
            }
            let to = node(&path);
            if !is_family(&from, &to) {
                arrows.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    for (from, to) in methods::calls(&files).into_iter().filter(|(from, _)| !from.is_empty()) {
        let (from, to) = (node(from), node(to));
        if !is_family(&from, &to) {
            arrows.entry(from).or_default().insert(to);
        }
    }
    let name = folder.rsplit('/').next().unwrap_or_default().to_owned();
    Krate { name, folder: folder.to_owned(), arrows, modules, floors }
}

/// Whether one is the other, or its parent: those may use each other.
fn is_family(a: &str, b: &str) -> bool {
    a == b
        || a.strip_prefix(b).is_some_and(|rest| rest.starts_with("::"))
        || b.strip_prefix(a).is_some_and(|rest| rest.starts_with("::"))
}

fn file(source: &Source) -> File {
    let (_, inner) = source.path.split_once("/src/").unwrap_or_default();
    let inner = inner.trim_end_matches(".rs");
    let path = match inner {
        "lib" | "main" => Vec::new(),
        inner => inner.split('/').map(str::to_owned).collect(),
    };
    let lines = source.text.lines().take(source.inline_tests() - 1);
    let code = lines.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    File { path, code }
}

/// What the root re-exports, by name, and from which module.
fn exports(code: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    for statement in code.split(';') {
        let Some((_, path)) = statement.split_once("use ") else { continue };
        let Some((module, names)) = path.trim().trim_start_matches("crate::").split_once("::") else {
            continue;
        };
        for name in names.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|name| !name.is_empty())
        {
            found.insert(name, module);
        }
    }
    found
}

/// What the root defines itself, by name.
fn defined(code: &str) -> BTreeSet<&str> {
    const BEFORE: [&str; 4] = ["pub", "pub(crate)", "async", "unsafe"];
    const KINDS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "static", "const", "fn"];
    let mut found = BTreeSet::new();
    for line in code.lines().filter(|line| !line.starts_with(' ')) {
        let mut words = line.split(' ').skip_while(|word| BEFORE.contains(word)).peekable();
        if words.peek().is_some_and(|word| KINDS.contains(word)) {
            let rest = words.find(|word| !KINDS.contains(word)).unwrap_or_default();
            found.extend(rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next());
        }
    }
    found
}

/// The paths of a file into its crate, from the crate's root.
fn paths(file: &File) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, _) in file.code.match_indices("crate::") {
        if !file.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            follow(&[], &file.code[at + "crate::".len()..], &mut found);
        }
    }
    for (at, _) in file.code.match_indices("super::") {
        if file.code[..at].ends_with("::") || file.path.is_empty() {
            continue;
        }
        let (mut rest, mut base) = (&file.code[at..], &file.path[..]);
        while let Some(inner) = rest.strip_prefix("super::") {
            (rest, base) = (inner, &base[..base.len().saturating_sub(1)]);
        }
        follow(base, rest, &mut found);
    }
    found
}

/// Reads `a::b::{c, d::e}` behind a known beginning.
fn follow(base: &[String], text: &str, found: &mut Vec<Vec<String>>) {
    if let Some(inner) = text.strip_prefix('{') {
        for part in parts(inner) {
            follow(base, part.trim_start(), found);
        }
        return;
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    if end == 0 {
        return;
    }
    let path = [base, &[text[..end].to_owned()]].concat();
    match text[end..].strip_prefix("::") {
        Some(rest) => follow(&path, rest, found),
        None => found.push(path.clone()),
    }
    if text[end..].starts_with("::<") || text[end..].starts_with("::*") {
        found.push(path);
    }
}

/// The parts of a list in braces, up to its end.
fn parts(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&text[start..at]);
                return found;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The floor of a module: its own, else that of its directory; the root's is above all.
fn floor(floors: Floors, module: &str) -> Option<usize> {
    let first = module.split("::").next().unwrap_or_default();
    let find = |name: &str| floors.iter().position(|floor| floor.contains(&name));
    if module == ROOT { Some(floors.len()) } else { find(module).or_else(|| find(first)) }
}

/// Arrows of a crate with floors that point up.
fn upward(krate: &Krate) -> Vec<(&str, &str)> {
    let Some(floors) = krate.floors else { return Vec::new() };
    let pairs = krate.arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (&from[..], &to[..])));
    pairs.filter(|(from, to)| floor(floors, to) > floor(floors, from)).collect()
}

/// Modules that use each other: strongly connected (Tarjan's algorithm, SIAM J. Comput. 1, 1972).
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let mut search = Search { arrows, ..Search::default() };
    for module in arrows.keys() {
        if !search.number.contains_key(module) {
            search.visit(module);
        }
    }
    search.found.retain(|circle| circle.len() > 1);
    search.found
}

struct Search<'a> {
    arrows: &'a Arrows,
    number: BTreeMap<String, usize>,
    low: BTreeMap<String, usize>,
    stack: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Default for Search<'_> {
    fn default() -> Self {
        static NONE: Arrows = Arrows::new();
        Self {
            arrows: &NONE,
            number: BTreeMap::new(),
            low: BTreeMap::new(),
            stack: Vec::new(),
            found: Vec::new(),
        }
    }
}

impl Search<'_> {
    fn visit(&mut self, module: &str) {
        let number = self.number.len();
        self.number.insert(module.to_owned(), number);
        self.low.insert(module.to_owned(), number);
        self.stack.push(module.to_owned());
        for to in self.arrows.get(module).into_iter().flatten() {
            let reached = if !self.number.contains_key(to) {
                self.visit(to);
                self.low[to]
            } else if self.stack.contains(to) {
                self.number[to]
            } else {
                continue;
            };
            let low = self.low[module].min(reached);
            self.low.insert(module.to_owned(), low);
        }
        if self.low[module] == number {
            let start = self.stack.iter().position(|other| other == module).unwrap_or_default();
            let mut circle = self.stack.split_off(start);
            circle.sort();
            self.found.push(circle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    fn krate_of(files: &[(&str, &str)], floors: Option<Floors>) -> Krate {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| source(&format!("crates/x/src/{path}.rs"), text)).collect();
        krate("crates/x", &sources.iter().collect::<Vec<_>>(), floors)
    }

    fn complaints_about(files: &[(&str, &str)], floors: Floors) -> Vec<String> {
        complaints(&krate_of(files, Some(floors)))
    }

    #[test]
    fn paths_and_methods_are_arrows() {
        let files = [
            ("lib", "mod a;\nmod b;\nmod c;\nmod d;\npub use d::Shown;\n"),
            ("a", "use crate::{b::{self, X}, c::Y};\nuse crate::Shown;\n"),
            ("b", "// crate::a::Z\n#[cfg(test)]\nmod tests {\n use crate::c::Q;\n}\n"),
            ("c", "\nimpl Big {\n    fn one(&self) {\n        self.two(1)\n    }\n}\n"),
            ("d", "\nimpl<T> Big {\n    pub fn two(&self) {}\n}\nuse super::b;\n"),
            ("d/inner", "use super::super::a;\nuse super::Own;\n"),
        ];
        let arrows = krate_of(&files, None).arrows;
        let pairs = arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| format!("{from}>{to}")));
        assert_eq!(pairs.collect::<Vec<_>>(), ["a>b", "a>c", "a>d", "c>d", "d>a", "d>b"]);
    }

    #[test]
    fn an_arrow_to_a_higher_floor_is_an_error() {
        const FLOORS: Floors = &[&["history"], &["report"], &["shared"]];
        let found = |report: &str| {
            let files = [("history", ""), ("report", report), ("shared", "use crate::report::Report;\n")];
            complaints_about(&files, FLOORS)
        };
        assert!(found("use crate::history::Sample;\n").is_empty());
        let upward = found("use crate::shared::Shared;\n");
        assert!(upward[0].starts_with("report uses shared, which is on a higher floor"), "{upward:?}");
    }

    #[test]
    fn a_file_may_stand_on_another_floor_than_its_directory() {
        const FLOORS: Floors = &[&["quota"], &["inode"], &["quota::changes"]];
        let found = |changes, edit| {
            let files = [("inode", ""), ("quota", ""), ("quota/changes", changes), ("quota/edit", edit)];
            complaints_about(&files, FLOORS)
        };
        assert!(found("use crate::inode::Inode;\n", "use super::Kind;\n").is_empty());
        assert_eq!(found("", "use crate::inode::Inode;\n").len(), 1);
        assert_eq!(found("", "use super::changes::Changes;\n").len(), 1);
    }

    #[test]
    fn a_call_of_a_method_on_a_higher_floor_is_an_error() {
        const FLOORS: Floors = &[&["state"], &["data"], &["volume"]];
        let state = "pub(crate) struct State {\n}\nimpl State {\n    pub(crate) fn now(&self) {\n    }\n}\n";
        let volume = "pub struct Volume {\n}\nimpl Volume {\n    pub fn sync(&self) {\n    }\n}\n";
        let found = |call: &str| {
            let read = format!("fn read(state: &State, volume: &Volume) {{\n    {call};\n}}\n");
            complaints_about(
                &[("data", ""), ("state", state), ("volume", volume), ("data/read", &read)],
                FLOORS,
            )
        };
        assert!(found("state.now()").is_empty());
        let upward = found("volume.sync()");
        assert_eq!(upward.len(), 1);
        assert!(upward[0].starts_with("data::read uses volume, which is on a higher floor"), "{upward:?}");
    }

    #[test]
    fn what_the_root_defines_is_above_all_floors() {
        let found = |root: &str, module: &str| complaints_about(&[("lib", root), ("a", module)], &[&["a"]]);
        let roots = ["pub struct Error;\n", "pub(crate) const fn Error() {}\n", "type Error<T> = T;\n"];
        for root in roots {
            for module in ["use crate::{Error, a};\n", "use super::Error;\n"] {
                let message = "a uses what the crate's root defines, which is the top floor";
                assert_eq!(found(root, module), [message], "{root} {module}");
            }
        }
        let method = "pub struct Set {\n}\nimpl Set {\n    fn all(&self) {\n    }\n}\n";
        assert_eq!(found(method, "fn f(set: &Set) {\n    set.all();\n}\n").len(), 1);
        assert!(found("mod a;\npub use a::Error;\n", "use crate::Error;\n").is_empty());
        assert!(
            found("use std::fmt;\nfn inner() {\n    struct Error;\n}\n", "use crate::Error;\n").is_empty()
        );
    }

    #[test]
    fn every_module_stands_on_a_floor_and_every_floor_has_modules() {
        let files = [("lib", ""), ("a", ""), ("b", ""), ("b/inner", "")];
        assert!(complaints_about(&files, &[&["a"], &["b"]]).is_empty());
        assert!(complaints_about(&files, &[&["a", "b"], &["b::inner"]]).is_empty());
        let found = complaints_about(&files, &[&["a"]]);
        assert!(matches!(&found[..], [one] if one.starts_with("b stands on no floor")), "{found:?}");
        let found = complaints_about(&files, &[&["a", "b"], &["c", "b::gone"]]);
        let lost = [
            "b::gone has a floor, but there is no such module",
            "c has a floor, but there is no such module",
        ];
        assert_eq!(found, lost);
    }

    #[test]
    fn a_crate_of_several_modules_has_floors() {
        let without = |files| complaints(&krate_of(files, None)).len();
        assert_eq!(without(&[("lib", "mod a;\nmod b;\n"), ("a", ""), ("b", "")]), 1);
        assert_eq!(without(&[("lib", "mod a;\n"), ("a", "")]), 0);
        let sources = |krate: &str| ["a", "b"].map(|name| source(&format!("{krate}/src/{name}.rs"), ""));
        assert_eq!(check(&sources("crates/base/x")).len(), 1);
        assert_eq!(check(&sources("workshop/x")).len(), 1);
        assert!(check(&sources("xtask")).is_empty());
    }

    #[test]
    fn a_circle_on_one_floor_is_an_error() {
        let files = [("a", "use crate::b::X;\n"), ("b", "use crate::c::X;\n"), ("c", "use crate::a::X;\n")];
        assert_eq!(complaints_about(&files, &[&["a", "b", "c"]]), ["a circle: a b c"]);
    }

    #[test]
    fn circles_are_found_whole() {
        let arrow = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|t| (*t).to_owned()).collect());
        let arrows: Arrows =
            [arrow("a", &["b"]), arrow("b", &["c", "d"]), arrow("c", &["a"]), arrow("d", &["e"])].into();
        assert_eq!(circles(&arrows), [["a", "b", "c"]]);
    }
}
