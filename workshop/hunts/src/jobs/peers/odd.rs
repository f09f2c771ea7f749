//! The broken and odd images, ours and those that e2fsprogs is tested with: how each library ends on them.
//!
//! What a broken volume holds is a matter of opinion, so lists are compared only where e2fsck finds nothing
//! wrong and the kernel can read it.

use super::adapters::Peer;
use super::judge::Verdict;
use super::table::Table;
use hectare_oracle::mount::Access;
use hectare_oracle::{Entry, KernelMount, corpus, e2fsck, unpacked};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Reads all; fails if ours does not come to an end, or is wrong.
pub(super) fn run(peers: &[Peer], folder: &Path, named: Option<&Path>) -> Result<(), String> {
    let images = match named {
        Some(named) => packed(named)?,
        None => corpus("peers, corpus"),
    };
    let kinds = ["read", "read, with errors", "refused", "**no end**"];
    let mut counts = vec![BTreeMap::<&str, usize>::new(); peers.len()];
    let (mut wrong, mut ours, mut examples) = (vec![0; peers.len()], Vec::new(), Vec::new());
    let mut sound = 0;
    for packed in &images {
        let name = packed.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let image = folder.join("odd.img");
        fs::write(&image, unpacked(packed)).map_err(|error| error.to_string())?;
        let truth = truth(&image);
        sound += usize::from(truth.is_some());
        for (number, peer) in peers.iter().enumerate() {
            let (listing, ran) = peer.list(&image, folder)?;
            let end = Verdict::of_end(&listing, &ran);
            let kind = match (&end.died, &end.refused, end.errors) {
                (Some(_), ..) => kinds[3],
                (None, Some(_), _) => kinds[2],
                (None, None, 0) => kinds[0],
                _ => kinds[1],
            };
            *counts[number].entry(kind).or_default() += 1;
            if let Some(how) = &end.died {
                examples.push(format!("- {name}, {}: {how}", peer.name));
            }
            let judged = truth.as_ref().map(|(truth, seconds)| Verdict::of(&listing, &ran, truth, *seconds));
            let judged = judged.filter(Verdict::is_wrong);
            if let Some(verdict) = &judged {
                wrong[number] += 1;
                examples.push(format!("- {name}, {}: {}", peer.name, verdict.cell()));
            }
            if peer.is_ours() && (end.died.is_some() || judged.is_some()) {
                ours.push(format!("{name}: {:?}, {judged:?}", end.died));
            }
        }
    }
    let all: Vec<&Peer> = peers.iter().collect();
    let mut table = Table::new("image", &all);
    for kind in kinds {
        let cells = counts.iter().map(|counts| counts.get(kind).copied().unwrap_or(0).to_string());
        table.row(kind, cells.collect());
    }
    let cells = wrong.iter().map(ToString::to_string);
    table.row(&format!("**wrong**, of the {sound} that e2fsck finds sound"), cells.collect());
    table.print(&format!("Broken and odd images ({})", images.len()));
    println!("\n{}", examples.join("\n"));
    super::none_wrong(&ours)
}

/// What the kernel reads of a volume that e2fsck finds sound, and whether times have seconds only.
fn truth(image: &Path) -> Option<(Vec<Entry>, bool)> {
    if !e2fsck(image).is_ok_and(|report| report.is_sound()) {
        return None;
    }
    let mount = KernelMount::attempt(image, Access::ReadOnly, "").ok()?;
    let truth = hectare_oracle::walk::try_walk(mount.path()).ok();
    mount.unmount();
    truth.map(|truth| (truth, false))
}

fn packed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut images = paths.map_err(failed)?;
    images.retain(|path| path.to_string_lossy().ends_with(".img.gz"));
    images.sort();
    Ok(images)
}
