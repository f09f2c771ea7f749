//! How sources are read and what is changed in the process.

use super::addition::Addition;
use super::exclude::Excludes;
use super::file_contexts::FileContexts;
use super::modes::ModeChange;
use super::platform::Platform;
use super::spec::Spec;
use crate::time::Timestamp;
use crate::tree::Meta;
use hectare_device::Cancel;
use hectare_mkfs::FormatOptions;
use hectare_units::Bytes;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// How sources are read and what is changed in the process.
#[derive(Clone, Debug)]
pub struct Options {
    /// Give every node this owner and group instead of its own.
    pub owner: Option<(u32, u32)>,
    /// Change permission bits; symbolic links keep theirs.
    pub modes: Option<ModeChange>,
    /// Make times reproducible: a modification time later than this second becomes it, and the other times
    /// become equal to the modification time (`SOURCE_DATE_EPOCH`).
    pub source_date_epoch: Option<i64>,
    /// Keep times in whole seconds and none of creation, as mke2fs does.
    pub whole_seconds: bool,
    /// What the root directory has instead of the metadata of any source.
    pub root: Option<Meta>,
    /// User and group of the root directory, whatever its source says.
    pub root_owner: Option<(u32, u32)>,
    /// Permission bits of the root directory, likewise.
    pub root_mode: Option<u16>,
    /// The file that the image will replace: a directory that holds it is read without it.
    pub replaces: Option<PathBuf>,
    /// Take an owner that has no number in this user namespace for the one that the system reports, as mke2fs
    /// does.
    pub foreign_owners: bool,
    /// Keep no extended attributes.
    pub no_attributes: bool,
    /// What to leave out.
    pub excludes: Excludes,
    /// Threads that scan a directory.
    pub threads: NonZeroUsize,
    /// Where to keep the copy of a stream or compressed archive; the system's temporary directory if `None`.
    pub spool_directory: Option<PathBuf>,
    /// Whether an archive may hold nothing; else that is an error, since disk images look like that.
    pub allow_empty: bool,
    /// Which variant to take of a container image for several platforms; this machine's if `None`.
    pub platform: Option<Platform>,
    /// The limit of what the sources may unpack to: bytes of an archive's copy, and bytes of file data and
    /// directories (4 KiB each) together.
    pub max_size: Option<Bytes>,
    /// Single files, added after the sources in this order.
    pub additions: Vec<Addition>,
    /// What the sources can't say, applied after them in this order.
    pub specs: Vec<Spec>,
    /// Find regular files with the same content, so that an image stores their blocks once.
    pub find_duplicates: bool,
    /// Labels for everything.
    pub labels: Option<Arc<FileContexts>>,
    /// Ends the reading of sources early. Writing ends if the device does
    /// ([`CancelDevice`](hectare_device::CancelDevice)).
    pub cancel: Cancel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            owner: None,
            modes: None,
            source_date_epoch: None,
            whole_seconds: false,
            root: None,
            root_owner: None,
            root_mode: None,
            replaces: None,
            foreign_owners: false,
            no_attributes: false,
            excludes: Excludes::default(),
            threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            spool_directory: None,
            allow_empty: false,
            platform: None,
            max_size: None,
            additions: Vec::new(),
            specs: Vec::new(),
            find_duplicates: false,
            labels: None,
            cancel: Cancel::new(),
        }
    }
}

impl Options {
    /// Where copies of archives are kept.
    pub(super) fn temporary_directory(&self) -> PathBuf {
        self.spool_directory.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The options with what a format says of the root directory.
    #[must_use]
    pub fn for_format(self, format: &FormatOptions) -> Self {
        let root_owner = format.root_owner.or(self.root_owner);
        let root_mode = format.root_permissions.or(self.root_mode);
        Self { root_owner, root_mode, ..self }
    }

    /// The metadata that the root directory gets in the image.
    pub(super) fn root_meta(&self, mut meta: Meta) -> Meta {
        self.adjust(&mut meta, true, false);
        let mut meta = self.root.unwrap_or(meta);
        (meta.uid, meta.gid) = self.root_owner.unwrap_or((meta.uid, meta.gid));
        meta.mode = self.root_mode.unwrap_or(meta.mode);
        meta
    }

    /// The metadata that a node gets in the image.
    pub(super) fn adjust(&self, meta: &mut Meta, is_directory: bool, is_symlink: bool) {
        meta.mode &= 0o7777;
        if let Some((uid, gid)) = self.owner {
            (meta.uid, meta.gid) = (uid, gid);
        }
        if let (Some(modes), false) = (&self.modes, is_symlink) {
            meta.mode = modes.apply(meta.mode, is_directory);
        }
        if let Some(epoch) = self.source_date_epoch {
            let time = meta.mtime.min(Timestamp::at(epoch));
            (meta.atime, meta.mtime, meta.ctime, meta.crtime) = (time, time, time, Some(time));
        }
        if self.whole_seconds {
            let times = [&mut meta.atime, &mut meta.mtime, &mut meta.ctime];
            times.into_iter().for_each(|time| *time = Timestamp::at(time.seconds));
            meta.crtime = None;
        }
    }

    /// The metadata of a directory that no source describes: 0755, root's, as old as `source_date_epoch` or
    /// 1970.
    pub(super) fn default_directory(&self) -> Meta {
        let time = Timestamp::at(self.source_date_epoch.unwrap_or(0));
        Meta { mode: 0o755, uid: 0, gid: 0, atime: time, mtime: time, ctime: time, crtime: None }
    }
}
