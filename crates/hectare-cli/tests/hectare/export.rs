//! export: what other programs unpack is what was in the volume, and what can't be exported leaves no file.

use crate::support::{Bench, Ran, at, digest, hectare};
use hectare_oracle::compare::Times;
use hectare_oracle::tool::{need, run};
use hectare_oracle::trees::make_all;
use hectare_oracle::{
    Combo, Entry, KernelMount, Kind, Scale, Skip, Tree, What, assert_clean, assert_same, debugfs, filled,
    is_root, scratch, skip, skip_part, walk,
};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Without what an archive can't hold.
fn archived(entries: &[Entry]) -> Vec<Entry> {
    entries.iter().filter(|entry| entry.kind != Kind::Socket).cloned().collect()
}

/// Unpacks an archive with GNU tar, all of it, as root.
fn unpack(archive: &Path, folder: &Path) -> Result<(), Skip> {
    if !is_root() {
        return Err(Skip::new("unpacking owners and devices needs root"));
    }
    fs::create_dir(folder).unwrap();
    let how = ["--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "--warning=no-timestamp"];
    let mut tar = need("tar")?;
    let said = run(tar.args(how).arg("-xpSf").arg(archive).arg("-C").arg(folder)).expect_success();
    assert_eq!(said.stderr, "", "tar warns of the archive");
    Ok(())
}

fn export(image: &Path, output: &str) -> Ran {
    hectare(&["export", image.to_str().unwrap(), "-o", output])
}

/// Makes an image of sources, with times that depend on them only.
fn build(image: &Path, sources: &[&Path]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hectare"));
    command.env("SOURCE_DATE_EPOCH", "1700000000").arg("build").args(["--free", "1M"]);
    for source in sources {
        command.arg("--from").arg(source);
    }
    let _ = run(command.arg(image)).expect_success();
}

/// What the kernel sees in an image.
fn kernel_walk(image: &Path) -> Result<Vec<Entry>, Skip> {
    assert_clean(image)?;
    let mount = KernelMount::read_only(image, "")?;
    Ok(walk(mount.path()))
}

#[test]
fn every_tree_is_unpacked_as_the_kernel_saw_it() {
    let combos = ["ext4", "ext2-1k-128", "bigalloc", "inline-data-512", "ea-inode", "no-filetype"];
    let trees = Tree::ALL.map(|tree| ("ext4", tree));
    let others = combos[1..].iter().map(|combo| (*combo, Tree::Ordinary));
    for (combo, tree) in trees.into_iter().chain(others) {
        let name = format!("cli export, {combo} {}", tree.name());
        let filled = match filled(&Combo::named(combo), tree, &Scale::SMALL) {
            Ok(filled) => filled,
            Err(reason) => {
                skip_part!(name, reason);
                continue;
            }
        };
        let bench = Bench::empty();
        // A tmpfs has room for attributes of any size.
        let memory = scratch::memory(64 << 20).filter(|_| combo == "ea-inode");
        let folder = memory.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
        let (archive, out) = (bench.local("a.tar"), folder.path().join("out"));
        let ran = export(filled.image(), &format!("tar:{}", archive.display())).ok();
        let sockets = filled.entries().iter().filter(|entry| entry.kind == Kind::Socket).count();
        assert_eq!(ran.err.lines().filter(|line| line.contains("a socket can't be")).count(), sockets);
        assert_eq!(ran.err.lines().count(), sockets, "{}", ran.err);
        match unpack(&archive, &out) {
            Ok(()) => assert_same(&walk(&out), &archived(filled.entries()), What::all()),
            Err(reason) => skip_part!(name, reason),
        }
    }
}

/// An image with every tree that this user can make, and the directory it was made of.
fn everything(bench: &Bench) -> PathBuf {
    let source = bench.local("source");
    make_all(&source, &Scale::SMALL).unwrap();
    build(&bench.image, &[&source]);
    source
}

#[test]
fn an_exported_image_is_built_again_to_the_same_bytes() {
    let bench = Bench::empty();
    let source = everything(&bench);
    let (archive, again) = (bench.local("a.tar"), bench.local("again.img"));
    export(&bench.image, archive.to_str().unwrap()).ok();
    // Sockets are in no archive, so the image to compare with has none either.
    for entry in walk(&source).iter().filter(|entry| entry.kind == Kind::Socket) {
        let path = source.join(std::str::from_utf8(&entry.path).unwrap());
        let parent = path.parent().unwrap().to_owned();
        let times = fs::metadata(&parent).unwrap().modified().unwrap();
        fs::remove_file(path).unwrap();
        fs::File::open(parent).unwrap().set_modified(times).unwrap();
    }
    fs::remove_file(&bench.image).unwrap();
    build(&bench.image, &[&source]);
    build(&again, &[&archive]);
    let same = hectare(&["diff", bench.image(), again.to_str().unwrap()]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.err);
    assert_eq!(digest(&bench.image), digest(&again));

    let (first, second) = (fs::read(&archive).unwrap(), hectare(&["export", bench.image(), "-o", "-"]).ok());
    assert!(first == second.out && second.err.is_empty());
    for (name, output, unpacker) in [
        ("a.tar.gz", "tar:", "gzip"),
        ("b.tar.zst", "tar:", "zstd"),
        ("c.tgz", "", "gzip"),
        ("d.tar.zst", "", "zstd"),
    ] {
        let packed = bench.local(name);
        export(&bench.image, &format!("{output}{}", packed.display())).ok();
        let bytes = fs::read(&packed).unwrap();
        assert!(bytes.len() < first.len());
        match unpacker {
            // No name, no time: flags and seconds of the header (RFC 1952).
            "gzip" => assert_eq!(bytes[..8], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]),
            _ => assert_eq!(bytes[..4], [0x28, 0xb5, 0x2f, 0xfd]),
        }
        match need(unpacker) {
            Ok(mut tool) => {
                let out = tool.arg("-dc").arg(&packed).output().unwrap();
                assert!(out.status.success() && out.stdout == first, "{name}: {:?}", out.stderr);
            }
            Err(reason) => skip_part!(format!("cli export, {name}"), reason),
        }
        fs::remove_file(&again).unwrap();
        build(&again, &[&packed]);
        assert_eq!(digest(&bench.image), digest(&again), "{name}");
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let ran = hectare(&["export", bench.image(), "-F", "-o", packed.to_str().unwrap()]);
        assert!(ran.ok().err.is_empty() && fs::read(&packed).unwrap() == bytes, "{name}");
    }
    let (layout, image) = (bench.local("zstd"), bench.local("zstd.img"));
    let output = reference(&layout, "v1");
    hectare(&["export", bench.image(), "-o", &output, "--compression", "zstd"]).ok();
    build(&image, &[Path::new(&output)]);
    assert_eq!(digest(&bench.image), digest(&image));
}

