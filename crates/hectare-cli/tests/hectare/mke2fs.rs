//! The understudy of mke2fs: command lines of image builders, run by links to the binary and by mke2fs
//! itself. Time, UUID and hash seed are fixed, so what dumpe2fs prints of both is equal to the last letter.

use crate::support::Bench;
use hectare_oracle::compare::Times;
use hectare_oracle::tool::{Said, need, run};
use hectare_oracle::{
    KernelMount, Scale, Tree, What, assert_clean, assert_same, is_root, skip, skip_part, source, walk,
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

const UUID: &str = "11111111-2222-4333-8444-555555555555";
const BINARY: &str = env!("CARGO_BIN_EXE_hectare");
const NAMES: [&str; 4] = ["mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4"];

/// Command lines without content. A first word that ends with a colon is the size of a file made before.
const EMPTY: [&str; 69] = [
    "mke2fs disk.img 10M",
    "mke2fs disk.img 1440",
    "mke2fs -q disk.img 20480s",
    "mke2fs -qF -t ext4 disk.img 60M",
    "mke2fs -q -q -F -F -t ext4 disk.img 600M",
    "mke2fs -t ext2 disk.img 100M",
    "mke2fs -t ext3 disk.img 100M",
    "mke2fs -j disk.img 100M",
    "mke2fs -J size=4 disk.img 100M",
    "mke2fs -T ext4 disk.img 100M",
    "mke2fs -t ext3 -T ext4 disk.img 100M",
    "mke2fs -t small disk.img 100M",
    "mkfs.ext2 disk.img 8M",
    "mkfs.ext3 -q disk.img 64M",
    "mkfs.ext4 -q -t ext3 disk.img 64M",
    "mkfs.ext4 -F disk.img 1G",
    "mkfs.ext4 -F disk.img 5T",
    "mke2fs -t ext4 -O ^metadata_csum,^64bit disk.img 60M",
    "mke2fs -t ext4 -O ^64bit -O ^metadata_csum disk.img 60M",
    "mke2fs -t ext4 -O extents,^huge_file,uninit_bg,^metadata_csum disk.img 60M",
    "mke2fs -t ext4 -O ^has_journal,^resize_inode,sparse_super2 -E num_backup_sb=1 disk.img 300M",
    "mke2fs -t ext4 -O bigalloc -C 64k disk.img 1G",
    "mke2fs -t ext4 -O bigalloc disk.img 1G",
    "mke2fs -t ext4 -O meta_bg,^resize_inode disk.img 1G",
    "mke2fs -t ext4 -O quota,^quota disk.img 60M",
    "mke2fs -t ext4 -O inline_data,ea_inode,large_dir,project disk.img 60M",
    "mke2fs -t ext4 -O none disk.img 60M",
    "mke2fs -t ext4 -b 1024 disk.img 61440",
    "mke2fs -t ext4 -b 4096 disk.img 15360",
    "mke2fs -t ext4 -b 2k disk.img 60M",
    "mke2fs -t ext4 -b -2048 disk.img 60M",
    "mke2fs -t ext4 -b -1024 disk.img 1G",
    "mke2fs -F -t ext4 -b 16384 disk.img 200M",
    "mke2fs -F -t ext4 -b 65536 disk.img 200M",
    "mke2fs -F -t ext4 -b 8192 -T news disk.img 200M",
    "mke2fs -t ext4 -g 4096 -G 4 disk.img 60M",
    "mke2fs -t ext4 -i 4096 -I 512 disk.img 60M",
    "mke2fs -t ext4 -i 16k -m 0.5 disk.img 60M",
    "mke2fs -t ext4 -i 8192 -N 100 disk.img 60M",
    "mke2fs -t ext4 -N 0 -i 8192 disk.img 60M",
    "mke2fs -t ext4 -I 128 disk.img 60M",
    "mke2fs -t ext4 -J size=8 disk.img 60M",
    "mke2fs -t ext4 -L label -M /mnt -e remount-ro disk.img 60M",
    "mke2fs -t ext4 -r 1 -o linux -D disk.img 60M",
    "mke2fs -t ext4 -U clear disk.img 60M",
    "mke2fs -t ext4 -E test_fs,stride=4,stripe-width=16 disk.img 60M",
    "mke2fs -t ext4 -R stride=8 disk.img 60M",
    "mke2fs -t ext4 -E lazy_itable_init=0,lazy_journal_init=1,nodiscard disk.img 60M",
    "mke2fs -t ext4 -E packed_meta_blocks=1 disk.img 1G",
    "mke2fs -t ext4 -E resize=4G disk.img 60M",
    "mke2fs -t ext4 -E root_owner=5:6 disk.img 60M",
    "mke2fs -t ext4 -O mmp -E mmp_update_interval=7 disk.img 60M",
    "mke2fs -t ext4 -T largefile disk.img 60M",
    "mke2fs -t ext4 -T small,largefile disk.img 60M",
    "mke2fs -t ext4 -T largefile4,small disk.img 60M",
    "mke2fs -t ext4 -T news disk.img 2G",
    "mke2fs -t ext4 -T default disk.img 60M",
    "mke2fs -t ext4 -T floppy disk.img 60M",
    "mke2fs -t ext4 -T nothing disk.img 60M",
    "mke2fs -t ext4 disk.img -L after 60M -m 1",
    "mke2fs -t ext4 -- disk.img 60M",
    "mke2fs -t ext4 disk.img +60M",
    "60M: mke2fs -t ext4 disk.img",
    "10000001: mke2fs -t ext4 disk.img",
    "60M: mke2fs -t ext4 -E nodiscard disk.img 30M",
    "30M: mke2fs -t ext4 disk.img 60M",
    // Debian live-build, genimage, systemd-repart without sources.
    "400M: mkfs.ext4 -F -b 4096 -m 0 -L live disk.img",
    "200M: mkfs.ext4 -E nodiscard -L root -O ^metadata_csum,^64bit,sparse_super disk.img",
    "600M: mkfs.ext4 -q -L root -I 256 -m 0 -E nodiscard,lazy_itable_init=1,root_owner=0:0 -b 4096 -T \
     default disk.img",
];

/// Command lines of image builders that copy a tree, `rootfs`.
const FILLED: [&str; 18] = [
    // Buildroot.
    "mkfs.ext4 -d rootfs -r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit disk.img 60M",
    "mkfs.ext2 -d rootfs -r 1 -N 0 -m 5 -L rootfs -I 256 -O ^64bit disk.img 60M",
    "mkfs.ext3 -d rootfs -r 1 -N 0 -m 5 -L rootfs -I 256 disk.img 60M",
    // Yocto, and wic.
    "60M: mkfs.ext4 -F -i 4096 disk.img -d rootfs",
    "60M: mkfs.ext4 -F -i 4096 -O ^64bit -b 4096 disk.img -d rootfs",
    "60M: mkfs.ext3 -F -i 4096 disk.img -d rootfs",
    "60M: mkfs.ext2 -F -i 8192 -b 4096 disk.img -d rootfs",
    "60M: mkfs.ext4 -F -L root -E root_owner=0:0 -d rootfs disk.img",
    "60M: mkfs.ext4 -F -i 4096 -O ^has_journal -d rootfs disk.img",
    // genimage.
    "mke2fs -t ext4 -d rootfs -E root_owner=0:0 -O ^metadata_csum,^64bit -L root disk.img 61440K",
    "mke2fs -t ext2 -d rootfs -N 2000 -m 0 disk.img 61440K",
    // OpenWrt.
    "mke2fs -t ext4 -b 4096 -d rootfs disk.img 15360",
    "mke2fs -L rootfs -O ^has_journal -m 0 -t ext4 -b 4096 -I 256 -N 4096 -d rootfs disk.img 60M",
    // NixOS.
    "60M: mkfs.ext4 -L NIXOS_SD -d rootfs disk.img",
    // systemd-repart.
    "60M: mkfs.ext4 -q -L root -I 256 -m 0 -E nodiscard,lazy_itable_init=1,root_owner=0:0 -b 4096 -T default \
     -d rootfs disk.img",
    "60M: mkfs.ext4 -q -L root -I 256 -m 0 -E nodiscard,lazy_itable_init=1 -b 4096 -T default -d rootfs \
     disk.img",
    "mke2fs -t ext4 -E root_owner=7:8,no_copy_xattrs -d rootfs disk.img 60M",
    "mke2fs -t ext4 -b 1024 -O ^extents,^64bit -d rootfs disk.img 60M",
];

/// A directory with links of mke2fs's names to the binary, and two to work in.
struct Stage {
    bench: Bench,
    config: PathBuf,
    environment: Vec<(&'static str, &'static str)>,
}

impl Stage {
    fn new() -> Self {
        let bench = Bench::empty();
        for name in NAMES {
            symlink(BINARY, bench.local(name)).unwrap();
        }
        let config = bench.local("mke2fs.conf");
        fs::write(&config, hectare_oracle::e2fsprogs::CONFIG).unwrap();
        for side in ["ours", "theirs"] {
            fs::create_dir(bench.local(side)).unwrap();
        }
        Self { bench, config, environment: Vec::new() }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>, side: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.bench.local(side)).stdin(std::process::Stdio::null());
        command.env("E2FSPROGS_FAKE_TIME", "1700000000").env("MKE2FS_CONFIG", &self.config).env("TZ", "UTC");
        command.env_remove("SOURCE_DATE_EPOCH").envs(self.environment.iter().copied());
        command
    }

    /// Runs a line with the understudy.
    fn ours(&self, words: &[&str]) -> Said {
        run(&mut self.command(self.bench.local(words[0]), "ours", &words[1..]))
    }

    /// Runs a command line with both; the image of each.
    fn both(&self, line: &str) -> Result<[PathBuf; 2], hectare_oracle::Skip> {
        let theirs = need(program_of(line))?;
        let line = fixed(line);
        let mut words: Vec<&str> = line.split(' ').collect();
        let images = ["ours", "theirs"].map(|side| self.bench.local(side).join("disk.img"));
        for image in &images {
            let _ = fs::remove_file(image);
        }
        if let Some(size) = words[0].strip_suffix(':') {
            let mebibytes = size.strip_suffix('M').map(|size| size.parse::<u64>().unwrap() << 20);
            let size = mebibytes.unwrap_or_else(|| size.parse().unwrap());
            images.iter().for_each(|image| File::create(image).unwrap().set_len(size).unwrap());
            words.remove(0);
        }
        let _ = self.ours(&words).expect_success();
        let _ = run(&mut self.command(theirs.get_program(), "theirs", &words[1..])).expect_success();
        let [ours, theirs] = images.each_ref().map(|image| fs::metadata(image).unwrap().len());
        assert_eq!(ours, theirs, "the size of {line}");
        Ok(images)
    }
}

