//! `hectare build` needs little memory, whatever it reads and wherever the image lies.

use crate::support::{Bench, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{assert_clean, skip_part};
use hectare_units::random::SplitMix64;
use std::fs;
use std::path::Path;

/// What a build may take at most, in KiB: `VmHWM`, with the pages of a mapped image.
const MOST: u64 = 32 << 10;

/// 300 MB of random data without holes, in files of up to 100 KB and one of 20 MB.
fn tree(folder: &Path) {
    let mut random = SplitMix64::new(300);
    let block: Vec<u8> = (0..(1 << 20) / 8).flat_map(|_| random.draw().to_le_bytes()).collect();
    for number in 0..5600_usize {
        let dir = folder.join(format!("{}", number / 100));
        fs::create_dir_all(&dir).unwrap();
        let len = 1000 + number % 1000 * 100;
        let start = (number * 7919) % (block.len() - len);
        fs::write(dir.join(format!("{number}")), &block[start..start + len]).unwrap();
    }
    fs::write(folder.join("large"), block.repeat(20)).unwrap();
}

#[track_caller]
fn build(from: &str, image: &Path, most: u64) {
    let ran = hectare(&["build", "--threads", "2", "--json", "--from", from, image.to_str().unwrap()]).ok();
    let peak = ran.json()["peak_kib"].as_u64().unwrap();
    assert!(peak <= most, "{peak} KiB for {from} into {}", image.display());
    assert!(fs::metadata(image).unwrap().len() > 300_000_000);
    assert_clean(image).unwrap();
    fs::remove_file(image).unwrap();
}

#[test]
fn a_build_takes_at_most_32_mib() {
    let bench = Bench::empty();
    let (folder, archive, layout) = (bench.local("tree"), bench.local("tree.tar"), bench.local("layout"));
    tree(&folder);
    let mut tar = need("tar").unwrap_or_else(|reason| panic!("{reason}"));
    let _made = run(tar.arg("-C").arg(&folder).arg("-cf").arg(&archive).arg(".")).expect_success();
    let script = "umoci init --layout layout; umoci new --image layout:v1
        umoci insert --image layout:v1 tree /";
    let mut sources = vec![folder.display().to_string(), archive.display().to_string()];
    match need("umoci").and_then(|_| need("sh")) {
        Ok(mut sh) => {
            let _made = run(sh.args(["-ec", script]).current_dir(bench.folder.path())).expect_success();
            sources.push(format!("oci:{}:v1", layout.display()));
        }
        Err(reason) => skip_part!("cli memory::a_build_takes_at_most_32_mib, from OCI", reason),
    }
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let places = [Path::new("/dev/shm"), on_disk.path()];
    for place in places {
        if !place.is_dir() {
            skip_part!("cli memory::a_build_takes_at_most_32_mib, in memory", "there is no /dev/shm");
            continue;
        }
        let folder = tempfile::tempdir_in(place).unwrap();
        for source in &sources {
            build(source, &folder.path().join("disk.img"), MOST);
        }
    }
}
