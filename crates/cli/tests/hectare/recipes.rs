//! The recipes of docs/images.md do what the page says.

use crate::support::Bench;
use hectare_oracle::tool::{need, run};
use hectare_oracle::{Skip, assert_clean, skip_part};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/images.md");

/// The recipes by their titles.
fn recipes() -> Vec<(&'static str, &'static str)> {
    let sections = PAGE.split("\n## ").skip(1);
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
