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
    first_out(attrs, may_move, block_size, |attrs| needs_block(attrs, inode_space, Some(block_size)))
}

/// The values that go, the largest first: those that no block could hold, and as many more as must for `fits` to
/// agree. Fewer bytes always fit where more do, so their number is searched for by bisection: an archive can give
/// a file a million of attributes.
fn first_out(
    attrs: &[Attr],
    may_move: impl Fn(&Attr) -> bool,
    block_size: BlockSize,
    mut fits: impl FnMut(&[Attr]) -> Result<bool, NoRoom>,
) -> Result<Vec<usize>, NoRoom> {
    let mut movable: Vec<(usize, usize)> = attrs
        .iter()
        .enumerate()
        .filter(|(_, attr)| attr.name.index() != Index::SYSTEM && may_move(attr))
        .filter_map(|(i, attr)| match &attr.value {
            Value::Inline(value) if !value.is_empty() => Some((value.len(), i)),
            _ => None,
        })
        .collect();
    // Of equal ones the first in the list goes first.
    movable.sort_by_key(|(len, i)| (std::cmp::Reverse(*len), *i));
    let mut fit = |out: usize| fits(&without(attrs, &movable[..out]));
    let mut out = movable.partition_point(|(len, _)| aligned(*len) > block_size.len() - BESIDE);
    if fit(out).is_err() {
        let (mut few, mut enough) = (out, movable.len());
        fit(enough)?;
        while few + 1 < enough {
            let half = few.midpoint(enough);
            *if fit(half).is_ok() { &mut enough } else { &mut few } = half;
        }
        out = enough;
    }
    Ok(movable[..out].iter().map(|(_, i)| *i).collect())
}

/// The attributes with only the entries of these; which inodes hold their values makes no difference here.
fn without(attrs: &[Attr], out: &[(usize, usize)]) -> Vec<Attr> {
    let mut lens = vec![None; attrs.len()];
    out.iter().for_each(|(len, i)| lens[*i] = Some(low32(u64_of(*len))));
    let entry = |(attr, len): (&Attr, Option<u32>)| match len {
        Some(size) => {
            Attr { name: attr.name.clone(), value: Value::Inode { inode: InodeNr::ROOT, size, hash: 0 } }
        }
        None => attr.clone(),
    };
    attrs.iter().zip(lens).map(entry).collect()
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

    /// What the largest values that go are, found by moving one after the other.
    fn one_by_one(attrs: &[Attr]) -> Result<Vec<usize>, NoRoom> {
        let mut order: Vec<usize> = (0..attrs.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(stored_len(&attrs[*i])));
        let lens: Vec<_> = order.iter().map(|i| (stored_len(&attrs[*i]), *i)).collect();
        (0..=order.len())
            .map(|out| needs_block(&without(attrs, &lens[..out]), 96, Some(BlockSize::KIB4)).map(|_| out))
            .reduce(|found, next| found.or(next))
            .unwrap()
            .map(|out| order[..out].to_vec())
    }

    fn stored_len(attr: &Attr) -> usize {
        let Value::Inline(value) = &attr.value else { panic!("a value of its own") };
        value.len()
    }

    #[test]
    fn as_few_go_as_must() {
        for count in [1, 2, 3, 7, 20, 100] {
            for len in [1, 5, 40, 300, 1500] {
                let attrs: Vec<Attr> =
                    (0..count).map(|n| attr(&format!("user.{n}"), len + n * len / 7)).collect();
                assert_eq!(spill(&attrs, &[]), one_by_one(&attrs), "{count} of {len}");
            }
        }
    }

    #[test]
    fn regression_work_does_not_grow_with_the_square_of_the_attributes() {
        let work = |count: usize, room: usize| {
            let attrs: Vec<Attr> = (0..count).map(|n| attr(&format!("user.{n}"), 8)).collect();
            let mut seen = 0;
            let out = first_out(
                &attrs,
                |_| true,
                BlockSize::KIB4,
                |attrs| {
                    seen += attrs.len();
                    let inline = attrs.iter().filter(|attr| matches!(attr.value, Value::Inline(_))).count();
                    if inline <= room { Ok(true) } else { Err(NoRoom { needed: inline, room }) }
                },
            );
            assert_eq!(out.unwrap().len(), count - room);
            seen
        };
        for room in [0, 3] {
            assert!(work(16_000, room) < 32 * work(1_000, room), "{room}");
        }
    }

    #[test]
    fn names_alone_can_be_too_many() {
        let many: Vec<Attr> = (0..400).map(|n| attr(&format!("user.{n}"), 1)).collect();
        assert!(spill(&many, &[]).is_err());
        assert!(spill(&[attr("system.data", 500)], &[]).is_err(), "inline data never moves");
    }
}
