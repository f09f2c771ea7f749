//! `hectare serve`.

use super::build::content::{ContentArguments, read};
use crate::failure::{Failure, Outcome, tell};
use crate::image_device::{Hold, refuse_wrapped, whole_device};
use crate::name::shown;
use crate::os::Ending;
use crate::output::Output;
use crate::partition_args::Part;
use crate::remote::{self, server_tls};
use crate::reproducible::epoch;
use hectare_device::Device;
use hectare_device::os::OsStrExt;
use hectare_nbd::{Address, Export, Listener, PORT, Place, Server};
use hectare_populate::{Image, reproducible};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Export an image, a device or a partition by NBD
///
/// Serves the bytes to any NBD client (qemu, the kernel's nbd-client, nbdcopy, or hectare itself) until it is
/// ended by a signal (INT, TERM or HUP; not by one that was ignored from the start, as by nohup); then it
/// answers what was requested, and makes everything durable. Clients read and write, trim and zero, flush,
/// and ask where holes are. The image is locked as by any command that writes it (with --read-only: reads
/// it). A socket is made for its owner alone; a port must be on loopback, as the protocol has no password,
/// unless --public is given. With --tls-cert and --tls-key all connections are encrypted, and with --tls-ca
/// clients need a certificate of that authority.
///
/// With --build an image is served that was never written: it is planned as by `hectare build` with the same
/// options, its metadata lies in memory, and files are read from the sources when clients ask for them. It is
/// for reading only. A source that changes meanwhile is an error to the client, and is named here.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hectare serve disk.img --nbd unix:/run/disk.sock\n  hectare ls \
                  'nbd+unix:///?socket=/run/disk.sock:/etc'\n  hectare serve disk.img -r --partition 2\n  \
                  hectare serve --build --from rootfs/ --nbd unix:/run/disk.sock")]
pub(crate) struct Arguments {
    /// The image, block device or export
    #[arg(required_unless_present = "build", conflicts_with = "build")]
    image: Option<PathBuf>,
    /// Serve the image that `hectare build` would make, without writing it
    #[arg(long, requires = "from")]
    build: bool,
    /// With --build: a source, as for `hectare build`
    #[arg(long, requires = "build", value_name = "SOURCE")]
    from: Vec<OsString>,
    #[command(flatten)]
    content: ContentArguments,
    /// Listen there: unix:PATH, HOST or HOST:PORT [default: 127.0.0.1:10809]
    #[arg(long, value_name = "PLACE", value_parser = parse_place)]
    nbd: Option<Place>,
    /// The name of the export; clients that name none get it as well
    #[arg(long, value_name = "NAME", default_value = "")]
    export: String,
    /// Refuse changes
    #[arg(short, long)]
    read_only: bool,
    /// Listen on an address that others can reach
    #[arg(long)]
    public: bool,
    #[command(flatten)]
    part: Part,
}

/// Parses where to listen.
fn parse_place(text: &str) -> Result<Place, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
        return Ok(Place::Unix(absolute));
    }
    let address = Address::parse(format!("nbd://{text}").as_bytes()).map_err(|error| error.to_string())?;
    if text.contains('/') {
        return Err("write unix:PATH, HOST or HOST:PORT".to_owned());
    }
    Ok(address.place)
}

/// What is served: its bytes, and how they are called.
struct Served {
    device: Arc<dyn Device>,
    name: String,
    description: String,
    read_only: bool,
}

/// The image that is there.
fn there(arguments: &Arguments, image: &Path) -> Outcome<Served> {
    if arguments.content.is_given() {
        return Err(Failure::Usage("options of an image to be built need --build".to_owned()));
    }
    let name = arguments.part.shown(&shown(image.as_os_str().as_bytes()));
    let hold = if arguments.read_only { Hold::Writers } else { Hold::Everybody };
    // The disk as a whole, also if there is only one volume on it. What is passed on is not kept here: others may
    // have the same export.
    let disk = match remote::is_address(image) {
        true => remote::open_shared(image, hold == Hold::Everybody)?,
        false => {
            let disk = whole_device(image, arguments.part, hold)?;
            refuse_wrapped(&*disk, &name)?;
            disk
        }
    };
    let device = arguments.part.of(disk)?;
    Ok(Served { device, name, description: description(image.file_name()), read_only: arguments.read_only })
}

