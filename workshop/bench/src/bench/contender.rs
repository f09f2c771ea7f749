//! One run of one contender: an image of its own, the program, and an inspection of the result.

use super::figures::{Figures, Left, find_run};
use super::plan::{Aged, Section, Side, Storage, Volume};
use hectare_device::FileOptions;
use hectare_engine::{Error, OpenOptions, Volume as Opened};
use hectare_lab::Through;
use hectare_lab::fragmentation::{FileExtents, Fragmentation};
use hectare_oracle::mount::{Access, KernelMount, MountError};
use hectare_oracle::tool::line_of;
use hectare_oracle::{e2fsck, tool};
use hectare_tools::job_folder::{Scratch, with_path};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

const NAME: &str = "hectare-bench";
/// The same for all volumes, so that the same seed gives the same image.
const UUID: &str = "3a3a3a3a-5b5b-4c4c-8d8d-9e9e9e9e9e9e";
const SEED: &str = "1";

/// The programs, and directories that are removed when this value is dropped.
pub(super) struct Ground {
    binary: PathBuf,
    lab: PathBuf,
    memory: Scratch,
    /// Set only if an image lies on disk.
    disk: Option<Scratch>,
}

impl Ground {
    /// Makes the directories, the one on disk below `disk`, and removes what killed runs have left, mounts
    /// first.
    pub(super) fn prepare(binary: PathBuf, lab: PathBuf, disk: Option<&Path>) -> Result<Self, String> {
        let memory = Scratch::new(Path::new("/dev/shm"), NAME)?;
        let disk = disk.map(|folder| Scratch::new(folder, NAME)).transpose()?;
        Ok(Self { binary, lab, memory, disk })
    }

    fn folder(&self, place: Storage) -> Result<&Path, String> {
        match place {
            Storage::Memory => Ok(self.memory.path()),
            Storage::Disk => Ok(self.disk.as_ref().ok_or("no directory on disk was prepared")?.path()),
        }
    }

    /// Makes a volume to copy from.
    pub(super) fn make(&self, volume: &Volume) -> Result<Image, String> {
        let image = Image(self.folder(volume.place)?.join("base"));
        let _ = fs::remove_file(&image.0);
        let path = image.0.to_string_lossy().into_owned();
        let made = ["mkfs", "-q", "-m", "0", "-U", UUID, &path, &volume.size];
        output(Command::new(&self.binary).args(made))?;
        if let Some(Aged { fill, mean, longest }) = volume.aged {
            let longest = longest.map(|longest| ["--longest", longest]);
            let words = ["age", "--fill", fill, "--mean", mean, "--seed", SEED, &path];
            output(Command::new(&self.lab).args(words).args(longest.into_iter().flatten()))?;
        }
        judge(&image.0)?;
        Ok(image)
    }

    /// Runs a section's workload once on a copy of `base`.
    pub(super) fn run(&self, base: &Image, side: &Side, section: &Section) -> Result<Figures, String> {
        let image = Image(self.folder(section.volume.place)?.join("image"));
        let _ = fs::remove_file(&image.0);
        if *side != Side::Raw {
            output(need("cp")?.arg("--sparse=always").arg(&base.0).arg(&image.0))?;
        }
        let (said, scanned) = match side {
            Side::Kernel { options } => self.by_kernel(&image.0, options, section)?,
            Side::Engine { policy, through, .. } => {
                (self.by_engine(&image.0, policy.as_deref(), *through, section)?, None)
            }
            Side::Raw => {
                let said = self.bench(&format!("raw:{}", image.0.display()), &[], section)?;
                return Figures::new(&said, &Left::default(), None);
            }
        };
        let left = look(&image.0, &folder_of(&said, section))?;
        if matches!(side, Side::Engine { .. }) {
            judge(&image.0)?;
        }
        Figures::new(&said, &left, scanned)
    }

    fn by_engine(
        &self,
        image: &Path,
        policy: Option<&str>,
        through: Through,
        section: &Section,
    ) -> Result<Value, String> {
        let on = format!("{}:{}", through.prefix(), image.display());
        let policy: Vec<&str> = policy.map(|policy| vec!["--policy", policy]).unwrap_or_default();
        self.bench(&on, &policy, section)
    }

