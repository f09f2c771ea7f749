//! POSIX access control lists: the form on disk, the form programs see, and what they mean for mode bits.
//!
//! An ACL is an attribute (`system.posix_acl_access`, and on directories `system.posix_acl_default`, which
//! new files inherit). Programs exchange it as version 2, with 8 bytes for every entry; ext4 stores version
//! 1, where entries that name nobody take 4. An ACL that names nobody and has no mask says no more than nine
//! mode bits and is never stored as an access ACL.
//!
//! Hazard: with a mask, the group bits of the mode show the *mask*, not the owning group's permissions;
//! `chmod` then changes the mask. Everything here that takes or gives a mode follows that.
//!
//! Invariant: an [`Acl`] is never empty and always valid: entries in the order owner, users, owning group,
//! groups, mask, others, with exactly one owner, owning group and others, and a mask if anybody is named.
//!
//! What this is not: a permission check, neither for access nor for setting an ACL.

use crate::error::{Corrupt, Place};
use crate::xattr::{Index, Name};
use std::borrow::Cow;

/// The subject of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Tag {
    /// The file's owner.
    UserObj,
    /// The user with this id.
    User(u32),
    /// The file's group.
    GroupObj,
    /// The group with this id.
    Group(u32),
    /// The most that users, groups and the file's group get.
    Mask,
    /// Everybody else.
    Other,
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its subject.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub perm: u8,
}

/// Why bytes or entries are not an ACL (`EINVAL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// The version is not the one of this form (`EOPNOTSUPP`).
    #[error("the access control list has version {0}")]
    Version(u32),
    /// The length is not that of whole entries.
    #[error("the access control list ends inside an entry")]
    Length,
    /// There are no entries. A program says "no ACL" this way: see [`Acl::from_xattr`].
    #[error("the access control list has no entries")]
    Empty,
    /// An entry for an unknown kind of receiver.
    #[error("the access control list has an entry with tag {0:#x}")]
    Tag(u16),
    /// Permissions beyond read, write and execute.
    #[error("the access control list grants permissions {0:#o}")]
    Perm(u16),
    /// An id that names no one.
    #[error("the access control list names no valid id")]
    Id,
    /// An entry is missing, doubled or out of order.
    #[error("the access control list lacks an entry or has them out of order")]
    Order,
}

/// A valid access control list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Acl(Vec<Entry>);

/// What a new file gets from its directory's default ACL.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// The mode, its permission bits reduced to what the ACL allows.
    pub mode: u16,
    /// The access ACL, unless the mode says it all.
    pub access: Option<Acl>,
}

const XATTR_VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;
/// The id that names no one.
const NO_ID: u32 = !0;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

impl Acl {
    /// An ACL of these entries.
    ///
    /// # Errors
    /// If they break the invariant above.
    pub fn new(entries: Vec<Entry>) -> Result<Self, Invalid> {
        check(&entries)?;
        Ok(Self(entries))
    }

    /// The ACL that says what the permission bits of `mode` say.
    #[must_use]
    pub fn from_mode(mode: u16) -> Self {
        let entry = |tag, shift: u32| Entry { tag, perm: bits(mode, shift) };
        Self(vec![entry(Tag::UserObj, 6), entry(Tag::GroupObj, 3), entry(Tag::Other, 0)])
    }

