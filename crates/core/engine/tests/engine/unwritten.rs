//! Preallocated files: the kernel made their extents unwritten; the engine reads them as zeros and writes
//! into parts of them.

use crate::common::{open_image, pattern};
use hectare_engine::OpenFile;
use hectare_oracle::trees::Random;
use hectare_oracle::{Combo, KernelMount, Skip, assert_clean, skip_part, tool};
use std::path::Path;

const SIZE: usize = 600_000;

/// A file of written, unwritten and missing parts, made by the kernel.
fn preallocate(combo: &Combo, image: &Path) -> Result<Vec<u8>, Skip> {
    combo.mountable()?;
    combo.make(image)?;
    let mount = KernelMount::new(image, "")?;
    let file = mount.path().join("file");
    let fallocate = |options: &[&str]| -> Result<(), Skip> {
        let _ = tool::run(tool::need("fallocate")?.args(options).arg(&file)).expect_success();
        Ok(())
    };
    fallocate(&["-l", &SIZE.to_string()])?;
    let mut content = vec![0; SIZE];
    let mut random = Random::new(combo.name);
    {
        use std::os::unix::fs::FileExt;
        let open = std::fs::File::options().write(true).open(&file).unwrap();
        for _ in 0..6 {
            let (at, len) = (random.below(SIZE as u64 - 20_000) as usize, random.below(20_000) as usize);
            let data = pattern(9, at as u64, len);
            open.write_all_at(&data, at as u64).unwrap();
            content[at..at + len].copy_from_slice(&data);
        }
    }
    for _ in 0..3 {
        let at = random.below(8) * 65_536;
        fallocate(&["-p", "-o", &at.to_string(), "-l", "65536"])?;
        let end = (at as usize + 65_536).min(SIZE);
        content[at as usize..end].fill(0);
    }
    mount.unmount();
    Ok(content)
}

#[track_caller]
fn assert_content(file: &OpenFile, content: &[u8], label: &str) {
    let mut read = vec![0xaa; content.len() + 1];
    let n = file.read_at(0, &mut read).unwrap();
    assert_eq!(n, content.len(), "{label}");
    if let Some(at) = (0..n).find(|at| read[*at] != content[*at]) {
        panic!("{label}: byte {at} is {}, expected {}", read[at], content[at]);
    }
}

#[test]
fn preallocated_files_are_read_as_zeros_and_written_in_pieces() {
    let temporary = tempfile::tempdir().unwrap();
    let image = temporary.path().join("image");
    for name in ["ext4", "ext4-1k", "bigalloc", "bigalloc-1k", "uninit-bg"] {
        let combo = Combo::named(name);
        let _ = std::fs::remove_file(&image);
        let mut content = match preallocate(&combo, &image) {
            Ok(content) => content,
            Err(reason) => {
                skip_part!(format!("unwritten, {name}"), reason);
                continue;
            }
        };
        let volume = open_image(&image);
        let file = volume.open_file("file").unwrap();
        assert_content(&file, &content, name);
        let mut random = Random::new(name);
        for step in 0..120 {
            let label = format!("{name}, step {step}");
            let at = random.below(SIZE as u64) as usize;
            if step % 20 == 19 {
                content.resize(at, 0);
                file.set_len(at as u64).unwrap();
            } else {
                let data = pattern(step, at as u64, 1 + random.below(12_000) as usize);
                file.write_all_at(at as u64, &data).unwrap();
                content.resize(content.len().max(at + data.len()), 0);
                content[at..at + data.len()].copy_from_slice(&data);
            }
            assert_content(&file, &content, &label);
        }
        drop(file);
        volume.close().unwrap();
        drop(volume);
        assert_clean(&image).unwrap();
        let mount = KernelMount::read_only(&image, "").unwrap();
        assert!(
            std::fs::read(mount.path().join("file")).unwrap() == content,
            "{name}: the kernel reads it otherwise"
        );
    }
}
