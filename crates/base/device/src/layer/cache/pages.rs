//! Pages in memory, of which those go that were not used for longest.

use crate::Span;
use hectare_units::{index_of, u64_of};
use std::collections::{BTreeMap, HashMap};
use std::io::IoSlice;

/// What a page takes besides its bytes, roughly.
const PAGE_COST: usize = 128;

struct Page {
    /// Fewer than a page's for the last of the device.
    bytes: Box<[u8]>,
    used: u64,
}

/// Pages by number.
pub(super) struct Pages {
    len: usize,
    most: usize,
    pages: HashMap<u64, Page>,
    /// Their numbers by when they were used.
    order: BTreeMap<u64, u64>,
    time: u64,
}

impl Pages {
    /// No pages of `len` bytes each, and later as many as fit in `bytes`.
    pub(super) fn new(len: usize, bytes: usize) -> Self {
        let most = bytes / (len + PAGE_COST);
        Self { len, most, pages: HashMap::new(), order: BTreeMap::new(), time: 0 }
    }

    fn numbers(&self, at: u64, len: usize) -> std::ops::Range<u64> {
        let page = u64_of(self.len);
        at / page..(at + u64_of(len)).div_ceil(page)
    }

    /// Reads a range if all of it is here; whether it is.
    pub(super) fn read(&mut self, at: u64, buf: &mut [u8]) -> bool {
        let numbers = self.numbers(at, buf.len());
        if !numbers.clone().all(|number| self.pages.contains_key(&number)) {
            return false;
        }
        let len = u64_of(self.len);
        for number in numbers {
            self.time += 1;
            let Some(page) = self.pages.get_mut(&number) else { return false };
            self.order.remove(&page.used);
            page.used = self.time;
            self.order.insert(self.time, number);
            let start = number * len;
            let (from, to) = (start.max(at), (start + u64_of(page.bytes.len())).min(at + u64_of(buf.len())));
            buf[index_of(from - at)..index_of(to - at)]
                .copy_from_slice(&page.bytes[index_of(from - start)..index_of(to - start)]);
        }
        true
    }

    /// Puts whole pages in.
    pub(super) fn insert(&mut self, span: Span, bytes: &[u8]) {
        let first = span.at.get() / u64_of(self.len);
        for (number, bytes) in (first..).zip(bytes.chunks(self.len)) {
            self.time += 1;
            let page = Page { bytes: bytes.into(), used: self.time };
            if let Some(old) = self.pages.insert(number, page) {
                self.order.remove(&old.used);
            }
            self.order.insert(self.time, number);
        }
        while self.pages.len() > self.most {
            let Some((_, number)) = self.order.pop_first() else { return };
            self.pages.remove(&number);
        }
    }

    /// Gives the pages that a range touches, with the part of each, to `work`.
    fn each(&mut self, at: u64, len: u64, mut work: impl FnMut(&mut [u8], u64)) {
        let page_len = u64_of(self.len);
        let mut change = |number: u64, page: &mut Page| {
            let start = number * page_len;
            let (from, to) = (start.max(at), (start + u64_of(page.bytes.len())).min(at + len));
            if from < to {
                work(&mut page.bytes[index_of(from - start)..index_of(to - start)], from);
            }
        };
        let numbers = at / page_len..(at + len).div_ceil(page_len);
        // A range can be an exabyte.
        if numbers.end - numbers.start > u64_of(self.pages.len()) {
            let inside = self.pages.iter_mut().filter(|(number, _)| numbers.contains(number));
            inside.for_each(|(number, page)| change(*number, page));
            return;
        }
        for number in numbers {
            if let Some(page) = self.pages.get_mut(&number) {
                change(number, page);
            }
        }
    }

    /// Changes bytes of pages that are here.
    pub(super) fn change(&mut self, at: u64, data: &[u8]) {
        self.each(at, u64_of(data.len()), |bytes, from| {
            let start = index_of(from - at);
            bytes.copy_from_slice(&data[start..start + bytes.len()]);
        });
    }

    /// Likewise, with what lies in several buffers.
    pub(super) fn change_parts(&mut self, at: u64, parts: &[IoSlice<'_>]) {
        let mut at = at;
        for part in parts {
            self.change(at, part);
            at += u64_of(part.len());
        }
    }

    /// Zeros bytes of pages that are here.
    pub(super) fn zero(&mut self, span: Span) {
        self.each(span.at.get(), span.len.get(), |bytes, _| bytes.fill(0));
    }

    /// Drops the pages that a range touches.
    pub(super) fn remove(&mut self, span: Span) {
        let page = u64_of(self.len);
        let (first, end) = (span.at.get() / page, (span.at.get() + span.len.get()).div_ceil(page));
        let inside = |number: &u64| (first..end).contains(number);
        let gone: Vec<u64> = if end - first > u64_of(self.pages.len()) {
            self.pages.keys().copied().filter(inside).collect()
        } else {
            (first..end).collect()
        };
        for number in gone {
            if let Some(page) = self.pages.remove(&number) {
                self.order.remove(&page.used);
            }
        }
    }

    /// Drops all pages.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.order.clear();
    }
}
