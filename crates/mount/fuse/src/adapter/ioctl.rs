//! Handles `ioctl`: inode flags, project, generation, label, discard of free space, and shutdown.
//!
//! The kernel's FUSE passes no argument for a command whose number says that it only reads. ext4's shutdown
//! is such a command, although it takes the mode as an argument. So the mode of [`SHUTDOWN`] is unknown, and
//! it does what loses least: everything that the server has received is written first. [`SHUTDOWN_BY`] is our
//! own number for the same with the mode (`hectare shutdown`). Either loses what the kernel still has in its
//! cache, unless the caller has synced before.
//!
//! What ext4 permits by a capability is permitted by that ([`super::capabilities`]). Where the volume is
//! mounted once more, read-only, the kernel does not say by which mount a request comes: who may set the
//! label may do so by any.
//!
//! The kernel turns `FS_IOC_GETFLAGS` and its like into requests of its own form, with the sizes of what they
//! carry and not those of the command's number. Answers are little-endian as the machine is.

use super::Adapter;
use crate::errno::Answer;
use crate::node_table::Node;
use crate::protocol::NodeId;
use hectare_engine::{Caller, Capabilities, InodeFlags, Shutdown, to_xflags, with_xflags};
use rustix::io::Errno;
use rustix::process::geteuid;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
const FITRIM: u32 = 0xc018_5879;
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const FS_IOC_SETFSLABEL: u32 = 0x4100_9432;
/// `EXT4_IOC_SHUTDOWN`, `_IOR('X', 125, __u32)`.
const SHUTDOWN: u32 = 0x8004_587d;
/// `_IOW('X', 125, __u32)`, which carries the mode: 0 writes everything first, 1 the log, 2 nothing.
const SHUTDOWN_BY: u32 = 0x4004_587d;
/// Bytes of a label as programs have it (`FSLABEL_MAX`).
const LABEL_SIZE: usize = 256;

/// Bytes of `struct fsxattr`, and where the project is in it.
const FSXATTR_SIZE: usize = 28;
const FSXATTR_PROJECT: usize = 12;

/// Whether a command changes attributes of an inode.
pub(super) fn changes_attributes(command: u32) -> bool {
    matches!(command, FS_IOC_SETFLAGS | FS_IOC_FSSETXATTR)
}

impl Adapter {
    /// Executes a command; returns its output, at most `room` bytes.
    pub(super) fn control(
        &self,
        caller: impl FnOnce() -> Caller<'static>,
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
                self.volume.set_inode_flags(node.nr(), flags, &caller())?;
                Vec::new()
            }
            FS_IOC_FSSETXATTR => {
                let flags = with_xflags(self.volume.inode_flags(node.nr())?, word(input, 0)?)?;
                let project = word(input, FSXATTR_PROJECT)?;
                self.volume.set_flags_and_project(node.nr(), flags, project, &caller())?;
                Vec::new()
            }
            FITRIM => self.trim(&caller(), input)?,
            FS_IOC_GETFSLABEL => self.label(),
            FS_IOC_SETFSLABEL => self.set_label(&caller(), input)?,
            SHUTDOWN => self.shut_down(&caller(), Shutdown::Flush)?,
            SHUTDOWN_BY => match word(input, 0)? {
                0 => self.shut_down(&caller(), Shutdown::Flush)?,
                1 => self.shut_down(&caller(), Shutdown::FlushLog)?,
                2 => self.shut_down(&caller(), Shutdown::Cut)?,
                _ => return Err(Errno::INVAL.into()),
            },
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

    fn label(&self) -> Vec<u8> {
        let mut label = self.volume.label();
        label.resize(LABEL_SIZE, 0);
        label
    }

    fn set_label(&self, caller: &Caller<'_>, input: &[u8]) -> Answer<Vec<u8>> {
        only_admin(caller)?;
        if self.behaviour.read_only {
            return Err(Errno::ROFS.into());
        }
        let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
        self.volume.set_label(&input[..end])?;
        Ok(Vec::new())
    }

    fn shut_down(&self, caller: &Caller<'_>, how: Shutdown) -> Answer<Vec<u8>> {
        only_admin(caller)?;
        self.volume.shut_down(how)?;
        Ok(Vec::new())
    }

    /// `struct fstrim_range`: start, length, smallest run; the length in the answer is the number of bytes
    /// discarded. For administrators and the server's user only: it keeps the device busy for everybody.
    fn trim(&self, caller: &Caller<'_>, input: &[u8]) -> Answer<Vec<u8>> {
        let field =
            |at| -> Answer<u64> { Ok(u64::from(word(input, at)?) | u64::from(word(input, at + 4)?) << 32) };
        if caller.uid == 0 || caller.uid != geteuid().as_raw() {
            only_admin(caller)?;
        }
        if self.behaviour.read_only {
            return Err(Errno::ROFS.into());
        }
        let (start, smallest) = (field(0)?, field(16)?);
        let discarded = self.volume.trim(start..start.saturating_add(field(8)?), smallest)?;
        Ok([start, discarded, smallest].iter().flat_map(|field| field.to_le_bytes()).collect())
    }
}

fn only_admin(caller: &Caller<'_>) -> Answer {
    if caller.may(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(Errno::PERM.into()) }
}

fn word(input: &[u8], at: usize) -> Answer<u32> {
    let bytes = input.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
    Ok(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::Behaviour;
    use hectare_device::MemoryDevice;
    use hectare_engine::{OpenOptions, Overwrite, Volume};
    use hectare_mkfs::FormatOptions;
    use hectare_units::Bytes;
    use std::sync::Arc;

    #[test]
    fn regression_the_volume_as_a_whole_is_for_administrators_not_for_every_user_0() {
        let device = Arc::new(MemoryDevice::new(Bytes::mib(16)));
        let (format, open) = (FormatOptions::default(), OpenOptions::default());
        let volume = Volume::format(device, &format, Overwrite::Refuse, open).unwrap();
        let adapter = Adapter::new(volume, Behaviour::default(), Arc::default()).unwrap();
        let ask = |caller: &Caller<'static>, command, input: &[u8]| {
            adapter.control(|| *caller, NodeId::ROOT, command, input, 0).map(drop)
        };
        let of_container = Caller { capabilities: !Capabilities::SYS_ADMIN, ..Caller::ROOT };
        let commands =
            [(SHUTDOWN, &[][..]), (SHUTDOWN_BY, &[0; 4]), (FS_IOC_SETFSLABEL, &[0; 256]), (FITRIM, &[0; 24])];
        for (command, input) in commands {
            for caller in [Caller { uid: 1_000_000, ..of_container }, of_container] {
                let refused = ask(&caller, command, input);
                assert_eq!(refused, Err(Errno::PERM.into()), "{command:#x} {caller:?}");
            }
        }
        assert!(!adapter.volume.is_shut_down());
        assert_eq!(ask(&Caller::ROOT, SHUTDOWN_BY, &[3, 0, 0, 0]), Err(Errno::INVAL.into()));
        assert_eq!(ask(&Caller::ROOT, SHUTDOWN, &[]), Ok(()));
        assert!(adapter.volume.is_shut_down());
    }
}
