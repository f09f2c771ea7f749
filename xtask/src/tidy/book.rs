//! The pages of the book: each page in `docs/` is in its list, `docs/SUMMARY.md`.

use super::{Finding, Severity};
use hectare_tools::steps::root;
use std::fs;
use std::path::Path;

const LIST: &str = "docs/SUMMARY.md";

/// Findings about pages that are not listed.
pub(super) fn check() -> Vec<Finding> {
    let list = fs::read_to_string(root().join(LIST)).unwrap_or_default();
    let mut pages = Vec::new();
    for below in ["", "benchmarks/", "decisions/"] {
        pages.extend(
            pages_in(&root().join("docs").join(below)).into_iter().map(|name| format!("{below}{name}")),
        );
    }
    let missing = pages.into_iter().filter(|page| page != "SUMMARY.md" && !is_listed(&list, page));
    let finding = |page| Finding {
        file: LIST.into(),
        line: 1,
        severity: Severity::Error,
        message: format!("{page} is not in the list of pages"),
    };
    missing.map(finding).collect()
}

fn pages_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".md")).collect()
}

fn is_listed(list: &str, page: &str) -> bool {
    list.contains(&format!("({page})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_listed_by_its_path() {
        let list = "- [A](a.md)\n- [B](benchmarks/b.md)\n";
        assert!(is_listed(list, "a.md") && is_listed(list, "benchmarks/b.md") && !is_listed(list, "b.md"));
    }
}
