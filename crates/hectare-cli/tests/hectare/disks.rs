//! `hectare disk build`, new disk images of `mkfs` and `build`, and images that are served without being
//! written.

use crate::support::{Ran, hectare, hectare_in};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, assert_clean, skip, skip_part, until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_hectare");
const EPOCH: (&str, &str) = ("SOURCE_DATE_EPOCH", "1700000000");

/// A directory with a description and its sources.
struct Bench(tempfile::TempDir);

const SPEC: &str = r#"
[[partition]]
name = "esp"
type = "esp"
format = "vfat"
from = "tree"
[[partition]]
name = "root"
type = "root"
format = "ext4"
size = "min"
from = "tree"
[[partition]]
name = "tree"
type = "root-verity"
verity = "root"
"#;

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(bench.path("tree/dir")).unwrap();
        let noise: Vec<u8> =
            (0..2_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
        fs::write(bench.path("tree/dir/large"), noise).unwrap();
        fs::write(bench.path("tree/small"), "small\n").unwrap();
        fs::write(bench.path("disk.toml"), SPEC).unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn build(&self, words: &[&str]) -> Ran {
        let spec = self.text("disk.toml");
        let words = ["disk", "build", &spec].into_iter().chain(words.iter().copied());
        hectare_in(&words.collect::<Vec<_>>(), &[EPOCH])
    }
}

fn qemu_img(words: &[&str]) -> Result<(), Skip> {
    let said = run(need("qemu-img")?.args(words));
    assert!(said.succeeded(), "{}", said.report());
    Ok(())
}

fn simg2img(from: &str, to: &str) -> Result<(), Skip> {
    let said = run(need("simg2img")?.args([from, to]));
    assert!(said.succeeded(), "{}", said.report());
    Ok(())
}

#[test]
fn every_kind_of_image_has_the_same_disk() {
    let bench = Bench::new();
    let raw = bench.text("disk.img");
    let made = bench.build(&["-o", &raw, "--json"]).ok().json();
    let hash = fs::read_to_string(bench.path("disk.roothash")).unwrap();
    assert_eq!(made["partitions"][1]["roothash"].as_str().unwrap(), hash.trim());
    assert_eq!(made["size"].as_u64().unwrap(), fs::metadata(&raw).unwrap().len());
    assert!(hectare(&["ls", "--partition", "root", &format!("{raw}:/dir")]).ok().text().contains("large"));
    let piped = bench.build(&["-o", "-"]).ok();
    assert!(piped.out == fs::read(&raw).unwrap() && piped.err.contains("root hash"), "{}", piped.err);
    for (name, format, words) in [
        ("disk.qcow2", "qcow2", &[][..]),
        ("disk.vhd", "vpc", &[]),
        ("other.vhd", "vpc", &["--format", "vhd-fixed"]),
    ] {
        let image = bench.text(name);
        // The root hash that is there is the same.
        bench.build(&[&["-F", "-o", image.as_str()], words].concat()).ok();
        if let Err(reason) = qemu_img(&["compare", "-q", "-f", "raw", "-F", format, &raw, &image]) {
            skip_part!(format!("disks::every_kind_of_image, {name}"), reason);
        } else if format == "qcow2" {
            qemu_img(&["check", "-q", &image]).unwrap();
        }
    }
    let image = bench.text("disk.simg");
    bench.build(&["-F", "-o", &image]).ok();
    match simg2img(&image, &bench.text("back")) {
        Ok(()) => assert!(fs::read(bench.path("back")).unwrap() == fs::read(&raw).unwrap()),
        Err(reason) => skip_part!("disks::every_kind_of_image, simg", reason),
    }
}

#[test]
fn nothing_is_replaced_and_nothing_is_half_made() {
    let bench = Bench::new();
    let disk = bench.text("disk.img");
    fs::write(&disk, "mine").unwrap();
    assert!(bench.build(&["-o", &disk]).refused().contains("exists"));
    assert_eq!(fs::read(&disk).unwrap(), b"mine");
    bench.build(&["-F", "-q", "-o", &disk]).ok();
    let before = fs::read(&disk).unwrap();
    // A hash that is there is not replaced, and then there is no disk.
    assert!(bench.build(&["-o", &bench.text("disk.qcow2")]).refused().contains("disk.roothash"));
    assert!(!bench.path("disk.qcow2").exists());
    fs::write(bench.path("disk.toml"), SPEC.replace("\"min\"", "\"1M\"")).unwrap();
    for name in ["disk.img", "new.img", "new.qcow2", "new.simg"] {
        let said = bench.build(&["-F", "-o", &bench.text(name)]);
        assert!(
            said.refused().contains("disk.toml:7: partition 2 'root': size: 1048576 bytes are"),
            "{}",
            said.err
        );
    }
    assert!(fs::read(&disk).unwrap() == before);
    assert!(!bench.path("new.img").exists() && !bench.path("new.qcow2").exists());
    assert!(bench.build(&["-o", &bench.text("a.vmdk")]).refused().contains("not written"));
    bench.build(&["-o", "-", "--json"]).misused();
    bench.build(&["-o", "-", "--format", "qcow2"]).misused();
}

