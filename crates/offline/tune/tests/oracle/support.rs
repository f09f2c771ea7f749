//! Volumes with something in them, and changes by their options.

use hectare_device::{Device, FileOptions};
use hectare_oracle::compare::{Times, What};
use hectare_oracle::{Combo, Entry, KernelMount, Scale, Skip, Tree, fsck, scratch, walk};
use hectare_tune::{Changes, Outcome, tune};
use hectare_units::BlockNr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A volume to be changed.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) combo: Combo,
    /// Further arguments of mke2fs.
    pub(crate) more: &'static [&'static str],
    pub(crate) mib: u64,
}

impl Base {
    pub(crate) fn new(combo: &str, more: &'static [&'static str], mib: u64) -> Self {
        Self { combo: Combo::named(combo), more, mib }
    }

    /// Makes the volume and fills it.
    pub(crate) fn make(&self) -> Result<PathBuf, Skip> {
        let image = scratch::fresh(self.combo.name);
        let args = [self.combo.args, self.more].concat();
        let size = format!("{}M", self.mib);
        if self.combo.mountable().is_ok() {
            hectare_oracle::mke2fs(&args, &image, &size)?;
            let mount = KernelMount::new(&image, "")?;
            fill(mount.path());
            mount.unmount();
        } else {
            let folder = scratch::fresh("source");
            fs::create_dir(&folder).unwrap();
            fill(&folder);
            let from = folder.to_str().unwrap().to_owned();
            hectare_oracle::mke2fs(&[&args[..], &["-d", &from]].concat(), &image, &size)?;
            fs::remove_dir_all(folder).unwrap();
            // mke2fs -d does not count quotas.
            let _ = fsck::e2fsck_with(&image, &["-fy"])?;
        }
        Ok(image)
    }

    /// Everything in a volume of that kind.
    pub(crate) fn entries(&self, image: &Path) -> Result<Vec<Entry>, Skip> {
        if self.combo.mountable().is_ok() {
            let mount = KernelMount::read_only(image, "")?;
            return Ok(walk(mount.path()));
        }
        hectare_oracle::dumped(image)
    }

    pub(crate) fn compared(&self) -> What {
        if self.combo.mountable().is_err() {
            return What::content();
        }
        let mtimes = if self.combo.inode_size == 128 { Times::Seconds } else { Times::Exact };
        What { mtimes, ..What::all() }
    }
}

/// Names enough for an index, files in pieces, attributes, links.
fn fill(folder: &Path) {
    for tree in [Tree::Names, Tree::Links, Tree::Attributes, Tree::ManyFiles, Tree::Fragmented, Tree::Times] {
        // What the volume has no feature for is left out.
        let _ = tree.make(&folder.join(tree.name()), &Scale { files: 260, extents: 60, ..Scale::SMALL });
    }
    for nr in 0..120 {
        fs::write(folder.join(format!("filler-{nr}")), vec![7; 5000]).unwrap();
    }
    for nr in (0..120).step_by(2) {
        fs::remove_file(folder.join(format!("filler-{nr}"))).unwrap();
    }
}

/// Parses the options that the tests draw, in the words of tune2fs.
pub(crate) fn changes(options: &[(&str, &str)]) -> Changes {
    let mut changes = Changes {
        now: hectare_ext4::time::Timestamp { seconds: 1_700_000_000, nanoseconds: 0 },
        ..Changes::default()
    };
    for (option, value) in options {
        match *option {
            "-O" => changes.features.extend(hectare_mkfs::parse_features(value).unwrap()),
            "-I" => changes.inode_size = Some(value.parse().unwrap()),
            "-L" => changes.label = Some(value.as_bytes().to_vec()),
            "-U" => changes.uuid = Some([value.as_bytes()[0]; 16]),
            "-J" => match value.split_once('=').unwrap() {
                ("size", mib) => changes.journal_mib = Some(mib.parse().unwrap()),
                ("location", block) => {
                    changes.journal_location = Some(BlockNr::new(block.parse().unwrap()));
                }
                other => panic!("{other:?}"),
            },
            other => panic!("{other}"),
        }
    }
    changes
}

/// Changes an image file.
pub(crate) fn change(image: &Path, changes: &Changes) -> hectare_tune::Result<Outcome> {
    let disk: Arc<dyn Device> = Arc::new(FileOptions::new().write(true).open(image).unwrap());
    tune(&disk, changes)
}
