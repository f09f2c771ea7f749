//! The recipes of docs/images.md and docs/rescue.md, and the commands of docs/first-steps.md, do what the pages
//! say.

use crate::support::Bench;
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, assert_clean, skip, skip_part};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const IMAGES: &str = include_str!("../../../../docs/images.md");
const FIRST_STEPS: &str = include_str!("../../../../docs/first-steps.md");
const RESCUE: &str = include_str!("../../../../docs/rescue.md");

/// The recipes by their titles.
fn recipes() -> Vec<(&'static str, &'static str)> {
    let sections = IMAGES.split("\n## ").skip(1);
    let recipe = |section: &'static str| {
        let title = section.lines().next()?;
        Some((title, section.split("```sh\n").nth(1)?.split("```").next()?))
    };
    sections.filter_map(recipe).collect()
}

/// What a recipe needs beside the shell.
fn tools(recipe: &str) -> Result<(), Skip> {
    for tool in ["skopeo", "umoci", "fakeroot", "sfdisk"] {
        if recipe.contains(&format!("{tool} ")) {
            need(tool)?;
        }
    }
    // The layout is made by umoci.
    if recipe.contains("$LAYOUT") { need("umoci").map(drop) } else { Ok(()) }
}

/// A base, an application that changes it, and where a recipe uses it a layout with the base as its layer.
fn prepare(bench: &Bench, with_layout: bool) {
    let (base, app) = (bench.local("base"), bench.local("app"));
    for dir in [base.join("etc"), base.join("bin"), app.join("opt")] {
        fs::create_dir_all(dir).unwrap();
    }
    fs::write(base.join("etc/motd"), "hello\n").unwrap();
    fs::write(base.join("bin/init"), "#!/bin/sh\n").unwrap();
    fs::write(app.join("opt/app"), vec![7; 30_000]).unwrap();
    fs::create_dir(app.join("etc")).unwrap();
    fs::write(app.join("etc/motd"), "changed\n").unwrap();
    fs::create_dir(bench.local("path")).unwrap();
    symlink(env!("CARGO_BIN_EXE_hectare"), bench.local("path/hectare")).unwrap();
    if with_layout {
        let script = "umoci init --layout layout; umoci new --image layout:v1
            umoci insert --image layout:v1 base /; chmod -R a+rX layout";
        let mut sh = need("sh").unwrap_or_else(|reason| panic!("{reason}"));
        let _made = run(sh.args(["-ec", script]).current_dir(bench.folder.path())).expect_success();
    }
}

fn images(folder: &Path) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "img")).collect()
}

fn follow(recipe: &str) -> Result<(), Skip> {
    tools(recipe)?;
    let bench = Bench::empty();
    prepare(&bench, recipe.contains("$LAYOUT"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut sh = need("sh")?;
    sh.args(["-ec", recipe]).current_dir(bench.folder.path());
    sh.env("PATH", format!("{}:{path}", bench.local("path").display()));
    for (name, value) in [("BASE", "base"), ("APP", "app"), ("LAYOUT", "layout")] {
        sh.env(name, bench.local(value));
    }
    let _done = run(&mut sh).expect_success();
    let images = images(bench.folder.path());
    assert!(!images.is_empty(), "{recipe}");
    for image in images {
        assert_clean(&image).unwrap();
    }
    Ok(())
}

#[test]
fn every_recipe_makes_images_that_are_clean() {
    let recipes = recipes();
    assert!(recipes.len() >= 12, "{recipes:?}");
    for (title, recipe) in recipes {
        if let Err(reason) = follow(recipe) {
            skip_part!(format!("cli recipes, {title}"), reason);
        }
    }
}

/// The recipes for damaged volumes, each with what is damaged.
fn rescues() -> Vec<(&'static str, &'static str)> {
    let recipe = |text: &'static str| {
        let (damage, rest) = text.split_once('\n')?;
        Some((damage.trim(), rest.split("```").next()?))
    };
    RESCUE.split("\n```sh").skip(1).filter_map(recipe).collect()
}

/// What makes `disk.img`, from the base, and damages it.
fn damage(what: &str) -> &'static str {
    match what {
        "" => "",
        "lost-table" => {
            "truncate -s 80M disk; dd if=disk.img of=disk bs=1M seek=1 conv=notrunc status=none; rm disk.img"
        }
        // Blocks of 4 KiB: only the superblock is in the first.
        "superblock" | "only-superblock" => {
            "dd if=/dev/zero of=disk.img bs=1k seek=1 count=1 conv=notrunc status=none"
        }
        "inode" => "debugfs -w -R 'set_inode_field /etc/motd checksum 0x1234' disk.img",
        "truncated" => "truncate -s 20M disk.img",
        "one-inode" => "debugfs -w -R 'set_inode_field /etc/motd mode 0' disk.img",
        other => panic!("docs/rescue.md: no damage is named {other:?}"),
    }
}

