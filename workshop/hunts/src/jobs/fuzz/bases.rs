//! The small volumes that the fuzz targets start from, by mke2fs, e2fsck and debugfs; no root needed.
//!
//! All hold the same tree: a directory of twenty files, files of a few sizes, a sparse file, hard links,
//! symbolic links short, long and looping, attributes few and many, an ACL; then devices by debugfs. They
//! differ in the features that change the layout. They have a fixed UUID, hash seed and times, but another
//! version of e2fsprogs may lay them out otherwise, so they are made anew only for a reason.

use hectare_oracle::tool;
use hectare_tools::steps::{root, shown};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name, size, block size, arguments of mke2fs, whether directories are indexed afterwards.
const BASES: &[(&str, &str, &str, &[&str], bool)] = &[
    ("plain", "256K", "1024", &["-O", "^has_journal,^resize_inode"], false),
    ("ext2", "256K", "1024", &["-O", "none,filetype,ext_attr,sparse_super,large_file", "-I", "128"], false),
    ("old-csum", "256K", "1024", &["-O", "^has_journal,^metadata_csum,uninit_bg,^64bit", "-I", "128"], false),
    ("inline", "256K", "1024", &["-O", "^has_journal,^resize_inode,inline_data", "-I", "512"], false),
    ("bigalloc", "512K", "1024", &["-O", "^has_journal,^resize_inode,bigalloc", "-C", "4096"], false),
    ("ea-inode", "256K", "1024", &["-O", "^has_journal,^resize_inode,ea_inode,metadata_csum_seed"], false),
    ("meta-bg", "512K", "1024", &["-O", "^has_journal,^resize_inode,meta_bg,^flex_bg", "-g", "256"], false),
    ("index", "512K", "1024", &["-O", "^has_journal,^resize_inode,large_dir"], true),
    (
        "modern",
        "2200K",
        "1024",
        &["-O", "metadata_csum_seed,orphan_file,^resize_inode", "-J", "size=1"],
        true,
    ),
    ("mmp", "256K", "1024", &["-O", "^has_journal,^resize_inode,mmp", "-E", "mmp_update_interval=1"], false),
    ("four-k", "512K", "4096", &["-O", "^has_journal,^resize_inode"], false),
    ("deep", "1M", "1024", &["-O", "^has_journal,^resize_inode"], false),
    (
        "ext3",
        "2200K",
        "1024",
        &["-O", "none,has_journal,filetype,ext_attr,sparse_super,large_file", "-I", "128", "-J", "size=1"],
        false,
    ),
    ("inline-old", "256K", "1024", &["-O", "^has_journal,^resize_inode,^extent,^64bit,inline_data"], false),
    ("casefold", "512K", "1024", &["-O", "^has_journal,^resize_inode,casefold"], true),
    (
        "quota",
        "512K",
        "1024",
        &[
            "-O",
            "^has_journal,^resize_inode,ea_inode,quota,project",
            "-E",
            "quotatype=usrquota:grpquota:prjquota",
        ],
        false,
    ),
];
/// Directories that fold names, in the volume called casefold: the flags of one without an index.
const FOLDED: [&str; 2] = ["d", "fold"];
const FOLDED_FLAGS: &str = "0x40080000";
/// Data blocks of the sparse file in the volume called deep: more than the root and a node hold.
const DEEP_EXTENTS: u64 = 350;

/// Makes them all; returns whether that worked.
pub(super) fn make() -> bool {
    let work = std::env::temp_dir().join(format!("hectare-fuzz-bases-{}", std::process::id()));
    let done = fs::create_dir_all(&work).and_then(|()| {
        for base in BASES {
            one(&work, base)?;
        }
        Ok(())
    });
    let _ = fs::remove_dir_all(&work); // a leftover in the temporary directory is harmless
    if let Err(error) = &done {
        eprintln!("can't make the base volumes: {error}");
    }
    done.is_ok()
}

fn one(work: &Path, base: &(&str, &str, &str, &[&str], bool)) -> io::Result<()> {
    let (name, size, block_size, args, indexed) = *base;
    let folder = work.join(name);
    fill(&folder, name)?;
    let image = work.join(format!("{name}.img"));
    let mut mke2fs = need("mke2fs")?;
    mke2fs
        .args(["-q", "-F", "-t", "ext4", "-b", block_size, "-N", "96", "-m", "1", "-L", name])
        .args(["-U", "01234567-89ab-cdef-0123-456789abcdef"])
        .args(["-E", "hash_seed=fedcba98-7654-3210-fedc-ba9876543210,lazy_itable_init=1"])
        .args(args)
        .arg("-d")
        .arg(&folder)
        .arg(&image)
        .arg(size)
        .env("E2FSPROGS_FAKE_TIME", "1700000000");
    run(&mut mke2fs)?;
    edit(work, &image, name)?;
    // Exit code 1: something was changed, which was the point. debugfs leaves a count or two behind that are
    // wrong.
    let mut e2fsck = need("e2fsck")?;
    e2fsck.arg(if indexed { "-fyD" } else { "-fy" }).arg(&image).env("E2FSPROGS_FAKE_TIME", "1700000000");
    shown(e2fsck.stdout(Stdio::null()));
    run(need("e2fsck")?.args(["-fn"]).arg(&image).stdout(Stdio::null()))?;
    let packed = need("gzip")?.args(["-9", "-n", "-c"]).arg(&image).output()?;
    let target = root().join("workshop/fuzz/bases").join(format!("{name}.img.gz"));
    fs::write(&target, packed.stdout)
}