    /// Adds the number of extents that the kernel scanned during the run.
    fn by_kernel(
        &self,
        image: &Path,
        options: &str,
        section: &Section,
    ) -> Result<(Value, Option<f64>), String> {
        let mount = match KernelMount::attempt(image, Access::ReadWrite, options) {
            Ok(mount) => mount,
            Err(MountError::Skip(reason)) => return Err(reason.to_string()),
            Err(refused) => return Err(refused.to_string()),
        };
        if section.volume.place == Storage::Disk {
            // Else the loop device would answer from the host's page cache and not from the disk.
            output(need("losetup")?.arg("--direct-io=on").arg(mount.device()))?;
        }
        let device = mount.device().file_name().map(|name| name.to_string_lossy().into_owned());
        let device = device.unwrap_or_default();
        // Off by default; a kernel without the switch has nothing to count, which the table shows.
        let _ = fs::write(format!("/sys/fs/ext4/{device}/mb_stats"), "1");
        let before = scanned_by(&device);
        let said = self.bench(&mount.path().to_string_lossy(), &[], section);
        let after = scanned_by(&device);
        mount.unmount();
        Ok((said?, after.zip(before).map(|(after, before)| after - before)))
    }

    fn bench(&self, on: &str, more: &[&str], section: &Section) -> Result<Value, String> {
        let mut bench = Command::new(&self.lab);
        bench.arg("bench").args(&section.words).args(["--on", on, "--json"]).args(more);
        let said = output(&mut bench)?;
        serde_json::from_slice(&said).map_err(|error| format!("hectare-lab bench printed no JSON: {error}"))
    }
}

/// An image that is removed when this value is dropped.
pub(super) struct Image(PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // the directory is removed, too
    }
}

/// Free extents the kernel has scanned on a device since it was mounted.
fn scanned_by(device: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/fs/ext4/{device}/mb_stats")).ok()?;
    scanned_in(&text)
}

/// The sum's line is indented once, those of the single criteria twice.
fn scanned_in(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("\textents_scanned:"))?.trim().parse().ok()
}

/// Where the workload's files lie in the image.
fn folder_of(said: &Value, section: &Section) -> String {
    let told = find_run(said).and_then(|run| run["folder"].as_str());
    let default = || format!("bench-{}", section.words.first().map_or("", String::as_str));
    told.map_or_else(default, str::to_owned)
}

/// Inspects a closed image. If the directory is missing (it was removed), there are no files.
fn look(image: &Path, folder: &str) -> Result<Left, String> {
    let device = FileOptions::new().open(image).map_err(|error| error.to_string())?;
    let volume = Opened::open(Arc::new(device), OpenOptions::read_only()).map_err(with_path(image))?;
    let files = match FileExtents::under(&volume, folder.as_bytes()) {
        Err(Error::NotFound) => FileExtents::default(),
        other => other.map_err(with_path(image))?,
    };
    Ok(Left { files, free: Fragmentation::of(&volume).map_err(with_path(image))? })
}

/// Whether e2fsck finds nothing wrong. Mere optimisations (an extent tree after random writes, which the
/// kernel leaves like that, too) are reported and not counted as errors.
fn judge(image: &Path) -> Result<(), String> {
    let report = e2fsck(image).map_err(|skip| skip.to_string())?;
    let (optional, wrong): (Vec<&String>, Vec<&String>) =
        report.questions.iter().partition(|question| question.ends_with("Optimize? no"));
    if let Some(first) = optional.first() {
        eprintln!("  note: e2fsck would optimise {} things: {first}", optional.len());
    }
    let clean = wrong.is_empty() && report.exit == Some(0);
    if clean { Ok(()) } else { Err(format!("e2fsck does not find it clean:\n{}", report.output)) }
}

fn need(name: &str) -> Result<Command, String> {
    tool(name).ok_or_else(|| format!("{name} is not installed"))
}

/// A command's standard output, if it succeeds; else its standard error.
fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let line = line_of(command);
    let done = command.stdin(Stdio::null()).output().map_err(|error| format!("{line}: {error}"))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(format!("{line}: {}: {}", done.status, said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_sum_is_read_and_not_a_criterions() {
        let text = "mballoc:\n\treqs: 3\n\tcr_p2_aligned_stats:\n\t\textents_scanned: 7\n\
            \textents_scanned: 60\n\t\tgoal_hits: 1\n";
        assert_eq!(scanned_in(text), Some(60.0));
        assert_eq!(scanned_in("mballoc:\n\tmb stats collection turned off.\n"), None);
    }
}
