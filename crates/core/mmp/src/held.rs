//! A device whose volume is marked as in use while a program changes it that knows of no mark.
//!
//! The block of the protection is kept in memory: the program reads *clean*, and what is written there is
//! kept until the end, while the device has this host's mark. A superblock that names another block, or
//! seals it otherwise, takes the mark with it.
//!
//! A volume that is to be repaired is held by the same device ([`crate::hold_to_repair`]); its block may be
//! damaged, and is then left as the program wrote it, to the byte.
//!
//! Hazards:
//! - The program must write the superblock by itself, at its place, as all of this project do. A log that is
//!   replayed later has the block as the program wrote it.
//! - After another host has written to the block, every change is refused.

use crate::block::{LEN, MmpBlock};
use crate::error::Result;
use crate::guard::{Guard, Options, enter};
use crate::lease::Lease;
use crate::unmarked::Unmarked;
use hectare_device::{Device, Error, Extent, Operation, Reason};
use hectare_ext4::geometry::SUPERBLOCK_OFFSET;
use hectare_ext4::mmp::Mmp;
use hectare_ext4::superblock::{SIZE, SuperBlock};
use hectare_units::{Bytes, index_of};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

/// The device, with a volume that is marked.
pub struct Held {
    inner: Arc<dyn Device>,
    guard: Mutex<Option<Guard>>,
    lease: Arc<Lease>,
    hidden: Mutex<Option<Hidden>>,
    /// Whether it was marked as in use before.
    was_in_use: bool,
}

/// The block as the program knows it.
struct Hidden {
    place: MmpBlock,
    bytes: [u8; LEN],
}

/// What is to be done about the mark at the end.
pub struct Hold(Holding);

enum Holding {
    /// The volume has no such protection.
    Nothing,
    /// The mark is to be taken away.
    Marked(Arc<Held>),
    /// There is no mark, since the block is damaged.
    Unmarked(Arc<dyn Device>, Unmarked),
}

/// Marks the volume on a device as in use, if it has the protection, and gives the device to change it on.
///
/// # Errors
/// [`crate::Error::InUse`] if another host has the volume; the others if it can't be read or written.
pub fn hold(device: &Arc<dyn Device>, options: &Options) -> Result<(Arc<dyn Device>, Hold)> {
    let nothing = || (Arc::clone(device), Hold::NOTHING);
    let mut bytes = [0; SIZE];
    if device.len() < SUPERBLOCK_OFFSET + Bytes::of(SIZE) {
        return Ok(nothing());
    }
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes)?;
    // What is no volume is the program's to refuse.
    let Ok(sb) = SuperBlock::parse(&bytes, device.len()) else { return Ok(nothing()) };
    let Some(place) = MmpBlock::of(&sb) else { return Ok(nothing()) };
    let Some(guard) = enter(device, &sb, options)? else { return Ok(nothing()) };
    let bytes = guard.clean().render(place.seed);
    Ok(Held::over(guard, place, &bytes, false))
}

impl Hold {
    /// That of a volume without the protection.
    pub const NOTHING: Self = Self(Holding::Nothing);

    /// Of a volume whose block is damaged.
    pub(crate) fn unmarked(device: &Arc<dyn Device>, unmarked: Unmarked) -> Self {
        Self(Holding::Unmarked(Arc::clone(device), unmarked))
    }

    /// Why other hosts can't see that the volume is being changed, if they can't.
    #[must_use]
    pub fn why_unmarked(&self) -> Option<&str> {
        match &self.0 {
            Holding::Unmarked(_, unmarked) => Some(unmarked.why()),
            Holding::Nothing | Holding::Marked(_) => None,
        }
    }

    /// Whether the mark of another was there before, which is gone in the end: only a program that repairs asks.
    #[must_use]
    pub fn was_in_use(&self) -> bool {
        matches!(&self.0, Holding::Marked(held) if held.was_in_use)
    }

    /// Looks whether the volume is still this program's, before it changes the first byte of one whose block is
    /// damaged; each change of one that has a mark asks by itself.
    ///
    /// # Errors
    /// [`crate::Error::InUse`] if somebody has written to the block.
    pub fn check(&self) -> Result<()> {
        match &self.0 {
            Holding::Unmarked(device, unmarked) => unmarked.check(&**device),
            Holding::Nothing | Holding::Marked(_) => Ok(()),
        }
    }

