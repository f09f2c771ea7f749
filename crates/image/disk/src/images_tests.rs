//! Disk images against qemu-img and Android's tools.

use crate::{Backing, Format, New, android, create, open};
use hectare_device::{Device, FileDevice, FileOptions, Overwrite};
use hectare_oracle::skip;
use hectare_oracle::tool::{need, run};
use hectare_units::{Bytes, u64_of};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

const SIZE: u64 = 9 << 20;

/// A disk with data at odd places and holes.
fn disk() -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(SIZE).unwrap()];
    for (at, len, salt) in
        [(0, 5000, 3), (65_536, 70_000, 5), (3 << 20, 1 << 20, 7), ((9 << 20) - 777, 777, 9)]
    {
        for (index, byte) in bytes[at..at + len].iter_mut().enumerate() {
            *byte = u8::try_from((index * salt + index / 251) % 255).unwrap();
        }
    }
    bytes
}

fn opened(path: &Path, write: bool, backing: Backing) -> crate::Result<Arc<dyn Device>> {
    let file = FileOptions::new().write(write).exclusive(true).open(path).unwrap();
    let format = Format::of(&file).unwrap().expect("a disk image");
    open(file, path, format, backing)
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.len().get()).unwrap()];
    // In pieces that are not those of any format.
    for (index, piece) in bytes.chunks_mut(100_003).enumerate() {
        device.read_at(Bytes::new(u64_of(index) * 100_003), piece).unwrap();
    }
    bytes
}

/// What qemu-img makes of a disk in these formats is read as it is.
#[test]
fn what_qemu_makes_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    fs::write(&raw, disk()).unwrap();
    let kinds: [(&str, &[&str]); 14] = [
        ("qcow2", &[]),
        ("qcow2", &["-c"]),
        ("qcow2", &["-o", "compat=0.10"]),
        ("qcow2", &["-o", "cluster_size=512"]),
        ("qcow2", &["-o", "cluster_size=2M"]),
        ("qcow2", &["-o", "lazy_refcounts=on"]),
        ("vpc", &["-o", "force_size=on"]),
        ("vpc", &["-o", "subformat=fixed,force_size=on"]),
        ("vhdx", &[]),
        ("vhdx", &["-o", "subformat=fixed,block_size=1M"]),
        ("vmdk", &[]),
        ("vmdk", &["-o", "subformat=streamOptimized"]),
        ("vmdk", &["-o", "subformat=twoGbMaxExtentSparse"]),
        ("vmdk", &["-o", "subformat=monolithicFlat"]),
    ];
    for (format, args) in kinds {
        let image = folder.path().join("image.vmdk");
        let mut qemu = match need("qemu-img") {
            Ok(qemu) => qemu,
            Err(reason) => skip!("images::what_qemu_makes_is_read", reason),
        };
        let said = run(qemu.args(["convert", "-f", "raw", "-O", format]).args(args).arg(&raw).arg(&image));
        assert!(said.succeeded(), "{}", said.report());
        let device = opened(&image, false, Backing::Beside).unwrap();
        assert!(bytes_of(&*device) == disk(), "{format} {args:?}");
        assert!(device.read_at(Bytes::new(SIZE - 3), &mut [0; 4]).is_err());
        assert!(device.write_at(Bytes::ZERO, &[1]).is_err());
        drop(device);
        fs::remove_file(image).unwrap();
    }
}

