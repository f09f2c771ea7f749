//! df, trim and touch.

use crate::support::{Bench, hectare, hectare_in};
use hectare_oracle::{KernelMount, skip};
use std::os::unix::fs::MetadataExt;

#[test]
fn how_full_a_volume_is_agrees_with_the_kernel() {
    for combo in ["ext2", "ext3", "ext4"] {
        let bench = match Bench::fresh(combo) {
            Ok(bench) => bench,
            Err(reason) => skip!("cli space::how_full_a_volume_is", reason),
        };
        let image = bench.image.to_str().unwrap();
        let mount = match KernelMount::read_only(&bench.image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!("cli space::how_full_a_volume_is, the kernel", reason),
        };
        let stat = rustix::fs::statvfs(mount.path()).unwrap();
        mount.unmount();
        let ours = &hectare(&["df", "--json", image]).ok().json()[0];
        let expected = [
            ("size", stat.f_blocks * stat.f_frsize),
            ("used", (stat.f_blocks - stat.f_bfree) * stat.f_frsize),
            ("available", stat.f_bavail * stat.f_frsize),
            ("inodes", stat.f_files),
            ("inodes_free", stat.f_ffree),
        ];
        for (name, value) in expected {
            assert_eq!(ours[name].as_u64(), Some(value), "{combo}: {name}");
        }
        let text = hectare(&["df", image]).ok();
        assert!(text.text().contains(&(expected[0].1 / 1024).to_string()), "{}", text.text());
        assert!(hectare(&["df", "-i", image]).ok().text().contains("IFree"));
        assert!(hectare(&["df", "-h", image]).ok().text().contains("MiB"));
    }
}

#[test]
fn the_space_of_removed_files_goes_back_to_the_host() {
    let bench = Bench::empty();
    let image = bench.image.to_str().unwrap();
    hectare(&["mkfs", "-q", image, "64M"]).ok();
    let file = bench.local("file");
    std::fs::write(&file, vec![7; 30 << 20]).unwrap();
    let taken = || std::fs::metadata(&bench.image).unwrap().blocks() * 512;
    let empty = taken();
    hectare(&["cp", file.to_str().unwrap(), &bench.at("/a")]).ok();
    hectare(&["rm", &bench.at("/a")]).ok();
    let before = taken();
    assert!(before > empty + (25 << 20), "{before}");
    let ran = hectare(&["trim", image]).ok();
    assert!(ran.text().contains("of free space discarded; the file takes"), "{}", ran.text());
    assert!(taken() + (25 << 20) < before, "{} after {before}", taken());
    hectare_oracle::assert_clean(&bench.image).unwrap();
    assert!(hectare(&["trim", "-m", "8E", image]).refused().starts_with(image), "a length no group has");
}

#[test]
fn times_are_set_and_files_made() {
    let bench = Bench::empty();
    hectare(&["mkfs", "-q", bench.image.to_str().unwrap(), "16M"]).ok();
    let stat = |name: &str| hectare(&["stat", "--json", &bench.at(name)]).ok().json();
    let touch = |words: &[&str], name: &str| hectare(&[&["touch"], words, &[&bench.at(name)]].concat());
    touch(&["-c"], "/none").ok();
    assert!(hectare(&["stat", &bench.at("/none")]).refused().contains("no such file"));
    touch(&["-d", "2001-02-03T04:05:06.5Z"], "/new").ok();
    let times = |name: &str| {
        let stat = stat(name);
        let entry = if stat.is_array() { stat[0].clone() } else { stat };
        (entry["atime"].as_str().unwrap().to_owned(), entry["mtime"].as_str().unwrap().to_owned())
    };
    let (first, second) = ("2001-02-03T04:05:06.5Z".to_owned(), "1970-01-01T00:00:09Z".to_owned());
    assert_eq!(times("/new"), (first.clone(), first.clone()));
    touch(&["-m", "-d", "@9"], "/new").ok();
    assert_eq!(times("/new"), (first, second.clone()));
    let ran = hectare_in(&["touch", &bench.at("/new")], &[("SOURCE_DATE_EPOCH", "9")]).ok();
    assert_eq!((times("/new"), ran.text()), ((second.clone(), second.clone()), ""));
    hectare(&["ln", "-s", "new", &bench.at("/link")]).ok();
    touch(&["-h", "-d", "@7"], "/link").ok();
    assert_eq!(times("/new").1, second);
    let reference = bench.local("reference");
    std::fs::write(&reference, "").unwrap();
    touch(&["-r", reference.to_str().unwrap()], "/new").ok();
    assert!(times("/new").1.starts_with("20"), "{:?}", times("/new"));
    assert!(touch(&["-d", "today"], "/new").misused().contains("@SECONDS"));
}

