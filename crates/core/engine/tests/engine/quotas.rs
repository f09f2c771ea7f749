//! Quotas: what e2fsck counts is what we count, after random operations, crashes and many new ids; limits; and
//! quota files that are broken.

use crate::common::{
    InMemory, assert_clean_bytes, close_clean, format_bytes, in_memory, in_memory_with, pattern, save,
    unhurried,
};
use hectare_device::{Device, MemoryDevice};
use hectare_engine::{
    Caller, Changes, Creation, Error, FallocateMode, InodeFlags, NewNode, OpenFile, OpenOptions, QuotaKind,
    QuotaLimits, QuotaRecord, RenameMode, Timestamp, Volume, XattrHow, on_behalf,
};
use hectare_oracle::{hunt, skip, skip_part};
use hectare_units::{InodeNr, random};
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};

const ALICE: u32 = 1000;

fn used(volume: &Volume, kind: QuotaKind, id: u32) -> (u64, u64) {
    let reports = volume.quotas().unwrap();
    let report = reports.iter().find(|report| report.kind == kind).unwrap();
    let record = report.records.iter().find(|(of, _)| *of == id).map_or(QuotaRecord::default(), |(_, r)| *r);
    (record.space.used, record.inodes.used)
}

fn owned(uid: u32, gid: u32) -> Creation {
    Creation { uid, gid, ..Creation::default() }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(random::STEP);
        random::mixed(self.0) % end
    }
}

/// mke2fs counts nothing of what it fills a volume with: owners that the quota files do not know got their records
/// only when no transaction could begin any more, and the close failed before it committed.
#[test]
fn regression_closing_gave_new_ids_their_records_too_late() {
    const NAME: &str = "quotas::regression_closing_gave_new_ids";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"content").unwrap();
    if std::os::unix::fs::chown(&file, Some(1234), None).is_err() {
        skip!(NAME, hectare_oracle::Skip::new("owners can be changed by root only"));
    }
    let args = ["-t", "ext4", "-O", "quota", "-d", folder.path().to_str().unwrap()];
    let bytes = match format_bytes(&args, "64M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!(NAME, reason),
    };
    let held = in_memory_with(&bytes, unhurried()).unwrap();
    held.volume.remove_file("file").unwrap();
    held.volume.close().unwrap();
    let again = in_memory(&held.device.to_vec());
    assert!(matches!(again.volume.open_file("file"), Err(Error::NotFound)));
}

/// A claim that exceeded a soft limit for a moment began the time after which it is a hard one, and giving it back
/// did not end that.
#[test]
fn regression_a_claim_that_was_given_back_left_its_time_running() {
    const NAME: &str = "quotas::regression_a_claim_that_was_given_back";
    let bytes = match format_bytes(&["-t", "ext4", "-b", "1024", "-O", "quota"], "16M") {
        Ok(bytes) => bytes,
        Err(reason) => skip!(NAME, reason),
    };
    let held = in_memory_with(&bytes, unhurried()).unwrap();
    let volume = &held.volume;
    let limits =
        QuotaLimits { space_soft: Some(400 << 10), space_hard: Some(4 << 20), ..QuotaLimits::default() };
    volume.set_quota(QuotaKind::User, ALICE, &limits).unwrap();
    let user = Caller::user(ALICE, ALICE, &[]);
    let file = volume.create_file("file", owned(ALICE, ALICE)).unwrap();
    on_behalf(&user, || {
        for n in 0..400u64 {
            file.write_all_at(n << 10, &[1; 1024]).unwrap();
        }
        file.sync().unwrap();
        // Into space that is mapped: what is claimed is not needed.
        file.allocate(0, 400 << 10, true).unwrap();
    });
    volume.sync().unwrap();
    let reports = volume.quotas().unwrap();
    let users = reports.iter().find(|report| report.kind == QuotaKind::User).unwrap();
    let (_, record) = users.records.iter().find(|(id, _)| *id == ALICE).unwrap();
    assert_eq!((record.space.used, record.space.expires), (400 << 10, 0));
    drop(file);
    close_clean(&held);
}