/// What is written is what qemu reads, and its check finds nothing.
#[test]
fn what_is_written_is_read_by_qemu() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    for (new, format) in [(New::Qcow2, "qcow2"), (New::Vhd, "vpc"), (New::VhdFixed, "vpc")] {
        let image = folder.path().join("image");
        fs::write(&image, []).unwrap();
        let file = FileOptions::new().write(true).exclusive(true).open(&image).unwrap();
        let device = create(file.another().unwrap(), &image, new, Bytes::new(SIZE), [7; 16]).unwrap();
        let mut expected = disk();
        for (index, piece) in expected.chunks(77_777).enumerate() {
            if piece.iter().any(|byte| *byte != 0) {
                device.write_at(Bytes::new(u64_of(index) * 77_777), piece).unwrap();
            }
        }
        device.zero(Bytes::new(70_000), Bytes::new(5001)).unwrap();
        expected[70_000..75_001].fill(0);
        device.flush().unwrap();
        device.write_at(Bytes::new(5 << 20), &[9; 100]).unwrap();
        expected[5 << 20..(5 << 20) + 100].fill(9);
        assert!(bytes_of(&*device) == expected, "{new:?}");
        drop(device);
        drop(file);
        let again = opened(&image, true, Backing::Beside).unwrap();
        assert!(bytes_of(&*again) == expected, "{new:?}");
        again.write_at(Bytes::new(100), b"again").unwrap();
        expected[100..105].copy_from_slice(b"again");
        again.flush().unwrap();
        drop(again);
        fs::write(&raw, &expected).unwrap();
        if let Err(reason) = need("qemu-img") {
            skip!("images::what_is_written_is_read_by_qemu", reason);
        }
        let mut qemu = need("qemu-img").unwrap();
        let said = run(qemu.args(["compare", "-f", "raw", "-F", format]).arg(&raw).arg(&image));
        assert!(said.succeeded(), "{new:?}: {}", said.report());
        if new == New::Qcow2 {
            let said = run(need("qemu-img").unwrap().arg("check").arg(&image));
            assert!(said.succeeded(), "{}", said.report());
        }
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn a_backing_file_is_opened_only_beside_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let (near, far) = (folder.path().join("near"), folder.path().join("far"));
    fs::create_dir(&near).unwrap();
    fs::create_dir(&far).unwrap();
    fs::write(near.join("base"), disk()).unwrap();
    fs::write(far.join("base"), disk()).unwrap();
    for (base, admitted) in [("base", true), ("../far/base", false)] {
        let image = near.join("image");
        let mut qemu = match need("qemu-img") {
            Ok(qemu) => qemu,
            Err(reason) => skip!("images::qemu-img", reason),
        };
        let said = run(qemu
            .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", base])
            .arg(&image)
            .current_dir(&near));
        assert!(said.succeeded(), "{}", said.report());
        let found = opened(&image, true, Backing::Beside);
        assert_eq!(found.is_ok(), admitted, "{base}");
        if let Err(error) = &found {
            let text = error.to_string();
            assert!(text.contains("does not lie beside it") && text.contains("--backing"), "{text}");
        }
        drop(found);
        let device = opened(&image, true, Backing::Anywhere).unwrap();
        device.write_at(Bytes::new(100), b"changed").unwrap();
        let mut expected = disk();
        expected[100..107].copy_from_slice(b"changed");
        assert!(bytes_of(&*device) == expected);
        drop(device);
        assert!(fs::read(near.join(base)).unwrap() == disk(), "the backing file was changed");
        fs::remove_file(image).unwrap();
    }
}

#[test]
fn images_that_only_their_own_program_can_finish_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let mut qemu = match need("qemu-img") {
        Ok(qemu) => qemu,
        Err(reason) => skip!("images::qemu-img", reason),
    };
    assert!(run(qemu.args(["create", "-q", "-f", "qcow2"]).arg(&image).arg("1M")).succeeded());
    let said = run(need("qemu-img").unwrap().args(["snapshot", "-c", "one"]).arg(&image));
    assert!(said.succeeded(), "{}", said.report());
    let refused = opened(&image, true, Backing::Beside).err().unwrap().to_string();
    assert!(refused.contains("snapshots"), "{refused}");
    assert!(opened(&image, false, Backing::Beside).is_ok());
    let mut bytes = fs::read(&image).unwrap();
    bytes[63] = 0;
    for (value, word) in [(1, "not closed"), (2, "corrupt")] {
        bytes[79] = value;
        fs::write(&image, &bytes).unwrap();
        let refused = opened(&image, true, Backing::Beside).err().unwrap().to_string();
        assert!(refused.contains(word), "{refused}");
    }
}

