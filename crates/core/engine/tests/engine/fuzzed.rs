//! The findings of the fuzz targets, each as a test of its own.

use crate::common::{InMemory, close_clean, format_bytes, in_memory, open_image, pattern, save};
use hectare_engine::{Creation, Error, RenameMode, XattrHow};
use hectare_oracle::{debugfs_write, skip};

/// A volume of these features with a directory that holds the empty file `dir/file`.
fn with_a_file(test: &str, features: &str) -> Option<InMemory> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    std::fs::write(folder.path().join("dir/file"), []).unwrap();
    let from = folder.path().to_str().unwrap();
    match format_bytes(&["-t", "ext4", "-b", "1024", "-O", features, "-d", from], "2M") {
        Ok(bytes) => Some(in_memory(&bytes)),
        Err(reason) => {
            skip::record(skip::Extent::Test, test, &reason.to_string());
            None
        }
    }
}

#[test]
fn a_directory_inside_its_inode_is_not_empty_because_it_has_no_blocks() {
    let Some(held) = with_a_file("fuzzed::inline", "^has_journal,inline_data") else { return };
    let v = &held.volume;
    assert!(matches!(v.remove_dir("dir"), Err(Error::NotEmpty)));
    // An empty directory of ours is not inline, so it can be moved, but not over one that holds something.
    v.create_dir("other", Creation::default()).unwrap();
    assert!(matches!(v.rename_path("other", "dir", RenameMode::Replace), Err(Error::NotEmpty)));
    v.metadata("dir/file").unwrap();
    close_clean(&held);
}

/// A file whose space can't be freed keeps its name: what is wrong with the space is found first.
#[test]
fn regression_a_name_stays_when_its_space_can_not_be_freed() {
    let Some(held) = with_a_file("fuzzed::space", "^has_journal,^metadata_csum,^uninit_bg") else { return };
    held.volume.write_file("big", &pattern(1, 0, 9000), Creation::default()).unwrap();
    let file = held.volume.open_file("big").unwrap();
    let block = file.extents().unwrap()[0].physical;
    drop(file);
    held.volume.sync().unwrap();
    let free = held.volume.statfs().unwrap().free.get();
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let count = |free: u64| format!("set_bg 0 free_blocks_count {free}");
    let few = "the block bitmap of group 0 is corrupt: 7 free clusters";
    for (request, free, words) in [(format!("freeb {block}"), free + 1, "is not in use"), (count(7), 7, few)]
    {
        save(&held.device.to_vec(), &image);
        debugfs_write(&image, &[&request, &count(free)]).unwrap();
        let volume = open_image(&image);
        let error = volume.remove_file("big").unwrap_err().to_string();
        assert!(error.contains(words), "{request}: {error}");
        volume.metadata("big").unwrap();
        let error = volume.open_file("big").unwrap().set_len(3).unwrap_err().to_string();
        assert!(error.contains(words), "{request}: {error}");
        assert_eq!(volume.metadata("big").unwrap().size, 9000);
    }
}

/// Nor does a file lose its name that has an attribute whose value can't be freed.
#[test]
fn regression_a_name_stays_when_a_value_can_not_be_freed() {
    let Some(held) = with_a_file("fuzzed::value", "^has_journal,ea_inode") else { return };
    let nr = held.volume.resolve("dir/file", false).unwrap();
    held.volume.set_xattr(nr, "user.v", &pattern(1, 0, 5000), XattrHow::Create).unwrap();
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&held.device.to_vec(), &image);
    // The value's inode follows the file's; its extent leads to the superblock.
    let value = nr.get() + 1;
    debugfs_write(&image, &[&format!("sif <{value}> block[5] 1")]).unwrap();
    let volume = open_image(&image);
    let error = volume.remove_file("dir/file").unwrap_err().to_string();
    assert!(error.contains(&format!("of inode {value}")), "{error}");
    volume.metadata("dir/file").unwrap();
    assert!(volume.remove_xattr(nr, "user.v").is_err());
    assert_eq!(volume.list_xattrs(nr).unwrap(), [b"user.v"]);
}