/// One random operation, by any of a few users; refused ones are fine.
fn step(volume: &Volume, random: &mut Random, names: &mut Vec<String>) -> Result<(), Error> {
    let ids = [0, ALICE, 1001, 70_000, u32::MAX - 7];
    let id = |random: &mut Random| ids[random.below(5) as usize];
    let pick = |random: &mut Random, names: &[String]| match names.len() {
        0 => "d0".to_owned(),
        len => names[random.below(len as u64) as usize].clone(),
    };
    let (uid, gid) = (id(random), id(random));
    let dir = format!("d{}", random.below(4));
    let name = format!("{dir}/n{}", random.below(60));
    match random.below(14) {
        0 | 1 => {
            let len = random.below(40_000) as usize;
            volume.write_file(&name, &pattern(1, 0, len), owned(uid, gid))?;
            names.push(name);
        }
        2 => {
            let file = volume.open_file(pick(random, names))?;
            let end = file.metadata()?.size;
            file.write_at(end, &pattern(2, end, random.below(9000) as usize + 1))?;
        }
        3 => {
            let file = volume.open_file(pick(random, names))?;
            file.write_at(random.below(1 << 22), &pattern(3, 0, random.below(30_000) as usize + 1))?;
        }
        4 => volume.open_file(pick(random, names))?.set_len(random.below(1 << 20))?,
        5 => {
            let nr = volume.resolve(pick(random, names), false)?;
            let changes = Changes { uid: Some(uid), gid: Some(gid), ..Changes::default() };
            volume.change(nr, &changes)?;
        }
        6 => volume.remove_file(pick(random, names))?,
        7 => {
            let nr = volume.resolve(pick(random, names), false)?;
            // The longest need an inode of their own, where the volume has such.
            let value = pattern(4, 0, random.below(9000) as usize);
            // As the kernel has it; e2fsck takes a short link with a value elsewhere for a long one.
            if !volume.stat(nr)?.is_symlink() {
                volume.set_xattr(nr, b"user.a", &value, XattrHow::Either)?;
            }
        }
        8 => {
            let target = "t".repeat(random.below(200) as usize + 1);
            volume.make(&name, NewNode::Symlink(target.as_bytes()), owned(uid, gid))?;
            names.push(name);
        }
        9 => drop(volume.create_dir(format!("{dir}/s{}", random.below(9)), owned(uid, gid))?),
        10 => {
            let file = volume.open_file(pick(random, names))?;
            let keep_size = random.below(2) == 0;
            let modes = [
                FallocateMode::Allocate { keep_size },
                FallocateMode::PunchHole,
                FallocateMode::ZeroRange { keep_size },
            ];
            file.fallocate(
                modes[random.below(3) as usize],
                random.below(1 << 20),
                random.below(1 << 17) + 1,
            )?;
        }
        11 => {
            let nr = volume.resolve(pick(random, names), false)?;
            volume.set_project(nr, id(random), &Caller::ROOT)?;
        }
        12 => {
            let from = volume.resolve(&dir, false)?;
            let to = format!("r{}", random.below(9));
            let mode = if random.below(2) == 0 { RenameMode::Replace } else { RenameMode::WHITEOUT };
            let old = name.rsplit('/').next().unwrap().to_owned();
            volume.rename(from, old.as_bytes(), from, to.as_bytes(), mode)?;
        }
        _ => {
            let nr = volume.resolve(&dir, false)?;
            let open = volume.create_nameless(nr, owned(uid, gid), false)?;
            open.write_at(0, &pattern(5, 0, 20_000))?;
        }
    }
    Ok(())
}

const VOLUMES: [(&str, &[&str]); 8] = [
    ("plain", &["-t", "ext4", "-b", "4096", "-O", "quota,project"]),
    ("1k", &["-t", "ext4", "-b", "1024", "-O", "quota,project,^has_journal"]),
    ("groups only", &["-t", "ext4", "-O", "quota,^metadata_csum", "-E", "quotatype=grpquota"]),
    ("bigalloc", &["-t", "ext4", "-O", "quota,project,bigalloc", "-C", "16384", "-N", "4096"]),
    ("orphan file", &["-t", "ext4", "-O", "quota,project,orphan_file,fast_commit"]),
    ("block maps", &["-t", "ext3", "-b", "1024", "-O", "quota"]),
    ("values in inodes", &["-t", "ext4", "-b", "1024", "-O", "quota,project,ea_inode"]),
    ("64k", &["-t", "ext4", "-b", "65536", "-N", "4096", "-O", "quota,project"]),
];

fn formatted(args: &[&str]) -> Result<Vec<u8>, hectare_oracle::Skip> {
    format_bytes(args, "96M")
}

