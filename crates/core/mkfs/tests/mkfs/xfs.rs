//! XFS volumes: the same bytes as mkfs.xfs writes, the same fields as xfs_db shows, clean for xfs_repair, and
//! writable for the kernel.

use crate::common::{create, folder, two_at_a_time};
use hectare_mkfs::parse_size;
use hectare_mkfs::xfs::{FormatOptions, Plan, execute, parse};
use hectare_oracle::hunt::{is_long, part};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{KernelMount, Skip, What, assert_same, skip, skip_part, walk};
use hectare_units::{Bytes, GroupNr};
use rustix::fs::SeekFrom;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const UUID: &str = "7e3c1f60-5d4b-4a39-9c1e-0123456789ab";

/// Odd sizes with the default options; those that are round have every shape ([`SHAPES`]).
const SIZES: &[&str] = &["301m", "1073754624", "129g", "50t"];

/// Sizes and arguments. What mkfs.xfs refuses, ours must refuse too.
const CASES: &[(&str, &str)] = &[
    ("1g", "-m rmapbt=1"),
    ("1g", "-m rmapbt=1,reflink=0"),
    ("1g", "-m rmapbt=1,finobt=0"),
    ("1g", "-m rmapbt=1,finobt=0,reflink=0"),
    ("1g", "-m finobt=0"),
    ("1g", "-m finobt=0,inobtcount=0"),
    ("1g", "-m finobt=0,inobtcount=1"),
    ("1g", "-m reflink=0"),
    ("1g", "-m bigtime=0"),
    ("1g", "-m inobtcount=0"),
    ("1g", "-m bigtime=0,inobtcount=0,reflink=0,finobt=0"),
    ("1g", "-i nrext64=1"),
    ("1g", "-i nrext64=1,sparse=0 -m rmapbt=1"),
    ("1g", "-i size=1024"),
    ("1g", "-i size=2048"),
    ("1g", "-i size=2048 -b size=2048"),
    ("1g", "-i sparse=0"),
    ("1g", "-i sparse=0,size=2048"),
    ("1g", "-i maxpct=50"),
    ("1g", "-i maxpct=0"),
    ("1g", "-L label"),
    ("1g", "-L 123456789012"),
    ("1g", "-L 1234567890123"),
    ("1g", "-n size=8192"),
    ("1g", "-n size=65536"),
    ("1g", "-n size=4096 -b size=8192"),
    ("1g", "-n ftype=0"),
    ("1g", "-b size=1024"),
    ("1g", "-b size=2048"),
    ("1g", "-b size=8192"),
    ("1g", "-b size=16384 -i sparse=0"),
    ("1g", "-b size=32768 -s size=32768"),
    ("1g", "-b size=65536"),
    ("1g", "-b size=65536 -i size=2048"),
    ("1g", "-b size=65536 -m rmapbt=1,reflink=0"),
    ("300m", "-b size=65536 -m rmapbt=1,reflink=0"),
    // The last group's trees could never be two blocks high, those of the others can; its list is as long.
    ("1g", "-b size=65536 -m rmapbt=1,reflink=0 -d agsize=330m"),
    ("1g", "-b size=32768 -m rmapbt=1,reflink=0 -d agsize=300m"),
    ("1g", "-b size=16384 -m rmapbt=1 -d agsize=200m"),
    ("300m", "-b size=65536 -m rmapbt=1,reflink=0 -d agsize=250m"),
    // The last group has the log, too.
    ("400m", "-b size=65536 -m rmapbt=1,reflink=0 -d agsize=300m"),
    ("1100m", "-b size=65536 -m reflink=0 -d agsize=1000m"),
    ("1g", "-m rmapbt=1 -d agsize=350m"),
    ("1g", "-b size=32768 -m reflink=0"),
    ("1g", "-b size=32768 -i nrext64=1"),
    ("300m", "-b size=32768"),
    ("5t", "-b size=1024"),
    ("5t", "-b size=65536"),
    ("1g", "-s size=1024"),
    ("1g", "-s size=4096"),
    ("1g", "-s size=4096 -m rmapbt=1"),
    ("1g", "-s size=1024 -b size=1024"),
    ("1g", "-s size=4096 -b size=1024"),
    ("1g", "-d agcount=2"),
    ("1g", "-d agcount=2 -m rmapbt=1"),
    ("1g", "-d agcount=3"),
    ("1g", "-d agcount=7"),
    ("1g", "-d agcount=1"),
    ("1g", "-d agcount=16"),
    ("1g", "-d agcount=65"),
    ("1g", "-d agsize=70m"),
    ("1g", "-d agsize=100m"),
    ("1g", "-d agsize=1001m"),
    ("1g", "-d agsize=1010m"),
    ("1g", "-d agsize=15m"),
    ("1g", "-d agsize=100000000"),
    ("1g", "-d agsize=67153920"),
    ("1g", "-d agsize=67149824"),
    ("1g", "-d agsize=25000b"),
    ("1g", "-d size=500m"),
    ("1g", "-d agcount=4,agsize=256m"),
    ("10t", "-d agsize=1t"),
    ("10t", "-d agcount=20"),
    ("4398063288320", ""),
    ("1g", "-d su=64k,sw=4"),
    ("1g", "-d sunit=128,swidth=512"),
    ("1g", "-d sunit=128,swidth=300"),
    ("1g", "-d su=64k"),
    ("1g", "-d su=5k,sw=2"),
    ("1g", "-d su=0,sw=0"),
    ("1g", "-d su=4k,sw=2"),
    ("1g", "-d su=12k,sw=5"),
    ("1g", "-d su=128k,sw=1"),
    ("1g", "-d su=200k,sw=3"),
    ("1g", "-d su=256k,sw=2 -m rmapbt=1"),
    ("1g", "-d su=64k,sw=2 -m rmapbt=1 -s size=4096"),
    ("520m", "-d su=64k,sw=4"),
    ("400m", "-d su=64k,sw=4"),
    ("10g", "-d su=1m,sw=10"),
    ("10g", "-d su=64k,sw=4,agcount=7"),
    ("10g", "-d su=64k,sw=4,agcount=4"),
    ("8589938688", "-d su=64k,sw=4"),
    ("513g", "-d su=64k,sw=4"),
    ("1t", "-d su=64k,sw=4"),
    ("50t", "-d su=64k,sw=4 -b size=16384"),
    ("100t", "-d su=256k,sw=8"),
    // The longest log is no multiple of the stripe unit.
    ("5t", "-d su=192k,sw=3"),
    ("3t", "-b size=1024 -d su=200k,sw=4"),
    ("1g", "-l size=64m"),
    ("1g", "-l size=63m"),
    ("1g", "-l size=200m"),
    ("1g", "-l size=20000b"),
    ("1g", "-l size=67109376"),
    ("1g", "-l size=67108865"),
    ("1g", "-l size=65525b"),
    ("1g", "-l size=65526b"),
    ("1g", "-l size=20001b -d su=64k,sw=4"),
    ("10t", "-l size=2038m"),
    ("10t", "-l size=2039m"),
    ("1g", "-l su=32k,version=2,lazy-count=1,internal"),
    ("1g", "-l sunit=64,size=102400k"),
    ("1g", "-l sunit=64,size=102404k"),
    ("1g", "-l su=6k"),
    ("1g", "-l su=0"),
    ("1g", "-l su=4k"),
    ("1g", "-l su=256k -m rmapbt=1"),
    ("1g", "-l su=16k -s size=4096"),
    ("1g", "-d su=64k,sw=4 -l su=96k"),
    ("5t", "-d su=512k,sw=4 -l su=128k"),
    ("1g", "-d noalign -i attr=2,align=1,projid32bit=1 -n version=2"),
    ("1g", "-i attr=1"),
    ("1g", "-i perblock=4"),
    ("1g", "-i perblock=8 -b size=8192"),
    ("1g", "-i perblock=16"),
];

