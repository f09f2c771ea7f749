//! A repair whose memory ends early, so that it goes through a file, is the same: the volume byte for byte,
//! what it says, the undo file, and the way back. [`assert_same`] judges every damaged volume of the other
//! tests (the corpus, and those damaged at random); here it is written out, taken back, and begun again.

use crate::damage::{damage, sealed_damage};
use crate::random::number;
use crate::trial::{NOW, bytes_of, watched};
use crate::volumes::small;
use hectare_device::{Device, MemoryDevice};
use hectare_oracle::skip;
use hectare_repair::{Error, Mend, Options, Overlay, PageStore, Repaired, Staged, undo, write_out};
use hectare_units::Bytes;
use hectare_units::random::SplitMix64 as Random;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

/// A store with as little memory as there can be.
fn least(folder: &Path) -> Arc<PageStore> {
    Arc::new(PageStore::within(Bytes::ZERO, folder.to_owned()))
}

/// What a repair says it did.
fn said(repaired: &Repaired) -> Vec<Mend> {
    repaired.mends.iter().map(Result::unwrap).collect()
}

/// Asserts that with a spill file the same comes of a volume as came of it in memory.
pub(crate) fn assert_same(
    bytes: &[u8],
    expected: &Result<Repaired, String>,
    overlay: &Overlay,
    folder: &Path,
) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(bytes));
    let spilling = Arc::new(Overlay::within(device, least(folder)));
    match (watched(&spilling), expected) {
        (Ok(found), Ok(expected)) => {
            assert!(said(&found) == said(expected), "{:?} and {:?}", found.mends, expected.mends);
            assert_eq!((found.rounds, &found.unchecked), (expected.rounds, &expected.unchecked));
            assert!(bytes_of(&*spilling) == bytes_of(overlay), "the volumes differ");
        }
        (Err(found), Err(expected)) => assert_eq!(found, *expected),
        (found, expected) => panic!("{found:?} and in memory {expected:?}"),
    }
}

/// A repair of a volume: the volume and the undo file afterwards, and whether it spilled; `None` if there is
/// nothing to write.
fn written(old: &[u8], store: &Arc<PageStore>) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(old));
    let staged = Staged::with_journal(Arc::clone(&device), None, store);
    let repaired = watched(staged.overlay()).ok().filter(|repaired| !repaired.mends.is_empty())?;
    let mut file = Vec::new();
    write_out(&staged, &repaired.order, NOW, Some(&mut file), || Ok(())).unwrap();
    Some((bytes_of(&*device), file, store.has_spilled()))
}

/// `HECTARE_TRIALS` says how many, `HECTARE_SEED` from which seed on.
#[test]
fn what_spills_is_written_and_taken_back_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let bases = match small(folder.path()) {
        Ok(bases) => bases,
        Err(reason) => skip!("repair spill::what_spills_is_written_and_taken_back", reason),
    };
    let (trials, first) = (number("HECTARE_TRIALS", 20), number("HECTARE_SEED", 1));
    let mut spilled = 0;
    for seed in first..first + trials {
        let mut random = Random::new(seed);
        let base = &bases[random.index_below(bases.len())];
        let mut old = base.bytes.clone();
        let how =
            if seed % 2 == 0 { damage(&mut old, &mut random) } else { sealed_damage(&mut old, &mut random) };
        let place = format!("seed {seed}, {}, {how}", base.name);
        let in_memory = written(&old, &Arc::new(PageStore::in_memory()));
        let through_file = written(&old, &least(folder.path()));
        let Some((new, file, true)) = through_file else {
            assert!(in_memory == through_file, "{place}");
            continue;
        };
        spilled += 1;
        assert!(in_memory == Some((new.clone(), file.clone(), false)), "{place}: not what it is in memory");
        let back = MemoryDevice::from_bytes(&new);
        undo(&back, None, &mut Cursor::new(&file)).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert!(back.to_vec() == old, "{place}: taken back it is not as it was");
        begun_again(&old, &new, &file, folder.path(), &place);
    }
    assert!(spilled * 4 > trials, "only {spilled} of {trials} went through a file");
}

/// A repair that was cut off in the middle begins again, both times through a file.
fn begun_again(old: &[u8], new: &[u8], file: &[u8], folder: &Path, place: &str) {
    if old.len() != new.len() {
        return; // the first write is another
    }
    let mut cut = [&new[..new.len() / 2], &old[new.len() / 2..]].concat();
    let Ok(mut marked) = hectare_ext4::superblock::SuperBlock::parse(
        old[1024..2048].try_into().unwrap(),
        Bytes::new(u64::MAX),
    ) else {
        return; // a broken superblock can't be marked
    };
    marked.set_state(marked.state() | hectare_ext4::superblock::STATE_ERROR);
    marked.set_last_error_function("hectare repair");
    cut[1024..2048].copy_from_slice(&marked.render(hectare_units::GroupNr::new(0)));
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&cut));
    let resumed = Staged::resumed(Arc::clone(&device), None, &mut Cursor::new(file), &least(folder)).unwrap();
    let Some(staged) = resumed else {
        let known = cut[1024..2048] == old[1024..2048] || cut[1024..2048] == new[1024..2048];
        assert!(known, "{place}: not known to be interrupted");
        return;
    };
    let repaired = watched(staged.overlay()).unwrap_or_else(|error| panic!("{place}: {error}"));
    write_out(&staged, &repaired.order, NOW, Some(Vec::new()), || Ok(())).unwrap();
    assert!(bytes_of(&*device) == new, "{place}: begun again it ends with something else");
}

/// Without room in the folder nothing is mended, whatever was found out by then.
#[test]
fn without_room_for_the_file_there_is_no_repair() {
    let folder = tempfile::tempdir().unwrap();
    let bases = match small(folder.path()) {
        Ok(bases) => bases,
        Err(reason) => skip!("repair spill::without_room_for_the_file", reason),
    };
    let store = Arc::new(PageStore::within(Bytes::ZERO, "/nonexistent".into()));
    let mut old = bases[0].bytes.clone();
    old[5 * 4096..8 * 4096].fill(0x5a);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&old));
    let staged = Staged::with_journal(Arc::clone(&device), None, &store);
    let refused = staged.repair(&Options { now: NOW, ..Options::default() });
    let Err(Error::Spill(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().starts_with("spill file in /nonexistent: cannot create"), "{error}");
    assert!(staged.settle().is_err(), "and nothing can be written");
    assert!(bytes_of(&*device) == old);
}
