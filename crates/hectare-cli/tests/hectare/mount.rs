//! `hectare mount`: in the background, in the form that `mount` and `fstab` use, unmounted in every way.

use crate::support::hectare;
use hectare_oracle::{assert_clean, skip, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What `Bench` makes, or the end of a test that is skipped.
macro_rules! bench {
    ($name:expr) => {
        match $crate::mount::Bench::new() {
            Ok(bench) => bench,
            Err(reason) => hectare_oracle::skip!($name, reason),
        }
    };
}
pub(crate) use bench;

/// An image and a directory to mount it on.
pub(crate) struct Bench {
    _folder: tempfile::TempDir,
    pub(crate) image: PathBuf,
    pub(crate) dir: PathBuf,
}

/// A failed test leaves no mount, whose server would continue, or hang.
impl Drop for Bench {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.umount_with("-f");
            self.umount_with("-l");
        }
    }
}

impl Bench {
    pub(crate) fn new() -> Result<Self, &'static str> {
        if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
            return Err("mounting needs root and /dev/fuse");
        }
        let folder = tempfile::tempdir().unwrap();
        let (image, dir) = (folder.path().join("disk.img"), folder.path().join("dir"));
        fs::create_dir(&dir).unwrap();
        hectare(&["mkfs", image.to_str().unwrap(), "32M"]).ok();
        Ok(Self { _folder: folder, image, dir })
    }

    pub(crate) fn words<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&[self.image.to_str().unwrap(), self.dir.to_str().unwrap()], rest].concat()
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == self.dir.to_str())
    }

    /// Unmounts, and waits until the server has released the image.
    pub(crate) fn unmount(&self) {
        self.detach();
        self.wait_closed();
    }

    /// Unmounts. A program that another test starts has a copy of every descriptor for a moment, so that the
    /// directory may be busy.
    pub(crate) fn detach(&self) {
        until(|| Command::new("umount").arg(&self.dir).status().unwrap().success());
    }

    /// Unmounts by force or lazily, if it is mounted.
    fn umount_with(&self, how: &str) {
        let _ = Command::new("umount").args(["-q", how]).arg(&self.dir).status();
    }

    /// Unmounts by our own command, which may find the directory busy for the same reason.
    pub(crate) fn umount(&self) {
        until(|| hectare(&["umount", self.dir.to_str().unwrap()]).code == Some(0));
    }

    pub(crate) fn wait_closed(&self) {
        until(|| hectare(&["rm", "-f", &format!("{}:/none", self.image.display())]).code == Some(0));
        assert_clean(&self.image).unwrap();
    }

    /// Serves in the foreground, until the test ends it.
    pub(crate) fn in_foreground(&self) -> Child {
        self.in_foreground_with(&[], &[])
    }

    fn in_foreground_with(&self, options: &[&str], environment: &[(&str, &str)]) -> Child {
        let server = self.server(options, environment);
        until(|| self.is_mounted());
        server
    }

    fn server(&self, options: &[&str], environment: &[(&str, &str)]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_hectare"))
            .envs(environment.iter().copied())
            .args(["mount", "--foreground"])
            .args(self.words(options))
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

pub(crate) fn signal(server: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

pub(crate) fn durable(path: &Path, content: &str) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn it_is_mounted_when_the_command_returns() {
    let bench = bench!("mount::it_is_mounted_when_the_command_returns");
    hectare(&[&["mount"][..], &bench.words(&["-o", "noatime"])].concat()).ok();
    fs::write(bench.dir.join("a"), "text").unwrap();
    let busy = hectare(&["rm", &format!("{}:/a", bench.image.display())]);
    assert!(busy.refused().contains("disk.img"), "the image is locked: {}", busy.err);
    bench.unmount();
    // As mount.fuse3 calls it for an fstab line.
    hectare(&bench.words(&["-o", "rw,noexec,dev,suid,x-systemd.automount"])).ok();
    assert_eq!(fs::read(bench.dir.join("a")).unwrap(), b"text");
    bench.unmount();
}

#[test]
fn umount_returns_when_the_image_is_closed() {
    let bench = bench!("mount::umount_returns_when_the_image_is_closed");
    let dir = bench.dir.to_str().unwrap();
    let nothing = hectare(&["umount", dir]);
    assert!(nothing.refused().contains("no image is mounted there"), "{}", nothing.err);
    for round in 0..5 {
        hectare(&[&["mount"][..], &bench.words(&[])].concat()).ok();
        let name = format!("written-{round}");
        fs::write(bench.dir.join(&name), vec![7; 3 << 20]).unwrap();
        bench.umount();
        assert_clean(&bench.image).unwrap();
        let found = hectare(&["cat", &format!("{}:/{name}", bench.image.display())]).ok();
        assert!(found.out == vec![7; 3 << 20]);
    }
    hectare(&[&["mount"][..], &bench.words(&[])].concat()).ok();
    let inside = fs::File::open(&bench.dir).unwrap();
    assert!(hectare(&["umount", dir]).refused().contains("busy"));
    drop(inside);
    bench.umount();
}

#[test]
fn a_part_of_an_image_is_mounted() {
    let bench = bench!("mount::a_part_of_an_image_is_mounted");
    let volume = fs::read(&bench.image).unwrap();
    fs::write(&bench.image, [vec![0; 1 << 20], volume].concat()).unwrap();
    for part in [&["--offset", "1M"][..], &["-o", "offset=1048576"]] {
        hectare(&[&["mount"][..], &bench.words(part)].concat()).ok();
        fs::write(bench.dir.join(part[0]), "text").unwrap();
        bench.umount();
    }
    let twice =
        hectare(&[&["mount", "--offset", "1M"][..], &bench.words(&["-o", "offset=1048576"])].concat());
    assert_eq!(twice.code, Some(2));
    let bytes = fs::read(&bench.image).unwrap();
    assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0));
    fs::write(&bench.image, &bytes[1 << 20..]).unwrap();
    assert_clean(&bench.image).unwrap();
    let names = hectare(&["ls", &format!("{}:/", bench.image.display())]).ok();
    let names = String::from_utf8(names.out).unwrap();
    assert!(names.contains("--offset") && names.contains("-o"), "{names}");
}

