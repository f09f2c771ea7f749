//! One broken volume, repaired by both.

use crate::survey::Survey;
use hectare_check::Options as CheckOptions;
use hectare_device::{Device, MemoryDevice};
use hectare_repair::{Options, Overlay, Repaired, repair};
use hectare_units::Bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Images longer than this are not read.
const SURVEYED_MAX: u64 = 1 << 30;
/// How long a repair may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The inode of lost+found.
const LOST_FOUND: u32 = 11;
/// The time that is stored.
pub(crate) const NOW: u32 = 1_700_000_000;

/// What `e2fsck` ended with and said.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
}

/// Runs e2fsck for half a minute at most: there are images on which it never ends, and does not hear of a
/// signal that it can catch.
pub(crate) fn e2fsck(flags: &str, image: &Path) -> Ran {
    let ran =
        Command::new("timeout").args(["-s", "KILL", "30", "e2fsck", flags]).arg(image).output().unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    Ran { code: ran.status.code(), out }
}

/// What became of the inodes that e2fsck keeps and we don't.
#[derive(Default, Debug)]
pub(crate) struct Compared {
    /// As they were before the damage, and not so here.
    pub(crate) lost: Vec<u32>,
    /// As they were before the damage here, and not there.
    pub(crate) restored: usize,
    /// Never there before the damage: noise, or what e2fsck makes itself.
    pub(crate) made_up: usize,
    /// Not as before the damage in either.
    pub(crate) changed: usize,
}

/// What came of a trial.
pub(crate) struct Trial {
    /// Problems that our check finds before; `None` if it can't judge.
    pub(crate) checked: Option<u64>,
    pub(crate) repaired: Result<Repaired, String>,
    /// e2fsck -fn after our repair.
    pub(crate) after: Option<Ran>,
    pub(crate) theirs: Option<Ran>,
    /// Inodes that e2fsck keeps and we lose or have with another content, and the other way round.
    pub(crate) lost: Vec<u32>,
    pub(crate) gained: Vec<u32>,
    pub(crate) lost_paths: usize,
    pub(crate) gained_paths: usize,
    pub(crate) kept: usize,
    ours: Survey,
    theirs_found: Survey,
}

impl Trial {
    /// Runs both on copies of an image, in a folder.
    pub(crate) fn run(bytes: &[u8], folder: &Path) -> Self {
        let (theirs_at, ours_at) = (folder.join("t"), folder.join("o"));
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes));
        let checked = hectare_check::check(&*device, &CheckOptions::default()).ok().map(|r| r.problem_count);
        let overlay = Arc::new(Overlay::new(Arc::clone(&device)));
        let mut trial = Self {
            checked,
            repaired: watched(&overlay),
            after: None,
            theirs: None,
            lost: Vec::new(),
            gained: Vec::new(),
            lost_paths: 0,
            gained_paths: 0,
            kept: 0,
            ours: Survey::default(),
            theirs_found: Survey::default(),
        };
        crate::spill::assert_same(bytes, &trial.repaired, &overlay, folder);
        std::fs::write(&theirs_at, bytes).unwrap();
        let theirs = e2fsck("-fy", &theirs_at);
        // Some need a second run.
        let theirs = if matches!(theirs.code, Some(0 | 1)) { theirs } else { e2fsck("-fy", &theirs_at) };
        trial.theirs = Some(theirs);
        if trial.repaired.is_err() {
            return trial;
        }
        std::fs::write(&ours_at, bytes_of(&*overlay)).unwrap();
        trial.after = Some(e2fsck("-fn", &ours_at));
        let ours = Survey::of(overlay).unwrap_or_default();
        // e2fsck may make of an image a file of terabytes.
        let small = std::fs::metadata(&theirs_at).is_ok_and(|file| file.len() < SURVEYED_MAX);
        let theirs = if small { std::fs::read(&theirs_at).unwrap() } else { Vec::new() };
        let theirs = Survey::of(Arc::new(MemoryDevice::from_bytes(&theirs))).unwrap_or_default();
        (trial.lost, trial.gained) = (ours.lacks(&theirs), theirs.lacks(&ours));
        (trial.lost_paths, trial.gained_paths) = (ours.lacks_paths(&theirs), theirs.lacks_paths(&ours));
        trial.kept = ours.inodes.len();
        (trial.ours, trial.theirs_found) = (ours, theirs);
        trial
    }

    /// What became of the inodes that e2fsck keeps and we don't, beside what they were before the damage.
    pub(crate) fn compared(&self, undamaged: &Survey) -> Compared {
        let mut compared = Compared::default();
        for nr in &self.lost {
            let (was, ours, theirs) =
                (undamaged.inodes.get(nr), self.ours.inodes.get(nr), self.theirs_found.inodes.get(nr));
            match was {
                // e2fsck makes a lost+found where there is none.
                _ if *nr == LOST_FOUND => compared.made_up += 1,
                None => compared.made_up += 1,
                Some((kind, _))
                    if theirs == was && (kind != "Directory" || self.keeps_a_path(*nr, undamaged)) =>
                {
                    compared.lost.push(*nr);
                }
                Some(_) if ours == was => compared.restored += 1,
                Some(_) => compared.changed += 1,
            }
        }
        compared
    }

    /// Whether e2fsck left an inode a path from before the damage; a directory may be one that it made.
    fn keeps_a_path(&self, nr: u32, undamaged: &Survey) -> bool {
        self.theirs_found.paths.iter().any(|path| path.1 == nr && undamaged.paths.contains(path))
    }

    /// Whether e2fsck finds our result clean.
    pub(crate) fn is_clean(&self) -> bool {
        self.after.as_ref().is_some_and(|after| after.code == Some(0))
    }
}

/// What a device holds.
pub(crate) fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.len().get()).unwrap()];
    device.read_at(Bytes::ZERO, &mut bytes).unwrap();
    bytes
}

/// A repair that neither panics nor goes on for ever; and what the check says of the result.
pub(crate) fn watched(overlay: &Arc<Overlay>) -> Result<Repaired, String> {
    let (send, receive) = mpsc::channel();
    let on = Arc::clone(overlay);
    std::thread::spawn(move || {
        let options = Options { now: NOW, ..Options::default() };
        let ended = catch_unwind(AssertUnwindSafe(|| repair(&on, &options)));
        let result = ended.map_err(|_| "PANIC".to_owned());
        let _ = send.send(result.and_then(|result| result.map_err(|error| error.to_string())));
    });
    let repaired = receive.recv_timeout(LIMIT).unwrap_or_else(|_| Err(format!("HANG: beyond {LIMIT:?}")))?;
    let report = hectare_check::check(&**overlay, &CheckOptions::default()).map_err(|e| e.to_string())?;
    if report.is_clean() {
        Ok(repaired)
    } else {
        Err(format!("the check finds {:?}", report.problems.first()))
    }
}
