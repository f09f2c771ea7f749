//! Archives as files that can be read at any offset.
//!
//! A plain archive in a regular file is used in place. Everything else (a pipe, gzip, zstd, xz, bzip2) is
//! copied once, decompressed, into an unnamed temporary file. Compression is detected by the first bytes;
//! several compressed members in sequence count as one, as for `gzip` and `zstd`.
//!
//! Where several threads may be used, one unpacks, and others hash and write what it got ([`super::sink`]).
//!
//! The layer of a container image ([`layer`]) is compared with its digests meanwhile, and so it is read to
//! its end in any case.
//!
//! Hazard: some kilobytes unpack to any size. Data that does not begin like an archive is not copied further
//! than its start, and a copy takes neither more than the limit nor the last free space of its directory.

use super::blob::Blob;
use super::digest::{Hasher, LayerDigests};
use super::folder::timestamp;
use super::options::Options;
use super::sink::{BUFFER_LEN, Sink};
use super::tar::begins_an_archive;
use crate::error::{Error, ShownPath};
use crate::handle::SourceHandle;
use crate::time::PackedTime;
use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use hectare_device::Cancel;
use hectare_device::os::{FileExt, OsStrExt, borrowed};
use hectare_host::{free_space, stat_open};
use hectare_units::Bytes;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::Scope;

/// The longest signature that is looked for.
const SIGNATURE_LEN: usize = 6;
/// The memory that unpacking xz may take; `xz -9` takes 65 MiB.
const XZ_MEMORY_KIB: u32 = 100 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
}

/// Opens an archive; copies it if it can't be used in place.
pub(crate) fn open(path: &Path, options: &Options) -> Result<SourceHandle, Error> {
    let name = path.as_os_str().as_bytes();
    let failed = |doing: &'static str| move |cause| Error::io(ShownPath::new(name), doing, cause);
    let file = File::open(path).map_err(failed("open"))?;
    let metadata = file.metadata().map_err(failed("open"))?;
    if metadata.is_dir() {
        let reason = "it is a directory, not an archive".into();
        return Err(Error::Refused { path: ShownPath::new(name), reason });
    }
    if !metadata.is_file() {
        return copy(name, file, options);
    }
    let mut head = [0; SIGNATURE_LEN];
    let len = read_head(|buffer, at| file.read_at(buffer, at), &mut head).map_err(failed("read"))?;
    match compression(name, &head[..len])? {
        Compression::None => handle(name, file),
        _ => copy(name, file, options),
    }
}

/// Copies a stream, decompressed, into an unnamed temporary file.
pub(crate) fn copy(name: &[u8], mut from: impl Read, options: &Options) -> Result<SourceHandle, Error> {
    let failed = |doing: &'static str| move |cause| Error::io(ShownPath::new(name), doing, cause);
    let mut head = [0; SIGNATURE_LEN];
    let len = read_head(|buffer, _| from.read(buffer), &mut head).map_err(failed("read"))?;
    let compression = compression(name, &head[..len])?;
    let whole = BufReader::with_capacity(BUFFER_LEN, Cursor::new(head[..len].to_vec()).chain(from));
    let kept = Kept::new(name, options, None)?;
    let (file, _) =
        std::thread::scope(|scope| Unpacker::new(beside(scope, options), kept).unpack(compression, whole))?;
    handle(name, file)
}

/// Opens the layer of a container image; copies it if it is compressed. Compares it with its digests.
pub(crate) fn layer(
    name: &[u8],
    blob: Blob,
    digests: &LayerDigests,
    options: &Options,
) -> Result<SourceHandle, Error> {
    let failed = |cause| Error::io(ShownPath::new(name), "read", cause);
    let read = std::thread::scope(|scope| {
        let beside = beside(scope, options);
        let mut packed =
            Hashed::new(blob.reader().map_err(failed)?, digests.packed_hasher(), beside, &options.cancel);
        let mut head = [0; SIGNATURE_LEN];
        let len = read_head(|buffer, _| packed.read(buffer), &mut head).map_err(failed)?;
        let compression = if len == 0 { Compression::None } else { compression(name, &head[..len])? };
        let start = Cursor::new(head[..len].to_vec());
        let mut whole = BufReader::with_capacity(BUFFER_LEN, start.chain(packed));
        let (source, plain) = match compression {
            Compression::None => {
                let mut plain = Hashed::new(&mut whole, digests.plain_hasher(), None, &options.cancel);
                io::copy(&mut plain, &mut io::sink()).map_err(failed)?;
                let hasher = plain.finish();
                (blob.source(name), hasher)
            }
            _ => {
                let kept = Kept::new(name, options, Some(digests.unpacked_hasher()))?;
                let (file, hasher) = Unpacker::new(beside, kept).unpack(compression, &mut whole)?;
                // What is behind the last compressed member counts for the digest of the whole.
                io::copy(&mut whole, &mut io::sink()).map_err(failed)?;
                (handle(name, file)?, hasher)
            }
        };
        let packed = whole.into_inner().into_inner().1.finish();
        let refused = |reason| Error::Refused { path: ShownPath::new(name), reason };
        digests.check(packed, plain).map_err(refused)?;
        Ok(source)
    });
    read.map_err(|error| Error::unless(&options.cancel).err().unwrap_or(error))
}

