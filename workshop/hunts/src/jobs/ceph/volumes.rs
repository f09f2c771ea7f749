//! Images and volumes on a cluster where nothing fails.

use super::behaviour::{behaves as does_behave, neighbours_stay_apart};
use super::cluster::finished;
use super::{Bench, Ended, Features, opened};
use hectare_device::Device;
use hectare_engine::{Creation, Error, OpenOptions, Volume};
use hectare_nbd::Address;
use hectare_oracle::{KernelMount, Scale, Tree, What, assert_same, compare, source, walk};
use hectare_units::random::SplitMix64;
use hectare_units::{Bytes, index_of};
use std::path::Path;
use std::sync::Arc;

/// The image of the behaviour suite, in MiB.
const SMALL: u64 = 16;
/// Of volumes that are built and filled.
const LARGE: u64 = 128;
/// Bytes of the files that fill a volume, at most.
const FILE_MAX: u64 = 6 << 20;

/// The behaviour suite of devices; the bytes are those that Ceph exports.
pub(super) fn behaves(bench: &Bench) -> Result<String, Ended> {
    let gateway = bench.image("behaviour", SMALL, Features::Default)?;
    let device = opened(&gateway.address())?;
    if !device.is_zeroed() {
        return Err("a new image is not known to be zeros".to_owned().into());
    }
    does_behave(&device, bench.seed, 400, 1);
    neighbours_stay_apart(&device);
    device.flush().map_err(|error| error.to_string())?;
    let mut bytes = vec![0; index_of(device.len().get())];
    device.read_at(Bytes::ZERO, &mut bytes).map_err(|error| error.to_string())?;
    let requests = device.requests();
    drop(device);
    let exported = std::fs::read(bench.exported("behaviour")?).map_err(|error| error.to_string())?;
    match exported == bytes {
        true => Ok(format!("{requests} requests, the exported bytes are the same")),
        false => Err("the exported bytes are not those that were read".to_owned().into()),
    }
}

/// A directory becomes a volume, and comes back.
pub(super) fn is_built(bench: &Bench) -> Result<String, Ended> {
    let gateway = bench.image("built", LARGE, Features::Default)?;
    let url = gateway.url();
    let mut entries = 0;
    for tree in [Tree::Ordinary, Tree::Sizes, Tree::Links] {
        let folder = source(tree, &Scale::SMALL)?;
        let from = folder.display().to_string();
        finished(&mut bench.hectare(&["build", "-F", "--from", &from, &url]))?;
        finished(&mut bench.hectare(&["check", &url]))?;
        let expected = walk(&folder);
        let out = bench.folder.join(format!("out-{}", tree.name()));
        finished(bench.hectare(&["cp", "-a", &format!("{url}:/.")]).arg(&out))?;
        // The target's file system may not support holes and times as the source's does.
        compare(&walk(&out), &expected, What { holes: None, ..What::all() })
            .map_err(|error| error.to_string())?;
        std::fs::remove_dir_all(&out).map_err(|error| error.to_string())?;
        let copy = bench.exported("built")?;
        is_clean(&copy)?;
        let mount = KernelMount::read_only(&copy, "")?;
        assert_same(&walk(mount.path()), &expected, What::all());
        mount.unmount();
        entries += expected.len();
    }
    Ok(format!("{entries} entries of 3 directories came back, and the kernel reads them in the export"))
}

/// Files until there is no space; all of them are read back after opening again, some are removed.
pub(super) fn is_filled(bench: &Bench) -> Result<String, Ended> {
    let gateway = bench.image("filled", LARGE, Features::Default)?;
    finished(&mut bench.hectare(&["mkfs", "-t", "ext4", &gateway.url()]))?;
    let failed = |error: Error| Ended::Failed(error.to_string());
    let volume = volume(&gateway.address())?;
    let mut lens = Vec::new();
    let mut random = SplitMix64::new(bench.seed);
    loop {
        let len = 1 + random.below(FILE_MAX);
        let name = format!("/file-{}", lens.len());
        match volume.write_file(&name, &content(lens.len(), len), Creation::default()) {
            Ok(()) => lens.push(len),
            Err(Error::NoSpace) => {
                volume.remove_file(&name).map_err(failed)?;
                break;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    volume.close().map_err(failed)?;
    drop(volume);
    let copy = bench.exported("filled")?;
    is_clean(&copy)?;
    are_there(&copy, &lens)?;
    let volume = self::volume(&gateway.address())?;
    for (number, len) in lens.iter().enumerate() {
        if volume.read(format!("/file-{number}")).map_err(failed)? != content(number, *len) {
            return Err(format!("/file-{number} is not what was written").into());
        }
    }
    for number in (0..lens.len()).step_by(2) {
        volume.remove_file(format!("/file-{number}")).map_err(failed)?;
    }
    volume.close().map_err(failed)?;
    drop(volume);
    is_clean(&bench.exported("filled")?)?;
    let bytes: u64 = lens.iter().sum();
    Ok(format!("{} files of {} MiB, read back by us and by the kernel", lens.len(), bytes >> 20))
}

/// The kernel reads the files in a copy.
fn are_there(copy: &Path, lens: &[u64]) -> Result<(), Ended> {
    let mount = KernelMount::read_only(copy, "")?;
    for (number, len) in lens.iter().enumerate() {
        let found = std::fs::read(mount.path().join(format!("file-{number}")));
        if found.map_err(|error| error.to_string())? != content(number, *len) {
            return Err(format!("the kernel reads something else in /file-{number}").into());
        }
    }
    Ok(())
}

fn content(number: usize, len: u64) -> Vec<u8> {
    let mut random = SplitMix64::stream(len, number as u64);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.draw().to_le_bytes()).collect();
    bytes.truncate(index_of(len));
    bytes
}

fn volume(address: &Address) -> Result<Volume, Ended> {
    let device: Arc<dyn Device> = Arc::new(opened(address)?);
    Volume::open(device, OpenOptions::default()).map_err(|error| Ended::Failed(error.to_string()))
}

/// e2fsck finds nothing in a copy.
pub(super) fn is_clean(copy: &Path) -> Result<(), Ended> {
    let report = hectare_oracle::e2fsck(copy)?;
    if report.is_sound() { Ok(()) } else { Err(Ended::Failed(report.output)) }
}
