//! Shared code of the tests of sources: directories to read, tools to run, and trees as comparable values.

use hectare_populate::{Error, Kind, NodeId, Options, Source, Timestamp, Tree};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A node as the tests compare it. Change, access and creation times are left out: no archive sets them all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Described {
    pub(crate) kind: String,
    pub(crate) mode: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: Timestamp,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
    pub(crate) links: u32,
    /// Other names of the same node.
    pub(crate) names: Vec<String>,
    /// Content of a regular file with its holes as zeros.
    pub(crate) content: Vec<u8>,
    /// Runs of data.
    pub(crate) data: Vec<(u64, u64)>,
}

/// Every path of a tree and what is there.
pub(crate) fn describe(tree: &Tree) -> BTreeMap<String, Described> {
    let mut names: BTreeMap<NodeId, Vec<String>> = BTreeMap::from([(NodeId::ROOT, vec![String::new()])]);
    let mut pending = vec![(NodeId::ROOT, String::new())];
    while let Some((dir, path)) = pending.pop() {
        let mut last: Option<&[u8]> = None;
        for (name, node) in tree.children(dir) {
            assert!(last.is_none_or(|last| last < name), "children are sorted");
            last = Some(name);
            let path = format!("{path}/{}", name.escape_ascii());
            names.entry(node).or_default().push(path.clone());
            if tree.kind(node) == Kind::Directory {
                pending.push((node, path));
            }
        }
    }
    assert_eq!(names.len(), tree.len(), "every node is reachable");
    let mut opener = tree.opener();
    let mut all = BTreeMap::new();
    for (node, mut paths) in names {
        paths.sort();
        let meta = tree.meta(node);
        let (content, data) = content(tree, &mut opener, node);
        let described = Described {
            kind: match tree.kind(node) {
                Kind::Symlink { target } => format!("symlink to {}", target.escape_ascii()),
                kind => format!("{kind:?}"),
            },
            mode: meta.mode,
            owner: (meta.uid, meta.gid),
            mtime: meta.mtime,
            xattrs: tree
                .xattrs(node)
                .iter()
                .map(|xattr| (String::from_utf8(xattr.name.to_vec()).unwrap(), xattr.value.to_vec()))
                .collect(),
            links: tree.links(node),
            names: paths.clone(),
            content,
            data,
        };
        for path in paths {
            all.insert(path, described.clone());
        }
    }
    all
}

fn content(
    tree: &Tree,
    opener: &mut hectare_populate::Opener<'_>,
    node: NodeId,
) -> (Vec<u8>, Vec<(u64, u64)>) {
    let Kind::File { size } = tree.kind(node) else { return (Vec::new(), Vec::new()) };
    let opened = opener.open(node).unwrap();
    // Enough of a huge file to tell it from others.
    let mut content = vec![0; size.index_for_test()];
    let mut data = Vec::new();
    for segment in tree.segments(node) {
        data.push((segment.at.get(), segment.len.get()));
        let start = usize::try_from(segment.at.get()).unwrap();
        let len = usize::try_from(segment.len.get()).unwrap();
        if start + len <= content.len() {
            opened.read_exact_at(&mut content[start..start + len], segment.source).unwrap();
        }
    }
    opened.verify().unwrap();
    (content, data)
}

trait IndexForTest {
    fn index_for_test(self) -> usize;
}

impl IndexForTest for hectare_units::Bytes {
    fn index_for_test(self) -> usize {
        usize::try_from(self.get().min(16 << 20)).unwrap()
    }
}

pub(crate) fn folder(path: &Path) -> Source {
    Source::Folder(path.to_owned())
}

pub(crate) fn archive(path: &Path) -> Source {
    Source::Archive(path.to_owned())
}

pub(crate) fn build(sources: Vec<Source>) -> Tree {
    Tree::build(sources, &Options::default()).unwrap()
}

pub(crate) fn fails(sources: Vec<Source>) -> String {
    let error: Error = Tree::build(sources, &Options::default()).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}

