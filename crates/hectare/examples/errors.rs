//! What errors look like, and how they pass through `io::Result`: `cargo run --example errors`.

use hectare::device::{Bytes, Device, MemoryDevice};
use hectare::{Volume, mkfs};
use std::io::{self, ErrorKind};
use std::sync::Arc;

fn read_port(volume: &Volume) -> io::Result<String> {
    // `?` makes an io::Error of it, with the same kind.
    Ok(volume.read_to_string("/etc/port")?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(16)));
    mkfs::Format::new().on_device(&*device)?;
    let volume = Volume::options().write(true).open_device(device)?;
    let error = read_port(&volume).expect_err("there is no such file");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    println!("{error}");
    let error = volume.remove_dir("/").expect_err("the root stays");
    println!("{error} (errno {})", error.errno());
    let error = Volume::open("Cargo.toml").map(drop).expect_err("it is no volume");
    println!("{error}");
    Ok(())
}
