//! Attribute names: a prefix, stored as a number, and the rest of the name.

use std::cmp::Ordering;
use std::fmt;

/// Which prefix a name has (`e_name_index`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Index(u8);

impl Index {
    /// No prefix: the whole name is stored.
    pub const NONE: Self = Self(0);
    /// `user.`
    pub const USER: Self = Self(1);
    /// `system.posix_acl_access`, a whole name.
    pub const ACL_ACCESS: Self = Self(2);
    /// `system.posix_acl_default`, a whole name.
    pub const ACL_DEFAULT: Self = Self(3);
    /// `trusted.`
    pub const TRUSTED: Self = Self(4);
    /// `security.`
    pub const SECURITY: Self = Self(6);
    /// `system.`; its one use is `system.data`, the tail of an inline file.
    pub const SYSTEM: Self = Self(7);
    /// `system.richacl`, a whole name.
    pub const RICHACL: Self = Self(8);
    /// The encryption context, which has no name that a program sees.
    pub const ENCRYPTION: Self = Self(9);
    /// `gnu.`, of the Hurd.
    pub const HURD: Self = Self(10);

    /// The prefix numbered `n` on disk; any number is accepted, since unknown ones must survive a rewrite.
    #[must_use]
    pub const fn new(n: u8) -> Self {
        Self(n)
    }

    /// The number on disk.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether the prefix is all there is to the name.
    #[must_use]
    pub fn is_whole_name(self) -> bool {
        matches!(self, Self::ACL_ACCESS | Self::ACL_DEFAULT | Self::RICHACL)
    }

    /// The prefix as text; `None` for one that has no text.
    #[must_use]
    pub fn prefix(self) -> Option<&'static str> {
        PREFIXES.iter().find(|(index, _)| *index == self).map(|(_, text)| *text)
    }
}

/// Prefix texts. Whole names come before the prefixes they begin with, because the first match counts.
const PREFIXES: [(Index, &str); 9] = [
    (Index::ACL_ACCESS, "system.posix_acl_access"),
    (Index::ACL_DEFAULT, "system.posix_acl_default"),
    (Index::RICHACL, "system.richacl"),
    (Index::USER, "user."),
    (Index::TRUSTED, "trusted."),
    (Index::SECURITY, "security."),
    (Index::SYSTEM, "system."),
    (Index::HURD, "gnu."),
    (Index::NONE, ""),
];

/// Why text is not the name of an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// Empty, or longer than 255 bytes (`ERANGE`).
    #[error("an attribute name has 1 to 255 bytes")]
    Length,
    /// A prefix with nothing after it, or a zero byte inside (`EINVAL`).
    #[error("the attribute name is malformed")]
    Malformed,
    /// No prefix that ext4 can store (`EOPNOTSUPP`).
    #[error("ext4 stores no attributes with this prefix")]
    Prefix,
}

/// An attribute's name, as stored: the prefix's number and what follows it (at most 255 bytes).
///
/// Names order as a block's entries must: by prefix number, then length, then bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Name {
    index: Index,
    suffix: Vec<u8>,
}

impl Name {
    /// The longest name, in bytes, with and without prefix.
    pub const MAX: usize = 255;

    /// The name a program gave, such as `user.comment`.
    ///
    /// # Errors
    /// What [`NameError`] says.
    pub fn parse(full: &[u8]) -> Result<Self, NameError> {
        if full.is_empty() || full.len() > Self::MAX {
            return Err(NameError::Length);
        }
        if full.contains(&0) {
            return Err(NameError::Malformed);
        }
        for (index, prefix) in PREFIXES {
            match full.strip_prefix(prefix.as_bytes()) {
                _ if index == Index::NONE => break,
                Some([]) if index.is_whole_name() => return Ok(Self { index, suffix: Vec::new() }),
                Some([]) => return Err(NameError::Malformed),
                Some(suffix) if !index.is_whole_name() => return Ok(Self { index, suffix: suffix.to_vec() }),
                Some(_) | None => {}
            }
        }
        Err(NameError::Prefix)
    }