/// Where threads may be started that hash and write beside the one that unpacks, if there may be several.
fn beside<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    options: &Options,
) -> Option<&'scope Scope<'scope, 'env>> {
    (options.threads.get() > 1).then_some(scope)
}

/// A reader that hashes what it passes on.
struct Hashed<'scope, R> {
    from: R,
    /// Asked at each read.
    cancel: Cancel,
    hasher: Option<Sink<'scope, Hasher>>,
}

impl<'scope, R> Hashed<'scope, R> {
    fn new(
        from: R,
        hasher: Option<Hasher>,
        beside: Option<&'scope Scope<'scope, '_>>,
        cancel: &Cancel,
    ) -> Self {
        let update = |hasher: &mut Hasher, bytes: &[u8]| {
            hasher.update(bytes);
            true
        };
        let hasher = hasher.map(|hasher| Sink::new(beside, hasher, update));
        Self { from, cancel: cancel.clone(), hasher }
    }

    fn finish(self) -> Option<Hasher> {
        self.hasher.map(Sink::finish)
    }
}

impl<R: Read> Read for Hashed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            // What it leads to is replaced by the error of a cancelled call.
            return Err(io::Error::other("cancelled"));
        }
        let len = self.from.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.copy(&buffer[..len]);
        }
        Ok(len)
    }
}

/// The unpacked archive in an unnamed temporary file.
struct Kept {
    name: Box<[u8]>,
    folder: PathBuf,
    to: File,
    /// Bytes written.
    len: Bytes,
    /// Bytes that may be taken of the directory's free space, and in total.
    room: Bytes,
    limit: Option<Bytes>,
    cancel: Cancel,
    /// Hashes what is written.
    hasher: Option<Hasher>,
    failed: Option<Error>,
}

/// The part of a file system's free space that a copy may take: all but a sixteenth.
fn room(file: &File) -> Bytes {
    let free = free_space(file).unwrap_or(u64::MAX);
    Bytes::new(free - free / 16)
}

fn shown(path: &Path) -> ShownPath {
    ShownPath::new(path.as_os_str().as_bytes())
}

impl Kept {
    fn new(name: &[u8], options: &Options, hasher: Option<Hasher>) -> Result<Self, Error> {
        let folder = options.temporary_directory();
        let to = tempfile::tempfile_in(&folder)
            .map_err(|cause| Error::io(shown(&folder), "make a temporary file", cause))?;
        let (room, limit, cancel) = (room(&to), options.max_size, options.cancel.clone());
        let (name, len) = (name.into(), Bytes::ZERO);
        Ok(Self { name, folder, to, len, room, limit, cancel, hasher, failed: None })
    }

    /// Writes the next bytes; false if that failed.
    fn take(&mut self, bytes: &[u8]) -> bool {
        self.failed = self.write(bytes).err();
        self.failed.is_none()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        Error::unless(&self.cancel)?;
        self.len += Bytes::of(bytes.len());
        if let Some(limit) = self.limit.filter(|limit| self.len > *limit) {
            return Err(Error::TooLarge { path: ShownPath::new(&self.name), limit });
        }
        if self.len > self.room {
            return Err(Error::NoRoom {
                folder: shown(&self.folder),
                archive: ShownPath::new(&self.name),
                limit: self.room,
            });
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        self.to.write_all(bytes).map_err(|cause| {
            let folder = shown(&self.folder);
            Error::io(folder, "keep a copy of the archive in a temporary file", cause)
        })
    }
}

/// Why unpacking ended early.
enum Stop {
    /// It failed.
    Failed(Error),
    /// The copy could not be written; it has the reason.
    NotKept,
}

struct Unpacker<'scope> {
    name: Box<[u8]>,
    kept: Sink<'scope, Kept>,
    /// Whether nothing was passed on yet.
    is_start: bool,
    /// Everything is copied, be it an archive or not.
    whole: bool,
}

impl<'scope> Unpacker<'scope> {
    fn new(beside: Option<&'scope Scope<'scope, '_>>, kept: Kept) -> Self {
        let (name, whole) = (kept.name.clone(), kept.hasher.is_some());
        Self { name, kept: Sink::new(beside, kept, Kept::take), is_start: true, whole }
    }

