//! The floors inside a crate: which of its modules may use which (`cargo xtask tidy --layers`).
//!
//! A crate with declared floors ([`FLOORS`]) has no arrow from a lower floor to a higher one; that is an
//! error of `tidy`. For every crate the job counts *circles*: modules that use each other, directly or by way
//! of others.
//!
//! **Modules** are the files of a crate, a file and its directory being one, but for directories that are a
//! floor of their own: there each file counts. **Arrows** are paths in code (`crate::a::B`, `super::a`, also
//! inside braces, re-exports of the crate's root followed), and calls of methods that a type has in another
//! file ([`methods`]): an import is not needed for those. Tests have none: they may use what they like.
//!
//! What it is not: a compiler. Macros and paths by way of re-exports of inner modules are not followed.

mod methods;

use super::{Finding, Severity, Source};
use std::collections::{BTreeMap, BTreeSet};

/// The floors of a crate, from the lowest: modules by their first name. What is listed in none may be used by all,
/// and uses nothing that is listed.
const FLOORS: [(&str, &[&[&str]]); 14] = [
    (
        "alloc",
        &[
            &["bits", "contention", "error", "layout", "mechanism", "normalize", "ranges", "release_epoch"],
            &["request", "source", "stats"],
            &["buddy", "counters", "index", "policy"],
            &["budget", "criteria", "group", "size_class"],
            &["group_info", "trace", "tunables"],
            &["group_table"],
            &["state"],
            &["invariants", "share"],
            &["locked_group"],
            &["reservation"],
            &["groups"],
            &["search"],
            &["allocator"],
            &["bench_support", "discard", "prealloc"],
        ],
    ),
    (
        "check",
        &[
            &["bits", "raw_inode", "records", "report"],
            &["late_times", "names", "threads"],
            &["context"],
            &["blocks", "content", "parts"],
            &["attributes", "bitmaps", "groups", "htree", "links", "map"],
            &["unread"],
            &["directory", "reserved_inodes", "symlink"],
            &["inodes", "quotas"],
            &["external_journal"],
            &["steps"],
        ],
    ),
    (
        "hectare-cli",
        &[
            &[
                "batch",
                "clock",
                "failure",
                "markup",
                "mount_helper",
                "name",
                "passwd",
                "progress",
                "size_arg",
            ],
            &["os"],
            &["remote", "store", "store_absent", "umask"],
            &[
                "dumpe2fs",
                "entry",
                "image_path",
                "journal_search",
                "memory",
                "output",
                "partition_args",
                "picture",
                "reporter",
                "reproducible",
            ],
            &["explanation", "image_device", "new_disk", "version"],
            &["logical"],
            &["disk_format", "write_args"],
            &["image"],
            &["directory", "free_extents", "walk"],
            &["copy", "map"],
            &["command"],
        ],
    ),
    (
        "device",
        &[
            &["scratch", "span"],
            &["error", "extent"],
            &["device", "request"],
            &["file", "layer", "memory", "pending", "portable"],
            &["crash", "dax", "sparse"],
        ],
    ),
    (
        "engine",
        &[
            &["caller", "clock", "encrypted_names", "error", "immutable", "observer", "options"],
            &["stores"],
            &["state"],
            &["space"],
            &["data"],
            &["attributes"],
            &["names"],
            &["open"],
            &["volume"],
        ],
    ),
    (
        "export",
        &[
            &["digest", "error", "file", "names", "zstd_frames"],
            &["compression", "tar", "tree"],
            &["content", "walk"],
            &["entries", "links"],
            &["compare"],
            &["export"],
            &["oci"],
        ],
    ),
    (
        "fuse",
        &[
            &["adaptive_polling", "errno", "fd_passing", "loops", "root", "shutdown"],
            &["mountinfo", "options", "protocol", "request_stats"],
            &["auto_commit", "event_loop", "node_table", "remount"],
            &["attr", "mount", "sandbox"],
            &["adapter", "privileged_helper", "unmount"],
            &["client", "null"],
            &["session"],
        ],
    ),
    ("host", &[&["fakeroot"], &["beneath", "stat"], &["folder", "walk"]]),
    (
        "journal",
        &[
            &["commit_batching", "format", "lock_order"],
            &["commit_latency", "credits", "recovery"],
            &["barrier", "log"],
            &["checkpoint", "handle", "transaction"],
            &["journal"],
        ],
    ),
    ("mkfs", &[&["error", "progress"], &["occupied", "values", "write"], &["executor"], &["ext4"], &["xfs"]]),
    (
        "monitor",
        &[
            &["deadline", "history", "page", "survey", "watched"],
            &["report"],
            &["prometheus"],
            &["shared"],
            &["moves"],
            &["control", "http"],
            &["monitor"],
        ],
    ),
    (
        "oracle",
        &[
            &["locks", "prometheus", "superblock"],
            &["compare", "corpus", "stored"],
            &["fsck", "loops", "trees"],
            &["browser", "e2fsprogs", "fixtures", "mount"],
            &["feature_matrix"],
            &["filled"],
        ],
    ),
    (
        "populate",
        &[
            &["error", "progress", "time"],
            &["handle", "image_error"],
            &["like", "tree"],
            &["layout", "source"],
            &["on_demand"],
            &["write"],
            &["image"],
        ],
    ),
    (
        "xfs",
        &[&["checksum", "feature", "raw"], &["volume"], &["btree", "group", "inode", "log", "superblock"]],
    ),
];

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// What is known of one crate.
struct Krate {
    name: String,
    /// Its directory, from the workspace's.
    folder: String,
    arrows: Arrows,
    modules: usize,
}

