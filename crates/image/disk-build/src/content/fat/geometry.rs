//! How a FAT volume is divided: reserved sectors, two tables, the root directory, clusters.
//!
//! Facts: Microsoft's "FAT: General Overview of On-Disk Format" 1.03. The number of clusters alone decides
//! whether entries have 12, 16 or 32 bits, so a volume for which it lies at a border gets larger clusters.

use hectare_units::u64_of;

/// Clusters from which on entries have 16 and 32 bits.
const FAT16_FROM: u64 = 4085;
const FAT32_FROM: u64 = 65525;
/// Clusters at most.
const CLUSTERS_MAX: u64 = 0x0fff_fff4;
/// Programs differ by some clusters at the borders, so they are kept away from.
const MARGIN: u64 = 16;
const TABLES: u64 = 2;
/// Entries of a root directory that does not grow, at least.
const ROOT_ENTRIES: u64 = 512;
const ENTRY: u64 = 32;
const CLUSTER_MAX: u64 = 32 << 10;

/// What is asked of a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// Bytes of a sector.
    pub(super) sector: u64,
    /// 12, 16 or 32; by the size if not given.
    pub(super) bits: Option<u8>,
    /// Bytes of a cluster; by the size if not given.
    pub(super) cluster: Option<u64>,
    /// Entries that the root directory needs.
    pub(super) root_entries: u64,
}

/// How a volume is divided, in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Geometry {
    pub(super) sector: u64,
    pub(super) sectors: u64,
    pub(super) bits: u8,
    pub(super) reserved: u64,
    /// Sectors of one table.
    pub(super) table: u64,
    /// Entries of a root directory with a place of its own; 0 where it grows.
    pub(super) root_entries: u64,
    /// Sectors of a cluster.
    pub(super) per_cluster: u64,
    pub(super) clusters: u64,
}

impl Geometry {
    /// The division of a volume of `size` bytes.
    pub(super) fn new(size: u64, wanted: &Wanted) -> Result<Self, String> {
        let bits = wanted.bits.unwrap_or(match size >> 20 {
            0..8 => 12,
            8..512 => 16,
            _ => 32,
        });
        let clusters = match wanted.cluster {
            Some(cluster) => vec![cluster],
            None => {
                let all = (0..=6).map(|shift| 512 << shift);
                all.filter(|cluster| *cluster >= wanted.sector.max(usual_cluster(size, bits))).collect()
            }
        };
        let fits = clusters.iter().find_map(|cluster| Self::of(size, wanted, bits, *cluster));
        fits.ok_or_else(|| {
            let least = match bits {
                32 => FAT32_FROM * wanted.cluster.unwrap_or(wanted.sector) + (1 << 20),
                _ => 1 << 17,
            };
            format!(
                "size: {size} bytes can't be divided as FAT{bits}; give another size (FAT{bits} needs \
                 {least} or more), or other values of fat or cluster-size"
            )
        })
    }

    /// The division with these clusters, if their number goes with the bits.
    fn of(size: u64, wanted: &Wanted, bits: u8, cluster: u64) -> Option<Self> {
        let sector = wanted.sector;
        let (sectors, per_cluster) = (size / sector, cluster / sector);
        if u32::try_from(sectors).is_err() || per_cluster == 0 {
            return None;
        }
        let (reserved, root_entries) = match bits {
            32 => (32, 0),
            _ => (1, wanted.root_entries.max(ROOT_ENTRIES).next_multiple_of(sector / ENTRY)),
        };
        let before = reserved + root_entries * ENTRY / sector;
        let table_of = |clusters: u64| ((clusters + 2) * u64::from(bits)).div_ceil(8 * sector);
        let clusters_of = |table: u64| Some(sectors.checked_sub(before + TABLES * table)? / per_cluster);
        // A table for all sectors is large enough; a smaller one may be, too.
        let mut table = table_of(sectors / per_cluster);
        let mut clusters = clusters_of(table)?;
        while clusters_of(table - 1).is_some_and(|more| table > 1 && table_of(more) < table) {
            table -= 1;
            clusters = clusters_of(table)?;
        }
        let range = match bits {
            12 => 1..FAT16_FROM - MARGIN,
            16 => FAT16_FROM + MARGIN..FAT32_FROM - MARGIN,
            _ => FAT32_FROM + MARGIN..CLUSTERS_MAX,
        };
        let is_small = root_entries <= u64::from(u16::MAX) && (bits == 32 || table <= u64::from(u16::MAX));
        (range.contains(&clusters) && is_small).then_some(Self {
            sector,
            sectors,
            bits,
            reserved,
            table,
            root_entries,
            per_cluster,
            clusters,
        })
    }

