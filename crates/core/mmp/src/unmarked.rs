//! A volume whose block is damaged: nobody can see there who uses it.
//!
//! Such a block keeps others out as it is: the kernel, e2fsprogs and this project open no such volume for
//! writing. A host that has the volume open writes the block anew within its interval. So a block that stays as
//! it is for as long as that may take has no user ([`Unmarked::watched`]), and one that is changed later has one
//! ([`Unmarked::check`]).
//!
//! No mark is put there: if it is the superblock that is wrong, the block may be a file's.

use crate::block::{LEN, MmpBlock};
use crate::error::{Error, Result};
use crate::guard::{Options, wait_for};
use hectare_device::Device;
use hectare_ext4::mmp::{Mmp, Status};
use hectare_ext4::superblock::SuperBlock;
use log::warn;

/// A damaged block, as it was found.
pub(crate) struct Unmarked {
    why: String,
    /// Where it is, and its bytes if they can be read; nothing if it can't be there.
    found: Option<(MmpBlock, Option<Box<[u8; LEN]>>)>,
}

impl Unmarked {
    /// A block that can't be where the superblock says it is.
    pub(crate) fn nowhere(place: MmpBlock) -> Self {
        let why = format!("block {} can't be that of multiple mount protection", place.block);
        Self { why, found: None }
    }

    /// A block that holds these bytes, or can't be read.
    pub(crate) const fn at(place: MmpBlock, bytes: Option<Box<[u8; LEN]>>, why: String) -> Self {
        Self { why, found: Some((place, bytes)) }
    }

    /// What is wrong with it.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// Waits for as long as a user of the volume may take to write the block anew.
    ///
    /// # Errors
    /// [`Error::InUse`] if it was written, or is not to be waited for.
    pub(crate) fn watched(self, device: &dyn Device, sb: &SuperBlock, options: &Options) -> Result<Self> {
        let Some((place, _)) = &self.found else { return Ok(self) };
        if !options.waits {
            return Err(Error::InUse(format!(
                "{}: whether another host uses the volume can't be seen (MMP); if none does, say --takeover",
                self.why
            )));
        }
        let unknown = Mmp { status: Status::Clean, time: 0, check_interval: 0 };
        let wait = wait_for(&unknown, sb, place.block)?;
        warn!("{} (MMP): waiting {} seconds to see whether the volume is in use", self.why, wait.as_secs());
        options.clock.sleep(wait);
        self.check(device)?;
        Ok(self)
    }

    /// Returns an error if the block is not as it was found.
    pub(crate) fn check(&self, device: &dyn Device) -> Result<()> {
        match &self.found {
            Some((place, bytes)) if place.read_bytes(device).ok().map(Box::new) != *bytes => {
                Err(Error::InUse(
                    "another host writes to the block that says who uses the volume (MMP): close it there"
                        .into(),
                ))
            }
            _ => Ok(()),
        }
    }
}
