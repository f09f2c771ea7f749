//! Inline files and directories as the kernel and the reference tools write them.

use crate::kernel::image::{Image, RawInode};
use hectare_ext4::Place;
use hectare_ext4::inline::Inline;
use hectare_ext4::xattr::{Area, Name, ValueRef};
use hectare_units::{Bytes, InodeNr, u64_of};
use std::fs;

fn with_inline<T>(inode: &RawInode, work: impl FnOnce(Inline<'_>) -> T) -> T {
    assert!(inode.has_inline_data(), "inode {} is not inline", inode.nr);
    let place = Place::Inode(inode.nr);
    let area = Area::in_inode(inode.area(), place).unwrap().expect("it has attributes");
    let value = area.find(&Name::inline_data()).map(|entry| match entry.value {
        ValueRef::Inline(bytes) => bytes,
        ValueRef::Inode { .. } => panic!("inline data elsewhere"),
    });
    work(Inline::new(inode.i_block(), value, Bytes::new(inode.size()), place).unwrap())
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| hectare_units::low8(u64_of(n * 3 + len))).collect()
}

#[test]
fn inline_files_are_read() {
    for size in ["256", "512"] {
        let options = ["-I", size, "-O", "inline_data"];
        let Some(image) = Image::make("inline", &options) else { return };
        let lengths = [1, 59, 60, 61, 100, 128];
        image.mounted(|mnt| {
            for len in lengths {
                fs::write(mnt.join(format!("kernel{len}")), content(len)).unwrap();
            }
            fs::write(mnt.join("shrunk"), content(120)).unwrap();
            fs::File::options().write(true).open(mnt.join("shrunk")).unwrap().set_len(20).unwrap();
        });
        let source = image.path().with_file_name("source");
        for len in lengths {
            fs::write(&source, content(len)).unwrap();
            image.debugfs(&format!("write {} tool{len}", source.display()));
        }
        for (name, len) in
            lengths.iter().flat_map(|len| [(format!("kernel{len}"), len), (format!("tool{len}"), len)])
        {
            let inode = image.inode(&name);
            let size = Bytes::new(inode.size());
            assert_eq!(with_inline(&inode, |inline| inline.content(size)), content(*len), "{name}");
        }
        let inode = image.inode("shrunk");
        assert_eq!(inode.size(), 20);
        assert_eq!(with_inline(&inode, |inline| inline.content(Bytes::new(20))), content(120)[..20]);
    }
}

#[test]
fn inline_directories_are_read() {
    let Some(image) = Image::make("inline-dir", &["-I", "512", "-O", "inline_data"]) else { return };
    let names = ["a", "bb", "a-rather-long-name", "sub", "gone", "another-name-of-some-length", "z"];
    let kept: Vec<&str> = names.into_iter().filter(|name| *name != "gone").collect();
    image.mounted(|mnt| {
        for count in 0..=names.len() {
            let dir = mnt.join(format!("dir{count}"));
            fs::create_dir(&dir).unwrap();
            for name in &names[..count] {
                if *name == "sub" {
                    fs::create_dir(dir.join(name)).unwrap();
                } else {
                    fs::write(dir.join(name), b"").unwrap();
                }
            }
        }
        fs::remove_file(mnt.join("dir7/gone")).unwrap();
    });
    for count in 0..=names.len() {
        let inode = image.inode(&format!("dir{count}"));
        let mut found = with_inline(&inode, |inline| {
            assert_eq!(inline.parent(), Ok(InodeNr::ROOT));
            let entries = inline.dir_entries().map(|entry| entry.unwrap());
            let checked = entries.inspect(|entry| {
                let name = std::str::from_utf8(entry.name).unwrap();
                assert_eq!(entry.inode, image.inode(&format!("dir{count}/{name}")).nr);
                assert_eq!(entry.file_type, if name == "sub" { 2 } else { 1 });
            });
            checked.map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()).collect::<Vec<_>>()
        });
        found.sort();
        let mut expected = if count == 7 { kept.clone() } else { names[..count].to_vec() };
        expected.sort_unstable();
        assert_eq!(found, expected, "dir{count}");
    }
    let sub = image.inode("dir5/sub");
    let parent = image.inode("dir5").nr;
    assert_eq!(with_inline(&sub, |inline| inline.parent()), Ok(parent));
}