/// Volumes that differ on purpose, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    // The log ends with its group: mkfs.xfs says that the longest free run is 0, and xfs_repair complains.
    ("1g", "-d agsize=67371008 -d su=256k,sw=2", "longest free run"),
    ("1g", "-l size=32736b -d su=64k,sw=4", "longest free run"),
    // mkfs.xfs leaves the bytes of a record that it deleted behind the others.
    ("10g", "-d su=60k,sw=3,agsize=1000m", "stale record"),
    // The shortest log is a bound for all volumes with such blocks.
    ("16g", "-b size=65536 -m rmapbt=1", "log"),
    ("16g", "-b size=32768 -m rmapbt=1", "log"),
    ("16g", "-b size=65536 -d su=256k,sw=2 -m rmapbt=1", "log"),
    ("16g", "-b size=32768 -i nrext64=1 -m reflink=0", "log"),
];

fn bytes(size: &str) -> Bytes {
    Bytes::new(parse_size(size, 1, None).unwrap())
}

/// Options from mkfs.xfs's arguments.
fn options(args: &str) -> hectare_mkfs::Result<FormatOptions> {
    let mut options = FormatOptions::default();
    let words: Vec<&str> = args.split_whitespace().collect();
    let (mut lists, uuid) = (Vec::new(), format!("uuid={UUID}"));
    for pair in words.chunks(2) {
        match pair {
            ["-L", label] => options.label = label.as_bytes().to_vec(),
            [flag, list] => lists.push((flag.chars().nth(1).unwrap(), *list)),
            _ => panic!("arguments come in pairs: {args}"),
        }
    }
    lists.push(('m', uuid.as_str()));
    parse(&mut options, &lists)?;
    Ok(options)
}

