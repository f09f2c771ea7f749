//! The jobs done through a mount, and their times. Each job prepares what it needs before the clock starts.
//!
//! | job | what |
//! |---|---|
//! | `write`, `read` | 1 GiB in calls of 1 MiB, to the end of `fsync`; read again from a cold cache |
//! | `random-read`, `random-write` | 4 KiB in that file, past the page cache, so that each is a request |
//! | `create`, `stat`, `open`, `unlink` | 10,000 files in a directory, one after another |
//! | `create-many`, `readdir`, `readdir-stat` | 50,000 files in a directory; names; names and attributes |
//! | `small-files-1`, `small-files-16` | files of 64 KiB by that many threads, to the end of `syncfs` |
//! | `tar-x` | this project's sources, several times, from a tar, to the end of `syncfs` |
//! | `walk` | all directories of that listed with attributes, from no cached name |
//! | `stat-16` | attributes of 10,000 files of one directory by 16 threads, from no cached name |
//! | `missing` | 100 names that are not there, looked for 100 times each, as compilers do |

use hectare_oracle::tool;
use hectare_tools::steps::root;
use rustix::fs::{Advice, Mode, OFlags, fadvise, open, syncfs};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
/// Of the sequence that chooses places.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A job; they run in this order, and some use what an earlier one made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Job {
    Write,
    Read,
    RandomRead,
    RandomWrite,
    Create,
    Stat,
    Open,
    Unlink,
    CreateMany,
    Readdir,
    ReaddirStat,
    SmallFiles1,
    SmallFiles16,
    TarX,
    Walk,
    Stat16,
    Missing,
}

impl Job {
    pub(super) const ALL: [Self; 17] = [
        Self::Write,
        Self::Read,
        Self::RandomRead,
        Self::RandomWrite,
        Self::Create,
        Self::Stat,
        Self::Open,
        Self::Unlink,
        Self::CreateMany,
        Self::Readdir,
        Self::ReaddirStat,
        Self::SmallFiles1,
        Self::SmallFiles16,
        Self::TarX,
        Self::Walk,
        Self::Stat16,
        Self::Missing,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::RandomRead => "random-read",
            Self::RandomWrite => "random-write",
            Self::Create => "create",
            Self::Stat => "stat",
            Self::Open => "open",
            Self::Unlink => "unlink",
            Self::CreateMany => "create-many",
            Self::Readdir => "readdir",
            Self::ReaddirStat => "readdir-stat",
            Self::SmallFiles1 => "small-files-1",
            Self::SmallFiles16 => "small-files-16",
            Self::TarX => "tar-x",
            Self::Walk => "walk",
            Self::Stat16 => "stat-16",
            Self::Missing => "missing",
        }
    }

    /// Whether this argument selects it.
    pub(super) fn is(self, word: &str) -> bool {
        self.name() == word
    }

    /// Whether fuse2fs needs a minute or more for it.
    pub(super) const fn is_slow(self) -> bool {
        matches!(self, Self::CreateMany | Self::Readdir | Self::ReaddirStat)
    }

    /// Whether it moves the bytes of one large file.
    pub(super) const fn is_stream(self) -> bool {
        matches!(self, Self::Write | Self::Read)
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a job runs.
pub(super) struct Ground<'a> {
    /// The mounted directory.
    pub(super) dir: &'a Path,
    pub(super) tar: &'a Path,
    /// Everything a sixteenth.
    pub(super) quick: bool,
}