/// A command line with a fixed hash seed, in the last -E (of several mke2fs takes only that), and UUID.
fn fixed(line: &str) -> String {
    let seed = format!("hash_seed={UUID}");
    let program = program_of(line);
    let after = |line: &str, words: &str| line.replacen(program, &format!("{program} {words}"), 1);
    let line = match [" -E ", " -R "].into_iter().find(|option| line.contains(option)) {
        Some(option) => line.replace(option, &format!("{option}{seed},")),
        None => after(line, &format!("-E {seed}")),
    };
    if line.contains(" -U ") { line } else { after(&line, &format!("-U {UUID}")) }
}

fn program_of(line: &str) -> &str {
    line.split(' ').find(|word| NAMES.contains(word)).unwrap()
}

/// What dumpe2fs prints, with the groups if `whole`.
fn dumped(image: &Path, whole: bool) -> String {
    let mut dumpe2fs = need("dumpe2fs").unwrap();
    dumpe2fs.args((!whole).then_some("-h")).arg(image);
    let said = run(&mut dumpe2fs).expect_success();
    // What a copied tree takes depends on where it lies; the superblock's checksum covers what was written.
    // Who wrote the block of MMP is not known before a mount.
    let dropped = |line: &&str| {
        let is_known =
            ["Lifetime writes", "Checksum:", "    mmp_"].iter().any(|start| line.starts_with(start));
        is_known || (!whole && line.starts_with("Free blocks"))
    };
    let kept = said.stdout.lines().filter(|line| !dropped(line));
    kept.map(|line| line_of_group(line) + "\n").collect()
}

