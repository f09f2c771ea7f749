//! A volume in memory, used from several threads: `cargo run --example in_memory`.

use hectare::device::{Bytes, Device, MemoryDevice};
use hectare::{Volume, mkfs};
use std::error::Error;
use std::sync::Arc;
use std::thread;

fn main() -> Result<(), Box<dyn Error>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(64)));
    mkfs::Format::new().on_device(&*device)?;
    let volume = Volume::options().write(true).open_device(Arc::clone(&device))?;
    let done: Result<Vec<()>, hectare::Error> = thread::scope(|scope| {
        let write = |number: u32| {
            let volume = &volume;
            scope.spawn(move || volume.write(format!("/file{number}"), number.to_string()))
        };
        let threads: Vec<_> = (0..8).map(write).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    done?;
    assert_eq!(volume.read_dir("/")?.count(), 9, "and lost+found");
    volume.close()?;
    Ok(())
}