    /// Its entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The form programs see. No entries (also after a zero-length value) mean "no ACL", given as `None`.
    ///
    /// # Errors
    /// What [`Invalid`] says.
    pub fn from_xattr(bytes: &[u8]) -> Result<Option<Self>, Invalid> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let entries = entries_of(bytes, XATTR_VERSION, |bytes| {
            let (tag, perm) = tag_and_perm(bytes)?;
            let (id, rest) = split_id(rest_of(bytes)?)?;
            Ok((entry(tag, perm, id)?, rest))
        })?;
        if entries.is_empty() { Ok(None) } else { Self::new(entries).map(Some) }
    }

    /// The form on disk.
    ///
    /// # Errors
    /// What [`Invalid`] says.
    pub fn from_disk(bytes: &[u8]) -> Result<Self, Invalid> {
        Self::new(entries_of(bytes, DISK_VERSION, |bytes| {
            let (tag, perm) = tag_and_perm(bytes)?;
            let rest = rest_of(bytes)?;
            let (id, rest) = if matches!(tag, USER | GROUP) { split_id(rest)? } else { (NO_ID, rest) };
            Ok((entry(tag, perm, id)?, rest))
        })?)
    }

    /// The form programs see: `getxattr`'s value.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = XATTR_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id) = raw_tag(entry.tag);
            out.extend(tag.to_le_bytes());
            out.extend(u16::from(entry.perm).to_le_bytes());
            out.extend(id.unwrap_or(NO_ID).to_le_bytes());
        }
        out
    }

    /// The form on disk.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        let mut out = DISK_VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let (tag, id) = raw_tag(entry.tag);
            out.extend(tag.to_le_bytes());
            out.extend(u16::from(entry.perm).to_le_bytes());
            out.extend(id.iter().flat_map(|id| id.to_le_bytes()));
        }
        out
    }

    /// The nine mode bits that say all this ACL says; `None` if it says more.
    #[must_use]
    pub fn to_mode(&self) -> Option<u16> {
        self.is_minimal().then(|| self.mode_bits())
    }

    /// The nine mode bits a file with this access ACL shows: the mask, if there is one, as the group's.
    #[must_use]
    pub fn mode_bits(&self) -> u16 {
        let group = self.perm(Tag::Mask).or(self.perm(Tag::GroupObj));
        let perm = |perm: Option<u8>| u16::from(perm.unwrap_or(0));
        perm(self.perm(Tag::UserObj)) << 6 | perm(group) << 3 | perm(self.perm(Tag::Other))
    }

    /// `mode` with its permission bits replaced by those this ACL shows: setting an access ACL sets the mode.
    #[must_use]
    pub fn apply_to(&self, mode: u16) -> u16 {
        mode & !0o777 | self.mode_bits()
    }

    /// What `chmod` makes of a file's access ACL: owner, mask (or group, without one) and others follow
    /// `mode`.
    pub fn chmod(&mut self, mode: u16) {
        self.shape(|class, _| bits(mode, class.shift()));
    }

    /// What a file created with `mode` (the umask not applied) gets in a directory with this default ACL. A
    /// new directory inherits the default ACL itself as well, unchanged; a symbolic link inherits nothing.
    #[must_use]
    pub fn inherit(&self, mode: u16) -> Inherited {
        let mut acl = self.clone();
        acl.shape(|class, perm| perm & bits(mode, class.shift()));
        Inherited { mode: acl.apply_to(mode), access: (!acl.is_minimal()).then_some(acl) }
    }

    /// Replaces the permissions of the three entries that the mode bits show.
    fn shape(&mut self, perm: impl Fn(Class, u8) -> u8) {
        let has_mask = self.perm(Tag::Mask).is_some();
        for entry in &mut self.0 {
            let class = match entry.tag {
                Tag::UserObj => Class::Owner,
                Tag::Mask => Class::Group,
                Tag::GroupObj if !has_mask => Class::Group,
                Tag::Other => Class::Other,
                Tag::User(_) | Tag::Group(_) | Tag::GroupObj => continue,
            };
            entry.perm = perm(class, entry.perm);
        }
    }

    fn is_minimal(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.tag, Tag::UserObj | Tag::GroupObj | Tag::Other))
    }

    fn perm(&self, tag: Tag) -> Option<u8> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }
}

/// The value to store for the attribute `name` set to `value`: an ACL is converted, all else stays as it is.
/// `None` for an ACL without entries, which means "remove it".
///
/// # Errors
/// If it is an ACL's name, but not an ACL.
pub fn to_stored<'a>(name: &Name, value: &'a [u8]) -> Result<Option<Cow<'a, [u8]>>, Invalid> {
    if !is_acl(name) {
        return Ok(Some(Cow::Borrowed(value)));
    }
    Ok(Acl::from_xattr(value)?.map(|acl| Cow::Owned(acl.to_disk())))
}

/// The value to show for the attribute `name` stored as `value`: the opposite of [`to_stored`].
///
/// # Errors
/// `Corrupt` if it is an ACL's name, but not an ACL.
pub fn to_shown<'a>(name: &Name, value: &'a [u8], place: Place) -> Result<Cow<'a, [u8]>, Corrupt> {
    if !is_acl(name) {
        return Ok(Cow::Borrowed(value));
    }
    let acl = Acl::from_disk(value);
    acl.map(|acl| Cow::Owned(acl.to_xattr()))
        .map_err(|e| Corrupt::new("access control list", place, e.to_string()))
}

