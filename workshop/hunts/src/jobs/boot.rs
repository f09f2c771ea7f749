//! Boots a Debian that `hectare build` made of a container image: `cargo hunt boot [--kernel FILE] [--uefi]
//! [--keep]`.
//!
//! A minimal Debian (mmdebstrap) becomes an OCI image (umoci), that an ext4 image, and that the root disk of
//! a virtual machine (qemu, with KVM where it may be used). The kernel is the one that was named, the newest
//! in /boot, or Debian's, fetched with apt-get and unpacked. A shell is its first process; it has to answer
//! on the serial line, write a file and power off. Then e2fsck finds the image clean, and the file is there.
//!
//! With `--uefi` the root is a partition of a disk that `hectare disk build` makes, with a GPT and an EFI
//! system partition; OVMF starts systemd-boot from it, and that the kernel, which finds the root by its name
//! in the table.
//!
//! What is missing (qemu, a kernel, mmdebstrap, umoci, root, Debian's mirror) is the reason that it can't run
//! here.

use hectare_oracle::tool::{self, is_root};
use hectare_tools::built::built;
use hectare_tools::ended::{Ended, Exit};
use hectare_tools::job_folder::{Scratch, with_path};
use hectare_tools::steps::{shown, understood};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: cargo hunt boot [--kernel FILE] [--uefi] [--keep]";
/// The firmware for `--uefi`, and the packages of it and of what it starts.
const FIRMWARE: [&str; 2] = ["/usr/share/ovmf/OVMF.fd", "/usr/share/qemu/OVMF.fd"];
const LOADER_PACKAGE: &str = "systemd-boot-efi";
const LOADER: &str = "usr/lib/systemd/boot/efi/systemd-bootx64.efi";
/// `no_timer_check`: on a busy host a timer of an emulated machine comes late, which the kernel takes for a
/// broken one.
const KERNEL_WORDS: &str = "console=ttyS0 rw init=/bin/sh panic=-1 no_timer_check";
/// The disk for `--uefi`.
const DISK: &str = r#"
[[partition]]
name = "esp"
type = "esp"
format = "vfat"
size = "128M"
from = "esp"
[[partition]]
name = "root"
type = "root-x86-64"
format = "ext4"
free = "64M"
from = "oci:oci:v1"
"#;
/// Where mmdebstrap takes packages from.
const MIRROR: &str = "deb.debian.org";
/// What runs the machine, the first that can: KVM with the host's processor, or qemu's own, which takes a
/// minute. And how long each may take to the prompt, and from there to the machine's end. KVM may be there
/// and not work: in a virtual machine it is a guest's.
const ACCELERATORS: [(&str, Duration); 2] =
    [("kvm", Duration::from_secs(30)), ("tcg", Duration::from_secs(300))];
/// Debian's kernel for virtual machines: NVMe, ext4 and the serial line are built into it, so that it needs
/// no modules.
const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";
/// Typed at the prompt.
const COMMANDS: &str = "echo answer-$((6*7)); cat /etc/debian_version; dpkg --version | head -1
mount -t proc proc /proc; dpkg -V dpkg && echo veri$((1))fied
echo written > /written; sync; mount -o remount,ro / && echo o > /proc/sysrq-trigger\n";
/// What the machine has to say then, beside Debian's version.
const ANSWERS: [&str; 3] = ["answer-42", "package management program", "veri1fied"];

#[derive(Clone, PartialEq, Debug, Default)]
struct Options {
    kernel: Option<PathBuf>,
    uefi: bool,
    keep: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--kernel" => {
                    options.kernel = Some(words.next().ok_or("--kernel needs a file")?.into());
                }
                "--uefi" => options.uefi = true,
                "--keep" => options.keep = true,
                other => return Err(format!("{other} is no option")),
            }
        }
        Ok(options)
    }
}

/// Runs the job with its arguments; it ends well if the machine answered.
pub(crate) fn run(words: &[&str]) -> Exit {
    let Some(options) = understood(Options::parse(words), USAGE) else { return Exit::Usage };
    Exit::of("boot", boot(&options).inspect(|()| println!("boot: 1 passed, 0 failed")))
}

fn need(name: &str) -> Result<Command, Ended> {
    Ok(tool::need(name)?)
}