/// A map that leads to a block twice: freeing it once would be half of a removal.
#[test]
fn regression_a_name_stays_when_its_map_leads_to_a_block_twice() {
    for features in ["^has_journal", "^has_journal,^64bit,^extents"] {
        let Some(held) = with_a_file("fuzzed::twice", &format!("{features},^metadata_csum,^uninit_bg"))
        else {
            return;
        };
        let file = held.volume.create_file("big", Creation::default()).unwrap();
        [0, 2048].iter().for_each(|at| file.write_all_at(*at, &[7; 1024]).unwrap());
        let block = file.extents().unwrap()[0].physical;
        drop(file);
        held.volume.close().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        save(&held.device.to_vec(), &image);
        // The last word of the second extent, or the third number.
        let word = if features.contains("extents") { 2 } else { 8 };
        debugfs_write(&image, &[&format!("sif big block[{word}] {block}")]).unwrap();
        let volume = open_image(&image);
        let error = volume.remove_file("big").unwrap_err().to_string();
        assert!(error.contains(&format!("leads to block {block} twice")), "{features}: {error}");
        volume.metadata("big").unwrap();
    }
}

/// A file is not cut shorter whose map has a table that is not in use, though that maps nothing: it is freed with
/// the rest.
#[test]
fn regression_a_size_stays_when_a_table_of_the_map_can_not_be_freed() {
    let features = "^has_journal,^64bit,^extents,^metadata_csum,^uninit_bg";
    let Some(held) = with_a_file("fuzzed::table", features) else { return };
    held.volume.write_file("big", &pattern(1, 0, 3000), Creation::default()).unwrap();
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for level in ["IND", "DIND", "TIND"] {
        save(&held.device.to_vec(), &image);
        debugfs_write(&image, &[&format!("sif big block[{level}] 2000")]).unwrap();
        let volume = open_image(&image);
        let error = volume.open_file("big").unwrap().set_len(60).unwrap_err().to_string();
        assert!(error.contains("is not in use"), "{level}: {error}");
        assert_eq!(volume.metadata("big").unwrap().size, 3000, "{level}");
    }
}

/// A directory inside its inode with a row that is wrong: its ".." can't be changed, so it is not moved, and has
/// not two names afterwards.
#[test]
fn regression_a_directory_that_is_corrupt_inside_its_inode_is_not_half_moved() {
    let Some(held) = with_a_file("fuzzed::rows", "^has_journal,^metadata_csum,inline_data") else { return };
    held.volume.create_dir("other", Creation::default()).unwrap();
    held.volume.close().unwrap();
    let mut bytes = held.device.to_vec();
    let at = bytes.windows(4).position(|bytes| bytes == b"file").unwrap();
    bytes[at] = b'/';
    for mode in [RenameMode::NoReplace, RenameMode::Replace] {
        let held = in_memory(&bytes);
        let moved = held.volume.rename_path("dir", "other/dir", mode);
        assert!(moved.unwrap_err().to_string().contains("has a bad name"));
        assert!(matches!(held.volume.metadata("other/dir"), Err(Error::NotFound)));
        held.volume.metadata("dir").unwrap();
    }
}

/// Nor does one that its bitmap has free.
#[test]
fn regression_a_name_of_a_free_inode_stays() {
    let Some(held) = with_a_file("fuzzed::free", "^has_journal,^metadata_csum,^uninit_bg") else { return };
    let nr = held.volume.resolve("dir/file", false).unwrap();
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&held.device.to_vec(), &image);
    debugfs_write(&image, &[&format!("freei <{nr}>")]).unwrap();
    let volume = open_image(&image);
    assert!(volume.remove_file("dir/file").is_err());
    volume.metadata("dir/file").unwrap();
}