    /// Bytes of a cluster.
    pub(super) const fn cluster(&self) -> u64 {
        self.per_cluster * self.sector
    }

    /// Where a root directory with a place of its own begins.
    pub(super) const fn root(&self) -> u64 {
        (self.reserved + TABLES * self.table) * self.sector
    }

    /// Where a cluster begins; the first has the number 2.
    pub(super) const fn cluster_at(&self, number: u32) -> u64 {
        self.root() + self.root_entries * ENTRY + (number as u64 - 2) * self.cluster()
    }

    /// Where the tables begin.
    pub(super) fn tables(&self) -> impl Iterator<Item = u64> + use<> {
        let (reserved, table, sector) = (self.reserved, self.table, self.sector);
        (0..TABLES).map(move |nr| (reserved + nr * table) * sector)
    }

    /// The bytes of a table's first entries.
    pub(super) fn pack(&self, entries: &[u32]) -> Vec<u8> {
        match self.bits {
            32 => entries.iter().flat_map(|entry| (entry & 0x0fff_ffff).to_le_bytes()).collect(),
            16 => entries.iter().flat_map(|entry| entry.to_le_bytes().into_iter().take(2)).collect(),
            _ => {
                let mut bytes = vec![0; entries.len() * 3 / 2 + 2];
                for (nr, entry) in entries.iter().enumerate() {
                    let [low, high, ..] = ((entry & 0xfff) << (nr % 2 * 4)).to_le_bytes();
                    bytes[nr * 3 / 2] |= low;
                    bytes[nr * 3 / 2 + 1] |= high;
                }
                bytes.truncate((entries.len() * 3).div_ceil(2));
                bytes
            }
        }
    }
}

/// The smallest cluster that Microsoft's tables have for a size.
const fn usual_cluster(size: u64, bits: u8) -> u64 {
    match (bits, size >> 20) {
        (32, 0..=260) => 512,
        (32, 261..=8192) => 4 << 10,
        (32, 8193..=16384) => 8 << 10,
        (32, 16385..=32768) => 16 << 10,
        (32, _) => CLUSTER_MAX,
        _ => 512,
    }
}

/// Clusters for that many bytes.
pub(super) const fn clusters_for(bytes: u64, cluster: u64) -> u64 {
    bytes.div_ceil(cluster)
}

/// Bytes of that many directory entries.
pub(super) fn entries_len(entries: usize) -> u64 {
    u64_of(entries) * ENTRY
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that cannot continue fails

    use super::*;

    #[test]
    fn the_tables_reach_every_cluster_and_everything_fits() {
        for sector in [512, 4096] {
            for bits in [None, Some(12), Some(16), Some(32)] {
                for size in (0..400).map(|n: u64| (1 << 17) + n * n * n * 4096) {
                    let wanted = Wanted { sector, bits, cluster: None, root_entries: 3 };
                    let Ok(made) = Geometry::new(size, &wanted) else { continue };
                    let entries = made.table * sector * 8 / u64::from(made.bits);
                    assert!(entries >= made.clusters + 2, "{made:?}");
                    let end = made.cluster_at(2) + made.clusters * made.cluster();
                    assert!(end <= size && size - end < made.cluster() + 2 * sector * 2, "{made:?}");
                    assert_eq!(bits.unwrap_or(made.bits), made.bits);
                }
            }
        }
    }

    #[test]
    fn usual_sizes_are_divided() {
        for mib in [1, 7, 8, 32, 33, 64, 100, 260, 511, 512, 1024, 4096, 65536] {
            let wanted = Wanted { sector: 512, bits: None, cluster: None, root_entries: 3 };
            Geometry::new(mib << 20, &wanted).unwrap();
        }
    }

    #[test]
    fn entries_of_12_bits_are_packed_in_pairs() {
        let wanted = Wanted { sector: 512, bits: Some(12), cluster: None, root_entries: 3 };
        let made = Geometry::new(1 << 20, &wanted).unwrap();
        assert_eq!(made.pack(&[0xff8, 0xfff, 0x123]), [0xf8, 0xff, 0xff, 0x23, 0x01]);
    }
}