#[test]
fn what_can_not_be_mounted_is_told() {
    let bench = bench!("mount::what_can_not_be_mounted_is_told");
    let (image, dir) = (bench.image.to_str().unwrap(), bench.dir.to_str().unwrap());
    let missing = hectare(&["mount", "/no such image", dir]);
    assert!(missing.refused().starts_with("/no such image: "));
    let nowhere = hectare(&["mount", image, "/no such directory"]);
    assert!(nowhere.refused().contains("No such file or directory"), "{}", nowhere.err);
    let offset = hectare(&["mount", image, dir, "-o", "offset=1024"]);
    assert!(offset.refused().contains("superblock"), "{}", offset.err);
    let unknown = hectare(&["mount", image, dir, "-o", "ro,fast"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("mount option 'fast'"));
    assert!(!bench.is_mounted());
    bench.wait_closed();
}

#[test]
fn signals_end_it_cleanly_and_a_kill_leaves_what_was_synced() {
    let bench = bench!("mount::signals_end_it_cleanly_and_a_kill_leaves_what_was_synced");
    for end in [Signal::TERM, Signal::INT] {
        let mut server = bench.in_foreground();
        let name = format!("written-{}", end.as_raw());
        fs::write(bench.dir.join(&name), "never synced").unwrap();
        signal(&server, end);
        assert!(server.wait().unwrap().success());
        assert!(!bench.is_mounted());
        assert_clean(&bench.image).unwrap();
        let found = hectare(&["cat", &format!("{}:/{name}", bench.image.display())]).ok();
        assert_eq!(found.out, b"never synced");
    }
    let mut server = bench.in_foreground();
    durable(&bench.dir.join("synced"), "kept");
    signal(&server, Signal::KILL);
    server.wait().unwrap();
    assert!(Command::new("umount").arg("-l").arg(&bench.dir).status().unwrap().success());
    let found = hectare(&["cat", &format!("{}:/synced", bench.image.display())]).ok();
    assert_eq!(found.out, b"kept");
    bench.wait_closed();
}

/// Whether the kernel passes `syncfs(2)` to a `fuseblk` server: since 6.18.
fn tells_of_sync() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

/// The server of a plain FUSE mount never sees `sync`, which returns 0.
#[test]
fn regression_what_sync_returned_for_survives_a_kill() {
    const NAME: &str = "mount::regression_what_sync_returned_for_survives_a_kill";
    let bench = bench!(NAME);
    if !tells_of_sync() || fs::metadata("/dev/loop-control").is_err() {
        skip!(NAME, "the kernel passes sync to no server: it is older than 6.18, or has no loop devices");
    }
    let of_one = || rustix::fs::syncfs(fs::File::open(&bench.dir).unwrap()).unwrap();
    for (round, sync) in [&of_one as &dyn Fn(), &hectare_oracle::sync_all].into_iter().enumerate() {
        let mut server = bench.in_foreground_with(&["-o", "commit=300"], &[]);
        fs::write(bench.dir.join(format!("file-{round}")), "synced").unwrap();
        fs::create_dir(bench.dir.join(format!("folder-{round}"))).unwrap();
        sync();
        signal(&server, Signal::KILL);
        server.wait().unwrap();
        bench.umount_with("-l");
        // The kernel recovers it.
        let mount = match hectare_oracle::KernelMount::new(&bench.image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!(NAME, reason),
        };
        assert_eq!(fs::read(mount.path().join(format!("file-{round}"))).unwrap(), b"synced");
        assert!(mount.path().join(format!("folder-{round}")).is_dir());
        drop(mount);
        assert_clean(&bench.image).unwrap();
    }
}

/// What the kernel finds in a file after the mount's server was killed.
fn found_after_kill(bench: &Bench, mut server: Child, name: &str) -> Result<Vec<u8>, hectare_oracle::Skip> {
    signal(&server, Signal::KILL);
    server.wait().unwrap();
    bench.umount_with("-l");
    let mount = hectare_oracle::KernelMount::new(&bench.image, "")?;
    let found = fs::read(mount.path().join(name)).unwrap();
    drop(mount);
    assert_clean(&bench.image).unwrap();
    Ok(found)
}

/// The server of a plain FUSE mount sees no sync: so what `sync` has brought is durable a second later.
#[test]
fn regression_without_fuseblk_a_change_is_durable_a_second_later() {
    const NAME: &str = "mount::regression_without_fuseblk_a_change_is_durable_a_second_later";
    let bench = bench!(NAME);
    for changes_go_on in [false, true] {
        let server = bench.in_foreground_with(&["-o", "nofuseblk"], &[]);
        let name = format!("file-{changes_go_on}");
        fs::write(bench.dir.join(&name), "synced").unwrap();
        rustix::fs::syncfs(fs::File::open(&bench.dir).unwrap()).unwrap();
        // The machine may be busy: longer than promised.
        let enough = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < enough {
            sleep(Duration::from_millis(20));
            if changes_go_on {
                fs::write(bench.dir.join("other"), "changed").unwrap();
            }
        }
        match found_after_kill(&bench, server, &name) {
            Ok(found) => assert_eq!(found, b"synced", "{name}"),
            Err(reason) => skip!(NAME, reason),
        }
    }
}

#[test]
fn hectare_sync_makes_everything_durable() {
    const NAME: &str = "mount::hectare_sync_makes_everything_durable";
    let bench = bench!(NAME);
    let dir = bench.dir.to_str().unwrap();
    assert!(hectare(&["sync", dir]).refused().contains("no image is mounted there"));
    for option in ["fuseblk", "nofuseblk"] {
        let server = bench.in_foreground_with(&["-o", &format!("{option},commit=300")], &[]);
        until(|| hectare(&["stats", dir]).code == Some(0));
        fs::write(bench.dir.join(option), vec![7; 5 << 20]).unwrap();
        hectare(&["sync", dir]).ok();
        match found_after_kill(&bench, server, option) {
            Ok(found) => assert!(found == vec![7; 5 << 20], "{option}"),
            Err(reason) => skip!(NAME, reason),
        }
    }
}

#[test]
fn a_mount_changes_while_it_is_there() {
    let bench = bench!("mount::a_mount_changes_while_it_is_there");
    let dir = bench.dir.to_str().unwrap();
    let remount = |list: &str| hectare(&["mount", "-o", &format!("remount,{list}"), dir]);
    for option in ["fuseblk", "nofuseblk"] {
        hectare(&[&["mount"][..], &bench.words(&["-o", option])].concat()).ok();
        until(|| hectare(&["stats", dir]).code == Some(0));
        let write =
            |name: &str| fs::write(bench.dir.join(name), "text").map_err(|error| error.raw_os_error());
        write("before").unwrap();
        let refuses = Err(Some(rustix::io::Errno::ROFS.raw_os_error()));
        for by_kernel in [false, true] {
            if by_kernel {
                use rustix::mount::MountFlags;
                let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
                rustix::mount::mount_remount(&bench.dir, flags, c"").unwrap();
            } else {
                remount("ro").ok();
            }
            assert_eq!(write("meanwhile"), refuses);
            assert_eq!(fs::read(bench.dir.join("before")).unwrap(), b"text");
            remount("rw,noexec").ok();
            write("after").unwrap();
        }
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.contains(dir)).unwrap();
        assert!(line.contains("nosuid,nodev,noexec,"), "what is not named stays: {line}");
        let fixed = remount("ro,commit=3");
        assert!(fixed.refused().contains("'commit=3': it can't change while it is mounted"), "{}", fixed.err);
        write("still").unwrap();
        remount("ro").ok();
        bench.umount();
        assert_clean(&bench.image).unwrap();
    }
    hectare(&[&["mount"][..], &bench.words(&["-o", "ro"])].concat()).ok();
    until(|| hectare(&["stats", dir]).code == Some(0));
    assert!(remount("rw").refused().contains("unmount, and mount with rw"));
    bench.umount();
}