    /// Copies everything, decompressed; gives the copy and what hashed it.
    fn unpack(
        mut self,
        compression: Compression,
        from: impl BufRead,
    ) -> Result<(File, Option<Hasher>), Error> {
        let unpacked = match compression {
            Compression::None => self.copy(from).map(drop),
            Compression::Gzip => self.copy(MultiGzDecoder::new(from)).map(drop),
            Compression::Zstd => self.copy_zstd(from),
            Compression::Xz => self.copy(XzReader::new_mem_limit(from, true, XZ_MEMORY_KIB)).map(drop),
            Compression::Bzip2 => self.copy(MultiBzDecoder::new(from)).map(drop),
        };
        // An error of the copy is one of bytes before those that could not be unpacked.
        let kept = self.kept.finish();
        match (kept.failed, unpacked) {
            (Some(error), _) | (None, Err(Stop::Failed(error))) => Err(error),
            (None, Ok(()) | Err(Stop::NotKept)) => Ok((kept.to, kept.hasher)),
        }
    }

    /// Copies everything, or just the start of what is no archive; returns whether there may be more.
    fn copy(&mut self, mut from: impl Read) -> Result<bool, Stop> {
        loop {
            let mut buffer = self.kept.buffer();
            let read = read_head(|buffer, _| from.read(buffer), &mut buffer);
            let len = read.map_err(|cause| self.unreadable(cause))?;
            let is_start = std::mem::replace(&mut self.is_start, false);
            let (is_last, is_other) =
                (len < buffer.len(), is_start && !self.whole && !begins_an_archive(&buffer[..len]));
            if !self.kept.pass(buffer, len) {
                return Err(Stop::NotKept);
            }
            if is_last {
                return Ok(true);
            }
            if is_other {
                return Ok(false);
            }
        }
    }

    fn copy_zstd(&mut self, mut from: impl BufRead) -> Result<(), Stop> {
        while !from.fill_buf().map_err(|cause| self.unreadable(cause))?.is_empty() {
            let mut decoder = match StreamingDecoder::new(&mut from) {
                Ok(decoder) => decoder,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = io::copy(&mut (&mut from).take(u64::from(length)), &mut io::sink());
                    skipped.map_err(|cause| self.unreadable(cause))?;
                    continue;
                }
                Err(error) => return Err(self.unreadable(io::Error::other(error))),
            };
            if !self.copy(&mut decoder)? {
                return Ok(());
            }
            let frame = decoder.into_frame_decoder();
            let (stored, computed) = (frame.get_checksum_from_data(), frame.get_calculated_checksum());
            if stored.is_some() && stored != computed {
                return Err(self.unreadable(io::Error::other("a checksum does not match")));
            }
        }
        Ok(())
    }

    fn unreadable(&self, cause: io::Error) -> Stop {
        let name = ShownPath::new(&self.name);
        Stop::Failed(match cause.kind() {
            _ if is_early_end(&cause) => {
                Error::Refused { path: name, reason: "the compressed archive is truncated".into() }
            }
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
                Error::Refused { path: name, reason: format!("it can't be unpacked: {cause}").into() }
            }
            _ => Error::io(name, "read", cause),
        })
    }
}

/// Whether the data ended too early, maybe as the cause of another error.
fn is_early_end(error: &io::Error) -> bool {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::UnexpectedEof)
}

/// Reads until `head` is full or the end.
fn read_head(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    head: &mut [u8],
) -> io::Result<usize> {
    let mut len = 0;
    while len < head.len() {
        match read(&mut head[len..], Bytes::of(len).get()) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(len)
}

/// The compression, if it can be unpacked here; everything else is left to the reader of archives.
fn compression(name: &[u8], head: &[u8]) -> Result<Compression, Error> {
    Ok(match head {
        [] => {
            let reason = "it is empty, not an archive".into();
            return Err(Error::Refused { path: ShownPath::new(name), reason });
        }
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or a frame to be skipped (0x184D2A50 to 0x184D2A5F, little-endian).
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, ..] => Compression::Bzip2,
        _ => Compression::None,
    })
}

fn handle(name: &[u8], file: File) -> Result<SourceHandle, Error> {
    let stat = stat_open(borrowed(&file))
        .map_err(|errno| Error::io(ShownPath::new(name), "read the metadata", errno))?;
    let mtime = PackedTime::new(timestamp(stat.mtime));
    let (len, range) = (Bytes::new(stat.size), 0..stat.size);
    Ok(SourceHandle::Archive { file, name: name.into(), range, len, mtime })
}
