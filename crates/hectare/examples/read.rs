//! Prints a file of an image: `cargo run --example read -- disk.img /etc/fstab`.

use hectare::Volume;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(image), Some(path)) = (words.next(), words.next()) else {
        return Err("usage: read IMAGE PATH".into());
    };
    let volume = Volume::open(image)?;
    let mut out = io::stdout().lock();
    for line in BufReader::new(volume.open_file(path)?).lines() {
        writeln!(out, "{}", line?)?;
    }
    Ok(())
}
