//! A directory of an image, for what works on all of it and names places inside it.

use crate::failure::Outcome;
use crate::image::Image;
use crate::image_path::ImagePath;
use crate::name::join;
use crate::write_args::Looking;
use hectare_engine::Error;
use hectare_export::Tree;
use hectare_units::InodeNr;

/// A directory of an image that is open for reading.
pub(crate) struct Directory {
    image: Image,
    path: Vec<u8>,
    inode: InodeNr,
}

impl Directory {
    /// Opens the image, and finds the directory; a symbolic link at the end of its path is followed.
    pub(crate) fn open(place: &ImagePath, looking: &Looking) -> Outcome<Self> {
        let image = Image::read(&place.image, looking)?;
        let inode = image.resolve(&place.path, true)?;
        let meta = image.volume().stat(inode).map_err(|error| image.fail(&place.path, &error))?;
        match meta.is_dir() {
            true => Ok(Self { image, path: place.path.clone(), inode }),
            false => Err(image.fail(&place.path, &Error::NotADirectory)),
        }
    }

    /// A path below the directory, for messages.
    pub(crate) fn show(&self, path: &[u8]) -> String {
        self.image.show(&join(&self.path, path))
    }

    /// The directory and everything below it; `show` is [`Self::show`].
    pub(crate) fn tree<'a>(&'a self, show: &'a dyn Fn(&[u8]) -> String) -> Tree<'a> {
        Tree { volume: self.image.volume(), top: self.inode, show }
    }
}
