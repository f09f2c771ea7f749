//! `hectare build` with what a tree can't say: specifications, added files, labels.

use crate::support::{Bench, Ran, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{KernelMount, Skip, What, assert_clean, assert_same, skip, walk};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// A bench with a tree `src` as a developer has it.
fn tree() -> (Bench, PathBuf) {
    let bench = Bench::empty();
    let src = bench.local("src");
    for dir in ["bin", "etc/init.d", "usr/lib"] {
        fs::create_dir_all(src.join(dir)).unwrap();
    }
    fs::write(src.join("bin/ping"), "ping").unwrap();
    fs::write(src.join("etc/shadow"), "secret").unwrap();
    fs::write(src.join("etc/init.d/rc"), "rc").unwrap();
    symlink("usr/lib", src.join("lib")).unwrap();
    (bench, src)
}

fn build(bench: &Bench, src: &Path, more: &[&str]) -> Ran {
    let words = [&["build", "-F", "--from", src.to_str().unwrap()], more, &[bench.image()]].concat();
    hectare(&words)
}

/// What the kernel says of paths of the volume, after e2fsck found nothing: type and mode, owner, group,
/// device, seconds, and the target of a link.
fn seen(bench: &Bench, paths: &[&str]) -> Result<Vec<String>, Skip> {
    assert_clean(&bench.image).unwrap();
    let mount = KernelMount::read_only(&bench.image, "")?;
    let one = |path: &&str| {
        let at = mount.path().join(path);
        let data = fs::symlink_metadata(&at).unwrap_or_else(|error| panic!("{path}: {error}"));
        let kind = data.file_type();
        let device = if kind.is_char_device() || kind.is_block_device() {
            format!(" {},{}", data.rdev() >> 8, data.rdev() & 0xff)
        } else {
            String::new()
        };
        let link = fs::read_link(&at).map(|to| format!(" {}", to.display())).unwrap_or_default();
        let (mode, uid, gid, time) = (data.mode(), data.uid(), data.gid(), data.mtime());
        format!("{path} {mode:o} {uid} {gid}{device}{link} @{time}.{}", data.mtime_nsec())
    };
    Ok(paths.iter().map(one).collect())
}

/// The volume's value of `security.capability`, in hexadecimal digits.
fn capability(bench: &Bench, path: &str) -> Result<String, Skip> {
    let mount = KernelMount::read_only(&bench.image, "")?;
    let said = run(need("getfattr")?
        .args(["--only-values", "-e", "hex", "-n", "security.capability"])
        .arg(mount.path().join(path)));
    let bytes = said.expect_success().stdout;
    Ok(bytes.bytes().map(|byte| format!("{byte:02x}")).collect())
}

fn write(bench: &Bench, name: &str, text: &str) -> String {
    let path = bench.local(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn an_mtree_changes_and_makes_what_it_lists() {
    let (bench, src) = tree();
    let data = write(&bench, "motd.txt", "hello\n");
    let spec = write(
        &bench,
        "spec",
        &format!(
            "#mtree\r\n/set type=file uid=0 gid=0 mode=0644 time=1000.5\r\n. type=dir mode=0755\n\
             \x20   etc type=dir mode=0750 gid=7\n        shadow mode=0600 gid=42 size=6 \\\n \
             sha256digest=2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n        \
             motd\\040x contents={data} mode=u=rw,go=r\n    ..\n\
             dev type=dir mode=0755\nnull type=char device=native,1,3 mode=0666\n\
             sda\ttype=block device=0x811 mode=0660 gid=6\npipe type=fifo uname=root uid=3\n..\n..\n\
             ./lib/x type=link link=../y\n/set mode=0755\n./usr/lib type=dir optional nochange\n\
             ./none optional\n./bin/ping mode=4755 uid=9 nlink=1"
        ),
    );
    build(&bench, &src, &["--owner", "5:5", "--spec", &spec]).ok();
    let paths = [
        ".",
        "etc",
        "etc/shadow",
        "etc/motd x",
        "dev",
        "dev/null",
        "dev/sda",
        "dev/pipe",
        "usr/lib/x",
        "bin/ping",
    ];
    let found = match seen(&bench, &paths) {
        Ok(found) => found,
        Err(reason) => skip!("described::an_mtree_changes_and_makes_what_it_lists", reason),
    };
    let expected = [
        ". 40755 0 0 @1000.5",
        "etc 40750 0 7 @1000.5",
        "etc/shadow 100600 0 42 @1000.5",
        "etc/motd x 100644 0 0 @1000.5",
        "dev 40755 0 0 @1000.5",
        "dev/null 20666 0 0 1,3 @1000.5",
        "dev/sda 60660 0 6 8,17 @1000.5",
        "dev/pipe 10644 3 0 @1000.5",
        "usr/lib/x 120777 0 0 ../y @1000.5",
        "bin/ping 104755 9 0 @1000.5",
    ];
    assert_eq!(found, expected);
    assert_eq!(hectare(&["cat", &bench.at("/etc/motd x")]).ok().text(), "hello\n");
    let rc = &hectare(&["stat", "--json", &bench.at("/etc/init.d/rc")]).ok().json()[0];
    assert_eq!(rc["uid"], 5, "what is not listed is as --owner says");
}

#[test]
fn what_bsdtar_and_mtree_write_of_a_tree_is_accepted_and_changes_nothing() {
    let (bench, src) = tree();
    fs::write(src.join("a b#c\\d"), "odd").unwrap();
    let written = || {
        let bsdtar = need("bsdtar")?
            .args(["-cf", "-", "--format=mtree", "--options=mtree:all", "-C"])
            .arg(&src)
            .arg(".")
            .output();
        let mtree = need("mtree")?.args(["-c", "-K", "sha256,sha512,device", "-p"]).arg(&src).output();
        Ok::<_, Skip>([bsdtar, mtree].map(|output| String::from_utf8(output.unwrap().stdout).unwrap()))
    };
    let written = match written() {
        Ok(written) => written,
        Err(reason) => skip!("described::what_bsdtar_and_mtree_write_of_a_tree", reason),
    };
    for text in written {
        let spec = write(&bench, "spec", &text);
        let ran = build(&bench, &src, &["--owner", "7:7", "--modes", "0700", "--spec", &spec]).ok();
        assert!(ran.err.lines().all(|line| line.contains("only SHA-2 is")), "{}", ran.err);
        assert_clean(&bench.image).unwrap();
        let mount = match KernelMount::read_only(&bench.image, "") {
            Ok(mount) => mount,
            Err(reason) => skip!("described::what_bsdtar_and_mtree_write_of_a_tree", reason),
        };
        let mut found = walk(mount.path());
        found.retain(|entry| entry.path != b"lost+found");
        found
            .iter_mut()
            .filter(|entry| entry.path.is_empty() || entry.path == b".")
            .for_each(|root| root.nlink -= 1);
        assert_same(&found, &walk(&src), What::all());
    }
}

#[test]
fn a_device_table_makes_ranges_and_gives_capabilities() {
    let (bench, src) = tree();
    let table = write(
        &bench,
        "table",
        "# name type mode uid gid major minor start inc count\n\
         /dev/pts d 755 0 0 - - - - -\n/dev/console c 622 0 5 5 1 - - -\n/dev/tty c 666 0 5 4 0 0 1 3\n\
         /dev/hda b 640 0 6 3 1 1 2 2\n/bin/ping f 4755 root 0 - - - - -\n|xattr cap_net_raw+ep\n\
         /etc r -1 3 4 - - - - -\n/nothing F 644 0 0 - - - - -\n/run/p p 600 1 2\n",
    );
    assert!(build(&bench, &src, &["--spec", &table]).refused().ends_with(
        "table:10: /run/p: the directory it is in does not exist: give that an entry of its own before"
    ));
    let text = fs::read_to_string(&table).unwrap().replace("/run/p", "/etc/p");
    fs::write(&table, text).unwrap();
    let ran = build(&bench, &src, &["--spec", &table]).ok();
    assert!(ran.err.contains("table:5: it stands for `/dev/hda1` to `/dev/hda2`, 2 of them"), "{}", ran.err);
    let paths = [
        "dev/pts",
        "dev/console",
        "dev/tty0",
        "dev/tty2",
        "dev/hda1",
        "dev/hda2",
        "bin/ping",
        "etc/init.d/rc",
        "etc/p",
    ];
    let found = seen(&bench, &paths).and_then(|found| Ok((found, capability(&bench, "bin/ping")?)));
    let (found, capability) = match found {
        Ok(found) => found,
        Err(reason) => skip!("described::a_device_table_makes_ranges", reason),
    };
    let found: Vec<_> = found.iter().map(|line| line.split(" @").next().unwrap()).collect();
    let expected = [
        "dev/pts 40755 0 0",
        "dev/console 20622 0 5 5,1",
        "dev/tty0 20666 0 5 4,0",
        "dev/tty2 20666 0 5 4,2",
        "dev/hda1 60640 0 6 3,1",
        "dev/hda2 60640 0 6 3,3",
        "bin/ping 104755 0 0",
        "etc/init.d/rc 100644 3 4",
        "etc/p 10600 1 2",
    ];
    assert_eq!(found, expected);
    assert_eq!(capability, "0100000200200000000000000000000000000000");
}

#[test]
fn an_fs_config_sets_owners_capabilities_and_links() {
    let (bench, src) = tree();
    let config = write(
        &bench,
        "config",
        " 0 2000 0751\nbin 0 2000 0755\nbin/ping 0 3003 0750 capabilities=0x2000\nbin/sh 0 2000 0777 toybox\n\
         etc/shadow 1000 1000 0440 selabel=u:object_r:shadow:s0 capabilities=0x0\n",
    );
    build(&bench, &src, &["--spec", &config]).ok();
    let found = seen(&bench, &[".", "bin", "bin/ping", "bin/sh", "etc/shadow"])
        .and_then(|found| Ok((found, capability(&bench, "bin/ping")?)));
    let (found, capability) = match found {
        Ok(found) => found,
        Err(reason) => skip!("described::an_fs_config_sets_owners", reason),
    };
    let found: Vec<_> = found.iter().map(|line| line.split(" @").next().unwrap()).collect();
    let expected = [
        ". 40751 0 2000",
        "bin 40755 0 2000",
        "bin/ping 100750 0 3003",
        "bin/sh 120777 0 2000 toybox",
        "etc/shadow 100440 1000 1000",
    ];
    assert_eq!(found, expected);
    assert_eq!(capability, "0100000200200000000000000000000000000000");
    let label = hectare(&["xattr", "get", "security.selinux", &bench.at("/etc/shadow")]);
    assert!(label.ok().text().contains("u:object_r:shadow:s0"));
}

#[test]
fn what_can_t_be_applied_is_refused_with_its_line_and_makes_no_image() {
    let (bench, src) = tree();
    for (text, reason) in [
        ("#mtree\n", "spec:1: it has no entries"),
        ("", "spec:1: it has no entries"),
        ("hello world\n", "spec:1: it is neither an mtree"),
        ("#mtree\n\n./no type=file\n", "spec:3: /no: there is no such file in the tree"),
        ("#mtree\n./no mode=1\n", "spec:2: /no: it does not exist, and to make it its type is needed"),
        ("#mtree\n./no type=dir\n", "its owner, group and mode are needed"),
        ("#mtree\n./bin type=file\n", "spec:2: /bin: the tree has a directory there, not a regular file"),
        ("#mtree\n./bin/ping size=3\n", "spec:2: /bin/ping: the file has 4 bytes, not 3"),
        ("#mtree\n./bin/ping type=file uname=joe\n", "uname=`joe` without uid="),
        ("#mtree\n./bin/ping colour=red\n", "the keyword `colour` is not understood"),
        ("#mtree\n./bin/../x mode=1\n", "a path with `..`"),
        ("#mtree\n..\n", "leads out of the top directory"),
        ("#mtree\n./none optional\n", "spec:2: the tree has none of the paths"),
        ("#mtree\n./bin/ping mode=9\n", "mode=`9` is not understood"),
        ("#mtree\n./bin/ping \\", "the line is continued, but the file ends"),
        ("/x c 644 0 0 1 - - - -\n", "spec:1: a device has a major and a minor number"),
        ("/x c 644 0 0 1 0 0 4096 512\n", "the last minor number would be"),
        ("/x r 644 0 0 - - - - -\n", "spec:1: /x: there is no such path in the tree"),
        ("/bin/ping f 644 joe 0 - - - - -\n", "an owner is a number or `root`, not `joe`"),
        ("/bin/ping f 644 0 0 - - - - - -\n", "one field too many"),
        ("|xattr cap_kill=p\n", "spec:1: it is neither"),
        ("bin/nothing 0 0 0755\n", "spec:1: /bin/nothing: there is no such path"),
        ("bin/ping 0 0 0755 a b\n", "`b` is not understood"),
    ] {
        let spec = write(&bench, "spec", text);
        let ran = build(&bench, &src, &["--spec", &spec]);
        assert!(ran.refused().contains(reason), "{text:?}: {}", ran.err);
        assert!(!bench.image.exists());
    }
    let wrong = format!("#mtree\n./bin/ping type=file sha256={}\n", "0".repeat(64));
    let spec = write(&bench, "spec", &wrong);
    let ran = build(&bench, &src, &["--spec", &spec]);
    assert!(ran.refused().contains("spec:2: /bin/ping: its sha256 is "), "{}", ran.err);
}

#[test]
fn an_entry_hidden_by_an_upper_layer_is_missing() {
    let (bench, src) = tree();
    let upper = bench.local("upper");
    fs::create_dir_all(upper.join("etc")).unwrap();
    fs::write(upper.join("etc/.wh..wh..opq"), "").unwrap();
    let spec = write(&bench, "spec", "/etc/shadow f 600 0 0 - - - - -\n");
    let ran = build(&bench, &src, &["--from", upper.to_str().unwrap(), "--spec", &spec]);
    assert!(ran.refused().contains("spec:1: /etc/shadow: there is no such path in the tree"), "{}", ran.err);
}

/// The policy of Debian's package selinux-policy-default.
const POLICY: &str = "/etc/selinux/default/contexts/files/file_contexts";

/// The label of a path, as it is stored.
fn label(bench: &Bench, path: &str) -> Option<String> {
    let ran = hectare(&["xattr", "get", "security.selinux", &bench.at(&format!("/{path}"))]);
    (ran.code == Some(0)).then(|| ran.text().to_owned())
}

/// What setfiles would change in a mounted tree.
fn relabelled(contexts: &Path, mount: &Path) -> Result<String, Skip> {
    let said = run(need("setfiles")?.args(["-n", "-v", "-F", "-r"]).arg(mount).arg(contexts).arg(mount));
    Ok(said.expect_success().stdout)
}

#[test]
fn labels_of_debian_s_policy_are_those_of_setfiles() {
    let (bench, src) = tree();
    let policy = Path::new(POLICY);
    if !policy.exists() {
        skip!("described::labels_of_debian_s_policy", "the package selinux-policy-default is not installed");
    }
    for file in [
        "bin/su",
        "usr/sbin/sshd",
        "sbin/init",
        "var/log/syslog",
        "var/run/x.pid",
        "run/lock/y",
        "etc/passwd",
        "etc/init.d/ssh",
        "usr/lib32/libc.so.6",
        "usr/local/lib/a.so",
        "home/joe/.ssh/id",
        "root/.bashrc",
        "boot/vmlinuz-6.1",
        "usr/share/doc/a/copyright",
        "lost+found/x",
        "tmp/some thing",
        "opt/app/bin/tool",
        "var/lib/private/z/q",
        "usr/bin/python3.11",
        "sys/x",
        "a.quota",
        "aquota.user",
    ] {
        if file != "lost+found/x" {
            fs::create_dir_all(src.join(file).parent().unwrap()).unwrap();
            fs::write(src.join(file), file).unwrap();
        }
    }
    symlink("x", src.join("etc/mtab")).unwrap();
    let devices = write(
        &bench,
        "devices",
        "/dev d 755 0 0 - - - - -\n/dev/sda b 660 0 6 8 0 - - -\n/dev/tty c 666 0 5 4 0 0 1 3\n\
         /dev/null c 666 0 0 1 3 - - -\n/dev/initctl p 600 0 0\n/run/s s 600 0 0\n/mnt d 755 0 0\n",
    );
    build(&bench, &src, &["--spec", &devices, "--file-contexts", POLICY]).ok();
    assert_clean(&bench.image).unwrap();
    let mount = match KernelMount::read_only(&bench.image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("described::labels_of_debian_s_policy", reason),
    };
    assert_eq!(label(&bench, "etc/shadow").as_deref(), Some("system_u:object_r:shadow_t:s0\0"));
    assert_eq!(label(&bench, "lost+found").as_deref(), Some("system_u:object_r:lost_found_t:s0\0"));
    assert!(label(&bench, "").is_some());
    match relabelled(policy, mount.path()) {
        Ok(said) => assert_eq!(said, ""),
        Err(reason) => skip!("described::labels_of_debian_s_policy, setfiles", reason),
    }
}

#[test]
fn labels_of_files_beside_the_contexts_are_those_of_setfiles() {
    let (bench, src) = tree();
    for file in
        ["etc/a", "etc/ab", "etc/qb", "x/longprefixz", "x/longprefixh", "srv/j", "sub/a", "s/a", "d/e"]
    {
        fs::create_dir_all(src.join(file).parent().unwrap()).unwrap();
        fs::write(src.join(file), file).unwrap();
    }
    let contexts = write(
        &bench,
        "fc",
        "/.*\tu:r:all:s0\n/etc/a\t--\tu:r:lit:s0\n/etc/.*\tu:r:meta:s0\n/etc/a.*\tu:r:early:s0\n\
         /etc/.*b\tu:r:late:s0\n/etc/init\\.d\t-d\tu:r:dir:s0\n/x/longprefix[a-z]*\tu:r:longp:s0\n\
         /x/.*\tu:r:short:s0\n/lib\t-d\tu:r:no:s0\n/bin(/.*)?\t<<none>>\r\n",
    );
    write(&bench, "fc.local", "/etc/a\tu:r:local:s0\n");
    write(&bench, "fc.homedirs", "/srv/.*\tu:r:hd:s0\n/x/longprefixh\tu:r:hd:s0\n");
    write(&bench, "fc.subs", "/s /x\n/s /etc\n/d /sub\n");
    write(&bench, "fc.subs_dist", "/sub /x\n/s /bin\n");
    build(&bench, &src, &["--file-contexts", &contexts]).ok();
    assert_clean(&bench.image).unwrap();
    let mount = match KernelMount::read_only(&bench.image, "") {
        Ok(mount) => mount,
        Err(reason) => skip!("described::labels_of_files_beside", reason),
    };
    assert_eq!([label(&bench, "bin"), label(&bench, "bin/ping")], [None, None]);
    assert_eq!(label(&bench, "etc/a").as_deref(), Some("u:r:local:s0\0"));
    match relabelled(Path::new(&contexts), mount.path()) {
        Ok(said) => assert_eq!(said, ""),
        Err(reason) => skip!("described::labels_of_files_beside, setfiles", reason),
    }
    for (text, reason) in [
        ("/a(?!b).*\tu:r:t:s0\n", "fc:1: look-around"),
        ("/a\n", "fc:1: a line is REGEX [TYPE] LABEL"),
        ("\n/a\t-x\tu:r:t:s0\n", "fc:2: a type is one of"),
        ("/(a.\tu:r:t:s0\n", "fc:1: the regular expression `/(a.` is not understood"),
    ] {
        let wrong = write(&bench, "fc", text);
        let ran = build(&bench, &src, &["--file-contexts", &wrong]);
        assert!(ran.refused().contains(reason), "{}", ran.err);
    }
}