/// The heading of a group without its checksum, and without the note that its inode table has zeros: mke2fs
/// makes none where it knows that by a new file.
fn line_of_group(line: &str) -> String {
    let Some((start, rest)) = line.split_once(") csum ").filter(|_| line.starts_with("Group ")) else {
        let line = line.strip_suffix(" [ITABLE_ZEROED]").unwrap_or(line);
        return line.replace(", ITABLE_ZEROED", "");
    };
    let flags = rest.split_once(' ').map_or("", |(_, flags)| flags);
    let flags = flags.replace(", ITABLE_ZEROED", "").replace("[ITABLE_ZEROED]", "");
    format!("{start}) {flags}")
}

/// The lines of each that the other does not have.
fn differences(line: &str, ours: &str, theirs: &str) -> Option<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (ours, theirs) = (lines(ours), lines(theirs));
    let (only, lacking): (Vec<_>, Vec<_>) =
        (ours.difference(&theirs).collect(), theirs.difference(&ours).collect());
    (ours != theirs).then(|| format!("{line}\n  ours: {only:?}\n  theirs: {lacking:?}"))
}

#[test]
fn every_command_line_makes_what_mke2fs_makes() {
    let (stage, mut wrong) = (Stage::new(), Vec::new());
    for line in EMPTY {
        match stage.both(line) {
            Ok([ours, theirs]) => {
                wrong.extend(differences(line, &dumped(&ours, true), &dumped(&theirs, true)));
            }
            Err(reason) => skip!("cli mke2fs::every_command_line", reason),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A tree with what image builders copy: links, holes, devices, attributes, owners, many files.
fn rootfs(folder: &Path) {
    fs::create_dir_all(folder.join("usr/many")).unwrap();
    fs::create_dir(folder.join("private")).unwrap();
    for nr in 0..600 {
        fs::write(folder.join(format!("usr/many/file-{nr}")), nr.to_string().repeat(nr)).unwrap();
    }
    let large: Vec<u8> = (0..3u32 << 18).flat_map(u32::to_le_bytes).collect();
    fs::write(folder.join("large"), large).unwrap();
    let hole = File::create(folder.join("hole")).unwrap();
    hole.write_all_at(b"end", 40 << 20).unwrap();
    fs::hard_link(folder.join("large"), folder.join("usr/link")).unwrap();
    symlink("large", folder.join("short")).unwrap();
    symlink("l".repeat(200), folder.join("long")).unwrap();
    // Reading a link sets its access time, but (relatime) only the first time after a change: not between two builders.
    std::thread::sleep(std::time::Duration::from_millis(20));
    for link in ["short", "long"] {
        fs::read_link(folder.join(link)).unwrap();
    }
    fs::set_permissions(folder.join("private"), fs::Permissions::from_mode(0o2750)).unwrap();
    if is_root() {
        chown(folder.join("private"), Some(1000), Some(70_000)).unwrap();
        chown(folder, Some(3), Some(4)).unwrap();
        let mut mknod = need("mknod").unwrap();
        let _ = run(mknod.arg(folder.join("null")).args(["c", "1", "3"])).expect_success();
        let _ = run(need("mknod").unwrap().arg(folder.join("pipe")).arg("p")).expect_success();
    }
    let attribute =
        rustix::fs::setxattr(folder.join("hole"), "user.colour", b"green", rustix::fs::XattrFlags::empty());
    let _ = attribute; // some file systems have none
    let _ = rustix::fs::setxattr(folder, "user.root", b"yes", rustix::fs::XattrFlags::empty());
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn every_image_builder_gets_what_mke2fs_copies() {
    let stage = Stage::new();
    rootfs(&stage.bench.local("rootfs"));
    for line in FILLED {
        let line = &line.replace("-d rootfs", "-d ../rootfs");
        let [ours, theirs] = match stage.both(line) {
            Ok(images) => images,
            Err(reason) => skip!("cli mke2fs::every_image_builder", reason),
        };
        assert_eq!(differences(line, &dumped(&ours, false), &dumped(&theirs, false)), None);
        assert_clean(&ours)
            .unwrap_or_else(|reason| skip_part!("cli mke2fs::every_image_builder, e2fsck", reason));
        let what = What { atimes: Times::Exact, ..What::all() };
        equal_for_the_kernel(line, [&ours, &theirs], what);
    }
}

/// Fails unless the kernel reads the same from both.
#[track_caller]
fn equal_for_the_kernel(line: &str, [ours, theirs]: [&Path; 2], what: What) {
    let mounts =
        KernelMount::read_only(ours, "").and_then(|one| Ok((one, KernelMount::read_only(theirs, "")?)));
    let (one, two) = match mounts {
        Ok(mounts) => mounts,
        Err(reason) => {
            skip_part!(format!("cli mke2fs, kernel, {line}"), reason);
            return;
        }
    };
    assert_same(&walk(one.path()), &walk(two.path()), what);
    let root = |mount: &KernelMount| {
        let data = fs::metadata(mount.path()).unwrap();
        (data.mode(), data.uid(), data.gid(), data.mtime(), data.atime(), data.ctime())
    };
    assert_eq!(root(&one), root(&two), "the root of {line}");
}

#[test]
fn every_awkward_tree_is_copied_as_mke2fs_copies_it() {
    let stage = Stage::new();
    // mke2fs copies a symbolic link with two names twice, and keeps 32 bits of a time.
    for awkward in Tree::ALL.into_iter().filter(|tree| !matches!(tree, Tree::Links | Tree::Times)) {
        let name = format!("cli mke2fs::every_awkward_tree, {}", awkward.name());
        let from = match source(awkward, &Scale::SMALL) {
            Ok(from) => from,
            Err(reason) => {
                skip_part!(name, reason);
                continue;
            }
        };
        let line = format!("mkfs.ext4 -q -b 4096 -N 20000 -d {} disk.img 300M", from.display());
        match stage.both(&line) {
            Ok([ours, theirs]) => {
                assert_clean(&ours).unwrap_or_else(|reason| skip_part!(name, reason));
                // mke2fs makes holes where a file has blocks of zeros.
                equal_for_the_kernel(&line, [&ours, &theirs], What { holes: None, ..What::all() });
            }
            Err(reason) => skip!("cli mke2fs::every_awkward_tree", reason),
        }
    }
}

/// A configuration in which nearly everything differs from the usual.
const OWN_CONFIG: &str = "\
; a comment
[defaults]
\tbase_features = sparse_super,filetype,resize_inode,dir_index,ext_attr
\tbase_features = none
\tdefault_mntopts = acl
\tblocksize = -1
\treserved_ratio = 2.5
\terrors = panic
\tfs_type = ext4
\tinode_ratio = 5000
\tdefault_features = ^filetype
[fs_types]
\text4 = {
\t\tfeatures = extent,flex_bg
\t\toptions = \"stride=3\" # another
\t\tflex_bg_size = 4
\t\tinode_size = 512
\t\tlazy_itable_init = true
\t}
\tsmall = {
\t\tfeatures = large_file
\t}
\town = {
\t\tfeatures = ^flex_bg
\t\tblocksize = 2048
\t}
";

#[test]
fn the_configuration_and_the_environment_count_as_in_mke2fs() {
    let mut stage = Stage::new();
    let lines = ["mke2fs disk.img 50M", "mkfs.ext2 disk.img 50M", "mke2fs -T own disk.img 50M"];
    let more = ["mke2fs -O large_file disk.img 50M", "mke2fs -t ext4 -b 1024 -m 1 -e continue disk.img 600M"];
    let own = stage.bench.local("own.conf");
    fs::write(&own, OWN_CONFIG.to_owned() + "[devices]\n\tdisk.img = {\n\t\tusage_types = own\n\t}\n")
        .unwrap();
    fs::write(stage.bench.local("other.conf"), OWN_CONFIG).unwrap();
    fs::write(stage.bench.local("empty.conf"), "").unwrap();
    let sector = vec![("MKE2FS_DEVICE_SECTSIZE", "2048"), ("MKE2FS_DEVICE_PHYS_SECTSIZE", "4096")];
    let mut wrong = Vec::new();
    for (config, environment, lines) in [
        (own, vec![], [&lines[..], &more[..]].concat()),
        (stage.bench.local("other.conf"), vec![], [&lines[..], &more[..]].concat()),
        (stage.bench.local("empty.conf"), vec![], lines[..2].to_vec()),
        (
            stage.bench.local("missing.conf"),
            vec![],
            [&EMPTY[..6], &["mke2fs -T hurd -t ext4 disk.img 60M"]].concat(),
        ),
        (stage.config.clone(), sector, vec!["mkfs.ext4 disk.img 50M", "mkfs.ext4 -b 4096 disk.img 50M"]),
    ] {
        (stage.config, stage.environment) = (config, environment);
        for line in lines {
            match stage.both(line) {
                Ok([ours, theirs]) => {
                    wrong.extend(differences(line, &dumped(&ours, true), &dumped(&theirs, true)));
                }
                Err(reason) => skip!("cli mke2fs::the_configuration", reason),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_can_t_be_done_is_refused_by_name_and_nothing_is_made() {
    let mut stage = Stage::new();
    fs::create_dir(stage.bench.local("ours").join("tree")).unwrap();
    fs::write(stage.bench.local("ours").join("tree/file"), vec![1; 9 << 20]).unwrap();
    for (words, reason) in [
        ("mke2fs -c disk.img 10M", "-c: "),
        ("mke2fs -cc disk.img 10M", "-c: "),
        ("mke2fs -l list disk.img 10M", "-l: "),
        ("mke2fs -S disk.img 10M", "-S: "),
        ("mke2fs -z undo disk.img 10M", "-z: "),
        ("mke2fs -r 0 disk.img 10M", "-r: "),
        ("mke2fs -o hurd disk.img 10M", "-o: "),
        ("mke2fs -J device=/dev/x disk.img 10M", "-J device=/dev/x"),
        ("mke2fs -J location=5 disk.img 10M", "-J location=5"),
        ("mke2fs -O shared_blocks disk.img 10M", "-O shared_blocks"),
        ("mke2fs -O journal_dev disk.img 10M", "-O journal_dev"),
        ("mke2fs -E android_sparse,nodiscard disk.img 10M", "-E android_sparse"),
        ("mke2fs -E encoding=latin1 disk.img 10M", "-E encoding=latin1"),
        ("mke2fs -E quotatype=user disk.img 10M", "-E quotatype=user"),
        ("mke2fs -E offset=1M disk.img 10M", "-E offset=1M"),
        ("mke2fs -E root_selinux=x disk.img 10M", "-E root_selinux=x"),
        ("mke2fs -E bogus disk.img 10M", "-E bogus"),
        ("mke2fs -Z disk.img 10M", "'-Z'"),
        ("mke2fs -q", "name the device"),
        ("mke2fs -t ext9 disk.img 10M", "-t ext9: this type is not defined"),
        ("mke2fs disk.img", "give a SIZE"),
        ("mke2fs disk.img 010M", "octal"),
        ("mke2fs disk.img 10Q", "10Q is no size"),
        ("mke2fs -d nowhere disk.img 10M", "-d nowhere"),
        ("mke2fs -d tree disk.img 8M", "no space"),
        ("mke2fs -N 11 -d tree disk.img 20M", "no inodes: 12 are needed"),
        ("mke2fs disk.qcow2 10M", "hectare convert"),
        ("mke2fs /dev/no-such-disk 10M", "no file is made among devices"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        let said = stage.ours(&words);
        assert_eq!(said.exit, Some(1), "{}", said.report());
        assert!(said.stderr.lines().last().unwrap().contains(reason), "{}", said.report());
        assert!(!stage.bench.local("ours").join("disk.img").exists(), "{}", said.report());
    }
    stage.environment = vec![("MKE2FS_FIRST_META_BG", "1")];
    let said = stage.ours(&["mke2fs", "-q", "disk.img", "10M"]);
    assert!(said.exit == Some(1) && said.stderr.contains("MKE2FS_FIRST_META_BG: "), "{}", said.report());
    stage.environment.clear();
    for (text, reason) in [
        ("[defaults]\nhash_alg = tea\n", "hash_alg = tea"),
        ("[defaults]\nmake_hugefiles = yes\n", "make_hugefiles"),
        ("[defaults]\nblocksize = 1k\n", "blocksize = 1k"),
        ("[defaults]\nbase_features = bogus\n", "bogus"),
        ("[defaults\n", "line 1"),
    ] {
        stage.config = stage.bench.local("wrong.conf");
        fs::write(&stage.config, text).unwrap();
        let said = stage.ours(&["mke2fs", "-q", "disk.img", "10M"]);
        assert!(said.exit == Some(1) && said.stderr.contains("wrong.conf: "), "{}", said.report());
        assert!(said.stderr.contains(reason), "{}", said.report());
    }
}

#[test]
fn content_is_kept_without_force_and_a_dry_run_makes_nothing() {
    let stage = Stage::new();
    let said = stage.ours(&["mke2fs", "-n", "disk.img", "10M"]).expect_success();
    let image = stage.bench.local("ours").join("disk.img");
    assert!(said.stdout.starts_with("Creating filesystem with 10240 1k blocks and 2560 inodes\n"));
    assert!(!image.exists());
    let said = stage.ours(&["mkfs.ext4", "-qE", "root_owner", "disk.img", "10M"]).expect_success();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));
    let before = crate::support::digest(&image);
    let said = stage.ours(&["mke2fs", "-q", "disk.img"]);
    assert!(
        said.exit == Some(1) && said.stderr.contains("holds an ext4 file system; use -F"),
        "{}",
        said.report()
    );
    let said = stage.ours(&["mke2fs", "-n", "disk.img"]).expect_success();
    assert!(said.stdout.contains("10240 1k blocks"));
    assert_eq!(crate::support::digest(&image), before);
    let said = stage.ours(&["mke2fs", "-FFt", "ext3", "disk.img"]).expect_success();
    assert!(said.stderr.starts_with("mke2fs 1.47"));
    for line in ["Filesystem UUID: ", "Superblock backups stored on blocks:", "Allocating group tables: done"]
    {
        assert!(said.stdout.contains(line), "{}", said.report());
    }
    assert!(said.stdout.contains("Creating journal (1024 blocks): done"), "{}", said.report());
    let version = stage.ours(&["mke2fs", "-V"]).expect_success();
    assert!(version.stderr.starts_with("mke2fs 1.47.0 ("), "{}", version.report());
}

#[test]
fn a_volume_lies_behind_an_offset() {
    let stage = Stage::new();
    let image = stage.bench.local("ours").join("disk.img");
    File::create(&image).unwrap().set_len(20 << 20).unwrap();
    let _ = stage
        .ours(&["mke2fs", "-q", "-t", "ext4", "-E", "offset=1048576", "disk.img", "10M"])
        .expect_success();
    let volume = fs::read(&image).unwrap()[1 << 20..11 << 20].to_vec();
    fs::write(stage.bench.local("ours").join("volume.img"), volume).unwrap();
    if let Err(reason) = assert_clean(&stage.bench.local("ours").join("volume.img")) {
        skip!("cli mke2fs::a_volume_lies_behind_an_offset", reason);
    }
    assert_eq!(fs::metadata(&image).unwrap().len(), 20 << 20);
}

/// A file that does not exist is made, and one that is too short made longer; both were refused.
#[test]
fn regression_an_offset_makes_the_file_as_long_as_mke2fs_does() {
    let stage = Stage::new();
    let mut theirs = match need("mke2fs") {
        Ok(mke2fs) => mke2fs,
        Err(reason) => skip!("cli mke2fs::regression_an_offset", reason),
    };
    let words = ["-q", "-F", "-t", "ext4", "-E", "offset=1048576", "disk.img", "4M"];
    let images = ["ours", "theirs"].map(|side| stage.bench.local(side).join("disk.img"));
    let _ = run(theirs.args(words).current_dir(stage.bench.local("theirs"))).expect_success();
    for short in [None, Some(3 << 20)] {
        let _ = fs::remove_file(&images[0]);
        if let Some(len) = short {
            fs::write(&images[0], vec![7; len]).unwrap();
        }
        let _ = stage.ours(&[&["mke2fs"], &words[..]].concat()).expect_success();
        let [ours, theirs] = images.each_ref().map(|image| fs::read(image).unwrap());
        assert_eq!(ours.len(), theirs.len());
        let before = if short.is_some() { 7 } else { 0 };
        assert!(ours[..1 << 20].iter().all(|byte| *byte == before), "what is before the volume");
        let volume = stage.bench.local("volume.img");
        fs::write(&volume, &ours[1 << 20..]).unwrap();
        assert_clean(&volume).unwrap();
    }
}

#[test]
fn the_same_sources_give_the_same_bytes() {
    let mut stage = Stage::new();
    stage.environment = vec![("SOURCE_DATE_EPOCH", "1600000000"), ("E2FSPROGS_FAKE_TIME", "1600000000")];
    rootfs(&stage.bench.local("rootfs"));
    let seed = format!("hash_seed={UUID}");
    let line = ["mkfs.ext4", "-q", "-U", UUID, "-E", &seed, "-d", "../rootfs"];
    let _ = stage.ours(&[&line[..], &["one.img", "60M"]].concat()).expect_success();
    fs::write(stage.bench.local("rootfs/large"), fs::read(stage.bench.local("rootfs/large")).unwrap())
        .unwrap();
    let _ = stage.ours(&[&line[..], &["two.img", "60M"]].concat()).expect_success();
    let digest = |name: &str| crate::support::digest(&stage.bench.local("ours").join(name));
    assert_eq!(digest("one.img"), digest("two.img"));
}

#[test]
fn links_are_installed_only_when_asked_for_and_replace_nothing() {
    let bench = Bench::empty();
    let release = bench.local("target/release");
    fs::create_dir_all(&release).unwrap();
    fs::copy("/bin/true", release.join("hectare")).unwrap();
    let sbin = bench.local("root/usr/sbin");
    let install = |more: &[&str]| {
        let mut make = need("make")?;
        make.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        make.args(["-s", "-o", "build", "install", "PREFIX=/usr"]).args(more);
        make.env("CARGO_TARGET_DIR", bench.local("target")).env("DESTDIR", bench.local("root"));
        Ok::<_, hectare_oracle::Skip>(run(&mut make))
    };
    match install(&[]) {
        Ok(said) => drop(said.expect_success()),
        Err(reason) => skip!("cli mke2fs::links_are_installed", reason),
    }
    assert!(bench.local("root/usr/bin/hectare").exists() && !sbin.exists());
    for _ in 0..2 {
        let _ = install(&["UNDERSTUDY=1"]).unwrap().expect_success();
        assert!(
            NAMES.iter().all(|name| fs::read_link(sbin.join(name)).unwrap() == Path::new("../bin/hectare"))
        );
    }
    fs::remove_file(sbin.join("mkfs.ext3")).unwrap();
    fs::write(sbin.join("mkfs.ext3"), "another").unwrap();
    assert!(!install(&["UNDERSTUDY=1"]).unwrap().succeeded());
    assert_eq!(fs::read_to_string(sbin.join("mkfs.ext3")).unwrap(), "another");
}
