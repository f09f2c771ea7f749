//! Turns a directory into an image that is just large enough: `cargo run --example build -- rootfs disk.img`.

use hectare::{Size, build, check};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, image] = &words[..] else {
        return Err("usage: build FOLDER IMAGE".into());
    };
    let built = build::Image::new().folder(folder).size(Size::Minimal).source_date_epoch(0).create(image)?;
    println!("{} bytes for {} files", built.size, built.totals.files);
    assert!(check::check(image)?.is_clean());
    Ok(())
}
