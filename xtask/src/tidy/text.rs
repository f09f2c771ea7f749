//! Text: lengths, banned words, machine paths, ASCII.

use super::{Finding, Source};

const FILE_LINES_SOFT: usize = 600;
const FILE_LINES_MAX: usize = 900;
/// rustfmt keeps code to this.
const LINE_MAX: usize = 110;
/// Comments, which nothing formats, may run over by a word before that is an error.
const COMMENT_MAX: usize = 120;

/// Words that must not be left behind, put together here so that this file does not hold them.
const BANNED: [(&str, &str); 5] = [
    (concat!("to", "do!"), "unfinished code"),
    (concat!("unimple", "mented!"), "unfinished code"),
    (concat!("db", "g!"), "a debugging aid"),
    (concat!("FIX", "ME"), "an unfinished thought: open an issue instead"),
    (concat!("XX", "X"), "an unfinished thought: open an issue instead"),
];
const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Findings about one file of any kind.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.lines() {
        check_words(source, number, line, &mut findings);
        if !source.path.ends_with(".md") {
            check_line(source, number, line, &mut findings);
        }
    }
    if source.is_rust() {
        findings.extend(check_length(source));
    }
    if source.text.contains('\r') {
        findings.push(Finding::error(source, 1, "lines end with a carriage return"));
    }
    findings
}

fn check_length(source: &Source) -> Option<Finding> {
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        return Some(Finding::error(source, lines, format!("{lines} lines; at most {FILE_LINES_MAX}")));
    }
    let long = lines > FILE_LINES_SOFT;
    long.then(|| Finding::warning(source, lines, format!("{lines} lines; better below {FILE_LINES_SOFT}")))
}

fn check_words(source: &Source, number: usize, line: &str, findings: &mut Vec<Finding>) {
    if source.is_rust() {
        for (word, why) in BANNED.iter().filter(|(word, _)| contains_word(line, word)) {
            findings.push(Finding::error(source, number, format!("{word} is {why}")));
        }
    }
    for path in MACHINE_PATHS.iter().filter(|path| is_machine_path(line, path)) {
        findings.push(Finding::error(source, number, format!("a path of somebody's machine ({path})")));
    }
}

/// Whether the word stands alone: not inside a longer one, as in a template of capital letters.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !inside(before) && !inside(after)
    })
}

/// Whether an absolute path starts like this; a directory of that name inside another path is fine.
fn is_machine_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | '}'))
    })
}

fn check_line(source: &Source, number: usize, line: &str, findings: &mut Vec<Finding>) {
    let length = line.chars().count();
    let is_comment = line.trim_start().starts_with("//");
    let has_link = line.contains("://");
    if is_comment && length > LINE_MAX && length <= COMMENT_MAX {
        findings.push(Finding::warning(source, number, format!("a comment of {length} characters")));
    } else if length > LINE_MAX && !has_link {
        findings.push(Finding::error(source, number, format!("{length} characters; at most {LINE_MAX}")));
    }
    if let Some(odd) = line.chars().find(|c| !c.is_ascii()) {
        findings.push(Finding::error(source, number, format!("{odd:?} is not ASCII: use an escape")));
    }
    if line.contains('\t') && source.is_rust() {
        findings.push(Finding::error(source, number, "a tab: use spaces, or an escape"));
    }
    if line.ends_with([' ', '\t']) {
        findings.push(Finding::error(source, number, "spaces at the end of the line"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, source};
    use super::*;

    fn found(text: &str) -> String {
        messages(&check(&source("crates/a/src/b.rs", text))).join("\n")
    }

    #[test]
    fn each_rule_sees_its_case() {
        assert_eq!(found("//! Fine.\n"), "");
        assert!(found(&format!("{}()", BANNED[0].0)).contains("unfinished code"));
        assert!(found(&format!("// {}: later", BANNED[3].0)).contains("unfinished thought"));
        assert!(found(&format!("let p = \"{}x\";", MACHINE_PATHS[0])).contains("machine"));
        assert!(found("let s = \"\u{e9}\";").contains("not ASCII"));
        assert!(found("let s = 1; ").contains("end of the line"));
        assert!(found(&"x".repeat(111)).contains("at most 110"));
        assert!(found(&format!("// {}", "x".repeat(112))).contains("a comment of"));
        assert!(found(&format!("// {}", "x".repeat(120))).contains("at most 110"));
        assert!(found(&"a\n".repeat(601)).contains("better below"));
        assert!(found(&"a\n".repeat(901)).contains("at most 900"));
    }

    #[test]
    fn words_inside_words_are_fine() {
        assert_eq!(found(&format!("let name = \"temp{}{}\";", BANNED[4].0, BANNED[4].0)), "");
        assert_eq!(found(&format!("let p = \"/mnt{}x\";", MACHINE_PATHS[0])), "");
    }
}
