//! Attributes as the kernel and the reference tools see them.

use crate::kernel::image::{Image, RawInode, getfattr, run, setfattr, tool};
use hectare_ext4::Place;
use hectare_ext4::xattr::{
    Area, Attr, How, Name, Value, block_hash, collect, find, inode_value_matches, layout, refcount, remove,
    seal, set, set_refcount, verify,
};
use std::fs;

/// Everything attribute-related of one file.
fn read(image: &Image, inode: &RawInode) -> Vec<Attr> {
    let place = Place::Inode(inode.nr);
    let block = inode.attr_block().map(|nr| (nr, image.block(nr)));
    let in_inode = Area::in_inode(inode.area(), place).unwrap();
    let in_block = block.as_ref().map(|(nr, bytes)| {
        if let Some(seed) = image.seed() {
            verify(bytes, seed, *nr).unwrap();
        }
        Area::in_block(bytes, Place::Block(*nr)).unwrap()
    });
    for area in in_inode.iter().chain(&in_block) {
        area.check_hashes().unwrap();
    }
    if let Some(area) = in_block {
        let stored = u32::from_le_bytes(block.as_ref().unwrap().1[12..16].try_into().unwrap());
        // debugfs leaves the block's hash out.
        assert!([0, block_hash(area.entries().map(|entry| entry.hash))].contains(&stored));
    }
    collect(in_inode, in_block)
}

/// Replaces the file's attributes by a list; it must have a block exactly if the list needs one.
fn write(image: &Image, mut inode: RawInode, attrs: &[Attr]) {
    let placed = layout(attrs, inode.area().len(), Some(image.block_size())).unwrap();
    inode.set_area(&placed.inode_area);
    assert_eq!(placed.block.is_some(), inode.attr_block().is_some());
    if let (Some(mut block), Some(nr)) = (placed.block, inode.attr_block()) {
        if let Some(seed) = image.seed() {
            seal(&mut block, seed, nr);
        }
        image.write_block(nr, &block);
    }
    image.write_inode(inode);
}

fn name(full: &[u8]) -> Name {
    Name::parse(full).unwrap()
}

/// Names and values of every kind, more than an inode holds.
fn samples() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut samples: Vec<(Vec<u8>, Vec<u8>)> = vec![
        (b"user.empty".to_vec(), Vec::new()),
        (b"user.one".to_vec(), b"1".to_vec()),
        (b"trusted.note".to_vec(), b"twelve bytes".to_vec()),
        ("user.caf\u{e9}".into(), vec![0xff; 37]),
        (b"user.\x80\xfe\xff".to_vec(), vec![0x80; 3]),
        ([&b"user."[..], &[b'n'; 250]].concat(), b"long name".to_vec()),
    ];
    samples.extend((0..8u8).map(|n| (format!("user.more{n}").into_bytes(), vec![n; usize::from(n) * 7 + 1])));
    samples
}

const VOLUMES: [&[&str]; 7] = [
    &["-I", "256"],
    &["-I", "128"],
    &["-I", "256", "-O", "^metadata_csum"],
    &["-I", "128", "-O", "^metadata_csum,^64bit"],
    &["-I", "512", "-O", "metadata_csum_seed"],
    &["-I", "1024", "-b", "1024"],
    &["-I", "256", "-b", "2048"],
];

#[test]
fn the_kernel_and_we_read_each_other() {
    for options in VOLUMES {
        let Some(image) = Image::make("xattr", options) else { return };
        image.mounted(|mnt| {
            let file = mnt.join("file");
            fs::write(&file, b"content").unwrap();
            for (name, value) in samples() {
                setfattr(&file, &name, &value);
            }
            run(tool("setcap").arg("cap_net_raw+ep").arg(&file));
        });
        let inode = image.inode("file");
        let mut attrs = read(&image, &inode);
        assert_eq!(attrs.len(), samples().len() + 1, "{options:?}");
        for (full, value) in samples() {
            let attr = find(&attrs, &name(&full)).unwrap();
            assert_eq!(attr.value, Value::Inline(value), "{options:?} {}", attr.name);
        }
        let capability = find(&attrs, &name(b"security.capability")).unwrap().clone();

        remove(&mut attrs, &name(b"user.one")).unwrap();
        set(&mut attrs, &name(b"trusted.note"), &[7; 90], How::Replace).unwrap();
        set(&mut attrs, &name(b"user.\xc3\xa4"), b"new", How::Create).unwrap();
        write(&image, inode, &attrs);
        image.assert_clean();
        image.mounted(|mnt| {
            let file = mnt.join("file");
            for attr in &attrs {
                let full = attr.name.full().unwrap();
                assert_eq!(Value::Inline(getfattr(&file, &full)), attr.value, "{options:?} {}", attr.name);
            }
            let listed = run(tool("getfattr").args(["--absolute-names", "-m", "-"]).arg(&file));
            let lines = listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            assert_eq!(lines.count(), 1 + attrs.len());
            // The kernel continues from our result.
            run(tool("setfattr").args(["-x", "user.more5"]).arg(&file));
            setfattr(&file, b"user.more3", &[9; 50]);
        });
        image.assert_clean();
        let after = read(&image, &image.inode("file"));
        assert_eq!(after.len(), attrs.len() - 1);
        assert_eq!(find(&after, &capability.name), Some(&capability));
    }
}

