//! mke2fs, dumpe2fs, debugfs and e2freefrag, on image files.
//!
//! mke2fs takes its defaults from a configuration file of the host, which differs from distribution to
//! distribution; here it always gets [`CONFIG`], so that a test means the same everywhere.

use crate::{Entry, Skip, scratch, tool, walk};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The configuration mke2fs runs with: the feature sets, block size, inode size and bytes per inode that
/// e2fsprogs 1.47 has on Debian 12. Features that only some distributions add (`orphan_file`,
/// `metadata_csum_seed`) are left to the arguments.
pub const CONFIG: &str = "\
[defaults]
\tbase_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
\tdefault_mntopts = acl,user_xattr
\tenable_periodic_fsck = 0
\tblocksize = 4096
\tinode_size = 256
\tinode_ratio = 16384
[fs_types]
\text3 = {
\t\tfeatures = has_journal
\t}
\text4 = {
\t\tfeatures = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
\t}
\tfloppy = {
\t\tblocksize = 1024
\t\tinode_ratio = 8192
\t}
\tsmall = {
\t\tblocksize = 1024
\t\tinode_ratio = 4096
\t}
\tbig = {
\t\tinode_ratio = 32768
\t}
\thuge = {
\t\tinode_ratio = 65536
\t}
\tnews = {
\t\tinode_ratio = 4096
\t}
\tlargefile = {
\t\tinode_ratio = 1048576
\t\tblocksize = -1
\t}
\tlargefile4 = {
\t\tinode_ratio = 4194304
\t\tblocksize = -1
\t}
";

/// The UUID given to volumes whose arguments name none, so that runs repeat; journals have their own.
pub const UUID: &str = "11111111-2222-4333-8444-555555555555";

/// Makes a volume: `mke2fs(&["-t", "ext4"], image, "64M")`; quiet, forced, with [`CONFIG`] and, unless the
/// arguments set them, a fixed UUID and hash seed.
///
/// # Errors
/// A [`Skip`] if mke2fs is not installed.
///
/// # Panics
/// If mke2fs fails, with what it said.
#[track_caller]
pub fn mke2fs(args: &[&str], image: &Path, size: &str) -> Result<(), Skip> {
    let _ = try_mke2fs(args, image, size)?.expect_success();
    Ok(())
}

/// Like [`mke2fs`], for arguments that it may refuse.
///
/// # Errors
/// A [`Skip`] if mke2fs is not installed.
///
/// # Panics
/// If it can't be started.
pub fn try_mke2fs(args: &[&str], image: &Path, size: &str) -> Result<tool::Said, Skip> {
    let mut mke2fs = tool::need("mke2fs")?;
    mke2fs.env("MKE2FS_CONFIG", config()).args(["-q", "-F"]);
    if !args.contains(&"-U") {
        let is_journal = args.iter().any(|arg| arg.split(',').any(|feature| feature == "journal_dev"));
        mke2fs.args(["-U", &if is_journal { own_uuid() } else { UUID.to_owned() }]);
    }
    // A second -E would replace the first, so the hash seed joins the one there is.
    let options = args.iter().position(|arg| *arg == "-E").and_then(|at| args.get(at + 1));
    let seed = format!("hash_seed={UUID}");
    let options = match options {
        Some(options) if options.contains("hash_seed=") => (*options).to_owned(),
        Some(options) => format!("{options},{seed}"),
        None => seed,
    };
    Ok(tool::run(mke2fs.args(args).args(["-E", &options]).arg(image).arg(size)))
}

/// A UUID that no other volume of a test has: e2fsck looks for a journal by its UUID among all devices of the host, and
/// would find the volume of another test on a loop device.
pub(crate) fn own_uuid() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("57e55000-1111-4222-8333-{:06x}{number:06x}", std::process::id())
}

fn config() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = scratch::fresh("mke2fs.conf");
        let written = std::fs::write(&file, CONFIG);
        written.unwrap_or_else(|error| panic!("can't write {}: {error}", file.display()));
        file
    })
}