/// A mount left behind by a dead server does not keep its image from being used.
#[test]
fn an_image_can_be_used_while_its_dead_mount_is_there() {
    let bench = bench!("mount::an_image_can_be_used_while_its_dead_mount_is_there");
    let mut server = bench.in_foreground();
    durable(&bench.dir.join("synced"), "kept");
    let open = fs::File::open(bench.dir.join("synced")).unwrap();
    signal(&server, Signal::KILL);
    server.wait().unwrap();
    let read = || hectare(&["cat", &format!("{}:/synced", bench.image.display())]).ok();
    assert_eq!(read().out, b"kept");
    hectare(&["umount", "--lazy", bench.dir.to_str().unwrap()]).ok();
    // The loop device is there as long as a program has a file open.
    bench.wait_closed();
    hectare(&[&["mount"][..], &bench.words(&[])].concat()).ok();
    drop(open);
    assert_eq!(fs::read(bench.dir.join("synced")).unwrap(), b"kept");
    bench.unmount();
}

#[test]
fn a_second_mount_is_told_where_the_image_is() {
    let bench = bench!("mount::a_second_mount_is_told_where_the_image_is");
    let other = bench.dir.with_file_name("other");
    fs::create_dir(&other).unwrap();
    hectare(&[&["mount"][..], &bench.words(&[])].concat()).ok();
    let again = hectare(&[&["mount"][..], &bench.words(&[])].concat());
    assert!(again.refused().ends_with("it is mounted there already"), "{}", again.err);
    let dir = bench.dir.to_str().unwrap();
    for option in ["rw", "ro"] {
        let image = bench.image.to_str().unwrap();
        let second = hectare(&["mount", "-o", option, image, other.to_str().unwrap()]);
        let what = format!("it is mounted on {dir} already; `mount --bind {dir} {}`", other.display());
        assert!(second.refused().contains(&what), "{}", second.err);
    }
    until(|| hectare(&["umount", bench.image.to_str().unwrap()]).code == Some(0));
    assert!(!bench.is_mounted());
    assert_clean(&bench.image).unwrap();
}

