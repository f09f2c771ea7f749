//! Code: where `unsafe` and locks may be, and unexplained unwrapping.
//!
//! Lines are checked one by one, comments left out: this is no parser. The compiler's own lints cover what it
//! can't see; it is here for what they can't express.

use super::{Finding, Source};

/// The bindings lend memory of another language.
const UNSAFE_CRATES: [&str; 4] = ["device", "fuse", "capi", "python"];
/// Development tools, whose threads no schedule test explores, and the device layer below the facade.
const LOCK_CRATES: [&str; 5] = ["hunts", "oracle", "tools", "xtask", "device"];
const UNWRAP: &str = concat!(".unw", "rap()");

/// Findings about one Rust file.
pub(super) fn check(source: &Source) -> Vec<Finding> {
    let first_test = source.first_test_line();
    let mut findings = Vec::new();
    let mut above = "";
    for (number, line) in source.lines() {
        let code = without_comment(line);
        if has_unsafe(code) && !UNSAFE_CRATES.contains(&source.crate_name()) {
            findings.push(Finding::error(
                source,
                number,
                "unsafe code outside the device, fuse and capi crates and the bindings",
            ));
        }
        if number < first_test {
            check_line(source, number, (above, line, code), &mut findings);
        }
        above = line;
    }
    findings
}

fn check_line(source: &Source, number: usize, lines: (&str, &str, &str), findings: &mut Vec<Finding>) {
    let (above, line, code) = lines;
    let explained = line.contains("//") || above.trim_start().starts_with("//");
    if code.contains(UNWRAP) && !explained {
        findings.push(Finding::error(
            source,
            number,
            "unwrapping without a reason: expect(\"why it can't fail\")",
        ));
    }
    let free = LOCK_CRATES.contains(&source.crate_name()) || source.name() == "sync.rs";
    if uses_std_lock(code) && !free {
        findings.push(Finding::error(
            source,
            number,
            "a lock of std::sync: take it from the crate's sync.rs",
        ));
    }
}

/// The line up to a comment. A `//` after a quote may be inside a string and is kept.
fn without_comment(line: &str) -> &str {
    match line.find("//") {
        Some(at) if !line[..at].contains('"') => &line[..at],
        _ => line,
    }
}

fn has_unsafe(code: &str) -> bool {
    let code = code.trim_start().trim_start_matches("pub ");
    ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait"]
        .iter()
        .any(|form| code.match_indices(form).any(|(at, _)| !code[..at].contains('"')))
}

fn uses_std_lock(code: &str) -> bool {
    let Some(at) = code.find("std::sync::") else { return false };
    let rest = &code[at + "std::sync::".len()..];
    let imported: Vec<&str> = rest.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let names = if rest.starts_with('{') { &imported[..] } else { &imported[..1] };
    names.iter().any(|name| matches!(*name, "Mutex" | "RwLock" | "Condvar"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{messages, source};
    use super::*;

    fn found(path: &str, text: &str) -> String {
        messages(&check(&source(path, text))).join("\n")
    }

    #[test]
    fn each_rule_sees_its_case_and_only_there() {
        let path = "crates/core/engine/src/a.rs";
        let unwrapping = format!("let a = b{UNWRAP};\n");
        assert!(found(path, &unwrapping).contains("without a reason"));
        assert_eq!(found(path, &format!("// It was checked above.\n{unwrapping}")), "");
        assert_eq!(found(path, &format!("#[cfg(test)]\nmod tests {{\n{unwrapping}}}\n")), "");
        assert!(found(path, "use std::sync::{Arc, Mutex};\n").contains("a lock"));
        assert!(found(path, "a: std::sync::RwLock<u8>,\n").contains("a lock"));
        assert_eq!(found(path, "use std::sync::Arc;\n"), "");
        assert_eq!(found("crates/core/engine/src/sync.rs", "pub use std::sync::Mutex;\n"), "");
        assert!(found(path, "    unsafe { x() }\n").contains("unsafe"));
        assert!(found(path, "pub unsafe fn x() {}\n").contains("unsafe"));
        assert_eq!(found("crates/base/device/src/a.rs", "    unsafe { x() }\n"), "");
        assert_eq!(found(path, "// never unsafe { x() }\n"), "");
    }
}