    /// The name stored as `index` and `suffix`; `None` if the suffix is too long, has a zero byte inside, or
    /// nothing of a name is there at all.
    #[must_use]
    pub fn stored(index: Index, suffix: &[u8]) -> Option<Self> {
        let usable = suffix.len() <= Self::MAX && !suffix.contains(&0);
        let named = index != Index::NONE || !suffix.is_empty();
        (usable && named).then(|| Self { index, suffix: suffix.to_vec() })
    }

    /// `system.data`: the tail of an inline file or directory.
    #[must_use]
    pub fn inline_data() -> Self {
        Self { index: Index::SYSTEM, suffix: b"data".to_vec() }
    }

    /// `security.capability`: the capabilities of a program, for any user who runs it.
    #[must_use]
    pub fn capability() -> Self {
        Self { index: Index::SECURITY, suffix: b"capability".to_vec() }
    }

    /// The prefix.
    #[must_use]
    pub const fn index(&self) -> Index {
        self.index
    }

    /// What follows the prefix.
    #[must_use]
    pub fn suffix(&self) -> &[u8] {
        &self.suffix
    }

    /// The whole name as programs see it; `None` if they don't (its prefix has no text).
    #[must_use]
    pub fn full(&self) -> Option<Vec<u8>> {
        self.index.prefix().map(|prefix| [prefix.as_bytes(), &self.suffix].concat())
    }

    /// How a name of these parts compares with this one.
    pub(crate) fn is(&self, index: Index, suffix: &[u8]) -> bool {
        self.index == index && self.suffix == suffix
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |name: &Self| (name.index, name.suffix.len());
        key(self).cmp(&key(other)).then_with(|| self.suffix.cmp(&other.suffix))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index.prefix() {
            Some(prefix) => write!(f, "{prefix}{}", self.suffix.escape_ascii()),
            None => write!(f, "[{}]{}", self.index.get(), self.suffix.escape_ascii()),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_at_their_prefix_and_join_again() {
        for (full, index, suffix) in [
            ("user.a", Index::USER, "a"),
            ("system.posix_acl_access", Index::ACL_ACCESS, ""),
            ("system.posix_acl_default", Index::ACL_DEFAULT, ""),
            ("trusted.overlay.opaque", Index::TRUSTED, "overlay.opaque"),
            ("security.capability", Index::SECURITY, "capability"),
            ("system.data", Index::SYSTEM, "data"),
            ("system.richacl", Index::RICHACL, ""),
            ("system.posix_acl_access2", Index::SYSTEM, "posix_acl_access2"),
        ] {
            let name = Name::parse(full.as_bytes()).unwrap();
            assert_eq!((name.index(), name.suffix()), (index, suffix.as_bytes()), "{full}");
            assert_eq!(name.full().unwrap(), full.as_bytes());
            assert_eq!(Name::stored(index, suffix.as_bytes()), Some(name));
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        assert_eq!(Name::parse(b""), Err(NameError::Length));
        assert_eq!(Name::parse(&[b"user.".as_slice(), &[b'x'; 251]].concat()), Err(NameError::Length));
        assert!(Name::parse(&[b"user.".as_slice(), &[b'x'; 250]].concat()).is_ok());
        assert_eq!(Name::parse(b"user."), Err(NameError::Malformed));
        assert_eq!(Name::parse(b"user.a\0b"), Err(NameError::Malformed));
        assert_eq!(Name::parse(b"comment"), Err(NameError::Prefix));
        assert_eq!(Name::stored(Index::NONE, b""), None);
        assert_eq!(Name::stored(Index::USER, b"a\0"), None);
    }

    #[test]
    fn names_order_by_prefix_then_length_then_bytes() {
        let name = |full: &str| Name::parse(full.as_bytes()).unwrap();
        let sorted = ["user.b", "user.aa", "user.ab", "system.posix_acl_access", "trusted.a", "security.a"];
        assert!(sorted.windows(2).all(|pair| name(pair[0]) < name(pair[1])));
    }

    #[test]
    fn names_without_text_are_not_shown_to_programs() {
        assert_eq!(Name::stored(Index::ENCRYPTION, b"c").unwrap().full(), None);
        assert_eq!(Name::stored(Index::NONE, b"odd").unwrap().full().unwrap(), b"odd");
    }
}