fn boot(options: &Options) -> Result<(), Ended> {
    if !is_root() {
        return Err(Ended::Skipped("a Debian with its owners and devices needs root".to_owned()));
    }
    for name in ["qemu-system-x86_64", "mmdebstrap", "umoci", "e2fsck"] {
        need(name)?;
    }
    let folder = Scratch::new(Path::new("/var/tmp"), "hectare-boot")?;
    let kernel = kernel(options, folder.path())?;
    let hectare = built(false).ok_or_else(|| Ended::Skipped("hectare can't be built".to_owned()))?;
    let image = make(&hectare, folder.path(), options.uefi)?;
    let start = if options.uefi { uefi(&hectare, folder.path(), &kernel)? } else { Start::Kernel(kernel) };
    let said = talked(&start, &image)?;
    let missing: Vec<_> = ANSWERS.iter().filter(|answer| !said.contains(**answer)).collect();
    if !missing.is_empty() {
        return Err(format!("the shell did not say {missing:?}; it said:\n{said}").into());
    }
    let volume = if options.uefi { folder.path().join("volume.img") } else { image.clone() };
    if options.uefi {
        let mut convert = Command::new(&hectare);
        checked(convert.args(["convert", "--partition", "root"]).arg(&image).arg(&volume))?;
    }
    checked(need("e2fsck")?.arg("-fn").arg(&volume))?;
    let mut cat = Command::new(&hectare);
    let written = cat.arg("cat").arg(format!("{}:/written", volume.display())).output();
    if !written.is_ok_and(|output| output.stdout == b"written\n") {
        return Err("the file that the machine wrote is not in the image".to_owned().into());
    }
    if options.keep {
        let kept = Path::new("/var/tmp/hectare-boot.img");
        fs::rename(&image, kept).map_err(with_path(kept))?;
        println!("the image stays: {}", kept.display());
    }
    Ok(())
}

/// What the machine starts.
enum Start {
    Kernel(PathBuf),
    Firmware(PathBuf),
}

/// Makes the disk for UEFI: systemd-boot and the kernel, and the root that is there as an OCI image.
fn uefi(hectare: &Path, folder: &Path, kernel: &Path) -> Result<Start, Ended> {
    let skipped = |reason: String| Ended::Skipped(reason);
    let firmware = FIRMWARE.iter().map(Path::new).find(|file| file.is_file());
    let firmware =
        firmware.ok_or_else(|| skipped("the firmware OVMF is not installed (package ovmf)".to_owned()))?;
    let esp = folder.join("esp");
    let (boot, entries) = (esp.join("EFI/BOOT"), esp.join("loader/entries"));
    for new in [&boot, &entries] {
        fs::create_dir_all(new).map_err(with_path(new))?;
    }
    let loader = match Path::new("/").join(LOADER) {
        there if there.is_file() => there,
        _ => fetched(LOADER_PACKAGE, folder)
            .ok_or_else(|| skipped(format!("{LOADER_PACKAGE} is not installed, and can't be fetched")))?
            .join(LOADER),
    };
    let entry = format!("title Debian\nlinux /vmlinuz\noptions root=PARTLABEL=root {KERNEL_WORDS}\n");
    fs::copy(&loader, boot.join("BOOTX64.EFI")).map_err(with_path(&loader))?;
    fs::copy(kernel, esp.join("vmlinuz")).map_err(with_path(kernel))?;
    fs::write(esp.join("loader/loader.conf"), "timeout 0\n").map_err(with_path(&esp))?;
    fs::write(entries.join("debian.conf"), entry).map_err(with_path(&entries))?;
    let spec = folder.join("disk.toml");
    fs::write(&spec, DISK).map_err(with_path(&spec))?;
    checked(Command::new(hectare).args(["disk", "build"]).arg(&spec).arg("-o").arg(folder.join("root.img")))?;
    Ok(Start::Firmware(firmware.to_owned()))
}