#[test]
fn random_operations_of_many_users_keep_the_sums_that_e2fsck_counts() {
    for (name, args) in VOLUMES {
        let mut bytes = match formatted(args) {
            Ok(bytes) => bytes,
            Err(reason) => {
                skip_part!(format!("quotas::random_operations, {name}"), reason);
                continue;
            }
        };
        let (mut random, mut names) = (Random(hunt::seed(&format!("quotas, {name}"))), Vec::new());
        for round in 0..hunt::share(10) {
            let held = in_memory(&bytes);
            for n in 0..4 {
                let _ = held.volume.create_dir(format!("d{n}"), owned(0, 0));
            }
            let (mut done, mut refused) = (0, 0);
            for _ in 0..150 {
                match step(&held.volume, &mut random, &mut names) {
                    Ok(()) => done += 1,
                    Err(
                        Error::NotFound
                        | Error::Exists
                        | Error::NotADirectory
                        | Error::IsADirectory
                        | Error::Invalid(_)
                        | Error::NotEmpty
                        | Error::AttributeTooLarge
                        | Error::Unsupported(_)
                        | Error::NotPermitted(_)
                        | Error::PermissionDenied,
                    ) => refused += 1,
                    Err(error) => panic!("{name}, round {round}: {error}"),
                }
            }
            assert!(done > 40, "{name}, round {round}: {done} done, {refused} refused");
            close_clean(&held);
            bytes = held.device.to_vec();
        }
    }
}

#[test]
fn what_a_crash_leaves_is_counted() {
    let Ok(bytes) = formatted(&["-t", "ext4", "-b", "4096", "-O", "quota,project"]) else {
        skip!("quotas::what_a_crash_leaves", "mke2fs is not installed");
    };
    let (mut random, mut names) = (Random(3), Vec::new());
    let mut bytes = bytes;
    for _ in 0..6 {
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, unhurried()).unwrap();
        let _ = volume.create_dir("d0", owned(0, 0));
        for _ in 0..60 {
            let _ = step(&volume, &mut random, &mut names);
        }
        // Orphans: one without a name, one unlinked while open.
        let kept = volume.create_nameless(InodeNr::ROOT, owned(ALICE, 5), false).unwrap();
        kept.write_at(0, &pattern(9, 0, 100_000)).unwrap();
        volume.write_file("gone", &pattern(9, 0, 50_000), owned(1001, 6)).unwrap();
        let gone = volume.open_file("gone").unwrap();
        volume.remove_file("gone").unwrap();
        volume.sync().unwrap();
        let crashed = device.to_vec();
        drop((kept, gone));
        // The next opening replays and frees.
        let after = in_memory(&crashed);
        close_clean(&after);
        bytes = after.device.to_vec();
    }
}

#[test]
fn a_thousand_new_ids_grow_the_files() {
    for args in
        [&["-t", "ext4", "-b", "4096", "-O", "quota"][..], &["-t", "ext4", "-b", "1024", "-O", "quota"]]
    {
        let Ok(bytes) = formatted(args) else {
            skip!("quotas::a_thousand_new_ids", "mke2fs is not installed");
        };
        let held = in_memory(&bytes);
        for n in 0..1000 {
            let uid = if n % 2 == 0 { n } else { n * 4_000_037 };
            held.volume.write_file(format!("f{n}"), &[7; 100], owned(uid, n / 7)).unwrap();
        }
        let records = held.volume.quotas().unwrap();
        assert_eq!((records[0].records.len(), records[1].records.len()), (1000, 143));
        close_clean(&held);
        let again = in_memory_with(&held.device.to_vec(), OpenOptions::read_only()).unwrap();
        assert_eq!(again.volume.quotas().unwrap(), records);
        assert_eq!(used(&again.volume, QuotaKind::Group, 3), (7 * block(&again), 7));
    }
}

fn block(held: &InMemory) -> u64 {
    held.volume.superblock().geometry().block_size.get().into()
}

