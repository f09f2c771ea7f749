//! Turns features on and off, with the structures that they bring, and changes the UUID, from which
//! checksums start.
//!
//! In this order, so that each step finds the volume in one form: what goes is taken away, everything is gone
//! over where its form changes, plain flags are set, and what is new is added; quotas last, since they count
//! everything.

use crate::change::{Changes, FeatureEdit};
use crate::error::{Error, Result};
use crate::quotas::KINDS;
use crate::volume::Volume;
use crate::{hidden, journal, quotas, reseal};
use Feature::{Compat as C, Incompat as I, RoCompat as R};
use hectare_ext4::checksum::{Seed, crc32c};
use hectare_ext4::feature::{Compat, Feature, Features, Incompat, RoCompat};
use hectare_ext4::inode::{Inode, InodeFlags, Kind, LARGE_FILE};
use hectare_ext4::quota;
use hectare_ext4::raw;
use hectare_ext4::superblock::ENCODING_UTF8_12_1;
use hectare_resize::CONVERTED;
use hectare_units::InodeNr;

/// The inode of the blocks that are kept for growing.
const KEPT_BLOCKS: InodeNr = InodeNr::new(7);

/// Features that can be turned on and off.
const BOTH: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::DIR_INDEX)
        .union(Compat::FAST_COMMIT)
        .union(Compat::ORPHAN_FILE)
        .union(CONVERTED.compat),
    incompat: Incompat::EXTENTS
        .union(Incompat::FILETYPE)
        .union(Incompat::BIT64)
        .union(Incompat::FLEX_BG)
        .union(Incompat::MMP)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::LARGE_FILE
        .union(RoCompat::SPARSE_SUPER)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::QUOTA)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::READONLY)
        .union(RoCompat::PROJECT),
};

/// Features that can be turned on.
const ON: Features = Features {
    compat: BOTH.compat.union(Compat::STABLE_INODES),
    incompat: BOTH.incompat.union(Incompat::EA_INODE).union(Incompat::ENCRYPT).union(Incompat::LARGEDIR),
    ro_compat: BOTH.ro_compat.union(RoCompat::VERITY),
};

/// Those whose flags are set with their structures; the others are a flag.
const WITH_STRUCTURES: Features = Features {
    compat: Compat::HAS_JOURNAL.union(Compat::ORPHAN_FILE).union(CONVERTED.compat),
    incompat: Incompat::MMP.union(Incompat::CSUM_SEED).union(CONVERTED.incompat),
    ro_compat: SUMS.union(CONVERTED.ro_compat),
};
/// Those that everything in the volume is gone over for.
const FORMS: Incompat = Incompat::CSUM_SEED.union(Incompat::FILETYPE).union(Incompat::EXTENTS);
/// Those of checksums.
const SUMS: RoCompat = RoCompat::GDT_CSUM.union(RoCompat::METADATA_CSUM);

/// Changes features, UUID and quotas, but for the journal and what [`crate::shape`] does. Returns whether
/// more than the superblock has changed.
pub(crate) fn apply(volume: &mut Volume<'_>, changes: &Changes, goal: &Features) -> Result<bool> {
    let before = *volume.sb().features();
    let kept = kept_quotas(volume, goal, before, changes);
    let goes = |feature| before.has(feature) && !goal.has(feature);
    let comes = |feature| !before.has(feature) && goal.has(feature);
    let mut structural = false;
    for kind in KINDS.into_iter().filter(|kind| !kept.contains(kind)) {
        structural |= quotas::inode_of(volume.sb().raw(), kind).is_some();
        quotas::take_away(volume, kind)?;
    }
    if goes(C(Compat::ORPHAN_FILE)) {
        hidden::take_orphan_file_away(volume)?;
        structural = true;
    }
    if goes(I(Incompat::MMP)) {
        hidden::take_mmp_away(volume)?;
        structural = true;
    }
    structural |= change_forms(volume, goal, changes)?;
    volume.edit(|raw| set_flags(raw, &before, goal))?;
    if goes(I(Incompat::EXTENTS)) {
        journal::renew_backup(volume)?;
    }
    if comes(C(Compat::ORPHAN_FILE)) {
        hidden::add_orphan_file(volume, changes.now)?;
        structural = true;
    }
    if comes(I(Incompat::MMP)) {
        hidden::add_mmp(volume, changes.mmp_interval, changes.now)?;
        structural = true;
    } else if goal.incompat.contains(Incompat::MMP) && (changes.clear_mmp || changes.mmp_interval.is_some()) {
        hidden::write_mmp(volume, changes.now)?;
    }
    if kept.iter().any(|kind| quotas::inode_of(volume.sb().raw(), *kind).is_none()) {
        quotas::add(volume, &kept, changes.now)?;
        structural = true;
    }
    Ok(structural)
}