/// The state of each thread of the process, from `/proc`.
fn threads(server: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{server}/task")).unwrap().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok()).collect()
}

#[test]
fn who_serves_has_no_privileges() {
    let bench = bench!("mount::who_serves_has_no_privileges");
    let mut server = bench.in_foreground();
    fs::write(bench.dir.join("file"), "text").unwrap();
    let told = threads(server.id());
    assert!(told.len() > 4);
    for status in &told {
        for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{line}: {status}");
        }
    }
    // And yet it answers, and unmounts at the end.
    let report = hectare(&["stats", "--json", bench.dir.to_str().unwrap()]).ok();
    assert_eq!(report.json()["pid"], server.id());
    signal(&server, Signal::TERM);
    assert!(server.wait().unwrap().success());
    assert!(!bench.is_mounted());
    assert_clean(&bench.image).unwrap();
}

#[test]
fn what_was_written_to_open_files_is_there_after_a_signal() {
    let bench = bench!("mount::what_was_written_to_open_files_is_there_after_a_signal");
    // Also where there is no `sync` to start.
    for (byte, environment) in [(1, &[][..]), (2, &[("PATH", "/none")])] {
        let content = vec![byte; 3 << 20];
        let mut server = bench.in_foreground_with(&[], environment);
        let open = fs::File::create(bench.dir.join("open")).unwrap();
        (&open).write_all(&content).unwrap();
        signal(&server, Signal::TERM);
        assert!(server.wait().unwrap().success());
        let found = hectare(&["cat", &format!("{}:/open", bench.image.display())]).ok();
        assert!(found.out == content);
    }
    bench.wait_closed();
}