/// `oci:DIR:TAG`.
fn reference(layout: &Path, tag: &str) -> String {
    format!("oci:{}:{tag}", layout.display())
}

fn umoci_unpack(layout: &Path, tag: &str, bundle: &Path) -> Result<Vec<Entry>, Skip> {
    if !is_root() {
        return Err(Skip::new("unpacking owners and devices needs root"));
    }
    let image = format!("{}:{tag}", layout.display());
    let _ = run(need("umoci")?.args(["unpack", "--image", &image]).arg(bundle)).expect_success();
    Ok(walk(&bundle.join("rootfs")))
}

/// Go's reader drops attributes without a value, and writes the holes of files.
fn as_go_has_it(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.iter_mut().for_each(|entry| entry.xattrs.retain(|_, value| !value.is_empty()));
    entries
}

#[test]
fn a_container_image_is_what_other_programs_read() {
    let bench = Bench::empty();
    everything(&bench);
    let layout = bench.local("images");
    let config = bench.local("run.json");
    fs::write(&config, r#"{"Entrypoint":["/init"],"Env":["A=b"],"User":"7","WorkingDir":"/srv"}"#).unwrap();
    let output = reference(&layout, "v1");
    let arguments = ["export", bench.image(), "-o", &output, "--platform", "linux/arm64"];
    hectare(&[&arguments[..], &["--config", config.to_str().unwrap()]].concat()).ok();
    let plain = reference(&layout, "plain");
    hectare(&["export", bench.image(), "-o", &plain, "--compression", "none"]).ok();

    let again = bench.local("again");
    hectare(&[&arguments[..3], &[&reference(&again, "v1")], &arguments[4..]].concat()).ok();
    let index = |layout: &Path| fs::read_to_string(layout.join("index.json")).unwrap();
    let tags = |layout: &Path| index(layout).matches("org.opencontainers.image.ref.name").count();
    assert_eq!((tags(&layout), tags(&again)), (2, 1));
    let refused = hectare(&["export", bench.image(), "-o", &output]);
    assert!(refused.refused().contains("it has an image with the tag v1; use --force"), "{}", refused.err);
    let before = index(&layout);
    hectare(&[&arguments[..], &["--config", config.to_str().unwrap(), "--force"]].concat()).ok();
    assert_eq!((tags(&layout), index(&layout).len()), (2, before.len()));

    let inspected = || {
        let mut skopeo = need("skopeo")?;
        let said = run(skopeo.args(["inspect", "--config", &output])).expect_success();
        Ok::<_, Skip>(serde_json::from_str::<serde_json::Value>(&said.stdout).unwrap())
    };
    match inspected() {
        Ok(said) => {
            assert_eq!((&said["architecture"], &said["os"]), (&"arm64".into(), &"linux".into()));
            assert_eq!(said["config"]["Entrypoint"][0], "/init");
            assert_eq!((&said["config"]["User"], &said["created"]), (&"7".into(), &serde_json::Value::Null));
        }
        Err(reason) => skip_part!("cli export::a_container_image, skopeo", reason),
    }
    let expected = match kernel_walk(&bench.image) {
        Ok(entries) => as_go_has_it(archived(&entries)),
        Err(reason) => skip!("cli export::a_container_image, unpacked", reason),
    };
    for tag in ["v1", "plain"] {
        match umoci_unpack(&layout, tag, &bench.local(tag)) {
            Ok(found) => assert_same(&found, &expected, What { holes: None, ..What::all() }),
            Err(reason) => skip_part!("cli export::a_container_image, umoci", reason),
        }
    }
}

fn touch(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// The tree before the changes of [`change`].
fn before(top: &Path) {
    for name in ["same/a", "content", "removed", "gone/a", "gone/b/c", "to-file/a", "mode", "xattr", "old"] {
        touch(&top.join(name), name);
    }
    touch(&top.join("to-dir"), "a file");
    symlink("same", top.join("link")).unwrap();
    symlink("same", top.join("link-to-dir")).unwrap();
    for (first, second) in [("same/a", "a-linked"), ("linked/a", "linked/b"), ("split/a", "split/b")] {
        touch(&top.join(first), first);
        fs::hard_link(top.join(first), top.join(second)).unwrap();
    }
    touch(&top.join("linked/alone"), "alone");
}

/// Changes one thing of each kind.
fn change(top: &Path) {
    fs::write(top.join("content"), "CONTENT").unwrap();
    fs::remove_file(top.join("removed")).unwrap();
    fs::remove_dir_all(top.join("gone")).unwrap();
    fs::remove_dir_all(top.join("to-file")).unwrap();
    touch(&top.join("to-file"), "now a file");
    fs::remove_file(top.join("to-dir")).unwrap();
    touch(&top.join("to-dir/a"), "now in a directory");
    for link in ["link", "link-to-dir"] {
        fs::remove_file(top.join(link)).unwrap();
    }
    symlink("linked", top.join("link")).unwrap();
    touch(&top.join("link-to-dir/a"), "in a directory where a link to another one was");
    fs::set_permissions(top.join("mode"), PermissionsExt::from_mode(0o4711)).unwrap();
    rustix::fs::setxattr(top.join("xattr"), "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    fs::rename(top.join("old"), top.join("new")).unwrap();
    // A name before the others of its file, one after them, and a file that is two now.
    fs::hard_link(top.join("linked/b"), top.join("a-new-name")).unwrap();
    fs::hard_link(top.join("linked/alone"), top.join("z-new-name")).unwrap();
    fs::remove_file(top.join("split/b")).unwrap();
    touch(&top.join("split/b"), "split/a");
}

#[test]
fn a_base_with_its_changes_is_the_new_tree() {
    let bench = Bench::empty();
    let source = bench.local("source");
    let base = bench.local("base.img");
    before(&source);
    build(&base, &[&source]);
    change(&source);
    build(&bench.image, &[&source]);
    let (whole, changes, merged) = (bench.local("base.tar"), bench.local("d.tar"), bench.local("merged.img"));
    let diff = ["--diff", base.to_str().unwrap()];
    export(&base, whole.to_str().unwrap()).ok();
    hectare(&[&["export", bench.image(), "-o", changes.to_str().unwrap()], &diff[..]].concat()).ok();
    let small = String::from_utf8_lossy(&fs::read(&changes).unwrap()).into_owned();
    assert!(small.contains(".wh.removed") && small.contains(".wh.gone\0") && !small.contains(".wh.to-"));
    build(&merged, &[&whole, &changes]);
    let same = hectare(&["diff", merged.to_str().unwrap(), bench.image()]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.err);
    let expected = match (kernel_walk(&merged), kernel_walk(&bench.image)) {
        (Ok(found), Ok(expected)) => {
            assert_same(&found, &expected, What::all());
            expected
        }
        (Err(reason), _) | (_, Err(reason)) => skip!("cli export::a_base_with_its_changes, mounted", reason),
    };

    let layout = bench.local("images");
    export(&base, &reference(&layout, "v1")).ok();
    let image = format!("{}:v1", layout.display());
    let layered = || {
        let mut umoci = need("umoci")?;
        let said = run(umoci.args(["raw", "add-layer", "--image", &image]).arg(&changes));
        let _ = said.expect_success();
        umoci_unpack(&layout, "v1", &bench.local("bundle"))
    };
    match layered() {
        Ok(found) => assert_same(&found, &expected, What::all()),
        Err(reason) => skip_part!("cli export::a_base_with_its_changes, umoci", reason),
    }
}

#[test]
fn what_a_socket_replaced_is_gone() {
    let bench = Bench::empty();
    let source = bench.local("source");
    let (base, whole, changes) = (bench.local("base.img"), bench.local("base.tar"), bench.local("d.tar"));
    touch(&source.join("d/a"), "a");
    build(&base, &[&source]);
    fs::remove_file(source.join("d/a")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(source.join("d/a")).unwrap();
    build(&bench.image, &[&source]);
    export(&base, whole.to_str().unwrap()).ok();
    let diff = ["--diff", base.to_str().unwrap(), "-o", changes.to_str().unwrap()];
    let ran = hectare(&[&["export", bench.image()], &diff[..]].concat()).ok();
    assert!(ran.err.contains("disk.img:/d/a: warning: a socket can't be in an archive"), "{}", ran.err);
    let merged = bench.local("merged.img");
    build(&merged, &[&whole, &changes]);
    let left = hectare(&["diff", "--ignore-times", merged.to_str().unwrap(), bench.image()]);
    assert_eq!(left.text(), "+ d/a\n", "{}", left.err);
}

#[test]
fn a_layer_has_what_changed_and_the_directories_on_the_way() {
    let bench = Bench::empty();
    let (source, base) = (bench.local("source"), bench.local("base.img"));
    ["d/e/a", "d/e/b", "d/f/c", "g/h"].iter().for_each(|name| touch(&source.join(name), name));
    fs::hard_link(source.join("d/e/a"), source.join("g/a")).unwrap();
    build(&base, &[&source]);
    fs::write(source.join("d/e/b"), "B").unwrap();
    rustix::fs::setxattr(source.join("g/a"), "user.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    build(&bench.image, &[&source]);
    let changes = bench.local("changes.tar");
    let diff = ["--diff", base.to_str().unwrap(), "-o", changes.to_str().unwrap()];
    hectare(&[&["export", bench.image()], &diff[..]].concat()).ok();
    // A program that unpacks a link sets the attributes of its file once more.
    let text = String::from_utf8_lossy(&fs::read(&changes).unwrap()).into_owned();
    assert_eq!(text.matches("SCHILY.xattr.user.a=1").count(), 2);
    match need("tar") {
        Ok(mut tar) => {
            let said = run(tar.arg("-tf").arg(&changes)).expect_success();
            assert_eq!(said.stdout, "./\nd/\nd/e/\nd/e/a\nd/e/b\ng/\ng/a\n");
        }
        Err(reason) => skip!("cli export::a_layer_has_what_changed", reason),
    }
}

#[test]
fn nothing_changed_is_an_empty_layer() {
    let bench = Bench::empty();
    before(&bench.local("source"));
    build(&bench.image, &[&bench.local("source")]);
    let ran = hectare(&["export", bench.image(), "--diff", bench.image(), "-o", "-"]).ok();
    assert_eq!(ran.out, [0; 1024]);
}

#[test]
fn exports_at_once_into_one_layout_lose_no_tag() {
    let bench = Bench::empty();
    touch(&bench.local("source/a"), "a");
    build(&bench.image, &[&bench.local("source")]);
    let layout = bench.local("images");
    std::thread::scope(|scope| {
        for tag in ["a", "b", "c", "d", "e", "f"] {
            let output = reference(&layout, tag);
            let image = &bench.image;
            scope.spawn(move || export(image, &output).ok());
        }
    });
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    assert_eq!(index["manifests"].as_array().unwrap().len(), 6);
}

#[test]
fn a_name_of_a_whiteout_is_in_archives_only() {
    let bench = Bench::empty();
    let (source, layout) = (bench.local("source"), bench.local("images"));
    touch(&source.join("d/.wh.a"), "x");
    build(&bench.image, &[&source]);
    let ran = export(&bench.image, &reference(&layout, "v1"));
    assert!(ran.refused().contains("disk.img:/d/.wh.a: a name that begins with .wh."), "{}", ran.err);
    assert!(!layout.exists());
    let ran = hectare(&["export", bench.image(), "-o", "-"]).ok();
    assert!(String::from_utf8_lossy(&ran.out).contains("d/.wh.a"));
}

#[test]
fn a_file_that_cannot_be_read_leaves_no_output() {
    let bench = match Bench::filled("ext4", Tree::Ordinary) {
        Ok(bench) => bench,
        Err(reason) => skip!("cli export::a_file_that_cannot_be_read", reason),
    };
    let files = walk_names(&bench);
    let file = files.last().unwrap();
    // The extent at the start of the file's map leads beyond the volume.
    let spoil = format!("set_inode_field {file} block[5] 0x7fffffff");
    let spoiled = hectare_oracle::debugfs_write(&bench.image, &[&spoil])
        .and_then(|_| debugfs(&bench.image, &[&format!("stat {file}")]));
    if let Err(reason) = spoiled {
        skip!("cli export::a_file_that_cannot_be_read", reason);
    }
    for output in ["tar:a.tar", "tar:a.tar.gz", "oci:images"] {
        let (kind, name) = output.split_once(':').unwrap();
        let ran = export(&bench.image, &format!("{kind}:{}", bench.local(name).display()));
        assert!(ran.refused().contains(&bench.at(file)), "{}", ran.err);
        assert!(!bench.local(name).exists(), "{output}");
    }
    let left = fs::read_dir(bench.folder.path()).unwrap().count();
    assert_eq!(left, 1, "the image alone");
    assert_eq!(hectare(&["diff", bench.image(), bench.image()]).code, Some(2));
}

/// Regression: what room a volume has was taken from statfs, which counts the journal and so fails without
/// it. `tree` then called every directory with a name corrupt.
#[test]
fn regression_a_volume_without_its_journal_is_walked() {
    let bench = match Bench::filled("ext4", Tree::Ordinary) {
        Ok(bench) => bench,
        Err(reason) => skip!("cli export::regression_a_volume_without_its_journal", reason),
    };
    let whole = hectare(&["export", bench.image(), "-o", "-"]).ok();
    if let Err(reason) = hectare_oracle::debugfs_write(&bench.image, &["ssv overhead_clusters 0", "clri <8>"])
    {
        skip!("cli export::regression_a_volume_without_its_journal", reason);
    }
    assert!(hectare(&["export", bench.image(), "-o", "-"]).ok().out == whole.out);
    hectare(&["tree", bench.image()]).ok();
    hectare(&["diff", bench.image(), bench.image()]).ok();
}

/// Files of a corrupt volume that share blocks could unpack to any size.
#[test]
fn more_data_than_a_volume_has_is_refused() {
    let bench = Bench::empty();
    let (source, features) = (bench.local("source"), "^has_journal,^metadata_csum");
    ["a", "b"].iter().for_each(|name| touch(&source.join(name), &name.repeat(5 << 20)));
    let source_option = ["-d", source.to_str().unwrap(), "-O", features];
    let made = hectare_oracle::mke2fs(&[&["-t", "ext4"], &source_option[..]].concat(), &bench.image, "12M");
    let shared = made.and_then(|_| hectare_oracle::debugfs_write(&bench.image, &["copy_inode a b"]));
    if let Err(reason) = shared {
        skip!("cli export::more_data_than_a_volume_has", reason);
    }
    let whole = export(&bench.image, bench.local("whole.tar").to_str().unwrap());
    assert_eq!(whole.code, Some(0), "10 of 12 MiB: {}", whole.err);
    ["c", "d"].iter().for_each(|name| {
        hectare_oracle::debugfs_write(&bench.image, &[&format!("ln a {name}"), "sif a links_count 1"])
            .unwrap();
    });
    let ran = export(&bench.image, bench.local("more.tar").to_str().unwrap());
    assert!(
        ran.refused().contains("disk.img:/c: with it the files have more data than the volume"),
        "{}",
        ran.err
    );
    assert!(!bench.local("more.tar").exists());
}

/// Regular files with content, by their paths from the root.
fn walk_names(bench: &Bench) -> Vec<String> {
    let tree = hectare(&["tree", "--json", "-a", bench.image()]).ok().json();
    let files = tree.as_array().unwrap().iter();
    files
        .filter(|file| file["kind"] == "regular file" && file["size"].as_u64() > Some(4096))
        .map(|file| file["path"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_is_there_is_not_replaced() {
    let bench = Bench::empty();
    touch(&bench.local("source/a"), "a");
    build(&bench.image, &[&bench.local("source")]);
    let before = digest(&bench.image);
    let (there, plain) = (bench.local("there.tar"), bench.local("plain"));
    fs::write(&there, "mine").unwrap();
    let output = there.to_str().unwrap();
    assert!(export(&bench.image, output).refused().contains("use --force"));
    assert_eq!(fs::read(&there).unwrap(), b"mine");
    hectare(&["export", bench.image(), "-o", output, "-F"]).ok();
    assert_ne!(fs::read(&there).unwrap(), b"mine");
    let ran = hectare(&["export", bench.image(), "-F", "-o", &format!("tar:{}", bench.image())]);
    assert!(ran.refused().contains("it is the image that is read"), "{}", ran.err);
    touch(&plain.join("file"), "mine");
    let ran = export(&bench.image, &format!("oci:{}", plain.display()));
    assert!(ran.refused().contains("not empty, and is no OCI image layout"), "{}", ran.err);
    assert_eq!((fs::read_dir(&plain).unwrap().count(), digest(&bench.image)), (1, before));
}

#[test]
fn what_makes_no_sense_is_refused_with_the_forms() {
    let bench = Bench::empty();
    touch(&bench.local("source/a"), "a");
    build(&bench.image, &[&bench.local("source")]);
    let image = bench.image();
    assert!(hectare(&["export", image, "-o", "x.zip"]).misused().contains("oci:DIR[:TAG]"));
    assert!(hectare(&["export", image, "-o", "tar:x.tar.xz"]).misused().contains("use -o - and a pipe"));
    assert!(
        hectare(&["export", image, "-o", "x.tar", "--platform", "linux/arm64"]).misused().contains("oci")
    );
    assert!(
        hectare(&["export", image, "-o", "oci:x", "--platform", "Linux/ARM64"]).misused().contains("OS/ARCH")
    );
    let ran = hectare(&["export", &at(&bench.image, "/a"), "-o", "-"]);
    assert!(ran.refused().contains("disk.img:/a: not a directory"), "{}", ran.err);
    let config = bench.local("run.json");
    fs::write(&config, r#"{"entrypoint":["/init"]}"#).unwrap();
    let output = format!("oci:{}", bench.local("images").display());
    let ran = hectare(&["export", image, "-o", &output, "--config", config.to_str().unwrap()]);
    assert!(ran.refused().contains("unknown field `entrypoint`"), "{}", ran.err);
    assert!(!bench.local("images").exists());
}

#[test]
fn a_directory_is_exported_from_itself_on() {
    let bench = Bench::empty();
    touch(&bench.local("source/d/e/a"), "a");
    touch(&bench.local("source/b"), "b");
    build(&bench.image, &[&bench.local("source")]);
    let output = bench.local("d.tar");
    hectare(&["export", &bench.at("/d"), "-o", output.to_str().unwrap()]).ok();
    let out = bench.local("out");
    match unpack(&output, &out) {
        Ok(()) => {
            let what = What { mtimes: Times::Ignored, ..What::all() };
            assert_same(&walk(&out), &walk(&bench.local("source/d")), what);
        }
        Err(reason) => skip!("cli export::a_directory_is_exported", reason),
    }
}

/// A layout got its mark before its index: an export that was interrupted between them had to be deleted.
#[test]
fn regression_a_layout_whose_first_export_was_interrupted_takes_another() {
    let bench = Bench::empty();
    touch(&bench.local("source/a"), "a");
    build(&bench.image, &[&bench.local("source")]);
    let layout = bench.local("images");
    let output = reference(&layout, "v1");
    export(&bench.image, &output).ok();
    fs::remove_file(layout.join("index.json")).unwrap();
    export(&bench.image, &output).ok();
    let image = bench.local("again.img");
    build(&image, &[Path::new(&output)]);
    assert_eq!(hectare(&["cat", &format!("{}:/a", image.display())]).ok().text(), "a");
}

/// An index that could not be looked at was taken for none, and replaced with all its tags.
#[test]
fn regression_an_index_behind_a_link_that_leads_nowhere_lost_its_tags() {
    let bench = Bench::empty();
    touch(&bench.local("source/a"), "a");
    build(&bench.image, &[&bench.local("source")]);
    let layout = bench.local("images");
    export(&bench.image, &reference(&layout, "v1")).ok();
    fs::remove_file(layout.join("index.json")).unwrap();
    symlink("elsewhere", layout.join("index.json")).unwrap();
    assert_eq!(export(&bench.image, &reference(&layout, "v2")).code, Some(1));
    assert!(fs::symlink_metadata(layout.join("index.json")).unwrap().is_symlink());
}

/// What could not be exported leaves no mark, so that the directory is as it was.
#[test]
fn an_export_that_fails_leaves_no_layout() {
    let bench = Bench::empty();
    touch(&bench.local("source/a"), "a");
    build(&bench.image, &[&bench.local("source")]);
    let layout = bench.local("images");
    fs::create_dir(&layout).unwrap();
    let output = reference(&layout, "v1");
    let config = bench.local("none.json");
    let arguments = ["export", bench.image(), "-o", &output, "--config", config.to_str().unwrap()];
    assert_eq!(hectare(&arguments).code, Some(1));
    assert_eq!(fs::read_dir(&layout).unwrap().count(), 0);
    export(&bench.image, &output).ok();
}