/// The features that the volume is to have; refuses what its content forbids.
pub(crate) fn goal(volume: &mut Volume<'_>, changes: &Changes) -> Result<Features> {
    let before = *volume.sb().features();
    let mut goal = asked(before, changes)?;
    let kept = kept_quotas(volume, &goal, before, changes);
    goal.ro_compat.set(RoCompat::QUOTA, !kept.is_empty());
    refuse_impossible(volume, &before, &goal)?;
    Ok(goal)
}

/// The features that are asked for.
fn asked(before: Features, changes: &Changes) -> Result<Features> {
    let mut goal = before;
    for edit in &changes.features {
        let (feature, on) = match edit {
            FeatureEdit::On(feature) => (*feature, true),
            FeatureEdit::Off(feature) => (*feature, false),
            FeatureEdit::None => {
                return Err(Error::refused("-O none: name the features to turn off (^NAME)"));
            }
        };
        // The older checksums are a part of the newer ones.
        let is_part = feature == R(RoCompat::GDT_CSUM) && goal.metadata_csum();
        if goal.has(feature) == on || is_part {
            continue;
        }
        let known = if on { ON } else { BOTH };
        if !known.has(feature) {
            return Err(refused(feature, on));
        }
        goal.set(feature, on);
        if feature == R(RoCompat::METADATA_CSUM) {
            goal.ro_compat.set(RoCompat::GDT_CSUM, !on);
            if !on {
                goal.incompat.remove(Incompat::CSUM_SEED);
            }
        }
        if feature == R(RoCompat::QUOTA) && !on {
            goal.ro_compat.remove(RoCompat::PROJECT);
        }
    }
    let leaves = changes.features.contains(&FeatureEdit::Off(C(Compat::HAS_JOURNAL)));
    if journal::is_asked_for(changes) || (changes.journal_device.is_some() && !leaves) {
        goal.compat |= Compat::HAS_JOURNAL;
    }
    let needs = goal.ro_compat.contains(RoCompat::PROJECT) || changes.quotas.iter().any(|edit| edit.on);
    if needs {
        goal.ro_compat |= RoCompat::QUOTA;
    }
    Ok(goal)
}

/// Why a feature can't be turned on or off, with what can do it.
fn refused(feature: Feature, on: bool) -> Error {
    let one = |feature: Feature| {
        let mut features = Features::default();
        features.set(feature, true);
        features.names().join("")
    };
    let name = one(feature);
    let reason = match (feature, on) {
        (I(Incompat::LARGEDIR | Incompat::EA_INODE | Incompat::ENCRYPT) | R(RoCompat::VERITY), false)
        | (C(Compat::STABLE_INODES), false) => {
            "files may rely on it: copy them to a volume without it (hectare mkfs)"
        }
        _ => "the volume has to be made anew for that: hectare mkfs",
    };
    let caret = if on { "" } else { "^" };
    Error::refused(format!("-O {caret}{name}: {reason}"))
}

/// The kinds of quotas to be kept afterwards.
fn kept_quotas(
    volume: &Volume<'_>,
    goal: &Features,
    before: Features,
    changes: &Changes,
) -> Vec<quota::Kind> {
    if !goal.ro_compat.contains(RoCompat::QUOTA) {
        return Vec::new();
    }
    let asked = changes.features.contains(&FeatureEdit::On(R(RoCompat::QUOTA)));
    let newly = asked && !before.ro_compat.contains(RoCompat::QUOTA);
    let project = goal.ro_compat.contains(RoCompat::PROJECT);
    let keeps = |kind: &quota::Kind| {
        let edit = changes.quotas.iter().rev().find(|edit| edit.kind == *kind).map(|edit| edit.on);
        let has = quotas::inode_of(volume.sb().raw(), *kind).is_some();
        let by_default = match kind {
            // Only what is asked for, where it is asked for by kind.
            quota::Kind::User | quota::Kind::Group => has || newly,
            quota::Kind::Project => project,
        };
        edit.unwrap_or(by_default)
    };
    KINDS.into_iter().filter(keeps).collect()
}

