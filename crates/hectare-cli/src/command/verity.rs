//! `hectare verity`.

use crate::failure::{Failure, Outcome};
use crate::image::{Image, change_each, read_each};
use crate::image_path::ImagePath;
use crate::output::Output;
use crate::write_args::{Looking, Writing};
use hectare_ext4::verity::{Algorithm, Params, SALT_MAX};
use hectare_units::hex;

/// The usual size of hashed blocks, in bytes.
const BLOCK_SIZE: u32 = 4096;

/// Seal files inside an image with fs-verity, and verify sealed ones
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare verity enable disk.img:/usr/bin/init\n  \
    hectare verity digest disk.img:/usr/bin/init\n  hectare verity verify disk.img:/usr/bin/init")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Seal files: their content never changes again (the image needs the feature: tune2fs -O verity)
    Enable {
        #[command(flatten)]
        hashing: Hashing,
        /// The files: IMAGE:PATH
        #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
        places: Vec<ImagePath>,
        #[command(flatten)]
        writing: Writing,
    },
    /// Print the digests of sealed files, as fsverity does
    Digest {
        /// The files: IMAGE:PATH
        #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
        places: Vec<ImagePath>,
        #[command(flatten)]
        looking: Looking,
    },
    /// Read all of sealed files, and fail at the first block that is not as it was sealed
    Verify {
        /// The files: IMAGE:PATH
        #[arg(required = true, value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
        places: Vec<ImagePath>,
        #[command(flatten)]
        looking: Looking,
    },
}

/// How files are hashed.
#[derive(clap::Args)]
struct Hashing {
    /// The hash
    #[arg(long, value_name = "HASH", default_value = "sha256", value_parser = ["sha256", "sha512"])]
    hash_alg: String,
    /// Bytes of the blocks that are hashed, at most a block of the image [default: 4096, or the image's]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Up to 32 bytes, in hexadecimal, that each hash starts with
    #[arg(long, value_name = "HEX", default_value = "")]
    salt: String,
}

impl Hashing {
    fn params(&self, image: &Image) -> Outcome<Params> {
        let algorithm = if self.hash_alg == "sha512" { Algorithm::Sha512 } else { Algorithm::Sha256 };
        let most = image.volume().superblock().geometry().block_size.get();
        let block_size = self.block_size.unwrap_or(BLOCK_SIZE.min(most));
        let salt = bytes_of(&self.salt).filter(|salt| salt.len() <= SALT_MAX).ok_or_else(|| {
            Failure::Usage(format!(
                "--salt is up to {SALT_MAX} bytes in hexadecimal digits, not {}",
                self.salt
            ))
        })?;
        Params::new(algorithm, block_size, &salt).ok_or_else(|| {
            Failure::Usage(format!("--block-size is a power of two from 1024 to 65536, not {block_size}"))
        })
    }
}

/// The bytes of hexadecimal digits.
fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let is_digit = |digit: &u8| digit.is_ascii_hexdigit();
    digits.iter().all(is_digit).then(|| digits.chunks(2).map(pair).collect()).flatten()
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.action {
        Action::Enable { hashing, places, writing } => change_each(places, writing, |image, place| {
            let nr = image.resolve(&place.path, true)?;
            let enabled = image.volume().enable_verity(nr, hashing.params(image)?);
            enabled.map_err(|error| image.fail(&place.path, &error))
        }),
        Action::Digest { places, looking } => {
            let mut out = Output::listing();
            read_each(places, looking, |image, place| {
                let nr = image.resolve(&place.path, true)?;
                let digest = image.volume().verity_digest(nr);
                let (algorithm, digest) = digest.map_err(|error| image.fail(&place.path, &error))?;
                writeln!(out, "{algorithm}:{} {}", hex(&digest), image.show(&place.path))
            })?;
            out.finish()
        }
        Action::Verify { places, looking } => read_each(places, looking, |image, place| {
            let nr = image.resolve(&place.path, true)?;
            let verified = image.volume().verify_verity(nr);
            verified.map_err(|error| image.fail(&place.path, &error))
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // all of this is tests

    use super::*;

    #[test]
    fn salts_are_whole_bytes_of_digits() {
        assert_eq!(bytes_of("00fFa1").unwrap(), [0, 0xff, 0xa1]);
        assert!(bytes_of("").unwrap().is_empty());
        for bad in ["0", "0g", "+1", "0x11", " 1"] {
            assert!(bytes_of(bad).is_none(), "{bad}");
        }
    }
}
