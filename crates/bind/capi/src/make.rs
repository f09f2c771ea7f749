//! Making empty volumes. Those that are made of sources: [`crate::build`].

#![allow(unsafe_code)] // names that C calls, and pointers of C

use crate::device::{device, hectare_device};
use crate::failure::{EINVAL, Failure, status};
use crate::memory::{host_path, optional_text, put_options, read_bytes, read_options, utf8};
use crate::progress::watch;
use hectare::inode::BlockSize;
use hectare::mkfs::{Format, FsType, InodeCount};
use std::ffi::{c_char, c_int, c_void};

/// How an empty volume is made. hectare_mkfs_defaults() sets it up; then change what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct hectare_mkfs_options {
    /// sizeof(hectare_mkfs_options): another size is another interface, and refused.
    pub struct_size: usize,
    /// "ext2", "ext3" or "ext4"; NULL: ext4.
    pub fs_type: *const c_char,
    /// The label, up to 16 bytes; NULL: none.
    pub label: *const c_char,
    /// Features by their names in mke2fs, separated by commas, `^` before what is left out; NULL: those of
    /// the type.
    pub features: *const c_char,
    /// 16 bytes; NULL: random.
    pub uuid: *const u8,
    /// How many inodes there are at least; 0: by size.
    pub inodes: u64,
    /// Bytes of a block: a power of two from 1024 to 65536; 0: by size.
    pub block_size: u32,
    /// Percent of the blocks that only root may take: 0 to 50. 5, unless changed.
    pub reserved_percent: u32,
    /// Permission bits of the root directory. 0755, unless changed.
    pub root_mode: u32,
    /// Who owns the root directory.
    pub root_uid: u32,
    /// The group of the root directory.
    pub root_gid: u32,
    /// Not 0: a file or a volume that is there is replaced.
    pub replace: c_int,
    /// As in hectare_build_options, without the call at the beginning. A call that was cancelled fails
    /// with ECANCELED: there is no new file, and one that was to be replaced is as it was; a device is as it
    /// was, or holds no volume. NULL: none.
    pub progress: Option<extern "C" fn(user: *mut c_void, done: u64, total: u64) -> c_int>,
    /// What `progress` is called with.
    pub user: *mut c_void,
}

impl hectare_mkfs_options {
    const fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            fs_type: std::ptr::null(),
            label: std::ptr::null(),
            features: std::ptr::null(),
            uuid: std::ptr::null(),
            inodes: 0,
            block_size: 0,
            reserved_percent: 5,
            root_mode: 0o755,
            root_uid: 0,
            root_gid: 0,
            replace: 0,
            progress: None,
            user: std::ptr::null_mut(),
        }
    }

    fn format(&self) -> Result<Format, Failure> {
        let Self { fs_type, label, features, uuid, block_size, .. } = *self;
        let format = Format::new()
            .reserved_percent(self.reserved_percent.into())
            .root_owner(self.root_uid, self.root_gid)
            .replace(self.replace != 0)
            .watch(&watch(self.progress, self.user));
        let mode = u16::try_from(self.root_mode).ok().filter(|mode| *mode <= 0o7777);
        let mode = mode.ok_or_else(|| Failure::new(EINVAL, "root_mode is more than permission bits"))?;
        let format = format.with_options(|options| {
            options.root_permissions = Some(mode);
            options.inodes = InodeCount::Exactly(self.inodes);
        });
        Described { fs_type, label, features, uuid, block_size }.format(format)
    }
}

/// What the options of making and of building have in common.
pub(crate) struct Described {
    pub(crate) fs_type: *const c_char,
    pub(crate) label: *const c_char,
    pub(crate) features: *const c_char,
    pub(crate) uuid: *const u8,
    pub(crate) block_size: u32,
}

impl Described {
    pub(crate) fn format(&self, mut format: Format) -> Result<Format, Failure> {
        if let Some(name) = optional_text(self.fs_type) {
            let kind = FsType::by_name(utf8(name, "the type")?);
            format = format.fs_type(kind.map_err(|error| Failure::new(EINVAL, error.to_string()))?);
        }
        if let Some(label) = optional_text(self.label) {
            format = format.label(label);
        }
        if let Some(features) = optional_text(self.features) {
            format = format.features(utf8(features, "the list of features")?);
        }
        if let Some(uuid) = read_bytes::<16>(self.uuid) {
            format = format.uuid(uuid);
        }
        if self.block_size != 0 {
            let wrong = || Failure::new(EINVAL, "block_size is no power of two from 1024 to 65536");
            format = format.block_size(BlockSize::from_bytes(self.block_size.into()).ok_or_else(wrong)?);
        }
        Ok(format)
    }
}

/// Sets options to what hectare_mkfs_with() does with NULL: an ext4 volume, in a file that must not exist.
/// `size` is sizeof(hectare_mkfs_options).
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkfs_defaults(to: *mut hectare_mkfs_options, size: usize) -> c_int {
    status(|| put_options(to, size, hectare_mkfs_options::defaults()))
}

/// Makes an empty volume of `size` bytes in a new file, which gets its name when it is complete. `options`
/// may be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkfs_with(
    image: *const c_char,
    size: u64,
    options: *const hectare_mkfs_options,
) -> c_int {
    status(|| {
        let format = read_options(options, hectare_mkfs_options::defaults())?.format()?;
        Ok(format.create(host_path(image, "the image's path")?, size)?)
    })
}

/// hectare_mkfs_with() with three options: `label`, `features` (both may be NULL) and `replace`.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkfs(
    image: *const c_char,
    size: u64,
    label: *const c_char,
    features: *const c_char,
    replace: c_int,
) -> c_int {
    let options = hectare_mkfs_options { label, features, replace, ..hectare_mkfs_options::defaults() };
    hectare_mkfs_with(image, size, &raw const options)
}

/// Makes an empty volume on storage of the caller's, as large as that is, in whole pages of 4096 bytes; the
/// storage is released afterwards, also after an error. `options` may be NULL. Without `replace` storage is
/// refused (EEXIST) that holds something known: a volume, a table of partitions and the like, of any kind.
/// Bytes that are none of that are overwritten.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkfs_device_with(
    from: *const hectare_device,
    options: *const hectare_mkfs_options,
) -> c_int {
    status(|| {
        let device = device(from)?;
        Ok(read_options(options, hectare_mkfs_options::defaults())?.format()?.on_device(&device)?)
    })
}

/// hectare_mkfs_device_with() with one option.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_mkfs_device(from: *const hectare_device, replace: c_int) -> c_int {
    let options = hectare_mkfs_options { replace, ..hectare_mkfs_options::defaults() };
    hectare_mkfs_device_with(from, &raw const options)
}