/// Findings: arrows that point up.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in krates(sources) {
        for (from, to) in upward(&krate) {
            let file = format!("{}/src", krate.folder);
            let message = format!("{from} uses {to}, which is on a higher floor (xtask/src/tidy/floors.rs)");
            findings.push(Finding { file, line: 1, severity: Severity::Error, message });
        }
    }
    findings
}

/// The table that `--layers` prints: one line for each crate.
pub(super) fn table(sources: &[Source]) -> Vec<String> {
    let line = |krate: &Krate| {
        let circles: Vec<Vec<String>> = circles(&krate.arrows).into_iter().filter(|c| c.len() > 1).collect();
        let arrows: usize = krate.arrows.values().map(BTreeSet::len).sum();
        let floors = FLOORS.iter().any(|(name, _)| *name == krate.name);
        let up = if floors { upward(krate).len().to_string() } else { "-".to_owned() };
        let mut line = format!(
            "{:12} {:3} modules, {arrows:3} arrows, {up:>2} upward, {} circles",
            krate.name,
            krate.modules,
            circles.len()
        );
        for circle in circles {
            line += &format!("\n    {}: {}", circle.len(), circle.join(" "));
        }
        line
    };
    krates(sources).iter().map(line).collect()
}

fn krates(sources: &[Source]) -> Vec<Krate> {
    let mut by_crate: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|s| s.is_rust() && !s.is_test && s.path.contains("/src/")) {
        by_crate.entry(source.crate_folder()).or_default().push(source);
    }
    by_crate.into_iter().map(|(folder, sources)| krate(folder, &sources)).collect()
}

/// A file as far as it is looked at.
struct File {
    /// The names of its module, from the crate's root.
    path: Vec<String>,
    code: String,
}