/// The image that is planned, and not written.
fn planned(arguments: &Arguments) -> Outcome<Served> {
    if !arguments.part.is_whole() {
        return Err(Failure::Usage("--partition and --offset are for a disk that is there".to_owned()));
    }
    let content = &arguments.content;
    let format = content.format_options()?;
    let epoch = epoch()?;
    let tree = Arc::new(read(&arguments.from, content, epoch, None)?);
    let format = match epoch {
        Some(epoch) => reproducible(&format, epoch, &tree),
        None => format,
    };
    let failed = |error: hectare_populate::ImageError| Failure::Line(error.to_string());
    let image = Image::plan(&tree, &format, content.size()?, true).map_err(failed)?;
    let device = image.on_demand(&tree, content.threads(), Box::new(|line| tell(line))).map_err(failed)?;
    let name = arguments.from.iter().map(|from| shown(from.as_bytes())).collect::<Vec<_>>().join(", ");
    let description = "planned image".to_owned();
    Ok(Served { device: Arc::new(device), name: format!("an image of {name}"), description, read_only: true })
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let tls = server_tls()?;
    let Served { device, name, description, read_only } = match &arguments.image {
        Some(image) => there(arguments, image)?,
        None => planned(arguments)?,
    };
    let fail = |error: &dyn std::fmt::Display| Failure::of(&name, error);
    let export = Export { device, name: arguments.export.clone().into_bytes(), description, read_only };
    let place = arguments.nbd.clone().unwrap_or_else(|| Place::Tcp("127.0.0.1".to_owned(), PORT));
    let at = |error: hectare_nbd::Error| Failure::of(format_args!("{name} at {}", place_text(&place)), error);
    let listener = Listener::bind(&place, arguments.public).map_err(at)?;
    let address =
        Address { export: export.name.clone(), ..address_of(&listener, tls.is_some()).map_err(at)? };
    // Before the address is printed: a signal that comes from then on ends it as it should.
    let ending = Ending::new().map_err(|error| fail(&error))?;
    let server = Server::new(export, listener).map_err(at)?;
    let server = match tls {
        Some(tls) => server.with_tls(tls),
        None => server,
    };
    let stopper = server.stopper();
    std::thread::spawn(move || {
        if ending.wait() {
            stopper.stop();
        }
    });
    let mut out = Output::report();
    writeln!(out, "serving {name} at {address}")?;
    out.finish()?;
    server.run().map_err(|error| Failure::Line(error.to_string()))
}

/// Where clients find a server.
fn address_of(listener: &Listener, has_tls: bool) -> hectare_nbd::Result<Address> {
    let place = listener.place()?;
    let host = match &place {
        Place::Tcp(host, _) => host.clone(),
        Place::Unix(_) => "localhost".to_owned(),
    };
    Ok(Address { place, export: Vec::new(), tls: has_tls.then_some(host) })
}

/// What lists of exports show: the name of the file, without where it lies.
fn description(file: Option<&OsStr>) -> String {
    file.map(|file| shown(file.as_bytes())).unwrap_or_default()
}

fn place_text(place: &Place) -> String {
    match place {
        Place::Unix(path) => format!("unix:{}", shown(path.as_os_str().as_bytes())),
        Place::Tcp(host, port) => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sockets_or_ports() {
        assert_eq!(parse_place("unix:/run/s").unwrap(), Place::Unix("/run/s".into()));
        assert_eq!(parse_place("127.0.0.1:7").unwrap(), Place::Tcp("127.0.0.1".to_owned(), 7));
        assert_eq!(parse_place("[::1]:7").unwrap(), Place::Tcp("::1".to_owned(), 7));
        assert_eq!(parse_place("localhost").unwrap(), Place::Tcp("localhost".to_owned(), PORT));
        assert!(
            parse_place("/run/s").is_err() && parse_place("h:99999").is_err() && parse_place("h/x").is_err()
        );
    }
}
