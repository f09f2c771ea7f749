//! qcow2, by the crate `imago`: its maps, its caches and the order in which it writes them.
//!
//! What is ours: which files an image may name ([`Backing`]), what is refused before it is opened, the lock (the
//! [`FileDevice`] keeps it, and `imago` works on the same open file), and the rules of [`Device`].
//!
//! Facts: "qcow2" in QEMU's documentation.

mod counts;

use crate::backing::Backing;
use crate::error::{Error, Result, check, io};
use crate::named::Named;
use hectare_device::os::borrowed;
use hectare_device::{Claim, Device, Extent, FileDevice, FileOptions, Operation, Span};
use hectare_probe::record::record;
use hectare_units::{Bytes, index_of};
use imago::file::File;
use imago::format::PreallocateMode;
use imago::format::gate::ImplicitOpenGate;
use imago::qcow2::Qcow2;
use imago::{FormatAccess, FormatCreateBuilder, FormatDriverBuilder, Mapping, Storage, StorageOpenOptions};
use parking_lot::RwLock;
use std::cell::Cell;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How many files a chain of backing files may have.
pub(crate) const CHAIN_MAX: u32 = 200;
pub(crate) const MAGIC: &[u8] = b"QFI\xfb";
/// The longest name of a backing file.
const NAME_MAX: u32 = 1023;

/// Offsets of fields of the header.
const CRYPT: usize = 32;
const SNAPSHOTS: usize = 60;
const INCOMPATIBLE: usize = 72;
const DIRTY: u64 = 1;
const CORRUPT: u64 = 2;
const HEADER_LEN: usize = 100;
const CLUSTER_MAX: u64 = 2 << 20;
/// The unit of a disk's size: qemu leaves out what is beyond the last whole one.
const SECTOR: u64 = 512;
/// In an entry of the first level of the map: where the table is.
const TABLE_AT: u64 = 0x00ff_ffff_ffff_fe00;
/// Bytes of the first level that are read at a time.
const L1_CHUNK: u64 = 64 << 10;

/// The extension of a header that names features, and the bytes of an entry of it.
const FEATURE_NAMES: u32 = 0x6803_f857;
const FEATURE_NAME: usize = 48;

type Image = FormatAccess<File>;

/// The disk of a qcow2 image. Dropping it writes the caches (`imago` does), so that what was written belongs to
/// the file, durable or not, as with every other device.
pub(crate) struct Qcow2Device {
    name: String,
    read_only: bool,
    zeroed: bool,
    /// Bytes of the largest clusters of the chain.
    cluster: u64,
    /// What changes which clusters are in use excludes all else.
    image: RwLock<Image>,
    /// Keeps the lock on the file.
    _claim: Claim,
}

impl Qcow2Device {
    pub(crate) fn open(file: FileDevice, path: &Path, backing: Backing, named: Named) -> Result<Self> {
        let cluster = admit(&file)?;
        Self::admitted(&file, path, backing, named, cluster)
    }

    pub(crate) fn create(file: &FileDevice, path: &Path, size: Bytes) -> Result<Self> {
        let failed = |error: IoError| Error::new(file.name(), one_line(&error));
        if !size.get().is_multiple_of(SECTOR) {
            let what = format!(
                "a qcow2 disk has whole sectors of {SECTOR} bytes, and this one would have {size} bytes"
            );
            return Err(Error::new(file.name(), what));
        }
        let claim = file.claim().map_err(failed)?;
        let storage = storage(&claim, path, true).map_err(failed)?;
        Qcow2::<File>::create_builder(storage).size(size.get()).create().map_err(failed)?;
        let cluster = check_tables(file)?;
        let mut made = Self::admitted(file, path, Backing::Beside, Named::default(), cluster)?;
        made.zeroed = true;
        Ok(made)
    }

