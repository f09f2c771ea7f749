//! Reading attributes: the area of an inode or a block, checked once and then walked without copying.
//!
//! Checked when an [`Area`] is made: every entry and name lies inside, the entries end before the area does,
//! every value lies inside and behind the entries, no two values overlap (so that what is read is never more
//! than what is stored), names have no zero bytes, and a value elsewhere is not longer than the format
//! allows. An entry in an inode that has nothing at all is passed over. Neither order nor hashes are relied
//! upon; [`Area::check_hashes`] checks the hashes on request.

use super::raw::{self, END, INODE_HEADER, MAGIC, VALUE_MAX};
use super::{Attr, Index, Name, Value, aligned, entry_hash, entry_hash_signed};
use crate::error::{Corrupt, Place};
use hectare_units::{InodeNr, usize_of};
use std::collections::HashSet;
use zerocopy::FromBytes;

/// A checked attribute area.
#[derive(Clone, Copy, Debug)]
pub struct Area<'a> {
    bytes: &'a [u8],
    /// Where the first entry starts.
    first: usize,
    /// Where value offsets count from.
    base: usize,
    what: &'static str,
    place: Place,
}

/// One attribute of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The name's prefix.
    pub index: Index,
    /// What follows it.
    pub suffix: &'a [u8],
    /// The value.
    pub value: ValueRef<'a>,
    /// The stored hash; 0 if there is none, which is usual in an inode.
    pub hash: u32,
}

/// The value of an attribute of an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueRef<'a> {
    /// The bytes themselves.
    Inline(&'a [u8]),
    /// The bytes are the content of another inode (`ea_inode`).
    Inode {
        /// That inode.
        inode: InodeNr,
        /// How many bytes it holds, at most 2^24.
        size: u32,
    },
}

impl Entry<'_> {
    /// The name, owned.
    ///
    /// # Panics
    /// Never for an entry of an [`Area`], whose names were checked.
    #[must_use]
    pub fn name(&self) -> Name {
        Name::stored(self.index, self.suffix).expect("the area checked its names")
    }

    /// The attribute, owned.
    #[must_use]
    pub fn to_attr(&self) -> Attr {
        let value = match self.value {
            ValueRef::Inline(bytes) => Value::Inline(bytes.to_vec()),
            ValueRef::Inode { inode, size } => Value::Inode { inode, size, hash: self.hash },
        };
        Attr { name: self.name(), value }
    }
}

impl<'a> Area<'a> {
    /// The attributes in an inode. `bytes` is everything behind the fixed fields (128 + `i_extra_isize`) up
    /// to the end of the inode; `None` if it carries no attributes.
    ///
    /// # Errors
    /// `Corrupt`, as the module says.
    pub fn in_inode(bytes: &'a [u8], place: Place) -> Result<Option<Self>, Corrupt> {
        if word(bytes, 0) != Some(MAGIC) {
            return Ok(None);
        }
        let what = "extended attribute area";
        let area = Self { bytes, first: INODE_HEADER, base: INODE_HEADER, what, place };
        area.check()?;
        Ok(Some(area))
    }

    /// The attributes in a block of their own, whose checksum the caller has verified.
    ///
    /// # Errors
    /// `Corrupt`, as the module says, or if the header is not that of an attribute block.
    pub fn in_block(bytes: &'a [u8], place: Place) -> Result<Self, Corrupt> {
        let what = "extended attribute block";
        let area = Self { bytes, first: size_of::<raw::Header>(), base: 0, what, place };
        let (header, _) =
            raw::Header::ref_from_prefix(bytes).map_err(|_| area.corrupt("it is shorter than its header"))?;
        if header.h_magic.get() != MAGIC {
            return Err(area.corrupt(format!("its magic number is {:#x}", header.h_magic.get())));
        }
        if header.h_blocks.get() != 1 {
            return Err(area.corrupt(format!("it claims {} blocks", header.h_blocks.get())));
        }
        if header.h_refcount.get() == 0 {
            return Err(area.corrupt("nothing refers to it by its own count"));
        }
        area.check()?;
        Ok(area)
    }

