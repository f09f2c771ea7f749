//! Images that are made of directories, archives and container images.
//!
//! The bytes are those of the command `hectare build` with the same options, and of Python's: a test compares
//! them.

#![allow(unsafe_code)] // names that C calls

use crate::failure::{EINVAL, Failure, guard, status};
use crate::make::Described;
use crate::memory::{host, host_path, put_options, read_options, texts};
use crate::progress::watch;
use hectare::build::{Excludes, Image, Reference};
use hectare::mkfs::Format;
use hectare::{Size, build};
use std::ffi::{c_char, c_int, c_void};

/// For hectare_build: the smallest size that holds everything.
pub const HECTARE_SIZE_MINIMAL: u64 = 0;
/// For hectare_build: a tenth more than the smallest.
pub const HECTARE_SIZE_AMPLE: u64 = 1;

/// How an image is built. hectare_build_defaults() sets it up; then change what is to differ.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct hectare_build_options {
    /// sizeof(hectare_build_options): another size is another interface, and refused.
    pub struct_size: usize,
    /// HECTARE_SIZE_AMPLE, HECTARE_SIZE_MINIMAL, or bytes of the image.
    pub size: u64,
    /// Bytes that are to be free, beside the content; not 0 only with HECTARE_SIZE_AMPLE.
    pub free: u64,
    /// With a second since 1970 that is not negative no time is later, and the same sources give the same
    /// image. -1: times and the UUID are as they come.
    pub source_date_epoch: i64,
    /// As in hectare_mkfs_options.
    pub fs_type: *const c_char,
    /// As in hectare_mkfs_options.
    pub label: *const c_char,
    /// As in hectare_mkfs_options.
    pub features: *const c_char,
    /// 16 bytes; NULL: random, or by the content with a `source_date_epoch`.
    pub uuid: *const u8,
    /// What is left out: patterns as in .gitignore.
    pub exclude: *const *const c_char,
    /// How many there are.
    pub exclude_count: usize,
    /// As in hectare_mkfs_options.
    pub block_size: u32,
    /// Who owns everything; 4294967295 in both: as in the sources.
    pub uid: u32,
    /// The group of everything.
    pub gid: u32,
    /// Not 0: a file that is there is replaced.
    pub replace: c_int,
    /// Called with `user` once before anything is read, when the first and the last piece of a step is done,
    /// and about ten times a second between, whether or not there is progress; by one thread at a time but by
    /// any. `done` is how much of the step is done, and begins anew with each; `total` is how much there is,
    /// UINT64_MAX where that is not known, and 0 where there is nothing to do. hectare_progress_step() has
    /// the name of the step. Anything but 0 cancels the call at its next checkpoint: it fails with ECANCELED
    /// and leaves no file, or has passed the last one and succeeds. NULL: none.
    pub progress: Option<extern "C" fn(user: *mut c_void, done: u64, total: u64) -> c_int>,
    /// What `progress` is called with.
    pub user: *mut c_void,
}

