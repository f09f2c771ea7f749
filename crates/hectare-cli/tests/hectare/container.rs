//! Images of containers that other tools made become the tree that other tools unpack.

use crate::support::{Bench, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{
    Entry, KernelMount, Skip, What, assert_clean, assert_same, is_root, skip, skip_part, walk,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Makes an image of three layers with umoci as root: what each adds, changes and removes.
const LAYERS: &str = r#"
umoci init --layout layout
umoci new --image layout:v1
umoci unpack --image layout:v1 b1
cd b1/rootfs
mkdir -p etc usr/lib opt/whole opt/part var/log dir2file name
ln -s usr/lib lib
echo one > etc/one; echo two > etc/two; chown 5:6 etc/one; chmod 4755 etc/two
echo so > usr/lib/so; ln usr/lib/so usr/lib/so.1
echo x > opt/whole/x; echo y > opt/part/y; echo z > opt/part/z
echo in > dir2file/in; echo file > file2dir; mknod null c 1 3; mkfifo pipe; ln -s /etc/one link
setfattr -n user.a -v b etc/one; setcap cap_net_raw=ep usr/lib/so 2>/dev/null || true
truncate -s 1M sparse; printf data | dd of=sparse bs=1 seek=700000 conv=notrunc 2>/dev/null
touch -d '2001-02-03 04:05:06.123456789' etc/two
cd ../..
umoci repack --image layout:v1 b1
umoci unpack --image layout:v1 b2
cd b2/rootfs
rm etc/one; rm -r opt/whole; mkdir opt/whole; echo new > opt/whole/new; echo changed > opt/part/y
rm -r dir2file; echo now > dir2file; rm file2dir; mkdir file2dir; echo in > file2dir/in
echo more > lib/more; rm link; ln -s two link; chmod 600 etc/two; rm pipe
ln usr/lib/so usr/lib/so.2
cd ../..
umoci repack --image layout:v2 b2
umoci unpack --image layout:v2 b3
cd b3/rootfs
rm -r var file2dir; echo back > etc/one; chown 1000:1000 etc; setfattr -n user.c -v d etc
cd ../..
umoci repack --image layout:v3 b3
for v in v1 v2 v3; do umoci unpack --image layout:$v flat-$v; done
chmod -R a+rX layout
"#;

/// The kernel's view of an image, without what the format adds, and without the root directory, of whose
/// metadata not every tool keeps everything.
fn seen(image: &Path) -> Result<Vec<Entry>, Skip> {
    assert_clean(image).unwrap();
    let mount = KernelMount::read_only(image, "")?;
    let all = walk(mount.path());
    Ok(below_the_root(all))
}

fn below_the_root(mut all: Vec<Entry>) -> Vec<Entry> {
    all.retain(|entry| !entry.path.is_empty() && entry.path != b"lost+found");
    all
}

fn script(bench: &Bench, text: &str) -> Result<(), Skip> {
    let _done = run(need("sh")?.args(["-ec", text]).current_dir(bench.folder.path())).expect_success();
    Ok(())
}

/// The layout with its versions, and what each is unpacked to.
fn layout() -> Result<Bench, Skip> {
    for tool in ["umoci", "setfattr"] {
        need(tool)?;
    }
    if !is_root() {
        return Err(Skip::new("umoci keeps owners and devices only for root"));
    }
    let bench = Bench::empty();
    script(&bench, LAYERS)?;
    Ok(bench)
}

/// A file in the test's directory.
fn local(bench: &Bench, name: &str) -> String {
    bench.local(name).to_str().unwrap().to_owned()
}

fn build(bench: &Bench, from: &str, image: &str) {
    hectare(&["build", "-F", "--from", from, &local(bench, image)]).ok();
}

/// Compares an image with what umoci unpacked.
fn compare(bench: &Bench, image: &str, version: &str) -> Result<(), Skip> {
    let expected = walk(&bench.folder.path().join(format!("flat-{version}/rootfs")));
    assert_same(&seen(Path::new(&local(bench, image)))?, &below_the_root(expected), What::all());
    Ok(())
}

#[test]
fn layers_of_umoci_become_what_umoci_unpacks() {
    let tested = || -> Result<(), Skip> {
        let bench = layout()?;
        for version in ["v1", "v2", "v3"] {
            build(&bench, &format!("oci:{}:{version}", local(&bench, "layout")), "disk.img");
            compare(&bench, "disk.img", version)?;
        }
        Ok(())
    };
    if let Err(reason) = tested() {
        skip!("cli container::layers_of_umoci", reason);
    }
}

#[test]
fn archives_of_skopeo_become_the_same() {
    let tested = || -> Result<(), Skip> {
        need("skopeo")?;
        let bench = layout()?;
        let copy = "skopeo --insecure-policy copy -q";
        script(
            &bench,
            &format!(
                "{copy} oci:layout:v3 oci-archive:o.tar:v3; \
                 {copy} oci:layout:v3 docker-archive:d.tar:box:v3; \
                 {copy} --dest-compress --dest-compress-format zstd oci:layout:v3 oci:zstd:v3; gzip -k d.tar"
            ),
        )?;
        let expected = local(&bench, "expected.img");
        build(&bench, &format!("oci:{}:v3", local(&bench, "layout")), "expected.img");
        let expected = seen(Path::new(&expected))?;
        for from in [
            format!("oci-archive:{}:v3", local(&bench, "o.tar")),
            format!("docker-archive:{}:box:v3", local(&bench, "d.tar")),
            format!("oci:{}", local(&bench, "zstd")),
            local(&bench, "o.tar"),
            local(&bench, "d.tar"),
            local(&bench, "d.tar.gz"),
            local(&bench, "zstd"),
        ] {
            build(&bench, &from, "disk.img");
            assert_same(&seen(&bench.image)?, &expected, What::all());
            hectare(&["build", "--verify-only", "--from", &from]).ok();
        }
        Ok(())
    };
    if let Err(reason) = tested() {
        skip!("cli container::archives_of_skopeo", reason);
    }
}

#[test]
fn an_ordinary_user_gets_the_owners_and_devices_of_an_image() {
    let tested = || -> Result<(), Skip> {
        let bench = layout()?;
        let mine = bench.folder.path().join("mine");
        fs::create_dir(&mine).unwrap();
        std::os::unix::fs::chown(&mine, Some(1000), Some(1000)).unwrap();
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(bench.folder.path(), open).unwrap();
        crate::support::copy_binary(local(&bench, "hectare").as_ref());
        let mut command: Command = need("setpriv")?;
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups", &local(&bench, "hectare"), "build"]);
        command.args(["--from", &format!("oci:{}:v3", local(&bench, "layout")), "mine/user.img"]);
        let _done = run(command.current_dir(bench.folder.path()).env("TMPDIR", &mine)).expect_success();
        compare(&bench, "mine/user.img", "v3")
    };
    if let Err(reason) = tested() {
        skip!("cli container::an_ordinary_user", reason);
    }
}

#[test]
fn an_image_of_buildah_is_read() {
    let tested = || -> Result<(), Skip> {
        need("buildah")?;
        if !is_root() {
            return Err(Skip::new("buildah in a directory of its own needs root"));
        }
        let bench = Bench::empty();
        let text = "mkdir -p tree/bin; echo hello > tree/bin/init; chown -R 3:4 tree/bin
            b='buildah --storage-driver vfs --root store --runroot run'
            c=$($b from scratch)
            $b copy -q $c tree /
            $b config --entrypoint '[\"/bin/init\"]' --env A=b --user 7 $c
            $b commit -q --disable-compression=false $c oci:out:latest
            $b rm $c";
        script(&bench, text)?;
        let (image, config) = (bench.image().to_owned(), local(&bench, "run.json"));
        let from = format!("oci:{}:latest", local(&bench, "out"));
        hectare(&["build", "--from", &from, "--config", &config, &image]).ok();
        let all = seen(&bench.image)?;
        assert!(all.iter().any(|entry| entry.path == b"bin/init"), "{all:?}");
        let run: serde_json::Value = serde_json::from_slice(&fs::read(config).unwrap()).unwrap();
        assert_eq!(run["Entrypoint"], serde_json::json!(["/bin/init"]));
        assert_eq!(run["User"], "7");
        Ok(())
    };
    if let Err(reason) = tested() {
        skip_part!("cli container::an_image_of_buildah", reason);
    }
}

#[test]
fn a_container_image_that_is_wrong_leaves_no_image() {
    let bench = Bench::empty();
    let blobs = bench.folder.path().join("layout/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(local(&bench, "layout/oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}").unwrap();
    fs::write(local(&bench, "layout/index.json"), "{\"schemaVersion\":2,\"manifests\":[]}").unwrap();
    let layout = local(&bench, "layout");
    let ran = hectare(&["build", "--from", &layout, bench.image()]);
    assert!(ran.refused().ends_with("there is no such image in it"), "{}", ran.err);
    assert!(!bench.image.exists());
    let ran = hectare(&["build", "--from", "docker://alpine", bench.image()]);
    assert!(ran.refused().contains("save it first"), "{}", ran.err);
    let ran = hectare(&["build", "--from", &layout, "--platform", "a/b/c/d", bench.image()]);
    assert!(ran.misused().contains("is not a platform"), "{}", ran.err);
    let folder = local(&bench, "folder");
    fs::create_dir(&folder).unwrap();
    let ran = hectare(&["build", "--from", &folder, "--config", &local(&bench, "c"), bench.image()]);
    assert!(ran.misused().contains("no container image is among the sources"), "{}", ran.err);
    assert!(!bench.image.exists());
}
