//! Files that the documents name are there: a path that has moved leads nobody to the code.
//!
//! A path is what stands alone between backticks and begins with a directory of the repository
//! (`crates/base/units`), or with that of a crate, without what is before it (`units/src/random.rs`).

use super::{Finding, Source, is_generated};
use hectare_tools::steps::root;

const TOP: [&str; 4] = ["crates/", "docs/", "workshop/", "xtask/"];

/// Findings about all documents.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let there = |path: &str| {
        let full = root().join(path);
        full.exists() || full.ancestors().any(is_generated)
    };
    let ends_one = |path: &str| sources.iter().any(|source| source.path.ends_with(path));
    let is_gone = |path: &str| match TOP.iter().any(|top| path.starts_with(top)) {
        true => !there(path),
        false => is_of_a_crate(path) && !ends_one(path),
    };
    let documents = sources.iter().filter(|source| source.path.ends_with(".md"));
    documents.flat_map(|document| gone(document, &is_gone)).collect()
}

fn gone(document: &Source, is_gone: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let quoted = |line: &'_ str| -> Vec<String> {
        line.split('`').skip(1).step_by(2).filter(|text| is_path(text)).map(str::to_owned).collect()
    };
    let found = document.lines().flat_map(|(number, line)| {
        let paths = quoted(line).into_iter().filter(|path| is_gone(path));
        paths.map(move |path| Finding::error(document, number, format!("there is no {path}")))
    });
    found.collect()
}

fn is_path(text: &str) -> bool {
    text.contains('/') && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
}

fn is_of_a_crate(path: &str) -> bool {
    let folder = path.split('/').nth(1);
    matches!(folder, Some("src" | "tests")) && path.ends_with(".rs")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, source};
    use super::*;

    #[test]
    fn a_path_that_is_gone_is_found_and_nothing_else() {
        let sources = [
            source("crates/base/units/src/random.rs", ""),
            source(
                "docs/a.md",
                "`crates/base/units` has `units/src/random.rs` and `units/src/chance.rs`\n\
                 `xtask/src/gone.rs`, not `ls crates/gone`, `http://crates/x`, `a/b` or `workshop/fuzz/corpus/x`\n",
            ),
        ];
        let expected = ["1: there is no units/src/chance.rs", "2: there is no xtask/src/gone.rs"];
        assert_eq!(messages(&check(&sources)), expected);
    }
}