impl hectare_build_options {
    const fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            size: HECTARE_SIZE_AMPLE,
            free: 0,
            source_date_epoch: -1,
            fs_type: std::ptr::null(),
            label: std::ptr::null(),
            features: std::ptr::null(),
            uuid: std::ptr::null(),
            exclude: std::ptr::null(),
            exclude_count: 0,
            block_size: 0,
            uid: u32::MAX,
            gid: u32::MAX,
            replace: 0,
            progress: None,
            user: std::ptr::null_mut(),
        }
    }

    fn format(&self) -> Result<Format, Failure> {
        let Self { fs_type, label, features, uuid, block_size, .. } = *self;
        // As `hectare build`: what is built has its content already.
        let format = Format::new().reserved_percent(0.0);
        Described { fs_type, label, features, uuid, block_size }.format(format)
    }

    fn size(&self) -> Result<Size, Failure> {
        match (self.size, self.free) {
            (HECTARE_SIZE_AMPLE, 0) => Ok(Size::Ample),
            (HECTARE_SIZE_AMPLE, free) => Ok(Size::Free(free)),
            (_, 1..) => Err(Failure::new(EINVAL, "size and free exclude each other")),
            (HECTARE_SIZE_MINIMAL, 0) => Ok(Size::Minimal),
            (bytes, 0) => Ok(Size::Exactly(bytes)),
        }
    }

    fn image(&self) -> Result<Image, Failure> {
        let mut excludes = Excludes::default();
        for pattern in texts(self.exclude, self.exclude_count)? {
            excludes.add(pattern).map_err(|error| invalid(&error))?;
        }
        let mut image = Image::new().format(self.format()?).size(self.size()?).excludes(excludes);
        match (self.uid, self.gid) {
            (u32::MAX, u32::MAX) => {}
            (u32::MAX, _) | (_, u32::MAX) => {
                return Err(Failure::new(EINVAL, "uid and gid are given both, or neither"));
            }
            (uid, gid) => image = image.owner(uid, gid),
        }
        if self.source_date_epoch >= 0 {
            image = image.source_date_epoch(self.source_date_epoch);
        }
        Ok(image.replace(self.replace != 0).watch(&watch(self.progress, self.user)))
    }
}

fn invalid(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(EINVAL, error.to_string())
}

/// Sets options to what hectare_build_with() does with NULL: an ext4 volume of ample size, of everything in
/// the sources, in a file that must not exist. `size` is sizeof(hectare_build_options).
#[unsafe(no_mangle)]
pub extern "C" fn hectare_build_defaults(to: *mut hectare_build_options, size: usize) -> c_int {
    status(|| put_options(to, size, hectare_build_options::defaults()))
}

/// Makes an image of `count` sources in layers, of which later ones win: each a directory, a tar archive, or
/// a container image (`oci:DIR[:TAG]`, `oci-archive:FILE`, `docker-archive:FILE`). The file gets its name
/// when it is complete, and until then there is none. `options` may be NULL. Returns the size in bytes.
/// ENOENT for a source that is not there, EEXIST for an image that is and is not to be replaced, EBUSY for one
/// that somebody writes to, EINVAL for a size that does not hold everything.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_build_with(
    sources: *const *const c_char,
    count: usize,
    image: *const c_char,
    options: *const hectare_build_options,
) -> i64 {
    guard(-1, || {
        let options = read_options(options, hectare_build_options::defaults())?;
        make(texts(sources, count)?, options.image()?, image)
    })
}

/// hectare_build_with() with three options: `size`, `source_date_epoch` (negative: none) and `replace`.
#[unsafe(no_mangle)]
pub extern "C" fn hectare_build(
    sources: *const *const c_char,
    count: usize,
    image: *const c_char,
    size: u64,
    source_date_epoch: i64,
    replace: c_int,
) -> i64 {
    guard(-1, || {
        let defaults = hectare_build_options::defaults();
        let options = hectare_build_options { size, source_date_epoch, replace, ..defaults };
        make(texts(sources, count)?, options.image()?, image)
    })
}

fn make(sources: Vec<&[u8]>, mut making: Image, image: *const c_char) -> Result<i64, Failure> {
    let image = host_path(image, "the image's path")?;
    if sources.is_empty() {
        return Err(Failure::new(EINVAL, "an image needs a source"));
    }
    for source in sources {
        let path = host(source, "a source's path")?;
        let container = Reference::parse(path.as_os_str()).map_err(|error| invalid(&error))?;
        if container.is_none() {
            // An error that has its number.
            std::fs::metadata(path).map_err(|error| Failure::of_host(path, &error))?;
        }
        making = match container {
            Some(reference) => making.container(reference),
            None if path.is_dir() => making.folder(path),
            None => making.archive(path),
        };
    }
    let built: build::Built = making.create(image)?;
    i64::try_from(built.size).map_err(|_| Failure::new(EINVAL, "the image is too large"))
}