fn rescue(what: &str, recipe: &str) -> Result<(), Skip> {
    let bench = Bench::empty();
    prepare(&bench, false);
    let path = std::env::var("PATH").unwrap_or_default();
    need("debugfs")?;
    // Copies of a superblock are in the second group.
    let size = if what == "superblock" { "256M" } else { "64M" };
    let script = format!("hectare build --from base --size {size} disk.img\n{}\n{recipe}", damage(what));
    let mut sh = need("sh")?;
    sh.args(["-ec", &script]).current_dir(bench.folder.path());
    sh.env("PATH", format!("{}:{path}", bench.local("path").display()));
    let _done = run(&mut sh).expect_success();
    for made in ["saved.tar", "new.img", "doubts.json"] {
        let is_made = || fs::metadata(bench.local(made)).is_ok_and(|metadata| metadata.len() > 0);
        assert!(!recipe.contains(made) || is_made(), "{recipe}");
    }
    // What was not damaged comes out whole; the damaged inode is that of etc/motd.
    for (directory, file, content) in [
        ("saved", "etc/motd", "hello\n"),
        ("saved-etc", "motd", "hello\n"),
        ("saved", "bin/init", "#!/bin/sh\n"),
    ] {
        let is_named = recipe.split_whitespace().any(|word| word == directory);
        if is_named && !(what == "one-inode" && file == "etc/motd") {
            assert_eq!(fs::read_to_string(bench.local(directory).join(file)).unwrap(), content, "{recipe}");
        }
    }
    Ok(())
}

#[test]
fn every_rescue_does_what_the_page_says() {
    let rescues = rescues();
    assert!(rescues.len() >= 9, "{rescues:?}");
    for (what, recipe) in rescues {
        if let Err(reason) = rescue(what, recipe) {
            skip_part!(format!("cli rescues, {what}"), reason);
        }
    }
}

#[test]
fn the_first_steps_can_be_taken() {
    let bench = Bench::empty();
    prepare(&bench, false);
    let steps = FIRST_STEPS.split("\n```sh\n").skip(1).filter_map(|text| text.split("\n```").next());
    let script = steps.collect::<Vec<_>>().join("\n");
    assert!(script.lines().count() > 15, "{script}");
    let path = std::env::var("PATH").unwrap_or_default();
    let tools = need("sh").and_then(|sh| need("e2fsck").map(|_| sh));
    let mut sh = match tools {
        Ok(sh) => sh,
        Err(reason) => skip!("cli first steps", reason),
    };
    sh.args(["-ec", &script]).current_dir(bench.folder.path());
    sh.env("PATH", format!("{}:{path}", bench.local("path").display()));
    let done = run(&mut sh).expect_success();
    assert!(done.stdout.contains("<h1>Hello</h1>"), "{}", done.report());
    assert_clean(&bench.local("site.img")).unwrap();
}
