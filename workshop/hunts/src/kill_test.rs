//! Kills the server of a mounted volume in the middle of work, and checks what is left.
//!
//! A round: the volume is mounted by the program under test; writers that remember what they have synced
//! ([`Writer`]), a database and one of the host's programs work on it; the server gets `SIGKILL`. Then the
//! volume is recovered, in turn by the program itself, by the kernel and by `e2fsck -fy`; all that was synced
//! must be there, the database must be sound and have every transaction that was acknowledged, and in the end
//! `e2fsck -fn` must find nothing. The next round continues with the same volume.
//!
//! What the dead server had written is in the image, in the order it wrote it, for the host did not die: this
//! is about a program that stops anywhere, not about power cuts.
//!
//! Hazard: a mount whose server is dead answers every call with an error, and stays until it is detached;
//! that is done whatever happens here.

use crate::durability::{Checked, Writer};
use hectare_oracle::fsck::Report;
use hectare_oracle::mount::can_mount;
use hectare_oracle::trees::random::Random;
use hectare_oracle::wait::PAUSE;
use hectare_oracle::{KernelMount, Scale, Skip, Tree, fsck, is_root, source, tool};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Mount options, one chosen at random.
const OPTIONS: [&str; 5] = ["rw", "writeback", "data=journal", "nodelalloc", "commit=1,discard"];
/// The background programs, each a script in a directory of its own. `$0` is a directory to copy from. All
/// their processes must stay in the group of the first, which is killed in the end: so fio works with
/// threads.
const PROGRAMS: [(&str, &str); 5] = [
    ("tar", "while mkdir t && tar -C \"$0\" -cf - . | tar -C t -xf -; do rm -r t || exit; done"),
    (
        "rsync",
        "while rsync -aHAX --delete \"$0/\" r; do find r -type f | head -n 20 | xargs rm || exit; done",
    ),
    (
        "git",
        "while git init -q g && cp -r \"$0\" g/x && git -C g add -A \
         && git -C g -c user.name=A -c user.email=a@example.org commit -q -m x && git -C g gc -q; \
         do rm -rf g || exit; done",
    ),
    (
        "fio",
        "exec fio --thread --name=f --rw=randrw --bsrange=512-64k --bs_unaligned=1 --size=24M \
         --fallocate=posix --time_based --runtime=20 --ioengine=psync --fsync=32",
    ),
    ("stress-ng", "exec stress-ng --hdd 1 --hdd-bytes 8M --dir 1 --rename 1 --link 1 -t 20s --temp-path ."),
];
/// Writers at once.
const WRITERS: u32 = 3;
/// The timeout for a mount, or the end of a process.
const PATIENCE: Duration = Duration::from_secs(60);
/// When the server dies, after work began: at a moment between these, in milliseconds.
const DEATH: std::ops::Range<u64> = 20..900;

/// Why rounds ended early.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// They can't be run here.
    #[error(transparent)]
    Skip(#[from] Skip),
    /// Something was lost or is wrong.
    #[error("{0}")]
    Failed(String),
}

impl From<Ended> for hectare_tools::ended::Ended {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Skip(skip) => skip.into(),
            Ended::Failed(what) => Self::Failed(what),
        }
    }
}

impl From<String> for Ended {
    fn from(what: String) -> Self {
        Self::Failed(what)
    }
}

/// How the volume is recovered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recovery {
    /// The program under test, by mounting it again.
    Program,
    /// The kernel, by mounting it.
    Kernel,
    /// `e2fsck -fy`.
    Fsck,
}

/// A successful round.
#[derive(Clone, Debug)]
pub struct Round {
    /// How the volume was mounted.
    pub options: &'static str,
    /// The background program.
    pub noise: &'static str,
    /// The duration of the work, in milliseconds.
    pub after: u64,
    /// How it was recovered.
    pub recovery: Recovery,
    /// What had to be there, and was.
    pub checked: Checked,
    /// Transactions of the database that were acknowledged; none if the host has no `sqlite3`.
    pub transactions: Option<u32>,
}

/// A volume whose server is killed repeatedly.
#[derive(Debug)]
pub struct Killed {
    program: PathBuf,
    image: PathBuf,
    dir: PathBuf,
    seed: u64,
    rounds: u32,
}

