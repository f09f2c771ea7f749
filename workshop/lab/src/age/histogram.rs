//! The distribution of the free space over lengths of free extents, in e2freefrag's terms.
//!
//! A [`Histogram`] is a request: ranges of lengths in bytes, and each range's share of the free blocks. It
//! comes from the command line, from the output of e2freefrag (or `hectare freefrag`), or from another
//! volume. That output has the mean length in a range as well, which says more than the range: in the
//! published starting point of the best-available series, the extents of 2 to 4 MiB are nearly all just under
//! 4.
//!
//! Shares are relative: where they add up to less than a hundred (e2freefrag's do, when the superblock's
//! count of free blocks is behind) they are taken in proportion, and the report has the resulting shares.

use crate::run::float;
use hectare_mkfs::parse_size;
use std::str::FromStr;

/// The maximum sum of percentages that were rounded to two digits.
const WHOLE: f64 = 100.05;

/// Free extents of one range of lengths.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share {
    /// The shortest, in bytes.
    pub from: u64,
    /// The first length in bytes that is too long.
    pub to: u64,
    /// Their share of all free blocks, in percent.
    pub percent: f64,
    /// Their mean length in bytes; `None`: evenly distributed over the range.
    pub mean: Option<f64>,
}

/// Shares of the free space by ranges that don't overlap, in ascending order.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram(Vec<Share>);

/// A volume's e2freefrag output.
#[derive(Clone, PartialEq, Debug)]
pub struct FreefragOutput {
    /// Its free extents.
    pub histogram: Histogram,
    /// Used blocks in percent of all, if printed.
    pub fill: Option<f64>,
}

impl Histogram {
    /// Makes a histogram of shares.
    ///
    /// # Errors
    /// One line with the fault: there is none, a range is empty or overlaps another, a share is no positive
    /// number, a mean lies outside its range, or they add up to more than 100 percent.
    pub fn new(mut shares: Vec<Share>) -> Result<Self, String> {
        shares.sort_by_key(|share| share.from);
        if shares.is_empty() {
            return Err("a histogram has at least one range".to_owned());
        }
        for share in &shares {
            let range = format!("{}-{}", short(share.from), short(share.to));
            if share.from >= share.to {
                return Err(format!("{range}: a range ends above its start"));
            }
            if !(share.percent > 0.0 && share.percent <= WHOLE) {
                return Err(format!("{range}:{}: a share is above 0 and at most 100 percent", share.percent));
            }
            if share.mean.is_some_and(|mean| !(mean >= float(share.from) && mean < float(share.to))) {
                return Err(format!("{range}: the mean length lies in the range"));
            }
        }
        if let Some(pair) = shares.windows(2).find(|pair| pair[0].to > pair[1].from) {
            let range = |share: &Share| format!("{}-{}", short(share.from), short(share.to));
            return Err(format!("{} and {} overlap", range(&pair[0]), range(&pair[1])));
        }
        let sum: f64 = shares.iter().map(|share| share.percent).sum();
        if sum > WHOLE {
            return Err(format!("the shares add up to {sum:.2} percent"));
        }
        Ok(Self(shares))
    }

    /// That of free extents that were counted: for each range its bounds in bytes, how many there are, and
    /// their bytes.
    ///
    /// # Errors
    /// As [`Self::new`]; also if nothing is free.
    pub fn counted(rows: impl IntoIterator<Item = Row>) -> Result<Self, String> {
        let rows: Vec<Row> = rows.into_iter().filter(|row| row.bytes > 0 && row.extents > 0).collect();
        let all: u64 = rows.iter().map(|row| row.bytes).sum();
        let share = |row: &Row| Share {
            from: row.from,
            to: row.to,
            percent: 100.0 * float(row.bytes) / float(all),
            mean: Some(float(row.bytes) / float(row.extents)),
        };
        Self::new(rows.iter().map(share).collect())
    }

    /// The shares.
    #[must_use]
    pub fn shares(&self) -> &[Share] {
        &self.0
    }

    /// The sum of all shares, in percent.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.0.iter().map(|share| share.percent).sum()
    }
}

