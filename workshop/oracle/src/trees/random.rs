//! A small seeded generator, so that trees repeat on every machine and with every library version.
//!
//! SplitMix64 (Steele, Lea and Flood, 2014): enough for test content, useless for secrets.

/// A generator of repeatable numbers and bytes.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers follow from a name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, step)) // FNV-1a
    }

    /// The next number, 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits().checked_rem(bound).unwrap_or(0)
    }

    /// A number below `bound` that fits 32 bits.
    pub fn below32(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(u64::from(bound))).unwrap_or(0)
    }

    /// The next `n` random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..n.div_ceil(8)).flat_map(|_| self.bits().to_le_bytes()).collect();
        bytes.truncate(n);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_repeat_and_differ_by_name() {
        assert_eq!(Random::new("a").bytes(100), Random::new("a").bytes(100));
        assert_ne!(Random::new("a").bytes(100), Random::new("b").bytes(100));
        assert!((0..1000).all(|_| Random::new("c").below(7) < 7));
    }
}
