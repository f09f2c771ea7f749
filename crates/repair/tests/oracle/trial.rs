//! One broken volume, repaired by both.

use crate::survey::Survey;
use hectare_check::Options as CheckOptions;
use hectare_device::{Device, MemoryDevice};
use hectare_repair::{Options, Overlay, Repaired, repair};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// What `e2fsck` ended with and said.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
}

/// Runs e2fsck for a minute at most.
pub(crate) fn e2fsck(flags: &str, image: &Path) -> Ran {
    let ran = Command::new("timeout").args(["60", "e2fsck", flags]).arg(image).output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    Ran { code: ran.status.code(), out }
}

/// What came of a trial.
pub(crate) struct Trial {
    pub(crate) before: Ran,
    /// Problems that our check finds before; `None` if it can't judge.
    pub(crate) checked: Option<u64>,
    pub(crate) repaired: Result<Repaired, String>,
    /// e2fsck -fn after our repair.
    pub(crate) after: Option<Ran>,
    pub(crate) theirs: Option<Ran>,
    /// Inodes that e2fsck keeps and we lose, and the other way round.
    pub(crate) lost: Vec<u32>,
    pub(crate) gained: Vec<u32>,
    pub(crate) lost_paths: usize,
    pub(crate) gained_paths: usize,
    pub(crate) kept: usize,
}

impl Trial {
    /// Runs both on copies of an image, in a folder.
    pub(crate) fn run(bytes: &[u8], folder: &Path) -> Self {
        let (image, theirs_at, ours_at) = (folder.join("a"), folder.join("t"), folder.join("o"));
        std::fs::write(&image, bytes).unwrap();
        let before = e2fsck("-fn", &image);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes));
        let checked = hectare_check::check(&*device, &CheckOptions::default()).ok().map(|r| r.problem_count);
        let overlay = Arc::new(Overlay::new(Arc::clone(&device)));
        let repaired = repair(&overlay, &Options { now: 1_700_000_000, ..Options::default() })
            .map_err(|error| error.to_string());
        let mut trial = Self {
            before,
            checked,
            repaired,
            after: None,
            theirs: None,
            lost: Vec::new(),
            gained: Vec::new(),
            lost_paths: 0,
            gained_paths: 0,
            kept: 0,
        };
        std::fs::write(&theirs_at, bytes).unwrap();
        let theirs = e2fsck("-fy", &theirs_at);
        // Some need a second run.
        let theirs = if matches!(theirs.code, Some(0 | 1)) { theirs } else { e2fsck("-fy", &theirs_at) };
        trial.theirs = Some(theirs);
        if trial.repaired.is_err() {
            return trial;
        }
        let mut mended = vec![0; usize::try_from(overlay.len().get()).unwrap()];
        overlay.read_at(hectare_units::Bytes::ZERO, &mut mended).unwrap();
        std::fs::write(&ours_at, &mended).unwrap();
        trial.after = Some(e2fsck("-fn", &ours_at));
        let ours = Survey::of(overlay).unwrap_or_default();
        let theirs = std::fs::read(&theirs_at).unwrap();
        let theirs = Survey::of(Arc::new(MemoryDevice::from_bytes(&theirs))).unwrap_or_default();
        (trial.lost, trial.gained) = (ours.lacks(&theirs), theirs.lacks(&ours));
        (trial.lost_paths, trial.gained_paths) = (ours.lacks_paths(&theirs), theirs.lacks_paths(&ours));
        trial.kept = ours.inodes.len();
        trial
    }

    /// Whether e2fsck finds our result clean.
    pub(crate) fn is_clean(&self) -> bool {
        self.after.as_ref().is_some_and(|after| after.code == Some(0))
    }
}
