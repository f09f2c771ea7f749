//! The cache file beside a model, after damage of every kind, and in the hands of others.

use super::*;
use hectare_units::random::SplitMix64;
use proptest::prelude::*;
use std::fs;

impl CacheFile {
    fn keep(&self, id: ObjectId, bytes: &[u8]) {
        self.put(id, bytes, sum(bytes));
    }
}

const ROOM: u64 = 5000;

fn wanted<'a>(path: &'a Path, identity: &'a str, slots: u64) -> Wanted<'a> {
    let size = Bytes::new(u64_of(HEADER_LEN) + slots * slot_len(ROOM));
    Wanted { path, size, identity, room: ROOM }
}

fn opened(path: &Path, identity: &str, slots: u64) -> (CacheFile, Option<String>) {
    let (file, note) = CacheFile::open(&wanted(path, identity, slots)).unwrap();
    (file.unwrap(), note)
}

fn id(number: u64) -> ObjectId {
    ObjectId { session: 7, number }
}

/// What an object has: another content for each number.
fn content(number: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(number);
    let len = 1 + random.below(ROOM);
    (0..len).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

/// Asks for an object: what is found is right. Whether it was.
fn ask(file: &CacheFile, number: u64) -> bool {
    let right = content(number);
    let found = file.get(id(number), u64_of(right.len()), Some(sum(&right)));
    assert!(found.as_ref().is_none_or(|found| found[..] == right[..]), "{number}");
    assert!(file.get(id(number), u64_of(right.len()) + 1, None).is_none());
    assert!(file.get(id(number), u64_of(right.len()), Some(1)).is_none());
    found.is_some()
}

#[test]
fn what_was_kept_is_there_later_and_what_was_used_least_recently_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let (file, note) = opened(&path, "volume", 4);
    assert_eq!(note, None);
    (0..4).for_each(|number| file.keep(id(number), &content(number)));
    assert!(ask(&file, 0));
    file.keep(id(4), &content(4));
    file.keep(id(5), &vec![1; index_of(ROOM) + 1]);
    drop(file);
    let (file, note) = opened(&path, "volume", 4);
    assert_eq!(note, None);
    let there: Vec<bool> = (0..6).map(|number| ask(&file, number)).collect();
    assert_eq!(there, [true, false, true, true, true, false]);
    assert!(fs::metadata(&path).unwrap().len() <= wanted(&path, "volume", 4).size.get());
    drop(file);
    // With less room, what lies behind it goes; of another identity, all of it.
    let more = opened(&path, "volume", 8).0;
    (10..14).for_each(|number| more.keep(id(number), &content(number)));
    drop(more);
    let (file, note) = opened(&path, "volume", 4);
    assert_eq!((note, (0..14).filter(|number| ask(&file, *number)).count()), (None, 4));
    drop(file);
    let (file, note) = opened(&path, "another", 4);
    assert!(note.unwrap().contains("begins anew"));
    assert_eq!((0..14).filter(|number| ask(&file, *number)).count(), 0);
}

#[test]
fn what_is_no_cache_file_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let refused = |words: &str| {
        let error = CacheFile::open(&wanted(&path, "volume", 4)).err().unwrap().to_string();
        assert!(error.contains(words) && error.contains("cache"), "{error}");
    };
    for text in [&b"x"[..], b"HECTARE", b"an important letter, and no more than that"] {
        fs::write(&path, text).unwrap();
        refused("holds something else");
        assert_eq!(fs::read(&path).unwrap(), text);
    }
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("elsewhere", &path).unwrap();
    refused("can't be used");
    assert!(!folder.path().join("elsewhere").exists());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("can't be used");
    fs::remove_dir(&path).unwrap();
    drop(opened(&path, "volume", 4));
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o620)).unwrap();
    refused("others may write it");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let first = opened(&path, "volume", 4).0;
    let (second, note) = CacheFile::open(&wanted(&path, "volume", 4)).unwrap();
    assert!(second.is_none() && note.unwrap().contains("another process"));
    drop(first);
    let small = Wanted { size: Bytes::new(9000), ..wanted(&path, "volume", 4) };
    assert!(CacheFile::open(&small).err().unwrap().to_string().contains("at least"));
}

#[derive(Clone, Debug)]
enum Step {
    Put(u64),
    Ask(u64),
    Reopen,
    /// Bytes become others, as a crash or a disk may leave them.
    Garble(u64, u64, u8),
    Copy(u64, u64, u64),
    Cut(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || prop_oneof![0_u64..5000, 0_u64..70_000];
    let step = prop_oneof![
        6 => (0_u64..20).prop_map(Step::Put),
        6 => (0_u64..20).prop_map(Step::Ask),
        2 => Just(Step::Reopen),
        2 => (at(), 1_u64..9000, any::<u8>()).prop_map(|(at, len, to)| Step::Garble(at, len, to)),
        1 => (at(), at(), 1_u64..9000).prop_map(|(from, to, len)| Step::Copy(from, to, len)),
        1 => at().prop_map(Step::Cut),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever happens to the bytes of the file: what it gives is what was put, or nothing.
    #[test]
    fn nothing_wrong_is_ever_given(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        let mut file = Some(opened(&path, "volume", 6).0);
        for step in steps {
            let raw = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
            let len = raw.metadata().unwrap().len();
            match step {
                Step::Put(number) => file.as_ref().unwrap().keep(id(number), &content(number)),
                Step::Ask(number) => drop(ask(file.as_ref().unwrap(), number)),
                Step::Reopen => {
                    drop(file.take());
                    // The magic number is the only part that must be there for it to be used again.
                    raw.write_all_at(&MAGIC, 0).unwrap();
                    file = Some(opened(&path, "volume", 6).0);
                }
                Step::Garble(at, span, to) if at < len => {
                    let span = span.min(len - at);
                    raw.write_all_at(&vec![to; index_of(span)], at).unwrap();
                }
                Step::Copy(from, to, span) if from.max(to) < len => {
                    let mut bytes = vec![0; index_of(span.min(len - from.max(to)))];
                    raw.read_exact_at(&mut bytes, from).unwrap();
                    raw.write_all_at(&bytes, to).unwrap();
                }
                Step::Cut(at) => raw.set_len(at.min(len)).unwrap(),
                Step::Garble(..) | Step::Copy(..) => {}
            }
        }
    }
}

/// A slot of an earlier life of the file is never one of the next: block 0 of an image is another image's
/// there.
#[test]
fn slots_of_an_earlier_identity_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache");
    let file = opened(&path, "image, version 1", 4).0;
    file.keep(id(0), b"old");
    drop(file);
    let old = fs::read(&path).unwrap();
    let file = opened(&path, "image, version 2", 4).0;
    // The header reached the disk, and the shorter length did not.
    file.file.write_all_at(&old[HEADER_LEN..], u64_of(HEADER_LEN)).unwrap();
    drop(file);
    let file = opened(&path, "image, version 2", 4).0;
    assert!(file.get(id(0), 3, None).is_none());
}
