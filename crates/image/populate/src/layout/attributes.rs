//! How each set of extended attributes is stored: in the inode, in a block, or both.
//!
//! Equal sets are laid out once; inodes with equal sets share one attribute block, as the kernel's do, up to
//! the number of references the format allows. A tree can have a different set for each of a million files,
//! so only the part in the inode is kept; blocks are made again when they are written.
//!
//! Values that find no room lie in inodes of their own, if the volume has such (`ea_inode`): one for all
//! equal values. Their numbers follow those of the tree's nodes, which depends on the volume; until then
//! entries have the values' own numbers, counted from 1 ([`super::Volume::value_number`]).

use crate::error::ShownPath;
use crate::image_error::ImageError as Error;
use crate::tree::{Tree, Xattr, XattrSetId};
use hectare_ext4::acl;
use hectare_ext4::feature::{Compat, Incompat};
use hectare_ext4::superblock::SuperBlock;
use hectare_ext4::xattr::{self, Area, Attr, Name, Placed, REFCOUNT_MAX, Value, ValueRef};
use hectare_units::{BlockSize, InodeNr, low32, u64_of, usize_of};
use std::collections::HashMap;

/// Bytes of the longest value (`XATTR_SIZE_MAX`).
const VALUE_MAX: usize = 64 << 10;

/// One set, laid out.
struct Set {
    /// What goes into the on-disk inode.
    inode_area: Box<[u8]>,
    has_block: bool,
    /// The values in inodes of their own, by number from 0.
    values: Box<[u32]>,
}

/// A value in an inode of its own.
pub(crate) struct OutsideValue {
    pub(crate) bytes: Box<[u8]>,
    pub(crate) hash: u32,
    /// The entries that name it.
    pub(crate) users: u64,
}

/// All sets of a tree.
pub(crate) struct Attributes {
    sets: Vec<Set>,
    values: Values,
    /// Bytes for attributes in an inode.
    space: usize,
    block_size: BlockSize,
}

/// The values in inodes of their own; equal ones are one.
struct Values {
    /// Whether the volume has such inodes.
    allowed: bool,
    all: Vec<OutsideValue>,
    numbers: HashMap<Box<[u8]>, u32>,
    sb: SuperBlock,
}

impl Values {
    /// Which attributes have values that find no room otherwise.
    fn spilled(&self, attrs: &[Attr], space: usize, size: BlockSize) -> Result<Vec<usize>, xattr::NoRoom> {
        if self.allowed { xattr::spilled(attrs, |_| true, space, size) } else { Ok(Vec::new()) }
    }

    /// Adds a value, unless an equal one is there.
    fn add(&mut self, bytes: &[u8]) {
        let next = low32(u64_of(self.all.len()));
        if *self.numbers.entry(bytes.into()).or_insert(next) == next {
            let hash = xattr::inode_value_hash(self.sb.value_seed(), bytes);
            self.all.push(OutsideValue { bytes: bytes.into(), hash, users: 0 });
        }
    }

    /// The value of an attribute in an inode of its own.
    fn outside(&self, attr: &Attr, bytes: &[u8]) -> Option<Value> {
        let number = *self.numbers.get(bytes)?;
        let hash = xattr::held_entry_hash(attr.name.suffix(), self.all[usize_of(number)].hash);
        Some(Value::Inode { inode: InodeNr::new(number + 1), size: low32(u64_of(bytes.len())), hash })
    }

    /// The numbers of those that an area's entries name.
    fn named(area: Option<Area<'_>>) -> Vec<u32> {
        let entries = area.iter().flat_map(Area::entries);
        entries
            .filter_map(|entry| match entry.value {
                ValueRef::Inode { inode, .. } => Some(inode.get() - 1),
                ValueRef::Inline(_) => None,
            })
            .collect()
    }
}

impl Attributes {
    /// Lays the sets of a tree out for a volume.
    ///
    /// # Errors
    /// If a set does not fit; the error names one file with that set.
    pub(crate) fn new(tree: &Tree, sb: &SuperBlock) -> Result<Self, Error> {
        let space =
            usize_of(sb.geometry().inode_size).saturating_sub(128 + usize::from(sb.want_extra_isize()));
        let allowed = sb.features().incompat.contains(Incompat::EA_INODE);
        let values = Values { allowed, all: Vec::new(), numbers: HashMap::new(), sb: sb.clone() };
        let mut all = Self { sets: Vec::new(), values, space, block_size: sb.geometry().block_size };
        all.sets.reserve_exact(tree.xattr_sets().len());
        let nodes = nodes_of_sets(tree);
        for (index, set) in tree.xattr_sets().iter().enumerate() {
            let placed = all.add_values(set).and_then(|()| all.place_in(sb, set)).map_err(|reason| {
                let owner = tree.ids().find(|id| tree.xattr_set(*id).is_some_and(|set| set.index() == index));
                let path = owner.map(|id| tree.path(id)).unwrap_or_default();
                Error::Attributes { path: ShownPath::new(&path), reason }
            })?;
            let values = all.count_users(&placed, nodes[index]);
            let (inode_area, has_block) = (placed.inode_area.into(), placed.block.is_some());
            all.sets.push(Set { inode_area, has_block, values: values.into() });
        }
        Ok(all)
    }

