//! An open directory, and what is in it: how a source of an image is read.
//!
//! On Linux it is a descriptor, and no link is followed anywhere below it ([`open_below`](crate::open_below)).
//! Elsewhere it is a path of which each name is looked at before it is used: a name that is replaced by a link
//! at that very moment is followed, so there a source must not be one that others change.

#[cfg(all(target_os = "linux", not(hectare_portable)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
mod portable;

#[cfg(all(target_os = "linux", not(hectare_portable)))]
pub use linux::{AttributeReader, Folder, Listing, data_of, free_space, open_file};
#[cfg(not(all(target_os = "linux", not(hectare_portable))))]
pub use portable::{AttributeReader, Folder, Listing, data_of, free_space, open_file};

/// An extended attribute of a file of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// Its full name ("user.comment").
    pub name: Box<[u8]>,
    /// Its value; empty if it was not wanted.
    pub value: Box<[u8]>,
}

/// What is lost of files that are read on this host, as texts for users; nothing on Linux.
#[must_use]
pub const fn losses() -> &'static [&'static str] {
    if cfg!(all(target_os = "linux", not(hectare_portable))) {
        return &[];
    }
    if cfg!(unix) {
        return &["extended attributes and ACLs are not read on this host"];
    }
    &[
        "this host has no owners and modes: everything is root's, directories have mode 0755, files 0644, \
         read-only files 0444",
        "extended attributes and further names of a file (hard links) are not read on this host",
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::FileType;
    use hectare_device::os::{Errno, borrowed};
    use std::fs;
    use std::io::{Read, Seek, SeekFrom, Write};

    fn folder() -> (tempfile::TempDir, Folder) {
        let at = tempfile::tempdir().unwrap();
        fs::create_dir_all(at.path().join("a/b")).unwrap();
        fs::write(at.path().join("a/b/f"), "content").unwrap();
        fs::write(at.path().join("a/g"), "").unwrap();
        let folder = Folder::open(at.path()).unwrap();
        (at, folder)
    }

    #[test]
    fn a_tree_is_listed_and_read() {
        let (_at, folder) = folder();
        let quiet = &mut true;
        let a = folder.to_list(b"a", quiet).unwrap();
        let names = a.names(&mut Listing::default()).unwrap();
        let mut names: Vec<_> = names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        assert_eq!(names, [&b"b"[..], b"g"]);
        assert_eq!(a.stat(c"b").unwrap().file_type, FileType::Directory);
        assert_eq!(a.stat_itself().unwrap().identity, folder.stat(c"a").unwrap().identity);
        let mut text = String::new();
        let mut file = folder.reach(b"a/b").unwrap().open_file(b"f", quiet).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        let stat = crate::stat_open(borrowed(&file)).unwrap();
        assert_eq!((stat.size, stat.file_type), (7, FileType::RegularFile));
        folder.try_clone().unwrap().open_below(b"a/b/f").unwrap();
    }

    #[test]
    fn what_leads_out_is_refused() {
        let (at, folder) = folder();
        for (path, errno) in
            [(&b"../a"[..], Errno::XDEV), (b"a/none", Errno::NOENT), (b"a/g/x", Errno::NOTDIR)]
        {
            assert_eq!(folder.open_below(path).err(), Some(errno), "{}", path.escape_ascii());
        }
        assert!(folder.to_list(b"a/g", &mut true).is_err());
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("a", at.path().join("l")).unwrap();
            std::os::unix::fs::symlink("a/g", at.path().join("m")).unwrap();
            for path in [&b"l/g"[..], b"l/b/f", b"m"] {
                let refused = folder.open_below(path).err();
                assert!(matches!(refused, Some(Errno::LOOP | Errno::NOTDIR)), "{}", path.escape_ascii());
            }
            assert!(folder.open_file(b"m", &mut true).is_err() && folder.reach(b"l").is_err());
            assert_eq!(folder.read_link(c"m").unwrap(), b"a/g");
        }
        drop(at);
    }

    #[test]
    fn holes_are_not_data() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.seek(SeekFrom::Start(1 << 19)).unwrap();
        file.write_all(&[1; 1 << 16]).unwrap();
        let found = data_of(borrowed(&file), 1 << 20).unwrap();
        if let Some(found) = found {
            assert_eq!(found, [(1 << 19, 1 << 16)]);
        }
        file.seek(SeekFrom::Start(0)).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        assert_eq!(data_of(borrowed(&file), 1 << 20).unwrap(), None);
    }
}