/// Regression of the whole way: a plan, the move, and nothing left to do; for what the kernel scattered.
#[test]
fn files_that_the_kernel_scattered_are_gathered() {
    let bench = Bench::empty();
    let image = bench.image.to_str().unwrap();
    hectare(&["mkfs", "-q", "-t", "ext3", "-b", "1024", image, "64M"]).ok();
    let mount = match KernelMount::new(&bench.image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("cli space::files_that_the_kernel_scattered", reason),
    };
    let names: Vec<_> = (0..4).map(|n| mount.path().join(format!("f{n}"))).collect();
    for step in 0..40u8 {
        for name in &names {
            let mut file = std::fs::File::options().create(true).append(true).open(name).unwrap();
            std::io::Write::write_all(&mut file, &[step; 5000]).unwrap();
            file.sync_all().unwrap();
        }
    }
    let content = std::fs::read(&names[1]).unwrap();
    std::fs::remove_file(&names[3]).unwrap();
    mount.unmount();
    let plan = hectare(&["defrag", "-nv", &bench.at("/")]).ok();
    let digest = crate::support::digest(&bench.image);
    assert!(plan.text().ends_with("5 would do\n"), "{}", plan.text());
    assert!(plan.text().contains(" 3 of them scattered") && plan.text().contains("/f1\n"), "{}", plan.text());
    assert_eq!(crate::support::digest(&bench.image), digest);
    bench.changed(&["defrag", &bench.at("/")]);
    assert_eq!(hectare(&["cat", &bench.at("/f1")]).ok().out, content);
    let ran = hectare(&["defrag", "-n", &bench.at("/")]).ok();
    assert_eq!(ran.text(), "5 files and directories, 0 of them scattered: in 5 places, 5 would do\n");
}

#[test]
fn free_space_becomes_whole_as_the_plan_says() {
    for (kind, block) in [("ext4", "1024"), ("ext4", "4096"), ("ext3", "1024"), ("ext2", "2048")] {
        let bench = Bench::empty();
        let image = bench.image.to_str().unwrap();
        hectare(&["mkfs", "-q", "-t", kind, "-b", block, image, "64M"]).ok();
        for (dir, len) in [("a", 9_000), ("b", 30_000), ("c", 70_000), ("d", 12_000)] {
            let source = bench.local(dir);
            std::fs::create_dir(&source).unwrap();
            (0..60_u8).for_each(|n| std::fs::write(source.join(n.to_string()), vec![n; len]).unwrap());
            bench.changed(&["cp", "-r", source.to_str().unwrap(), &bench.at("/")]);
        }
        bench.changed(&["rm", "-r", &bench.at("/a"), &bench.at("/c")]);
        let before = bench.local("before.img");
        std::fs::copy(&bench.image, &before).unwrap();
        let plan = hectare(&["defrag", "--free", "-n", &bench.at("/")]).ok().text().to_owned();
        let digest = crate::support::digest(&bench.image);
        assert_eq!(crate::support::digest(&before), digest, "a plan changes nothing");
        let done = hectare(&["defrag", "--free", &bench.at("/")]).ok();
        hectare_oracle::assert_clean(&bench.image).unwrap();
        // The plan is exact, also where maps have blocks of their own.
        let wanted = plan.replace("; then", "; now").replace("would move", "moved");
        assert_eq!(done.text(), wanted, "{kind} {block}");
        assert!(!done.text().ends_with(" 0 B moved\n"), "{block}: {}", done.text());
        assert_eq!(hectare(&["diff", before.to_str().unwrap(), image]).code, Some(0), "{block}");
        let again = hectare(&["defrag", "--free", "-n", &bench.at("/")]).ok().text().to_owned();
        assert!(again.ends_with(" 0 B would move\n"), "{block}: {again}");
    }
    let bench = Bench::empty();
    if let Err(reason) = hectare_oracle::mke2fs(&["-t", "ext4", "-O", "bigalloc"], &bench.image, "64M") {
        skip!("cli space::free_space_becomes_whole", reason);
    }
    let before = std::fs::read(&bench.image).unwrap();
    assert!(hectare(&["defrag", "--free", &bench.at("/")]).refused().contains("bigalloc"));
    assert!(std::fs::read(&bench.image).unwrap() == before, "a refusal changed the image");
}