/// Makes a volume in a new image file.
fn format(args: &str, image: &Path, size: Bytes) -> hectare_mkfs::Result<Plan> {
    let options = options(args)?;
    let plan = Plan::new(&options, size, true)?;
    execute(&plan, &create(image, size), 2)?;
    Ok(plan)
}

/// The same with mkfs.xfs; false if it refuses.
fn reference(args: &str, image: &Path, size: Bytes) -> Result<bool, Skip> {
    drop(create(image, size));
    let mut mkfs = need("mkfs.xfs")?;
    let said =
        run(mkfs.args(["-q", "-K", "-m", &format!("uuid={UUID}")]).args(args.split_whitespace()).arg(image));
    Ok(said.succeeded())
}

/// Compares two images page by page where either has data; the first inodes' times aside.
fn assert_same_bytes(ours: &Path, theirs: &Path, plan: &Plan, what: &str) {
    let files = [File::open(ours).unwrap(), File::open(theirs).unwrap()];
    let volume = plan.volume();
    let inodes = volume.offset(GroupNr::new(0), volume.root_block()).get();
    let inode = u64::from(volume.inode_size);
    let mut at = 0;
    while let Some(start) =
        files.iter().filter_map(|file| rustix::fs::seek(file, SeekFrom::Data(at)).ok()).min()
    {
        let start = start / 4096 * 4096;
        let mut pages = [vec![0; 4096], vec![0; 4096]];
        for (file, page) in files.iter().zip(&mut pages) {
            let _ = file.read_at(page, start).unwrap();
            // Checksum, change, status and modification times, and that of making.
            for number in 0..3 {
                for (place, len) in [(0x28, 16), (0x64, 4), (0x90, 8)] {
                    let place = inodes + number * inode + place;
                    if (start..start + 4096).contains(&place) {
                        page[usize::try_from(place - start).unwrap()..][..len].fill(0);
                    }
                }
            }
        }
        if let Some(place) = (0..4096).find(|i| pages[0][*i] != pages[1][*i]) {
            let (group, within) = (
                start / volume.offset(GroupNr::new(1), 0).get(),
                start % volume.offset(GroupNr::new(1), 0).get(),
            );
            panic!(
                "{what}: group {group}, byte {within} + {place}: {:#x} instead of {:#x}",
                pages[0][place], pages[1][place]
            );
        }
        at = start + 4096;
    }
}