/// Free extents of one range, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The shortest, in bytes.
    pub from: u64,
    /// The first length in bytes that is too long.
    pub to: u64,
    /// How many there are.
    pub extents: u64,
    /// Bytes in them.
    pub bytes: u64,
}

impl FromStr for Histogram {
    type Err = String;

    /// `FROM-TO:PERCENT[:MEAN],...`, such as `2M-4M:85:3887K,4M-8M:10`.
    fn from_str(text: &str) -> Result<Self, String> {
        let share = |word: &str| {
            let form = || format!("'{word}': a share is given as FROM-TO:PERCENT or FROM-TO:PERCENT:MEAN");
            let mut parts = word.split(':');
            let (Some(range), Some(percent)) = (parts.next(), parts.next()) else { return Err(form()) };
            let (from, to) = range.split_once('-').ok_or_else(form)?;
            let mean = parts.next().map(|mean| parse_size(mean, 1, None)).transpose()?.map(float);
            let percent = percent.strip_suffix('%').unwrap_or(percent).parse().map_err(|_| form())?;
            let share =
                Share { from: parse_size(from, 1, None)?, to: parse_size(to, 1, None)?, percent, mean };
            if parts.next().is_some() { Err(form()) } else { Ok(share) }
        };
        Self::new(text.split(',').map(share).collect::<Result<_, _>>()?)
    }
}

impl FromStr for FreefragOutput {
    type Err = String;

    /// Reads what `e2freefrag` prints. Blocks become bytes by the one block size that puts the mean length of
    /// every row in the row's range, so that a table without its heading will do.
    fn from_str(text: &str) -> Result<Self, String> {
        let table = || text.lines().skip_while(|line| !line.starts_with("Extent Size Range")).skip(1);
        let lines: Vec<Line> = table().map_while(Line::parse).collect();
        if lines.is_empty() {
            return Err("there is no histogram of free extents in it, as e2freefrag prints one".to_owned());
        }
        let fits = |block: &u64| lines.iter().all(|line| line.fits(*block));
        let block = (10..=16).map(|shift| 1 << shift).find(fits);
        let block = block.ok_or("its histogram fits no size of a block: a row's mean is not in its range")?;
        let number = |heading: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(heading))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let fill = match (number("Free blocks:"), number("Total blocks:")) {
            (Some(free), Some(all)) if all > 0 && free <= all => {
                Some(100.0 - 100.0 * float(free) / float(all))
            }
            _ => None,
        };
        let row = |line: &Line| Row { bytes: line.row.bytes.saturating_mul(block), ..line.row };
        Ok(Self { histogram: Histogram::counted(lines.iter().map(row))?, fill })
    }
}

/// A row of e2freefrag's table, whose `bytes` are still blocks.
struct Line {
    row: Row,
}

impl Line {
    /// `    2M...    4M-  :         11947        725624   85.31%`.
    fn parse(line: &str) -> Option<Self> {
        let (range, counts) = line.split_once(':')?;
        let (from, to) = range.split_once("...")?;
        let to = to.trim().trim_end_matches('-');
        let to = if to == "max" { u64::MAX } else { parse_size(to, 1, None).ok()? };
        let mut counts = counts.split_whitespace();
        let (extents, bytes) = (counts.next()?.parse().ok()?, counts.next()?.parse().ok()?);
        Some(Self { row: Row { from: parse_size(from.trim(), 1, None).ok()?, to, extents, bytes } })
    }

    /// Whether its mean lies in its range if blocks have this many bytes.
    fn fits(&self, block: u64) -> bool {
        let Row { from, to, extents, bytes } = self.row;
        let (extents, bytes) = (u128::from(extents), u128::from(bytes) * u128::from(block));
        u128::from(from) * extents <= bytes && (bytes < u128::from(to) * extents || extents == 0)
    }
}

