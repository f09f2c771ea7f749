//! Is a volume sound? `cargo run --example check -- disk.img`.

use hectare::check;
use std::error::Error;
use std::process::ExitCode;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or("usage: check IMAGE")?;
    let report = check::check(image)?;
    for problem in &report.problems {
        println!("{problem}");
    }
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(4) })
}