fn assert_repair_finds_nothing(image: &Path, what: &str) -> Result<(), Skip> {
    // Without reading ahead (`-P`): for that it has threads by the thousand, which take minutes.
    let said = run(need("xfs_repair")?.args(["-n", "-P"]).arg(image));
    assert!(said.succeeded(), "{what}: {}", said.report());
    Ok(())
}

/// What `xfs_db` shows of a structure.
fn fields(image: &Path, structure: &str) -> Result<String, Skip> {
    let mut db = need("xfs_db")?;
    let commands = structure.split(';').flat_map(|command| ["-c", command]);
    let said = run(db.arg("-r").args(commands).args(["-c", "print"]).arg(image)).expect_success();
    assert!(!said.stdout.contains("(bad)"), "{}: {}", image.display(), said.report());
    let is_timed = |line: &&str| !line.contains("time.") && !line.contains("v3.crc");
    Ok(said.stdout.lines().filter(is_timed).map(|line| format!("{line}\n")).collect())
}

/// Compares what `xfs_db` shows of the first, second, log-bearing and last group, and of the root directory.
fn assert_same_fields(ours: &Path, theirs: &Path, plan: &Plan, what: &str) -> Result<(), Skip> {
    let volume = plan.volume();
    let mut groups = vec![0, 1, volume.log.group.get(), volume.groups - 1];
    groups.dedup();
    let roots = volume.roots();
    let mut structures = vec![format!("inode {}", volume.root_inode())];
    for group in groups {
        structures.extend(["sb", "agf", "agi", "agfl"].map(|name| format!("{name} {group}")));
        structures.extend(["bnoroot", "cntroot"].map(|root| format!("agf {group};addr {root}")));
        structures.push(format!("agi {group};addr root"));
        structures.extend(roots.fino.map(|_| format!("agi {group};addr free_root")));
        structures.extend(roots.rmap.map(|_| format!("agf {group};addr rmaproot")));
        structures.extend(roots.refcount.map(|_| format!("agf {group};addr refcntroot")));
    }
    for structure in structures {
        let (ours, theirs) = (fields(ours, &structure)?, fields(theirs, &structure)?);
        assert_eq!(ours, theirs, "{what}: {structure}");
    }
    Ok(())
}

/// Makes the volume both ways and compares everything; whether mkfs.xfs makes it.
fn compare(size: &str, args: &str, fully: bool) -> Result<bool, Skip> {
    let folder = folder();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    let what = format!("{size} {args}");
    let made = reference(args, &theirs, bytes(size))?;
    match format(args, &ours, bytes(size)) {
        Ok(plan) => {
            assert!(made, "{what}: mkfs.xfs refuses this");
            assert_same_bytes(&ours, &theirs, &plan, &what);
            assert_repair_finds_nothing(&ours, &what)?;
            if fully {
                assert_same_fields(&ours, &theirs, &plan, &what)?;
            }
        }
        Err(error) => assert!(!made, "{what}: mkfs.xfs makes this, we: {error}"),
    }
    Ok(made)
}

#[test]
fn volumes_of_all_sizes_are_those_of_mkfs_xfs() {
    for size in SIZES {
        match compare(size, "", true) {
            Ok(made) => assert!(made, "{size}"),
            Err(reason) => skip!("xfs::volumes_of_all_sizes_are_those_of_mkfs_xfs", reason),
        }
    }
}

/// Options that change what lies where, beside the default.
const SHAPES: &[&str] = &[
    "",
    "-m rmapbt=1 -i nrext64=1",
    "-s size=4096 -d su=64k,sw=4 -i size=1024 -n size=8192",
    "-b size=1024 -m finobt=0,reflink=0 -i sparse=0",
];