impl Ground<'_> {
    /// Does a job; returns how many seconds it took.
    pub(super) fn run(&self, job: Job) -> io::Result<f64> {
        match job {
            Job::Write => timed(|| self.write_large()),
            Job::Read => self.read_large(),
            Job::RandomRead => self.at_random(OFlags::RDONLY, |file, page, at| file.read_exact_at(page, at)),
            Job::RandomWrite => self.at_random(OFlags::RDWR, |file, page, at| file.write_all_at(page, at)),
            Job::Create => self.create("few", self.some(10_000)),
            Job::Stat => self.each_of_few(|path| fs::symlink_metadata(path).map(drop)),
            Job::Open => self.each_of_few(|path| File::open(path).map(drop)),
            Job::Unlink => self.each_of_few(|path| fs::remove_file(path)),
            Job::CreateMany => self.create("many", self.some(50_000)),
            Job::Readdir => self.list(|_| Ok(())),
            Job::ReaddirStat => self.list(|entry| entry.metadata().map(drop)),
            Job::SmallFiles1 => self.small_files(1),
            Job::SmallFiles16 => self.small_files(16),
            Job::TarX => self.untar(),
            Job::Walk => self.walk(),
            Job::Stat16 => self.stat_by(16),
            Job::Missing => self.look_for_missing(),
        }
    }

    /// A count, or less of it in a quick run.
    fn some(&self, count: usize) -> usize {
        if self.quick { count / 16 } else { count }
    }

    fn large(&self) -> PathBuf {
        self.dir.join("large")
    }

    fn write_large(&self) -> io::Result<()> {
        let piece: Vec<u8> = (0..MIB).map(|n| (n % 251).to_le_bytes()[0]).collect();
        let mut file = File::create(self.large())?;
        (0..self.some(1024)).try_for_each(|_| file.write_all(&piece))?;
        file.sync_all()
    }

    /// The large file, made if no job has made it, and not in the page cache.
    fn cold_large(&self, flags: OFlags) -> io::Result<File> {
        if !self.large().exists() {
            self.write_large()?;
        }
        let file = File::from(open(self.large(), flags | OFlags::CLOEXEC, Mode::empty())?);
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(file)
    }

    fn read_large(&self) -> io::Result<f64> {
        let file = self.cold_large(OFlags::RDONLY)?;
        let mut piece = vec![0; MIB];
        timed(|| {
            let mut at = 0;
            loop {
                match file.read_at(&mut piece, at)? {
                    0 => return Ok(()),
                    read => at += read as u64,
                }
            }
        })
    }

    fn at_random(
        &self,
        flags: OFlags,
        mut request: impl FnMut(&File, &mut [u8], u64) -> io::Result<()>,
    ) -> io::Result<f64> {
        let file = self.cold_large(flags | OFlags::DIRECT)?;
        let pages = file.metadata()?.len() / PAGE as u64;
        let mut room = vec![7; 2 * PAGE];
        let skip = room.as_ptr().align_offset(PAGE);
        let page = &mut room[skip..skip + PAGE];
        let mut random = SEED;
        timed(|| {
            for _ in 0..self.some(16_384) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                request(&file, page, random % pages * PAGE as u64)?;
            }
            file.sync_all()
        })
    }

    fn create(&self, name: &str, count: usize) -> io::Result<f64> {
        let dir = self.dir.join(name);
        fs::create_dir(&dir)?;
        timed(|| (0..count).try_for_each(|nr| File::create(dir.join(format!("file-{nr}"))).map(drop)))
    }

    /// The directory of `create`, made if that did not run.
    fn few(&self) -> io::Result<PathBuf> {
        let dir = self.dir.join("few");
        if !dir.join("file-0").exists() {
            let _ = fs::remove_dir(&dir); // that `unlink` left empty
            self.create("few", self.some(10_000))?;
        }
        Ok(dir)
    }

    fn each_of_few(&self, work: impl Fn(&Path) -> io::Result<()>) -> io::Result<f64> {
        let dir = self.few()?;
        timed(|| (0..self.some(10_000)).try_for_each(|nr| work(&dir.join(format!("file-{nr}")))))
    }

    fn list(&self, each: impl Fn(&fs::DirEntry) -> io::Result<()>) -> io::Result<f64> {
        let dir = self.dir.join("many");
        if !dir.exists() {
            self.create("many", self.some(50_000))?;
        }
        self.drop_names()?;
        let mut found = 0;
        let seconds = timed(|| {
            for entry in fs::read_dir(&dir)? {
                each(&entry?)?;
                found += 1;
            }
            Ok(())
        })?;
        if found == self.some(50_000) { Ok(seconds) } else { Err(io::Error::other("names are missing")) }
    }

    fn small_files(&self, threads: usize) -> io::Result<f64> {
        let dir = self.dir.join(format!("small-{threads}"));
        fs::create_dir(&dir)?;
        let content = vec![0x5a; 64 << 10];
        let share = self.some(4096) / threads;
        let work = |thread: usize| {
            (0..share).try_for_each(|nr| fs::write(dir.join(format!("{thread}-{nr}")), &content))
        };
        timed(|| {
            at_once(threads, work)?;
            Ok(syncfs(File::open(self.dir)?)?)
        })
    }

    /// Makes the kernel drop names and attributes, not pages.
    fn drop_names(&self) -> io::Result<()> {
        syncfs(File::open(self.dir)?)?;
        fs::write("/proc/sys/vm/drop_caches", "2")
    }

    fn walk(&self) -> io::Result<f64> {
        if !self.tree().exists() {
            self.untar()?;
        }
        self.drop_names()?;
        timed(|| list_all(&self.tree()))
    }

    fn stat_by(&self, threads: usize) -> io::Result<f64> {
        let dir = self.few()?;
        self.drop_names()?;
        let count = self.some(10_000);
        let work = |thread: usize| {
            let mut own = (thread..count).step_by(threads);
            own.try_for_each(|nr| fs::symlink_metadata(dir.join(format!("file-{nr}"))).map(drop))
        };
        timed(|| at_once(threads, work))
    }

    fn look_for_missing(&self) -> io::Result<f64> {
        let look = |nr: usize| match fs::symlink_metadata(self.dir.join(format!("missing-{}", nr % 100))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => Err(io::Error::other("it is there")),
        };
        timed(|| (0..self.some(10_000)).try_for_each(look))
    }

    fn tree(&self) -> PathBuf {
        self.dir.join("tar")
    }

    fn untar(&self) -> io::Result<f64> {
        let dir = self.tree();
        fs::create_dir(&dir)?;
        let mut tar = tool("tar").ok_or_else(|| io::Error::other("tar is not installed"))?;
        tar.arg("-xf").arg(self.tar).arg("-C").arg(&dir);
        timed(|| {
            let status = tar.status()?;
            if !status.success() {
                return Err(io::Error::other(format!("tar: {status}")));
            }
            Ok(syncfs(File::open(self.dir)?)?)
        })
    }
}

