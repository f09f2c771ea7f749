//! A partition, as either kind of table describes it.

use crate::kind::Kind;
use hectare_units::Bytes;

/// A partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Its number, from 1; logical partitions of the older kind of table from 5.
    pub number: u32,
    /// Where it begins.
    pub start: Bytes,
    /// How long it is.
    pub len: Bytes,
    /// What it is meant for.
    pub kind: Kind,
    /// Its name; empty where there is none, and in tables of the older kind. May hold any character.
    pub name: String,
    /// Its UUID as Linux writes it: of a GPT that of the entry, of the older kind the disk's number and that of the
    /// partition (`1234abcd-02`); empty if the disk has none.
    pub uuid: String,
}