/// Nor does one whose attribute block is one of the file's own blocks: it was freed twice, the second time too late.
#[test]
fn regression_a_name_stays_whose_attribute_block_is_in_the_map() {
    let Some(held) = with_a_file("fuzzed::twice", "^has_journal,^metadata_csum,^uninit_bg") else { return };
    held.volume.open_file("dir/file").unwrap().write_all_at(0, &[7; 5000]).unwrap();
    let nr = held.volume.resolve("dir/file", false).unwrap();
    held.volume.sync().unwrap();
    let block = held.volume.inode_blocks(nr).unwrap().extents[0].physical;
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&held.device.to_vec(), &image);
    debugfs_write(&image, &[&format!("sif <{nr}> file_acl {block}")]).unwrap();
    let volume = open_image(&image);
    let refused = volume.remove_file("dir/file").unwrap_err().to_string();
    assert!(refused.contains(&format!("block {block} twice")), "{refused}");
    volume.metadata("dir/file").unwrap();
}

/// A map that leads to the volume's metadata is refused also where nodes or attributes come after the content: the
/// check of those hid what was found before.
#[test]
fn regression_what_is_wrong_with_the_content_is_not_forgotten() {
    let Some(held) = with_a_file("fuzzed::first", "^has_journal,^metadata_csum,^uninit_bg") else { return };
    held.volume.open_file("dir/file").unwrap().write_all_at(0, &[7; 1000]).unwrap();
    let nr = held.volume.resolve("dir/file", false).unwrap();
    held.volume.set_xattr(nr, "user.a", &[1; 700], XattrHow::Either).unwrap();
    held.volume.sync().unwrap();
    assert!(held.volume.inode_blocks(nr).unwrap().attribute_block.is_some());
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&held.device.to_vec(), &image);
    // The place of the first extent: the block after the superblock, where the group descriptors are.
    debugfs_write(&image, &[&format!("sif <{nr}> block[5] 2")]).unwrap();
    let volume = open_image(&image);
    let refused = volume.remove_file("dir/file").unwrap_err().to_string();
    assert!(refused.contains("holds metadata of the volume"), "{refused}");
    volume.metadata("dir/file").unwrap();
}

/// The blocks that a punched range covers in part were not checked: they were zeroed, whatever they were, after the
/// others had been freed.
#[test]
fn regression_what_a_punch_covers_in_part_is_checked_before() {
    let Some(held) = with_a_file("fuzzed::edges", "^has_journal,^metadata_csum,^uninit_bg,^64bit,^extents")
    else {
        return;
    };
    held.volume.open_file("dir/file").unwrap().write_all_at(0, &[7; 8192]).unwrap();
    let nr = held.volume.resolve("dir/file", false).unwrap();
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&held.device.to_vec(), &image);
    debugfs_write(&image, &[&format!("sif <{nr}> block[3] 2")]).unwrap();
    let before = std::fs::read(&image).unwrap();
    let volume = open_image(&image);
    let file = volume.open_file("dir/file").unwrap();
    let refused =
        file.fallocate(hectare_engine::FallocateMode::PunchHole, 1024, 2560).unwrap_err().to_string();
    assert!(refused.contains("holds metadata of the volume"), "{refused}");
    volume.close().unwrap();
    let after = std::fs::read(&image).unwrap();
    // All but the superblock, which counts openings.
    assert!(before[2048..] == after[2048..]);
}

/// A group's inode bitmap that is marked as never written, while inodes of it are in use: a new file would get the
/// number of one of them.
#[test]
fn regression_an_inode_bitmap_that_is_wrongly_called_unwritten_gives_no_inode() {
    let Some(held) = with_a_file("fuzzed::uninit", "^has_journal,^metadata_csum,uninit_bg") else { return };
    held.volume.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    // INODE_UNINIT (of a table that is written), alone and with a free count that hides what the group must hold.
    for requests in [&["set_bg 0 flags 5"][..], &["set_bg 0 flags 5", "set_bg 0 free_inodes_count 256"]] {
        save(&held.device.to_vec(), &image);
        debugfs_write(&image, &[requests, &["set_bg 0 checksum calc"]].concat()).unwrap();
        let volume = open_image(&image);
        let error = volume.create_file("new", Creation::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains("marked as never written"), "{error}");
        assert!(matches!(volume.metadata("new"), Err(Error::NotFound)));
    }
}
