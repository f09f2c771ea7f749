//! Lists all files of an image with their sizes: `cargo run --example list -- disk.img`.

use hectare::Volume;
use std::error::Error;
use std::path::Path;

fn list(volume: &Volume, path: &Path) -> Result<(), hectare::Error> {
    for entry in volume.read_dir(path)? {
        let entry = entry?;
        let about = entry.metadata()?;
        println!("{:>12} {:o} {}", about.len(), about.mode(), entry.path().display());
        if entry.file_type()?.is_dir() {
            list(volume, &entry.path())?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or("usage: list IMAGE")?;
    list(&Volume::open(image)?, Path::new("/"))?;
    Ok(())
}
