//! Volumes with something in them, resized by Hectare and by resize2fs, and compared.

use crate::fields;
use hectare_device::{Device, FileOptions};
use hectare_oracle::compare::{Times, What};
use hectare_oracle::{Combo, Entry, KernelMount, Scale, Skip, Tree, dumpe2fs, fsck, scratch, tool, walk};
use hectare_resize::{Options, Outcome, Target, Width};
use hectare_units::{Blocks, Bytes};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How the tests resize.
pub(crate) const OPTIONS: Options =
    Options { width: Width::AsNeeded, check: true, now: Duration::from_secs(1_700_000_000) };

/// Resizes an image file.
pub(crate) fn resize(image: &Path, to: Target, options: &Options) -> hectare_resize::Result<Outcome> {
    let disk: Arc<dyn Device> = Arc::new(FileOptions::new().write(true).open(image).unwrap());
    hectare_resize::resize(&disk, to, true, options)
}

/// What a pair is made of.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) combo: Combo,
    /// Further arguments of mke2fs.
    pub(crate) more: Vec<String>,
    /// MiB before and after.
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Pair {
    pub(crate) fn new(combo: &str, more: &[&str], from: u64, to: u64) -> Self {
        let more = more.iter().map(ToString::to_string).collect();
        Self { combo: Combo::named(combo), more, from, to }
    }

    /// Makes the volume, with content that lies all over it.
    pub(crate) fn make(&self) -> Result<PathBuf, Skip> {
        let image = scratch::fresh(self.combo.name);
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let args = [self.combo.args, &more[..]].concat();
        let size = format!("{}M", self.from);
        if self.combo.mountable().is_ok() {
            hectare_oracle::mke2fs(&args, &image, &size)?;
            let mount = KernelMount::new(&image, "")?;
            fill(mount.path(), self.from, self.to);
            mount.unmount();
        } else {
            let folder = scratch::fresh("source");
            fill(&folder, self.from, self.to);
            let from = folder.to_str().unwrap().to_owned();
            hectare_oracle::mke2fs(&[&args[..], &["-d", &from]].concat(), &image, &size)?;
            fs::remove_dir_all(folder).unwrap();
            hectare_oracle::debugfs_write(&image, &["rm /filler/first"])?;
            // mke2fs -d and debugfs do not count quotas.
            let _ = fsck::e2fsck_with(&image, &["-fy"])?;
        }
        Ok(image)
    }

    /// Everything in the volume.
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
        What { mtimes, holes: Some(u64::from(self.combo.block_size)), ..What::all() }
    }

    /// Resizes to the second size, and has everything judged. Says what Hectare did.
    pub(crate) fn judge(&self) -> Result<Outcome, Skip> {
        let image = self.make()?;
        fsck::assert_clean(&image)?;
        let before = self.entries(&image)?;
        let other = scratch::fresh("other");
        fs::copy(&image, &other).unwrap();
        let done = resize(&image, Target::Bytes(Bytes::mib(self.to)), &OPTIONS);
        let theirs = tool::run(tool::need("resize2fs")?.arg("-f").arg(&other).arg(format!("{}M", self.to)));
        let done = match done {
            Ok(done) => done,
            Err(
                error @ (hectare_resize::Error::NoSpace { .. }
                | hectare_resize::Error::Size(_)
                | hectare_resize::Error::Refused(_)),
            ) => {
                assert!(!theirs.succeeded(), "{self:?}: only Hectare has no room: {error}");
                fs::remove_file(image).unwrap();
                fs::remove_file(other).unwrap();
                return Ok(Outcome::default());
            }
            Err(error) => panic!("{self:?}: {error}"),
        };
        fsck::assert_clean(&image)?;
        hectare_oracle::assert_same(&self.entries(&image)?, &before, self.compared());
        if theirs.succeeded() {
            fields::compare(&format!("{self:?}"), &image, &other, &done)?;
        }
        if self.combo.mountable().is_ok() {
            self.use_it(&image)?;
        }
        fs::remove_file(image).unwrap();
        fs::remove_file(other).unwrap();
        Ok(done)
    }

    /// The kernel writes into it, and it is sound still.
    fn use_it(&self, image: &Path) -> Result<(), Skip> {
        let mount = KernelMount::new(image, "")?;
        let folder = mount.path().join("after");
        fs::create_dir(&folder).unwrap();
        for nr in 0..40 {
            if fs::write(folder.join(format!("file-{nr}")), vec![7; 30_000]).is_err() {
                break; // it may be full
            }
        }
        fs::remove_dir_all(folder).unwrap();
        mount.unmount();
        fsck::assert_clean(image)?;
        Ok(())
    }
}