/// A package, fetched and unpacked in a directory of its own.
fn fetched(package: &str, folder: &Path) -> Option<PathBuf> {
    if std::env::var("HECTARE_NO_INSTALL").is_ok_and(|value| value == "1") {
        return None;
    }
    let place = folder.join(package);
    fs::create_dir_all(&place).ok()?;
    let done = shown(need("apt-get").ok()?.args(["-q", "download", package]).current_dir(&place));
    let archive = file_in(&place, |name| name.ends_with(".deb")).filter(|_| done)?;
    shown(need("dpkg-deb").ok()?.arg("-x").arg(archive).arg(&place)).then_some(place)
}

/// What the shell said, on the first accelerator on which it does.
fn talked(start: &Start, image: &Path) -> Result<String, Ended> {
    let mut heard = String::new();
    for (accelerator, patience) in ACCELERATORS {
        if accelerator == "kvm" && !Path::new("/dev/kvm").exists() {
            continue;
        }
        let mut machine = Machine::start(start, image, accelerator)?;
        if machine.comes_to_prompt(patience) {
            return machine.talk(patience);
        }
        println!("no prompt came with {accelerator}");
        heard = machine.text(0);
    }
    Err(format!("no prompt came; it said:\n{heard}").into())
}

/// Runs a step visibly; it has to succeed.
fn checked(command: &mut Command) -> Result<(), Ended> {
    if shown(command) { Ok(()) } else { Err(format!("{} failed", tool::line_of(command)).into()) }
}

/// The kernel to boot.
fn kernel(options: &Options, folder: &Path) -> Result<PathBuf, Ended> {
    if let Some(kernel) = &options.kernel {
        return match kernel.is_file() {
            true => Ok(kernel.clone()),
            false => Err(format!("{}: there is no such kernel", kernel.display()).into()),
        };
    }
    if let Some(kernel) = newest_kernel(Path::new("/boot")) {
        return Ok(kernel);
    }
    let reason = || Ended::Skipped(format!("no kernel in /boot, and {KERNEL_PACKAGE} can't be fetched"));
    if std::env::var("HECTARE_NO_INSTALL").is_ok_and(|value| value == "1") {
        return Err(reason());
    }
    let depends = need("apt-cache")?.args(["depends", KERNEL_PACKAGE]).output().map_err(|_| reason())?;
    let depends = String::from_utf8_lossy(&depends.stdout).into_owned();
    let package = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image"));
    let package = format!("linux-image{}", package.ok_or_else(reason)?);
    let unpacked = fetched(&package, folder).ok_or_else(reason)?;
    newest_kernel(&unpacked.join("boot")).ok_or_else(reason)
}

/// The kernel of a directory with the highest version.
fn newest_kernel(folder: &Path) -> Option<PathBuf> {
    file_in(folder, |name| name.starts_with("vmlinuz-"))
}

fn file_in(folder: &Path, is_it: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let names = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    names
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&is_it))
        .max_by_key(|path| numbers(path))
}

/// The numbers in a name, by which versions compare.
fn numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// Makes the image: a minimal Debian, as an OCI image, as ext4 if that is not for a part of a disk.
fn make(hectare: &Path, folder: &Path, is_part: bool) -> Result<PathBuf, Ended> {
    let (tar, root) = (folder.join("minbase.tar"), folder.join("root"));
    fs::create_dir(&root).map_err(with_path(&root))?;
    let mut mmdebstrap = need("mmdebstrap")?;
    mmdebstrap.args(["--quiet", "--variant=minbase", "--mode=root", "bookworm"]).arg(&tar);
    checked(&mut mmdebstrap).map_err(|failed| match can_reach(MIRROR) {
        true => failed,
        false => Ended::Skipped(format!("{MIRROR}, which mmdebstrap needs, can't be reached")),
    })?;
    checked(need("tar")?.args(["--numeric-owner", "-xpf"]).arg(&tar).arg("-C").arg(&root))?;
    let umoci = |words: &[&str]| {
        need("umoci").map(|mut umoci| {
            umoci.args(words).current_dir(folder);
            umoci
        })
    };
    checked(&mut umoci(&["init", "--layout", "oci"])?)?;
    checked(&mut umoci(&["new", "--image", "oci:v1"])?)?;
    checked(&mut umoci(&["insert", "--image", "oci:v1", "root", "/"])?)?;
    let image = folder.join("root.img");
    if is_part {
        return Ok(image);
    }
    let source = format!("oci:{}:v1", folder.join("oci").display());
    checked(Command::new(hectare).args(["build", "--free", "64M", "--from", &source]).arg(&image))?;
    Ok(image)
}