#[test]
fn debugfs_lists_what_we_report() {
    let Ok(bytes) = formatted(&["-t", "ext4", "-b", "4096", "-O", "quota,project"]) else {
        skip!("quotas::debugfs_lists", "mke2fs is not installed");
    };
    let held = in_memory(&bytes);
    held.volume.write_file("a", &[1; 30_000], owned(ALICE, 77)).unwrap();
    let limits = QuotaLimits { space_soft: Some(1 << 20), inodes_hard: Some(9), ..QuotaLimits::default() };
    held.volume.set_quota(QuotaKind::User, ALICE, &limits).unwrap();
    held.volume.set_quota(QuotaKind::Project, 4, &limits).unwrap();
    close_clean(&held);
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&held.device.to_vec(), &image);
    for (word, kind) in
        [("user", QuotaKind::User), ("group", QuotaKind::Group), ("project", QuotaKind::Project)]
    {
        let text = hectare_oracle::debugfs(&image, &[&format!("list_quota {word}")]).unwrap();
        let mut listed = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            if let [id, used, soft, hard, inodes, inodes_soft, inodes_hard] = words[..] {
                listed.insert(id, [used, soft, hard, inodes, inodes_soft, inodes_hard]);
            }
        }
        let reports = held.volume.quotas().unwrap();
        let ours = reports.iter().find(|report| report.kind == kind).unwrap().records.iter();
        let ours = ours.map(|(id, r)| {
            let (space, inodes) = (&r.space, &r.inodes);
            (
                u64::from(*id),
                [space.used, space.soft >> 10, space.hard >> 10, inodes.used, inodes.soft, inodes.hard],
            )
        });
        assert_eq!(listed, ours.collect(), "{text}");
    }
}

fn limited(kind: QuotaKind, id: u32, limits: QuotaLimits, options: OpenOptions) -> Option<InMemory> {
    let bytes = formatted(&["-t", "ext4", "-b", "4096", "-O", "quota,project,ea_inode"]).ok()?;
    let held = in_memory_with(&bytes, options).unwrap();
    held.volume.set_quota(kind, id, &limits).unwrap();
    Some(held)
}

fn is_exceeded<T: std::fmt::Debug>(result: Result<T, Error>, kind: QuotaKind, what: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.errno(), 122);
    assert!(error.to_string().contains(&format!("{kind} ")) && error.to_string().contains(what), "{error}");
}

#[test]
fn a_hard_limit_of_space_stops_users_and_not_root() {
    let limits = QuotaLimits { space_hard: Some(100 << 10), ..QuotaLimits::default() };
    let Some(held) = limited(QuotaKind::User, ALICE, limits, unhurried()) else {
        skip!("quotas::a_hard_limit_of_space", "mke2fs is not installed");
    };
    let (volume, alice) = (&held.volume, Caller::user(ALICE, 5, &[]));
    let nr = volume.create(InodeNr::ROOT, b"a", NewNode::File, owned(ALICE, 5)).unwrap();
    let file = volume.open_inode(nr).unwrap();
    // As much as is allowed is written, in whole clusters.
    let done = on_behalf(&alice, || file.write_at(0, &pattern(1, 0, 300_000))).unwrap();
    assert_eq!(done, 100 << 10);
    is_exceeded(on_behalf(&alice, || file.write_at(done as u64, b"x")), QuotaKind::User, "space");
    is_exceeded(
        on_behalf(&alice, || file.fallocate(FallocateMode::Allocate { keep_size: false }, 1 << 20, 4096)),
        QuotaKind::User,
        "space",
    );
    on_behalf(&alice, || file.write_at(50, b"inside")).unwrap();
    // What was freed can be used again, also before a commit.
    on_behalf(&alice, || file.set_len(4096)).unwrap();
    // Small appends are refused when they come, not when they are placed.
    let mut end = 4096_u64;
    let error = loop {
        match on_behalf(&alice, || file.write_at(end, &[3; 1000])) {
            Ok(done) => end += done as u64,
            Err(error) => break error,
        }
    };
    assert_eq!((end, error.errno()), (100 << 10, 122));
    file.sync().unwrap();
    assert_eq!(used(volume, QuotaKind::User, ALICE), (100 << 10, 1));
    // A directory of hers can't grow either; root's writes and gifts know no limit.
    is_exceeded(
        on_behalf(&alice, || volume.create(InodeNr::ROOT, b"d", NewNode::Directory, owned(ALICE, 5))),
        QuotaKind::User,
        "space",
    );
    file.write_at(end, &pattern(1, end, 9000)).unwrap();
    file.sync().unwrap();
    assert_eq!(used(volume, QuotaKind::User, ALICE).0, 112 << 10);
    close_clean(&held);
}