    /// The attributes, in stored order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        let area = *self;
        let mut at = area.first;
        std::iter::from_fn(move || {
            loop {
                let (entry, next) = area.entry_at(at).ok()??;
                at = next;
                if !area.is_nothing(entry.0) {
                    return area.resolve(entry.0, entry.1).ok();
                }
            }
        })
    }

    /// The attribute called `name`.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<Entry<'a>> {
        self.entries().find(|entry| name.is(entry.index, entry.suffix))
    }

    /// Judges the stored hashes: each entry's, if it has one, against name and value, in either kind.
    ///
    /// The hash of a value in another inode needs that value and is not judged here.
    ///
    /// # Errors
    /// `Corrupt` for the first wrong one.
    pub fn check_hashes(&self) -> Result<(), Corrupt> {
        for entry in self.entries().filter(|entry| entry.hash != 0) {
            let ValueRef::Inline(value) = entry.value else { continue };
            let valid = [entry_hash(entry.suffix, value), entry_hash_signed(entry.suffix, value)];
            if !valid.contains(&entry.hash) {
                let (name, found, expected) = (entry.name(), entry.hash, valid[0]);
                return Err(
                    self.corrupt(format!("the hash of {name} is {found:#010x}, not {expected:#010x}"))
                );
            }
        }
        Ok(())
    }

    /// Whether an empty value is said to lie outside: the kernel does not look, and e2fsck minds.
    #[must_use]
    pub fn has_stray_values(&self) -> bool {
        let mut at = self.first;
        while let Ok(Some(((entry, _), next))) = self.entry_at(at) {
            at = next;
            let empty = entry.e_value_size.get() == 0 && entry.e_value_inum.get() == 0;
            if empty && self.base + usize::from(entry.e_value_offs.get()) > self.bytes.len() {
                return true;
            }
        }
        false
    }

    fn corrupt(&self, reason: impl Into<std::borrow::Cow<'static, str>>) -> Corrupt {
        Corrupt::new(self.what, self.place, reason)
    }

    fn check(&self) -> Result<(), Corrupt> {
        let entries_end = self.check_entries()?;
        let mut at = self.first;
        let mut values = Vec::new();
        while let Some((entry, next)) = self.entry_at(at)? {
            at = next;
            if self.is_nothing(entry.0) {
                continue;
            }
            if let ValueRef::Inline(bytes) = self.resolve(entry.0, entry.1)?.value
                && !bytes.is_empty()
            {
                let start = self.base + usize::from(entry.0.e_value_offs.get());
                values.push(start..start + aligned(bytes.len()));
            }
        }
        values.sort_by_key(|value| value.start);
        if values.first().is_some_and(|value| value.start < entries_end) {
            return Err(self.corrupt("a value overlaps the entries"));
        }
        if values.windows(2).any(|pair| pair[1].start < pair[0].end) {
            return Err(self.corrupt("two values overlap"));
        }
        Ok(())
    }

    /// Whether an entry in an inode has neither prefix nor name nor value: it is passed over, as by the kernel
    /// and by e2fsck.
    fn is_nothing(&self, entry: &raw::Entry) -> bool {
        let is_empty = entry.e_name_len == 0 && entry.e_name_index == 0 && entry.e_value_size.get() == 0;
        self.base != 0 && is_empty && entry.e_value_inum.get() == 0
    }

    /// Checks that the entries end, and gives the byte behind the zero word that ends them.
    fn check_entries(&self) -> Result<usize, Corrupt> {
        let mut at = self.first;
        while let Some((_, next)) = self.entry_at(at)? {
            at = next;
        }
        Ok(at + END)
    }

    /// The entry at `at` with its name, and where the next one starts; `None` at the end of the entries.
    #[expect(clippy::type_complexity, reason = "an entry and its name, used only here")]
    fn entry_at(&self, at: usize) -> Result<Option<((&'a raw::Entry, &'a [u8]), usize)>, Corrupt> {
        match word(self.bytes, at) {
            None => return Err(self.corrupt("its entries have no end")),
            Some(0) => return Ok(None),
            Some(_) => {}
        }
        let past_end = || self.corrupt(format!("the entry at byte {at} runs past its end"));
        let rest = self.bytes.get(at..).ok_or_else(past_end)?;
        let (entry, rest) = raw::Entry::ref_from_prefix(rest).map_err(|_| past_end())?;
        let name_len = usize::from(entry.e_name_len);
        let name = rest.get(..name_len).ok_or_else(past_end)?;
        Ok(Some(((entry, name), at + aligned(size_of::<raw::Entry>() + name_len))))
    }

    fn resolve(&self, entry: &raw::Entry, suffix: &'a [u8]) -> Result<Entry<'a>, Corrupt> {
        let index = Index::new(entry.e_name_index);
        if suffix.contains(&0) || (suffix.is_empty() && index == Index::NONE) {
            return Err(self.corrupt("an entry has no proper name"));
        }
        let size = entry.e_value_size.get();
        let value = match InodeNr::from_disk(entry.e_value_inum.get()) {
            Some(inode) if size <= VALUE_MAX => ValueRef::Inode { inode, size },
            Some(_) => return Err(self.corrupt(format!("a value of {size} bytes is longer than can be"))),
            None => ValueRef::Inline(self.value(usize::from(entry.e_value_offs.get()), usize_of(size))?),
        };
        Ok(Entry { index, suffix, value, hash: entry.e_hash.get() })
    }

    /// The value of `size` bytes at `offset`; with its padding it must lie inside. Empty ones lie nowhere.
    fn value(&self, offset: usize, size: usize) -> Result<&'a [u8], Corrupt> {
        if size == 0 {
            return Ok(&[]);
        }
        let inside = self.bytes.get(self.base + offset..).filter(|rest| aligned(size) <= rest.len());
        let outside =
            || self.corrupt(format!("a value of {size} bytes at offset {offset} runs past its end"));
        inside.and_then(|rest| rest.get(..size)).ok_or_else(outside)
    }
}