#[test]
fn regression_a_mount_whose_folder_was_renamed_ends_with_all_that_was_written() {
    let mut bench =
        bench!("mount::regression_a_mount_whose_folder_was_renamed_ends_with_all_that_was_written");
    let (above, moved) = (bench.dir.clone(), bench.dir.with_file_name("moved"));
    bench.dir = above.join("below");
    fs::create_dir(&bench.dir).unwrap();
    let mut server = bench.in_foreground();
    fs::rename(&above, &moved).unwrap();
    bench.dir = moved.join("below");
    let open = fs::File::create(bench.dir.join("open")).unwrap();
    (&open).write_all(&[3; 1 << 20]).unwrap();
    signal(&server, Signal::TERM);
    assert!(server.wait().unwrap().success());
    assert!(!bench.is_mounted());
    let found = hectare(&["cat", &format!("{}:/open", bench.image.display())]).ok();
    assert!(found.out == [3; 1 << 20]);
}

#[test]
fn regression_a_mount_that_something_lies_over_ends_with_all_that_was_written() {
    const NAME: &str = "mount::regression_a_mount_that_something_lies_over_ends_with_all_that_was_written";
    let bench = bench!(NAME);
    let mut server = bench.in_foreground();
    let mut open = fs::File::create(bench.dir.join("open")).unwrap();
    let mut over = Command::new("mount");
    over.args(["-t", "tmpfs", "over"]).arg(&bench.dir);
    assert!(over.status().unwrap().success());
    // Last: a program that is started has the file for a moment, and closing it writes back, too.
    open.write_all(&[3; 10_000]).unwrap();
    signal(&server, Signal::TERM);
    let ended = server.wait().unwrap();
    // The mount on top, and then the one below.
    bench.umount_with("-l");
    bench.umount_with("-l");
    assert!(ended.success());
    drop(open);
    bench.wait_closed();
    let found = hectare(&["cat", &format!("{}:/open", bench.image.display())]).ok();
    assert!(found.out == [3; 10_000]);
}

/// A thread that waits for its own mount can't be killed, and keeps the mount from ending.
#[test]
fn regression_a_server_that_is_killed_while_it_begins_or_ends_is_gone() {
    let bench = bench!("mount::regression_a_server_that_is_killed_while_it_begins_or_ends_is_gone");
    let kill = |mut server: Child, after: Duration| {
        sleep(after);
        signal(&server, Signal::KILL);
        let killed = Instant::now();
        while server.try_wait().unwrap().is_none() {
            if killed.elapsed() > Duration::from_secs(30) {
                // Otherwise a process that closes a file there, such as this test, hangs too.
                bench.umount_with("-f");
                panic!("it hangs");
            }
            sleep(Duration::from_millis(1));
        }
        bench.umount_with("-l");
        bench.wait_closed();
    };
    for step in 0..20 {
        kill(bench.in_foreground(), Duration::from_micros(step * 100));
        let server = bench.in_foreground();
        let gathered = fs::File::create(bench.dir.join("gathered")).unwrap();
        (&gathered).write_all(&[7; 8 << 20]).unwrap();
        signal(&server, Signal::TERM);
        kill(server, Duration::from_millis(step));
    }
}

