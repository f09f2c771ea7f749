//! The stress programs: fsx changes one file in every way and verifies what it reads; stress-ng has many
//! processes do the same few things again and again, each a *stressor*.

use hectare_oracle::tool;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Operations of one run of fsx.
const FSX_OPERATIONS: u64 = 1500;
/// What fsx does, and how often; a small file in turn with a large one.
const FSX_CONFIG: [&str; 2] =
    ["flen = 262144\n[opsize]\nmax = 65536\n", "flen = 4000000\n[opsize]\nmax = 300000\n"];
const FSX_WEIGHTS: &str = "[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 6
fsync = 1
fdatasync = 1
posix_fallocate = 4
punch_hole = 6
sendfile = 2
posix_fadvise = 2
copy_file_range = 6
";
/// The stressors, and their sizes: those of file systems whose work is done by the server of a mount.
const STRESSORS: [&str; 33] = [
    "--hdd",
    "--dir",
    "--dirdeep",
    "--dirmany",
    "--dentry",
    "--link",
    "--rename",
    "--symlink",
    "--xattr",
    "--chmod",
    "--chown",
    "--utime",
    "--fallocate",
    "--copy-file",
    "--iomix",
    "--fpunch",
    "--filename",
    "--touch",
    "--mknod",
    "--getdent",
    "--seek",
    "--revio",
    "--sync-file",
    "--msync",
    "--msyncmany",
    "--chattr",
    "--open",
    "--aio",
    "--io-uring",
    "--inode-flags",
    "--file-ioctl",
    "--access",
    "--readahead",
];
const SIZES: &str = "--hdd-bytes 8M --fallocate-bytes 8M --iomix-bytes 8M --seek-size 4M --seek-punch \
    --revio-bytes 4M --sync-file-bytes 4M --msync-bytes 1M --readahead-bytes 8M --dirdeep-inodes 2000";

/// Where to find fsx.
pub(super) struct Fsx {
    pub(super) program: PathBuf,
    /// For its configuration, and what it writes on a failure.
    pub(super) folder: PathBuf,
}

impl Fsx {
    /// One run on a new file; returns the number of operations.
    ///
    /// # Errors
    /// What differed, with its log of the last operations.
    pub(super) fn run(&self, file: &Path, seed: u64) -> Result<u64, String> {
        let config = self.folder.join("fsx.toml");
        let index = usize::from(seed.is_multiple_of(2));
        let text = [FSX_CONFIG[index], FSX_WEIGHTS].concat();
        std::fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
        let mut fsx = Command::new(&self.program);
        fsx.args(["-S", &seed.to_string(), "-N", &FSX_OPERATIONS.to_string(), "-f"]).arg(&config);
        let said = tool::run(fsx.arg("-P").arg(&self.folder).arg(file));
        if said.succeeded() { Ok(FSX_OPERATIONS) } else { Err(said.report()) }
    }
}

/// A run of all stressors at once, which verify what they did; returns how often they did it.
///
/// # Errors
/// What stress-ng said, if any of them failed.
pub(super) fn stress_ng(folder: &Path, seed: u64, time: Duration) -> Result<u64, String> {
    let mut stress_ng = tool::need("stress-ng").map_err(|skip| skip.0)?;
    stress_ng.args(["--verify", "--metrics-brief", "--seed", &seed.to_string(), "--temp-path", "."]);
    stress_ng.args(["-t", &format!("{}s", time.as_secs().max(1))]).args(SIZES.split_whitespace());
    stress_ng.args(STRESSORS.iter().flat_map(|stressor| [stressor, "1"])).current_dir(folder);
    let said = tool::run(&mut stress_ng);
    match bogo_operations(&(said.stdout.clone() + &said.stderr)) {
        operations if said.succeeded() && operations > 0 => Ok(operations),
        _ => Err(said.report()),
    }
}

/// The sum of the table that stress-ng prints: `stress-ng: metrc: [PID] NAME OPERATIONS SECONDS ...`.
fn bogo_operations(output: &str) -> u64 {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_once("metrc: [")?.1.split_whitespace().collect();
        if words.len() == 8 { words[2].parse::<u64>().ok() } else { None }
    };
    output.lines().filter_map(row).sum()
}

/// What leaves a tree behind, when it is killed: a copy of the directory `$0`, and stressors.
pub(super) const LEAVES_A_TREE: &str = "cp -a \"$0\" copied; exec stress-ng --dir 1 --dirmany 1 --dentry 1 \
     --link 1 --rename 1 --symlink 1 --filename 1 --xattr 1 --copy-file 1 --iomix 1 --iomix-bytes 8M \
     --fpunch 1 --fallocate 1 --fallocate-bytes 8M --mknod 1 --hdd 1 --hdd-bytes 8M -t 600s --temp-path .";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_summed_and_nothing_else() {
        let output = "stress-ng: metrc: [7] stressor       bogo ops real time  usr time  sys time   x/s  y/s
stress-ng: metrc: [7]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)
stress-ng: metrc: [7] hdd                4134     15.03      0.12      0.08       275.07       20782.96
stress-ng: metrc: [7] dir                 537     16.26      0.03      0.26        33.02        1843.94
stress-ng: metrc: [7] hdd                  855.83 MB/sec read rate (mean of 1)
stress-ng: info:  [7] successful run completed in 17.68s";
        assert_eq!(bogo_operations(output), 4134 + 537);
    }
}