fn need(name: &str) -> io::Result<Command> {
    tool(name).ok_or_else(|| io::Error::other(format!("the tool {name} is not installed")))
}

fn run(command: &mut Command) -> io::Result<()> {
    if shown(command) { Ok(()) } else { Err(io::Error::other("the command above failed")) }
}

fn fill(folder: &Path, name: &str) -> io::Result<()> {
    let at = |path: &str| -> PathBuf { folder.join(path) };
    for directory in ["d", "links", "attrs", "a/b/c"] {
        fs::create_dir_all(at(directory))?;
    }
    let names = if matches!(name, "index" | "modern" | "casefold") { 150 } else { 20 };
    fs::write(at("d/f00"), [])?;
    for i in 1..names {
        let name = at(&format!("d/f{i:02}"));
        // Many names, few inodes.
        if i < 20 { fs::write(name, [])? } else { fs::hard_link(at("d/f00"), name)? }
    }
    fs::write(at("small"), [b's'; 50])?;
    fs::write(at("medium"), [b'm'; 2500])?;
    fs::hard_link(at("small"), at("hard"))?;
    let far = matches!(name, "ext2" | "ext3" | "inline-old");
    sparse(&at("sparse"), if name == "deep" { DEEP_EXTENTS } else { 6 }, far)?;
    if name == "casefold" {
        fs::create_dir_all(at("fold/sub"))?;
        for file in [&b"Alpha"[..], b"beta", b"Stra\xc3\x9fe", b"\xc3\xa9", b"no\xff\xfetext"] {
            fs::write(at("fold").join(OsStr::from_bytes(file)), [])?;
        }
    }
    symlink("../small", at("links/fast"))?;
    symlink("t/".repeat(90), at("links/slow"))?;
    symlink("loop", at("links/loop"))?;
    for file in ["attrs/one", "attrs/many", "attrs/acl", "attrs/large"] {
        fs::write(at(file), [])?;
    }
    Ok(())
}

/// Blocks of data with holes between them; one far out where a triple map is wanted.
fn sparse(path: &Path, blocks: u64, far: bool) -> io::Result<()> {
    let file = fs::File::create(path)?;
    for i in 0..blocks {
        file.write_all_at(&[b'p'; 1024], i * 4096)?;
    }
    if far {
        file.write_all_at(&[b'p'; 1024], 20 * 1024)?;
        file.write_all_at(&[b'p'; 1024], 400 * 1024)?;
        file.write_all_at(&[b'p'; 1024], 80 << 20)?;
    }
    file.set_len(file.metadata()?.len() + 10_000)
}

/// Devices and attributes, which an ordinary user's directory can't have.
fn edit(work: &Path, image: &Path, name: &str) -> io::Result<()> {
    fs::write(work.join("acl"), acl())?;
    fs::write(work.join("large"), [b'l'; 3000])?;
    let mut requests = vec![
        "mknod fifo p".to_owned(),
        "mknod tty c 4 70".to_owned(),
        "mknod disk b 259 70000".to_owned(),
        "ea_set attrs/one user.a value".to_owned(),
        format!("ea_set -f {} attrs/acl system.posix_acl_access", work.join("acl").display()),
    ];
    requests.extend((0..9).map(|i| format!("ea_set attrs/many user.many{i} {}", "value".repeat(8))));
    if name == "casefold" {
        requests.extend(FOLDED.map(|dir| format!("set_inode_field {dir} flags {FOLDED_FLAGS}")));
    }
    if name == "quota" {
        // Owners that the sums are of; e2fsck corrects these afterwards.
        for (i, file) in ["small", "medium", "attrs/large", "d/f00"].iter().enumerate() {
            requests.push(format!("set_inode_field {file} uid {}", i * 1000));
            requests.push(format!("set_inode_field {file} projid {i}"));
        }
    }
    if matches!(name, "ea-inode" | "quota") {
        requests.push(format!("ea_set -f {} attrs/large user.large", work.join("large").display()));
    }
    for request in requests {
        need("debugfs")?.args(["-w", "-R", &request]).arg(image).output()?;
    }
    Ok(())
}

/// Version 2; owner rw-, user 7 r--, group r--, mask r--, others ---.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, u32::MAX), (2, 4, 7), (4, 4, u32::MAX), (0x10, 4, u32::MAX), (0x20, 0, u32::MAX)];
    let mut acl = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}
