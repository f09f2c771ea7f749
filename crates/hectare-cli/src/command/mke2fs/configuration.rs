//! `mke2fs.conf`: defaults by type and usage, as mke2fs.conf(5) describes the file.
//!
//! Sections (`[defaults]`) have relations (`tag = value`), and groups of them (`ext4 = { ... }`). Of several
//! relations with one tag in one place the first counts. Unknown tags are ignored, as mke2fs does.
//!
//! Without the file the defaults are those that e2fsprogs ships ([`BUILT_IN`]).

use crate::failure::{Failure, Outcome};
use crate::name::shown;
use hectare_device::os::OsStrExt;
use std::collections::HashMap;
use std::path::PathBuf;

/// The usual place.
const PLACE: &str = "/etc/mke2fs.conf";
/// The defaults where there is no file: those of e2fsprogs 1.47.
const BUILT_IN: &str = "
[defaults]
    base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
    default_mntopts = acl,user_xattr
    enable_periodic_fsck = 0
    blocksize = 4096
    inode_size = 256
    inode_ratio = 16384
[fs_types]
    ext3 = {
        features = has_journal
    }
    ext4 = {
        features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
    }
    small = {
        blocksize = 1024
        inode_ratio = 4096
    }
    floppy = {
        blocksize = 1024
        inode_ratio = 8192
    }
    big = {
        inode_ratio = 32768
    }
    huge = {
        inode_ratio = 65536
    }
    news = {
        inode_ratio = 4096
    }
    largefile = {
        inode_ratio = 1048576
        blocksize = -1
    }
    largefile4 = {
        inode_ratio = 4194304
        blocksize = -1
    }
    hurd = {
        blocksize = 4096
        inode_size = 128
    }
";

/// A parsed file.
#[derive(Debug)]
pub(super) struct Configuration {
    /// Its name in messages.
    name: String,
    /// Relations outside of groups, by section, and in groups, by section and group.
    places: HashMap<(String, String), HashMap<String, String>>,
}

impl Configuration {
    /// The file that `MKE2FS_CONFIG` names, or the usual one, or what is built in if there is none.
    pub(super) fn load() -> Outcome<Self> {
        let path = std::env::var_os("MKE2FS_CONFIG").map_or_else(|| PathBuf::from(PLACE), PathBuf::from);
        let name = shown(path.as_os_str().as_bytes());
        match std::fs::read_to_string(&path) {
            Ok(text) => Self::parse(name, &text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Self::parse("the built-in mke2fs.conf".into(), BUILT_IN)
            }
            Err(error) => Err(Failure::of(name, crate::output::reason(&error))),
        }
    }

    fn parse(name: String, text: &str) -> Outcome<Self> {
        let (mut places, mut section, mut group) = (HashMap::new(), None, String::new());
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |reason: &str| Failure::of(&name, format_args!("line {number}: {reason}"));
            let line = line.trim();
            if is_comment(line) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let named = rest.split_once(']').filter(|(_, rest)| is_comment(rest.trim()));
                let (named, _) = named.ok_or_else(|| wrong("a section is written [name]"))?;
                section = Some(named.trim().to_owned());
                group.clear();
                continue;
            }
            if line.starts_with('}') {
                group.clear();
                continue;
            }
            let section = section.clone().ok_or_else(|| wrong("it belongs to no section"))?;
            let (tag, value) = line.split_once('=').ok_or_else(|| wrong("it is not `tag = value`"))?;
            let tag = word(tag.trim()).ok_or_else(|| wrong("its tag is not one word"))?;
            if value.trim_start().starts_with('{') {
                group = tag;
                places.entry((section, group.clone())).or_default();
                continue;
            }
            let value = word(value.trim()).ok_or_else(|| wrong("its value is not one word, nor quoted"))?;
            let place: &mut HashMap<_, _> = places.entry((section, group.clone())).or_default();
            place.entry(tag).or_insert(value);
        }
        Ok(Self { name, places })
    }

    /// The failure of something that it says, or lacks.
    pub(super) fn wrong(&self, reason: impl std::fmt::Display) -> Failure {
        Failure::of(&self.name, reason)
    }

    /// Whether it defines a type or usage.
    pub(super) fn defines(&self, kind: &str) -> bool {
        self.places.contains_key(&("fs_types".to_owned(), kind.to_owned()))
    }

    /// What it says of a type or usage.
    pub(super) fn of_type(&self, kind: &str, tag: &str) -> Option<&str> {
        self.at("fs_types", kind, tag)
    }

    /// What it says of a device.
    pub(super) fn of_device(&self, device: &str, tag: &str) -> Option<&str> {
        self.at("devices", device, tag)
    }

    /// What it says of everything.
    pub(super) fn default(&self, tag: &str) -> Option<&str> {
        self.at("defaults", "", tag)
    }

    /// What the last of the types that has the tag says, or else the defaults.
    pub(super) fn last(&self, kinds: &[String], tag: &str) -> Option<&str> {
        kinds.iter().rev().find_map(|kind| self.of_type(kind, tag)).or_else(|| self.default(tag))
    }

    /// The same as a number.
    pub(super) fn number<T: std::str::FromStr>(&self, kinds: &[String], tag: &str) -> Outcome<Option<T>> {
        let Some(text) = self.last(kinds, tag) else { return Ok(None) };
        let number = text.parse().map_err(|_| self.wrong(format_args!("{tag} = {text}: it is no number")))?;
        Ok(Some(number))
    }

    /// The same as yes or no.
    pub(super) fn boolean(&self, kinds: &[String], tag: &str) -> Outcome<Option<bool>> {
        let Some(text) = self.last(kinds, tag) else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "yes" | "y" | "true" | "t" | "1" | "on" => Ok(Some(true)),
            "no" | "n" | "false" | "nil" | "0" | "off" => Ok(Some(false)),
            _ => Err(self.wrong(format_args!("{tag} = {text}: it is neither yes nor no"))),
        }
    }

    fn at(&self, section: &str, group: &str, tag: &str) -> Option<&str> {
        self.places.get(&(section.to_owned(), group.to_owned()))?.get(tag).map(String::as_str)
    }
}

