//! Damage that nobody announces: one byte of metadata is another, and each library lists and reads all there is.
//!
//! The volumes have checksums of their metadata, so a library can know. What it gives must be right, or an
//! error: other bytes, other names and other times without one are what a user would believe. Every sector of
//! a file begins with a mark, so that metadata is what has none.

use super::adapters::Peer;
use super::judge::Verdict;
use super::table::Table;
use hectare_oracle::{Entry, mke2fs, walk};
use hectare_units::random::SplitMix64;
use hectare_units::{low8, usize_of};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MARK: &[u8; 8] = b"content\n";
const SECTOR: usize = 512;

/// How often something happened.
#[derive(Clone, Default)]
struct Counts {
    /// Volumes of which all was right.
    right: usize,
    /// Volumes with an error, and nothing wrong.
    errors: usize,
    /// Volumes that were refused as a whole.
    refused: usize,
    contents: usize,
    names: usize,
    fields: BTreeMap<&'static str, usize>,
    died: BTreeMap<String, usize>,
}

/// Damages and reads; fails if ours gives anything wrong.
pub(super) fn run(peers: &[Peer], folder: &Path, runs: u64) -> Result<(), String> {
    let (source, whole, image) =
        (folder.join("marked"), folder.join("marked.img"), folder.join("damaged.img"));
    let failed = |error: std::io::Error| error.to_string();
    make_tree(&source).map_err(failed)?;
    let name = source.to_string_lossy().into_owned();
    mke2fs(&["-t", "ext4", "-b", "1024", "-d", &name], &whole, "24M").map_err(|skip| skip.to_string())?;
    let truth: Vec<Entry> = walk(&source);
    let bytes = fs::read(&whole).map_err(failed)?;
    let metadata: Vec<usize> = bytes
        .chunks(SECTOR)
        .enumerate()
        .filter(|(_, sector)| !sector.starts_with(MARK) && sector.iter().any(|byte| *byte != 0))
        .map(|(number, _)| number * SECTOR)
        .collect();
    let mut counts = vec![Counts::default(); peers.len()];
    let mut ours = Vec::new();
    for run in 0..runs {
        let mut random = SplitMix64::stream(1, run);
        let sector = random.pick(&metadata).copied().ok_or("the volume has no metadata")?;
        let at = sector + usize_of(random.below32(512));
        fs::write(&image, &bytes).map_err(failed)?;
        let other = bytes[at] ^ low8(1 + random.below(255));
        let file = fs::File::options().write(true).open(&image).map_err(failed)?;
        file.write_all_at(&[other], hectare_units::u64_of(at)).map_err(failed)?;
        for (peer, counts) in peers.iter().zip(&mut counts) {
            let (listing, ran) = peer.list(&image, folder)?;
            let verdict = Verdict::of(&listing, &ran, &truth, true);
            if peer.is_ours() && verdict.is_wrong() {
                ours.push(format!("byte {at}: {}: {:?}", verdict.cell(), verdict.examples));
            }
            counts.add(&verdict);
        }
    }
    let all: Vec<&Peer> = peers.iter().collect();
    let mut table = Table::new("one byte of metadata is another", &all);
    let mut row =
        |name: &str, cell: fn(&Counts) -> String| table.row(name, counts.iter().map(cell).collect());
    row("all is right", |counts| counts.right.to_string());
    row("refused as a whole", |counts| counts.refused.to_string());
    row("an error where it is, all else right", |counts| counts.errors.to_string());
    row("**other content without an error**", |counts| counts.contents.to_string());
    row("**names missing or made up without an error**", |counts| counts.names.to_string());
    row("**other metadata without an error**", |counts| shown(&counts.fields));
    row("**no end**", |counts| shown(&counts.died));
    table.print(&format!("Damaged volumes ({runs})"));
    super::none_wrong(&ours)
}

fn shown<K: AsRef<str>>(of: &BTreeMap<K, usize>) -> String {
    let parts: Vec<String> = of.iter().map(|(name, count)| format!("{count} {}", name.as_ref())).collect();
    if parts.is_empty() { "0".to_owned() } else { parts.join(", ") }
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        if let Some(how) = &verdict.died {
            *self.died.entry(how.split([':', '(']).next().unwrap_or(how).trim().to_owned()).or_default() += 1;
        }
        self.contents += usize::from(verdict.contents > 0);
        self.names += usize::from(verdict.names > 0);
        for name in verdict.fields.keys() {
            *self.fields.entry(name).or_default() += 1;
        }
        match (verdict.is_wrong(), &verdict.refused, verdict.errors) {
            (true, ..) => {}
            (false, Some(_), _) => self.refused += 1,
            (false, None, 0) => self.right += 1,
            (false, None, _) => self.errors += 1,
        }
    }
}

/// Files of many sizes, in directories, with links and attributes.
fn make_tree(source: &Path) -> std::io::Result<()> {
    let mut random = SplitMix64::new(1);
    for number in 0..240_u32 {
        let folder = source.join(format!("dir{}/sub{}", number / 80, number / 20));
        fs::create_dir_all(&folder)?;
        let len = match number % 12 {
            0 => usize_of(random.below32(600_000)),
            _ => usize_of(random.below32(9_000)) + 9,
        };
        let mut content: Vec<u8> = (0..len).map(|_| low8(random.draw() & 0xff)).collect();
        for sector in content.chunks_mut(SECTOR) {
            let mark = sector.len().min(MARK.len());
            sector[..mark].copy_from_slice(&MARK[..mark]);
        }
        let file = folder.join(format!("file {number}"));
        fs::write(&file, content)?;
        if number % 10 == 0 {
            let none = rustix::fs::XattrFlags::empty();
            let _ = rustix::fs::setxattr(&file, "user.note", &[7; 300], none); // not everywhere
            std::os::unix::fs::symlink("a target ".repeat(12), folder.join(format!("link {number}")))?;
        }
    }
    // A file in pieces, so that its map has nodes.
    let pieces = fs::File::create(source.join("pieces"))?;
    for piece in 0..600_u64 {
        let mut sector = [0x55; 1024];
        sector[..8].copy_from_slice(MARK);
        sector[512..520].copy_from_slice(MARK);
        pieces.write_all_at(&sector, piece * 3072)?;
    }
    Ok(())
}
