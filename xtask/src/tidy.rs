//! Checks of the repository itself, as a job (`cargo xtask tidy`) and as a test.
//!
//! | rule | why |
//! |---|---|
//! | a crate depends on lower layers only; no layer depends on the oracle but in tests | [`mod@layers`] |
//! | inside a crate no module uses one of a higher floor, and none use each other in a circle | [`floors`] |
//! | core crates use no async runtime, no clap, no anyhow | a library decides none of these for its user |
//! | a module opens with a `//!` essay, is declared by its parent, is not called `mod.rs` | [`modules`] |
//! | a file has at most 900 lines (a warning from 600), a line 110 characters | [`text`] |
//! | no banned words, no path of a developer's machine, ASCII in sources | [`text`] |
//! | `unsafe` in the device and fuse crates and the bindings only; no unexplained unwrapping | [`code`] |
//! | locks of the standard library in `sync.rs` only, so that schedules can be tested | [`code`] |
//! | dependencies have an allowed licence and source, none is banned (`deny.toml`) | [`supply`] |
//! | the public interface is that of its snapshot | [`crate::api`] |
//! | a reader links little | [`crate::features`] |
//! | what is published can be packaged | [`crate::published`] |
//! | the changelog has its form | [`changelog`] |
//! | files that documents name are there | [`paths`] |
//! | commits have a short subject and a body | [`history`] |
//! | the field's words in comments, messages and docs (a warning) | [`words`], `docs/glossary.md` |
//!
//! Findings print as `file:line: message`. Warnings do not fail.

mod book;
mod changelog;
mod code;
mod floors;
mod history;
pub(crate) mod layers;
mod modules;
mod paths;
mod supply;
mod text;
mod words;

use hectare_tools::steps::root;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Whether a finding fails the check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Severity {
    Error,
    Warning,
}

/// One violation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    file: String,
    line: usize,
    severity: Severity,
    message: String,
}

impl Finding {
    fn error(source: &Source, line: usize, message: impl Into<String>) -> Self {
        Self { file: source.path.clone(), line, severity: Severity::Error, message: message.into() }
    }

    fn warning(source: &Source, line: usize, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(source, line, message) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warning = if self.severity == Severity::Warning { "warning: " } else { "" };
        write!(f, "{}:{}: {warning}{}", self.file, self.line, self.message)
    }
}

/// A text file of the repository.
struct Source {
    /// Relative to the workspace's directory, with slashes.
    path: String,
    text: String,
    /// Whether it is compiled for tests only.
    is_test: bool,
}

impl Source {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let folders = ["/tests/", "/benches/", "workshop/fuzz/"];
        let is_test = folders.iter().any(|f| path.contains(f)) || path.ends_with("tests.rs");
        Self { path, text, is_test }
    }

    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The crate's directory: "crates/base/units" of "crates/base/units/src/lib.rs".
    fn crate_folder(&self) -> &str {
        let inner = ["/src/", "/tests/", "/benches/", "/examples/"];
        let end = inner.iter().filter_map(|folder| self.path.find(folder)).min();
        &self.path[..end.unwrap_or(0)]
    }

    /// The name of the crate's directory: "units" of "crates/base/units/src/lib.rs".
    fn crate_name(&self) -> &str {
        self.crate_folder().rsplit('/').next().unwrap_or_default()
    }

    /// Lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(i, line)| (i + 1, line))
    }

    /// The first line of test code: 1 in a test file, after the last line in a file without tests.
    fn first_test_line(&self) -> usize {
        if self.is_test { 1 } else { self.inline_tests() }
    }

    /// The first line of an inline test module, else the line after the last.
    fn inline_tests(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let opens = |i: usize| lines[i].trim() == "#[cfg(test)]" && is_inline_module(&lines[i + 1..]);
        (0..lines.len()).find(|i| opens(*i)).unwrap_or(lines.len()) + 1
    }
}

fn is_inline_module(lines: &[&str]) -> bool {
    let item = lines.iter().find(|line| !line.trim_start().starts_with("#["));
    let inline =
        |line: &str| line.trim_start_matches("pub(super) ").starts_with("mod ") && line.ends_with('{');
    item.is_some_and(|line| inline(line.trim()))
}