/// The flags of all descriptors that a server has of a device.
fn descriptor_flags(server: &Child, device: &str) -> Vec<u32> {
    let proc = Path::new("/proc").join(server.id().to_string());
    let is_device =
        |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|target| target == Path::new(device));
    let flags = |entry: fs::DirEntry| {
        let text = fs::read_to_string(proc.join("fdinfo").join(entry.file_name())).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    };
    let descriptors = fs::read_dir(proc.join("fd")).unwrap().flatten().filter(is_device);
    descriptors.filter_map(flags).collect()
}

/// Whether a server's connection is read without waiting.
fn polls(server: &Child) -> bool {
    const NONBLOCK: u32 = 0o4000;
    descriptor_flags(server, "/dev/fuse").into_iter().any(|flags| flags & NONBLOCK != 0)
}

#[test]
fn it_polls_while_many_requests_come_and_only_then() {
    const NAME: &str = "mount::it_polls_while_many_requests_come_and_only_then";
    let bench = bench!(NAME);
    if std::thread::available_parallelism().unwrap().get() == 1 {
        skip!(NAME, "there is one processor");
    }
    if !Path::new("/proc/self/schedstat").exists() {
        skip!(NAME, "the kernel does not tell how long threads waited");
    }
    // Every check is a request.
    let look = || (0..50).for_each(|_| drop(fs::metadata(bench.dir.join("none"))));
    for (option, polls_then) in [("noidle_poll", true), ("noidle_poll,nobusy_poll", false)] {
        let mut server = bench.in_foreground_with(&["-o", &format!("actimeo=0,{option}")], &[]);
        assert!(!polls(&server));
        if polls_then {
            until(|| {
                look();
                polls(&server)
            });
            until(|| !polls(&server));
        } else {
            (0..20).for_each(|_| {
                look();
                assert!(!polls(&server));
            });
        }
        bench.unmount();
        assert!(server.wait().unwrap().success());
    }
}

/// Where programs set the maximum latency for waking a processor.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Whether idle processors are kept from halting: no latency is allowed, by any process.
fn idle_polls() -> Option<bool> {
    let mut bytes = [0; 4];
    fs::File::open(LATENCY).ok()?.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes) == 0)
}

#[test]
fn idle_processors_poll_while_many_requests_come_and_only_then() {
    const NAME: &str = "mount::idle_processors_poll_while_many_requests_come_and_only_then";
    let bench = bench!(NAME);
    let driver = fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver");
    if !driver.is_ok_and(|driver| driver.trim() == "haltpoll") {
        skip!(NAME, "idle processors can't poll here");
    }
    if std::thread::available_parallelism().unwrap().get() == 1 {
        skip!(NAME, "there is one processor");
    }
    if idle_polls().is_none() {
        skip!(NAME, "/dev/cpu_dma_latency can't be read");
    }
    let asks = |server: &Child| !descriptor_flags(server, LATENCY).is_empty();
    let mut server = bench.in_foreground_with(&["-o", "noidle_poll"], &[]);
    assert!(!asks(&server));
    bench.unmount();
    assert!(server.wait().unwrap().success());
    let mut server = bench.in_foreground_with(&["-o", "actimeo=0"], &[]);
    // Another test's mount may be in a burst, so check whether this one takes part.
    assert!(asks(&server) && !polls(&server));
    until(|| {
        (0..50).for_each(|_| drop(fs::metadata(bench.dir.join("none"))));
        assert!(!polls(&server), "both help at once");
        idle_polls() == Some(true)
    });
    until(|| idle_polls() == Some(false));
    bench.unmount();
    assert!(server.wait().unwrap().success());
}