    /// Leaves the block as the program wrote it, which is *clean* unless it put back a damaged one, and flushes.
    ///
    /// # Errors
    /// If another host has written to the block ([`crate::Error::InUse`]), or it can't be written.
    pub fn release(self) -> Result<()> {
        let Holding::Marked(held) = self.0 else { return Ok(()) };
        let Some(guard) = held.guard.lock().take() else { return Ok(()) };
        held.inner.flush()?;
        let hidden = held.hidden.lock();
        let clean = guard.clean();
        let last = match &*hidden {
            Some(Hidden { place, bytes }) => Mmp::parse(bytes, place.block, place.seed).unwrap_or(clean),
            None => clean,
        };
        let is_exact = hidden.as_ref().is_none_or(|hidden| last.render(hidden.place.seed) == hidden.bytes);
        if !guard.leave_as(last)? {
            let who = held.lease.lost().unwrap_or_default();
            return Err(crate::Error::InUse(format!(
                "another host has the volume (MMP): {who}; run e2fsck -f"
            )));
        }
        match &*hidden {
            // With names of an earlier user, say.
            Some(hidden) if !is_exact => hidden.place.write_bytes(&*held.inner, &hidden.bytes),
            _ => Ok(()),
        }
    }
}

/// The part of a range that lies in another.
fn shared(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let part = a.start.max(b.start)..a.end.min(b.end);
    (!part.is_empty()).then_some(part)
}

fn range(at: Bytes, len: usize) -> Range<u64> {
    at.get()..at.get().saturating_add(Bytes::of(len).get())
}

impl Held {
    /// A device whose block is in the guard's care; the program finds it as `bytes`.
    pub(crate) fn over(
        guard: Guard,
        place: MmpBlock,
        bytes: &[u8; LEN],
        was_in_use: bool,
    ) -> (Arc<dyn Device>, Hold) {
        let lease = guard.lease();
        let held = Arc::new(Self {
            inner: guard.unfenced(),
            guard: Mutex::new(Some(guard)),
            lease,
            hidden: Mutex::new(Some(Hidden { place, bytes: *bytes })),
            was_in_use,
        });
        (Arc::<Self>::clone(&held), Hold(Holding::Marked(held)))
    }

    /// Whether a range touches the block or the superblock.
    fn is_special(&self, span: &Range<u64>) -> bool {
        let block = self.hidden.lock().as_ref().map(|hidden| range(hidden.place.at, LEN));
        let superblock = range(SUPERBLOCK_OFFSET, SIZE);
        shared(span, &superblock).is_some() || block.is_some_and(|block| shared(span, &block).is_some())
    }

    /// Returns an error if another host has the volume.
    fn refuse_lost(&self, operation: Operation) -> hectare_device::Result<()> {
        self.lease.check(&*self.inner, operation)
    }

    /// Has the mark follow a superblock that is about to be written.
    fn follow(&self, at: Bytes, data: &[u8]) -> hectare_device::Result<()> {
        let Some(start) = SUPERBLOCK_OFFSET.get().checked_sub(at.get()).map(index_of) else { return Ok(()) };
        let Some(bytes) = data.get(start..start + SIZE) else { return Ok(()) };
        let Ok(sb) = SuperBlock::parse(bytes, Bytes::new(u64::MAX)) else { return Ok(()) };
        let place = MmpBlock::of(&sb);
        let mut hidden = self.hidden.lock();
        let old = hidden.as_ref().map(|hidden| (hidden.place, hidden.bytes));
        if old.map(|(place, _)| place) == place {
            return Ok(());
        }
        let next = match (place, old) {
            // Sealed otherwise: the program has written it so before.
            (Some(place), Some((was, bytes))) if place.at == was.at => Some(Hidden { place, bytes }),
            (Some(place), _) => {
                let mut bytes = [0; LEN];
                self.inner.read_at(place.at, &mut bytes)?;
                Some(Hidden { place, bytes })
            }
            (None, _) => None,
        };
        if let Some(guard) = &*self.guard.lock() {
            let unsupported = Reason::Unsupported("the MMP block");
            guard.follow(&sb).map_err(|error| match error {
                crate::Error::Device(error) => error,
                _ => Error::new(self.inner.name(), Operation::Write, None, unsupported),
            })?;
        }
        // The program may have used the old block for something else already.
        if let Some((was, bytes)) = old
            && next.as_ref().is_none_or(|next| next.place.at != was.at)
        {
            self.inner.write_at(was.at, &bytes)?;
        }
        *hidden = next;
        Ok(())
    }

