//! Headless Chromium, to test a page: the document after its scripts have run, and a picture of it.
//!
//! Each run is a browser of its own with an empty profile, which contacts nothing but the page. Time is
//! virtual: it stands still while something is loading and otherwise runs as fast as it can, so that a page
//! that polls each second has polled several times after `BUDGET` of it.

use crate::tool::{Said, need, run};
use crate::{Skip, scratch};
use std::path::Path;
use std::process::Command;

/// The browser's name, and the seconds after which it is stopped.
const BROWSER: &str = "chromium";
const PATIENCE: &str = "120";
/// How long the page's scripts run, in milliseconds of their own time.
const BUDGET: &str = "--virtual-time-budget=4500";
/// A headless, quiet browser.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// The document at an address after its scripts have run for a while, as HTML.
///
/// # Errors
/// A [`Skip`] if there is no Chromium.
///
/// # Panics
/// If the browser fails, with its output.
pub fn document(url: &str) -> Result<String, Skip> {
    Ok(browse(&["--window-size=1280,800", "--dump-dom"], url)?.stdout)
}

/// A picture of it, 1280 by 800, at two device pixels per pixel; light or dark.
///
/// # Errors
/// A [`Skip`] if there is no Chromium.
///
/// # Panics
/// If the browser fails, with its output.
pub fn picture(url: &str, dark: bool, file: &Path) -> Result<(), Skip> {
    let scheme = format!("--blink-settings=preferredColorScheme={}", u8::from(!dark));
    let file = format!("--screenshot={}", file.display());
    browse(&["--window-size=1280,800", "--force-device-scale-factor=2", &scheme, &file], url)?;
    Ok(())
}

fn browse(words: &[&str], url: &str) -> Result<Said, Skip> {
    need(BROWSER)?;
    let profile = scratch::fresh("browser");
    let mut command: Command = need("timeout")?;
    command.arg(PATIENCE).arg(BROWSER).args(FLAGS).arg(BUDGET).args(words);
    command.arg(format!("--user-data-dir={}", profile.display())).arg(url);
    let said = run(&mut command).expect_success();
    let _ = std::fs::remove_dir_all(&profile); // the sweep comes later
    Ok(said)
}
