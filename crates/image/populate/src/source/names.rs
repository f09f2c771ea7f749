//! Checks the names in a source, and recognizes whiteouts.

/// The longest name of a directory entry, in bytes (ext4's `name_len` is one byte).
pub(crate) const NAME_MAX: usize = 255;
/// The longest target of a symbolic link that Linux can make or follow (`PATH_MAX` less the final NUL).
pub(crate) const TARGET_MAX: usize = 4095;

/// Why a name can't be a directory entry, if it can't.
pub(crate) fn name_fault(name: &[u8]) -> Option<&'static str> {
    match name {
        [] => Some("an empty name"),
        b"." | b".." => Some("a name that stands for another directory"),
        _ if name.len() > NAME_MAX => Some("a name longer than 255 bytes"),
        _ if name.contains(&0) => Some("a name with a NUL byte"),
        _ if name.contains(&b'/') => Some("a name with a slash"),
        _ => None,
    }
}

/// Why bytes can't be the target of a symbolic link, if they can't.
pub(crate) fn target_fault(target: &[u8]) -> Option<&'static str> {
    match target {
        [] => Some("a symbolic link to nothing"),
        _ if target.len() > TARGET_MAX => Some("a symbolic link to more than 4095 bytes"),
        _ if target.contains(&0) => Some("a symbolic link with a NUL byte in its target"),
        _ => None,
    }
}

/// A name with a meaning in an OCI layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whiteout<'n> {
    /// Removes this name from the layers below.
    Remove(&'n [u8]),
    /// Hides the content of this directory in the layers below.
    Opaque,
    /// Bookkeeping without meaning here.
    Ignore,
}

/// What a name means in a layer; `None` for an ordinary one. (OCI image specification, "Layer: whiteouts".)
pub(crate) fn whiteout(name: &[u8]) -> Option<Whiteout<'_>> {
    match name.strip_prefix(b".wh.")? {
        b".wh..opq" => Some(Whiteout::Opaque),
        rest if rest.is_empty() || rest.starts_with(b".wh.") => Some(Whiteout::Ignore),
        rest => Some(Whiteout::Remove(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiteouts_are_told_from_names() {
        assert_eq!(whiteout(b".wh.a"), Some(Whiteout::Remove(b"a")));
        assert_eq!(whiteout(b".wh..wh..opq"), Some(Whiteout::Opaque));
        assert_eq!(whiteout(b".wh..wh.plnk"), Some(Whiteout::Ignore));
        assert_eq!(whiteout(b".whatever"), None);
        assert_eq!(whiteout(b"x.wh.a"), None);
    }
}
