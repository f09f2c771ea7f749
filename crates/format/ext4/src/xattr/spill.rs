//! Which values lie in inodes of their own (`ea_inode`).
//!
//! As with the kernel: a value that no block could hold does, and else one that finds no room beside the
//! others. Values that are stored already stay where they are.

use super::layout::{NoRoom, needs_block};
use super::{Attr, Index, Value, aligned, raw};
use hectare_units::{BlockSize, InodeNr, low32, u64_of};

/// Bytes of a block that hold no value, if it has one attribute with a name of three bytes.
const BESIDE: usize = size_of::<raw::Header>() + aligned(size_of::<raw::Entry>() + 3) + raw::END;

/// The attributes, by index, whose values have to lie in inodes of their own, of those that `may_move`.
///
/// # Errors
/// If the attributes don't fit even so.
pub fn spilled(
    attrs: &[Attr],
    may_move: impl Fn(&Attr) -> bool,
    inode_space: usize,
    block_size: BlockSize,
) -> Result<Vec<usize>, NoRoom> {
    let mut entries = attrs.to_vec();
    let mut movable: Vec<(usize, usize)> = attrs
        .iter()
        .enumerate()
        .filter(|(_, attr)| attr.name.index() != Index::SYSTEM && may_move(attr))
        .filter_map(|(i, attr)| match &attr.value {
            Value::Inline(value) if !value.is_empty() => Some((value.len(), i)),
            _ => None,
        })
        .collect();
    // The largest is the last, and of equal ones the first in the list.
    movable.sort_by_key(|(len, i)| (*len, std::cmp::Reverse(*i)));
    let mut out = Vec::new();
    loop {
        let too_large = movable.last().is_some_and(|(len, _)| aligned(*len) > block_size.len() - BESIDE);
        let fits = if too_large { Ok(true) } else { needs_block(&entries, inode_space, Some(block_size)) };
        match (fits, movable.pop()) {
            (Ok(_), Some((len, i))) if too_large => out.push(name_only(&mut entries, i, len)),
            (Ok(_), _) => return Ok(out),
            (Err(_), Some((len, i))) => out.push(name_only(&mut entries, i, len)),
            (Err(no_room), None) => return Err(no_room),
        }
    }
}

/// Leaves the entry of an attribute whose value lies elsewhere; which inode holds it makes no difference
/// here.
fn name_only(entries: &mut [Attr], i: usize, len: usize) -> usize {
    entries[i].value = Value::Inode { inode: InodeNr::ROOT, size: low32(u64_of(len)), hash: 0 };
    i
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattr::Name;

    fn attr(name: &str, len: usize) -> Attr {
        Attr::new(Name::parse(name.as_bytes()).unwrap(), vec![b'v'; len])
    }

    fn spill(attrs: &[Attr], kept: &[&str]) -> Result<Vec<usize>, NoRoom> {
        let may_move = |attr: &Attr| !kept.contains(&attr.name.to_string().as_str());
        spilled(attrs, may_move, 96, BlockSize::KIB4)
    }

    #[test]
    fn what_fits_stays() {
        assert_eq!(spill(&[attr("user.a", 2000), attr("user.b", 1900)], &[]), Ok(vec![]));
        assert_eq!(spill(&[], &[]), Ok(vec![]));
    }

    #[test]
    fn what_no_block_holds_and_what_finds_no_room_goes() {
        assert_eq!(spill(&[attr("user.a", 4040)], &[]), Ok(vec![]));
        assert_eq!(spill(&[attr("user.a", 4041)], &[]), Ok(vec![0]), "as the kernel's limit for 4 KiB");
        let three = [attr("user.a", 2000), attr("user.b", 3000), attr("user.c", 60_000)];
        assert_eq!(spill(&three, &[]), Ok(vec![2, 1]));
        assert_eq!(spill(&three, &["user.b"]), Ok(vec![2, 0]), "stored values stay");
    }

    #[test]
    fn names_alone_can_be_too_many() {
        let many: Vec<Attr> = (0..400).map(|n| attr(&format!("user.{n}"), 1)).collect();
        assert!(spill(&many, &[]).is_err());
        assert!(spill(&[attr("system.data", 500)], &[]).is_err(), "inline data never moves");
    }
}