/// Every size with every shape: the same bytes and fields, clean, written by the kernel, and still clean.
#[test]
fn every_size_takes_every_shape() {
    const TEST: &str = "xfs::every_size_takes_every_shape";
    let (small, large) = (["300m", "1g", "10g", "1t"], ["5t", "50t", "1p", "10p"]);
    let all = small.iter().map(|size| (size, true)).chain(large.iter().map(|size| (size, false)));
    for ((size, is_small), args) in all.flat_map(|of| SHAPES.iter().map(move |args| (of, args))) {
        let what = format!("{size} {args}");
        // Of the large ones two stand for all, unless all are asked for.
        let is_quick =
            is_small || (*size == "5t" && args.is_empty()) || what == "1p -m rmapbt=1 -i nrext64=1";
        if !is_quick && !is_long() {
            skip_part!(format!("{TEST}, {what}"), "long; set HECTARE_LONG=1");
            continue;
        }
        let folder = folder();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let made = || {
            if !reference(args, &theirs, bytes(size))? {
                assert!(*size == "300m" && format(args, &ours, bytes(size)).is_err(), "{what}");
                return Ok(()); // the smallest has no room for stripes
            }
            let plan = format(args, &ours, bytes(size)).unwrap();
            assert_same_bytes(&ours, &theirs, &plan, &what);
            assert_same_fields(&ours, &theirs, &plan, &what)?;
            std::fs::remove_file(&theirs).unwrap();
            assert_repair_finds_nothing(&ours, &what)?;
            kernel_writes(&ours, &what)
        };
        if let Err(reason) = made() {
            skip!(TEST, reason);
        }
    }
}

