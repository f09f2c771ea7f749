//! Gives the blocks of one extent another place, and changes nothing else of the tree.

use super::edit::edit;
use super::path::Path;
use super::{Extent, TreeWrite};
use hectare_units::BlockNr;

/// Maps the blocks of `old` to those from `to` on, if `old` is an entry of the tree as it is; returns
/// whether it is. Neighbours are not joined, so that no node comes or goes.
///
/// # Errors
/// When a node can't be read or is corrupt, or the new place lies outside of the volume; nothing has changed
/// then.
pub fn repoint<T: TreeWrite>(tree: &mut T, old: Extent, to: BlockNr) -> Result<bool, T::Error> {
    let geometry = tree.geometry();
    if !geometry.holds(to, old.len) {
        return Err(geometry.corrupt(old.logical, "its new place lies outside of the volume").into());
    }
    let (path, found) = Path::descend(tree, &geometry, old.logical, |leaf, count| {
        let Some(at) = count.checked_sub(1) else { return Ok(None) };
        Ok((leaf.extent(at)? == old).then_some(at))
    })?;
    let Some(at) = found else { return Ok(false) };
    edit(tree, path.leaf().seat, &geometry, |node| node.set(at, Extent { physical: to, ..old }.encode()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::insert;
    use super::super::tests::{Store, check, extent};
    use super::*;

    #[test]
    fn only_the_place_of_a_whole_extent_changes() {
        let mut store = Store::new(1024);
        let all: Vec<Extent> =
            (0..200).map(|n| extent(n * 3, 2, 1000 + u64::from(n) * 9, n % 5 == 0)).collect();
        all.iter().for_each(|new| insert(&mut store, *new).unwrap());
        let mut expected = check(&store);
        assert_eq!(expected, all);
        for (nr, old) in (0_u64..).zip(&all).step_by(7) {
            let to = BlockNr::new(50_000 + nr * 4);
            assert!(repoint(&mut store, *old, to).unwrap());
            let at = usize::try_from(nr).unwrap();
            expected[at].physical = to;
            assert_eq!(check(&store), expected);
            // It is somewhere else now.
            assert!(!repoint(&mut store, *old, to).unwrap());
        }
        let part = Extent { len: 1, ..all[1] };
        assert!(!repoint(&mut store, part, BlockNr::new(90_000)).unwrap());
        assert!(!repoint(&mut store, extent(2, 1, 5, false), BlockNr::new(90_000)).unwrap());
        assert!(repoint(&mut store, all[1], BlockNr::new(u64::MAX - 1)).is_err());
        assert_eq!(check(&store), expected);
    }
}