impl Killed {
    /// Has the program under test (`hectare`) make a volume in a directory.
    ///
    /// # Errors
    /// [`Ended::Skip`] without root, `/dev/fuse` or a tool; otherwise what went wrong.
    pub fn new(program: &Path, folder: &Path, seed: u64) -> Result<Self, Ended> {
        can_mount()?;
        if !is_root() || fs::File::open("/dev/fuse").is_err() {
            return Err(Skip::new("mounting needs root and /dev/fuse").into());
        }
        tool::need("e2fsck")?;
        let (image, dir) = (folder.join("image"), folder.join("dir"));
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let said = tool::run(Command::new(program).arg("mkfs").arg(&image).arg("192M"));
        if !said.succeeded() {
            return Err(said.report().into());
        }
        Ok(Self { program: program.into(), image, dir, seed, rounds: 0 })
    }

    /// The image, to keep it after a failure.
    #[must_use]
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// Kills the server once more.
    ///
    /// # Errors
    /// What was lost or is wrong, or that it can't be done here.
    pub fn round(&mut self) -> Result<Round, Ended> {
        let mut random = Random::new(&format!("killed-{}-{}", self.seed, self.rounds));
        let noises: Vec<_> = PROGRAMS.iter().filter(|(name, _)| tool(name).is_some()).collect();
        let noise = noises.get(self.rounds as usize % noises.len().max(1)).copied();
        let options = OPTIONS[random.below32(5) as usize];
        let after = DEATH.start + random.below(DEATH.end - DEATH.start);
        let recovery = [Recovery::Program, Recovery::Kernel, Recovery::Fsck][self.rounds as usize % 3];
        self.rounds += 1;
        let mut round = Round {
            options,
            noise: noise.map_or("nothing", |(name, _)| *name),
            after,
            recovery,
            checked: Checked::default(),
            transactions: None,
        };
        let ended = self.play(&mut round, noise, random.bits());
        match ended {
            Err(Ended::Failed(what)) => Err(format!("{round:?}: {what}").into()),
            ended => ended.map(|()| round),
        }
    }

    fn play(&self, round: &mut Round, noise: Option<&(&str, &str)>, seed: u64) -> Result<(), Ended> {
        let work = self.work(round.options, noise, Duration::from_millis(round.after), seed)?;
        round.transactions = work.transactions();
        round.checked = self.recover(round.recovery, &work)?;
        sound(&fsck::e2fsck(&self.image)?)
    }

    /// Mounts, works, kills.
    fn work(
        &self,
        options: &str,
        noise: Option<&(&str, &str)>,
        after: Duration,
        seed: u64,
    ) -> Result<Work, Ended> {
        let mut server = self.serve(options)?;
        let begun = self.clear().and_then(|()| Work::begin(&self.dir, seed));
        let noise = noise.map(|(_, script)| Noise::begin(&self.dir, script)).transpose();
        let done = match (begun, &noise) {
            (Ok(work), Ok(_)) => Ok(work.until_killed(after, &mut server.process)),
            (Err(error), _) => Err(error),
            (_, Err(error)) => Err(error.clone().into()),
        };
        let _ = server.process.kill(); // if work could not begin
        server.wait()?;
        drop(noise);
        detach(&self.dir)?;
        done
    }

    fn serve(&self, options: &str) -> Result<Server, Ended> {
        Server::new(&self.program, &self.image, &self.dir, options)
    }

    /// Removes what the previous round has left.
    fn clear(&self) -> Result<(), Ended> {
        let told = |error: std::io::Error| format!("{}: {error}", self.dir.display());
        for entry in fs::read_dir(&self.dir).map_err(told)? {
            let entry = entry.map_err(told)?;
            if entry.file_name() != "lost+found" {
                fs::remove_dir_all(entry.path()).map_err(told)?;
            }
        }
        Ok(())
    }

    fn recover(&self, recovery: Recovery, work: &Work) -> Result<Checked, Ended> {
        match recovery {
            Recovery::Program => {
                let server = self.serve("rw")?;
                let checked = work.verify(&self.dir, &self.image.with_extension("db"));
                detach(&self.dir)?;
                server.ended()?;
                checked
            }
            Recovery::Kernel => self.through_kernel(KernelMount::new(&self.image, "")?, work),
            Recovery::Fsck => {
                let report = fsck::e2fsck_with(&self.image, &["-fy"])?;
                let fine = |question: &String| question.ends_with("Optimize? yes");
                if !matches!(report.exit, Some(0 | 1)) || !report.questions.iter().all(fine) {
                    return Err(report.output.into());
                }
                self.through_kernel(KernelMount::read_only(&self.image, "")?, work)
            }
        }
    }