#[test]
fn files_of_a_mount_are_gathered_while_it_is_in_use() {
    let bench = crate::mount::bench!("cli space::files_of_a_mount_are_gathered");
    let image = bench.image.to_str().unwrap();
    hectare(&["mkfs", "-q", "--force", "-t", "ext3", "-b", "1024", image, "64M"]).ok();
    hectare(&["mount", image, bench.dir.to_str().unwrap()]).ok();
    let names: Vec<_> = (0..3).map(|n| bench.dir.join(format!("f{n}"))).collect();
    std::fs::create_dir(bench.dir.join("dir")).unwrap();
    for step in 0..40_u8 {
        for name in &names {
            let mut file = std::fs::File::options().create(true).append(true).open(name).unwrap();
            std::io::Write::write_all(&mut file, &[step; 5000]).unwrap();
            file.sync_all().unwrap();
        }
        for nr in 0..4 {
            std::fs::write(bench.dir.join(format!("dir/{step:0150}{nr}")), "").unwrap();
        }
    }
    let dir = bench.dir.to_str().unwrap();
    let content = std::fs::read(&names[1]).unwrap();
    let open = std::fs::File::options().read(true).write(true).open(&names[1]).unwrap();
    let plan = hectare(&["defrag", "-nv", dir]).ok();
    let first: u64 = plan.text().lines().filter(|line| line.contains(" -> ")).count().try_into().unwrap();
    assert!(first >= 3 && plan.text().contains("/f1\n"), "{}", plan.text());
    let ran = hectare(&["defrag", dir]).ok();
    assert!(!ran.text().ends_with(" 0 B moved\n"), "{}", ran.text());
    // The file that is open reads and writes as before.
    let mut read = vec![0; content.len()];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut read, 0).unwrap();
    assert!(read == content);
    std::os::unix::fs::FileExt::write_all_at(&open, b"after", 100_000).unwrap();
    drop(open);
    let again = hectare(&["defrag", "-n", dir]).ok();
    assert!(again.text().contains(" 0 of them scattered"), "{}", again.text());
    bench.umount();
    hectare_oracle::assert_clean(&bench.image).unwrap();
    let mut wanted = content;
    wanted[100_000..100_005].copy_from_slice(b"after");
    let inside = format!("{image}:/f1");
    assert!(hectare(&["cat", &inside]).ok().out == wanted);
    let listed = hectare(&["ls", &format!("{image}:/dir")]).ok();
    assert_eq!(listed.text().lines().count(), 160);
    // Where the kernel sees them.
    let said = hectare_oracle::debugfs(&bench.image, &["stat /f1"]).unwrap();
    assert!(said.contains("Type: regular"), "{said}");
}

/// What a file of the tests below holds.
fn content_of(dir: &str, nr: u8) -> Vec<u8> {
    let len = match dir {
        "a" => 9_000,
        "b" => 30_000,
        "c" => 70_000,
        _ => 12_000,
    };
    vec![nr + 1; len]
}

