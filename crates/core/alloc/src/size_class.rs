//! Size classes: parts of the volume set apart by the size of what is allocated there, so that long-lived
//! small files don't fragment the space that large ones need.
//!
//! The *unit* that carries a class is a flex group, or a single group where there are none. A unit starts
//! unset. The first data run taken in it sets its class; it is unset again when nothing is in use in it but
//! the volume's own metadata. A request looks for a unit of its class first, then for an unset one, and only
//! then anywhere; what is taken in a unit of another class does not change that class. Source of the rules:
//! btrfs's size classes of block groups. Which sizes make a class is a list ([`SizeClasses`]).
//!
//! The class of a unit that was in use before the volume was opened is not stored anywhere. It is guessed
//! when the first group of the unit is loaded: the used runs after five positions are measured, and the
//! smallest decides.
//!
//! It stays right without a lock in the path of an allocation: the class of a unit is one atomic, with a
//! set of units per class ([`BitTree`]) beside it for searching. Changes are rare and are made under one
//! lock, class and sets together. Unsetting races with taking: the taker first says that its group is no
//! longer wholly free, then reads the class; the unsetter first changes the class, then checks again whether
//! all groups are wholly free, and restores the class if not. In the single order of `SeqCst` at least one of
//! them sees the other.
//!
//! What it is not: a promise. A unit's class says where requests go first; nothing else depends on it.

mod bounds;

pub use bounds::{BadClasses, SizeClasses};

use crate::bits;
use crate::index::{BitTree, Words};
use crate::sync::{AtomicU64, Mutex, Ordering};
use hectare_units::{GroupNr, index_of, usize_of};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What sizes a unit is for: the class below the first bound is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Class(u8);

/// Positions of a group whose used runs are examined to guess a class.
const SAMPLES: u32 = 5;

impl Class {
    /// Its place in a list of all.
    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// The number that stands for it in a unit; 0 is a unit that is unset.
    fn code(self) -> u32 {
        u32::from(self.0) + 1
    }

    fn from_code(code: u64) -> Option<Self> {
        Some(Self(hectare_units::low8(code.checked_sub(1)?)))
    }
}

/// Which units a search looks at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Those of the request's class.
    Matching,
    /// Those without a class.
    Unset,
    /// All.
    Any,
}

/// What the classes need to know of groups.
pub(crate) trait GroupMap {
    /// How many there are.
    fn groups(&self) -> u32;
    /// Whether nothing is in use in a group but the volume's own metadata.
    fn is_whole(&self, group: GroupNr) -> bool;
}

/// The classes of all units.
pub(crate) struct Classes {
    unit_groups: u32,
    sizes: SizeClasses,
    /// By code; memory that costs nothing until it is touched.
    classes: Words,
    /// The units of each class, by code; those without one are the first.
    units: Box<[BitTree]>,
    changing: Mutex<()>,
}

impl Classes {
    /// Units of `unit_groups` groups each, all unset.
    pub(crate) fn new(groups: u32, unit_groups: u32, sizes: SizeClasses) -> Self {
        let unit_groups = unit_groups.max(1);
        let units = groups.div_ceil(unit_groups);
        Self {
            unit_groups,
            sizes,
            classes: Words::new(usize_of(units)),
            units: (0..=sizes.count()).map(|code| BitTree::new(units, code == 0)).collect(),
            changing: Mutex::new(()),
        }
    }

    fn unit(&self, group: GroupNr) -> u32 {
        group.get() / self.unit_groups
    }

    fn word(&self, unit: u32) -> &AtomicU64 {
        &self.classes.from(usize_of(unit))[0]
    }

    /// The class of a group's unit.
    pub(crate) fn class(&self, group: GroupNr) -> Option<Class> {
        Class::from_code(self.word(self.unit(group)).load(Ordering::SeqCst))
    }

    /// Whether a request of `class` may look into a group at this stage.
    pub(crate) fn admits(&self, group: GroupNr, class: Class, stage: Stage) -> bool {
        match stage {
            Stage::Matching => self.class(group) == Some(class),
            Stage::Unset => self.class(group).is_none(),
            Stage::Any => true,
        }
    }