    /// Opens a file that may be opened, with its clusters' length.
    fn admitted(
        file: &FileDevice,
        path: &Path,
        backing: Backing,
        named: Named,
        cluster: u64,
    ) -> Result<Self> {
        let (name, read_only) = (file.name().to_owned(), file.is_read_only());
        let failed = |error: IoError| {
            Error::new(&name, format!("the qcow2 image can't be opened: {}", one_line(&error)))
        };
        let claim = file.claim().map_err(failed)?;
        let storage = storage(&claim, path, !read_only).map_err(failed)?;
        let largest = Rc::new(Cell::new(cluster));
        let gate =
            Gate { directory: directory_of(path), backing, left: CHAIN_MAX, named, largest: largest.clone() };
        let image = Qcow2::<File>::builder(storage).write(!read_only).open(gate).map_err(failed)?;
        Ok(Self {
            name,
            read_only,
            zeroed: false,
            cluster: largest.get(),
            image: RwLock::new(FormatAccess::new(image)),
            _claim: claim,
        })
    }

    /// Does something with the image, for a range that fits.
    fn with<T>(
        &self,
        operation: Operation,
        span: Span,
        deed: impl FnOnce(&Image) -> IoResult<T>,
    ) -> hectare_device::Result<T> {
        check(self, operation, span)?;
        deed(&self.image.read()).map_err(|error| io(&self.name, operation, span, &error))
    }
}

/// Refuses what can't be read or written safely. Returns the bytes of a cluster.
fn admit(file: &FileDevice) -> Result<u64> {
    let cluster = check_tables(file)?;
    let refuse = |what: &str| Err(Error::new(file.name(), what));
    let Some(head) = record(file, 0, 104)? else { return refuse("the qcow2 image is cut off") };
    if head.be32(4) < 2 {
        return refuse("it is a qcow image of version 1: qemu-img convert makes a qcow2 of it");
    }
    if head.be32(CRYPT) != 0 {
        return refuse("the qcow2 image is encrypted: qemu-img convert decrypts it");
    }
    let incompatible = if head.be32(4) >= 3 { head.be64(INCOMPATIBLE) } else { 0 };
    if incompatible & CORRUPT != 0 {
        return refuse("the qcow2 image is marked as corrupt: qemu-img check -r all mends it");
    }
    if file.is_read_only() {
        return Ok(cluster);
    }
    if incompatible & DIRTY != 0 {
        return refuse("the qcow2 image was not closed: qemu-img check -r all mends it");
    }
    counts::check(file)?;
    if head.be32(SNAPSHOTS) != 0 {
        return refuse(
            "the qcow2 image has snapshots, which writing would have to copy: qemu-img snapshot -d removes \
             one, qemu-img convert makes an image without",
        );
    }
    Ok(cluster)
}

/// The file that a qcow2 says it is backed by; `None` where there is none, or the file is no qcow2.
pub(crate) fn backing_of(file: &FileDevice) -> Result<Option<PathBuf>> {
    let Some(head) = record(file, 0, 104)?.filter(|head| head.bytes(0, 4) == MAGIC) else { return Ok(None) };
    let (at, len) = (head.be64(8), head.be32(16));
    if at == 0 || len == 0 || len > NAME_MAX {
        return Ok(None);
    }
    let name = record(file, at, hectare_units::usize_of(len))?;
    let name = name.and_then(|name| String::from_utf8(name.bytes(0, name.len()).to_vec()).ok());
    Ok(name.map(PathBuf::from))
}

/// Refuses tables that lie beyond the end of the file: `imago` would take memory for them, or read them as zeros.
/// Returns the bytes of a cluster; 1 if the file is no qcow2.
fn check_tables(file: &FileDevice) -> Result<u64> {
    let Some(head) = record(file, 0, 72)?.filter(|head| head.bytes(0, 4) == MAGIC) else { return Ok(1) };
    let cluster = 1_u64.checked_shl(head.be32(20)).unwrap_or(u64::MAX);
    let room = file.len().get().saturating_add(cluster);
    let l1 = (head.be64(40), u64::from(head.be32(36)) * 8);
    let counts = (head.be64(48), u64::from(head.be32(56)).saturating_mul(cluster));
    if [l1, counts].iter().any(|(at, len)| at.checked_add(*len).is_none_or(|end| end > room)) {
        return Err(Error::new(file.name(), "the qcow2 image is damaged: its tables lie beyond its end"));
    }
    check_second_level(file, l1, cluster)?;
    check_extensions(file, cluster)?;
    Ok(cluster)
}

