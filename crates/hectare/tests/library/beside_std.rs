//! The same programs for `std::fs` on a directory of the host and for a volume: results and kinds of errors
//! are the same.

use crate::{close_clean, in_memory};
use hectare::Volume;
use hectare::fs::OpenOptions;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What one operation did: a text that both sides must agree on.
type Seen = Result<String, ErrorKind>;

#[derive(Clone, Debug)]
enum Step {
    Write(usize, u16),
    Append(usize, u16),
    CreateNew(usize),
    SetLen(usize, u16),
    ReadAt(usize, u16, u16),
    Read(usize),
    CreateDir(usize),
    CreateDirAll(usize),
    RemoveFile(usize),
    RemoveDir(usize),
    RemoveDirAll(usize),
    Rename(usize, usize),
    HardLink(usize, usize),
    Symlink(usize, usize),
    ReadLink(usize),
    Canonicalize(usize),
    Copy(usize, usize),
    Chmod(usize, u16),
    Stat(usize),
    Lstat(usize),
    List(usize),
}

/// Relative, so that they mean the same below the host's directory; no link leads out of it.
const PATHS: [&str; 14] =
    ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/f", "d/e/../a", "./a", "l", "d/l", "l/a", "a/x", "x/y/z"];
const TARGETS: [&str; 6] = ["a", "d", "d/e", "./e/../a", "nowhere", "l"];

fn step() -> impl Strategy<Value = Step> {
    let path = || 0..PATHS.len();
    prop_oneof![
        (path(), 0..20_000u16).prop_map(|(at, len)| Step::Write(at, len)),
        (path(), 0..3_000u16).prop_map(|(at, len)| Step::Append(at, len)),
        path().prop_map(Step::CreateNew),
        (path(), any::<u16>()).prop_map(|(at, len)| Step::SetLen(at, len)),
        (path(), any::<u16>(), 1..5_000u16).prop_map(|(at, from, len)| Step::ReadAt(at, from, len)),
        path().prop_map(Step::Read),
        path().prop_map(Step::CreateDir),
        path().prop_map(Step::CreateDirAll),
        path().prop_map(Step::RemoveFile),
        path().prop_map(Step::RemoveDir),
        path().prop_map(Step::RemoveDirAll),
        (path(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
        (path(), path()).prop_map(|(from, to)| Step::HardLink(from, to)),
        (0..TARGETS.len(), path()).prop_map(|(to, at)| Step::Symlink(to, at)),
        path().prop_map(Step::ReadLink),
        path().prop_map(Step::Canonicalize),
        (path(), path()).prop_map(|(from, to)| Step::Copy(from, to)),
        (path(), 0..0o1000u16).prop_map(|(at, mode)| Step::Chmod(at, mode)),
        path().prop_map(Step::Stat),
        path().prop_map(Step::Lstat),
        path().prop_map(Step::List),
    ]
}

fn content(len: u16) -> Vec<u8> {
    (0..len).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect()
}

fn digest(bytes: &[u8]) -> String {
    format!(
        "{} {:x}",
        bytes.len(),
        bytes.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))
    )
}

fn unit(_: ()) -> String {
    String::new()
}

fn kind(error: impl Into<io::Error>) -> ErrorKind {
    error.into().kind()
}

/// The host's side.
struct Host(PathBuf);

impl Host {
    fn at(&self, path: usize) -> PathBuf {
        self.0.join(PATHS[path])
    }

    fn would_copy_onto_itself(&self, step: &Step) -> bool {
        let number = |path| fs::metadata(self.at(path)).ok().map(|found| found.ino());
        matches!(*step, Step::Copy(from, to) if number(from).is_some() && number(from) == number(to))
    }

    fn run(&self, step: &Step) -> io::Result<String> {
        match *step {
            Step::Write(at, len) => fs::write(self.at(at), content(len)).map(unit),
            Step::Append(at, len) => {
                let mut file = fs::OpenOptions::new().append(true).create(true).open(self.at(at))?;
                file.write_all(&content(len)).map(unit)
            }
            Step::CreateNew(at) => {
                fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(self.at(at))?;
                Ok(String::new())
            }
            Step::SetLen(at, len) => {
                fs::OpenOptions::new().write(true).open(self.at(at))?.set_len(len.into()).map(unit)
            }
            Step::ReadAt(at, from, len) => {
                let mut file = fs::File::open(self.at(at))?;
                file.seek(SeekFrom::Start(from.into()))?;
                let mut bytes = Vec::new();
                file.take(len.into()).read_to_end(&mut bytes)?;
                Ok(digest(&bytes))
            }
            Step::Read(at) => fs::read(self.at(at)).map(|bytes| digest(&bytes)),
            Step::CreateDir(at) => fs::create_dir(self.at(at)).map(unit),
            Step::CreateDirAll(at) => fs::create_dir_all(self.at(at)).map(unit),
            Step::RemoveFile(at) => fs::remove_file(self.at(at)).map(unit),
            Step::RemoveDir(at) => fs::remove_dir(self.at(at)).map(unit),
            Step::RemoveDirAll(at) => fs::remove_dir_all(self.at(at)).map(unit),
            Step::Rename(from, to) => fs::rename(self.at(from), self.at(to)).map(unit),
            Step::HardLink(from, to) => fs::hard_link(self.at(from), self.at(to)).map(unit),
            Step::Symlink(to, at) => symlink(TARGETS[to], self.at(at)).map(unit),
            Step::ReadLink(at) => fs::read_link(self.at(at)).map(|to| to.display().to_string()),
            Step::Canonicalize(at) => fs::canonicalize(self.at(at)).map(|path| {
                let inside = path.strip_prefix(&self.0).expect("no link leads out");
                Path::new("/").join(inside).display().to_string()
            }),
            Step::Copy(from, to) => fs::copy(self.at(from), self.at(to)).map(|bytes| bytes.to_string()),
            Step::Chmod(at, mode) => {
                fs::set_permissions(self.at(at), fs::Permissions::from_mode(mode.into())).map(unit)
            }
            Step::Stat(at) => fs::metadata(self.at(at)).map(|found| shown_host(&found)),
            Step::Lstat(at) => fs::symlink_metadata(self.at(at)).map(|found| shown_host(&found)),
            Step::List(at) => {
                let names = fs::read_dir(self.at(at))?.map(|entry| {
                    let entry = entry?;
                    Ok((entry.file_name(), entry.file_type()?.is_dir()))
                });
                Ok(format!("{:?}", names.collect::<io::Result<BTreeMap<_, _>>>()?))
            }
        }
    }
}