#[test]
fn what_we_lay_out_is_byte_for_byte_what_the_kernel_does() {
    for options in VOLUMES {
        let Some(image) = Image::make("xattr-bytes", options) else { return };
        let mut sorted = samples();
        sorted.sort_by_key(|(full, _)| name(full));
        image.mounted(|mnt| {
            fs::write(mnt.join("file"), b"").unwrap();
            for (name, value) in &sorted {
                setfattr(&mnt.join("file"), name, value);
            }
        });
        let inode = image.inode("file");
        let attrs = read(&image, &inode);
        let placed = layout(&attrs, inode.area().len(), Some(image.block_size())).unwrap();
        assert_eq!(placed.inode_area, inode.area(), "{options:?}");
        let block = placed.block.map(|mut block| {
            if let Some(seed) = image.seed() {
                seal(&mut block, seed, inode.attr_block().unwrap());
            }
            block
        });
        assert!(block == inode.attr_block().map(|nr| image.block(nr)), "{options:?}: the blocks differ");
    }
}

#[test]
fn debugfs_reads_what_we_lay_out() {
    let Some(image) = Image::make("xattr-debugfs", &["-I", "256", "-b", "4096"]) else { return };
    image.mounted(|mnt| {
        fs::write(mnt.join("file"), b"").unwrap();
        setfattr(&mnt.join("file"), b"user.big", &[b'x'; 500]);
    });
    let names = ["user.a", "security.label", "trusted.t", "user.longer"];
    let mut attrs: Vec<Attr> = names.map(|full| Attr::new(name(full.as_bytes()), full.as_bytes())).to_vec();
    attrs.push(Attr::new(name(b"user.big"), [b'y'; 3000]));
    write(&image, image.inode("file"), &attrs);
    image.assert_clean();
    let listed = image.debugfs("ea_list file");
    for full in names {
        assert!(listed.contains(&format!("{full} ({}) = \"{full}\"", full.len())), "{full}: {listed}");
    }
    assert!(listed.contains("user.big (3000)"), "{listed}");
}

#[test]
fn attributes_set_by_debugfs_are_read() {
    let Some(image) = Image::make("xattr-set", &["-I", "256"]) else { return };
    image.mounted(|mnt| fs::write(mnt.join("file"), b"").unwrap());
    let long = "z".repeat(300);
    for (name, value) in [("user.a", "1"), ("user.b", long.as_str()), ("trusted.c", ""), ("security.d", "4")]
    {
        image.debugfs(&format!("ea_set file {name} \"{value}\""));
    }
    let attrs = read(&image, &image.inode("file"));
    assert_eq!(attrs.len(), 4, "{attrs:?}");
    assert_eq!(find(&attrs, &name(b"user.b")).unwrap().value, Value::Inline(long.into_bytes()));
}

#[test]
fn a_shared_block_says_how_often() {
    let Some(image) = Image::make("xattr-shared", &["-I", "128"]) else { return };
    image.mounted(|mnt| {
        for file in ["a", "b", "c"] {
            fs::write(mnt.join(file), b"").unwrap();
            setfattr(&mnt.join(file), b"user.same", b"value");
        }
    });
    let nr = image.inode("a").attr_block().unwrap();
    assert_eq!(image.inode("c").attr_block(), Some(nr));
    let mut block = image.block(nr);
    assert_eq!(refcount(&block), Some(3));
    set_refcount(&mut block, 2);
    assert!(verify(&block, image.any_seed(), nr).is_err());
    seal(&mut block, image.any_seed(), nr);
    verify(&block, image.any_seed(), nr).unwrap();
}

#[test]
fn a_value_in_an_inode_of_its_own_is_found_and_verified() {
    let Some(image) = Image::make("xattr-ea-inode", &["-I", "256", "-O", "ea_inode"]) else { return };
    let big: Vec<u8> = (0..30_000u32).map(|n| hectare_units::low8(u64::from(n * 7))).collect();
    image.mounted(|mnt| {
        fs::write(mnt.join("file"), b"").unwrap();
        setfattr(&mnt.join("file"), b"user.big", &big);
    });
    let attrs = read(&image, &image.inode("file"));
    let Value::Inode { inode, size, hash } = attrs[0].value else { panic!("{attrs:?}") };
    assert_eq!(size, 30_000);
    let value = run(tool("debugfs").args(["-R", &format!("cat <{inode}>")]).arg(image.path()));
    assert!(value == big);
    assert!(inode_value_matches(hash, attrs[0].name.suffix(), &value, image.any_seed()));
    assert!(!inode_value_matches(hash, attrs[0].name.suffix(), &value[1..], image.any_seed()));
    // The entry survives being laid out again.
    write(&image, image.inode("file"), &attrs);
    image.assert_clean();
}

#[test]
fn full_is_full_for_the_kernel_too() {
    for options in [["-I", "128", "-b", "1024"], ["-I", "256", "-b", "1024"], ["-I", "256", "-b", "4096"]] {
        let Some(image) = Image::make("xattr-full", &options) else { return };
        let space = image.mounted(|mnt| {
            fs::write(mnt.join("file"), b"").unwrap();
            fs::write(mnt.join("other"), b"").unwrap();
            usize::try_from(image.superblock_word(0x58) & 0xffff).unwrap().saturating_sub(160)
        });
        let size = image.block_size();
        let fits =
            |len: usize| layout(&[Attr::new(name(b"user.long"), vec![1; len])], space, Some(size)).is_ok();
        let longest = (0..size.len()).rev().find(|len| fits(*len)).unwrap();
        image.mounted(|mnt| {
            setfattr(&mnt.join("file"), b"user.long", &vec![1; longest]);
            let value = format!("0x{}", "01".repeat(longest + 1));
            let args = ["-n", "user.long", "-v", &value];
            let refused = tool("setfattr").args(args).arg(mnt.join("other")).output().unwrap();
            assert!(!refused.status.success(), "{options:?}: the kernel takes {} bytes", longest + 1);
        });
    }
}
