//! ACLs as the kernel converts, inherits and changes them.

use crate::kernel::image::{Image, getfattr, run, setfattr, tool};
use hectare_ext4::Place;
use hectare_ext4::acl::{Acl, to_shown, to_stored};
use hectare_ext4::xattr::{Area, Index, Name, Value, collect, find};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn setfacl(options: &[&str], path: &Path) {
    run(tool("setfacl").args(options).arg(path));
}

/// The ACL stored for a file.
fn stored(image: &Image, path: &str, name: &[u8]) -> Vec<u8> {
    let inode = image.inode(path);
    let block = inode.attr_block().map(|nr| image.block(nr));
    let in_inode = Area::in_inode(inode.area(), Place::Volume).unwrap();
    let in_block = block.as_ref().map(|block| Area::in_block(block, Place::Volume).unwrap());
    let attrs = collect(in_inode, in_block);
    match &find(&attrs, &Name::parse(name).unwrap()).expect("it is stored").value {
        Value::Inline(bytes) => bytes.clone(),
        Value::Inode { .. } => panic!("an ACL in an inode of its own"),
    }
}

#[test]
fn the_two_forms_are_the_kernels() {
    for options in [["-I", "256"], ["-I", "128"]] {
        let Some(image) = Image::make("acl", &options) else { return };
        let (access, default) = image.mounted(|mnt| {
            let dir = mnt.join("dir");
            fs::create_dir(&dir).unwrap();
            setfacl(&["-m", "u:1000:rw,u:7:x,g:100:r,g:4000000:rwx,m:rx"], &dir);
            setfacl(&["-d", "-m", "u:1000:rwx,g:100:-"], &dir);
            (getfattr(&dir, ACCESS), getfattr(&dir, DEFAULT))
        });
        let mode = image.inode("dir").mode();
        for (name, shown) in [(ACCESS, access), (DEFAULT, default)] {
            let disk = stored(&image, "dir", name);
            let name = Name::parse(name).unwrap();
            assert_eq!(to_shown(&name, &disk, Place::Volume).unwrap(), shown);
            assert_eq!(to_stored(&name, &shown).unwrap().unwrap(), disk);
            if name.index() == Index::ACL_ACCESS {
                assert_eq!(Acl::from_disk(&disk).unwrap().apply_to(mode), mode);
            }
        }
    }
}

#[test]
fn files_inherit_and_change_as_in_the_kernel() {
    let Some(image) = Image::make("acl-inherit", &["-I", "256"]) else { return };
    image.mounted(|mnt| {
        for (n, rules) in ["u:1000:rwx,g:100:rx", "u::rw,g::r,o::-", "u:5:r,m:r", "o::rwx"].iter().enumerate()
        {
            let dir = mnt.join(format!("dir{n}"));
            fs::create_dir(&dir).unwrap();
            setfacl(&["-d", "-m", rules], &dir);
            let default = Acl::from_xattr(&getfattr(&dir, DEFAULT)).unwrap().unwrap();
            // Programs make files with 0666 and directories with 0777; install -m would chmod.
            for (name, mode) in [("file", 0o666), ("sub", 0o777)] {
                let new = dir.join(name);
                if name == "file" {
                    fs::write(&new, b"").unwrap();
                } else {
                    fs::create_dir(&new).unwrap();
                }
                let inherited = default.inherit(mode);
                let shown = fs::metadata(&new).unwrap().mode() & 0o777;
                assert_eq!(shown, u32::from(inherited.mode), "{rules} {name}");
                let has =
                    tool("getfattr").args(["-n", "system.posix_acl_access"]).arg(&new).output().unwrap();
                assert_eq!(has.status.success(), inherited.access.is_some(), "{rules} {name}");
                if let Some(mut access) = inherited.access {
                    assert_eq!(getfattr(&new, ACCESS), access.to_xattr(), "{rules} {name}");
                    fs::set_permissions(&new, fs::Permissions::from_mode(0o531)).unwrap();
                    access.chmod(0o531);
                    assert_eq!(getfattr(&new, ACCESS), access.to_xattr(), "{rules} {name} after chmod");
                }
                if name == "sub" {
                    assert_eq!(getfattr(&new, DEFAULT), default.to_xattr());
                }
            }
        }
    });
}

#[test]
fn an_acl_that_is_a_mode_becomes_one() {
    let Some(image) = Image::make("acl-mode", &["-I", "256"]) else { return };
    image.mounted(|mnt| {
        let file = mnt.join("file");
        fs::write(&file, b"").unwrap();
        let value = Acl::from_mode(0o751).to_xattr();
        setfattr(&file, ACCESS, &value);
        let mode = fs::metadata(&file).unwrap().mode();
        assert_eq!(Acl::from_xattr(&value).unwrap().unwrap().to_mode().map(u32::from), Some(mode & 0o777));
    });
    assert!(Area::in_inode(image.inode("file").area(), Place::Volume).unwrap().is_none());
}