/// Refuses what the volume's content or other features forbid.
fn refuse_impossible(volume: &mut Volume<'_>, before: &Features, goal: &Features) -> Result<()> {
    let goes = |feature| before.has(feature) && !goal.has(feature);
    let refuse = |what: &str| Err(Error::refused(what));
    if before != goal && volume.sb().raw().s_rev_level.get() == 0 {
        return refuse("a volume of revision 0 has no features: run e2fsck -f, which raises the revision");
    }
    if goal.compat.contains(Compat::ORPHAN_FILE) && !goal.compat.contains(Compat::HAS_JOURNAL) {
        return refuse(
            "orphan_file needs a journal: turn it off as well (-O ^orphan_file), or has_journal on",
        );
    }
    if goal.incompat.contains(Incompat::CSUM_SEED) && !goal.metadata_csum() {
        return refuse("metadata_csum_seed needs metadata_csum");
    }
    let grows_project =
        goal.ro_compat.contains(RoCompat::PROJECT) && !before.ro_compat.contains(RoCompat::PROJECT);
    if grows_project && volume.geometry().inode_size == 128 {
        return refuse("project needs inodes of 256 bytes: tune2fs -I 256 makes them so");
    }
    if goal.incompat.contains(Incompat::BIT64) && !goal.incompat.contains(Incompat::EXTENTS) {
        return refuse("64bit needs extent: maps of blocks have 32 bits");
    }
    if goes(I(Incompat::EXTENTS)) && goal.ro_compat.contains(RoCompat::BIGALLOC) {
        return refuse("bigalloc needs extent");
    }
    if goes(I(Incompat::FLEX_BG))
        && let Some(group) = volume.scattered_group()?
    {
        let reason = format!("-O ^flex_bg: the metadata of group {group} does not lie in that group");
        return Err(Error::refused(reason));
    }
    let named = [
        (I(Incompat::CASEFOLD), "is a directory without regard to case: remove it first"),
        (R(RoCompat::LARGE_FILE), "has 2 GiB or more: remove it first"),
        (R(RoCompat::HUGE_FILE), "has more than 2 TiB: remove it first"),
        (R(RoCompat::DIR_NLINK), "is a directory with more than 65,000 directories: remove some first"),
    ];
    if goes(R(RoCompat::LARGE_FILE))
        && goal.compat.contains(Compat::RESIZE_INODE)
        && volume.inode(KEPT_BLOCKS)?.size >= LARGE_FILE.get()
    {
        return refuse(
            "-O ^large_file: what is kept for growing (inode 7) is a file of 2 GiB or more: \
             turn it off as well (-O ^resize_inode)",
        );
    }
    for (feature, reason) in named.into_iter().filter(|(feature, _)| goes(*feature)) {
        if let Some(nr) = find_inode(volume, |inode| uses(inode, feature))? {
            return Err(Error::refused(format!("inode {nr} {reason}")));
        }
    }
    Ok(())
}

/// Whether an inode needs a feature.
fn uses(inode: &Inode, feature: Feature) -> bool {
    let is_directory = inode.kind() == Some(Kind::Directory);
    match feature {
        I(Incompat::CASEFOLD) => inode.flags.contains(InodeFlags::CASEFOLD),
        I(Incompat::EA_INODE) => inode.flags.contains(InodeFlags::EA_INODE),
        R(RoCompat::LARGE_FILE) => inode.kind() == Some(Kind::File) && inode.size >= LARGE_FILE.get(),
        R(RoCompat::HUGE_FILE) => {
            inode.flags.contains(InodeFlags::HUGE_FILE) || inode.sectors > u64::from(u32::MAX)
        }
        R(RoCompat::DIR_NLINK) => is_directory && inode.links == 1,
        _ => false,
    }
}