    fn through_kernel(&self, mount: KernelMount, work: &Work) -> Result<Checked, Ended> {
        let checked = work.verify(mount.path(), &self.image.with_extension("db"));
        mount.unmount();
        checked
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = detach(&self.dir);
    }
}

fn sound(report: &Report) -> Result<(), Ended> {
    if report.is_sound() { Ok(()) } else { Err(report.output.clone().into()) }
}

/// The process that serves a volume; dropped, it is killed.
pub(crate) struct Server {
    process: Child,
    log: PathBuf,
}

impl Server {
    /// Has the program serve a volume in the foreground, and waits until it is mounted.
    pub(crate) fn new(program: &Path, image: &Path, dir: &Path, options: &str) -> Result<Self, Ended> {
        let log = image.with_extension("log");
        let failed = |error: std::io::Error| Ended::Failed(format!("{}: {error}", program.display()));
        let process = Command::new(program)
            .args(["mount", "--foreground", "-o", options])
            .arg(image)
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let mut server = Self { process, log };
        let started = Instant::now();
        while !is_mounted(dir) {
            if started.elapsed() > PATIENCE || server.process.try_wait().map_err(failed)?.is_some() {
                let _ = server.process.kill();
                return Err(format!("it is not mounted: {}", server.said()).into());
            }
            thread::sleep(Duration::from_millis(2));
        }
        // Until the first answer the kernel does not know what the server can: it refuses ACLs by itself.
        fs::metadata(dir).map_err(failed)?;
        Ok(server)
    }

    /// Unmounts, and waits until it has ended, which must be successful. For a while the mount may be busy with
    /// descriptors that a process being started by another test has copies of.
    pub(crate) fn unmount(self, program: &Path, dir: &Path) -> Result<(), Ended> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let said = tool::run(Command::new(program).arg("umount").arg(dir));
            if said.succeeded() {
                return self.ended();
            }
            if Instant::now() > deadline {
                return Err(said.report().into());
            }
            thread::sleep(PAUSE);
        }
    }

    /// The process.
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Kills it, and unmounts.
    pub(crate) fn kill(mut self, dir: &Path) -> Result<(), Ended> {
        let _ = self.process.kill(); // it may be dead
        self.wait()?;
        Ok(detach(dir)?)
    }

    /// Waits until it has ended, which must be successful.
    pub(crate) fn ended(mut self) -> Result<(), Ended> {
        if self.wait()?.success() {
            return Ok(());
        }
        Err(format!("it did not end well: {}", self.said()).into())
    }

    fn wait(&mut self) -> Result<ExitStatus, Ended> {
        Ok(self.process.wait().map_err(|error| format!("waiting for the server: {error}"))?)
    }

    /// Its output on standard error.
    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program of the host at work, with all the processes it started; dropped, they are killed.
pub(crate) struct Noise(Child);

impl Noise {
    pub(crate) fn begin(dir: &Path, script: &str) -> Result<Self, String> {
        let told = |error: std::io::Error| format!("a program of the host can't work: {error}");
        let from = source(Tree::Ordinary, &Scale::SMALL).map_err(|skip| skip.0)?;
        let folder = dir.join("noise");
        fs::create_dir(&folder).map_err(told)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(from).current_dir(folder).process_group(0);
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().map(Self).map_err(told)
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) else { return };
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
        // The others end when the calls that they are in are answered.
        let end = Instant::now() + PATIENCE;
        while test_kill_process_group(group).is_ok() && Instant::now() < end {
            thread::sleep(PAUSE);
        }
    }
}

/// The writers and the database, which remember their promises.
struct Work {
    writers: Vec<Writer>,
    database: Option<Database>,
}

impl Work {
    fn begin(dir: &Path, seed: u64) -> Result<Self, Ended> {
        let told = |error: std::io::Error| format!("{}: {error}", dir.display());
        let writers = (0..WRITERS).map(|n| Writer::new(dir, &format!("writer-{n}"), seed));
        let writers = writers.collect::<Result<_, _>>().map_err(told)?;
        let journal = if seed & 1 == 0 { "wal" } else { "delete" };
        let database = tool("sqlite3").map(|_| Database::new(dir, journal)).transpose()?;
        Ok(Self { writers, database })
    }

