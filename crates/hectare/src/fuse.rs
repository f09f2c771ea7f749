//! Mounts of volumes by FUSE: what is behind `hectare mount`.
//!
//! [`serve`] answers the kernel's requests with a volume of [`inode`](crate::inode) until it is unmounted.
//! [`Adapter`] does without a mount, for servers of other kinds.

pub use hectare_fuse::{
    Adapter, Atime, BadOption, Behaviour, Image, MountOptions, MountedImage, ServeError, Unmounted, client,
    mounted_image, mounted_on, serve, unmount,
};