/// Does the work of this many threads, each its own.
fn at_once(threads: usize, work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| io::Error::other("a thread panicked"))?)
    })
}

/// Lists a directory and everything below with attributes.
fn list_all(dir: &Path) -> io::Result<()> {
    fs::read_dir(dir)?.try_for_each(|entry| {
        let entry = entry?;
        if entry.metadata()?.is_dir() { list_all(&entry.path()) } else { Ok(()) }
    })
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64())
}

/// A tar of this project's sources, repeated this many times.
pub(super) fn source_tar(folder: &Path, times: u32) -> Result<PathBuf, String> {
    let path = folder.join("sources.tar");
    for nr in 0..times {
        let part = folder.join("part.tar");
        let mut git = tool("git").ok_or("git is not installed")?;
        git.current_dir(root()).args(["archive", "--format=tar", &format!("--prefix=copy-{nr}/"), "-o"]);
        let made = git.arg(&part).arg("HEAD").status().is_ok_and(|status| status.success());
        let joined = if nr == 0 {
            fs::rename(&part, &path).is_ok()
        } else {
            let mut tar = tool("tar").ok_or("tar is not installed")?;
            tar.arg("-Af").arg(&path).arg(&part).status().is_ok_and(|status| status.success())
        };
        if !made || !joined {
            return Err("git archive of the sources failed".into());
        }
    }
    let _ = fs::remove_file(folder.join("part.tar")); // the directory is removed, too
    Ok(path)
}
