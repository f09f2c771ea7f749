//! The history from [`START`] on: the form of each commit.
//!
//! A commit is one change. Its subject is `area: what changes` (an imperative, which can't be checked), has at most 72
//! characters, and names the change, not the occasion; its body says why. Merges are not looked at.
//!
//! Without git, or in a clone too shallow to have the start, nothing can be checked, which is a warning.

use super::{Finding, Severity};
use hectare_tools::steps::{quiet, root};
use std::process::Command;

/// The last commit before the rule.
const START: &str = "8e80f391";
const SUBJECT_MAX: usize = 72;
/// Subjects that name an occasion.
const OCCASIONS: [&str; 5] = ["review", "tidy", "fix review", "cleanup", "wip"];

/// Findings about the commits since the start.
pub(super) fn check() -> Vec<Finding> {
    let range = format!("{START}..HEAD");
    let mut git = Command::new("git");
    git.current_dir(root()).args(["log", "--no-merges", "--format=%h%x1f%s%x1f%b%x1e", &range]);
    let Some(log) = quiet(&mut git) else {
        let message = format!("not checked: no git, or a clone without {START}, where the rule begins");
        return vec![Finding { file: "commits".to_owned(), line: 1, severity: Severity::Warning, message }];
    };
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    log.split('\u{1e}').filter(|commit| !commit.trim().is_empty()).flat_map(check_commit).collect()
}

fn check_commit(commit: &str) -> Vec<Finding> {
    let mut parts = commit.trim_start().splitn(3, '\u{1f}');
    let mut part = || parts.next().unwrap_or_default();
    let (id, subject, body) = (part(), part(), part());
    let mut faults = Vec::new();
    if subject.chars().count() > SUBJECT_MAX {
        faults.push(format!("a subject of {} characters; at most {SUBJECT_MAX}", subject.chars().count()));
    }
    let (area, change) = subject.split_once(": ").unwrap_or_default();
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/., ".contains(c);
    if area.is_empty() || !area.chars().all(is_area) || subject.ends_with('.') {
        faults.push("a subject is `area: what changes`, without a full stop".to_owned());
    }
    let lower = change.to_lowercase();
    if OCCASIONS.iter().any(|occasion| lower == *occasion || lower.starts_with(&format!("{occasion} the"))) {
        faults.push("a subject says what changes".to_owned());
    }
    if body.trim().is_empty() {
        faults.push("a body that says why is missing".to_owned());
    }
    let finding = |message| Finding {
        file: format!("commit {id}"),
        line: 1,
        severity: Severity::Error,
        message: format!("{message}: git commit --amend, or git rebase -i"),
    };
    faults.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(subject: &str, body: &str) -> usize {
        check_commit(&format!("\nabc\u{1f}{subject}\u{1f}{body}\n")).len()
    }

    #[test]
    fn each_fault_of_a_commit_is_found() {
        assert_eq!(faults("alloc: count waits as contention", "They are.\n"), 0);
        assert_eq!(faults(&format!("alloc: {}", "a".repeat(73)), "Why."), 1);
        assert_eq!(faults("alloc: count waits.", "Why."), 1);
        assert_eq!(faults("engine: review", "Why."), 1);
        assert_eq!(faults("Count waits", "Why."), 1);
        assert_eq!(faults("alloc: tidy the allocator", " \n"), 2);
    }
}
