//! Short scenes with a determined outcome, in the spirit of xfstests and LTP: what those suites try for long,
//! tried once on both sides. Each returns its result as text.

use super::case::{Case, PREPARED, make, mkdir, open, said};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// The tail of a volume that is left free when it is nearly filled.
const LEFT: u64 = 1 << 20;
/// How often to check whether space has been freed; the pause between checks follows.
const TRIES: u32 = 500;
const PAUSE: Duration = Duration::from_millis(20);

/// A file opened for everything, created if it does not exist.
fn file(dir: &Path, name: &str) -> Result<OwnedFd, Errno> {
    open(dir, name, OFlags::RDWR | OFlags::CREATE)
}

fn free(dir: &Path) -> Result<u64, Errno> {
    let free = rustix::fs::statvfs(dir)?;
    Ok(free.f_bavail * free.f_frsize)
}

fn len(file: &OwnedFd) -> Result<u64, Errno> {
    Ok(u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0))
}

/// Writes until the volume is full, in chunks that get smaller; returns the error.
fn fill(file: &OwnedFd) -> Errno {
    let mut why = Errno::IO;
    for piece in [1 << 20, 64 << 10, 4096, 1] {
        let bytes = vec![3; piece];
        loop {
            match rustix::io::write(file, &bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(errno) => {
                    why = errno;
                    break;
                }
            }
        }
    }
    why
}

