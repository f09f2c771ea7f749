//! Resolves paths.
//!
//! Paths are bytes, `/`-separated, resolved from the root directory whether they begin with `/` or not; `.`
//! and `..` are looked up like any name (the root's `..` is the root). Symbolic links on the way are followed
//! within the volume, at most 40 of them.

use crate::error::{Error, Result};
use crate::names::lookup;
use crate::state::Core;
use crate::stores::inode_cache::CachedInode;
use hectare_ext4::inode::Kind;
use hectare_units::InodeNr;
use std::collections::VecDeque;
use std::sync::Arc;

/// The most symbolic links in the resolution of one path.
const LINKS_FOLLOWED_MAX: usize = 40;

/// The longest path, links replaced, in bytes.
const PATH_MAX: usize = 1 << 20;

/// The inode at a path, held since it was found: its number can't come to mean another one.
pub(crate) fn find(core: &Core, path: &[u8], follow: bool) -> Result<Arc<CachedInode>> {
    refuse_nul(path)?;
    let mut names: VecDeque<Vec<u8>> = components(path);
    let mut must_be_directory = path.ends_with(b"/");
    let mut at = core.state.inode(InodeNr::ROOT)?;
    let mut links = 0;
    while let Some(name) = names.pop_front() {
        let next = lookup::lookup_inode(core, &at, &name)?;
        let is_link = next.get().kind() == Some(Kind::Symlink);
        if !is_link || (names.is_empty() && !follow && !must_be_directory) {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_FOLLOWED_MAX {
            return Err(Error::SymlinkLoop);
        }
        let target = lookup::read_link_of(core, &next)?;
        if target.starts_with(b"/") {
            at = core.state.inode(InodeNr::ROOT)?;
        }
        must_be_directory |= names.is_empty() && target.ends_with(b"/");
        let mut replaced = components(&target);
        replaced.append(&mut names);
        if replaced.iter().map(Vec::len).sum::<usize>() > PATH_MAX {
            return Err(Error::NameTooLong);
        }
        names = replaced;
    }
    if must_be_directory && at.get().kind() != Some(Kind::Directory) {
        return Err(Error::NotADirectory);
    }
    Ok(at)
}

/// The directory a path's last name lies in, and that name.
pub(crate) fn parent_of<'p>(core: &Core, path: &'p [u8]) -> Result<(InodeNr, &'p [u8])> {
    let (parent, name) = split_last(path)?;
    refuse_nul(name)?;
    Ok((find(core, parent, true)?.nr(), name))
}

/// Returns an error for a NUL, which no path given to Linux can hold; `std` does the same. Names that are looked
/// up one by one are not checked: a damaged directory may have such a one, and it can be removed.
fn refuse_nul(path: &[u8]) -> Result<()> {
    if path.contains(&0) { Err(Error::Invalid("a path holds no NUL")) } else { Ok(()) }
}

/// Whether a slash at the end of a path says that a directory is meant. The root's own is no such.
pub(crate) fn means_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") && !trim_slashes(path).is_empty()
}

/// The path of the directory that a path's last name lies in, and that name.
fn split_last(path: &[u8]) -> Result<(&[u8], &[u8])> {
    let trimmed = trim_slashes(path);
    let cut = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (parent, name) = trimmed.split_at(cut);
    if name.is_empty() {
        return Err(Error::Busy("it is the root directory"));
    }
    Ok((parent, name))
}

/// The names of a path, in order.
pub(crate) fn components(path: &[u8]) -> VecDeque<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_before_their_last_name() {
        let split = |path: &'static str| split_last(path.as_bytes()).ok();
        assert_eq!(split("a"), Some((&b""[..], &b"a"[..])));
        assert_eq!(split("/a/b//c//"), Some((&b"/a/b//"[..], &b"c"[..])));
        assert_eq!((split(""), split("///")), (None, None));
    }

    #[test]
    fn a_slash_at_the_end_means_a_directory() {
        assert!(means_directory(b"a/") && means_directory(b"/a//"));
        assert!(!means_directory(b"/a") && !means_directory(b"/") && !means_directory(b""));
    }

    #[test]
    fn empty_names_are_none() {
        let names: Vec<_> = components(b"//a/./..//b c/").into_iter().collect();
        assert_eq!(names, [&b"a"[..], b".", b"..", b"b c"]);
        assert!(components(b"/").is_empty());
    }
}
