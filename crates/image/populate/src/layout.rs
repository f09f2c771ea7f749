//! The layout of a tree in a volume: assigns inode numbers and blocks before a byte of data is read.
//!
//! Inodes are numbered in the order of the tree's nodes, and space is given out in one pass over the free
//! ranges of the empty volume, from its start to its end: for each node its content, then the tree blocks of
//! its map, then its attribute block. So a directory's files lie behind each other, and an image is a
//! function of the tree and the options alone. Whether a tree fits a volume of a given size, and how much it
//! lacks, is known exactly without reading data, which is what the search for the smallest size relies on:
//! the same pass runs to measure only, or to keep what it finds.
//!
//! Without extents the tables of a file's block map lie among its data, each before the first block that it
//! maps. With `bigalloc` everything takes whole clusters, and a block of a file keeps its offset inside its
//! cluster.
//!
//! A volume made like an older one ([`crate::Like`]) keeps its inode numbers (`kept`) and places
//! (`reserved`); only what is new is given space in order.
//!
//! Not here: the location of the format's own metadata (that is `hectare-mkfs`), reading data and writing
//! (that is [`crate::write`]).

mod attributes;
mod contents;
mod cursor;
mod file_type;
mod inline;
mod inode;
mod kept;
mod load;
mod place;
mod placed;
mod ranges;
mod reserved;
mod volume;

pub(crate) use contents::TreeContents;
pub(crate) use file_type::file_type;
pub(crate) use inline::InlineContents;
pub(crate) use inode::{Inodes, LINKS_MAX};
pub(crate) use kept::Kept;
pub(crate) use load::{LOST_AND_FOUND, Load};
pub(crate) use place::{Lacking, lay_out, measure};
pub(crate) use placed::{Layout, Needs, Room};
pub(crate) use ranges::verity_blocks;
pub(crate) use volume::Volume;