/// Free bytes of the file system that a directory lies on.
fn free_bytes(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// What xfs_db shows of the first, second, log-bearing, last and some other groups is what was planned.
fn spot_check(image: &Path, plan: &Plan) -> Result<(), Skip> {
    let volume = plan.volume();
    let (last, log) = (volume.groups - 1, volume.log.group.get());
    for group in [0, 1, 77, log - 1, log, log + 1, last / 3, last - 1, last] {
        let length = volume.group_len(GroupNr::new(group));
        let has = |structure: &str, lines: &[String]| {
            let shown = fields(image, &format!("{structure} {group}"))?;
            for line in lines {
                assert!(shown.lines().any(|shown| shown == line), "{structure} {group}: {line}: {shown}");
            }
            Ok::<(), Skip>(())
        };
        let blocks = format!("dblocks = {}", volume.blocks.get());
        has("sb", &["magicnum = 0x58465342".into(), blocks, format!("agcount = {}", volume.groups)])?;
        let number = format!("seqno = {group}");
        has("agf", &["magicnum = 0x58414746".into(), number.clone(), format!("length = {length}")])?;
        has("agi", &["magicnum = 0x58414749".into(), number.clone(), format!("length = {length}")])?;
        has("agfl", &["magicnum = 0x5841464c".into(), number])?;
    }
    Ok(())
}

/// Volumes that only some file systems can hold in a file: an exbibyte lies on an XFS volume of its own.
#[test]
fn volumes_of_exbibytes_are_written_as_planned() {
    const TEST: &str = "xfs::volumes_of_exbibytes_are_written_as_planned";
    if !is_long() {
        skip!(TEST, "long; set HECTARE_LONG=1");
    }
    let memory = folder();
    let image = memory.path().join("image");
    let plan = format("", &image, bytes("100p")).unwrap();
    if let Err(reason) = spot_check(&image, &plan) {
        skip!(TEST, reason);
    }
    std::fs::remove_file(&image).unwrap();
    let disk = tempfile::tempdir().unwrap();
    if free_bytes(disk.path()) < 40 << 30 {
        skip_part!(format!("{TEST}, 1e"), "40 GiB of disk are not free");
        return;
    }
    let below = disk.path().join("below");
    format("", &below, bytes("64g")).unwrap();
    let mount = match KernelMount::new(&below, "") {
        Ok(mount) => mount,
        Err(reason) => {
            skip_part!(format!("{TEST}, 1e"), reason);
            return;
        }
    };
    let image = mount.path().join("image");
    let plan = format("-m rmapbt=1", &image, bytes("1e")).unwrap();
    spot_check(&image, &plan).unwrap();
    mount.unmount();
}

#[test]
fn volumes_with_options_are_those_of_mkfs_xfs() {
    const TEST: &str = "xfs::volumes_with_options_are_those_of_mkfs_xfs";
    let cases = part(TEST, CASES.iter().enumerate(), 3);
    if let Err(reason) = two_at_a_time(&cases, |(at, (size, args))| compare(size, args, at % 8 == 0)) {
        skip!(TEST, reason);
    }
}

/// Has the kernel write files into the volume, then looks at it again.
fn kernel_writes(image: &Path, what: &str) -> Result<(), Skip> {
    let mount = KernelMount::new(image, "nouuid")?;
    for folder in 0..4 {
        let folder = mount.path().join(format!("folder{folder}"));
        std::fs::create_dir(&folder).unwrap();
        for file in 0..100_usize {
            std::fs::write(folder.join(format!("file{file}")), vec![b'x'; file * 1000]).unwrap();
        }
    }
    let before = walk(mount.path());
    mount.unmount();
    assert_repair_finds_nothing(image, what)?;
    let mount = KernelMount::new(image, "nouuid")?;
    assert_same(&walk(mount.path()), &before, What::all());
    mount.unmount();
    Ok(())
}

#[test]
fn the_kernel_writes_into_volumes_that_stay_clean() {
    let folder = folder();
    for (size, args) in [
        ("300m", ""),
        ("1g", ""),
        ("1g", "-m rmapbt=1 -i nrext64=1"),
        ("1g", "-m finobt=0,reflink=0,bigtime=0 -i sparse=0"),
        ("1g", "-b size=1024 -n size=8192"),
        ("1g", "-s size=4096 -d su=64k,sw=4"),
        ("10g", "-d su=1m,sw=10 -m rmapbt=1"),
        ("1g", "-l size=32736b -d su=64k,sw=4"),
        ("50t", "-m rmapbt=1"),
    ] {
        let image = folder.path().join("image");
        format(args, &image, bytes(size)).unwrap();
        if let Err(reason) = kernel_writes(&image, &format!("{size} {args}")) {
            skip!("xfs::the_kernel_writes_into_volumes_that_stay_clean", reason);
        }
    }
}

#[test]
fn what_differs_from_mkfs_xfs_is_clean_and_mounts() {
    let folder = folder();
    for (size, args, why) in DIFFERENT {
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        let what = format!("{size} {args}: {why}");
        let checked = || {
            format(args, &ours, bytes(size)).unwrap();
            assert_repair_finds_nothing(&ours, &what)?;
            if *why == "longest free run" {
                assert!(reference(args, &theirs, bytes(size))?, "{what}");
                let said = run(need("xfs_repair")?.arg("-n").arg(&theirs));
                assert!(!said.succeeded(), "{what}: no longer different: {}", said.report());
            }
            Ok::<(), Skip>(())
        };
        if let Err(reason) = checked() {
            skip!("xfs::what_differs_from_mkfs_xfs_is_clean_and_mounts", reason);
        }
        // A kernel with small pages may take no such blocks; xfs_repair has judged it then.
        match KernelMount::attempt(&ours, hectare_oracle::mount::Access::ReadWrite, "nouuid") {
            Ok(mount) => mount.unmount(),
            Err(error) => {
                skip_part!(format!("xfs::what_differs_from_mkfs_xfs_is_clean_and_mounts, {what}"), error);
            }
        }
    }
}
