//! Modes, owners, times, links and extended attributes: `cargo run --example attributes`.

use hectare::device::{Bytes, Device, MemoryDevice};
use hectare::fs::{FileTimes, OpenOptions, Permissions};
use hectare::{Volume, mkfs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(Bytes::mib(16)));
    mkfs::Format::new().on_device(&*device)?;
    let volume = Volume::options().write(true).open_device(device)?;
    volume.create_dir("/bin")?;
    OpenOptions::new().write(true).create_new(true).mode(0o755).owner(0, 0).open(&volume, "/bin/tool")?;
    volume.symlink("tool", "/bin/alias")?;
    volume.set_permissions("/bin/alias", Permissions::from_mode(0o4755))?;
    volume.chown("/bin/tool", Some(7), None)?;
    volume.set_times("/bin/tool", FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(86_400)))?;
    volume.set_xattr("/bin/tool", "user.origin", "here")?;
    let found = volume.metadata("/bin/alias")?;
    assert_eq!((found.mode(), found.uid()), (0o4755, 7));
    assert_eq!(found.modified()?, UNIX_EPOCH + Duration::from_secs(86_400));
    assert_eq!(volume.read_link("/bin/alias")?, Path::new("tool"));
    assert_eq!(volume.canonicalize("/bin/../bin/alias")?, Path::new("/bin/tool"));
    assert_eq!(volume.xattr("/bin/tool", "user.origin")?.as_deref(), Some(&b"here"[..]));
    volume.close()?;
    Ok(())
}
