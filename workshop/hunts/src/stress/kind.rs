//! The kinds of volume that are stressed, and how each is made.

use crate::kill_test::Ended;
use hectare_oracle::feature_matrix::attach_journal;
use hectare_oracle::loops::Access;
use hectare_oracle::{Combo, KernelMount, LoopDevice, MountError, mke2fs, tool};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of a volume: stress-ng wants room for files of 128 MiB.
const SIZE: &str = "1G";
/// One kind of volume: how it is made and mounted.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// The feature set, by its name among [`combos()`](crate::combos()).
    pub combo: &'static str,
    /// Further mount options of the program.
    pub options: &'static str,
    /// The arguments of `chattr` for the directory that all work is done in.
    chattr: &'static [&'static str],
    /// Whether the journal lies on another device.
    external: bool,
}

const fn kind(name: &'static str, combo: &'static str) -> Kind {
    Kind { name, combo, options: "", chattr: &[], external: false }
}

/// All of them.
pub const KINDS: [Kind; 30] = [
    kind("ext2", "ext2"),
    kind("ext2-1k", "ext2-1k-128"),
    kind("ext2-no-filetype", "ext2-no-filetype"),
    kind("ext3", "ext3"),
    kind("ext3-1k", "ext3-1k"),
    Kind { options: "data=journal", ..kind("ext3-1k-data", "ext3-1k") },
    kind("ext4", "ext4"),
    Kind { options: "writeback", ..kind("ext4-writeback", "ext4") },
    kind("ext4-1k", "ext4-1k"),
    kind("ext4-64k", "ext4-64k"),
    kind("no-extents", "no-extents"),
    kind("inode-128", "ext4-inode-128"),
    kind("inline-data", "inline-data"),
    kind("inline-data-1024", "inline-data-1024"),
    Kind { options: "data=journal", ..kind("inline-data-journal", "inline-data-512") },
    kind("ea-inode", "ea-inode"),
    Kind { chattr: &["-p", "7", "+P"], ..kind("project", "project") },
    Kind { chattr: &["+F"], ..kind("casefold", "casefold") },
    kind("fast-commit", "fast-commit"),
    Kind { external: true, ..kind("external-journal", "no-journal") },
    kind("bigalloc", "bigalloc"),
    Kind { options: "data=journal", ..kind("bigalloc-1k-data", "bigalloc-1k") },
    Kind { options: "data=journal", ..kind("data-journal", "ext4") },
    kind("no-journal", "no-journal"),
    kind("no-csum", "no-csum"),
    kind("meta-bg-1k", "meta-bg-1k"),
    kind("no-dir-index", "no-dir-index"),
    kind("orphan-file", "orphan-file"),
    kind("small-groups", "small-groups"),
    kind("modern", "modern"),
];

impl Kind {
    /// The kind of this name.
    ///
    /// # Errors
    /// A line with all names, if there is none.
    pub fn named(name: &str) -> Result<Self, String> {
        KINDS.into_iter().find(|kind| kind.name == name).ok_or_else(|| {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            format!("there is no kind of volume {name}, but {}", names.join(", "))
        })
    }
}

/// A volume of a kind.
pub(super) struct Made {
    kind: Kind,
    pub(super) image: PathBuf,
    journal: Option<PathBuf>,
}

impl Made {
    /// Makes it, with the directory for all work at the path `work`.
    pub(super) fn new(kind: Kind, program: &Path, folder: &Path, work: &str) -> Result<Self, Ended> {
        let (image, journal) = (folder.join("stressed.img"), folder.join("journal.img"));
        let _ = std::fs::remove_file(&image); // of the kind before
        let combo = Combo::named(kind.combo);
        mke2fs(combo.args, &image, SIZE)?;
        let journal = kind.external.then_some(journal);
        if let Some(journal) = &journal {
            attach_journal(&image, journal, combo.block_size)?;
        }
        let made = Self { kind, image, journal };
        let place = format!("{}:/{work}", made.image.display());
        made.run(program, &["mkdir", &place])?;
        if !kind.chattr.is_empty() {
            made.run(program, &[&["chattr"], kind.chattr, &[&place]].concat())?;
        }
        Ok(made)
    }

    fn run(&self, program: &Path, words: &[&str]) -> Result<(), Ended> {
        let mut command = Command::new(program);
        command.args(words);
        if let Some(journal) = &self.journal {
            command.arg("--journal").arg(journal);
        }
        let said = tool::run(&mut command);
        if said.succeeded() { Ok(()) } else { Err(said.report().into()) }
    }

    /// The mount options of the program.
    pub(super) fn options(&self) -> String {
        let mut options = vec!["allow_other,noatime,suid,dev".to_owned()];
        options.extend((!self.kind.options.is_empty()).then(|| self.kind.options.to_owned()));
        options.extend(self.journal.as_ref().map(|journal| format!("journal_path={}", journal.display())));
        options.join(",")
    }

    /// Has e2fsck check it.
    pub(super) fn check(&self) -> Result<(), Ended> {
        let journal = self.journal.as_ref().map(|journal| journal.to_string_lossy());
        let flags = match &journal {
            Some(journal) => vec!["-fn", "-j", journal],
            None => vec!["-fn"],
        };
        let report = hectare_oracle::fsck::e2fsck_with(&self.image, &flags)?;
        if report.is_sound() { Ok(()) } else { Err(report.output.into()) }
    }

    /// Has the kernel mount it, with what must stay until it is unmounted; a skip where it can't mount such a
    /// volume.
    pub(super) fn mount(&self, access: Access) -> Result<(KernelMount, Option<LoopDevice>), Ended> {
        // Reading needs a device for the journal that could be written.
        let device =
            self.journal.as_ref().map(|path| LoopDevice::new(path, Access::ReadWrite)).transpose()?;
        let options = device.as_ref().map(|device| format!("journal_path={}", device.path().display()));
        match KernelMount::attempt(&self.image, access, &options.unwrap_or_default()) {
            Ok(mount) => Ok((mount, device)),
            Err(MountError::Skip(skip)) => Err(skip.into()),
            Err(refused) => Err(refused.to_string().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_have_names_of_their_own_and_sets_that_exist() {
        let names: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len());
        for kind in KINDS {
            assert_eq!(Combo::named(Kind::named(kind.name).unwrap().combo).name, kind.combo);
        }
        assert!(Kind::named("ext5").unwrap_err().contains("external-journal"));
    }
}