/// Runs a tool and returns whether it worked; a tool that is missing counts as not working.
pub(crate) fn run(program: &str, arguments: &[&OsStr]) -> bool {
    let status = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Like [`run`] for arguments that are text.
pub(crate) fn tool(program: &str, arguments: &[&str]) -> bool {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    run(program, &arguments)
}

/// Packs a directory with GNU tar and `flags` into `to`.
pub(crate) fn tar(folder: &Path, to: &Path, flags: &[&str]) -> bool {
    let mut arguments: Vec<&OsStr> = vec![OsStr::new("--numeric-owner"), OsStr::new("-C")];
    arguments.extend([folder.as_os_str(), OsStr::new("-cf"), to.as_os_str()]);
    arguments.extend(flags.iter().map(OsStr::new));
    arguments.push(OsStr::new("."));
    run("tar", &arguments)
}

pub(crate) fn write(path: PathBuf, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Creates a directory with one of everything that this user may create.
pub(crate) fn everything(at: &Path) {
    for (name, len) in [("empty", 0), ("one", 1), ("block", 4096), ("more", 70_001)] {
        let bytes: Vec<u8> = (0..len).map(|i: u32| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
        write(at.join(name), bytes);
    }
    fs::set_permissions(at.join("one"), fs::Permissions::from_mode(0o4751)).unwrap();
    write(at.join("dir/sub/deep"), "deep");
    fs::set_permissions(at.join("dir/sub"), fs::Permissions::from_mode(0o1770)).unwrap();
    fs::create_dir(at.join("hollow")).unwrap();
    write(at.join("n".repeat(255)), "long name");
    let long = (0..8).fold(at.to_owned(), |path, i| path.join(format!("{i}").repeat(40)));
    write(long.join("end"), "long path");
    symlink("t".repeat(300), at.join("long-link")).unwrap();
    symlink("dir/sub", at.join("link")).unwrap();
    write(at.join(OsStr::from_bytes(b"not\xff\xfeutf8\n")), "bytes");
    fs::hard_link(at.join("more"), at.join("dir/more-too")).unwrap();
    fs::hard_link(at.join("more"), at.join("a-third")).unwrap();
    fs::hard_link(at.join("link"), at.join("dir/link-too")).unwrap();
    sparse(&at.join("sparse"), &[(8192, 4096), (65536, 12288)], 1 << 20);
    sparse(&at.join("hole-at-end"), &[(0, 4096)], 300_000);
    sparse(&at.join("all-hole"), &[], 123_456);
    let many: Vec<(u64, u64)> = (0..200).map(|i| (i * 8192 + 4096, 4096)).collect();
    sparse(&at.join("many-holes"), &many, 200 * 8192);
    assert!(
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o640),
            0
        )
        .is_ok()
    );
    times(at);
}

/// Devices, owners and trusted attributes.
pub(crate) fn everything_of_root(at: &Path) {
    use rustix::fs::{FileType, Mode, makedev, mknodat};
    let mode = Mode::from_raw_mode(0o600);
    mknodat(rustix::fs::CWD, at.join("null"), FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
    mknodat(rustix::fs::CWD, at.join("loop"), FileType::BlockDevice, mode, makedev(7, 300_000)).unwrap();
    std::os::unix::fs::chown(at.join("block"), Some(70_000), Some(3_000_000)).unwrap();
    std::os::unix::fs::lchown(at.join("link"), Some(5), Some(6)).unwrap();
    // Version 2, effective, CAP_NET_RAW permitted (linux/capability.h).
    let capability = [&[1u8, 0, 0, 2][..], &[0, 0x20, 0, 0], &[0; 12]].concat();
    xattr(&at.join("one"), "security.capability", &capability);
    xattr(&at.join("dir"), "trusted.t", b"t");
}

/// Attributes that any user may set where the file system has them; false where it has none.
pub(crate) fn xattrs_of_user(at: &Path) -> bool {
    // A host on which attributes are not read has none to compare with.
    if !hectare_host::losses().is_empty() {
        return false;
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(at.join("block"), "user.a", b"\n=binary\0", flags).is_err() {
        return false;
    }
    xattr(&at.join("block"), "user.empty", b"");
    xattr(&at.join("more"), "user.big", &[b'x'; 3000]);
    xattr(&at.join("dir"), "user.on-dir", b"v");
    // Ids without names here: GNU tar writes an ACL's names where it knows them.
    let acl = "user:71000:r--,group:72000:rw-";
    tool("setfacl", &["-m", acl, at.join("block").to_str().unwrap()])
        && tool("setfacl", &["-d", "-m", acl, at.join("dir").to_str().unwrap()])
}

pub(crate) fn xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn sparse(path: &Path, data: &[(u64, u64)], size: u64) {
    let file = fs::File::create(path).unwrap();
    for (at, len) in data {
        file.write_all_at(&vec![b'd'; usize::try_from(*len).unwrap()], *at).unwrap();
    }
    file.set_len(size).unwrap();
}

/// Gives every file in a directory times of its own with nanoseconds.
pub(crate) fn times(at: &Path) {
    let mut paths = vec![at.to_owned()];
    let mut seen = 0;
    while seen < paths.len() {
        if paths[seen].is_dir() && !paths[seen].is_symlink() {
            paths.extend(fs::read_dir(&paths[seen]).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen += 1;
    }
    paths.sort();
    for (i, path) in (0i64..).zip(&paths) {
        let time = rustix::fs::Timespec { tv_sec: 1_600_000_000 + i * 1000, tv_nsec: 123_456_789 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
    }
}

pub(crate) fn stream(bytes: Vec<u8>) -> Source {
    Source::Stream { name: "test.tar".to_owned(), reader: Box::new(std::io::Cursor::new(bytes)) }
}

/// An archive made by hand, for what GNU tar would not write.
#[derive(Default)]
pub(crate) struct Archive {
    pub(crate) bytes: Vec<u8>,
}

impl Archive {
    pub(crate) fn file(&mut self, name: &str, data: &[u8]) -> &mut Self {
        self.entry(b'0', name, "", data)
    }

    pub(crate) fn entry(&mut self, flag: u8, name: &str, target: &str, data: &[u8]) -> &mut Self {
        let mut header = Self::header(flag, name, data.len());
        header[157..157 + target.len()].copy_from_slice(target.as_bytes());
        Self::checksum(&mut header);
        self.push(&header, data)
    }

    pub(crate) fn entry_with_mode(
        &mut self,
        flag: u8,
        name: &str,
        target: &str,
        mode: u16,
        data: &[u8],
    ) -> &mut Self {
        let at = self.bytes.len();
        self.entry(flag, name, target, data);
        let header = &mut self.bytes[at..at + 512];
        header[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
        Self::checksum(header);
        self
    }

    pub(crate) fn old_sparse(&mut self, name: &str, map: &[(u64, u64)], size: u64, data: &[u8]) -> &mut Self {
        let mut header = Self::header(b'S', name, data.len());
        header[257..265].copy_from_slice(b"ustar  \0");
        for (i, (at, len)) in map.iter().enumerate() {
            header[386 + 24 * i..410 + 24 * i].copy_from_slice(format!("{at:011o}\0{len:011o}\0").as_bytes());
        }
        header[483..495].copy_from_slice(format!("{size:011o}\0").as_bytes());
        Self::checksum(&mut header);
        self.push(&header, data)
    }

    fn header(flag: u8, name: &str, size: usize) -> [u8; 512] {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..108].copy_from_slice(b"0000644\0");
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        header[156] = flag;
        header[257..265].copy_from_slice(b"ustar\x0000");
        header
    }

    fn push(&mut self, header: &[u8; 512], data: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn pax(&mut self, flag: char, records: &[(&str, &[u8])]) -> &mut Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut len = rest + 1;
            while rest + len.to_string().len() != len {
                len += 1;
            }
            data.extend_from_slice(format!("{len} {key}=").as_bytes());
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.entry(u8::try_from(flag).unwrap(), "pax", "", &data)
    }

    pub(crate) fn checksum(header: &mut [u8]) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    /// Ends the archive and makes it a source.
    pub(crate) fn finish(&mut self) -> Vec<Source> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        vec![stream(self.bytes.clone())]
    }
}