/// What dumpe2fs prints.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The superblock: field name to value, as printed ("Block count" to "65536").
    pub fields: BTreeMap<String, String>,
    /// One entry per group, in order.
    pub groups: Vec<GroupDump>,
}

/// What dumpe2fs prints of one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDump {
    /// The heading: `Group 0: (Blocks 0-32767) csum 0x1234 [FLAGS]`.
    pub heading: String,
    /// The lines below it, without indentation.
    pub lines: Vec<String>,
}

impl Dump {
    /// A field of the superblock.
    ///
    /// # Panics
    /// If dumpe2fs printed none of that name.
    #[must_use]
    #[track_caller]
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("dumpe2fs prints no {name:?}: {:?}", self.fields))
    }

    /// A field of the superblock that starts with a decimal number.
    ///
    /// # Panics
    /// If there is none of that name, or it is no number.
    #[must_use]
    #[track_caller]
    pub fn number(&self, name: &str) -> u64 {
        let text = self.field(name);
        let digits = text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}"))
    }

    /// Whether the volume has a feature, by the name dumpe2fs uses.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.field("Filesystem features").split(' ').any(|name| name == feature)
    }
}

/// Reads a volume with dumpe2fs.
///
/// # Errors
/// A [`Skip`] if dumpe2fs is not installed.
///
/// # Panics
/// If dumpe2fs fails on the image.
#[track_caller]
pub fn dumpe2fs(image: &Path) -> Result<Dump, Skip> {
    let said = tool::run(tool::need("dumpe2fs")?.arg(image)).expect_success();
    Ok(parse_dump(&said.stdout))
}

/// Reads only a volume's superblock with dumpe2fs, for volumes whose groups may be corrupt.
///
/// # Errors
/// A [`Skip`] if dumpe2fs is not installed.
///
/// # Panics
/// If dumpe2fs fails on the image.
#[track_caller]
pub fn dumpe2fs_superblock(image: &Path) -> Result<Dump, Skip> {
    let said = tool::run(tool::need("dumpe2fs")?.arg("-h").arg(image)).expect_success();
    Ok(parse_dump(&said.stdout))
}

