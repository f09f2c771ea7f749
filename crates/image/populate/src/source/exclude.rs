//! The patterns of files to be left out.
//!
//! As in `rsync` and `.gitignore`: a pattern without a slash is compared with the last name of a path, at any
//! depth; one with a slash (other than at its end) with the whole path from the root of the source; a slash
//! at the end means directories only. What lies in a directory that is left out is left out too. `*` is any
//! run of bytes but `/`, `?` any byte but `/`, `[a-z]` and `[!a-z]` one byte of a set or not of it (never
//! `/`), `**` any run of bytes, `**/` any directories or none, `\` makes the next byte ordinary. Of several
//! patterns that match the last one counts, and a `!` at the beginning of one takes back what those before it
//! left out, but not what lies in a directory that is left out. Everything is bytes: no locale, and no classes
//! with names.
//!
//! Matching follows all possible states of the pattern at once, so it takes time in proportion to pattern
//! times path and no pattern can make it hang.

use crate::error::Error;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Byte(u8),
    AnyByte,
    /// One byte of (or, if negated, outside) these inclusive ranges.
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
    /// `*`
    AnyInName,
    /// `**`
    AnyRun,
    /// `**/`, first half: may be skipped together with the second.
    AnyDirectories,
    /// `**/`, second half: any bytes, left after a slash.
    UntilSlash,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Pattern {
    tokens: Vec<Token>,
    whole_path: bool,
    directories_only: bool,
    /// What it matches is not left out, whatever the patterns before it say.
    takes_back: bool,
}

/// A list of patterns of files to be left out; empty by default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Excludes(Vec<Pattern>);

impl Excludes {
    /// Adds a pattern.
    ///
    /// # Errors
    /// If the pattern is empty, has a `[` without its `]` or the name of a class.
    pub fn add(&mut self, pattern: &[u8]) -> Result<(), Error> {
        self.add_of(pattern, "--exclude")
    }

    /// Adds a pattern of another option, which errors name: the list then is of files that are chosen.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_of(&mut self, pattern: &[u8], option: &'static str) -> Result<(), Error> {
        let parsed = parse(pattern).map_err(|reason| Error::Option {
            option,
            value: String::from_utf8_lossy(pattern).into_owned(),
            reason,
        })?;
        self.0.push(parsed);
        Ok(())
    }

    /// Whether there are no patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the entry at `path` (from the root of its source, no leading slash) itself matches a pattern.
    #[must_use]
    pub fn matches(&self, path: &[u8], is_directory: bool) -> bool {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let matching = self.0.iter().rev().find(|pattern| {
            (is_directory || !pattern.directories_only)
                && matches(&pattern.tokens, if pattern.whole_path { path } else { name })
        });
        matching.is_some_and(|pattern| !pattern.takes_back)
    }

    /// Whether the entry at `path`, or a directory it lies in, matches a pattern.
    #[must_use]
    pub fn covers(&self, path: &[u8], is_directory: bool) -> bool {
        !self.0.is_empty()
            && (self.matches(path, is_directory)
                || path
                    .iter()
                    .enumerate()
                    .filter(|(_, byte)| **byte == b'/')
                    .any(|(at, _)| self.matches(&path[..at], true)))
    }
}

fn parse(pattern: &[u8]) -> Result<Pattern, &'static str> {
    let (takes_back, pattern) = pattern.strip_prefix(b"!").map_or((false, pattern), |tail| (true, tail));
    let mut rest = pattern;
    while let Some(tail) = rest.strip_prefix(b"./") {
        rest = tail;
    }
    let directories_only = rest.ends_with(b"/");
    while let [head @ .., b'/'] = rest {
        rest = head;
    }
    let whole_path = rest.contains(&b'/') || pattern.starts_with(b"./");
    while let Some(tail) = rest.strip_prefix(b"/") {
        rest = tail;
    }
    if rest.is_empty() {
        return Err("the pattern is empty");
    }
    Ok(Pattern { tokens: tokens(rest)?, whole_path, directories_only, takes_back })
}

fn tokens(mut rest: &[u8]) -> Result<Vec<Token>, &'static str> {
    let mut tokens = Vec::new();
    loop {
        match rest {
            [] => return Ok(tokens),
            [b'*', b'*', b'/', tail @ ..] => {
                tokens.extend([Token::AnyDirectories, Token::UntilSlash]);
                rest = tail;
            }
            [b'*', b'*', tail @ ..] => {
                tokens.push(Token::AnyRun);
                rest = tail;
            }
            [b'*', tail @ ..] => {
                tokens.push(Token::AnyInName);
                rest = tail;
            }
            [b'?', tail @ ..] => {
                tokens.push(Token::AnyByte);
                rest = tail;
            }
            [b'[', tail @ ..] => {
                let (class, tail) = class(tail)?;
                tokens.push(class);
                rest = tail;
            }
            [b'\\', byte, tail @ ..] | [byte, tail @ ..] => {
                tokens.push(Token::Byte(*byte));
                rest = tail;
            }
        }
    }
}

