//! Extra fields of inodes that grow when an inode is changed, against the kernel.

use crate::common::open_image;
use hectare_engine::{Changes, Creation, Volume, XattrHow};
use hectare_oracle::{KernelMount, Skip, assert_clean, debugfs, debugfs_write, mke2fs, skip};
use hectare_units::InodeNr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Values so long that they fill the slot of 512 bytes between them, together with the extra fields of 32.
const FULL: [(&str, usize); 3] = [("user.a", 100), ("user.bb", 100), ("user.ccc", 80)];
const PERMISSIONS: u16 = 0o611;

/// A volume with a file `f` whose slot is full of attributes, which then wants 64 bytes of extra fields.
fn wanting(args: &[&str], attributes: &[(&str, usize)]) -> Result<PathBuf, Skip> {
    let image = hectare_oracle::scratch::fresh("extra");
    mke2fs(&[&["-t", "ext4", "-I", "512"], args].concat(), &image, "16M")?;
    let volume = open_image(&image);
    volume.write_file("f", b"content", Creation::default()).unwrap();
    let nr = file(&volume);
    for (name, len) in attributes {
        volume.set_xattr(nr, name, &vec![b'v'; *len], XattrHow::Create).unwrap();
    }
    volume.close().unwrap();
    debugfs_write(&image, &["ssv want_extra_isize 64"])?;
    assert_clean(&image)?;
    Ok(image)
}

fn file(volume: &Volume) -> InodeNr {
    volume.metadata("f").unwrap().inode
}

/// Bytes of extra fields, and whether there is an attribute block, according to debugfs.
fn told(image: &Path) -> (u32, bool) {
    let stat = debugfs(image, &["stat f"]).unwrap();
    let after = |mark: &str| {
        let rest = stat.split_once(mark).map(|(_, rest)| rest.trim_start()).unwrap_or_default();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse().unwrap_or(0)
    };
    (after("Size of extra inode fields:"), after("File ACL:") != 0)
}

fn change(image: &Path) {
    let volume = open_image(image);
    let permissions = Changes { permissions: Some(PERMISSIONS), ..Changes::default() };
    volume.change(file(&volume), &permissions).unwrap();
    volume.close().unwrap();
}

fn assert_kept(image: &Path, attributes: &[(&str, usize)]) {
    assert_clean(image).unwrap();
    let volume = open_image(image);
    let nr = file(&volume);
    assert_eq!(volume.list_xattrs(nr).unwrap().len(), attributes.len());
    for (name, len) in attributes {
        assert_eq!(volume.get_xattr(nr, name).unwrap(), vec![b'v'; *len], "{name}");
    }
    assert_eq!(volume.stat(nr).unwrap().permissions, PERMISSIONS);
}

#[test]
fn regression_extra_fields_did_not_grow_where_attributes_must_move() {
    let name = "extra::regression_extra_fields_did_not_grow_where_attributes_must_move";
    let image = match wanting(&[], &FULL) {
        Ok(image) => image,
        Err(reason) => skip!(name, reason),
    };
    assert_eq!(told(&image), (32, false), "the attributes fill the slot");
    let kernels = image.with_extension("kernel");
    fs::copy(&image, &kernels).unwrap();
    change(&image);
    assert_eq!(told(&image), (64, true));
    assert_kept(&image, &FULL);
    match KernelMount::new(&kernels, "") {
        Ok(mount) => {
            let permissions = Permissions::from_mode(PERMISSIONS.into());
            fs::set_permissions(mount.path().join("f"), permissions).unwrap();
        }
        Err(reason) => skip!(name, reason),
    }
    assert_eq!(told(&kernels), (64, true), "the kernel does the same");
    assert_kept(&kernels, &FULL);
}

#[test]
fn extra_fields_grow_where_an_attribute_is_set_or_nothing_is_in_the_way() {
    let name = "extra::extra_fields_grow_where_an_attribute_is_set_or_nothing_is_in_the_way";
    for attributes in [&FULL[..1], &[]] {
        let image = match wanting(&["-b", "1024"], attributes) {
            Ok(image) => image,
            Err(reason) => skip!(name, reason),
        };
        change(&image);
        assert_eq!(told(&image), (64, false));
        assert_kept(&image, attributes);
    }
    let image = wanting(&[], &[]).unwrap();
    let volume = open_image(&image);
    volume.set_xattr(file(&volume), "user.a", b"v", XattrHow::Create).unwrap();
    volume.close().unwrap();
    assert_eq!(told(&image), (64, false));
    assert_clean(&image).unwrap();
}

#[test]
fn extra_fields_stay_where_the_attributes_fit_no_other_way() {
    let name = "extra::extra_fields_stay_where_the_attributes_fit_no_other_way";
    // A block of 1 KiB takes one more value of 920 bytes, and nothing of the slot.
    let attributes = [&FULL[..], &[("user.block", 940)]].concat();
    let image = match wanting(&["-b", "1024"], &attributes) {
        Ok(image) => image,
        Err(reason) => skip!(name, reason),
    };
    assert_eq!(told(&image), (32, true));
    change(&image);
    assert_eq!(told(&image), (32, true));
    assert_kept(&image, &attributes);
}
