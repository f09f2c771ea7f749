//! `hectare quota` and `hectare chattr`, and limits on a mount.

use crate::mount::bench;
use crate::support::{Bench, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{assert_clean, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

fn records(image: &str, kind: &str) -> Vec<(u64, u64, u64)> {
    let json = hectare(&["quota", "--json", image]).ok().json();
    let quotas = json["quotas"].as_array().unwrap();
    let quota = quotas.iter().find(|quota| quota["kind"] == kind).unwrap();
    let number = |record: &serde_json::Value, what: &str, which: &str| record[what][which].as_u64().unwrap();
    let records = quota["records"].as_array().unwrap().iter();
    records
        .map(|record| {
            let id = record["id"].as_u64().unwrap();
            (id, number(record, "space", "used"), number(record, "space", "hard"))
        })
        .collect()
}

#[test]
fn limits_are_set_listed_and_kept() {
    let bench = Bench::empty();
    let image = bench.image();
    hectare(&["mkfs", "-b", "4096", "-O", "quota,project", image, "64M"]).ok();
    let file = bench.local("file");
    fs::write(&file, vec![7; 10_000]).unwrap();
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/f")]).ok();
    hectare(&["chown", "1000:50", &bench.at("/f")]).ok();
    hectare(&["mkdir", &bench.at("/d")]).ok();
    hectare(&["chattr", "-p", "42", "+P", &bench.at("/d")]).ok();
    bench.changed(&["cp", file.to_str().unwrap(), &bench.at("/d/g")]);
    bench.changed(&["quota", "--set", "user:1000", "--soft", "8K", "--hard", "1M", image]);
    bench.changed(&["quota", "--set", "project:42", "--hard", "2G", "--grace", "2d", image]);
    assert_eq!(records(image, "user").last(), Some(&(1000, 12_288, 1 << 20)));
    assert_eq!(records(image, "group").last(), Some(&(50, 12_288, 0)));
    assert_eq!(records(image, "project").last(), Some(&(42, 16_384, 2 << 30)));
    let text = hectare(&["quota", "--user", "--project", image]).ok();
    let row = |id: &str| text.text().lines().find(|line| line.starts_with(id)).unwrap().to_owned();
    let words = |row: &str| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&row("#1000"))[..5], ["#1000", "+-", "12", "8", "1024"]);
    assert!(words(&row("#1000"))[5].ends_with(['d', 'h']), "the time that is left: {}", row("#1000"));
    assert_eq!(words(&row("#42"))[..5], ["#42", "--", "16", "0", "2097152"]);
    assert!(text.text().contains("Space grace time: 2d; inode grace time: 2d"), "{}", text.text());
    assert!(!text.text().contains("group quotas"));
    bench.changed(&["quota", "--recount", image]);
    for (words, reason) in [
        (&["quota", "--set", "user", "--hard", "1M", image][..], "whose"),
        (&["quota", "--set", "user:5", image], "give a limit or --grace"),
        (&["quota", "--hard", "5M", image], "--set"),
        (&["chattr", "+i"], "IMAGE:PATH"),
    ] {
        let ran = hectare(words);
        assert!(ran.code != Some(0) && ran.err.contains(reason), "{}: {}", ran.line, ran.err);
    }
    hectare(&["mkfs", "--force", image, "64M"]).ok();
    assert!(hectare(&["quota", image]).refused().contains("no quotas"));
    let set = hectare(&["quota", "--set", "user:5", "--hard", "1M", image]);
    assert!(set.refused().contains("no user quotas"), "{}", set.err);
}

