//! Fuzz target: open a volume for writing, undamaged or damaged, run a short program on it, close it, walk
//! it.
//!
//! On an undamaged volume no operation may report corruption, before or after closing. With
//! `HECTARE_FUZZ_KEEP` set to a directory, the resulting volumes of undamaged ones are kept there for e2fsck.
#![cfg_attr(feature = "libfuzzer", no_main)]

use hectare_device::MemoryDevice;
use hectare_engine::{OpenOptions, Timestamp, Volume};
use hectare_fuzz::{patch, script, walk};
use std::sync::Arc;

hectare_fuzz::target!(|bytes: &[u8]| {
    let mut patched = patch::decode(bytes);
    let name = patched.base.name;
    let device = Arc::new(MemoryDevice::from_bytes(&patched.image));
    let options = OpenOptions {
        mmp_wait: false,
        cache_bytes: 1 << 16,
        cache_inodes: 16,
        fixed_time: Some(Timestamp { seconds: 1_700_000_000, nanoseconds: 1 }),
        seed: Some(1),
        ..OpenOptions::default()
    };
    let volume = match Volume::open(Arc::clone(&device) as _, options) {
        Ok(volume) => volume,
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            // The block of the mount protection says who had the volume last, also for a moment.
            let same = name == "mmp" || device.to_vec() == patched.image;
            assert!(same, "a refused volume was changed");
            return;
        }
    };
    let ran = script::run(&volume, &mut patched.rest);
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
});

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
