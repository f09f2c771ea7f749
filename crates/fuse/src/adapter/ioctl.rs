//! `ioctl`: inode flags, project, generation, and discarding free space.
//!
//! The kernel turns `FS_IOC_GETFLAGS` and its like into requests of its own form, with the sizes of what they
//! carry and not those of the command's number. Answers are little-endian as the machine is.

use super::Adapter;
use crate::errno::Answer;
use crate::nodes::Node;
use crate::protocol::NodeId;
use hectare_engine::{Caller, InodeFlags, to_xflags, with_xflags};
use rustix::io::Errno;
use rustix::process::geteuid;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;

/// Bytes of `struct fsxattr`, and where the project is in it.
const FSXATTR_SIZE: usize = 28;
const FSXATTR_PROJECT: usize = 12;

/// Whether a command changes what is kept of an inode.
pub(super) fn changes_attributes(command: u32) -> bool {
    matches!(command, FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR)
}

impl Adapter {
    /// Does what a command says; what it answers with, at most `room` bytes.
    pub(super) fn control(
        &self,
        caller: &Caller<'_>,
        id: NodeId,
        command: u32,
        input: &[u8],
        room: u32,
    ) -> Answer<Vec<u8>> {
        let node = self.node(id)?;
        let mut output = match command {
            FS_IOC_GETFLAGS => self.volume.inode_flags(node.nr())?.bits().to_le_bytes().to_vec(),
            FS_IOC_GETVERSION => node.metadata()?.generation.to_le_bytes().to_vec(),
            FS_IOC_FSGETXATTR => self.fsxattr(&node)?,
            FS_IOC_SETFLAGS => {
                let flags = InodeFlags::from_bits_retain(word(input, 0)?);
                self.volume.set_inode_flags(node.nr(), flags, caller)?;
                Vec::new()
            }
            FS_IOC_FSSETXATTR => {
                let flags = with_xflags(self.volume.inode_flags(node.nr())?, word(input, 0)?)?;
                let project = word(input, FSXATTR_PROJECT)?;
                self.volume.set_flags_and_project(node.nr(), flags, project, caller)?;
                Vec::new()
            }
            FITRIM => self.trim(caller, input)?,
            _ => return Err(Errno::NOTTY.into()),
        };
        output.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        Ok(output)
    }

    fn fsxattr(&self, node: &Node) -> Answer<Vec<u8>> {
        let mut bytes = vec![0; FSXATTR_SIZE];
        bytes[..4].copy_from_slice(&to_xflags(self.volume.inode_flags(node.nr())?).to_le_bytes());
        let project = self.volume.project(node.nr())?;
        bytes[FSXATTR_PROJECT..FSXATTR_PROJECT + 4].copy_from_slice(&project.to_le_bytes());
        Ok(bytes)
    }

    /// `struct fstrim_range`: start, length, smallest run; answered with the bytes discarded as the length.
    /// For root, and for whoever serves the mount: it keeps the device busy for everybody.
    fn trim(&self, caller: &Caller<'_>, input: &[u8]) -> Answer<Vec<u8>> {
        let field =
            |at| -> Answer<u64> { Ok(u64::from(word(input, at)?) | u64::from(word(input, at + 4)?) << 32) };
        if caller.uid != 0 && caller.uid != geteuid().as_raw() {
            return Err(Errno::PERM.into());
        }
        if self.behaviour.read_only {
            return Err(Errno::ROFS.into());
        }
        let (start, smallest) = (field(0)?, field(16)?);
        let discarded = self.volume.trim(start..start.saturating_add(field(8)?), smallest)?;
        Ok([start, discarded, smallest].iter().flat_map(|field| field.to_le_bytes()).collect())
    }
}

fn word(input: &[u8], at: usize) -> Answer<u32> {
    let bytes = input.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
    Ok(u32::from_le_bytes(*bytes))
}