/// Refuses a map whose second level the file has no more, whole: all disk behind it would read as zeros.
fn check_second_level(file: &FileDevice, (at, len): (u64, u64), cluster: u64) -> Result<()> {
    let stored = file.len().get().saturating_sub(at).min(len);
    for done in (0..stored).step_by(index_of(L1_CHUNK)) {
        let Some(part) = record(file, at + done, index_of(L1_CHUNK.min(stored - done)))? else { break };
        let tables = (0..part.len() / 8).map(|index| part.be64(index * 8) & TABLE_AT);
        if tables.filter(|table| *table != 0).any(|table| table.saturating_add(cluster) > file.len().get()) {
            return Err(Error::new(
                file.name(),
                "the qcow2 image is cut off: a table of its map is not there",
            ));
        }
    }
    Ok(())
}

/// Refuses a table of feature names whose last entry is not whole, at which `imago` panics. What it refuses itself
/// (extensions beyond the first cluster, sizes that can't be) is left to it.
fn check_extensions(file: &FileDevice, cluster: u64) -> Result<()> {
    let Some(head) = record(file, 0, 104)?.filter(|head| head.be32(4) == 3) else { return Ok(()) };
    let start = u64::from(head.be32(HEADER_LEN));
    let room = cluster.min(CLUSTER_MAX).min(file.len().get()).saturating_sub(start);
    let Some(extensions) = record(file, start, index_of(room))? else { return Ok(()) };
    let mut at = 0;
    while at + 8 <= extensions.len() {
        let (kind, len) = (extensions.be32(at), hectare_units::usize_of(extensions.be32(at + 4)));
        if kind == 0 {
            break;
        }
        if kind == FEATURE_NAMES && len % FEATURE_NAME != 0 {
            let what = "the qcow2 image is damaged: its table of feature names is cut off";
            return Err(Error::new(file.name(), what));
        }
        at = at.saturating_add(8).saturating_add(len.next_multiple_of(8));
    }
    Ok(())
}

/// Refuses to read clusters that the file has no byte of, which `imago` reads as zeros: it is cut off. The last
/// cluster of a file may be shorter than others: programs leave out the zeros at its end.
fn check_is_there(image: &Image, span: Span, cluster: u64) -> IoResult<()> {
    let (mut at, mut left) = (span.at.get(), span.len.get());
    while left > 0 {
        let (mapping, known) = image.get_mapping(at, left)?;
        if let Mapping::Raw { storage, offset, .. } = mapping {
            let last = offset.saturating_add(known.saturating_sub(1));
            if last / cluster * cluster >= storage.size()? {
                let what =
                    format!("its map leads to byte {offset}, beyond the end of the file: it is cut off");
                return Err(IoError::other(what));
            }
        }
        let known = known.clamp(1, left);
        (at, left) = (at + known, left - known);
    }
    Ok(())
}

/// The file as `imago` wants it, on the same open file.
fn storage(claim: &Claim, path: &Path, write: bool) -> IoResult<File> {
    let file = borrowed(claim).try_clone_to_owned()?;
    File::from_open_file(file.into(), StorageOpenOptions::new().filename(path).write(write))
}

pub(crate) fn directory_of(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()?.parent().map(Path::to_owned)
}

