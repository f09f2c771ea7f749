//! The kernel and the engine change one volume in turn, on every combination of features that the kernel here
//! mounts, and on random ones; on others the engine alone does, and debugfs reads it instead of the kernel.
//! After each round e2fsck judges the volume, and the next one begins with comparing all of it with a model.

mod model;

use crate::common::try_open_image;
use hectare_device::FileOptions;
use hectare_engine::{JournalDevice, OpenOptions, Volume};
use hectare_oracle::feature_matrix::{Drawn, attach_journal, drawn};
use hectare_oracle::hunt::{self, long};
use hectare_oracle::loops::Access;
use hectare_oracle::trees::Random;
use hectare_oracle::{
    Combo, KernelMount, LoopDevice, Skip, combos, debugfs, debugfs_write, fsck, skip, skip_part,
};
use model::{Abilities, Model, Op, engine_does, kernel_does};
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Operations of a round.
const OPS: u32 = 60;
/// Random sets of a long run, and its rounds on each.
const DRAWN: (usize, u32) = (5, 12);

/// A volume that changes hands, and what should be on it.
struct Turns {
    label: String,
    image: PathBuf,
    journal: Option<PathBuf>,
    model: Model,
    random: Random,
    /// Whether the kernel has changed it.
    is_the_kernels: bool,
}

impl Turns {
    /// An empty volume.
    fn new(label: String, set: &Drawn, folder: &Path) -> Result<Self, Skip> {
        let (image, journal) = (folder.join("image"), folder.join("journal"));
        set.combo.make(&image)?;
        let journal = set.external.then_some(journal);
        if let Some(journal) = &journal {
            attach_journal(&image, journal, set.combo.block_size)?;
        }
        if set.journals_data {
            // Attributes and ACLs, too, as mke2fs sets it.
            debugfs_write(&image, &["ssv default_mount_opts 0x2c"])?;
        }
        let random = Random::new(&label);
        Ok(Self {
            label,
            image,
            journal,
            model: Model::new(abilities(&set.combo)),
            random,
            is_the_kernels: false,
        })
    }

    fn opened(&self, options: OpenOptions) -> Volume {
        let journal = self.journal.as_ref().map(|path| {
            let device = FileOptions::new().write(!options.read_only).open(path).unwrap();
            JournalDevice(Arc::new(device))
        });
        try_open_image(&self.image, OpenOptions { journal, ..options }).unwrap()
    }

    /// Has the kernel mount it, with what must stay until it is unmounted.
    fn mounted(&self) -> Result<(KernelMount, Option<LoopDevice>), Skip> {
        let device =
            self.journal.as_ref().map(|path| LoopDevice::new(path, Access::ReadWrite)).transpose()?;
        let options = device.as_ref().map(|device| format!("journal_path={}", device.path().display()));
        Ok((KernelMount::new(&self.image, &options.unwrap_or_default())?, device))
    }

    fn ops(&mut self, allocates: bool) -> Vec<Op> {
        (0..OPS).filter_map(|_| self.model.next(&mut self.random, allocates)).collect()
    }

    fn engine(&mut self) {
        let volume = self.opened(OpenOptions::default());
        self.ops(true).iter().for_each(|op| engine_does(&volume, op));
        volume.close().unwrap();
    }

    fn kernel(&mut self, label: &str) {
        let (mount, journal) = self.mounted().unwrap();
        self.model.is_what_the_kernel_has(mount.path(), label);
        // The hole that it makes in a file that it takes out of an inode is lost (6.18).
        let allocates = !self.model.has_inline_data();
        self.ops(allocates).iter().for_each(|op| kernel_does(mount.path(), op));
        mount.unmount();
        drop(journal);
        self.is_the_kernels = true;
    }

    /// Has e2fsck judge it, and compares what the engine reads; and debugfs, where the kernel can't.
    fn judge(&self, label: &str, mounts: bool) {
        let journal = self.journal.as_ref().map(|path| path.display().to_string());
        let flags = journal.iter().flat_map(|path| ["-j", path]);
        let report = fsck::e2fsck_with(&self.image, &["-fn"].into_iter().chain(flags).collect::<Vec<_>>());
        let report = report.unwrap();
        // The kernel leaves trees of extents that could be smaller.
        let fine = report.clean || (self.is_the_kernels && report.is_sound());
        assert!(fine, "{label}: {}", report.output);
        self.model.is_what_the_engine_has(&self.opened(OpenOptions::read_only()), label);
        if !mounts {
            let copy = tempfile::tempdir().unwrap();
            debugfs(&self.image, &[&format!("rdump / {}", copy.path().display())]).unwrap();
            self.model.is_what_debugfs_copied(copy.path(), label);
        }
    }
}

fn abilities(combo: &Combo) -> Abilities {
    let cluster = combo.args.iter().position(|arg| *arg == "-C").map(|at| combo.args[at + 1]);
    let unit = cluster.map_or(u64::from(combo.block_size), |bytes| bytes.parse().unwrap());
    // Beside the value a block has its own header, and that of the value.
    let block = u64::from(combo.block_size) - 100;
    let value_max = if combo.has("ea_inode") { 20_000 } else { block.min(3000) };
    Abilities { extents: combo.extents, unit, inline_data: combo.has("inline_data"), value_max }
}

fn turns(label: String, set: &Drawn, rounds: u32, folder: &Path) {
    let mut turns = match Turns::new(label, set, folder) {
        Ok(turns) => turns,
        Err(reason) => return skip_part!(set.combo.name, reason),
    };
    let mounts = match turns.mounted() {
        Ok(_) => true,
        Err(reason) => {
            skip_part!(format!("{}, by the kernel (debugfs reads it)", turns.label), reason);
            false
        }
    };
    for round in 0..rounds {
        let label = format!("{}, round {round}", turns.label);
        if round % 2 == 0 || !mounts {
            turns.engine();
        } else {
            turns.kernel(&label);
        }
        turns.judge(&label, mounts);
    }
}

#[test]
fn the_kernel_and_the_engine_change_every_kind_of_volume_in_turn() {
    if let Err(reason) = hectare_oracle::tool::need("mke2fs") {
        skip!("turns::the_kernel_and_the_engine", reason);
    }
    let rounds = if long("turns, 20 rounds each") { 20 } else { 4 };
    let temporary = tempfile::tempdir().unwrap();
    for combo in combos() {
        let set = Drawn { combo: *combo, journals_data: false, external: false };
        turns(format!("turns, {}", combo.name), &set, rounds, temporary.path());
    }
}

/// `HECTARE_SETS` says how many sets a long run has.
#[test]
fn the_kernel_and_the_engine_change_random_kinds_of_volumes_in_turn() {
    if let Err(reason) = hectare_oracle::tool::need("mke2fs") {
        skip!("turns::random_kinds", reason);
    }
    let seed = hunt::seed("turns");
    let (count, rounds) = if long("turns, more random sets") {
        let asked = std::env::var("HECTARE_SETS").ok().and_then(|count| count.parse().ok());
        (asked.unwrap_or(DRAWN.0), DRAWN.1)
    } else {
        (2, 2)
    };
    let temporary = tempfile::tempdir().unwrap();
    let mut failed = Vec::new();
    for set in drawn(seed, count).unwrap() {
        eprintln!("{set:?}");
        let _ = fs::remove_file(temporary.path().join("image")); // of the set before
        let label = format!("turns, {}", set.combo.name);
        if catch_unwind(|| turns(label, &set, rounds, temporary.path())).is_err() {
            failed.push(set.combo.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?} failed, each with a report above");
}