/// Prints, for each crate, its modules, the arrows between them, those that point up, and the circles.
pub(crate) fn layers() -> bool {
    floors::table(&sources()).iter().for_each(|line| println!("{line}"));
    true
}

/// Checks the repository and prints the findings; returns whether there is no error.
pub(crate) fn run() -> bool {
    let findings = findings();
    for finding in &findings {
        println!("{finding}");
    }
    for line in layers::budget() {
        println!("{line}");
    }
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    println!("tidy: {} lines with turns that the glossary has a word for", words::count(&findings));
    println!("tidy: {errors} errors, {} warnings", findings.len() - errors);
    errors == 0
}

fn findings() -> Vec<Finding> {
    let sources = sources();
    let mut findings = Vec::new();
    for source in &sources {
        findings.extend(text::check(source));
        findings.extend(words::check(source));
        if source.is_rust() {
            findings.extend(code::check(source));
        }
        if source.path == "CHANGELOG.md" {
            findings.extend(changelog::check(source));
        }
    }
    findings.extend(modules::check(&sources));
    findings.extend(paths::check(&sources));
    findings.extend(floors::check(&sources));
    findings.extend(layers::check());
    findings.extend(book::check());
    findings.extend(supply::check());
    findings.extend(published());
    findings.extend(history::check());
    findings.sort();
    findings
}

/// What users of the published crates would notice: their interface, what they link, what is packaged.
fn published() -> Vec<Finding> {
    let error = |file: &str, line, message| Finding {
        file: file.to_owned(),
        line,
        severity: Severity::Error,
        message,
    };
    let mut findings: Vec<Finding> =
        crate::api::drift().into_iter().map(|drift| error(drift.file, drift.line, drift.message)).collect();
    let features = crate::features::complaints();
    findings.extend(features.into_iter().map(|complaint| error("crates/hectare/Cargo.toml", 1, complaint)));
    let packages = crate::published::complaints();
    findings.extend(packages.into_iter().map(|(file, complaint)| error(&file, 1, complaint)));
    findings
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    collect(&root(), &mut sources);
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    modules::mark_tests(&mut sources);
    sources
}

fn collect(folder: &Path, sources: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else { continue };
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".cargo");
        if kind.is_dir() && !hidden && !is_generated(&path) {
            collect(&path, sources);
        } else if kind.is_file()
            && is_text(&path)
            && let Ok(text) = fs::read_to_string(&path)
        {
            sources.push(Source::new(relative(&path), text));
        }
    }
}

/// Directories that git ignores, too.
fn is_generated(folder: &Path) -> bool {
    let generated = ["target", "out", "workshop/fuzz/corpus", "workshop/fuzz/artifacts"];
    generated.iter().any(|name| folder == root().join(name)) || folder.join("CACHEDIR.TAG").exists()
}

fn is_text(file: &Path) -> bool {
    let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let name = file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    matches!(extension, "rs" | "toml" | "md") || matches!(name, "Makefile" | "run")
}

fn relative(path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root()).unwrap_or(path).to_owned();
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source in memory.
    pub(super) fn source(path: &str, text: &str) -> Source {
        Source::new(path, text)
    }

    /// The messages of findings.
    pub(super) fn messages(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|f| format!("{}: {}", f.line, f.message)).collect()
    }

    #[test]
    fn the_repository_is_tidy() {
        let errors: Vec<_> = findings().into_iter().filter(|f| f.severity == Severity::Error).collect();
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "\n{}", lines.join("\n"));
    }

    #[test]
    fn the_repository_was_read() {
        let sources = sources();
        for path in ["xtask/src/tidy.rs", "crates/base/units/src/lib.rs", "Cargo.toml", "Makefile", ".ci/run"]
        {
            assert!(sources.iter().any(|s| s.path == path), "{path}");
        }
        assert!(!sources.iter().any(|s| s.path.starts_with("target/")));
    }

    #[test]
    fn test_code_is_told_from_code() {
        let text = "fn a() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests {\n}\n";
        assert_eq!(source("crates/a/src/b.rs", text).first_test_line(), 2);
        assert_eq!(source("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\nfn a() {}\n").first_test_line(), 4);
        assert_eq!(source("crates/a/tests/b.rs", "fn a() {}\n").first_test_line(), 1);
    }
}