#[test]
fn sparse_images_of_android_are_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, image) = (folder.path().join("raw"), folder.path().join("image"));
    let mut expected = disk();
    expected[1 << 20..(1 << 20) + 8192].fill(0x5a);
    fs::write(&raw, &expected).unwrap();
    let device = FileDevice::from_file(File::open(&raw).unwrap(), "raw").unwrap();
    android::write(&device, &mut BufWriter::new(File::create(&image).unwrap())).unwrap();
    assert!(fs::metadata(&image).unwrap().len() < 1_300_000);
    assert!(bytes_of(&*opened(&image, false, Backing::Beside).unwrap()) == expected);
    match need("simg2img") {
        Ok(mut tool) => {
            let out = folder.path().join("out");
            let said = run(tool.arg(&image).arg(&out));
            assert!(said.succeeded(), "{}", said.report());
            assert!(fs::read(&out).unwrap() == expected);
            let said = run(need("img2simg").unwrap().arg(&raw).arg(&image));
            assert!(said.succeeded(), "{}", said.report());
            assert!(bytes_of(&*opened(&image, false, Backing::Beside).unwrap()) == expected);
        }
        Err(reason) => skip!("images::sparse_images_of_android", reason),
    }
}

/// The table names a block only when it is durable: a file cut off before it is as it was.
#[test]
fn a_vhd_whose_footer_is_lost_is_read_by_the_copy() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::write(&image, []).unwrap();
    let file = FileOptions::new().write(true).exclusive(true).open(&image).unwrap();
    let device = create(file.another().unwrap(), &image, New::Vhd, Bytes::new(SIZE), [7; 16]).unwrap();
    device.write_at(Bytes::new(100), b"durable").unwrap();
    device.flush().unwrap();
    device.write_at(Bytes::new(5 << 20), b"lost").unwrap();
    // What a power cut leaves: the new block, without its entry in the table, and half of it missing.
    let bytes = fs::read(&image).unwrap();
    drop(device);
    drop(file);
    fs::write(&image, &bytes[..bytes.len() - 600_000]).unwrap();
    let device = opened(&image, true, Backing::Beside).unwrap();
    let mut read = [0; 7];
    device.read_at(Bytes::new(100), &mut read).unwrap();
    assert_eq!(&read, b"durable");
    device.read_at(Bytes::new(5 << 20), &mut read).unwrap();
    assert_eq!(read, [0; 7]);
    device.write_at(Bytes::new(5 << 20), b"anew").unwrap();
    drop(device);
    let device = opened(&image, false, Backing::Beside).unwrap();
    device.read_at(Bytes::new(5 << 20), &mut read).unwrap();
    assert_eq!(&read, b"anew\0\0\0");
}

/// An image made by us, of which a field is something else.
fn changed(path: &Path, at: u64, bytes: &[u8]) -> crate::Result<Arc<dyn Device>> {
    let file =
        FileOptions::new().write(true).exclusive(true).create(path, Bytes::ZERO, Overwrite::Replace).unwrap();
    drop(create(file, path, New::Qcow2, Bytes::mib(5), [0; 16]).unwrap());
    let file = File::options().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).unwrap();
    opened(path, true, Backing::Beside)
}

/// The crate that writes qcow2 called itself without end where the first block of counts was not there, and would have
/// given out the image's own tables where they counted as free.
#[test]
fn regression_a_qcow2_that_counts_its_tables_as_free_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.qcow2");
    let sound = changed(&path, 0, b"Q").unwrap();
    sound.write_at(Bytes::kib(100), &[7; 100_000]).unwrap();
    sound.flush().unwrap();
    drop(sound);
    let bytes = fs::read(&path).unwrap();
    let field = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    let table = field(48);
    let block = field(usize::try_from(table).unwrap());
    for (at, bytes) in [(table, &[0; 8][..]), (block, &[0; 2]), (block, &[0; 64]), (table, &[0xff; 8])] {
        let error = changed(&path, at, bytes).err().unwrap().to_string();
        assert!(error.contains("counts its own tables as free"), "{at}: {error}");
        // To look at it does no harm.
        let looked = opened(&path, false, Backing::Beside).unwrap();
        assert_eq!(looked.len(), Bytes::mib(5));
    }
    for (at, bytes) in
        [(36, &[0, 0x20, 0, 0][..]), (40, &[0x7f; 8]), (48, &[0x7f; 8]), (56, &[0, 0, 0xff, 0])]
    {
        let error = changed(&path, at, bytes).err().unwrap().to_string();
        assert!(error.contains("its tables lie beyond its end"), "{at}: {error}");
    }
}