fn is_acl(name: &Name) -> bool {
    matches!(name.index(), Index::ACL_ACCESS | Index::ACL_DEFAULT) && name.suffix().is_empty()
}

/// One of the three classes of mode bits.
#[derive(Clone, Copy)]
enum Class {
    Owner,
    Group,
    Other,
}

impl Class {
    const fn shift(self) -> u32 {
        match self {
            Self::Owner => 6,
            Self::Group => 3,
            Self::Other => 0,
        }
    }
}

/// Three of the mode's bits.
fn bits(mode: u16, shift: u32) -> u8 {
    hectare_units::low8(u64::from(mode >> shift & 7))
}

/// Entries after a version word, each taken off the front by `take`.
fn entries_of(
    bytes: &[u8],
    version: u32,
    take: impl Fn(&[u8]) -> Result<(Entry, &[u8]), Invalid>,
) -> Result<Vec<Entry>, Invalid> {
    let (found, mut rest) = bytes.split_first_chunk::<4>().ok_or(Invalid::Length)?;
    let found = u32::from_le_bytes(*found);
    if found != version {
        return Err(Invalid::Version(found));
    }
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let (entry, after) = take(rest)?;
        entries.push(entry);
        rest = after;
    }
    Ok(entries)
}

fn tag_and_perm(bytes: &[u8]) -> Result<(u16, u16), Invalid> {
    let [a, b, c, d] = *bytes.first_chunk::<4>().ok_or(Invalid::Length)?;
    Ok((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
}

fn rest_of(bytes: &[u8]) -> Result<&[u8], Invalid> {
    bytes.get(4..).ok_or(Invalid::Length)
}

fn split_id(bytes: &[u8]) -> Result<(u32, &[u8]), Invalid> {
    let (id, rest) = bytes.split_first_chunk::<4>().ok_or(Invalid::Length)?;
    Ok((u32::from_le_bytes(*id), rest))
}

fn entry(tag: u16, perm: u16, id: u32) -> Result<Entry, Invalid> {
    let tag = match tag {
        USER_OBJ => Tag::UserObj,
        USER => Tag::User(id),
        GROUP_OBJ => Tag::GroupObj,
        GROUP => Tag::Group(id),
        MASK => Tag::Mask,
        OTHER => Tag::Other,
        other => return Err(Invalid::Tag(other)),
    };
    match u8::try_from(perm) {
        Ok(perm @ 0..=7) => Ok(Entry { tag, perm }),
        _ => Err(Invalid::Perm(perm)),
    }
}

const fn raw_tag(tag: Tag) -> (u16, Option<u32>) {
    match tag {
        Tag::UserObj => (USER_OBJ, None),
        Tag::User(id) => (USER, Some(id)),
        Tag::GroupObj => (GROUP_OBJ, None),
        Tag::Group(id) => (GROUP, Some(id)),
        Tag::Mask => (MASK, None),
        Tag::Other => (OTHER, None),
    }
}

/// Checks the invariant of [`Acl`]. Entries of one kind need no order among themselves.
fn check(entries: &[Entry]) -> Result<(), Invalid> {
    if entries.is_empty() {
        return Err(Invalid::Empty);
    }
    for entry in entries {
        if entry.perm > 7 {
            return Err(Invalid::Perm(u16::from(entry.perm)));
        }
        if matches!(entry.tag, Tag::User(NO_ID) | Tag::Group(NO_ID)) {
            return Err(Invalid::Id);
        }
    }
    let kind = |entry: &Entry| raw_tag(entry.tag).0;
    let count = |tag: u16| entries.iter().filter(|entry| kind(entry) == tag).count();
    let ordered = entries.is_sorted_by_key(kind);
    let single = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1) && count(MASK) <= 1;
    let masked = count(MASK) == 1 || count(USER) + count(GROUP) == 0;
    if ordered && single && masked { Ok(()) } else { Err(Invalid::Order) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn acl(text: &[(Tag, u8)]) -> Result<Acl, Invalid> {
        Acl::new(text.iter().map(|(tag, perm)| Entry { tag: *tag, perm: *perm }).collect())
    }

    fn named() -> Acl {
        acl(&[
            (Tag::UserObj, 7),
            (Tag::User(1000), 6),
            (Tag::GroupObj, 5),
            (Tag::Group(100), 4),
            (Tag::Mask, 6),
            (Tag::Other, 1),
        ])
        .unwrap()
    }

    #[test]
    fn the_two_forms_are_as_the_format_says() {
        let disk = named().to_disk();
        assert_eq!(disk.len(), 4 + 4 * 4 + 2 * 8);
        assert_eq!(disk[..16], [1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 6, 0, 0xe8, 3, 0, 0]);
        let xattr = named().to_xattr();
        assert_eq!(xattr.len(), 4 + 6 * 8);
        assert_eq!(xattr[..12], [2, 0, 0, 0, 1, 0, 7, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Acl::from_disk(&disk), Ok(named()));
        assert_eq!(Acl::from_xattr(&xattr), Ok(Some(named())));
    }

    #[test]
    fn broken_lists_are_refused_by_what_is_wrong() {
        assert_eq!(Acl::from_xattr(&[]), Ok(None));
        assert_eq!(Acl::from_xattr(&[2, 0, 0, 0]), Ok(None));
        assert_eq!(Acl::from_disk(&[1, 0, 0, 0]), Err(Invalid::Empty));
        assert_eq!(Acl::from_disk(&[2, 0, 0, 0]), Err(Invalid::Version(2)));
        assert_eq!(Acl::from_xattr(&named().to_disk()), Err(Invalid::Version(1)));
        assert_eq!(Acl::from_disk(&named().to_disk()[..14]), Err(Invalid::Length));
        assert_eq!(Acl::from_disk(&[1, 0, 0, 0, 3, 0, 7, 0]), Err(Invalid::Tag(3)));
        assert_eq!(Acl::from_disk(&[1, 0, 0, 0, 1, 0, 8, 0]), Err(Invalid::Perm(8)));
        let base = [(Tag::UserObj, 7), (Tag::GroupObj, 5), (Tag::Other, 5)];
        assert!(acl(&base).is_ok());
        assert_eq!(acl(&base[..2]), Err(Invalid::Order));
        assert_eq!(acl(&[base[1], base[0], base[2]]), Err(Invalid::Order));
        assert_eq!(acl(&[base[0], base[0], base[1], base[2]]), Err(Invalid::Order));
        assert_eq!(acl(&[base[0], (Tag::User(1), 7), base[1], base[2]]), Err(Invalid::Order));
        let nobody = [base[0], (Tag::User(!0), 7), base[1], (Tag::Mask, 7), base[2]];
        assert_eq!(acl(&nobody), Err(Invalid::Id));
    }

    #[test]
    fn the_mask_is_what_the_mode_shows_for_the_group() {
        assert_eq!((named().to_mode(), named().mode_bits()), (None, 0o761));
        assert_eq!(named().apply_to(0o104_755), 0o104_761);
        let mut acl = named();
        acl.chmod(0o640);
        assert_eq!((acl.mode_bits(), acl.perm(Tag::GroupObj)), (0o640, Some(5)));
        let mut acl = Acl::from_mode(0o755);
        acl.chmod(0o640);
        assert_eq!(acl.to_mode(), Some(0o640));
    }

    #[test]
    fn a_default_acl_limits_the_mode_and_is_limited_by_it() {
        let inherited = named().inherit(0o100_666);
        assert_eq!(inherited.mode, 0o100_660);
        let access = inherited.access.unwrap();
        assert_eq!((access.mode_bits(), access.perm(Tag::GroupObj)), (0o660, Some(5)));
        let plain = Acl::from_mode(0o750).inherit(0o100_666);
        assert_eq!(plain, Inherited { mode: 0o100_640, access: None });
    }

    proptest! {
        #![proptest_config(crate::testing::cases("acl", 256))]

        #[test]
        fn bytes_are_refused_or_survive_the_round_trip(bytes in prop::collection::vec(0u8..40, 0..64)) {
            for version in [1, 2] {
                let bytes = [&[version, 0, 0, 0], bytes.as_slice()].concat();
                if let Ok(acl) = Acl::from_disk(&bytes) {
                    prop_assert_eq!(acl.to_disk(), bytes.clone());
                }
                if let Ok(Some(acl)) = Acl::from_xattr(&bytes) {
                    prop_assert_eq!(Acl::from_disk(&acl.to_disk()), Ok(acl));
                }
            }
        }

        #[test]
        fn a_mode_survives_the_round_trip(mode in 0u16..=0o7777) {
            prop_assert_eq!(Acl::from_mode(mode).to_mode(), Some(mode & 0o777));
            prop_assert_eq!(Acl::from_mode(mode).apply_to(mode), mode);
        }
    }
}
