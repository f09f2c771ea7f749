//! Makes a volume, fills it, and reads it back: `cargo run --example write -- new.img`.

use hectare::{Volume, mkfs};
use std::error::Error;
use std::io::{Read, Seek, SeekFrom, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or("usage: write NEW-IMAGE")?;
    mkfs::Format::new().label("example").create(&image, 32 << 20)?;
    let volume = Volume::options().write(true).owner(1000, 1000).open(&image)?;
    volume.create_dir_all("/var/log")?;
    let mut log = volume.create("/var/log/app")?;
    for line in 0..1000 {
        writeln!(log, "line {line}")?;
    }
    log.sync_all()?;
    let mut log = volume.open_file("/var/log/app")?;
    log.seek(SeekFrom::End(-9))?;
    let mut end = String::new();
    log.read_to_string(&mut end)?;
    assert_eq!(end, "line 999\n");
    volume.close()?;
    Ok(())
}