fn krate(folder: &str, sources: &[&Source]) -> Krate {
    let name = folder.rsplit('/').next().unwrap_or_default();
    let files: Vec<File> = sources.iter().map(|source| file(source)).collect();
    let roots: BTreeSet<&str> = files.iter().filter_map(|f| f.path.first().map(String::as_str)).collect();
    let root_code: String = files.iter().filter(|f| f.path.is_empty()).map(|f| f.code.as_str()).collect();
    let exports = exports(&root_code);
    let floors = FLOORS.iter().find(|(krate, _)| *krate == name).map_or(&[][..], |(_, floors)| floors);
    let is_split = |first: &str| floors.iter().flat_map(|floor| floor.iter()).any(|module| *module == first);
    let node = |path: &[String]| match path {
        [] => None,
        [first, second, ..]
            if is_split(first) && files.iter().any(|f| f.path[..] == [first.clone(), second.clone()]) =>
        {
            Some(format!("{first}::{second}"))
        }
        [first, ..] => Some(first.clone()),
    };
    let mut arrows = Arrows::new();
    let mut modules = BTreeSet::new();
    for file in files.iter().filter(|file| !file.path.is_empty()) {
        let Some(from) = node(&file.path) else { continue };
        modules.insert(from.clone());
        for mut path in paths(file) {
            if let Some(module) = path.first().and_then(|first| exports.get(first.as_str())) {
                path.insert(0, (*module).to_owned());
            }
            if path.first().is_none_or(|first| !roots.contains(first.as_str())) {
                continue;
            }
            if let Some(to) = node(&path).filter(|to| !is_family(&from, to)) {
                arrows.entry(from.clone()).or_default().insert(to);
            }
        }
    }
    for (from, to) in methods::calls(&files) {
        if let (Some(from), Some(to)) = (node(from), node(to))
            && !is_family(&from, &to)
        {
            arrows.entry(from).or_default().insert(to);
        }
    }
    Krate { name: name.to_owned(), folder: folder.to_owned(), arrows, modules: modules.len() }
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
    let lines = source.text.lines().take(source.first_test_line() - 1);
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

/// Arrows of a crate with floors that point up.
fn upward(krate: &Krate) -> Vec<(String, String)> {
    let Some((_, floors)) = FLOORS.iter().find(|(name, _)| *name == krate.name) else { return Vec::new() };
    let floor = |module: &str| {
        let first = module.split("::").next().unwrap_or_default();
        floors.iter().position(|floor| floor.contains(&module) || floor.contains(&first))
    };
    let pairs = krate.arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let is_up = |(from, to): &(&String, &String)| floor(to) > floor(from);
    pairs.filter(is_up).map(|(from, to)| (from.clone(), to.clone())).collect()
}

/// Strongly connected modules (Tarjan's algorithm, SIAM J. Comput. 1, 1972).
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let mut search = Search { arrows, ..Search::default() };
    for module in arrows.keys() {
        if !search.number.contains_key(module) {
            search.visit(module);
        }
    }
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

    fn arrows_of(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| source(&format!("crates/x/src/{path}.rs"), text)).collect();
        let krate = krate("x", &sources.iter().collect::<Vec<_>>());
        let pairs =
            krate.arrows.iter().flat_map(|(from, all)| all.iter().map(move |to| format!("{from}>{to}")));
        pairs.collect()
    }

    #[test]
    fn paths_and_methods_are_arrows() {
        let found = arrows_of(&[
            ("lib", "mod a;\nmod b;\nmod c;\nmod d;\npub use d::Shown;\n"),
            ("a", "use crate::{b::{self, X}, c::Y};\nuse crate::Shown;\n"),
            ("b", "// crate::a::Z\n#[cfg(test)]\nmod tests {\n use crate::c::Q;\n}\n"),
            ("c", "\nimpl Big {\n    fn one(&self) {\n        self.two(1)\n    }\n}\n"),
            ("d", "\nimpl<T> Big {\n    pub fn two(&self) {}\n}\nuse super::b;\n"),
            ("d/inner", "use super::super::a;\nuse super::Own;\n"),
        ]);
        assert_eq!(found, ["a>b", "a>c", "a>d", "c>d", "d>a", "d>b"]);
    }

    #[test]
    fn an_arrow_to_a_higher_floor_is_an_error() {
        let found = |report: &str| {
            let files = [("report", report), ("shared", "use crate::report::Report;\n")];
            let sources =
                files.map(|(name, text)| source(&format!("crates/mount/monitor/src/{name}.rs"), text));
            check(&sources).into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert!(found("use crate::history::Sample;\n").is_empty());
        let upward = found("use crate::shared::Shared;\n");
        assert_eq!(upward.len(), 1);
        assert!(upward[0].starts_with("report uses shared, which is on a higher floor"), "{upward:?}");
    }

    #[test]
    fn a_call_of_a_method_on_a_higher_floor_is_an_error() {
        let state = "pub(crate) struct State {\n}\nimpl State {\n    pub(crate) fn now(&self) {\n    }\n}\n";
        let found = |call: &str| {
            let volume = "pub struct Volume {\n}\nimpl Volume {\n    pub fn sync(&self) {\n    }\n}\n";
            let read = format!("fn read(state: &State, volume: &Volume) {{\n    {call};\n}}\n");
            let files = [("state", state), ("volume", volume), ("data/read", &read)];
            let sources =
                files.map(|(name, text)| source(&format!("crates/core/engine/src/{name}.rs"), text));
            check(&sources).into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert!(found("state.now()").is_empty());
        let upward = found("volume.sync()");
        assert_eq!(upward.len(), 1);
        assert!(upward[0].starts_with("data::read uses volume, which is on a higher floor"), "{upward:?}");
    }

    #[test]
    fn circles_are_found_whole() {
        let arrow = |from: &str, to: &[&str]| (from.to_owned(), to.iter().map(|t| (*t).to_owned()).collect());
        let arrows: Arrows =
            [arrow("a", &["b"]), arrow("b", &["c", "d"]), arrow("c", &["a"]), arrow("d", &["e"])].into();
        let mut found: Vec<Vec<String>> = circles(&arrows).into_iter().filter(|c| c.len() > 1).collect();
        found.sort();
        assert_eq!(found, [["a", "b", "c"]]);
    }
}
