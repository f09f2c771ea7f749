//! The text of LVM2's metadata: sections of `name { ... }`, and `name = value`, where a value is a number, a
//! string or a list of them.
//!
//! Hazards: the text is a stranger's. Sections lie in each other up to [`DEPTH_MAX`] only, names are unique in
//! their section, and what is kept takes a small multiple of the text, whose length the caller bounds.
//!
//! What this is not: it does not know which names there are ([`crate::group`] does), and keeps no comments.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The most sections that lie in each other. LVM2 writes four.
const DEPTH_MAX: usize = 16;

/// What a name stands for.
#[derive(Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Number(i64),
    Text(Cow<'a, str>),
    List(Vec<Value<'a>>),
    Section(Section<'a>),
}

/// Names and their values.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Section<'a>(BTreeMap<&'a str, Value<'a>>);

impl<'a> Section<'a> {
    /// Parses a text. An error says what is wrong and in which line.
    pub(crate) fn parse(text: &'a str) -> Result<Self, String> {
        let mut parser = Parser { text, at: 0 };
        let section = parser.section(0);
        section.map_err(|reason| {
            let line = 1 + text.as_bytes()[..parser.at].iter().filter(|byte| **byte == b'\n').count();
            format!("line {line}: {reason}")
        })
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.0.get(name)
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Self> {
        match self.get(name) {
            Some(Value::Section(section)) => Some(section),
            _ => None,
        }
    }

    /// The sections in this one, in the order of their names.
    pub(crate) fn sections(&self) -> impl Iterator<Item = (&'a str, &Self)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((*name, section)),
            _ => None,
        })
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// A number that is not negative.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Number(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub(crate) fn list(&self, name: &str) -> Option<&[Value<'a>]> {
        match self.get(name) {
            Some(Value::List(list)) => Some(list),
            _ => None,
        }
    }

    /// Whether a list of strings has this one; a single string counts as a list.
    pub(crate) fn lists(&self, name: &str, wanted: &str) -> bool {
        let is_wanted = |value: &Value<'_>| matches!(value, Value::Text(text) if text == wanted);
        match self.get(name) {
            Some(Value::List(list)) => list.iter().any(is_wanted),
            Some(value) => is_wanted(value),
            None => false,
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Goes on behind white space and comments.
    fn skip(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => {
                    let rest = &self.text.as_bytes()[self.at..];
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                0 => self.at += 1,
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => break,
            }
        }
    }

    /// The next byte behind white space, if it is this one.
    fn takes(&mut self, wanted: u8) -> bool {
        self.skip();
        let is_there = self.peek() == Some(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    /// What lies in a section, with the brace that ends it; at depth 0 up to the end of the text.
    fn section(&mut self, depth: usize) -> Result<Section<'a>, String> {
        let mut section = Section::default();
        loop {
            if depth > 0 && self.takes(b'}') {
                return Ok(section);
            }
            self.skip();
            if self.peek().is_none() {
                return if depth == 0 { Ok(section) } else { Err("a section has no end".to_owned()) };
            }
            let name = self.word();
            if name.is_empty() {
                return Err("there should be a name".to_owned());
            }
            let value = if self.takes(b'{') {
                if depth == DEPTH_MAX {
                    return Err(format!("more than {DEPTH_MAX} sections lie in each other"));
                }
                Value::Section(self.section(depth + 1)?)
            } else if self.takes(b'=') {
                self.value()?
            } else {
                return Err("behind a name there should be { or =".to_owned());
            };
            if section.0.insert(name, value).is_some() {
                return Err(format!("{} is there twice", name.escape_debug()));
            }
        }
    }

    /// Letters, digits and what else names have; perhaps nothing.
    fn word(&mut self) -> &'a str {
        self.skip();
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.+-/@:".contains(byte);
        let len = rest.bytes().take_while(|byte| is_part(byte)).count();
        self.at += len;
        &rest[..len]
    }

    fn value(&mut self) -> Result<Value<'a>, String> {
        if !self.takes(b'[') {
            return self.scalar();
        }
        let mut list = Vec::new();
        loop {
            if self.takes(b']') {
                return Ok(Value::List(list));
            }
            list.push(self.scalar()?);
            if !self.takes(b',') {
                return if self.takes(b']') {
                    Ok(Value::List(list))
                } else {
                    Err("a list has no end".to_owned())
                };
            }
        }
    }

    fn scalar(&mut self) -> Result<Value<'a>, String> {
        if self.takes(b'"') {
            return self.string().map(Value::Text);
        }
        let word = self.word();
        // LVM2 writes no fractions where this crate looks.
        match word.parse() {
            Ok(number) => Ok(Value::Number(number)),
            Err(_) if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
                Ok(Value::Text(Cow::Borrowed(word)))
            }
            Err(_) => Err("there should be a number or a string".to_owned()),
        }
    }

    /// The rest of a string, behind its first quote.
    fn string(&mut self) -> Result<Cow<'a, str>, String> {
        let rest = &self.text[self.at..];
        let mut bytes = rest.bytes().enumerate();
        let mut is_plain = true;
        let len = loop {
            match bytes.next() {
                Some((at, b'"')) => break at,
                Some((_, b'\\')) => {
                    is_plain = false;
                    let _ = bytes.next();
                }
                Some(_) => {}
                None => return Err("a string has no end".to_owned()),
            }
        };
        self.at += len + 1;
        let inside = &rest[..len];
        if is_plain {
            return Ok(Cow::Borrowed(inside));
        }
        let mut text = String::with_capacity(len);
        let mut chars = inside.chars();
        while let Some(c) = chars.next() {
            text.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
        }
        Ok(Cow::Owned(text))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // all of this is tests

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sections_numbers_strings_and_lists_are_read() {
        let text = "# by hand\nvg { seqno = 7 # seven\n name=\"a\\\"b\\\\\" flags = []\n \
                    list = [\"x\", 0,\"y\" , 12]\n\
                    lv { s { } } rate = 1.5 }\nversion = -1\n\0";
        let top = Section::parse(text).unwrap();
        let vg = top.section("vg").unwrap();
        assert_eq!((vg.number("seqno"), vg.text("name")), (Some(7), Some("a\"b\\")));
        assert_eq!(vg.list("list").unwrap().len(), 4);
        assert!(vg.lists("list", "y") && !vg.lists("list", "z") && vg.list("flags").unwrap().is_empty());
        assert!(vg.section("lv").unwrap().section("s").is_some());
        assert_eq!((top.number("version"), top.get("version")), (None, Some(&Value::Number(-1))));
        assert_eq!(vg.sections().count(), 1);
    }

    #[test]
    fn what_is_wrong_is_an_error_with_its_line() {
        for (text, said) in [
            ("a {", "line 1: a section has no end"),
            ("a = 1\na = 2", "line 2: a is there twice"),
            ("a", "{ or ="),
            ("a = ", "a number or a string"),
            ("a = [1", "a list has no end"),
            ("a = \"x", "a string has no end"),
            ("a = \"x\\\"", "a string has no end"),
            ("}", "a name"),
            ("a = [[1]]", "a number or a string"),
        ] {
            let error = Section::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn sections_end_somewhere() {
        let deep = |depth: usize| "a {".repeat(depth) + &"}".repeat(depth);
        assert!(Section::parse(&deep(DEPTH_MAX)).is_ok());
        assert!(Section::parse(&deep(DEPTH_MAX + 1)).unwrap_err().contains("lie in each other"));
        assert!(Section::parse(&"a {".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a\\-1{}=\\[\\]\", \\\\#\n\u{e4}]{0,60}") {
            let _ = Section::parse(&text);
        }
    }
}