/// Fills a folder so that what stays lies at the end of the volume, too: fillers before and between are
/// removed again.
fn fill(folder: &Path, from: u64, to: u64) {
    let budget = (from.min(to) << 20) / 5;
    let fillers = folder.join("filler");
    fs::create_dir_all(&fillers).unwrap();
    let piece = |name: &str, bytes: u64| {
        let _ = fs::write(fillers.join(name), vec![1; usize::try_from(bytes).unwrap()]);
    };
    piece("first", (from << 20) * 2 / 5);
    for nr in 0..24u32 {
        let sub = folder.join(format!("top-{nr}"));
        fs::create_dir_all(&sub).unwrap();
        for file in 0..12u32 {
            let bytes = usize::try_from(u64::from(file * 977 % 13) * budget / 13 / 24 / 12).unwrap();
            fs::write(sub.join(format!("file-{file}")), vec![u8::try_from(file).unwrap(); bytes]).unwrap();
        }
        fs::hard_link(sub.join("file-3"), sub.join("link")).unwrap();
    }
    piece("second", (from << 20) / 5);
    for tree in [Tree::Names, Tree::Links, Tree::Attributes, Tree::ManyFiles, Tree::Fragmented, Tree::Times] {
        // What the volume has no feature for is left out.
        let _ = tree.make(&folder.join(tree.name()), &Scale { files: 300, extents: 200, ..Scale::SMALL });
    }
    let _ = fs::remove_file(fillers.join("first"));
    let _ = fs::remove_file(fillers.join("second"));
}

/// What the volume in an image can become.
pub(crate) fn estimate(image: &Path, options: &Options) -> hectare_resize::Result<(Blocks, Blocks, u32)> {
    let disk: Arc<dyn Device> = Arc::new(FileOptions::new().open(image).unwrap());
    hectare_resize::estimate(&disk, options)
}

/// All backups of superblock and descriptors say what the primary copies say.
pub(crate) fn backups_agree(image: &Path) -> Result<(), Skip> {
    let dump = dumpe2fs(image)?;
    let size = dump.field("Block size").to_owned();
    // What debugfs prints of a volume, from a backup without looking at bitmaps (it takes groups that nobody
    // wrote for written ones then).
    let stats = |place: &[&str]| -> Result<Vec<String>, Skip> {
        let mut debugfs = tool::need("debugfs")?;
        let said = tool::run(debugfs.args(["-c", "-R", "stats -h"]).args(place).arg(image)).expect_success();
        let groups = tool::run(tool::need("debugfs")?.args(["-c", "-R", "stats"]).args(place).arg(image));
        let groups = groups.expect_success().stdout;
        let tables = groups.lines().filter(|line| line.contains("inode table at"));
        let fields = ["Block count", "Inode count", "Filesystem features", "Reserved GDT blocks"];
        let fields = said.stdout.lines().filter(|line| fields.iter().any(|field| line.starts_with(field)));
        Ok(fields.map(str::to_owned).chain(tables.map(|line| line.trim().to_owned())).collect())
    };
    let primary = stats(&[])?;
    // From a backup in a meta group e2fsprogs look for descriptors where there are none.
    let meta = dump.fields.get("First meta block group").map(|first| first.parse::<u64>().unwrap());
    let wide = if dump.has("64bit") { 64 } else { 32 };
    let whole = meta.map_or(u64::MAX, |first| first * dump.number("Block size") / wide);
    for (_, group) in (0..).zip(&dump.groups).filter(|(nr, _)| *nr < whole) {
        let Some(line) = group.lines.iter().find(|line| line.starts_with("Backup superblock at ")) else {
            continue;
        };
        let number = line.trim_start_matches("Backup superblock at ");
        let number = number.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        assert_eq!(stats(&["-s", number, "-b", &size])?, primary, "backup at {number} of {image:?}");
    }
    Ok(())
}
