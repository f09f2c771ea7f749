//! Modules: each opens with an essay, and each file is part of its crate.
//!
//! A file that no module declares compiles nowhere and rots unseen.

use super::{Finding, Source};
use std::collections::HashMap;

/// Findings about all Rust files.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let texts: HashMap<&str, &str> = sources.iter().map(|s| (s.path.as_str(), s.text.as_str())).collect();
    let rust = sources.iter().filter(|source| source.is_rust());
    rust.flat_map(|source| check_file(source, &texts)).collect()
}

/// Marks the files that a parent declares for tests only, and those below them.
pub(super) fn mark_tests(sources: &mut [Source]) {
    loop {
        let is_declared_for_tests = |source: &Source| {
            let parents = parents(&source.path);
            sources.iter().any(|parent| parents.contains(&parent.path) && declares_for_tests(parent, source))
        };
        let found = sources.iter().position(|source| !source.is_test && is_declared_for_tests(source));
        match found {
            Some(at) => sources[at].is_test = true,
            None => return,
        }
    }
}

fn declares_for_tests(parent: &Source, child: &Source) -> bool {
    let lines: Vec<&str> = parent.text.lines().map(str::trim).collect();
    let guarded = lines.windows(2).any(|two| two[0] == "#[cfg(test)]" && is_declared(two[1], child));
    guarded || (parent.is_test && is_declared(&parent.text, child))
}

fn check_file(source: &Source, texts: &HashMap<&str, &str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let first = source.lines().map(|(_, line)| line).find(|line| !line.trim().is_empty());
    if !first.is_some_and(|line| line.starts_with("//!")) {
        findings.push(Finding::error(source, 1, "the module does not open with a //! essay"));
    }
    // In tests/ there is no other way: a file of another name there is a test of its own.
    if source.name() == "mod.rs" && !source.path.contains("/tests/") {
        findings.push(Finding::error(source, 1, "name the module's file after the module, not mod.rs"));
    }
    let parents = parents(&source.path);
    let declares = |parent: &String| texts.get(parent.as_str()).is_some_and(|t| is_declared(t, source));
    if source.name() != "mod.rs" && !parents.is_empty() && !parents.iter().any(declares) {
        findings.push(Finding::error(
            source,
            1,
            format!("no module declares it (looked in {})", parents.join(", ")),
        ));
    }
    findings
}

/// The files that may declare a file below `src`, or below the directory of a test program; none for the roots of
/// crates and of such programs, and for other directories.
fn parents(path: &str) -> Vec<String> {
    let (root, inner) = match (path.split_once("/src/"), path.split_once("/tests/")) {
        (Some((krate, inner)), _) => (format!("{krate}/src"), inner),
        (None, Some((krate, inner))) => match inner.split_once('/') {
            Some((program, inner)) => (format!("{krate}/tests/{program}"), inner),
            None => return Vec::new(),
        },
        (None, None) => return Vec::new(),
    };
    if inner == "lib.rs" || inner == "main.rs" || (root.ends_with("/src") && inner.starts_with("bin/")) {
        return Vec::new();
    }
    match inner.rsplit_once('/') {
        // The second is wrong too, but that is reported once, for the file itself.
        Some((folder, _)) => vec![format!("{root}/{folder}.rs"), format!("{root}/{folder}/mod.rs")],
        None => vec![format!("{root}/lib.rs"), format!("{root}/main.rs")],
    }
}

fn is_declared(text: &str, child: &Source) -> bool {
    let stem = child.name().trim_end_matches(".rs");
    let declares = |line: &str| {
        let name = line
            .strip_suffix(';')
            .and_then(|line| line.rsplit_once("mod ").filter(|(_, name)| *name == stem));
        name.is_some_and(|(before, _)| {
            before.is_empty() || before.starts_with("pub") || before.starts_with("#[")
        })
    };
    text.lines().any(|line| declares(line.trim()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, source};
    use super::*;

    #[test]
    fn files_below_a_test_module_are_tests() {
        let mut sources = [
            source("crates/a/src/lib.rs", "//! A.\n#[cfg(test)]\nmod image;\nmod real;\n"),
            source("crates/a/src/image.rs", "//! Image.\nmod part;\n"),
            source("crates/a/src/image/part.rs", "//! Part.\n"),
            source("crates/a/src/real.rs", "//! Real.\n"),
        ];
        mark_tests(&mut sources);
        assert_eq!(sources.map(|s| s.is_test), [false, true, true, false]);
    }

    #[test]
    fn essays_orphans_and_names_are_seen() {
        let sources = [
            source("crates/a/src/lib.rs", "//! A.\npub mod b;\n"),
            source("crates/a/src/b.rs", "//! B.\nmod c;\n"),
            source("crates/a/src/b/c.rs", "//! C.\n"),
        ];
        assert!(check(&sources).is_empty());
        let bad = [
            source("crates/a/src/lib.rs", "fn a() {}\n"),
            source("crates/a/src/lost.rs", "//! Lost.\n"),
            source("crates/a/tests/a/main.rs", "//! Tests.\n// mod forgotten;\nmod kept;\n"),
            source("crates/a/tests/a/forgotten.rs", "//! Forgotten.\n"),
            source("crates/a/tests/a/kept.rs", "//! Kept.\n"),
            source("crates/a/src/b/mod.rs", "//! B.\n"),
        ];
        let messages = messages(&check(&bad)).join("\n");
        for text in ["essay", "no module declares it", "not mod.rs"] {
            assert!(messages.contains(text), "{text}: {messages}");
        }
        assert!(
            messages.contains("(looked in crates/a/tests/a/") && !messages.contains("kept"),
            "{messages}"
        );
    }
}
