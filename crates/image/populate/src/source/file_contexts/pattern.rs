//! The regular expressions of file contexts.
//!
//! libselinux takes them as PCRE2 does, over bytes, a dot being any byte. The crate `regex-automata` has the common
//! subset with time linear in the path, so no policy can make a build hang. What only PCRE has, and what the
//! two read differently, is refused: look-around, back-references, possessive repetition, `{` that repeats
//! nothing, sets inside sets, unusual escapes. Debian's and Android's policies have none of these.
//!
//! Hazard: libselinux puts `^` and `$` around an expression without parentheses, so `/a|/b` would match
//! `/ax`. An alternative outside of parentheses is refused, too.

use regex_automata::{meta::Regex, util::syntax};

/// The memory that one compiled expression may take.
const SIZE_MAX: usize = 1 << 20;
/// The deepest nesting of parentheses.
const DEPTH_MAX: u32 = 50;
const SPECIAL: &[u8] = b".^$?*+|[({";

/// An expression for whole paths.
#[derive(Debug)]
pub(super) struct Pattern {
    /// What every matching path begins with; all of it, if there is no `regex`.
    prefix: Vec<u8>,
    regex: Option<Regex>,
}

impl Pattern {
    /// Reads an expression.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let (prefix, is_literal) = literal_prefix(text);
        if is_literal {
            return Ok(Self { prefix, regex: None });
        }
        if let Some(fault) = fault(text) {
            return Err(format!("{fault} in `{}`", crate::error::ShownPath::new(text)));
        }
        let text = std::str::from_utf8(text).map_err(|error| error.to_string())?;
        // PCRE's `$` is also before a final line feed.
        let bytes = syntax::Config::new().unicode(false).utf8(false);
        let regex = Regex::builder()
            .syntax(bytes.dot_matches_new_line(true).nest_limit(DEPTH_MAX))
            .configure(Regex::config().utf8_empty(false).nfa_size_limit(Some(SIZE_MAX)))
            .build(&format!("^(?:{text})\\n?$"))
            .map_err(|error| {
                let said = error.to_string();
                let reason = said.lines().last().unwrap_or_default().trim().to_owned();
                format!("the regular expression `{}` is not understood: {reason}", text.escape_debug())
            })?;
        Ok(Self { prefix, regex: Some(regex) })
    }

    /// Whether it has no special characters.
    pub(super) fn is_literal(&self) -> bool {
        self.regex.is_none()
    }

    /// What every matching path begins with.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether it matches a path that begins with its prefix.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        match &self.regex {
            Some(regex) => regex.is_match(path),
            None => path == self.prefix,
        }
    }
}

/// The bytes before anything special, and whether that is all.
fn literal_prefix(text: &[u8]) -> (Vec<u8>, bool) {
    let (mut prefix, mut rest) = (Vec::new(), text);
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'\\', [next, after @ ..]) if !next.is_ascii_alphanumeric() => {
                prefix.push(*next);
                rest = after;
            }
            (b'\\', _) => return (prefix, false),
            (special, _) if SPECIAL.contains(special) => {
                if matches!(special, b'?' | b'*' | b'{') {
                    prefix.pop(); // the last byte need not be there
                }
                return (prefix, false);
            }
            (plain, _) => {
                prefix.push(*plain);
                rest = after;
            }
        }
    }
    (prefix, true)
}

/// What of an expression is read otherwise by PCRE, or only there.
fn fault(text: &[u8]) -> Option<&'static str> {
    let (mut at, mut depth) = (0, 0u32);
    while let Some(byte) = text.get(at) {
        let next = text.get(at + 1);
        match byte {
            _ if !byte.is_ascii() => return Some("a byte that is not ASCII beside special characters"),
            b'\\' => {
                if let Some(fault) = escape_fault(next) {
                    return Some(fault);
                }
                at += 1;
            }
            b'[' => match set_end(&text[at..]) {
                Ok(len) => at += len,
                Err(fault) => return Some(fault),
            },
            b'(' => {
                depth += 1;
                if next == Some(&b'?') && text.get(at + 2) != Some(&b':') {
                    return Some("look-around or another extension of PCRE, which is not supported,");
                }
                if next == Some(&b'*') {
                    return Some("a verb of PCRE, which is not supported,");
                }
            }
            b')' => depth = depth.checked_sub(1)?,
            b'|' if depth == 0 => return Some("an alternative outside of parentheses (put it into some)"),
            b'*' | b'+' | b'?' | b'}' if next == Some(&b'+') => {
                return Some("possessive repetition, which is not supported,");
            }
            b'{' if !is_repetition(&text[at..]) => return Some("a `{` that repeats nothing (write `\\{`)"),
            _ => {}
        }
        at += 1;
    }
    None
}