/// Whether nothing is in a line but perhaps a comment.
fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with([';', '#'])
}

/// A word, or a text in quotes, that is followed by nothing but a comment.
fn word(text: &str) -> Option<String> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(|c: char| c.is_whitespace() || c == ';' || c == '#').unwrap_or(text.len());
        return is_comment(text[end..].trim()).then(|| text[..end].to_owned());
    };
    let (mut read, mut rest) = (String::new(), quoted.chars());
    loop {
        match rest.next()? {
            '"' => break,
            '\\' => read.push(match rest.next()? {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                other => other,
            }),
            other => read.push(other),
        }
    }
    is_comment(rest.as_str().trim()).then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Configuration, String> {
        Configuration::parse("conf".into(), text).map_err(|failure| match failure {
            Failure::Line(line) => line,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn later_types_win_over_earlier_ones_and_those_over_the_defaults() {
        let conf = parsed(BUILT_IN).unwrap();
        let kinds = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(conf.last(&kinds("ext4 small"), "blocksize"), Some("1024"));
        assert_eq!(conf.last(&kinds("ext4 small largefile"), "blocksize"), Some("-1"));
        assert_eq!(conf.number(&kinds("ext4 default"), "inode_ratio").unwrap(), Some(16384u64));
        assert_eq!(conf.boolean(&[], "enable_periodic_fsck").unwrap(), Some(false));
        assert!(conf.defines("ext3") && !conf.defines("ext2"));
    }

    #[test]
    fn quotes_comments_and_repeated_tags_are_read_as_documented() {
        let conf = parsed(
            "; one\n[ defaults ]\n a = b ; c\n a = d\n \"e f\" = \"g \\\"h\\\"\" # i\n\
             [fs_types]\n x = {\n a = 1\n}\n b = 2",
        )
        .unwrap();
        assert_eq!(conf.default("a"), Some("b"));
        assert_eq!(conf.default("e f"), Some("g \"h\""));
        assert_eq!(conf.of_type("x", "a"), Some("1"));
        assert_eq!(conf.of_type("", "b"), Some("2"));
    }

    #[test]
    fn what_can_not_be_read_is_named_with_its_line() {
        for (text, expected) in [
            ("[defaults", "conf: line 1: a section is written [name]"),
            ("a = b", "conf: line 1: it belongs to no section"),
            ("[x]\na b = c", "conf: line 2: its tag is not one word"),
            ("[x]\n\na = b c", "conf: line 3: its value is not one word, nor quoted"),
            ("[x]\na = \"b", "conf: line 2: its value is not one word, nor quoted"),
            ("[x]\nabc", "conf: line 2: it is not `tag = value`"),
        ] {
            assert_eq!(parsed(text).unwrap_err(), expected);
        }
        let conf = parsed("[defaults]\na = maybe").unwrap();
        assert!(conf.boolean(&[], "a").is_err() && conf.number::<u32>(&[], "a").is_err());
    }
}