/// The kernel charges such a value to the file's owner, as an inode and its space; limits were not applied.
#[test]
fn regression_limits_hold_for_attribute_values_in_inodes_of_their_own() {
    for (limits, what) in [
        (QuotaLimits { space_hard: Some(20 << 10), ..QuotaLimits::default() }, "space"),
        (QuotaLimits { inodes_hard: Some(2), ..QuotaLimits::default() }, "inodes"),
    ] {
        let Some(held) = limited(QuotaKind::User, ALICE, limits, unhurried()) else {
            skip!("quotas::regression_limits_hold_for_attribute_values", "mke2fs is not installed");
        };
        let (volume, alice) = (&held.volume, Caller::user(ALICE, 5, &[]));
        let nr = volume.create(InodeNr::ROOT, b"a", NewNode::File, owned(ALICE, 5)).unwrap();
        let set = |name: &str| {
            let value = pattern(1, 0, 9000);
            on_behalf(&alice, || volume.set_xattr_as(nr, name, &value, XattrHow::Either, &alice))
        };
        set("user.a").unwrap();
        assert_eq!(used(volume, QuotaKind::User, ALICE), (12 << 10, 2));
        is_exceeded(set("user.b"), QuotaKind::User, what);
        assert_eq!(used(volume, QuotaKind::User, ALICE), (12 << 10, 2));
        assert_eq!(volume.list_xattrs(nr).unwrap().len(), 1);
        on_behalf(&alice, || volume.remove_xattr(nr, "user.a")).unwrap();
        set("user.b").unwrap();
        close_clean(&held);
    }
}

/// The values that it was to inherit stayed orphans until the next change of attributes.
#[test]
fn regression_a_directory_that_is_refused_leaves_no_values_behind() {
    let limits = QuotaLimits { space_hard: Some(18 << 10), ..QuotaLimits::default() };
    let Some(held) = limited(QuotaKind::User, ALICE, limits, unhurried()) else {
        skip!("quotas::regression_a_directory_that_is_refused", "mke2fs is not installed");
    };
    let (volume, alice) = (&held.volume, Caller::user(ALICE, 5, &[]));
    let dir = volume.create(InodeNr::ROOT, b"dir", NewNode::Directory, owned(0, 0)).unwrap();
    // Of two blocks; a new directory has it and one of its own.
    let users = (0..600).map(|id| (0x2, 0o4, 1000 + id));
    let entries: Vec<(u16, u16, u32)> = std::iter::once((0x1, 0o7, !0))
        .chain(users)
        .chain([(0x4, 0o5, !0), (0x10, 0o7, !0), (0x20, 0o0, !0)])
        .collect();
    let acl = hectare_oracle::trees::acl(&entries);
    volume.set_xattr(dir, "system.posix_acl_default", &acl, XattrHow::Either).unwrap();
    let free = || {
        volume.sync().unwrap();
        let statfs = volume.statfs().unwrap();
        (statfs.free, statfs.free_inodes)
    };
    let (before, all) = (free(), Creation { permissions: 0o700, ..owned(ALICE, 5) });
    let made = on_behalf(&alice, || volume.create(dir, b"sub", NewNode::Directory, all));
    is_exceeded(made, QuotaKind::User, "space");
    assert_eq!(free().1, before.1);
    assert_eq!(used(volume, QuotaKind::User, ALICE), (0, 0));
    close_clean(&held);
}

#[test]
fn a_limit_of_inodes_and_of_a_group_stops_who_makes_and_who_gives() {
    let limits = QuotaLimits { inodes_hard: Some(3), ..QuotaLimits::default() };
    let Some(held) = limited(QuotaKind::Group, 50, limits, unhurried()) else {
        skip!("quotas::a_limit_of_inodes", "mke2fs is not installed");
    };
    let (volume, alice) = (&held.volume, Caller::user(ALICE, 5, &[50]));
    let make = |name: &[u8], gid| {
        on_behalf(&alice, || volume.create(InodeNr::ROOT, name, NewNode::File, owned(ALICE, gid)))
    };
    for name in [b"a", b"b", b"c"] {
        make(name, 50).unwrap();
    }
    is_exceeded(make(b"d", 50), QuotaKind::Group, "inodes");
    assert!(volume.lookup(InodeNr::ROOT, b"d").is_err());
    let other = make(b"e", 51).unwrap();
    let give = Changes { gid: Some(50), ..Changes::default() };
    is_exceeded(volume.change_as(other, &give, &alice), QuotaKind::Group, "inodes");
    volume.remove_file("a").unwrap();
    volume.change_as(other, &give, &alice).unwrap();
    assert_eq!((used(volume, QuotaKind::Group, 50).1, used(volume, QuotaKind::Group, 51).1), (3, 0));
    close_clean(&held);
}