fn escape_fault(next: Option<&u8>) -> Option<&'static str> {
    match next {
        Some(b'd' | b'D' | b'w' | b'W' | b's' | b'S' | b'n' | b'r' | b't' | b'f') => None,
        Some(b'1'..=b'9') => Some("a back-reference, which is not supported,"),
        Some(b'<' | b'>') => Some("an escaped angle bracket (it needs no escape)"),
        Some(byte) if byte.is_ascii_punctuation() || *byte == b' ' => None,
        _ => Some("an escape that is not supported"),
    }
}

/// The length of a set up to, but not including, its closing bracket.
fn set_end(text: &[u8]) -> Result<usize, &'static str> {
    let mut at = if text.get(1) == Some(&b'^') { 2 } else { 1 };
    let first = at;
    while let Some(byte) = text.get(at) {
        let next = text.get(at + 1);
        match byte {
            b']' if at > first => return Ok(at),
            b'[' if next == Some(&b':') => {
                let end = text[at..].windows(2).position(|two| two == b":]");
                at += end.ok_or("a set without end")? + 1;
            }
            b'[' => return Err("a `[` inside a set (write `\\[`)"),
            b'\\' => {
                if let Some(fault) = escape_fault(next) {
                    return Err(fault);
                }
                at += 1;
            }
            b'&' | b'-' | b'~' if next == Some(byte) => return Err("a doubled `&`, `-` or `~` inside a set"),
            _ if !byte.is_ascii() => return Err("a byte that is not ASCII in a set"),
            _ => {}
        }
        at += 1;
    }
    Err("a set without end")
}

fn is_repetition(text: &[u8]) -> bool {
    let Some(end) = text.iter().position(|byte| *byte == b'}') else { return false };
    let mut numbers = text[1..end].split(|byte| *byte == b',');
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    let first = numbers.next().is_some_and(|part| !part.is_empty() && digits(part));
    first && numbers.next().is_none_or(digits) && numbers.next().is_none()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_expression_matches_whole_paths_only() {
        for (regex, path, matches) in [
            ("/etc/a", "/etc/a", true),
            ("/etc/a\\.b", "/etc/a.b", true),
            ("/etc(/.*)?", "/etc", true),
            ("/etc(/.*)?", "/etcx", false),
            ("/lib(64)?/x", "/lib/x", true),
            ("/var/lib/a?b", "/var/lib/b", true),
            ("/a{2,3}", "/aa", true),
            ("/[^/]*\\.so(\\.[^/]*)*", "/x.so.1", true),
            ("/x.y", "/x\ny", true),
            ("/[[:digit:]]+", "/12", true),
            ("/[]a]", "/]", true),
        ] {
            let pattern = Pattern::parse(regex.as_bytes()).unwrap();
            let found = path.as_bytes().starts_with(pattern.prefix()) && pattern.matches(path.as_bytes());
            assert_eq!(found, matches, "{regex} {path}");
        }
    }

    #[test]
    fn what_only_pcre_has_is_refused() {
        for regex in [
            "/(?!x)a",
            "/(a)\\1",
            "/a++",
            "/a|/b",
            "/a{b.",
            "/[a[b]]",
            "/[a&&b]",
            "/\\<a.",
            "/\\Qa.",
            "/(a.",
            "/[a.",
            "/(?i)a",
            "/a.\u{e9}",
            "/a)b.",
            "/.{1000}{1000}",
        ] {
            let error = Pattern::parse(regex.as_bytes()).unwrap_err();
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