    /// Writes all but the block, which is kept.
    fn write_around(&self, at: Bytes, data: &[u8]) -> hectare_device::Result<()> {
        let span = range(at, data.len());
        let mut hidden = self.hidden.lock();
        let Some((hidden, part)) = hidden.as_mut().and_then(|hidden| {
            let part = shared(&span, &range(hidden.place.at, LEN))?;
            Some((hidden, part))
        }) else {
            drop(hidden);
            return self.inner.write_at(at, data);
        };
        let (from, to) = (index_of(part.start - span.start), index_of(part.end - span.start));
        let within = index_of(part.start - hidden.place.at.get());
        hidden.bytes[within..within + (to - from)].copy_from_slice(&data[from..to]);
        self.inner.write_at(at, &data[..from])?;
        self.inner.write_at(Bytes::new(part.end), &data[to..])
    }

    /// Does something to the parts of a range that the block leaves.
    fn each_part(
        &self,
        at: Bytes,
        len: Bytes,
        act: impl Fn(Bytes, Bytes) -> hectare_device::Result<()>,
    ) -> hectare_device::Result<()> {
        let span = at.get()..at.get().saturating_add(len.get());
        let block = self.hidden.lock().as_ref().map(|hidden| range(hidden.place.at, LEN));
        match block.and_then(|block| shared(&span, &block)) {
            None => act(at, len),
            Some(part) => {
                act(at, Bytes::new(part.start - span.start))?;
                act(Bytes::new(part.end), Bytes::new(span.end - part.end))
            }
        }
    }
}

impl Device for Held {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn len(&self) -> Bytes {
        self.inner.len()
    }

    fn read_at(&self, at: Bytes, buf: &mut [u8]) -> hectare_device::Result<()> {
        self.inner.read_at(at, buf)?;
        let span = range(at, buf.len());
        if let Some(hidden) = &*self.hidden.lock()
            && let Some(part) = shared(&span, &range(hidden.place.at, LEN))
        {
            let within = index_of(part.start - hidden.place.at.get());
            let (from, to) = (index_of(part.start - span.start), index_of(part.end - span.start));
            buf[from..to].copy_from_slice(&hidden.bytes[within..within + (to - from)]);
        }
        Ok(())
    }

    fn write_at(&self, at: Bytes, data: &[u8]) -> hectare_device::Result<()> {
        self.refuse_lost(Operation::Write)?;
        self.follow(at, data)?;
        self.write_around(at, data)
    }

    fn write_durable(&self, at: Bytes, parts: &[IoSlice<'_>]) -> hectare_device::Result<()> {
        let len = parts.iter().map(|part| part.len()).sum();
        if self.is_special(&range(at, len)) {
            self.write_all_at(at, parts)?;
            return self.flush();
        }
        self.refuse_lost(Operation::Write)?;
        self.inner.write_durable(at, parts)
    }

    /// A flush changes nothing, but its caller is promised something that the next owner may undo.
    fn flush(&self) -> hectare_device::Result<()> {
        self.refuse_lost(Operation::Flush)?;
        self.inner.flush()
    }

    fn zero(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
        self.refuse_lost(Operation::Zero)?;
        self.each_part(at, len, |at, len| self.inner.zero(at, len))
    }

    fn discard(&self, at: Bytes, len: Bytes) -> hectare_device::Result<()> {
        self.refuse_lost(Operation::Discard)?;
        self.each_part(at, len, |at, len| self.inner.discard(at, len))
    }

    fn copy_within(&self, from: Bytes, to: Bytes, len: Bytes) -> hectare_device::Result<()> {
        let span = |at: Bytes| at.get()..at.get().saturating_add(len.get());
        self.refuse_lost(Operation::Copy)?;
        if !self.is_special(&span(from)) && !self.is_special(&span(to)) {
            return self.inner.copy_within(from, to, len);
        }
        let mut buffer = vec![0; index_of(len.get())];
        self.read_at(from, &mut buffer)?;
        self.write_at(to, &buffer)
    }

    fn resize(&self, len: Bytes) -> hectare_device::Result<()> {
        self.refuse_lost(Operation::Resize)?;
        self.inner.resize(len)
    }

    fn is_zeroed(&self) -> bool {
        self.inner.is_zeroed()
    }

    fn discards_to_zeros(&self) -> bool {
        self.inner.discards_to_zeros()
    }

    fn extent_at(&self, at: Bytes, len: Bytes) -> hectare_device::Result<Extent> {
        if self.is_special(&(at.get()..at.get().saturating_add(len.get()))) {
            return Ok(Extent::data(len));
        }
        self.inner.extent_at(at, len)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }
}