/// All attributes of a file from its two areas. A name that occurs twice counts once: the inode's comes
/// first, as in the kernel's lookup.
#[must_use]
pub fn collect(inode: Option<Area<'_>>, block: Option<Area<'_>>) -> Vec<Attr> {
    let mut seen = HashSet::new();
    let areas = [inode, block];
    let entries = areas.iter().flatten().flat_map(Area::entries);
    entries.filter(|entry| seen.insert((entry.index, entry.suffix))).map(|entry| entry.to_attr()).collect()
}

/// Empties up to `max` attributes of an inode's area whose values lie in inodes of their own. For an inode
/// that is being freed: the entries' hashes become stale.
pub fn detach_in_inode(bytes: &mut [u8], max: usize) {
    each_in_inode(bytes, detach(max));
}

/// Like [`detach_in_inode`], for an attribute block.
pub fn detach_in_block(bytes: &mut [u8], max: usize) {
    each_in_block(bytes, detach(max));
}

fn detach(mut left: usize) -> impl FnMut(&mut raw::Entry) {
    move |entry| {
        if left > 0 {
            (entry.e_value_inum, entry.e_value_size) = (0.into(), 0.into());
            left -= 1;
        }
    }
}

/// Gives the inodes that hold values of an inode's area other numbers. No hash covers them.
pub fn renumber_in_inode(bytes: &mut [u8], number: impl Fn(InodeNr) -> InodeNr) {
    each_in_inode(bytes, renumber(number));
}

/// Like [`renumber_in_inode`], for an attribute block, whose checksum is stale then.
pub fn renumber_in_block(bytes: &mut [u8], number: impl Fn(InodeNr) -> InodeNr) {
    each_in_block(bytes, renumber(number));
}

fn renumber(number: impl Fn(InodeNr) -> InodeNr) -> impl FnMut(&mut raw::Entry) {
    move |entry| {
        if let Some(nr) = InodeNr::from_disk(entry.e_value_inum.get()) {
            entry.e_value_inum = number(nr).get().into();
        }
    }
}

fn each_in_inode(bytes: &mut [u8], visit: impl FnMut(&mut raw::Entry)) {
    if word(bytes, 0) == Some(MAGIC) {
        each_outside(bytes, INODE_HEADER, visit);
    }
}

fn each_in_block(bytes: &mut [u8], visit: impl FnMut(&mut raw::Entry)) {
    each_outside(bytes, size_of::<raw::Header>(), visit);
}

/// Visits the entries whose values lie in inodes of their own.
fn each_outside(bytes: &mut [u8], first: usize, mut visit: impl FnMut(&mut raw::Entry)) {
    let mut at = first;
    while word(bytes, at).is_some_and(|word| word != 0) {
        let rest = bytes.get_mut(at..).unwrap_or_default();
        let Ok((entry, _)) = raw::Entry::mut_from_prefix(rest) else { break };
        if entry.e_value_inum.get() != 0 {
            visit(entry);
        }
        at += aligned(size_of::<raw::Entry>() + usize::from(entry.e_name_len));
    }
}

/// The little-endian word at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*four))
}