/// The numbers of free extents that a line of `defrag --free` has, before and after.
fn free_extents(line: &str) -> Vec<u64> {
    let parts = line.split(" free extents").take(2);
    parts.map(|part| part.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn free_space_of_a_mount_becomes_whole_while_it_is_in_use() {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    let bench = crate::mount::bench!("cli space::free_space_of_a_mount");
    let image = bench.image.to_str().unwrap();
    hectare(&["mkfs", "-q", "--force", "-t", "ext4", "-b", "1024", image, "64M"]).ok();
    hectare(&["mount", image, bench.dir.to_str().unwrap()]).ok();
    let path = |dir: &str, nr: u8| bench.dir.join(dir).join(nr.to_string());
    for dir in ["a", "b", "c", "d"] {
        std::fs::create_dir(bench.dir.join(dir)).unwrap();
        (0..60).for_each(|nr| std::fs::write(path(dir, nr), content_of(dir, nr)).unwrap());
        std::fs::File::open(path(dir, 0)).unwrap().sync_all().unwrap();
    }
    std::fs::remove_dir_all(bench.dir.join("a")).unwrap();
    std::fs::remove_dir_all(bench.dir.join("c")).unwrap();
    let dir = bench.dir.to_str().unwrap();
    hectare(&["sync", dir]).ok();
    let plan = hectare(&["defrag", "--free", "-n", dir]).ok();
    assert!(plan.text().contains(" would move") && !plan.text().contains(" 0 B would"), "{}", plan.text());

    // Files that move are read, written in place, written to and removed.
    let (stop, reads, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let rewritten: Vec<_> = (0..10)
        .map(|nr| std::fs::File::options().read(true).write(true).open(path("b", nr)).unwrap())
        .collect();
    let growing = std::fs::File::options().append(true).open(path("d", 5)).unwrap();
    let written = |round: u8| vec![round | 0x80; 5000];
    let (said, last, grown) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                for nr in (10..60).step_by(7) {
                    for dir in ["b", "d"] {
                        assert!(std::fs::read(path(dir, nr)).unwrap() == content_of(dir, nr), "{dir}/{nr}");
                    }
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        let writer = scope.spawn(|| {
            let (mut round, mut grown) = (0_u8, 0);
            while !stop.load(Ordering::SeqCst) {
                round = (round + 1) % 100;
                rewritten.iter().for_each(|file| file.write_all_at(&written(round), 7_777).unwrap());
                if grown < 200_000 {
                    std::io::Write::write_all(&mut &growing, &[6; 900]).unwrap();
                    grown += 900;
                }
                std::fs::write(bench.dir.join("brief"), vec![1; 20_000]).unwrap();
                std::fs::remove_file(bench.dir.join("brief")).unwrap();
                writes.fetch_add(1, Ordering::SeqCst);
            }
            (round, grown)
        });
        // Both are at work.
        while reads.load(Ordering::SeqCst) == 0 || writes.load(Ordering::SeqCst) == 0 {
            assert!(!reader.is_finished() && !writer.is_finished(), "one has failed");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let ran = hectare(&["defrag", "--free", dir]);
        stop.store(true, Ordering::SeqCst);
        reader.join().unwrap();
        let (last, grown) = writer.join().unwrap();
        (ran.ok().text().to_owned(), last, grown)
    });
    assert!(said.contains(" moved\n") && !said.contains(" 0 B moved\n"), "{said}");
    let counts = free_extents(&said);
    assert!(counts.len() == 2 && counts[1] < counts[0] / 2, "{said}");
    // What was written last is what is read, through files that stayed open and by the format's other readers.
    let wanted = |dir: &str, nr: u8| {
        let mut content = content_of(dir, nr);
        if dir == "b" && nr < 10 {
            content[7_777..12_777].copy_from_slice(&written(last));
        }
        if dir == "d" && nr == 5 {
            content.extend(vec![6; grown]);
        }
        content
    };
    for (nr, file) in (0..).zip(&rewritten) {
        let mut found = vec![0; 30_000];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == wanted("b", nr), "b/{nr}, which was open");
    }
    drop((rewritten, growing));
    bench.umount();
    hectare_oracle::assert_clean(&bench.image).unwrap();
    for nr in 0..60 {
        for dir in ["b", "d"] {
            let found = hectare(&["cat", &format!("{image}:/{dir}/{nr}")]).ok().out;
            assert!(found == wanted(dir, nr), "{dir}/{nr}");
        }
    }
}

#[test]
fn free_space_of_a_mount_with_clusters_is_left_by_name() {
    let bench = crate::mount::bench!("cli space::free_space_of_a_mount_with_clusters");
    let image = bench.image.to_str().unwrap();
    hectare(&["mkfs", "-q", "--force", "-O", "bigalloc", image, "64M"]).ok();
    let dir = bench.dir.to_str().unwrap();
    hectare(&["mount", image, dir]).ok();
    assert!(hectare(&["defrag", "--free", dir]).refused().contains("bigalloc"));
    bench.umount();
}