/// The first inode in use of which something is true.
fn find_inode(volume: &mut Volume<'_>, is: impl Fn(&Inode) -> bool) -> Result<Option<InodeNr>> {
    let sb = volume.sb().clone();
    let mut found = None;
    volume.each_inode(&mut |_, nr, slot, in_use| {
        if in_use && found.is_none() && nr != KEPT_BLOCKS && is(&Inode::parse_unsealed(slot, nr, &sb)?) {
            found = Some(nr);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Changes the UUID, and the form of what has checksums, file types, indexes, extents. Returns whether more
/// than the superblock has changed.
fn change_forms(volume: &mut Volume<'_>, goal: &Features, changes: &Changes) -> Result<bool> {
    let sb = volume.sb().clone();
    let uuid = changes.uuid.unwrap_or(sb.uuid());
    let is_new = uuid != sb.uuid();
    if is_new && goal.compat.contains(Compat::STABLE_INODES) {
        return Err(Error::refused("-U: stable_inodes says that encrypted files need this UUID"));
    }
    if is_new && sb.raw().s_journal_uuid != [0; 16] && goal.compat.contains(Compat::HAS_JOURNAL) {
        let reason =
            "-U: the external journal knows the volume by its UUID: leave it first (-O ^has_journal)";
        return Err(Error::refused(reason));
    }
    let seeded = goal.incompat.contains(Incompat::CSUM_SEED);
    // A seed that is stored stays what it is; one that comes is the one in use.
    let seed = if seeded { sb.value_seed() } else { Seed::of_uuid(&uuid) };
    let change = |raw: &mut raw::SuperBlock| {
        raw.s_uuid = uuid;
        raw.s_checksum_seed = if seeded { seed.get() } else { 0 }.into();
        let others = raw.s_feature_ro_compat.get() & !SUMS.bits();
        raw.s_feature_ro_compat = (others | goal.ro_compat.intersection(SUMS).bits()).into();
        let others = raw.s_feature_incompat.get() & !FORMS.bits();
        raw.s_feature_incompat = (others | goal.incompat.intersection(FORMS).bits()).into();
        let others = raw.s_feature_compat.get() & !Compat::DIR_INDEX.bits();
        raw.s_feature_compat = (others | goal.compat.intersection(Compat::DIR_INDEX).bits()).into();
        raw.s_checksum_type = u8::from(goal.metadata_csum());
        if !goal.metadata_csum() {
            raw.s_checksum = 0.into();
        }
    };
    if seed != sb.value_seed()
        && goal.incompat.contains(Incompat::EA_INODE)
        && let Some(nr) = find_inode(volume, |inode| uses(inode, I(Incompat::EA_INODE)))?
    {
        let reason = format!(
            "inode {nr} holds an attribute's value, whose hash starts from the UUID: turn on \
                              metadata_csum_seed first"
        );
        return Err(Error::refused(reason));
    }
    let sums = |features: &Features| (features.metadata_csum(), features.group_checksums());
    let goes = |feature| sb.features().has(feature) && !goal.has(feature);
    let retypes = sb.features().has(I(Incompat::FILETYPE)) != goal.has(I(Incompat::FILETYPE));
    let reforms = retypes || goes(C(Compat::DIR_INDEX)) || goes(I(Incompat::EXTENTS));
    let same = sums(sb.features()) == sums(goal) && !reforms;
    let by_uuid = goal.ro_compat.contains(RoCompat::GDT_CSUM) && is_new;
    let by_seed = goal.metadata_csum() && seed != sb.value_seed();
    if same && !by_uuid && !by_seed {
        volume.edit(change)?;
        return Ok(false);
    }
    reseal::reseal(volume, changes.now, change)?;
    Ok(true)
}

/// Sets the flags of the goal but for those of structures that are still to be made.
fn set_flags(raw: &mut raw::SuperBlock, before: &Features, goal: &Features) {
    let own = WITH_STRUCTURES;
    let compat = raw.s_feature_compat.get() & own.compat.bits();
    raw.s_feature_compat = (compat | goal.compat.bits() & !own.compat.bits()).into();
    let incompat = raw.s_feature_incompat.get() & own.incompat.bits();
    raw.s_feature_incompat = (incompat | goal.incompat.bits() & !own.incompat.bits()).into();
    let ro_compat = raw.s_feature_ro_compat.get() & own.ro_compat.bits();
    raw.s_feature_ro_compat = (ro_compat | goal.ro_compat.bits() & !own.ro_compat.bits()).into();
    let comes = |feature| !before.has(feature) && goal.has(feature);
    if comes(I(Incompat::CASEFOLD)) {
        raw.s_encoding = ENCODING_UTF8_12_1.into();
        raw.s_encoding_flags = 0.into();
    }
    if !goal.incompat.contains(Incompat::CASEFOLD) {
        raw.s_encoding = 0.into();
        raw.s_encoding_flags = 0.into();
    }
    if comes(I(Incompat::ENCRYPT)) {
        raw.s_encrypt_algos = ENCRYPTION;
    }
    if before.has(I(Incompat::FLEX_BG)) && !goal.has(I(Incompat::FLEX_BG)) {
        raw.s_log_groups_per_flex = 0;
    }
    if comes(C(Compat::DIR_INDEX)) && raw.s_hash_seed == [0; 16] {
        // Any seed will do: it keeps apart what volumes of one maker would share.
        let word = |n: u32| crc32c(n, &raw.s_uuid).to_le_bytes();
        let seed = [word(1), word(2), word(3), word(4)];
        raw.s_hash_seed = std::array::from_fn(|at| seed[at / 4][at % 4]);
    }
}

/// The ciphers of content and of names that a formatter names: AES-256 in the modes XTS and CTS.
const ENCRYPTION: [u8; 4] = [1, 4, 0, 0];