    /// The first group at or after `from` and before `end` whose unit is admitted at this stage, and the end
    /// of that unit.
    #[inline]
    pub(crate) fn next(&self, class: Class, stage: Stage, groups: Range<u32>) -> Option<Range<u32>> {
        let tree = match stage {
            Stage::Any => return Some(groups).filter(|groups| !groups.is_empty()),
            Stage::Unset => &self.units[0],
            Stage::Matching => &self.units[usize_of(class.code())],
        };
        let unit = tree.next(groups.start / self.unit_groups)?;
        let start = groups.start.max(unit.checked_mul(self.unit_groups)?);
        let end = groups.end.min((unit + 1).saturating_mul(self.unit_groups));
        (start < end).then_some(start..end)
    }

    /// Whether any unit is admitted at this stage.
    pub(crate) fn has(&self, class: Class, stage: Stage) -> bool {
        self.next(class, stage, 0..u32::MAX).is_some()
    }

    /// A data run is about to be taken in a group, which says already that it is not wholly free. Whether
    /// that is in order; `forced` requests may go anywhere.
    pub(crate) fn enter(&self, group: GroupNr, class: Class, forced: bool) -> bool {
        match self.class(group) {
            Some(have) => have == class || forced,
            None => self.set(group, class, |_| true) || forced,
        }
    }

    /// Sets the class of an unset unit, if `still` holds then; whether the unit has this class now.
    fn set(&self, group: GroupNr, class: Class, still: impl FnOnce(&Self) -> bool) -> bool {
        let _changing = self.changing.lock();
        match self.class(group) {
            Some(have) => have == class,
            None if still(self) => {
                self.change(group, Some(class));
                true
            }
            None => false,
        }
    }

    fn change(&self, group: GroupNr, to: Option<Class>) {
        let unit = self.unit(group);
        let to = to.map_or(0, Class::code);
        let from = self.word(unit).swap(to.into(), Ordering::SeqCst);
        if from != u64::from(to) {
            self.units[usize_of(to)].set(unit);
            self.units[index_of(from)].clear(unit);
        }
    }

    /// A group has become wholly free: unsets its unit if all the others are too.
    pub(crate) fn became_whole(&self, group: GroupNr, groups_of: &impl GroupMap) {
        let first = self.unit(group) * self.unit_groups;
        let all_whole = || {
            let groups = first..first.saturating_add(self.unit_groups).min(groups_of.groups());
            groups.map(GroupNr::new).all(|group| groups_of.is_whole(group))
        };
        if self.class(group).is_none() || !all_whole() {
            return;
        }
        let _changing = self.changing.lock();
        let was = self.class(group);
        self.change(group, None);
        if !all_whole() {
            self.change(group, was);
        }
    }

    /// A group was loaded: if its unit is unset but in use, guesses the class. `words` is the group's bitmap
    /// of `len` clusters of `cluster_bytes` each.
    pub(crate) fn sample(&self, group: GroupNr, words: &[u64], len: u32, cluster_bytes: u64) {
        if self.class(group).is_none()
            && let Some(smallest) = smallest_sample(words, len)
        {
            let class = self.sizes.of(u64::from(smallest).saturating_mul(cluster_bytes));
            self.set(group, class, |_| true);
        }
    }

    /// Verifies that each unit is in the set of its class and in no other, and that empty ones have none. For
    /// tests.
    pub(crate) fn check(&self, groups_of: &impl GroupMap) -> Result<(), String> {
        for first in (0..groups_of.groups()).step_by(usize_of(self.unit_groups)).map(GroupNr::new) {
            let (class, unit) = (self.class(first), self.unit(first));
            let is_in = |set: &BitTree| set.next_before(unit, unit + 1).is_some();
            let sets: Vec<u32> =
                (0..).zip(&self.units).filter(|(_, set)| is_in(set)).map(|set| set.0).collect();
            if sets != [class.map_or(0, Class::code)] {
                return Err(format!("unit {unit} is {class:?}, but in the sets {sets:?}"));
            }
            let mut groups =
                first.get()..first.get().saturating_add(self.unit_groups).min(groups_of.groups());
            if class.is_some() && groups.all(|group| groups_of.is_whole(GroupNr::new(group))) {
                return Err(format!("unit {unit} is {class:?}, but holds nothing"));
            }
        }
        Ok(())
    }

    /// The class of an allocation of `bytes` bytes.
    pub(crate) fn of(&self, bytes: u64) -> Class {
        self.sizes.of(bytes)
    }