/// A set of bytes after its `[`; a `]` that comes first belongs to it.
fn class(rest: &[u8]) -> Result<(Token, &[u8]), &'static str> {
    let (negated, mut rest) = match rest {
        [b'!' | b'^', tail @ ..] => (true, tail),
        _ => (false, rest),
    };
    let mut ranges = Vec::new();
    loop {
        match rest {
            [] => return Err("a [ has no ]"),
            [b'[', b':', ..] => return Err("classes such as [:upper:] are not known: name the range, [A-Z]"),
            [b']', tail @ ..] if !ranges.is_empty() => return Ok((Token::Class { negated, ranges }, tail)),
            [low, b'-', high, tail @ ..] if *high != b']' => {
                ranges.push((*low, *high));
                rest = tail;
            }
            [byte, tail @ ..] => {
                ranges.push((*byte, *byte));
                rest = tail;
            }
        }
    }
}

fn matches(tokens: &[Token], text: &[u8]) -> bool {
    let mut states = vec![false; tokens.len() + 1];
    let mut next = states.clone();
    states[0] = true;
    skip_optional(tokens, &mut states);
    for byte in text {
        next.fill(false);
        for (at, token) in tokens.iter().enumerate().filter(|(at, _)| states[*at]) {
            match token {
                Token::Byte(wanted) => next[at + 1] |= wanted == byte,
                Token::AnyByte => next[at + 1] |= *byte != b'/',
                Token::Class { negated, ranges } => {
                    let inside = ranges.iter().any(|(low, high)| (low..=high).contains(&byte));
                    next[at + 1] |= inside != *negated && *byte != b'/';
                }
                Token::AnyInName => next[at] |= *byte != b'/',
                Token::AnyRun => next[at] = true,
                Token::AnyDirectories => {}
                Token::UntilSlash => {
                    next[at] = true;
                    next[at + 1] |= *byte == b'/';
                }
            }
        }
        skip_optional(tokens, &mut next);
        std::mem::swap(&mut states, &mut next);
    }
    states[tokens.len()]
}

/// Adds the states reached without reading a byte.
fn skip_optional(tokens: &[Token], states: &mut [bool]) {
    for (at, token) in tokens.iter().enumerate() {
        if states[at] {
            match token {
                Token::AnyInName | Token::AnyRun => states[at + 1] = true,
                Token::AnyDirectories => {
                    states[at + 1] = true;
                    states[at + 2] = true;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, path: &str, is_directory: bool) -> bool {
        let mut excludes = Excludes::default();
        excludes.add(pattern.as_bytes()).unwrap();
        excludes.covers(path.as_bytes(), is_directory)
    }

    #[test]
    fn patterns_match_as_documented() {
        for (pattern, path) in [
            ("*.o", "a.o"),
            ("*.o", "deep/in/a.o"),
            ("cache", "x/cache/y"),
            ("/top", "top"),
            ("a/*/c", "a/b/c"),
            ("a/*/c", "a/b/c/d"),
            ("**/c", "c"),
            ("**/c", "a/b/c"),
            ("a/**", "a/b/c"),
            ("a/**/z", "a/z"),
            ("a/**/z", "a/b/c/z"),
            ("[a-c]?", "b7"),
            ("[!a-c]", "d"),
            ("[]x]", "]"),
            ("\\*", "*"),
            ("./a", "a"),
            ("d/", "d/x"),
        ] {
            assert!(covers(pattern, path, false), "{pattern} should cover {path}");
        }
        for (pattern, path) in [
            ("*.o", "a.c"),
            ("/top", "a/top"),
            ("a/*/c", "a/b/x/c"),
            ("a/*", "b/a/c"),
            ("**/c", "a/bc"),
            ("a/**", "a"),
            ("[!a-c]", "b"),
            ("?", "ab"),
            ("\\*", "a"),
            ("./a", "b/a"),
            ("d/", "d"),
        ] {
            assert!(!covers(pattern, path, false), "{pattern} should not cover {path}");
        }
        assert!(covers("d/", "d", true));
    }

    #[test]
    fn regression_the_last_pattern_counts_and_may_take_back() {
        let mut excludes = Excludes::default();
        for pattern in ["[a-c]*", "!b", "!/deep/a", "dir/", "!dir/kept", "\\!x", "!cc", "cc"] {
            excludes.add(pattern.as_bytes()).unwrap();
        }
        let covered = |path: &str| excludes.covers(path.as_bytes(), false);
        for path in ["a", "c", "other/a", "dir/kept", "!x", "cc"] {
            assert!(covered(path), "{path}");
        }
        for path in ["b", "x/b", "deep/a", "x"] {
            assert!(!covered(path), "{path}");
        }
        for pattern in ["!", "!/", "[[:upper:]]"] {
            assert!(excludes.add(pattern.as_bytes()).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_hard_pattern_is_not_slow() {
        let pattern = "*a".repeat(200) + "b";
        assert!(!covers(&pattern, &"a".repeat(5000), false));
    }

    #[test]
    fn broken_patterns_are_refused() {
        for pattern in ["", "/", "./", "[a", "[]"] {
            assert!(Excludes::default().add(pattern.as_bytes()).is_err(), "{pattern}");
        }
    }
}