fn shown_host(found: &fs::Metadata) -> String {
    let kind = found.file_type();
    let len = if kind.is_dir() { 0 } else { found.len() };
    let mode = found.permissions().mode() & 0o7777;
    format!("{} {} {} {len} {mode:o}", kind.is_file(), kind.is_dir(), kind.is_symlink())
}

fn shown(found: &hectare::fs::Metadata) -> String {
    let kind = found.file_type();
    let len = if kind.is_dir() { 0 } else { found.len() };
    format!("{} {} {} {len} {:o}", kind.is_file(), kind.is_dir(), kind.is_symlink(), found.mode())
}

/// The volume's side.
fn run(volume: &Volume, step: &Step) -> io::Result<String> {
    let path = |at: usize| PATHS[at];
    Ok(match *step {
        Step::Write(at, len) => volume.write(path(at), content(len)).map(unit)?,
        Step::Append(at, len) => {
            let mut file = OpenOptions::new().append(true).create(true).open(volume, path(at))?;
            file.write_all(&content(len)).map(unit)?
        }
        Step::CreateNew(at) => {
            OpenOptions::new().write(true).create_new(true).mode(0o640).open(volume, path(at))?;
            String::new()
        }
        Step::SetLen(at, len) => {
            OpenOptions::new().write(true).open(volume, path(at))?.set_len(len.into()).map(unit)?
        }
        Step::ReadAt(at, from, len) => {
            let mut file = volume.open_file(path(at))?;
            file.seek(SeekFrom::Start(from.into()))?;
            let mut bytes = Vec::new();
            file.take(len.into()).read_to_end(&mut bytes)?;
            digest(&bytes)
        }
        Step::Read(at) => volume.read(path(at)).map(|bytes| digest(&bytes))?,
        Step::CreateDir(at) => volume.create_dir(path(at)).map(unit)?,
        Step::CreateDirAll(at) => volume.create_dir_all(path(at)).map(unit)?,
        Step::RemoveFile(at) => volume.remove_file(path(at)).map(unit)?,
        Step::RemoveDir(at) => volume.remove_dir(path(at)).map(unit)?,
        Step::RemoveDirAll(at) => volume.remove_dir_all(path(at)).map(unit)?,
        Step::Rename(from, to) => volume.rename(path(from), path(to)).map(unit)?,
        Step::HardLink(from, to) => volume.hard_link(path(from), path(to)).map(unit)?,
        Step::Symlink(to, at) => volume.symlink(TARGETS[to], path(at)).map(unit)?,
        Step::ReadLink(at) => volume.read_link(path(at)).map(|to| to.display().to_string())?,
        Step::Canonicalize(at) => volume.canonicalize(path(at)).map(|path| path.display().to_string())?,
        Step::Copy(from, to) => volume.copy(path(from), path(to)).map(|bytes| bytes.to_string())?,
        Step::Chmod(at, mode) => {
            volume.set_permissions(path(at), hectare::fs::Permissions::from_mode(mode.into())).map(unit)?
        }
        Step::Stat(at) => volume.metadata(path(at)).map(|found| shown(&found))?,
        Step::Lstat(at) => volume.symlink_metadata(path(at)).map(|found| shown(&found))?,
        Step::List(at) => {
            let names = volume.read_dir(path(at))?.map(|entry| {
                let entry = entry?;
                Ok((entry.file_name(), entry.file_type()?.is_dir()))
            });
            format!("{:?}", names.collect::<io::Result<BTreeMap<_, _>>>()?)
        }
    })
}

fn same_program(steps: &[Step]) {
    let folder = tempfile::tempdir().unwrap();
    let host = Host(folder.path().canonicalize().unwrap());
    let (volume, device) = in_memory();
    volume.remove_dir("lost+found").unwrap();
    for (number, step) in steps.iter().enumerate() {
        if host.would_copy_onto_itself(step) {
            // std empties the file; we refuse.
            continue;
        }
        let expected: Seen = host.run(step).map_err(kind);
        let seen: Seen = run(&volume, step).map_err(kind);
        assert_eq!(seen, expected, "step {number}, {step:?} on {:?}", &PATHS);
    }
    close_clean(volume, &device);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_behaves_like_a_directory_of_the_host(steps in proptest::collection::vec(step(), 1..300)) {
        same_program(&steps);
    }
}