#[test]
fn a_soft_limit_holds_after_its_grace_period() {
    let at = |seconds| {
        let fixed_time = Some(Timestamp::from_seconds(seconds));
        OpenOptions { fixed_time, ..unhurried() }
    };
    let limits = QuotaLimits { space_soft: Some(40 << 10), ..QuotaLimits::default() };
    let Some(held) = limited(QuotaKind::User, ALICE, limits, at(1_000_000)) else {
        skip!("quotas::a_soft_limit", "mke2fs is not installed");
    };
    held.volume.set_quota_grace(QuotaKind::User, Some(100), None).unwrap();
    held.volume.write_file("a", &pattern(1, 0, 61_440), owned(ALICE, 5)).unwrap();
    held.volume.close().unwrap();
    let alice = Caller::user(ALICE, 5, &[]);
    let append = |bytes: &[u8], seconds: i64| {
        let held = in_memory_with(bytes, at(seconds)).unwrap();
        let file = held.volume.open_file("a").unwrap();
        let end = file.metadata().unwrap().size;
        let done = on_behalf(&alice, || file.write_at(end, &pattern(1, end, 8192)));
        drop(file);
        close_clean(&held);
        (held.device.to_vec(), done)
    };
    let (bytes, done) = append(&held.device.to_vec(), 1_000_050);
    assert_eq!(done.unwrap(), 8192);
    let (bytes, done) = append(&bytes, 1_000_100);
    is_exceeded(done, QuotaKind::User, "space");
    let held = in_memory_with(&bytes, at(1_000_200)).unwrap();
    held.volume.open_file("a").unwrap().set_len(100).unwrap();
    close_clean(&held);
    assert_eq!(append(&held.device.to_vec(), 1_000_300).1.unwrap(), 8192, "the period begins anew");
}

#[test]
fn the_files_of_a_project_count_for_it() {
    let limits = QuotaLimits { space_hard: Some(64 << 10), ..QuotaLimits::default() };
    let Some(held) = limited(QuotaKind::Project, 42, limits, unhurried()) else {
        skip!("quotas::the_files_of_a_project", "mke2fs is not installed");
    };
    let volume = &held.volume;
    volume.create_dir("p", owned(0, 0)).unwrap();
    let dir = volume.resolve("p", false).unwrap();
    let flags = volume.inode_flags(dir).unwrap() | InodeFlags::PROJINHERIT;
    volume.set_flags_and_project(dir, flags, 42, &Caller::ROOT).unwrap();
    let alice = Caller::user(ALICE, 5, &[]);
    let nr = on_behalf(&alice, || volume.create(dir, b"f", NewNode::File, owned(ALICE, 5))).unwrap();
    assert_eq!(volume.project(nr).unwrap(), 42);
    let file = volume.open_inode(nr).unwrap();
    assert_eq!(on_behalf(&alice, || file.write_at(0, &[1; 100_000])).unwrap(), 60 << 10);
    assert_eq!(used(volume, QuotaKind::Project, 42), (64 << 10, 2));
    volume.write_file("other", &[1; 10], owned(0, 0)).unwrap();
    let other = volume.resolve("other", false).unwrap();
    assert_eq!(volume.link(other, dir, b"l").unwrap_err().errno(), 18);
    assert_eq!(
        volume.rename(InodeNr::ROOT, b"other", dir, b"o", RenameMode::Replace).unwrap_err().errno(),
        18
    );
    drop(file);
    close_clean(&held);
}

#[test]
fn limits_are_not_enforced_where_the_opener_says_so() {
    let limits = QuotaLimits { space_hard: Some(4096), ..QuotaLimits::default() };
    let options = OpenOptions { quota_limits: vec![QuotaKind::Group], ..unhurried() };
    let Some(held) = limited(QuotaKind::User, ALICE, limits, options) else {
        skip!("quotas::limits_are_not_enforced", "mke2fs is not installed");
    };
    let alice = Caller::user(ALICE, 5, &[]);
    on_behalf(&alice, || held.volume.write_file("a", &[1; 50_000], owned(ALICE, 5))).unwrap();
    assert_eq!(used(&held.volume, QuotaKind::User, ALICE).0, 52 << 10);
    close_clean(&held);
}

/// Where records of an id with one inode lie in an image: in the file, and in the journal.
fn records_of(bytes: &[u8], id: u32, space: u64) -> Vec<usize> {
    let is_record = |at: &usize| {
        let word = |n: usize| u64::from_le_bytes(bytes[at + n..at + n + 8].try_into().unwrap());
        word(0) == u64::from(id) && word(0x30) == space && word(0x18) == 1
    };
    (0..bytes.len() - 72).step_by(8).filter(is_record).collect()
}