/// The crate that reads qcow2 panicked at a table of feature names whose last entry is cut off.
#[test]
fn regression_a_qcow2_with_a_cut_table_of_feature_names_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.qcow2");
    // The extensions begin where the header says that it ends.
    drop(changed(&path, 0, b"Q").unwrap());
    let head = fs::read(&path).unwrap();
    let at = u64::from(u32::from_be_bytes(head[100..104].try_into().unwrap()));
    let names = |len: u32| [&0x6803_f857_u32.to_be_bytes()[..], &len.to_be_bytes()].concat();
    for len in [1, 49, 97] {
        let error = changed(&path, at, &names(len)).err().unwrap().to_string();
        assert!(error.contains("its table of feature names is cut off"), "{len}: {error}");
    }
    // It may come later, and have no entry; nothing else is looked at.
    let other = [&[0x12, 0x34, 0x56, 0x78, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0][..], &names(1)].concat();
    assert!(changed(&path, at, &other).err().unwrap().to_string().contains("is cut off"));
    let none = [&names(0)[..], &[0; 8]].concat();
    assert_eq!(changed(&path, at, &none).unwrap().len(), Bytes::mib(5));
}

/// `imago` reads zeros where a map leads beyond the end of its file.
#[test]
fn regression_a_qcow2_that_was_cut_off_read_as_zeros() {
    let folder = tempfile::tempdir().unwrap();
    let (raw, image) = (folder.path().join("raw"), folder.path().join("image"));
    let bytes: Vec<u8> = (0..SIZE).map(|at| low_byte(at / 251 + at + 1) | 1).collect();
    fs::write(&raw, &bytes).unwrap();
    for args in [&["-o", "cluster_size=64k"], &["-o", "cluster_size=512"], &["-o", "cluster_size=2M"]] {
        let mut qemu = match need("qemu-img") {
            Ok(qemu) => qemu,
            Err(reason) => skip!("images::regression_a_qcow2_that_was_cut_off", reason),
        };
        let said = run(qemu.args(["convert", "-f", "raw", "-O", "qcow2"]).args(args).arg(&raw).arg(&image));
        assert!(said.succeeded(), "{}", said.report());
        let len = fs::metadata(&image).unwrap().len();
        for cut in [len / 8, len / 2, len - 2 * (2 << 20)] {
            File::options().write(true).open(&image).unwrap().set_len(len - cut).unwrap();
            assert!(
                opened(&image, true, Backing::Beside).is_err(),
                "{args:?} less {cut} bytes may be written"
            );
            let Err(error) = read_whole(&image) else { panic!("{args:?} less {cut} bytes is read") };
            assert!(error.contains("cut off") || error.contains("beyond its end"), "{error}");
        }
        fs::remove_file(&image).unwrap();
    }
}

/// The content of the disk in an image, or the first error.
fn read_whole(image: &Path) -> Result<Vec<u8>, String> {
    let device = opened(image, false, Backing::Beside).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; usize::try_from(device.len().get()).unwrap()];
    device.read_at(Bytes::ZERO, &mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn low_byte(number: u64) -> u8 {
    u8::try_from(number % 256).unwrap()
}

/// qemu leaves out what is beyond the last whole sector.
#[test]
fn regression_a_qcow2_lost_the_end_of_a_disk_of_odd_length() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let make = |len| {
        fs::write(&image, []).unwrap();
        let file = FileOptions::new().write(true).exclusive(true).open(&image).unwrap();
        create(file, &image, New::Qcow2, Bytes::new(len), [7; 16])
    };
    for len in [1, 511, 513, SIZE + 1] {
        let error = make(len).err().expect("it is made").to_string();
        assert!(error.contains("whole sectors"), "{error}");
    }
    let device = make(1024).unwrap();
    assert!(device.resize(Bytes::new(1025)).is_err());
    device.resize(Bytes::new(1536)).unwrap();
}