/// Whether about as much is free as before, after a while: FUSE informs a server later that a file is closed
/// and forgotten.
fn is_free_again(dir: &Path, before: u64) -> Result<bool, Errno> {
    for _ in 0..TRIES {
        settle(dir)?;
        if before.abs_diff(free(dir)?) <= 64 << 10 {
            return Ok(true);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(false)
}

/// Fills the volume (generic/015, LTP's fs_fill), removes the files, and checks whether as much is free
/// again.
fn filled_and_freed(dir: &Path) -> Result<String, Errno> {
    settle(dir)?;
    let before = free(dir)?;
    let filler = file(dir, "filler")?;
    let why = fill(&filler);
    let synced = rustix::fs::fsync(&filler);
    let left = free(dir)?;
    drop(filler);
    rustix::fs::unlink(dir.join("filler"))?;
    let (is_full, is_free) = (left < LEFT, is_free_again(dir, before)?);
    Ok(format!("{why}, synced {synced:?}, full {is_full}, free again {is_free}"))
}

/// Syncs: freed space may be used again only when the freeing is durable.
fn settle(dir: &Path) -> Result<(), Errno> {
    rustix::fs::syncfs(rustix::fs::open(dir, OFlags::RDONLY, rustix::fs::Mode::empty())?)
}

/// Requests more space than there is (generic/213); returns the state of the file afterwards.
fn too_much(dir: &Path) -> Result<String, Errno> {
    let asked = file(dir, "asked")?;
    let said = rustix::fs::fallocate(&asked, FallocateFlags::empty(), 0, free(dir)? * 2);
    let len = len(&asked)?;
    rustix::fs::unlink(dir.join("asked"))?;
    Ok(format!("{said:?}, {}", if len == 0 { "empty" } else { "with a size" }))
}

/// Writes to preallocated blocks on a full volume (generic/274, LTP's fallocate05).
fn promised(dir: &Path) -> Result<String, Errno> {
    let promised = file(dir, "promised")?;
    rustix::fs::fallocate(&promised, FallocateFlags::KEEP_SIZE, 0, LEFT)?;
    let why = fill(&file(dir, "filler")?);
    let written = rustix::io::pwrite(&promised, &vec![5; 1 << 20], 0);
    let synced = rustix::fs::fsync(&promised);
    let hole = rustix::fs::fallocate(
        &promised,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        4096,
        65_536,
    );
    rustix::fs::unlink(dir.join("filler"))?;
    Ok(format!("{why}, {written:?}, {synced:?}, {hole:?}"))
}

/// Fills with small files, removes every second, and writes into the gaps (generic/416).
fn gaps(dir: &Path) -> Result<String, Errno> {
    mkdir(dir, "small")?;
    rustix::fs::fallocate(
        file(dir, "rest")?,
        FallocateFlags::empty(),
        0,
        free(dir)?.saturating_sub(8 << 20),
    )?;
    let name = |nr: u32| format!("small/{nr}");
    let made = (0..3000)
        .take_while(|nr| {
            file(dir, &name(*nr)).is_ok_and(|file| rustix::io::write(&file, &[1; 4096]) == Ok(4096))
        })
        .count();
    for nr in (0..made).step_by(2).filter_map(|nr| u32::try_from(nr).ok()) {
        rustix::fs::unlink(dir.join(name(nr)))?;
    }
    settle(dir)?;
    let into = file(dir, "into")?;
    let written = (0..made / 2 - 64).all(|_| rustix::io::write(&into, &[2; 4096]) == Ok(4096));
    let synced = rustix::fs::fsync(&into);
    for name in ["rest", "into"] {
        rustix::fs::unlink(dir.join(name))?;
    }
    fs::remove_dir_all(dir.join("small")).expect(PREPARED);
    Ok(format!("filled {}, gaps written {written}, {synced:?}", made < 3000))
}

/// Where data and holes are (generic/285), after a sync.
fn holes(dir: &Path) -> Result<String, Errno> {
    let file = file(dir, "holes")?;
    for at in [0, 64, 192] {
        rustix::io::pwrite(&file, &[7; 4096], at << 10)?;
    }
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 256 << 10, 65_536)?;
    rustix::fs::fsync(&file)?;
    let seeks = [0, 1, 4096, 70_000, 200_000, 300_000, 400_000];
    let seek =
        |at| (rustix::fs::seek(&file, SeekFrom::Data(at)), rustix::fs::seek(&file, SeekFrom::Hole(at)));
    Ok(format!("{:?}", seeks.map(seek)))
}

/// A tree of directories and files, each holding its own name (LTP's inode01 and inode02).
fn tree_of_names(dir: &Path) -> Result<String, Errno> {
    let folders: Vec<String> =
        (0..4).flat_map(|one| (0..5).map(move |other| format!("tree/{one}/{other}"))).collect();
    for folder in &folders {
        fs::create_dir_all(dir.join(folder)).expect(PREPARED);
        for nr in 0..8 {
            let name = format!("{folder}/{nr}");
            fs::write(dir.join(&name), name.repeat(50)).expect(PREPARED);
        }
    }
    let holds = |name: String| fs::read_to_string(dir.join(&name)).is_ok_and(|text| text == name.repeat(50));
    let right = folders
        .iter()
        .flat_map(|folder| (0..8).map(move |nr| format!("{folder}/{nr}")))
        .filter(|n| holds(n.clone()));
    let count = right.count();
    fs::remove_dir_all(dir.join("tree")).expect(PREPARED);
    Ok(format!("{count} right"))
}

/// Opens one file many times (LTP's openfile), and reads it through each descriptor after its unlink.
fn opened_often(dir: &Path) -> Result<String, Errno> {
    rustix::io::write(file(dir, "often")?, b"held")?;
    let files: Vec<OwnedFd> =
        (0..300).map(|_| open(dir, "often", OFlags::RDONLY)).collect::<Result<_, _>>()?;
    rustix::fs::unlink(dir.join("often"))?;
    let reads = |file: &&OwnedFd| {
        let mut bytes = [0; 4];
        rustix::io::pread(file, &mut bytes, 0) == Ok(4) && &bytes == b"held"
    };
    Ok(format!("{} read it", files.iter().filter(reads).count()))
}

/// Gives a file many names (LTP's linker01), and removes them one by one.
fn linked_often(dir: &Path) -> Result<String, Errno> {
    make(dir, "linked")?;
    let name = |nr: u32| dir.join(format!("linked-{nr}"));
    let links = || rustix::fs::stat(dir.join("linked")).map(|stat| stat.st_nlink);
    (0..1000).try_for_each(|nr| rustix::fs::link(dir.join("linked"), name(nr)))?;
    let most = links()?;
    (0..1000).try_for_each(|nr| rustix::fs::unlink(name(nr)))?;
    Ok(format!("{most} links, {} in the end", links()?))
}

/// Writes far apart in a large file (LTP's lftest), and reads that back.
fn far_apart(dir: &Path) -> Result<String, Errno> {
    let file = file(dir, "large")?;
    let at = |nr: u64| nr * (3 << 30) + 11;
    (0..40).try_for_each(|nr| rustix::io::pwrite(&file, &at(nr).to_le_bytes(), at(nr)).map(drop))?;
    let right = (0..40).filter(|nr| {
        let mut bytes = [0; 8];
        rustix::io::pread(&file, &mut bytes, at(*nr)) == Ok(8) && u64::from_le_bytes(bytes) == at(*nr)
    });
    let said = format!("{} right of a length of {}", right.count(), len(&file)?);
    rustix::fs::unlink(dir.join("large"))?; // comparing the trees would read it all
    Ok(said)
}

/// Writes and copies across the largest size of a file: what fits is done, and counted.
fn across_the_largest_size(dir: &Path) -> Result<String, Errno> {
    let largest = file(dir, "largest")?;
    let (mut max, mut beyond) = (0_u64, 1_u64 << 62);
    while beyond - max > 1 {
        let middle = max.midpoint(beyond);
        *(if rustix::fs::ftruncate(&largest, middle).is_ok() { &mut max } else { &mut beyond }) = middle;
    }
    rustix::fs::ftruncate(&largest, 0)?;
    let source = file(dir, "source")?;
    rustix::io::write(&source, b"12345678")?;
    let places = [max - 3, max, max + 1];
    let written = places.map(|at| rustix::io::pwrite(&largest, b"12345678", at));
    let copied =
        places.map(|mut at| rustix::fs::copy_file_range(&source, Some(&mut 0), &largest, Some(&mut at), 8));
    let len = len(&largest)?;
    for name in ["largest", "source"] {
        rustix::fs::unlink(dir.join(name))?; // comparing the trees would read it all
    }
    Ok(format!("written {written:?}, copied {copied:?}, {len} of {max}"))
}

/// Writes and syncs in turn (LTP's fsync02); each time the size must be the expected one.
fn synced_often(dir: &Path) -> Result<String, Errno> {
    let file = file(dir, "synced")?;
    let sizes = (1..40_u64).map(|nr| {
        rustix::io::pwrite(&file, &vec![9; 5000], nr * nr * 311)?;
        rustix::fs::fsync(&file)?;
        len(&file)
    });
    let sizes: Vec<u64> = sizes.collect::<Result<_, Errno>>()?;
    Ok(format!("{} at last of {}", sizes.last().unwrap_or(&0), sizes.is_sorted()))
}

/// Grows and shrinks some files in turn (LTP's growfiles), and checks their content.
fn grown(dir: &Path) -> Result<String, Errno> {
    let files: Vec<OwnedFd> = (0..5).map(|nr| file(dir, &format!("grown-{nr}"))).collect::<Result<_, _>>()?;
    for round in 0..60_u8 {
        for (nr, file) in (0_u64..).zip(&files) {
            rustix::fs::seek(file, SeekFrom::End(0))?;
            rustix::io::write(file, &vec![round; 700 + 900 * usize::try_from(nr).unwrap_or(0)])?;
            if u64::from(round) % 7 == nr {
                rustix::fs::ftruncate(file, len(file)? / 2)?;
            }
        }
    }
    let lens: Vec<u64> = files.iter().map(len).collect::<Result<_, _>>()?;
    Ok(format!("{lens:?}"))
}

macro_rules! scenes {
    ($($name:literal => $run:expr),* $(,)?) => { [$(Case { name: $name, run: |dir| said($run(dir)) }),*] };
}

/// In this order; each frees the space it took.
pub(super) static SCENES: [Case; 12] = scenes! {
    "filled and freed" => filled_and_freed,
    "more than there is" => too_much,
    "promised on a full volume" => promised,
    "gaps of a full volume" => gaps,
    "holes" => holes,
    "a tree of names" => tree_of_names,
    "opened often" => opened_often,
    "linked often" => linked_often,
    "far apart" => far_apart,
    "across the largest size" => across_the_largest_size,
    "synced often" => synced_often,
    "grown" => grown,
};