#[test]
fn volumes_are_made_in_new_disk_images() {
    let bench = Bench::new();
    let (tree, raw, empty) = (bench.text("tree"), bench.text("raw"), bench.text("empty"));
    hectare_in(&["build", "--from", &tree, &raw], &[EPOCH]).ok();
    hectare_in(&["mkfs", "-q", &empty, "32M"], &[EPOCH]).ok();
    for (ending, format) in [("qcow2", "qcow2"), ("vhd", "vpc")] {
        let (built, made, xfs) = (
            bench.text(&format!("a.{ending}")),
            bench.text(&format!("b.{ending}")),
            bench.text(&format!("c.{ending}")),
        );
        hectare_in(&["build", "--from", &tree, &built], &[EPOCH]).ok();
        hectare_in(&["mkfs", "-q", &made, "32M"], &[EPOCH]).ok();
        hectare(&["mkfs", "-q", "-t", "xfs", &xfs, "400M"]).ok();
        for (image, raw) in [(&built, &raw), (&made, &empty)] {
            if let Err(reason) = qemu_img(&["compare", "-q", "-f", "raw", "-F", format, raw, image]) {
                skip!("disks::volumes_are_made_in_new_disk_images", reason);
            }
        }
        assert!(hectare_in(&["build", "--from", &tree, &built], &[EPOCH]).refused().contains("exists"));
        hectare_in(&["build", "-F", "--from", &tree, &built], &[EPOCH]).ok();
        qemu_img(&["compare", "-q", "-f", "raw", "-F", format, &raw, &built]).unwrap();
        // Part of a disk is written where there is one.
        assert!(
            hectare(&["mkfs", "--offset", "1M", &bench.text(&format!("d.{ending}")), "8M"])
                .refused()
                .contains("convert")
        );
    }
    let image = bench.text("a.simg");
    hectare_in(&["build", "--from", &tree, &image], &[EPOCH]).ok();
    match simg2img(&image, &bench.text("back")) {
        Ok(()) => assert!(fs::read(bench.path("back")).unwrap() == fs::read(&raw).unwrap()),
        Err(reason) => skip_part!("disks::volumes_are_made_in_new_disk_images, simg", reason),
    }
}

/// A server of a planned image.
struct Server(Child, String);

