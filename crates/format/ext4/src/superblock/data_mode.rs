//! The data modes: what a journal guarantees for file data, and which mode the superblock asks for.

use super::SuperBlock;

/// The bits of `s_default_mount_opts` that name a mode (`EXT4_DEFM_JMODE`).
const MASK: u32 = 0x60;

/// What a journal promises of file data (the mount option `data`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DataMode {
    /// Data goes through the journal, as metadata does.
    Journal,
    /// Data is in its place before a transaction that names it is durable.
    #[default]
    Ordered,
    /// Data may come after the transaction that names it: a crash may show what was in its place before.
    Writeback,
}

impl DataMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Journal, Self::Ordered, Self::Writeback];

    /// What the mount option calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Ordered => "ordered",
            Self::Writeback => "writeback",
        }
    }

    /// The bits that ask for it (`EXT4_DEFM_JMODE_DATA`, `_ORDERED`, `_WBACK`).
    const fn bits(self) -> u32 {
        match self {
            Self::Journal => 0x20,
            Self::Ordered => 0x40,
            Self::Writeback => 0x60,
        }
    }
}

impl SuperBlock {
    /// The mode that `s_default_mount_opts` asks for, if it asks for one.
    #[must_use]
    pub fn default_data_mode(&self) -> Option<DataMode> {
        let bits = self.raw.s_default_mount_opts.get() & MASK;
        DataMode::ALL.into_iter().find(|mode| mode.bits() == bits)
    }

    /// Sets the mode that `s_default_mount_opts` asks for, or that it asks for none.
    pub fn set_default_data_mode(&mut self, mode: Option<DataMode>) {
        let others = self.raw.s_default_mount_opts.get() & !MASK;
        self.raw.s_default_mount_opts = (others | mode.map_or(0, DataMode::bits)).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_has_bits_of_its_own() {
        for mode in DataMode::ALL {
            let found: Vec<_> =
                DataMode::ALL.into_iter().filter(|other| other.bits() == mode.bits()).collect();
            assert_eq!(found, [mode]);
            assert_eq!((mode.bits() & !MASK, mode.bits() == 0), (0, false));
        }
    }
}
