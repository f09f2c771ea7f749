//! A volume as origin or target of a copy.

use super::ends::{Content, Meta, Named, Origin, Reason, Special, Target, Unkept, Xattrs};
use crate::image::Image;
use crate::name::shown;
use crate::os::identity_of;
use crate::umask;
use crate::walk::Entries;
use hectare_engine::{Caller, Changes, Creation, Error, Kind, NewNode, OpenFile, Volume, XattrHow};
use hectare_host::Identity;
use hectare_units::InodeNr;
use std::path::Path;
use std::sync::Arc;

/// The access ACL of a file, and the bits of its mode that are the mask of one.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const GROUP_BITS: u16 = 0o070;

/// A volume to copy from, or into.
pub(crate) struct Inside<'a> {
    pub(crate) image: &'a Image,
}

impl Inside<'_> {
    fn volume(&self) -> &Volume {
        self.image.volume()
    }

    fn creation(&self, mode: u16) -> Creation {
        umask::creation(mode)
    }

    fn make(&self, dir: InodeNr, name: &[u8], node: NewNode<'_>, mode: u16) -> Result<InodeNr, Reason> {
        self.volume().create(dir, name, node, self.creation(mode)).map_err(reason)
    }

    /// Sets the kept attributes. They replace what the new inode inherited from its directory's ACL.
    fn finish(&self, nr: InodeNr, meta: &Meta, xattrs: &Xattrs) -> Result<Unkept, Reason> {
        self.finish_inode(nr, meta, xattrs).map_err(reason)
    }

    fn finish_inode(&self, nr: InodeNr, meta: &Meta, xattrs: &Xattrs) -> Result<Unkept, Error> {
        let volume = self.volume();
        for name in volume.list_xattrs(nr)? {
            if !xattrs.iter().any(|(kept, _)| *kept == name) {
                volume.remove_xattr(nr, &name)?;
            }
        }
        let (mut unkept, mut mode) = (Vec::new(), meta.mode);
        for (name, value) in xattrs {
            match volume.set_xattr(nr, name, value, XattrHow::default()) {
                Err(error @ (Error::NoSpace | Error::AttributeTooLarge)) => {
                    unkept.push(format!("its attribute {} is left out: {error}", shown(name)));
                    if name == ACL_ACCESS {
                        // The bits of the group are the mask of the list: without it they would let the group in.
                        mode &= !GROUP_BITS;
                    }
                }
                set => set?,
            }
        }
        // A link's mode means nothing and stays.
        let permissions = (meta.kind != Kind::Symlink).then_some(mode);
        let changes = Changes {
            permissions,
            uid: Some(meta.uid),
            gid: Some(meta.gid),
            atime: Some(meta.atime),
            mtime: Some(meta.mtime),
            ..Changes::default()
        };
        volume.change(nr, &changes)?;
        Ok((!unkept.is_empty()).then(|| unkept.join("; ")))
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn reason(error: Error) -> Reason {
    error.to_string()
}

impl Content for OpenFile {
    fn size(&self) -> u64 {
        self.metadata().map_or(0, |meta| meta.size)
    }

    fn ranges(&self) -> Result<Vec<(u64, u64)>, Reason> {
        self.data_ranges().map_err(reason)
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize, Reason> {
        Self::read_at(self, at, buffer).map_err(reason)
    }
}

impl Origin for Inside<'_> {
    type Node = InodeNr;
    type File = OpenFile;
    type Children = Entries;

    fn meta(&self, node: &InodeNr, _follow: bool) -> Result<Meta, Reason> {
        let meta = self.volume().stat(*node).map_err(reason)?;
        Ok(Meta {
            kind: meta.kind,
            mode: meta.permissions,
            uid: meta.uid,
            gid: meta.gid,
            atime: meta.atime,
            mtime: meta.mtime,
            links: meta.links.into(),
            id: Identity { device: 0, inode: node.get().into() },
            device: meta.device,
        })
    }

    fn children(&self, node: &InodeNr, _meta: &Meta) -> Result<Entries, Reason> {
        Ok(Entries::of(*node))
    }

    fn next_child(&self, children: &mut Entries) -> Option<Result<Named<InodeNr>, Reason>> {
        let entry = children.next(self.volume())?;
        Some(entry.map(|entry| (entry.name, entry.inode)).map_err(reason))
    }

    fn open(&self, node: &InodeNr, _follow: bool, _meta: &Meta) -> Result<OpenFile, Reason> {
        self.volume().open_inode(*node).map_err(reason)
    }

    fn read_link(&self, node: &InodeNr) -> Result<Vec<u8>, Reason> {
        self.volume().read_link_at(*node).map_err(reason)
    }

    fn xattrs(&self, node: &InodeNr, _follow: bool) -> Result<Xattrs, Reason> {
        self.volume().xattrs(*node).map_err(reason)
    }

    fn image(&self) -> Option<&Path> {
        Some(self.image.path())
    }

    fn inode_in(&self, node: &InodeNr, volume: &Volume) -> Option<InodeNr> {
        Arc::ptr_eq(self.volume().device(), volume.device()).then_some(*node)
    }

    fn show(&self, path: &[u8]) -> String {
        self.image.show(path)
    }
}

impl Target for Inside<'_> {
    type Dir = InodeNr;
    type File = OpenFile;
    type First = InodeNr;

    fn own_file(&self) -> Option<Identity> {
        identity_of(self.image.path())
    }

    fn refuses(&self, _kind: Kind) -> Option<&'static str> {
        None
    }

    fn find(&self, dir: &InodeNr, name: &[u8]) -> Result<Option<Kind>, Reason> {
        match self.volume().lookup(*dir, name) {
            Ok(nr) => self.volume().stat(nr).map(|meta| Some(meta.kind)).map_err(reason),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(reason(error)),
        }
    }

    fn enter(&self, dir: &InodeNr, name: &[u8]) -> Result<InodeNr, Reason> {
        self.volume().lookup(*dir, name).map_err(reason)
    }

    /// The umask goes along ([`umask::creation`]): whether it counts, the directory's default ACL decides.
    fn new_mode(&self, wanted: u16) -> u16 {
        wanted
    }

    fn make_dir(&self, dir: &InodeNr, name: &[u8], mode: u16) -> Result<InodeNr, Reason> {
        self.make(*dir, name, NewNode::Directory, mode)
    }

    fn make_file(&self, dir: &InodeNr, name: &[u8], mode: u16, there: bool) -> Result<OpenFile, Reason> {
        let nr = if there {
            self.volume().lookup(*dir, name).map_err(reason)?
        } else {
            self.make(*dir, name, NewNode::File, mode)?
        };
        let file = self.volume().open_inode(nr).map_err(reason)?;
        if there {
            // The rights of the program that was there are not the new one's.
            file.drop_privileges(&Caller::ROOT).and_then(|_| file.set_len(0)).map_err(reason)?;
        }
        Ok(file)
    }

    fn make_special(
        &self,
        dir: &InodeNr,
        name: &[u8],
        special: &Special,
        mode: u16,
        attributes: Option<&(Meta, Xattrs)>,
    ) -> Result<(InodeNr, Unkept), Reason> {
        let node = match special {
            Special::Symlink(target) => NewNode::Symlink(target),
            Special::Node(Kind::CharDevice, number) => NewNode::CharDevice(*number),
            Special::Node(Kind::BlockDevice, number) => NewNode::BlockDevice(*number),
            Special::Node(Kind::Fifo, _) => NewNode::Fifo,
            Special::Node(_, _) => NewNode::Socket,
        };
        let nr = self.make(*dir, name, node, mode)?;
        let unkept = attributes.map(|(meta, xattrs)| self.finish(nr, meta, xattrs)).transpose()?;
        Ok((nr, unkept.flatten()))
    }

    fn link(&self, first: &InodeNr, dir: &InodeNr, name: &[u8]) -> Result<(), Reason> {
        self.volume().link(*first, *dir, name).map_err(reason)
    }

    fn remove(&self, dir: &InodeNr, name: &[u8]) -> Result<(), Reason> {
        self.volume().unlink(*dir, name).map_err(reason)
    }

    fn first(&self, file: &OpenFile, _dir: &InodeNr, _name: &[u8]) -> Result<InodeNr, Reason> {
        Ok(file.inode())
    }

    fn dir_inode(&self, dir: &InodeNr) -> Option<(&Volume, InodeNr)> {
        Some((self.volume(), *dir))
    }

    fn write_at(&self, file: &OpenFile, at: u64, data: &[u8]) -> Result<(), Reason> {
        file.write_all_at(at, data).map_err(reason)
    }

    fn set_len(&self, file: &OpenFile, size: u64) -> Result<(), Reason> {
        file.set_len(size).map_err(reason)
    }

    fn finish_file(&self, file: &OpenFile, meta: &Meta, xattrs: &Xattrs) -> Result<Unkept, Reason> {
        self.finish(file.inode(), meta, xattrs)
    }

    fn finish_dir(&self, dir: &InodeNr, _mode: u16, kept: Option<&(Meta, Xattrs)>) -> Result<Unkept, Reason> {
        kept.map_or(Ok(None), |(meta, xattrs)| self.finish(*dir, meta, xattrs))
    }

    fn show(&self, path: &[u8]) -> String {
        self.image.show(path)
    }
}