impl Server {
    fn start(bench: &Bench, words: &[&str]) -> Self {
        let socket = bench.path("socket");
        let mut command = Command::new(BINARY);
        command.args(["serve", "--build"]).args(words).env(EPOCH.0, EPOCH.1);
        command.arg("--nbd").arg(format!("unix:{}", socket.display()));
        let log = fs::File::create(bench.path("log")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let server = Self(child, format!("nbd+unix:///?socket={}", socket.display()));
        until(|| socket.exists());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_planned_image_is_served_as_it_would_be_written() {
    let bench = Bench::new();
    let tree = bench.text("tree");
    // Small content in inodes, sealed and equal files, holes.
    fs::copy(bench.path("tree/dir/large"), bench.path("tree/again")).unwrap();
    let hole = fs::File::create(bench.path("tree/hole")).unwrap();
    hole.set_len(3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&hole, b"end", (2 << 20) + 77).unwrap();
    let words =
        ["--from", &tree, "-O", "inline_data,verity", "--fs-verity", "large", "--dedupe", "--free", "4M"];
    for words in [&words[..2], &words] {
        let image = bench.text("written.img");
        hectare_in(&[&["build", "-F"], words, &[&image]].concat(), &[EPOCH]).ok();
        let server = Server::start(&bench, words);
        let copy = bench.text("copy.img");
        hectare(&["convert", "--force", &server.1, &copy]).ok();
        assert!(fs::read(&copy).unwrap() == fs::read(&image).unwrap(), "{words:?}");
        assert!(hectare(&["rm", &format!("{}:/small", server.1)]).code != Some(0));
        drop(server);
        fs::remove_file(bench.path("socket")).ok();
    }
    if let Err(reason) = assert_clean(&bench.path("copy.img")) {
        skip_part!("disks::a_planned_image_is_served, e2fsck", reason);
    }
}

#[test]
fn a_source_that_changes_is_an_error_to_the_client() {
    let bench = Bench::new();
    let server = Server::start(&bench, &["--from", &bench.text("tree")]);
    let cat = |name: &str| hectare(&["cat", &format!("{}:/{name}", server.1)]);
    assert_eq!(cat("small").ok().out, b"small\n");
    fs::write(bench.path("tree/small"), "other bytes\n").unwrap();
    fs::remove_file(bench.path("tree/dir/large")).unwrap();
    for name in ["small", "dir/large"] {
        let said = cat(name);
        assert!(said.refused().contains("Input/output error"), "{}", said.err);
        assert!(said.out.is_empty());
    }
    let log = fs::read_to_string(bench.path("log")).unwrap();
    assert!(log.contains("tree/small") && log.contains("tree/dir/large"), "{log}");
    assert_eq!(log.lines().count(), 2, "{log}");
}

#[test]
fn options_of_a_planned_image_need_it() {
    let bench = Bench::new();
    let (tree, image) = (bench.text("tree"), bench.text("none.img"));
    for words in [
        &["serve", "--build"][..],
        &["serve", "--from", &tree],
        &["serve", "--build", "--from", &tree, &image],
        &["serve", "--free", "1M", &image],
        &["serve", "-O", "verity", &image],
        &["serve", "-L", "x", &image],
        &["serve", "--build", "--from", &tree, "--offset", "1M"],
    ] {
        hectare(words).misused();
    }
}

/// An option that was dropped would serve another image than `build` makes.
#[test]
fn regression_options_of_a_planned_image_are_heeded() {
    let bench = Bench::new();
    let server = Server::start(&bench, &["--from", &bench.text("tree"), "-L", "planned", "--exclude", "dir"]);
    assert!(hectare(&["info", &server.1]).ok().text().contains("planned"));
    assert!(!hectare(&["ls", &format!("{}:", server.1)]).ok().text().contains("dir"));
}

/// The partitions of a disk, each in a file of its own, as sfdisk finds them.
fn partitions(disk: &str) -> Result<Vec<PathBuf>, Skip> {
    let listed = run(need("sfdisk")?.args(["-J", disk])).expect_success().stdout;
    let listed: serde_json::Value = serde_json::from_slice(listed.as_bytes()).unwrap();
    let content = fs::read(disk).unwrap();
    let listed = listed["partitiontable"]["partitions"].as_array().unwrap().iter();
    let number = |value: &serde_json::Value| usize::try_from(value.as_u64().unwrap()).unwrap() * 512;
    let cut = |(n, part): (usize, &serde_json::Value)| {
        let (start, size) = (number(&part["start"]), number(&part["size"]));
        let file = PathBuf::from(format!("{disk}.part{}", n + 1));
        fs::write(&file, &content[start..start + size]).unwrap();
        file
    };
    Ok(listed.enumerate().map(cut).collect())
}

/// A tool that finds nothing wrong; one that is missing is a part that is left out.
fn judged(tool: &str, arguments: &[&str], says: &str) {
    match need(tool).map(|mut tool| run(tool.args(arguments))) {
        Ok(said) => assert!(said.succeeded() && said.stdout.contains(says), "{}", said.report()),
        Err(reason) => skip_part!(format!("disks::the_examples_are_disks, {tool}"), reason),
    }
}

/// Every judge of a disk that is there: of its table, its FAT, its volumes and its hash tree.
fn judge_example(disk: &str, is_gpt: bool, volumes: &[usize]) -> Result<(), Skip> {
    let parts = partitions(disk)?;
    let part = |number: usize| parts[number - 1].to_str().unwrap();
    for number in volumes {
        assert_clean(&parts[number - 1]).unwrap();
        hectare(&["check", part(*number)]).ok();
    }
    judged("sfdisk", &["--verify", disk], "No errors");
    if is_gpt {
        judged("sgdisk", &["-v", disk], "No problems found");
    }
    judged("fsck.vfat", &["-n", part(1)], "");
    if let Ok(hash) = fs::read_to_string(Path::new(disk).with_extension("roothash")) {
        judged("veritysetup", &["verify", part(2), part(3), hash.trim()], "");
    }
    Ok(())
}

#[test]
fn the_examples_are_disks() {
    let bench = Bench::new();
    for folder in ["esp", "rootfs", "overlay", "boot"] {
        let status = Command::new("cp").arg("-r").arg(bench.path("tree")).arg(bench.path(folder)).status();
        assert!(status.unwrap().success());
    }
    fs::write(bench.path("u-boot.bin"), [7; 100_000]).unwrap();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    for (name, is_gpt, volumes) in [("uefi-verity", true, &[2, 4][..]), ("sdcard", false, &[2])] {
        let spec = bench.path(&format!("{name}.toml"));
        fs::copy(examples.join(format!("{name}.toml")), &spec).unwrap();
        let disk = bench.text(&format!("{name}.img"));
        hectare(&["disk", "build", "-q", spec.to_str().unwrap(), "-o", &disk]).ok();
        assert_eq!(bench.path(&format!("{name}.roothash")).exists(), is_gpt);
        if let Err(reason) = judge_example(&disk, is_gpt, volumes) {
            skip_part!(format!("disks::the_examples_are_disks, {name}"), reason);
        }
    }
}
