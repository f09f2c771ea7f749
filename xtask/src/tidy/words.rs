//! The field's language: turns of phrase that stand for a word which every reader knows.
//!
//! Comments, messages (string literals of more than one word) and Markdown are checked: people who don't know
//! this tree read them. `docs/glossary.md` has the words to use. A finding is a warning, since such a word is
//! the right one now and then.
//!
//! Not checked: names in code, and the glossary itself, which has both columns.

use super::{Finding, Source};

/// Words in sequence, and what to write.
const TURNS: &[(&[&str], &str)] = &[
    (&["told"], "reported, returned or printed"),
    (&["tells"], "reports, returns or prints"),
    (&["whoever"], "the server, the caller, the opener"),
    (&["somebody"], "a process, a user, another thread"),
    (&["folder"], "directory"),
    (&["folders"], "directories"),
    (&["gathers"], "buffers"),
    (&["gathered"], "buffered"),
    (&["gathering"], "buffering"),
    (&["in", "vain"], "without success"),
    (&["goes", "on"], "continues"),
    (&["go", "on"], "continue"),
    (&["of", "itself"], "by itself, or leave it out"),
    (&["cut", "up"], "fragmented"),
    (&["cut", "short"], "truncated"),
    (&["dealt", "with"], "processed, cleaned up"),
    (&["for", "who"], "for users who"),
    (&["has", "it"], "as specified by"),
    (&["so", "many"], "N"),
    (&["is", "said"], "is reported"),
    (&["said", "so"], "reported"),
    (&["lets", "go", "of"], "releases"),
    (&["taken", "back"], "undone, released"),
    (&["things", "are"], "the state is"),
];

/// Verbs that make "who ..." a person where the field has a noun.
const VERBS: [&str; 22] = [
    "asks", "begins", "calls", "can", "comes", "does", "gives", "has", "holds", "is", "looks", "makes",
    "may", "must", "needs", "opens", "reads", "serves", "takes", "waits", "wants", "writes",
];

/// Findings about the language of one file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let is_markdown = source.path.ends_with(".md");
    if !(is_markdown || source.is_rust()) || source.path == "docs/glossary.md" || source.name() == "words.rs"
    {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in source.lines() {
        for text in if is_markdown { vec![line] } else { texts(line) } {
            findings.extend(turns(text).into_iter().map(|message| Finding::warning(source, number, message)));
        }
    }
    findings
}

/// The number of lines with such a turn.
pub(super) fn count(findings: &[Finding]) -> usize {
    let mut lines: Vec<_> =
        findings.iter().filter(|f| f.message.starts_with(MARK)).map(|f| (&f.file, f.line)).collect();
    lines.dedup();
    lines.len()
}

const MARK: &str = "wording: ";

/// What people read of a line of code: its comment, or its string literals of more than one word.
fn texts(line: &str) -> Vec<&str> {
    if let Some(comment) = line.trim_start().strip_prefix("//") {
        return vec![comment];
    }
    let (code, comment) = match line.split_once(" // ") {
        Some((code, comment)) => (code, Some(comment)),
        None => (line, None),
    };
    let literals = code.split('"').skip(1).step_by(2).filter(|literal| literal.contains(' '));
    literals.chain(comment).collect()
}

fn turns(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let is_letter = |c: char| c.is_alphanumeric() || c == '_' || c == '\'';
    let words: Vec<&str> = lower.split(|c| !is_letter(c)).filter(|word| !word.is_empty()).collect();
    let has = |turn: &[&str]| words.windows(turn.len()).any(|window| window == turn);
    let mut found: Vec<String> = TURNS
        .iter()
        .filter(|(turn, _)| has(turn))
        .map(|(turn, better)| format!("{MARK}\"{}\": {better}", turn.join(" ")))
        .collect();
    if words.windows(2).any(|pair| pair[0] == "who" && VERBS.contains(&pair[1])) {
        found.push(format!("{MARK}\"who ...\": a noun, such as the caller, the writer"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, source};
    use super::*;

    fn found(path: &str, text: &str) -> String {
        messages(&check(&source(path, text))).join("\n")
    }

    #[test]
    fn each_turn_is_seen_where_people_read() {
        for text in
            ["// It is told.", "let a = 1; // Who writes it", "fail(\"the folder x\");", "/// In vain."]
        {
            assert!(found("crates/a/src/b.rs", text).contains(MARK), "{text}");
        }
        assert!(found("docs/a.md", "Whoever reads").contains("the server"));
    }

    #[test]
    fn names_in_code_and_longer_words_are_fine() {
        for text in ["let told = folder();", "// The retold story.", "\"folder\"", "// Users who ask."] {
            assert_eq!(found("crates/a/src/b.rs", text), "", "{text}");
        }
        assert_eq!(found("docs/glossary.md", "told"), "");
    }

    #[test]
    fn a_line_counts_once() {
        let findings = check(&source("crates/a/src/b.rs", "// Told and gathered.\n// Whoever.\n"));
        assert_eq!((findings.len(), count(&findings)), (3, 2));
    }
}