#[test]
fn sums_that_are_wrong_are_right_after_a_recount() {
    let Ok(bytes) = formatted(&["-t", "ext4", "-b", "4096", "-O", "quota"]) else {
        skip!("quotas::sums_that_are_wrong", "mke2fs is not installed");
    };
    let held = in_memory(&bytes);
    held.volume.write_file("a", &[1; 5000], owned(ALICE, 5)).unwrap();
    held.volume.close().unwrap();
    let mut bytes = held.device.to_vec();
    for at in records_of(&bytes, ALICE, 8192) {
        bytes[at + 0x31] = 7;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    save(&bytes, &image);
    let report = hectare_oracle::e2fsck(&image).unwrap();
    assert!(!report.clean && report.output.contains("QUOTA WARNING"), "{}", report.output);
    let again = in_memory_with(&bytes, OpenOptions { recount_quotas: true, ..unhurried() }).unwrap();
    assert_eq!(used(&again.volume, QuotaKind::User, ALICE), (8192, 1));
    close_clean(&again);
    assert_clean_bytes(&again.device.to_vec());
}

#[test]
fn broken_quota_files_are_refused_by_name_and_nothing_is_written() {
    let Ok(bytes) = formatted(&["-t", "ext4", "-b", "4096", "-O", "quota"]) else {
        skip!("quotas::broken_quota_files", "mke2fs is not installed");
    };
    let header =
        (0..bytes.len()).step_by(1024).find(|at| bytes[*at..*at + 4] == 0xd9c0_1f11_u32.to_le_bytes());
    let root = (0..bytes.len()).step_by(1024).filter(|at| {
        bytes[*at..*at + 4] == [2, 0, 0, 0] && bytes[*at + 4..*at + 1024].iter().all(|byte| *byte == 0)
    });
    let (header, root) = (header.unwrap(), root.clone().next().unwrap());
    for (at, value, words) in [
        (
            header,
            5_u32,
            "the user quota file of inode 3 is corrupt: block 0 of its tree: its magic is 0x00000005",
        ),
        (header + 4, 0, "version 0 of the format"),
        (header + 20, 9000, "counts 9000 blocks"),
        (root, 900, "block 1 of its tree: it leads to block 900 of 6"),
        (root, 1, "it leads to block 1 of 6"),
        (root + 4, 2, "in the tree twice"),
    ] {
        let mut broken = bytes.clone();
        broken[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let device = Arc::new(MemoryDevice::from_bytes(&broken));
        let error =
            Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default()).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
        assert!(device.to_vec() == broken, "{words}: it was written to");
        let held = in_memory_with(&broken, OpenOptions::read_only()).unwrap();
        assert!(held.volume.quotas().unwrap_err().to_string().contains(words));
        assert!(held.volume.read_dir("/").is_ok());
    }
}

/// A file with values in inodes of their own: those count for the new owner of the file, too.
#[test]
fn regression_values_in_inodes_of_their_own_go_with_their_file_to_new_owners() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "quota,project,ea_inode"];
    let Ok(bytes) = formatted(&args) else { skip!("quotas::values_in_inodes", "mke2fs is not installed") };
    let held = in_memory(&bytes);
    let volume = &held.volume;
    let make = |name: &str| {
        volume.write_file(name, &[1; 5000], owned(ALICE, 5)).unwrap();
        let nr = volume.resolve(name, false).unwrap();
        // Of both files alike: values and attribute blocks are shared.
        for n in 0..3 {
            let value = pattern(n, 0, 3000 + 1000 * usize::try_from(n).unwrap());
            volume.set_xattr(nr, format!("user.v{n}"), &value, XattrHow::Create).unwrap();
        }
        nr
    };
    let (first, second) = (make("a"), make("b"));
    let each = volume.stat(first).unwrap().sectors * 512;
    assert_eq!(used(volume, QuotaKind::User, ALICE), (2 * each, 8));
    let give = |nr, uid, gid| {
        let changes = Changes { uid, gid, ..Changes::default() };
        volume.change(nr, &changes)
    };
    give(first, Some(7), None).unwrap();
    assert_eq!(used(volume, QuotaKind::User, ALICE), (each, 4));
    assert_eq!(used(volume, QuotaKind::User, 7), (each, 4));
    assert_eq!(used(volume, QuotaKind::Group, 5), (2 * each, 8), "the group stays");
    volume.set_project(second, 42, &Caller::ROOT).unwrap();
    assert_eq!(used(volume, QuotaKind::Project, 42), (each, 4));
    // With a mode, of a file with an ACL, and on behalf of a user whom a limit stops.
    let few = QuotaLimits { inodes_hard: Some(3), ..QuotaLimits::default() };
    volume.set_quota(QuotaKind::Group, 9, &few).unwrap();
    let alice = Caller::user(ALICE, 9, &[]);
    let refused = on_behalf(&alice, || give(second, None, Some(9)));
    is_exceeded(refused, QuotaKind::Group, "inodes");
    volume.set_quota(QuotaKind::Group, 9, &QuotaLimits { inodes_hard: Some(4), ..few }).unwrap();
    on_behalf(&alice, || give(second, Some(8), Some(9))).unwrap();
    assert_eq!(used(volume, QuotaKind::Group, 9), (each, 4));
    assert_eq!(used(volume, QuotaKind::User, ALICE), (0, 0));
    volume.remove_file("a").unwrap();
    assert_eq!((used(volume, QuotaKind::User, 7), used(volume, QuotaKind::Group, 5)), ((0, 0), (0, 0)));
    close_clean(&held);
}

