//! Encrypted directories: policies of what they name, names that are there twice, and a lost+found that is one.

use crate::names::{assert_minded, inode, made, patch, record};
use crate::structures::{Case, survey};
use hectare_ext4::xattr::{Attr, Index, Name, layout};
use hectare_oracle::{Skip, debugfs, skip};

/// Where an inode has its flags, and, after 32 bytes of extra fields, its attributes.
const FLAGS: usize = 0x20;
const ATTRIBUTES: usize = 160;
const INODE: usize = 256;
const ENCRYPTED: u32 = 0x800;

/// The slot of an inode of the first group.
fn slot(case: &Case, nr: usize) -> usize {
    let said = debugfs(&case.image, &["imap <12>"]).unwrap();
    let rest = said.split("located at block ").nth(1).unwrap();
    let block: usize = rest.split([',', ' ', '\n']).next().unwrap().parse().unwrap();
    let offset = rest.split("offset 0x").nth(1).unwrap().split_whitespace().next().unwrap();
    block * 1024 + usize::from_str_radix(offset, 16).unwrap() + nr * INODE - 12 * INODE
}

/// Marks inodes as encrypted, with a context of a version each.
fn encrypt(case: &Case, inodes: &[(usize, u8)]) {
    let slots: Vec<(usize, u8)> = inodes.iter().map(|(nr, version)| (slot(case, *nr), *version)).collect();
    patch(case, |bytes| {
        for (slot, version) in slots {
            let flags = u32::from_le_bytes(*bytes[slot + FLAGS..].first_chunk().unwrap()) | ENCRYPTED;
            bytes[slot + FLAGS..][..4].copy_from_slice(&flags.to_le_bytes());
            let len = if version == 2 { 40 } else { 28 };
            let mut context = vec![version, 1, 4, 0];
            context.resize(len, b'k');
            let attr = Attr::new(Name::stored(Index::ENCRYPTION, b"c").unwrap(), context);
            let area = layout(&[attr], INODE - ATTRIBUTES, None).unwrap().inode_area;
            bytes[slot + ATTRIBUTES..slot + INODE].copy_from_slice(&area);
        }
    });
}

/// A volume with an encrypted directory, inode 12, that names three encrypted files, 13 to 15.
fn volume() -> Result<Case, Skip> {
    let names = ["a", "b", "c"].map(|letter| format!("write /dev/null en/{}", letter.repeat(16)));
    let requests = ["mkdir en", &names[0], &names[1], &names[2], "mknod f1 p"];
    let case = made(&["-t", "ext4", "-b", "1024", "-I", "256", "-O", "encrypt"], "8M", &requests)?;
    encrypt(&case, &[(12, 1), (13, 1), (14, 1), (15, 1)]);
    Ok(case)
}

/// A context of a version that is not known is another policy than one that is.
#[test]
fn regression_an_unknown_policy_is_another() {
    let case = match volume() {
        Ok(case) => case,
        Err(reason) => skip!("repair encrypted::regression_an_unknown_policy", reason),
    };
    assert!(crate::names::is_clean(&case));
    let whole = case.bytes();
    // Both unknown: the same.
    for (inodes, is_sound) in [(&[(13, 9)][..], false), (&[(12, 9), (13, 8), (14, 9), (15, 9)], true)] {
        std::fs::write(&case.image, &whole).unwrap();
        encrypt(&case, inodes);
        assert_eq!(crate::trial::e2fsck("-fn", &case.image).code == Some(0), is_sound, "{inodes:?}");
        assert_eq!(crate::names::is_clean(&case), is_sound, "{inodes:?}");
        let (repaired, after) = case.repaired(&format!("{inodes:?}"));
        let found = survey(&after);
        assert!(found.inodes.contains_key(&13), "{inodes:?}: {:?}", repaired.mends);
        assert_eq!(inode(&found, "/lost+found/#13").is_some(), !is_sound, "{:?}", repaired.mends);
    }
}

/// Nobody without the key can give an encrypted name another form: of two that are the same, one goes.
#[test]
fn regression_of_two_encrypted_names_one_goes() {
    let case = match volume() {
        Ok(case) => case,
        Err(reason) => skip!("repair encrypted::regression_of_two_encrypted_names", reason),
    };
    patch(&case, |bytes| {
        let at = record(bytes, &"b".repeat(16));
        bytes[at + 8..at + 24].fill(b'a');
    });
    assert_minded(&case, "twice");
    let (repaired, after) = case.repaired("twice");
    let (found, theirs) = (survey(&after), survey(&case.e2fsck().1));
    assert_eq!(inode(&theirs, "/lost+found/#13"), Some(13));
    assert_eq!(found.paths, theirs.paths, "{:?}", repaired.mends);
}

/// An encrypted lost+found takes no names; it goes into a new one.
#[test]
fn regression_an_encrypted_lost_found_is_replaced() {
    let case = match volume() {
        Ok(case) => case,
        Err(reason) => skip!("repair encrypted::regression_an_encrypted_lost_found", reason),
    };
    encrypt(&case, &[(11, 1)]);
    assert!(crate::names::is_clean(&case));
    case.change(&["unlink f1", "sif <16> links_count 1", "sif <16> dtime 0", "seti <16>"]);
    assert_minded(&case, "lost+found");
    let (repaired, after) = case.repaired("lost+found");
    let (found, theirs) = (survey(&after), survey(&case.e2fsck().1));
    assert_eq!(inode(&theirs, "/lost+found/#11"), Some(11));
    assert_eq!(found.paths, theirs.paths, "{:?}", repaired.mends);
}

/// An encrypted root takes neither lost+found nor what is lost: each round made a name that the next found too short.
#[test]
fn regression_an_encrypted_root_takes_what_is_lost() {
    let case = match volume() {
        Ok(case) => case,
        Err(reason) => skip!("repair encrypted::regression_an_encrypted_root", reason),
    };
    encrypt(&case, &[(2, 1)]);
    assert!(!crate::names::is_clean(&case));
    let (repaired, after) = case.repaired("root");
    let found = survey(&after);
    assert_eq!(inode(&found, "/lost+found/#12"), Some(12), "{:?}", repaired.mends);
    assert!([13, 14, 15].iter().all(|nr| found.inodes.contains_key(nr)), "{:?}", repaired.mends);
}
