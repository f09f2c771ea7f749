//! Opens a changed volume for writing, runs a program on it, closes it and walks it: the body of every target
//! that writes.
//!
//! On an undamaged volume no operation may report corruption, before or after closing. With
//! `HECTARE_FUZZ_KEEP` set to a directory, the resulting volumes of undamaged ones are kept there for e2fsck.

use crate::patch::Patched;
use crate::script::Program;
use crate::walk;
use hectare_device::MemoryDevice;
use hectare_engine::{OpenOptions, Timestamp, Volume};
use std::sync::Arc;

/// The compatible features of the superblock, and the journal among them.
const COMPAT_AT: usize = 1024 + 0x5c;
const HAS_JOURNAL: u8 = 4;

/// What is particular about a target.
pub struct Target {
    /// The names that programs use.
    pub paths: &'static [&'static [u8]],
    /// Whether programs have operations that only some volumes are for.
    pub special: bool,
    /// Whether what the input leaves is preceded by a byte whose lowest bit says that operations are watched.
    pub watches: bool,
}

/// Runs one input, which `patched` was decoded from.
///
/// # Panics
/// If what is written at the top is not so.
pub fn run(target: &Target, mut patched: Patched<'_>, bytes: &[u8]) {
    let name = patched.base.name;
    let device = Arc::new(MemoryDevice::from_bytes(&patched.image));
    // The log of a journal changes with every sync.
    let watch = target.watches && patched.rest.byte() & 1 != 0 && patched.image[COMPAT_AT] & HAS_JOURNAL == 0;
    let volume = match Volume::open(Arc::clone(&device) as _, options(watch)) {
        Ok(volume) => volume,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            // The block of the mount protection says who had the volume last, also for a moment.
            let same = name == "mmp" || device.to_vec() == patched.image;
            assert!(same, "a refused volume was changed");
            return;
        }
    };
    let watch = watch.then_some(&*device);
    let program = Program { paths: target.paths, special: target.special, watch };
    let ran = program.run(&volume, &mut patched.rest);
    let closed = volume.close();
    drop(volume);
    let again = Volume::open(Arc::clone(&device) as _, OpenOptions::read_only());
    let met = again.as_ref().ok().map(walk::walk);
    if patched.intact {
        assert_eq!(ran.broken, None, "on an undamaged volume ({name})");
        closed.expect("an undamaged volume can be closed");
        let met = met.expect("a closed volume can be opened");
        assert_eq!(met.corrupt, None, "after closing an undamaged volume ({name})");
        keep(name, &device.to_vec(), bytes);
    }
}

fn options(watch: bool) -> OpenOptions {
    let options = OpenOptions {
        mmp_wait: false,
        cache_bytes: 1 << 16,
        cache_inodes: 16,
        fixed_time: Some(Timestamp { seconds: 1_700_000_000, nanoseconds: 1 }),
        seed: Some(1),
        ..OpenOptions::default()
    };
    // Nothing is left to be written by the next operation.
    if watch { OpenOptions { delayed_bytes: 0, ..options } } else { options }
}

fn keep(base: &str, image: &[u8], input: &[u8]) {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let Some(folder) = std::env::var_os("HECTARE_FUZZ_KEEP") else { return };
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let path = std::path::Path::new(&folder).join(format!("{base}-{:016x}.img", hasher.finish()));
    if let Err(error) = std::fs::write(&path, image) {
        eprintln!("can't keep {}: {error}", path.display());
    }
}