/// A size in the largest unit without a fraction, as it is given: `3887K`, `4M`; `max` for any.
#[must_use]
pub fn short(bytes: u64) -> String {
    if bytes == u64::MAX {
        return "max".to_owned();
    }
    let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let whole = units.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    whole.map_or(bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published table: free extents after the first test without the series, blocks of 64 KiB.
    const PUBLISHED: &str = "Min. free extent: 128 KB\nHISTOGRAM OF FREE EXTENT SIZES:\n\
        Extent Size Range :  Free extents   Free Blocks  Percent\n\
        \u{20} 128K...  256K-  :             1             2    0.00%\n\
        \u{20} 256K...  512K-  :             1             6    0.00%\n\
        \u{20} 512K... 1024K-  :             4            48    0.01%\n\
        \u{20}   1M...    2M-  :             5           120    0.01%\n\
        \u{20}   2M...    4M-  :         11947        725624   85.31%\n\
        \u{20}   4M...    8M-  :           672         83796    9.85%\n";

    #[test]
    fn the_published_table_is_read_without_its_heading() {
        let told: FreefragOutput = PUBLISHED.parse().unwrap();
        let shares = told.histogram.shares();
        assert_eq!((shares.len(), told.fill), (6, None));
        assert_eq!((shares[4].from, shares[4].to), (2 << 20, 4 << 20));
        // Blocks are shares; the percents printed add up to 95.
        assert!((shares[4].percent - 89.63).abs() < 0.01, "{:?}", shares[4]);
        assert!((shares[4].mean.unwrap() - 3_980_454.9).abs() < 1.0, "{:?}", shares[4]);
        let whole = format!("Total blocks: 1000\nFree blocks: 250 (25.0%)\n{PUBLISHED}");
        assert_eq!(whole.parse::<FreefragOutput>().unwrap().fill, Some(75.0));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let refused = |text: &str| text.parse::<FreefragOutput>().unwrap_err();
        assert!(refused("").contains("no histogram"));
        assert!(refused("Extent Size Range :\nnothing : 1\n").contains("no histogram"));
        let mixed = PUBLISHED.replace("725624", "7256");
        assert!(refused(&mixed).contains("fits no size of a block"), "{}", refused(&mixed));
    }

    #[test]
    fn words_become_shares() {
        let histogram: Histogram = "4M-8M:10,2M-4M:85.5%:3887K".parse().unwrap();
        let first = Share { from: 2 << 20, to: 4 << 20, percent: 85.5, mean: Some(3887.0 * 1024.0) };
        let second = Share { from: 4 << 20, to: 8 << 20, percent: 10.0, mean: None };
        assert_eq!(histogram.shares(), [first, second]);
        assert!((histogram.sum() - 95.5).abs() < 1e-9);
    }

    #[test]
    fn what_does_not_add_up_is_refused_in_words() {
        for (text, part) in [
            ("", "FROM-TO:PERCENT"),
            ("2M-4M", "FROM-TO:PERCENT"),
            ("2M:10", "FROM-TO:PERCENT"),
            ("2M-4M:x", "FROM-TO:PERCENT"),
            ("2M-4M:1:3M:4", "FROM-TO:PERCENT"),
            ("2Q-4M:1", "2Q"),
            ("4M-2M:10", "4M-2M: a range ends above its start"),
            ("2M-2M:10", "ends above"),
            ("2M-4M:0", "above 0"),
            ("2M-4M:-1", "above 0"),
            ("2M-4M:NaN", "above 0"),
            ("2M-4M:101", "above 0 and at most 100"),
            ("2M-4M:60,4M-8M:41", "add up to 101.00 percent"),
            ("2M-4M:10,3M-8M:10", "2M-4M and 3M-8M overlap"),
            ("2M-4M:10:4M", "mean length lies in the range"),
        ] {
            let refused = text.parse::<Histogram>().unwrap_err();
            assert!(refused.contains(part) && !refused.contains('\n'), "{text}: {refused}");
        }
    }

    #[test]
    fn counted_extents_become_shares() {
        let row = |from, to, extents, bytes| Row { from, to, extents, bytes };
        let histogram = Histogram::counted([
            row(4096, 8192, 3, 12_288),
            row(8192, 16_384, 0, 0),
            row(16_384, 32_768, 2, 36_864),
        ])
        .unwrap();
        let percents: Vec<f64> = histogram.shares().iter().map(|share| share.percent).collect();
        assert_eq!(percents, [25.0, 75.0]);
        assert_eq!(histogram.shares()[1].mean, Some(18_432.0));
        assert!(Histogram::counted([]).unwrap_err().contains("at least one range"));
    }
}
