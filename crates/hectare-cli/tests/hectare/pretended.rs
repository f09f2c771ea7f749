//! Under a program such as fakeroot, owners and devices are as that program reports them.

use crate::support::{Bench, hectare};
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, assert_clean, is_root, skip, skip_part};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// Makes a tree, an image of it, the tree from the image again, and another image of that by copying; returns
/// what the host and the images report of it.
const SCRIPT: &str = r#"
mkdir src src/d
echo a > src/f; chown 5:6 src/f; chmod 4750 src/f; ln src/f src/d/g; chown 11:12 src/d
mknod src/null c 1 3; mknod src/loop b 7 5; mkfifo src/p; chown 7:8 src/p; ln -s f src/l; chown -h 9:10 src/l
./hectare build --from src one.img
./hectare cp -a one.img:/ out
./hectare mkfs -q two.img 8M
./hectare cp -a out/. two.img:/
cd out
for f in f d d/g null loop p l; do stat -c '%n %a %u %g %t %T' $f; done
"#;

const EXPECTED: [&str; 7] = [
    "f 4750 5 6 0 0",
    "d 755 11 12 0 0",
    "d/g 4750 5 6 0 0",
    "null 644 0 0 1 3",
    "loop 644 0 0 7 5",
    "p 644 7 8 0 0",
    "l 777 9 10 0 0",
];

/// A command that an ordinary user runs in the bench's directory.
fn by_a_user(bench: &Bench, program: &str) -> Result<Command, Skip> {
    need(program)?;
    crate::support::copy_binary(&bench.local("hectare"));
    if !is_root() {
        let mut command = need(program)?;
        command.current_dir(bench.folder.path());
        return Ok(command);
    }
    chown(bench.folder.path(), Some(65534), Some(65534)).unwrap();
    fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = need("setpriv")?;
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command.current_dir(bench.folder.path());
    Ok(command)
}

#[test]
fn regression_fakeroot_is_believed_by_build_and_by_cp_in_both_directions() {
    if let Err(reason) = believed("fakeroot", &[]) {
        skip!("cli pretended::regression_fakeroot", reason);
    }
}

/// Debian's wrapper says that it is fakeroot (`FAKEROOTKEY`), and was taken for one that is not in effect;
/// Yocto runs programs under pseudo without that variable.
#[test]
fn regression_pseudo_is_believed_by_whatever_name_it_goes() {
    for words in [&["-s", "state"][..], &["-s", "state", "env", "-u", "FAKEROOTKEY"]] {
        if let Err(reason) = believed("fakeroot-pseudo", words) {
            skip!("cli pretended::regression_pseudo", reason);
        }
    }
}

/// Runs the script under a program.
fn believed(program: &str, words: &[&str]) -> Result<(), Skip> {
    let bench = Bench::empty();
    let mut command = by_a_user(&bench, program)?;
    let said = run(command.args(words).args(["sh", "-ec", SCRIPT]).env("TZ", "UTC")).expect_success();
    assert_eq!(said.stdout.lines().collect::<Vec<_>>(), EXPECTED, "{}", said.report());
    for image in ["one.img", "two.img"] {
        let image = bench.local(image);
        for line in EXPECTED {
            let name = line.split(' ').next().unwrap();
            let json = &hectare(&["stat", "--json", &crate::support::at(&image, name)]).ok().json()[0];
            let number = |key: &str| json[key].as_u64().unwrap_or(0);
            let mode = json["mode"].as_str().unwrap().trim_start_matches('0');
            let [uid, gid, major, minor] = ["uid", "gid", "major", "minor"].map(number);
            assert_eq!(format!("{name} {mode} {uid} {gid} {major} {minor}"), *line, "{json}");
        }
    }
    Ok(())
}

/// The same tree by the understudy and by mke2fs itself, as image builders call them.
const UNDERSTUDY: &str = r#"
mkdir src src/d
echo a > src/f; chown 5:6 src/f; chmod 4750 src/f; ln src/f src/d/g; chown 11:12 src/d
mknod src/null c 1 3; mknod src/loop b 7 5; mkfifo src/p; chown 7:8 src/p; ln -s f src/l; chown -h 9:10 src/l
ln -s hectare mke2fs
./mke2fs -q -t ext4 -d src -E root_owner one.img 20M
truncate -s 20M two.img
mke2fs -q -F -t ext4 -d src -E root_owner two.img
"#;

#[test]
fn mke2fs_and_its_understudy_see_the_same_under_fakeroot() {
    let bench = Bench::empty();
    let (fakeroot, mke2fs) = (by_a_user(&bench, "fakeroot"), need("mke2fs"));
    let (mut fakeroot, mke2fs) = match (fakeroot, mke2fs) {
        (Ok(fakeroot), Ok(mke2fs)) => (fakeroot, mke2fs),
        (Err(reason), _) | (_, Err(reason)) => skip!("cli pretended::mke2fs_and_its_understudy", reason),
    };
    let script = UNDERSTUDY.replace("\nmke2fs ", &format!("\n{} ", mke2fs.get_program().to_str().unwrap()));
    let _ = run(fakeroot.args(["sh", "-ec", &script]).env("TZ", "UTC")).expect_success();
    for line in EXPECTED.iter().chain(&[". 755 0 0 0 0", "lost+found 700 0 0 0 0"]) {
        let name = line.split(' ').next().unwrap();
        let [one, two] = ["one.img", "two.img"].map(|image| {
            let json =
                hectare(&["stat", "--json", &crate::support::at(&bench.local(image), name)]).ok().json();
            ["kind", "mode", "uid", "gid", "size", "links", "major", "minor", "mtime"]
                .map(|key| json[0][key].clone())
        });
        // The times of what the formatters made are those of the formats.
        let times = if [".", "lost+found"].contains(&name) { 8 } else { 9 };
        assert_eq!(one[..times], two[..times], "{line}");
        assert_eq!(
            [&one[2], &one[3]].map(ToString::to_string).join(" "),
            line.split(' ').collect::<Vec<_>>()[2..4].join(" ")
        );
    }
    assert_clean(&bench.local("one.img")).unwrap_or_else(|reason| skip_part!("pretended, e2fsck", reason));
}

#[test]
fn regression_a_pretence_that_is_not_in_effect_is_refused() {
    let bench = Bench::empty();
    fs::create_dir(bench.local("src")).unwrap();
    fs::write(bench.local("f"), "f").unwrap();
    hectare(&["mkfs", "-q", bench.image(), "8M"]).ok();
    let (source, file) = (bench.local("src"), bench.local("f"));
    for (variable, name) in [("FAKEROOTKEY", "fakeroot"), ("PSEUDO_PREFIX", "pseudo")] {
        for words in [
            ["build", "--from", source.to_str().unwrap(), bench.local("new.img").to_str().unwrap()],
            ["cp", "-a", file.to_str().unwrap(), &bench.at("/")],
            ["cp", "-a", &bench.at("/"), bench.local("out").to_str().unwrap()],
        ] {
            let said = run(Command::new(env!("CARGO_BIN_EXE_hectare")).args(words).env(variable, "1"));
            assert_eq!(said.exit, Some(1), "{}", said.report());
            assert!(said.stderr.contains(&format!("{name} is in use, but its library is not loaded")));
        }
        assert!(!bench.local("new.img").exists() && !bench.local("out").exists());
        let inside = ["ls", bench.image()];
        let _ =
            run(Command::new(env!("CARGO_BIN_EXE_hectare")).args(inside).env(variable, "1")).expect_success();
    }
}