fn parse_dump(text: &str) -> Dump {
    let mut dump = Dump { fields: BTreeMap::new(), groups: Vec::new() };
    for line in text.lines() {
        if line.starts_with("Group ") && line.contains("(Blocks ") {
            dump.groups.push(GroupDump { heading: line.to_owned(), lines: Vec::new() });
        } else if let Some(group) = dump.groups.last_mut() {
            group.lines.push(line.trim().to_owned());
        } else if let Some((name, value)) = line.split_once(':') {
            dump.fields.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    for group in &mut dump.groups {
        group.lines.retain(|line| !line.is_empty());
    }
    dump
}

/// Runs debugfs requests on an image without writing to it, and returns its standard output. Each request's
/// output follows a line `debugfs: REQUEST`.
///
/// # Errors
/// A [`Skip`] if debugfs is not installed.
///
/// # Panics
/// If debugfs can't open the image.
#[track_caller]
pub fn debugfs(image: &Path, requests: &[&str]) -> Result<String, Skip> {
    run_debugfs(image, &[], requests)
}

/// Everything in a volume, as debugfs reads it: what the kernel can't mount, too.
///
/// # Errors
/// A [`Skip`] if debugfs is not installed.
///
/// # Panics
/// If debugfs can't open the image.
#[track_caller]
pub fn dumped(image: &Path) -> Result<Vec<Entry>, Skip> {
    let folder = scratch::fresh("dump");
    let failed = |error: std::io::Error| panic!("{}: {error}", folder.display());
    std::fs::create_dir(&folder).unwrap_or_else(failed);
    debugfs(image, &[&format!("rdump / {}", folder.display())])?;
    let entries = walk(&folder);
    std::fs::remove_dir_all(&folder).unwrap_or_else(failed);
    Ok(entries)
}

/// Runs debugfs requests that change the image (to corrupt it on purpose).
///
/// # Errors
/// A [`Skip`] if debugfs is not installed.
///
/// # Panics
/// If debugfs can't open the image.
#[track_caller]
pub fn debugfs_write(image: &Path, requests: &[&str]) -> Result<String, Skip> {
    run_debugfs(image, &["-w"], requests)
}

/// Makes the journal of a volume the file `.journal`, of an ordinary inode: as tune2fs gives one to a volume that
/// is mounted. Returns the number of the inode.
///
/// # Errors
/// A [`Skip`] if debugfs is not installed.
///
/// # Panics
/// If debugfs can't be started.
#[track_caller]
pub fn name_journal(image: &Path) -> Result<String, Skip> {
    debugfs_write(image, &["write /dev/null .journal"])?;
    let said = debugfs(image, &["stat .journal"])?;
    let nr = said.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
    let moves = [format!("copy_inode <8> <{nr}>"), "clri <8>".to_owned(), format!("ssv journal_inum {nr}")];
    debugfs_write(image, &moves.each_ref().map(String::as_str))?;
    Ok(nr.to_owned())
}

#[track_caller]
fn run_debugfs(image: &Path, flags: &[&str], requests: &[&str]) -> Result<String, Skip> {
    let input = requests.join("\n") + "\n";
    let mut debugfs = tool::need("debugfs")?;
    // Without a pager its output is neither truncated nor paused.
    debugfs.env("DEBUGFS_PAGER", "__none__").args(flags).args(["-f", "-"]).arg(image);
    let said = tool::run_with_input(&mut debugfs, &input);
    let unopened = said.stderr.contains("while trying to open") || said.stderr.contains("Bad magic number");
    assert!(said.succeeded() && !unopened, "{}", said.report());
    Ok(said.stdout)
}

/// What e2freefrag prints of an image.
///
/// # Errors
/// A [`Skip`] if e2freefrag is not installed.
///
/// # Panics
/// If e2freefrag fails on the image.
#[track_caller]
pub fn e2freefrag(image: &Path) -> Result<String, Skip> {
    Ok(tool::run(tool::need("e2freefrag")?.arg(image)).expect_success().stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip;

    #[test]
    fn the_tools_agree_on_a_volume_and_runs_repeat() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        if let Err(reason) = mke2fs(&["-t", "ext4", "-b", "4096", "-L", "orchard"], &image, "64M") {
            skip!("e2fsprogs::the_tools_agree", reason);
        }
        let dump = dumpe2fs(&image).unwrap();
        assert_eq!(dump.field("Filesystem volume name"), "orchard");
        assert_eq!(dump.field("Filesystem UUID"), UUID);
        assert_eq!(dump.number("Block count"), 16384);
        assert_eq!(dump.groups.len(), 1);
        assert!(dump.has("extent") && !dump.has("orphan_file"));
        assert!(dump.groups[0].lines.iter().any(|line| line.starts_with("Inode table at")));

        let output = debugfs(&image, &["stat <2>", "ls -p /"]).unwrap();
        assert!(output.contains("Type: directory") && output.contains("lost+found"), "{output}");
        let free = format!("{}", dump.number("Free blocks"));
        assert!(e2freefrag(&image).unwrap().contains(&free));

        debugfs_write(&image, &["mkdir plum"]).unwrap();
        assert!(debugfs(&image, &["ls -p /"]).unwrap().contains("plum"));
    }

    #[test]
    fn what_mke2fs_refuses_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        match try_mke2fs(&["-t", "ext4", "-b", "777"], &folder.path().join("image"), "8M") {
            Err(reason) => skip!("e2fsprogs::what_mke2fs_refuses", reason),
            Ok(said) => assert!(!said.succeeded() && said.stderr.contains("block size"), "{}", said.report()),
        }
    }
}