    /// Units without a class, then those of each, from the smallest sizes on.
    pub(crate) fn counts(&self) -> Vec<u32> {
        self.units.iter().map(BitTree::count).collect()
    }
}

/// The length of the shortest among the used runs that follow some positions of a bitmap.
fn smallest_sample(words: &[u64], len: u32) -> Option<u32> {
    let positions = (0..SAMPLES).map(|i| len / SAMPLES * i);
    positions.filter_map(|at| used_run_after(words, at, len)).map(|run| run.end - run.start).min()
}

/// The first maximal used run that starts at or after a position.
fn used_run_after(words: &[u64], at: u32, len: u32) -> Option<Range<u32>> {
    // A run that has begun before is another position's.
    let from = match at {
        0 => 0,
        _ => bits::first_clear(words, &(at - 1..len))?,
    };
    let start = bits::first_set(words, &(from..len))?;
    let end = bits::first_clear(words, &(start..len)).unwrap_or(len);
    Some(start..end)
}

#[cfg(all(test, not(any(feature = "shuttle", feature = "loom"))))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Whole(RefCell<Vec<bool>>);

    impl GroupMap for Whole {
        fn groups(&self) -> u32 {
            hectare_units::low32(hectare_units::u64_of(self.0.borrow().len()))
        }
        fn is_whole(&self, group: GroupNr) -> bool {
            self.0.borrow()[group.index()]
        }
    }

    const SMALL: Class = Class(0);
    const MEDIUM: Class = Class(1);

    fn classes(groups: u32, unit_groups: u32) -> Classes {
        Classes::new(groups, unit_groups, SizeClasses::default())
    }

    #[test]
    fn the_first_to_enter_decides_and_force_changes_nothing() {
        let classes = classes(10, 4);
        let group = GroupNr::new(5);
        assert!(classes.enter(group, MEDIUM, false));
        assert!(!classes.enter(GroupNr::new(6), SMALL, false));
        assert!(classes.enter(GroupNr::new(7), SMALL, true));
        assert_eq!(classes.class(group), Some(MEDIUM));
        assert_eq!(classes.counts(), [2, 0, 1, 0]);
        assert_eq!(classes.next(MEDIUM, Stage::Matching, 0..10), Some(4..8));
        assert_eq!(classes.next(MEDIUM, Stage::Matching, 6..7), Some(6..7));
        assert_eq!(classes.next(MEDIUM, Stage::Matching, 8..10), None);
        assert_eq!(classes.next(SMALL, Stage::Unset, 3..10), Some(3..4));
        assert_eq!(classes.next(SMALL, Stage::Unset, 4..10), Some(8..10));
    }

    #[test]
    fn a_unit_is_unset_when_all_its_groups_are_free() {
        let classes = classes(4, 2);
        let whole = Whole(RefCell::new(vec![false, false, true, true]));
        assert!(classes.enter(GroupNr::new(0), SMALL, false));
        whole.0.borrow_mut()[0] = true;
        classes.became_whole(GroupNr::new(0), &whole);
        assert_eq!(classes.class(GroupNr::new(0)), Some(SMALL), "group 1 is in use");
        whole.0.borrow_mut()[1] = true;
        classes.became_whole(GroupNr::new(1), &whole);
        assert_eq!(classes.class(GroupNr::new(0)), None);
        assert_eq!(classes.counts(), [2, 0, 0, 0]);
    }

    #[test]
    fn the_smallest_sample_decides() {
        // Positions 0, 20, 40, 60, 80 of 100: runs 2..40 and 62..66, and 90..91.
        let used = (2..40).chain(62..66).chain(90..91);
        let mut words = vec![0_u64; 2];
        for at in used {
            words[at / 64] |= 1 << (at % 64);
        }
        assert_eq!(used_run_after(&words, 0, 100), Some(2..40));
        assert_eq!(used_run_after(&words, 20, 100), Some(62..66), "what began before is passed over");
        assert_eq!(smallest_sample(&words, 100), Some(1));
        assert_eq!(smallest_sample(&[0, 0], 100), None);
        let classes = classes(2, 2);
        classes.sample(GroupNr::new(1), &words, 100, 256 << 10);
        assert_eq!(classes.class(GroupNr::new(0)), Some(MEDIUM));
        classes.sample(GroupNr::new(0), &words, 100, 1);
        assert_eq!(classes.class(GroupNr::new(0)), Some(MEDIUM), "a class is guessed once");
    }
}
