//! The picture of the live page: `cargo benchmark live [--seconds N]`.
//!
//! A volume is made, mounted with its metrics served, and worked on by several threads ([`load`]) for two
//! minutes, which is the page's time range; then Chromium draws the page: `docs/live.png`, which the README
//! shows, and `out/live-dark.png`. In the end `e2fsck -fn` checks the volume.
//!
//! Needs `/dev/fuse`, root or `fusermount3`, and Chromium. The numbers shown are those of a build for tests
//! on an arbitrary machine: a picture, and no benchmark.

mod load;

use hectare_oracle::{assert_clean, browser};
use hectare_tools::built::built;
use hectare_tools::ended::Exit;
use hectare_tools::install::install;
use hectare_tools::job_folder::{Scratch, with_path};
use hectare_tools::steps::{quiet, root, seconds, shown, target_folder, understood, went_well};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const USAGE: &str = "usage: cargo benchmark live [--seconds N]";
/// The volume's size; the load keeps less than half of it.
const SIZE: &str = "1G";
/// The page's time range, and a little more.
const TIME: Duration = Duration::from_secs(125);
const PICTURE: &str = "docs/live.png";
const DARK: &str = "out/live-dark.png";

/// Runs the job with its arguments; it ends well if there is a picture now.
pub(crate) fn run(words: &[&str]) -> Exit {
    let time = match words {
        [] => Ok(TIME),
        ["--seconds", number] => seconds("--seconds", number),
        _ => Err("only a number of seconds can be given".to_owned()),
    };
    let Some(time) = understood(time, USAGE) else { return Exit::Usage };
    install(&[("chromium", "chromium"), ("fusermount3", "fuse3")]).print();
    if built(false).is_none() {
        return Exit::NotHere;
    }
    went_well("live", draw(time)).into()
}

fn draw(time: Duration) -> Result<(), String> {
    let parent = Path::new("/dev/shm");
    let scratch = Scratch::new(if parent.is_dir() { parent } else { Path::new("/tmp") }, "hectare")?;
    let mount = Mount::new(&scratch)?;
    let url = mount.url()?;
    println!("\n{} is worked on for {} seconds; look: {url}", mount.dir.display(), time.as_secs());
    load::during(&mount.dir, time, || pictures(&url))?;
    mount.judge()
}

fn pictures(url: &str) -> Result<(), String> {
    let out = root().join("out");
    fs::create_dir_all(&out).map_err(with_path(&out))?;
    for (dark, file) in [(false, PICTURE), (true, DARK)] {
        browser::picture(url, dark, &root().join(file)).map_err(|skip| skip.0)?;
        println!("drawn: {file}");
    }
    Ok(())
}

/// A mounted volume; unmounted when dropped.
struct Mount {
    image: PathBuf,
    dir: PathBuf,
}

impl Mount {
    fn new(scratch: &Scratch) -> Result<Self, String> {
        let mount = Self { image: scratch.path().join("data.img"), dir: scratch.path().join("data") };
        fs::create_dir(&mount.dir).map_err(with_path(&mount.dir))?;
        let made = shown(hectare().args(["mkfs", "-L", "data"]).arg(&mount.image).arg(SIZE));
        let mounted =
            made && shown(hectare().args(["mount", "--metrics", "0"]).args([&mount.image, &mount.dir]));
        if mounted { Ok(mount) } else { Err("nothing is mounted".into()) }
    }

    /// Where its page is served.
    fn url(&self) -> Result<String, String> {
        let told =
            quiet(hectare().args(["stats", "--json"]).arg(&self.dir)).ok_or("the mount does not tell")?;
        let told: serde_json::Value =
            serde_json::from_slice(&told.stdout).map_err(|error| error.to_string())?;
        told["metrics"].as_str().map(str::to_owned).ok_or_else(|| "no figures are served".into())
    }

    /// Unmounts it, and checks the volume.
    fn judge(self) -> Result<(), String> {
        if !shown(hectare().arg("umount").arg(&self.dir)) {
            return Err("it is still mounted".into());
        }
        assert_clean(&self.image).map_err(|skip| skip.0)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Unless it was unmounted before.
        let _ = quiet(hectare().arg("umount").arg(&self.dir));
    }
}

fn hectare() -> Command {
    let mut command = Command::new(target_folder().join("debug/hectare"));
    command.current_dir(root());
    command
}
