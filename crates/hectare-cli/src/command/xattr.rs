//! `hectare xattr`.

use crate::failure::Outcome;
use crate::image::Image;
use crate::image_path::ImagePath;
use crate::name::JsonName;
use crate::output::Output;
use crate::write_args::{Looking, Writing};
use hectare_device::os::OsStrExt;
use hectare_engine::XattrHow;
use hectare_units::InodeNr;
use hectare_units::hex;
use serde::Serialize;
use std::ffi::OsString;

/// Show and change extended attributes inside an image
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare xattr list disk.img:/bin/ping\n  \
    hectare xattr set user.origin 'the builder' disk.img:/etc/motd\n  \
    hectare xattr get user.origin disk.img:/etc/motd")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Print an attribute's value raw, or in hexadecimal
    Get {
        /// The full name, such as user.origin
        name: OsString,
        /// Print hexadecimal digits
        #[arg(short = 'x', long)]
        hex: bool,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        looking: Looking,
    },
    /// Set an attribute
    Set {
        /// The full name, such as user.origin
        name: OsString,
        /// The value: text, or bytes as 0x and hexadecimal digits
        value: OsString,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        writing: Writing,
    },
    /// List the attributes' names, or with --json names and values
    #[command(visible_alias = "ls")]
    List {
        /// Print JSON: name and value (in hexadecimal) of each
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        looking: Looking,
    },
    /// Remove an attribute
    Rm {
        /// The full name, such as user.origin
        name: OsString,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        writing: Writing,
    },
}

#[derive(clap::Args)]
struct Target {
    /// Operate on a symbolic link itself, not its target
    #[arg(short = 'P', long)]
    no_dereference: bool,
    /// The file: IMAGE:PATH
    #[arg(value_name = "IMAGE:PATH", value_parser = ImagePath::parser())]
    place: ImagePath,
}

#[derive(Serialize)]
struct Json {
    name: JsonName,
    value_hex: String,
}

impl Target {
    fn read<T>(
        &self,
        looking: &Looking,
        look: impl FnOnce(&Image, InodeNr) -> hectare_engine::Result<T>,
    ) -> Outcome<T> {
        let image = Image::read(&self.place.image, looking)?;
        let nr = image.resolve(&self.place.path, !self.no_dereference)?;
        look(&image, nr).map_err(|error| image.fail(&self.place.path, &error))
    }

    fn change(
        &self,
        writing: &Writing,
        change: impl FnOnce(&Image, InodeNr) -> hectare_engine::Result<()>,
    ) -> Outcome {
        Image::change(&self.place.image, writing, |image| {
            let nr = image.resolve(&self.place.path, !self.no_dereference)?;
            change(image, nr).map_err(|error| image.fail(&self.place.path, &error))
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.action {
        Action::Get { name, hex: digits, target, looking } => {
            let value = target.read(looking, |image, nr| image.volume().get_xattr(nr, name.as_bytes()))?;
            let mut out = Output::listing();
            if *digits {
                writeln!(out, "0x{}", hex(&value))?;
            } else {
                out.bytes(&value)?;
            }
            out.finish()
        }
        Action::Set { name, value, target, writing } => {
            let value = bytes_of(value.as_bytes());
            target.change(writing, |image, nr| {
                image.volume().set_xattr(nr, name.as_bytes(), &value, XattrHow::default())
            })
        }
        Action::List { json, target, looking } => list(*json, target, looking),
        Action::Rm { name, target, writing } => {
            target.change(writing, |image, nr| image.volume().remove_xattr(nr, name.as_bytes()))
        }
    }
}

fn list(json: bool, target: &Target, looking: &Looking) -> Outcome {
    let mut out = Output::listing();
    if !json {
        let mut names = target.read(looking, |image, nr| image.volume().list_xattrs(nr))?;
        names.sort();
        for name in names {
            out.name(&name)?;
            out.bytes(b"\n")?;
        }
        return out.finish();
    }
    let mut attributes = target.read(looking, |image, nr| image.volume().xattrs(nr))?;
    attributes.sort();
    let json =
        attributes.into_iter().map(|(name, value)| Json { name: JsonName(name), value_hex: hex(&value) });
    out.json(&json.collect::<Vec<_>>())
}

/// Text, or `0x` and an even number of hexadecimal digits.
fn bytes_of(text: &[u8]) -> Vec<u8> {
    let digits = text.strip_prefix(b"0x").filter(|digits| digits.len() % 2 == 0);
    let pair =
        |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let decoded = digits.and_then(|digits| digits.chunks(2).map(pair).collect::<Option<Vec<u8>>>());
    decoded.unwrap_or_else(|| text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_text_or_hexadecimal() {
        assert_eq!(bytes_of(b"0x00ff"), [0, 255]);
        assert_eq!(bytes_of(b"0x0"), b"0x0");
        assert_eq!(bytes_of(b"0xzz"), b"0xzz");
        assert_eq!(bytes_of(b"plain"), b"plain");
    }
}