    /// Counts the entries that so many inodes with a set have, and returns the values that each inode has.
    fn count_users(&mut self, placed: &Placed, nodes: u64) -> Vec<u32> {
        let place = hectare_ext4::Place::Volume;
        let in_inode = Values::named(Area::in_inode(&placed.inode_area, place).ok().flatten());
        let block = placed.block.as_ref().and_then(|block| Area::in_block(block, place).ok());
        let in_block = Values::named(block);
        // An entry in a block counts once for all inodes that share it.
        let blocks = nodes.div_ceil(REFCOUNT_MAX.into());
        let counts =
            in_inode.iter().map(|value| (value, nodes)).chain(in_block.iter().map(|value| (value, blocks)));
        counts.for_each(|(value, users)| self.values.all[usize_of(*value)].users += users);
        [in_inode, in_block].concat()
    }

    /// The values in inodes of their own, in the order of those inodes.
    pub(crate) fn values(&self) -> &[OutsideValue] {
        &self.values.all
    }

    /// Those of one set.
    pub(crate) fn values_of(&self, id: XattrSetId) -> impl ExactSizeIterator<Item = &OutsideValue> {
        self.sets[id.index()].values.iter().map(|value| &self.values.all[usize_of(*value)])
    }

    /// The part of a set that goes into the inode.
    pub(crate) fn inode_area(&self, id: XattrSetId) -> &[u8] {
        &self.sets[id.index()].inode_area
    }

    /// Likewise, by the set's index.
    pub(crate) fn area(&self, set: usize) -> &[u8] {
        &self.sets[set].inode_area
    }

    /// The area of an inode without attributes.
    pub(crate) fn empty_area(&self) -> Vec<u8> {
        vec![0; self.space]
    }

    /// Whether a set needs a block.
    pub(crate) fn has_block(&self, id: XattrSetId) -> bool {
        self.sets[id.index()].has_block
    }

    /// The block of a set, its checksum and reference count still open.
    pub(crate) fn block(&self, tree: &Tree, set: usize) -> Option<Vec<u8>> {
        // It was placed before, so it can be placed now, with the same values outside.
        self.place(&tree.xattr_sets()[set]).ok()?.block
    }

    /// Number of sets.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    /// Adds the values of a set that go to inodes of their own.
    fn add_values(&mut self, set: &[Xattr]) -> Result<(), String> {
        let attrs = stored(set)?;
        for i in self.values.spilled(&attrs, self.space, self.block_size).map_err(no_room)? {
            if let Value::Inline(bytes) = &attrs[i].value {
                self.values.add(bytes);
            }
        }
        Ok(())
    }

    /// As [`Self::place`]; an error if the volume lacks the feature for attribute blocks.
    fn place_in(&self, sb: &SuperBlock, set: &[Xattr]) -> Result<Placed, String> {
        let placed = self.place(set)?;
        if placed.block.is_some() && !sb.features().compat.contains(Compat::EXT_ATTR) {
            return Err("they need an attribute block; add -O ext_attr".to_owned());
        }
        Ok(placed)
    }

    fn place(&self, set: &[Xattr]) -> Result<Placed, String> {
        let mut attrs = stored(set)?;
        for i in self.values.spilled(&attrs, self.space, self.block_size).map_err(no_room)? {
            if let Value::Inline(bytes) = &attrs[i].value
                && let Some(value) = self.values.outside(&attrs[i], bytes)
            {
                attrs[i].value = value;
            }
        }
        xattr::layout(&attrs, self.space, Some(self.block_size)).map_err(no_room)
    }
}

/// A set in the form it is stored in.
fn stored(set: &[Xattr]) -> Result<Vec<Attr>, String> {
    let mut attrs = Vec::with_capacity(set.len());
    for attribute in set {
        let shown = || ShownPath::new(&attribute.name);
        let name = Name::parse(&attribute.name).map_err(|error| format!("{}: {error}", shown()))?;
        let value =
            acl::to_stored(&name, &attribute.value).map_err(|error| format!("{}: {error}", shown()))?;
        if value.as_ref().is_some_and(|value| value.len() > VALUE_MAX) {
            return Err(format!("{} has more than {VALUE_MAX} bytes", shown()));
        }
        if let Some(value) = value {
            attrs.push(Attr::new(name, value.into_owned()));
        }
    }
    Ok(attrs)
}

fn no_room(room: xattr::NoRoom) -> String {
    let xattr::NoRoom { needed, room } = room;
    let why = if needed > room {
        format!("they need {needed} bytes where an inode and a block have {room}")
    } else {
        format!(
            "each must fit into the inode or into one block, and no division of their {needed} bytes does"
        )
    };
    format!(
        "{why} (the feature ea_inode has room for large values, larger blocks or larger inodes have more)"
    )
}

/// How many nodes have each set.
fn nodes_of_sets(tree: &Tree) -> Vec<u64> {
    let mut nodes = vec![0; tree.xattr_sets().len()];
    tree.ids().filter_map(|id| tree.xattr_set(id)).for_each(|set| nodes[set.index()] += 1);
    nodes
}
