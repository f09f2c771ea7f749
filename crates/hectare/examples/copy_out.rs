//! Copies a file out of an image: `cargo run --example copy_out -- disk.img /etc/passwd passwd`.

use hectare::Volume;
use std::error::Error;
use std::fs::File;
use std::io;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, from, to] = &words[..] else {
        return Err("usage: copy_out IMAGE FROM TO".into());
    };
    let volume = Volume::open(image)?;
    let bytes = io::copy(&mut volume.open_file(from)?, &mut File::create_new(to)?)?;
    println!("{bytes} bytes");
    Ok(())
}
