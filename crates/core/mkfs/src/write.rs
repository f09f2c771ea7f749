//! A write of a plan of any format: a value that says what belongs where.
//!
//! What this is not: the writing (that is `executor`).

use crate::error::Result;
use hectare_units::Bytes;

/// Bytes for one place of the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Where.
    pub at: Bytes,
    /// What.
    pub payload: Payload,
}

/// What a write puts down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// These bytes.
    Bytes(Vec<u8>),
    /// That many zeros.
    Zeros(Bytes),
}

/// Takes the writes of a plan, one after another.
pub type Sink<'a> = dyn FnMut(Write) -> Result<()> + 'a;
