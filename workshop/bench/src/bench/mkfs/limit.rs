//! Repeats only the writes of a run: as many, of the mean length, spread evenly over a new sparse file, by
//! one thread. That is the host's time for these bytes in as many places, whatever program writes them.

use super::measure::Figures;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Where writes begin.
const PAGE: u64 = 4096;

/// How many seconds the writes of a run take alone. The file is gone afterwards.
pub(super) fn writes_alone(run: &Figures, image: &Path, size: u64) -> Result<f64, String> {
    let taken = write(run, image, size).map_err(|error| format!("{}: {error}", image.display()));
    let _ = std::fs::remove_file(image); // not there if it could not be made
    taken
}

fn write(run: &Figures, image: &Path, size: u64) -> io::Result<f64> {
    let (count, bytes) = (whole(run.writes).max(1), vec![7; usize::try_from(length(run)).unwrap_or(0)]);
    let step = (size - length(run).min(size)) / count / PAGE * PAGE;
    let file = File::create(image)?;
    file.set_len(size)?;
    let started = Instant::now();
    (0..count).try_for_each(|nr| file.write_all_at(&bytes, nr * step))?;
    Ok(started.elapsed().as_secs_f64())
}

/// The mean length of a write, in bytes.
fn length(run: &Figures) -> u64 {
    whole(run.written / run.writes.max(1.0))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts, far below 2^52
fn whole(count: f64) -> u64 {
    count as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn as_much_is_written_in_as_many_places() {
        let image = hectare_oracle::scratch::fresh("limit");
        let run = Figures {
            seconds: 1.0,
            cpu: 1.0,
            memory_mib: None,
            written: 819_200.0,
            writes: 100.0,
            taken: 0.0,
        };
        write(&run, &image, 1 << 30).unwrap();
        let made = std::fs::metadata(&image).unwrap();
        assert_eq!((made.len(), made.blocks() * 512), (1 << 30, 819_200));
        assert!(writes_alone(&run, &image, 1 << 30).unwrap() > 0.0 && !image.exists());
    }
}