/// Writers side by side: together they get as much as the limit allows, and no more.
#[test]
fn regression_eight_writers_at_once_stay_below_a_hard_limit() {
    let limits = QuotaLimits { space_hard: Some(2 << 20), inodes_hard: Some(200), ..QuotaLimits::default() };
    for round in 0..4 {
        let Some(held) = limited(QuotaKind::User, ALICE, limits, unhurried()) else {
            skip!("quotas::eight_writers", "mke2fs is not installed");
        };
        let (volume, filled) = (&held.volume, Barrier::new(8));
        let make = |name: String| {
            let alice = Caller::user(ALICE, 5, &[]);
            let make = || volume.create(InodeNr::ROOT, name.as_bytes(), NewNode::File, owned(ALICE, 5));
            on_behalf(&alice, make)
        };
        let check = || {
            let (space, inodes) = used(volume, QuotaKind::User, ALICE);
            assert!(space <= 2 << 20 && inodes <= 200, "round {round}: {space} bytes, {inodes} inodes");
        };
        let writer = |n: u64, file: OpenFile| {
            let alice = Caller::user(ALICE, 5, &[]);
            let data = [1; 4096];
            let more = |at| match n % 2 {
                0 => file.write_at(at, &data).map(drop),
                _ => file.fallocate(FallocateMode::Allocate { keep_size: false }, at, 4096),
            };
            let pieces = (0..).step_by(4096).take_while(|at| on_behalf(&alice, || more(*at)).is_ok());
            pieces.for_each(|_| check());
            is_exceeded(on_behalf(&alice, || more(1 << 30)), QuotaKind::User, "space");
            filled.wait();
            let made = (0..).take_while(|m| make(format!("w{n}.{m}")).is_ok());
            made.for_each(|_: u32| check());
            is_exceeded(make(format!("w{n}.x")), QuotaKind::User, "inodes");
        };
        let files: Vec<_> =
            (0..8).map(|n| volume.open_inode(make(format!("w{n}")).unwrap()).unwrap()).collect();
        let writer = &writer;
        std::thread::scope(|scope| {
            (0..).zip(files).for_each(|(n, file)| drop(scope.spawn(move || writer(n, file))));
        });
        volume.sync().unwrap();
        assert_eq!(used(volume, QuotaKind::User, ALICE), (2 << 20, 200), "round {round}");
        close_clean(&held);
    }
}

/// The file grew from the block behind the one that holds its end, which was a hole.
#[test]
fn regression_a_quota_file_that_ends_in_a_hole_grows_from_there() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4", "-b", "1024", "-O", "quota"], &image, "8M") {
        skip!("quotas::ends_in_a_hole", reason);
    }
    // The six blocks of the tree, and a bit.
    hectare_oracle::debugfs_write(&image, &["sif <3> size 6700"]).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let volume = Volume::open(Arc::clone(&device) as Arc<dyn Device>, OpenOptions::default()).unwrap();
    volume.write_file("file", b"text", owned(70_000, 5)).unwrap();
    assert_eq!(used(&volume, QuotaKind::User, 70_000), (1024, 1));
    volume.close().unwrap();
    assert_clean_bytes(&device.to_vec());
}