/// Errors of `imago` name places on several lines.
fn one_line(error: &IoError) -> String {
    error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// What an image may have opened: files in its own directory, or all.
struct Gate {
    directory: Option<PathBuf>,
    backing: Backing,
    left: u32,
    named: Named,
    /// Bytes of the largest clusters of what was opened.
    largest: Rc<Cell<u64>>,
}

impl Gate {
    fn admit(&self, path: Option<PathBuf>) -> IoResult<PathBuf> {
        let refuse = |what: String| Err(IoError::new(ErrorKind::PermissionDenied, what));
        let Some(path) = path else { return refuse("it names something that is no file".to_owned()) };
        if self.left == 0 {
            return refuse(format!(
                "there are more than {CHAIN_MAX} backing files, or they lead in a circle"
            ));
        }
        // A path without a directory, such as that of a deleted file, lies beside nothing.
        let is_beside = self.directory.is_some() && directory_of(&path) == self.directory;
        if self.backing == Backing::Anywhere || is_beside {
            return Ok(path);
        }
        if !path.exists() {
            return refuse(format!("it is backed by {}, which is not there", path.display()));
        }
        refuse(format!(
            "it is backed by {}, which does not lie beside it: --backing lets it be opened",
            path.display()
        ))
    }
}

#[allow(clippy::needless_pass_by_value)] // shaped for map_err
fn other(error: impl std::fmt::Display) -> IoError {
    IoError::other(error.to_string())
}

impl ImplicitOpenGate<File> for Gate {
    fn open_format<F: FormatDriverBuilder<File>>(&mut self, builder: F) -> IoResult<Image> {
        if let Some(path) = builder.get_image_path() {
            let _ = self.admit(Some(path))?;
        }
        let (directory, left) = (self.directory.clone(), self.left.saturating_sub(1));
        let named = std::mem::take(&mut self.named);
        let gate = Self { directory, backing: self.backing, left, named, largest: self.largest.clone() };
        Ok(FormatAccess::new(builder.open(gate)?))
    }

    fn open_storage(&mut self, builder: StorageOpenOptions) -> IoResult<File> {
        let path = self.admit(builder.get_filename().map(Path::to_owned))?;
        let file = match self.named.take(&path).map_err(other)? {
            Some(file) => file,
            None => FileOptions::new().exclusive(false).open(&path).map_err(other)?,
        };
        self.largest.set(self.largest.get().max(check_tables(&file).map_err(other)?));
        // The lock belongs to the open file, which this is as well.
        let claim = file.claim()?;
        File::from_open_file(borrowed(&claim).try_clone_to_owned()?.into(), builder)
    }
}

impl Device for Qcow2Device {
    fn name(&self) -> &str {
        &self.name
    }

    fn len(&self) -> Bytes {
        Bytes::new(self.image.read().size())
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> hectare_device::Result<()> {
        let span = Span::new(at, Bytes::of(buf.len()));
        self.with(Operation::Read, span, |image| {
            check_is_there(image, span, self.cluster)?;
            image.read(buf, at.get())
        })
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> hectare_device::Result<Extent> {
        let span = Span::new(at, len);
        if len == Bytes::ZERO {
            return check(self, Operation::Read, span).map(|()| Extent::data(len));
        }
        self.with(Operation::Read, span, |image| {
            let (mapping, known) = image.get_mapping(at.get(), len.get())?;
            let is_zero = matches!(mapping, Mapping::Zero { .. });
            Ok(Extent { len: Bytes::new(known.min(len.get())), is_zero })
        })
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> hectare_device::Result<()> {
        let span = Span::new(at, Bytes::of(data.len()));
        self.with(Operation::Write, span, |image| image.write(data, at.get()))
    }

    fn flush(&self) -> hectare_device::Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.with(Operation::Flush, Span::default(), |image| image.flush().and_then(|()| image.sync()))
    }

    fn zero(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
        self.with(Operation::Zero, Span::new(at, len), |image| image.write_zeroes(at.get(), len.get()))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
        let span = Span::new(at, len);
        check(self, Operation::Discard, span)?;
        let mut image = self.image.write();
        let discarded = image.discard_to_any(at.get(), len.get());
        discarded.map_err(|error| io(&self.name, Operation::Discard, span, &error))
    }

    fn resize(&self, len: Bytes) -> hectare_device::Result<()> {
        let span = Span::new(Bytes::ZERO, len);
        check(self, Operation::Resize, Span::default())?;
        if !len.get().is_multiple_of(SECTOR) {
            let what = IoError::other(format!("a qcow2 disk has whole sectors of {SECTOR} bytes"));
            return Err(io(&self.name, Operation::Resize, span, &what));
        }
        let mut image = self.image.write();
        let resized = image.resize(len.get(), PreallocateMode::Zero);
        resized.map_err(|error| io(&self.name, Operation::Resize, span, &error))
    }

    fn is_zeroed(&self) -> bool {
        self.zeroed
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }
}
