//! Decodes an input into values.
//!
//! Every take succeeds: an exhausted input gives zeros, so that a short input is a valid one and the fuzzer
//! need not learn lengths first.

/// An input, taken from the front.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// An input to take from.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes.
    pub fn long(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next `N` bytes, zeros where there are fewer.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.bytes(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }

    /// The next bytes, up to `len` of them.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    /// One of a list, which must not be empty.
    pub fn pick<'b, T>(&mut self, of: &'b [T]) -> &'b T {
        &of[usize::from(self.byte()) % of.len()]
    }
}