#[test]
fn regression_limits_and_numbers_that_the_kernel_reads_otherwise_are_refused() {
    let bench = Bench::empty();
    let image = bench.image();
    hectare(&["mkfs", "-O", "quota,project", image, "16M"]).ok();
    hectare(&["quota", "--set", "user:5", "--hard", "9223372036854774784", image]).ok();
    assert_eq!(records(image, "user").last(), Some(&(5, 0, (1 << 63) - 1024)));
    for (words, reason) in [
        // Negative for the kernel, so exceeded by everything.
        (&["quota", "--set", "user:6", "--hard", "9223372036854774785", image][..], "8 EiB"),
        (&["quota", "--set", "user:6", "--inodes-soft", "9223372036854775808", image], "8 EiB"),
        (&["quota", "--set", "user:4294967295", "--hard", "1M", image], "not the number of a user"),
        (&["quota", "--set", "user:5:7", "--hard", "1M", image], "5:7"),
        (&["quota", "--set", "user::7", "--grace", "1h", image], ":7"),
        (&["quota", "--set", "user:", "--grace", "1h", image], "not the number of a user"),
        (&["chattr", "-p", "4294967295", &bench.at("/lost+found")], "stands for no"),
        (&["chown", "4294967295", &bench.at("/lost+found")], "not the number of a user"),
        (&["quota", "--set", "user:6", "--hard", "1M", "--json", image], "--json"),
    ] {
        let ran = hectare(words);
        assert!(ran.code != Some(0) && ran.err.contains(reason), "{}: {}", ran.line, ran.err);
    }
    assert_eq!(records(image, "user").last(), Some(&(5, 0, (1 << 63) - 1024)));
}

#[test]
fn building_an_image_counts_who_owns_what() {
    const NAME: &str = "quota::building_an_image_counts";
    if !rustix::process::geteuid().is_root() {
        skip!(NAME, "giving files away needs root");
    }
    let bench = Bench::empty();
    let folder = bench.local("tree");
    fs::create_dir(&folder).unwrap();
    for n in 0..200_u32 {
        let file = folder.join(format!("f{n}"));
        fs::write(&file, vec![1; 5000]).unwrap();
        chown(&file, Some(n % 40 * 3_000_017), Some(n % 3)).unwrap();
    }
    let image = bench.image();
    hectare(&["build", "--from", folder.to_str().unwrap(), "-O", "quota,project", image]).ok();
    if let Err(reason) = assert_clean(&bench.image) {
        skip!(NAME, reason);
    }
    assert_eq!(records(image, "user").len(), 40);
    assert_eq!(records(image, "group")[1], (1, 67 * 8192, 0));
    bench.changed(&["rm", &bench.at("/f1")]);
    assert_eq!(records(image, "group")[1], (1, 66 * 8192, 0));
}

#[test]
fn a_user_of_a_mount_gets_no_more_than_the_limit() {
    const NAME: &str = "quota::a_user_of_a_mount";
    let bench = bench!(NAME);
    let mut setpriv = match need("setpriv") {
        Ok(setpriv) => setpriv,
        Err(reason) => skip!(NAME, reason),
    };
    let image = bench.image.to_str().unwrap();
    hectare(&["mkfs", "--force", "-b", "4096", "-O", "quota,project", image, "64M"]).ok();
    hectare(&["quota", "--set", "user:1000", "--hard", "1M", "--inodes-hard", "3", image]).ok();
    let folder = bench.image.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    hectare(&[&["mount"][..], &bench.words(&["-o", "allow_other"])].concat()).ok();
    fs::set_permissions(&bench.dir, fs::Permissions::from_mode(0o777)).unwrap();
    let script = "cd \"$0\"
        dd if=/dev/zero of=a bs=64k count=40 2>&1 | grep -q 'quota exceeded'
        test $(stat -c %s a) = 1048576
        ! dd if=/dev/zero of=b bs=5 count=1 2> /dev/null
        ! echo text > b 2> /dev/null
        rm a
        echo text > b && : > c && ! : > d 2> /dev/null
        sync b && test $(stat -c %s b) = 5";
    setpriv.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--", "sh", "-ec", script]);
    let _ = run(setpriv.arg(&bench.dir)).expect_success();
    fs::write(bench.dir.join("roots"), vec![1; 3 << 20]).unwrap();
    bench.unmount();
    assert_eq!(records(image, "user").last(), Some(&(1000, 4096, 1 << 20)));
}