/// Regression: they were mounted for writing, where no file could be created.
#[test]
fn regression_ext2_and_ext3_are_written_through_a_mount() {
    let bench = bench!("cli mount::ext2_and_ext3");
    for kind in ["ext2", "ext3"] {
        let image = bench.image.to_str().unwrap();
        hectare(&["mkfs", "--force", "-t", kind, image]).ok();
        let ran = hectare(&[&["mount"], bench.words(&[]).as_slice()].concat());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        let content: Vec<u8> = (0..900_000u32).flat_map(u32::to_le_bytes).collect();
        fs::create_dir(bench.dir.join("d")).unwrap();
        fs::write(bench.dir.join("d/f"), &content).unwrap();
        let file = fs::File::options().write(true).open(bench.dir.join("d/f")).unwrap();
        let refused = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 5 << 20);
        assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP), "a block map has no unwritten blocks");
        drop(file);
        bench.unmount();
        assert_clean(&bench.image).unwrap();
        let read = hectare(&["cat", &format!("{image}:/d/f")]).ok().out;
        assert!(read == content, "{kind}");
        hectare(&["cp", "/etc/hostname", &format!("{image}:/hostname")]).ok();
        hectare(&["rm", "-r", &format!("{image}:/d")]).ok();
        assert_clean(&bench.image).unwrap();
    }
}

#[test]
fn options_of_the_kernel_are_taken_and_logged() {
    let bench = bench!("cli mount::options_of_the_kernel");
    let log = bench.image.with_extension("log");
    let options = "nodiratime,barrier=1,journal_checksum,noacl,lazytime";
    let words = bench.words(&["-o", options, "--log", log.to_str().unwrap()]);
    hectare(&[&["mount"], words.as_slice()].concat()).ok();
    fs::write(bench.dir.join("f"), "text").unwrap();
    bench.unmount();
    let said = fs::read_to_string(&log).unwrap();
    for option in ["barrier=1", "journal_checksum"] {
        assert!(said.contains(&format!("mount option '{option}' changes nothing: ")), "{said}");
    }
    let ran = hectare(&[&["mount"], bench.words(&["-o", "norecovery"]).as_slice()].concat());
    assert!(ran.err.contains("can only be read: open it so (ro)"), "{}", ran.err);
    assert_ne!(ran.code, Some(0));
    hectare(&[&["mount"], bench.words(&["-o", "ro,noload"]).as_slice()].concat()).ok();
    assert_eq!(fs::read(bench.dir.join("f")).unwrap(), b"text");
    bench.unmount();
    assert_clean(&bench.image).unwrap();
}

#[test]
fn a_mount_is_shut_down() {
    let bench = bench!("cli mount::a_mount_is_shut_down");
    for option in [&[][..], &["--flush-log"], &["--cut"]] {
        hectare(&[&["mount"], bench.words(&[]).as_slice()].concat()).ok();
        let dir = bench.dir.to_str().unwrap();
        hectare(&[&["shutdown"], option, &[dir]].concat()).ok();
        let refused = fs::write(bench.dir.join("late"), "text").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        bench.unmount();
    }
    hectare(&["ls", &format!("{}:/", bench.image.to_str().unwrap())]).ok();
    let ran = hectare(&["shutdown", "/"]);
    assert!(ran.refused().contains("Inappropriate ioctl"), "{}", ran.err);
}

/// Regression: the helper unmounted when the server was gone before it read an answer: then the connection of
/// the two ends with an error. So what a program wrote next went into the directory below.
#[test]
fn regression_a_mount_stays_when_its_server_is_killed_while_it_begins() {
    let bench = bench!("mount::regression_a_mount_stays_when_its_server_is_killed_while_it_begins");
    for step in 0..20 {
        let mut server = bench.server(&[], &[]);
        while !bench.is_mounted() {
            sleep(Duration::from_micros(20));
        }
        sleep(Duration::from_micros(step * 50));
        // The helper's answer is not read from here on.
        signal(&server, Signal::STOP);
        sleep(Duration::from_millis(10));
        signal(&server, Signal::KILL);
        server.wait().unwrap();
        // The helper notices a little later.
        sleep(Duration::from_millis(30));
        assert!(bench.is_mounted(), "step {step}: programs must get errors, not the directory below");
        bench.umount_with("-l");
        bench.wait_closed();
    }
}
