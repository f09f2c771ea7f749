//! A file in the address space, and what is known of its pages. All access to the memory is in here.

use crate::Span;
use hectare_units::{Bytes, index_of};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::fs::File;
use std::sync::atomic::AtomicU8;

/// The unit in which pages are tracked: what the processor maps as one large page.
pub(super) const WINDOW_LEN: u64 = 2 << 20;

/// A mapping of a whole file; of nothing, if the file is empty or too long.
pub(super) struct Mapping {
    /// The address of its first byte. A number, as no reference into the mapping ever exists.
    address: usize,
    len: Bytes,
    writable: bool,
    /// What is known of each window; what the numbers mean is the device's affair.
    windows: Box<[AtomicU8]>,
}

impl Mapping {
    /// Maps the first `len` bytes of a file, all it has.
    pub(super) fn new(file: &File, len: Bytes, writable: bool) -> Self {
        let address = usize::try_from(len.get()).ok().and_then(|len| map(file, len, writable).ok());
        let len = address.map_or(Bytes::ZERO, |_| len);
        let windows = (0..len.get().div_ceil(WINDOW_LEN)).map(|_| AtomicU8::new(0)).collect();
        Self { address: address.unwrap_or_default(), len, writable, windows }
    }

    /// How much is mapped.
    pub(super) fn len(&self) -> Bytes {
        self.len
    }

    /// What is known of the window that a piece of one window lies in; `None` if that isn't mapped.
    pub(super) fn window_at(&self, piece: Span) -> Option<&AtomicU8> {
        debug_assert!(piece.pieces(WINDOW_LEN).count() <= 1, "a piece lies in one window");
        if !piece.fits(self.len) {
            return None;
        }
        self.windows.get(index_of(piece.at.get() / WINDOW_LEN))
    }

    /// What is known of each window that a range touches.
    pub(super) fn windows_in(&self, span: Span) -> impl Iterator<Item = &AtomicU8> {
        let first = index_of(span.at.get() / WINDOW_LEN).min(self.windows.len());
        let end = span.end().map_or(u64::MAX, Bytes::get).div_ceil(WINDOW_LEN);
        self.windows[first..index_of(end).clamp(first, self.windows.len())].iter()
    }

    /// The window around an offset that is mapped.
    pub(super) fn window_span(&self, at: Bytes) -> Span {
        let start = Bytes::new(at.get() / WINDOW_LEN * WINDOW_LEN);
        Span::new(start, self.len.saturating_sub(start).min(Bytes::new(WINDOW_LEN)))
    }

    /// Lets the processor know the pages of a window that all exist, so that touching them is no fault. False
    /// if they cannot be had.
    #[allow(unsafe_code)] // no safe wrapper of this call exists
    pub(super) fn populate(&self, window: Span) -> bool {
        assert!(window.fits(self.len), "a window of this mapping");
        let advice = if self.writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        let address = self.address + index_of(window.at.get());
        // SAFETY: the range lies inside the mapping, which exists as long as `self`; populating changes no
        // byte.
        let populated = unsafe {
            let start = std::ptr::with_exposed_provenance_mut(address);
            rustix::mm::madvise(start, index_of(window.len.get()), advice)
        };
        // A kernel before 5.14 doesn't know the advice; the pages then fault in one by one.
        matches!(populated, Ok(()) | Err(Errno::INVAL))
    }

    /// Copies from the mapping. The pages must exist, and be locked against writers.
    #[allow(unsafe_code)] // the mapping is no Rust object
    pub(super) fn copy_out(&self, at: Bytes, target: &mut [u8]) {
        let address = self.address_of(at, target.len());
        // SAFETY: the source lies inside the mapping, which is readable, exists as long as `self` and is
        // never lent out, so it cannot overlap `target`; writers of this program are kept out by the locks
        // that the caller holds, others by the lock on the file.
        unsafe {
            let source = std::ptr::with_exposed_provenance::<u8>(address);
            std::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
        }
    }

    /// Copies into the mapping. The pages must exist, and be locked exclusively.
    #[allow(unsafe_code)] // the mapping is no Rust object
    pub(super) fn copy_in(&self, at: Bytes, source: &[u8]) {
        assert!(self.writable, "writes to a read-only device are refused earlier");
        let address = self.address_of(at, source.len());
        // SAFETY: the target lies inside the mapping, which is writable, exists as long as `self` and is
        // never lent out, so it cannot overlap `source`; readers and writers of this program are kept out by
        // the locks that the caller holds, others by the lock on the file.
        unsafe {
            let target = std::ptr::with_exposed_provenance_mut::<u8>(address);
            std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len());
        }
    }

    /// The address of a range, which must be mapped.
    fn address_of(&self, at: Bytes, len: usize) -> usize {
        assert!(Span::new(at, Bytes::of(len)).fits(self.len), "a range of this mapping");
        self.address + index_of(at.get())
    }
}

#[allow(unsafe_code)] // no safe wrapper of this call exists
fn map(file: &File, len: usize, writable: bool) -> rustix::io::Result<usize> {
    let rights = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: the kernel picks an address that nothing else uses.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, rights, flags, file, 0)? };
    Ok(base.expose_provenance())
}

impl Drop for Mapping {
    #[allow(unsafe_code)] // no safe wrapper of this call exists
    fn drop(&mut self) {
        if self.len == Bytes::ZERO {
            return;
        }
        // SAFETY: the range is the mapping this value stands for; nothing points into it.
        let result = unsafe {
            let base = std::ptr::with_exposed_provenance_mut(self.address);
            rustix::mm::munmap(base, index_of(self.len.get()))
        };
        debug_assert_eq!(result, Ok(()), "a whole mapping can always be unmapped");
    }
}

const _: () = assert!(WINDOW_LEN.is_power_of_two());