/// Whether a server answers that mmdebstrap takes packages from.
fn can_reach(server: &str) -> bool {
    let addresses = (server, 80).to_socket_addrs().into_iter().flatten();
    addresses.into_iter().any(|address| TcpStream::connect_timeout(&address, Duration::from_secs(10)).is_ok())
}

/// A virtual machine whose serial line is ours.
struct Machine {
    qemu: Child,
    /// What it says, in pieces.
    said: Receiver<Vec<u8>>,
    heard: Vec<u8>,
}

impl Machine {
    fn start(start: &Start, image: &Path, accelerator: &str) -> Result<Self, Ended> {
        let mut qemu = need("qemu-system-x86_64")?;
        qemu.args(["-accel", accelerator, "-cpu", "max", "-m", "512"]);
        qemu.args(["-nographic", "-no-reboot", "-nodefaults"]);
        qemu.args(["-serial", "stdio", "-device", "nvme,drive=root,serial=hectare"]);
        match start {
            Start::Kernel(kernel) => {
                qemu.arg("-kernel").arg(kernel);
                qemu.args(["-append", &format!("root=/dev/nvme0n1 {KERNEL_WORDS}")]);
            }
            Start::Firmware(firmware) => {
                qemu.arg("-bios").arg(firmware);
            }
        }
        qemu.arg("-drive").arg(format!("file={},format=raw,if=none,id=root", image.display()));
        println!("\n$ {}", tool::line_of(&qemu));
        let started = qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut qemu = started.map_err(|error| Ended::Failed(format!("qemu can't be started: {error}")))?;
        let mut out = qemu.stdout.take().ok_or("qemu has no output".to_owned())?;
        let (sender, said) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = out.read(&mut buffer) {
                let _ = std::io::stdout().write_all(&buffer[..len]); // to be watched, if anybody does
                if sender.send(buffer[..len].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { qemu, said, heard: Vec::new() })
    }

    /// Whether the shell asks for a command.
    fn comes_to_prompt(&mut self, patience: Duration) -> bool {
        self.listen(patience, |heard| heard.ends_with(b"# "))
    }

    /// Types the commands, and waits for the machine's end; what it said meanwhile.
    fn talk(mut self, patience: Duration) -> Result<String, Ended> {
        let before = self.heard.len();
        let mut input = self.qemu.stdin.take().ok_or("qemu has no input".to_owned())?;
        input.write_all(COMMANDS.as_bytes()).map_err(|error| format!("the serial line: {error}"))?;
        self.listen(patience, |_| false);
        let said = self.text(before);
        // Its output ends with it, and not before.
        match self.said.try_recv() {
            Err(TryRecvError::Disconnected) => Ok(said),
            _ => Err(format!("it did not power off; it said:\n{said}").into()),
        }
    }

    /// Takes in what is said until that is enough; false if the machine ended before, or took too long.
    fn listen(&mut self, patience: Duration, is_enough: impl Fn(&[u8]) -> bool) -> bool {
        let end = Instant::now() + patience;
        while let Ok(piece) = self.said.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.heard.extend(piece);
            if is_enough(&self.heard) {
                return true;
            }
        }
        false
    }

    fn text(&self, from: usize) -> String {
        String::from_utf8_lossy(&self.heard[from..]).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let options = Options::parse(&["--kernel", "/k", "--uefi", "--keep"]).unwrap();
        assert_eq!(options, Options { kernel: Some("/k".into()), uefi: true, keep: true });
        for wrong in [&["--kernel"][..], &["fast"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_newest_kernel_of_a_directory_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest_kernel(folder.path()), None);
        for name in ["vmlinuz-6.1.0-9", "vmlinuz-6.1.0-50", "vmlinuz-5.10.0-60", "initrd.img-6.1.0-51"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(newest_kernel(folder.path()), Some(folder.path().join("vmlinuz-6.1.0-50")));
    }

    #[test]
    fn the_echo_of_the_commands_is_no_answer() {
        assert!(ANSWERS.iter().all(|answer| !COMMANDS.contains(answer)));
        assert!(COMMANDS.ends_with('\n'));
    }
}
