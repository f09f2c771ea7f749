//! Callers that mount an image: a user without root, `mount` by its type, a line of fstab.

use crate::mount::{Bench, bench};
use crate::support::hectare;
use hectare_oracle::tool::{Said, find, need, run};
use hectare_oracle::{Skip, assert_clean, skip};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

const USER: u32 = 1000;

/// A user other than root, with a copy of the program that this user may run.
struct User {
    program: PathBuf,
}

impl User {
    /// The image and the directory to mount on are given to the user.
    fn of(bench: &Bench) -> Result<Self, Skip> {
        need("setpriv")?;
        let helper = find("fusermount3").and_then(|helper| fs::metadata(helper).ok());
        if helper.is_none_or(|helper| helper.mode() & 0o4000 == 0) {
            return Err(Skip::new("there is no fusermount3 that is set-user-ID root"));
        }
        let folder = bench.image.parent().unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        for path in [&bench.image, &bench.dir] {
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        let program = folder.join("hectare");
        crate::support::copy_binary(&program);
        Ok(Self { program })
    }

    fn runs(&self, program: impl AsRef<Path>, words: &[&str]) -> Said {
        let id = USER.to_string();
        let mut setpriv = need("setpriv").unwrap();
        setpriv.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
        run(setpriv.arg(program.as_ref()).args(words).current_dir("/"))
    }

    fn hectare(&self, words: &[&str]) -> Said {
        self.runs(&self.program, words)
    }
}

/// Where `/dev/fuse` is accessible to root only, as without udev's rules, runs the test in a namespace where
/// it is open to all, and returns whether it did.
fn ran_with_open_device(name: &str, bench: &Bench) -> Result<bool, Skip> {
    if fs::metadata("/dev/fuse").is_ok_and(|device| device.mode() & 0o006 == 0o006) {
        return Ok(false);
    }
    let script = r#"mount -t tmpfs none "$0"; mknod -m 666 "$0/fuse" c 10 229
        mount --bind "$0/fuse" /dev/fuse; test "$(stat -c %a /dev/fuse)" = 666
        exec "$1" --exact --nocapture "$2""#;
    let mut inside = need("unshare")?;
    inside.args(["--mount", "sh", "-ec", script]).arg(&bench.dir);
    let said = run(inside.arg(std::env::current_exe().unwrap()).arg(name)).expect_success();
    assert!(said.stdout.contains("1 passed"), "{}", said.report());
    Ok(true)
}

/// Another user, with access to `/dev/fuse`; the test ends here where it has run in a namespace, and is
/// skipped where there is none.
macro_rules! other_user {
    ($name:expr, $bench:expr) => {{
        match ran_with_open_device($name, &$bench) {
            Ok(false) => {}
            Ok(true) => return,
            Err(reason) => skip!($name, reason),
        }
        match User::of(&$bench) {
            Ok(user) => user,
            Err(reason) => skip!($name, reason),
        }
    }};
}

#[test]
fn a_user_without_root_mounts_an_image_of_his_own() {
    const NAME: &str = "mount_callers::a_user_without_root_mounts_an_image_of_his_own";
    let bench = bench!(NAME);
    let user = other_user!(NAME, bench);
    let dir = bench.dir.to_str().unwrap();
    for round in 0..3 {
        let _ = user.hectare(&[&["mount"][..], &bench.words(&[])].concat()).expect_success();
        assert!(bench.is_mounted());
        assert!(fs::read_dir(&bench.dir).is_err(), "it is his alone, not even root's");
        let script = format!(
            "mkdir {dir}/d{round}; cd {dir}/d{round}
             head -c 3000000 /dev/zero > f; ln f g; mv g h; test $(stat -c %h f) = 2"
        );
        // Nobody checks permissions of his own volume, which root made.
        let _ = user.runs("/bin/sh", &["-ec", &script]).expect_success();
        // Three ways to end it.
        let ended = match round {
            0 => user.hectare(&["umount", dir]),
            1 => user.runs("fusermount3", &["-u", dir]),
            _ => user.runs("umount", &[dir]),
        };
        let _ = ended.expect_success();
        assert!(!bench.is_mounted());
        bench.wait_closed();
        let found = hectare(&["stat", &format!("{}:/d{round}/h", bench.image.display())]).ok();
        assert!(found.text().contains("3000000"), "{}", found.text());
    }
}

#[test]
fn regression_root_does_not_open_the_image_of_another_users_mount() {
    const NAME: &str = "mount_callers::regression_root_does_not_open_the_image_of_another_users_mount";
    let bench = bench!(NAME);
    let user = other_user!(NAME, bench);
    drop(user.hectare(&[&["mount"][..], &bench.words(&[])].concat()).expect_success());
    // A process that opens it to wait finds it in use for two minutes.
    fs::rename(&bench.image, bench.image.with_extension("moved")).unwrap();
    hectare(&["mkfs", bench.image.to_str().unwrap(), "32M"]).ok();
    let _held = hectare_device::FileOptions::new().write(true).open(&bench.image).unwrap();
    let ended = hectare(&["umount", bench.dir.to_str().unwrap()]).ok();
    assert!(!bench.is_mounted());
    assert!(ended.err.contains(&format!("the server of user {USER} may still be writing")), "{}", ended.err);
    fs::rename(bench.image.with_extension("moved"), &bench.image).unwrap();
    bench.wait_closed();
}

#[test]
fn what_a_user_without_root_may_not_is_refused_on_one_line() {
    const NAME: &str = "mount_callers::what_a_user_without_root_may_not_is_refused_on_one_line";
    let bench = bench!(NAME);
    let user = other_user!(NAME, bench);
    let mount = |options: &[&str], dir: &str| {
        let refused = user.hectare(&[&["mount", bench.image.to_str().unwrap(), dir], options].concat());
        assert_eq!(refused.exit, Some(1), "{}", refused.report());
        assert!(refused.stderr.trim_end().lines().count() == 1, "{}", refused.report());
        refused.stderr
    };
    // A directory of another user.
    let other = bench.dir.with_file_name("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    assert!(mount(&[], other).contains(other));
    let configuration = fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    if !configuration.lines().any(|line| line.trim() == "user_allow_other") {
        assert!(mount(&["-o", "allow_other"], bench.dir.to_str().unwrap()).contains("allow_other"));
    }
    // An image that the user may not write.
    chown(&bench.image, Some(0), Some(0)).unwrap();
    assert!(mount(&[], bench.dir.to_str().unwrap()).contains("Permission denied"));
    assert!(!bench.is_mounted());
    let _ = user.hectare(&[&["mount"][..], &bench.words(&["-o", "ro"])].concat()).expect_success();
    let _ = user.runs("fusermount3", &["-u", bench.dir.to_str().unwrap()]).expect_success();
    bench.wait_closed();
}

/// Runs a shell script as `mount` would run where the program is installed: in a namespace of its own, whose
/// `/usr/local/bin` has nothing else. `mount` passes nothing of the caller's `PATH`.
fn installed(folder: &Path, script: &str) -> Result<Said, Skip> {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    crate::support::copy_binary(&bin.join("hectare"));
    let script = format!("mount --bind {} /usr/local/bin\n{script}", bin.display());
    Ok(run(need("unshare")?.args(["--mount", "sh", "-exc", &script])))
}

#[test]
fn regression_umount_waits_whoever_mounted_it() {
    const NAME: &str = "mount_callers::regression_umount_waits_whoever_mounted_it";
    let bench = bench!(NAME);
    let (folder, image, dir) = (bench.image.parent().unwrap(), bench.image.display(), bench.dir.display());
    // As fuseblk `umount` waits by itself; otherwise by the helper that it calls for users, with the options
    // that it gives. `e2fsck` and the next mount wait for nothing.
    let script = format!(
        "ln -s hectare /usr/local/bin/umount.fuse.hectare
        nofuseblk() {{ umount.fuse.hectare $1 -n -v -t fuse.hectare; }}
        fuseblk() {{ umount $1; }}
        for options in fuseblk nofuseblk; do for round in 1 2 3 4 5 6 7 8 9 10; do
        hectare mount -o $options {image} {dir}
        grep ' {dir} fuse' /proc/self/mounts
        head -c 300000 /dev/urandom > {dir}/$options-$round
        $options {dir}
        e2fsck -fn {image}
        done; done"
    );
    match installed(folder, &script) {
        Ok(said) => {
            let said = said.expect_success();
            let kinds = [" fuseblk.hectare ", " fuse.hectare "].map(|kind| said.stdout.matches(kind).count());
            assert_eq!(kinds, [10, 10], "{}", said.report());
        }
        Err(reason) => skip!(NAME, reason),
    }
}

/// Regression: the setting of its block device was changed instead; it is of no use to the mount, and stays
/// with the device for its next user.
#[test]
fn regression_reading_ahead_was_set_for_the_loop_device() {
    const NAME: &str = "mount_callers::regression_reading_ahead_was_set_for_the_loop_device";
    let bench = bench!(NAME);
    let (folder, image, dir) = (bench.image.parent().unwrap(), bench.image.display(), bench.dir.display());
    let script = format!(
        "hectare mount -o max_readahead=786432 {image} {dir}
        of=/sys/class/bdi/$(mountpoint -d {dir})
        cat $of-fuseblk/read_ahead_kb $of/read_ahead_kb | tr '\\n' ' '
        umount {dir}"
    );
    match installed(folder, &script) {
        Ok(said) => {
            let said = said.expect_success();
            let settings: Vec<&str> = said.stdout.split_whitespace().collect();
            assert!(settings[0] == "768" && settings[1] != "768", "{}", said.report());
        }
        Err(reason) => skip!(NAME, reason),
    }
}

/// `mount.fuse` adds `dev,suid` by itself whenever root mounts.
#[test]
fn regression_an_images_programs_are_not_run_as_root_by_fstab() {
    const NAME: &str = "mount_callers::regression_an_images_programs_are_not_run_as_root_by_fstab";
    let bench = bench!(NAME);
    if let Err(reason) = need("mount.fuse3") {
        skip!(NAME, reason);
    }
    let (folder, image, dir) = (bench.image.parent().unwrap(), bench.image.display(), bench.dir.display());
    // The options, and whether the flags are there: by mount.fuse3, by a link of ours, by the command.
    let script = format!(
        "flags() {{ grep ' {dir} ' /proc/self/mounts | tee -a {dir}-seen | cut -d ' ' -f 4; umount {dir}; }}
        off() {{ flags | grep -q '^rw,nosuid,nodev,'; }}
        on() {{ flags | grep -qv -e nosuid -e nodev; }}
        wait_closed() {{ hectare rm -f {image}:/none; }}
        for options in defaults allow_other dev,suid,allow_other; do
        mount -t fuse.hectare -o $options {image} {dir}; off; wait_closed
        done
        mount -t fuse.hectare -o allow_dev,allow_suid {image} {dir}; on; wait_closed
        mkdir {dir}-sbin; ln -s /usr/local/bin/hectare {dir}-sbin/mount.hectare
        mount -t overlay -o lowerdir={dir}-sbin:/usr/sbin none /usr/sbin
        mount -t hectare -o allow_other {image} {dir}; off; wait_closed
        mount -t hectare -o user {image} {dir}; off; wait_closed
        mount -t hectare -o allow_dev,allow_suid {image} {dir}; on; wait_closed
        hectare mount {image} {dir}; off; wait_closed
        hectare mount -o dev,suid {image} {dir}; on; wait_closed"
    );
    match installed(folder, &script) {
        Ok(said) => drop(said.expect_success()),
        Err(reason) => skip!(NAME, reason),
    }
    let seen = fs::read_to_string(format!("{dir}-seen")).unwrap();
    assert_eq!(seen.lines().count(), 9, "{seen}");
}

#[test]
fn mount_and_fstab_know_it_by_its_type() {
    const NAME: &str = "mount_callers::mount_and_fstab_know_it_by_its_type";
    let bench = bench!(NAME);
    if let Err(reason) = need("mount.fuse3") {
        skip!(NAME, reason);
    }
    let (folder, image, dir) =
        (bench.image.parent().unwrap(), bench.image.display().to_string(), bench.dir.display().to_string());
    let table = folder.join("fstab");
    let [writable, readable, wrong] =
        ["noauto,nofail,allow_other,x-systemd.requires=network.target", "ro,user,_netdev", "quickly"]
            .map(|options| format!("{image} {dir} fuse.hectare {options} 0 0"));
    let script = format!(
        "mount -t fuse.hectare {image} {dir} -o noatime,nosuid
        grep ' {dir} fuse[a-z]*.hectare rw,nosuid,nodev,noatime,' /proc/self/mounts
        echo by-type > {dir}/f
        mount -o remount,ro {dir}
        grep ' {dir} fuse[a-z]*.hectare ro,nosuid,nodev,noatime,' /proc/self/mounts
        hectare umount {dir}
        mount -t fuse.hectare -o nofuseblk {image} {dir}
        mount -o remount,ro {dir}
        grep ' {dir} fuse.hectare ro,nosuid,nodev,' /proc/self/mounts
        hectare umount {dir}
        from_table() {{ echo \"$1\" > {table}; mount --fstab {table} {dir}; }}
        from_table '{writable}'
        test $(cat {dir}/f) = by-type
        echo by-line > {dir}/f
        hectare umount {dir}
        from_table '{readable}'
        test $(cat {dir}/f) = by-line
        if touch {dir}/g; then exit 1; fi
        hectare umount {dir}
        if mount -t fuse.hectare {image} {dir}-missing 2> {dir}-told; then exit 1; fi
        grep -q \"{dir}-missing: it can't be mounted on: No such file or directory\" {dir}-told
        if from_table '{wrong}' 2> {dir}-told; then exit 1; fi
        grep -q \"mount option 'quickly'\" {dir}-told
        if grep -q ' {dir} ' /proc/self/mounts; then exit 1; fi",
        table = table.display(),
    );
    match installed(folder, &script) {
        Ok(said) => drop(said.expect_success()),
        Err(reason) => skip!(NAME, reason),
    }
    assert_clean(&bench.image).unwrap();
    let found = hectare(&["cat", &format!("{image}:/f")]).ok();
    assert_eq!(found.text(), "by-line\n");
}

/// umount finds it again by the table of mounts.
#[test]
fn a_mount_that_the_table_of_mounts_does_not_show_is_taken_off_again() {
    const NAME: &str = "mount_callers::a_mount_that_the_table_of_mounts_does_not_show_is_taken_off_again";
    let bench = bench!(NAME);
    let (folder, image, dir) = (bench.image.parent().unwrap(), bench.image.display(), bench.dir.display());
    for (proc, said) in [
        (
            "mkdir /proc/self; touch /proc/self/mountinfo; ln -s /usr/local/bin/hectare /proc/self/exe",
            "not in the table of mounts; is /proc mounted?",
        ),
        (
            "mkdir /proc/self; ln -s /usr/local/bin/hectare /proc/self/exe",
            "/proc/self/mountinfo: No such file or directory",
        ),
        ("true", "the process that mounts can't be started: No such file or directory"),
    ] {
        let script = format!(
            "mount -t tmpfs none /proc; {proc}
            mount='hectare mount --foreground --log-level off'
            if timeout 60 $mount {image} {dir} 2> {dir}-told; then exit 1; fi
            umount /proc
            if grep ' {dir} ' /proc/self/mounts; then exit 1; fi"
        );
        match installed(folder, &script) {
            Ok(done) => drop(done.expect_success()),
            Err(reason) => skip!(NAME, reason),
        }
        let told = fs::read_to_string(format!("{dir}-told")).unwrap();
        assert!(told.lines().count() == 1 && told.contains(said), "{told}");
    }
    bench.wait_closed();
}

/// The socket of a mount belongs to its user.
#[test]
fn tunables_of_a_mount_are_for_its_user_and_root_to_set() {
    const NAME: &str = "mount_callers::tunables_of_a_mount_are_for_its_user_and_root_to_set";
    let bench = bench!(NAME);
    let user = match User::of(&bench) {
        Ok(user) => user,
        Err(reason) => skip!(NAME, reason),
    };
    hectare(&[&["mount", "-o", "allow_other"], &bench.words(&[])[..]].concat()).ok();
    let set = ["stats", bench.dir.to_str().unwrap(), "--set", "mb_max_to_scan=9"];
    let refused = user.hectare(&set);
    assert!(!refused.succeeded() && refused.stderr.contains("can't be reached"), "{}", refused.report());
    assert!(hectare(&set).ok().text().contains("\tmb_max_to_scan=9\n"));
    bench.unmount();
}