    /// Works until the server, killed after some time, no longer answers.
    fn until_killed(mut self, after: Duration, server: &mut Child) -> Self {
        thread::scope(|scope| {
            for writer in &mut self.writers {
                scope.spawn(move || while writer.step().is_ok() {});
            }
            if let Some(database) = &mut self.database {
                scope.spawn(move || while database.commit() {});
            }
            thread::sleep(after);
            let _ = server.kill();
        });
        self
    }

    fn transactions(&self) -> Option<u32> {
        self.database.as_ref().map(|database| database.acknowledged)
    }

    /// Checks everything, on a mount that may be read-only; `copy` is for a copy of the database.
    fn verify(&self, dir: &Path, copy: &Path) -> Result<Checked, Ended> {
        let mut checked = Checked::default();
        for writer in &self.writers {
            checked += writer.verify(dir)?;
        }
        if let Some(database) = &self.database {
            database.verify(dir, copy)?;
        }
        Ok(checked)
    }
}

/// A database that gets a row per transaction.
///
/// With a rollback journal a transaction is durable when the journal's removal is. SQLite can sync that, but
/// ignores it if the directory can't be opened to do so, as it is when the server has died meanwhile; so the
/// directory is synced here.
struct Database {
    folder: PathBuf,
    acknowledged: u32,
}

impl Database {
    const NAME: &str = "sql.db";

    fn new(dir: &Path, journal: &str) -> Result<Self, String> {
        let folder = dir.join("database");
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|error| format!("{}: {error}", dir.display()))?;
        let database = Self { folder, acknowledged: 0 };
        let schema = format!(
            "PRAGMA journal_mode={journal}; PRAGMA synchronous=FULL; CREATE TABLE t (n INT UNIQUE, b BLOB);"
        );
        let made = sqlite(&database.folder.join(Self::NAME), &schema)?;
        if made.succeeded() { Ok(database) } else { Err(made.report()) }
    }

    /// One more transaction; returns whether it was acknowledged.
    fn commit(&mut self) -> bool {
        let n = self.acknowledged + 1;
        let statement = format!(
            "PRAGMA synchronous=FULL; BEGIN; INSERT INTO t VALUES ({n}, randomblob(3000)); \
             UPDATE t SET b = randomblob(2000) WHERE n = {n} / 2; COMMIT;"
        );
        let committed = sqlite(&self.folder.join(Self::NAME), &statement).is_ok_and(|said| said.succeeded());
        let synced = fs::File::open(&self.folder).and_then(|folder| folder.sync_all());
        let done = committed && synced.is_ok();
        self.acknowledged += u32::from(done);
        done
    }

    /// Whether a copy of it is sound and has everything that was acknowledged, and at most one row more.
    fn verify(&self, dir: &Path, copy: &Path) -> Result<(), String> {
        let told = |error: std::io::Error| format!("{}: {error}", copy.display());
        let _ = fs::remove_dir_all(copy); // of the round before
        fs::create_dir(copy).map_err(told)?;
        for entry in fs::read_dir(dir.join("database")).map_err(told)? {
            let entry = entry.map_err(told)?;
            fs::copy(entry.path(), copy.join(entry.file_name())).map_err(told)?;
        }
        let question = "PRAGMA integrity_check; SELECT count(*), max(n) FROM t;";
        let said = sqlite(&copy.join(Self::NAME), question)?;
        let fits = |n: u32| {
            said.stdout == format!("ok\n{n}|{}\n", if n == 0 { String::new() } else { n.to_string() })
        };
        if fits(self.acknowledged) || fits(self.acknowledged + 1) {
            return Ok(());
        }
        Err(format!("the database acknowledged {} transactions: {}", self.acknowledged, said.report()))
    }
}

fn sqlite(database: &Path, statement: &str) -> Result<tool::Said, String> {
    let mut sqlite = tool::need("sqlite3").map_err(|skip| skip.0)?;
    Ok(tool::run(sqlite.args(["-bail", "-batch"]).arg(database).arg(statement)))
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(1).map(Path::new) == Some(dir))
}

/// Unmounts everything from a directory, in use or not.
pub(crate) fn detach(dir: &Path) -> Result<(), String> {
    while is_mounted(dir) {
        let mut umount = tool::need("umount").map_err(|skip| skip.0)?;
        let said = tool::run(umount.args(["-l", "--"]).arg(dir));
        if !said.succeeded() {
            return Err(said.report());
        }
    }
    Ok(())
}
