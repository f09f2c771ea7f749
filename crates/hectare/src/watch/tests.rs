//! Watches, and calls that they cancel at every checkpoint.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn steps_are_reported_when_they_begin_and_end() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&seen);
    let watch = Watch::new(move |progress| {
        list.lock().push((progress.step, progress.done));
        ControlFlow::Continue(())
    });
    for done in [1, 3, 2, 4] {
        watch.at(Step::Inodes, done, Some(4));
    }
    assert_eq!(watch.progress(), Progress { step: Step::Inodes, done: 4, total: Some(4) });
    watch.at(Step::Bitmaps, 1, Some(9));
    let edges = [(Step::Inodes, 1), (Step::Inodes, 4), (Step::Bitmaps, 1)];
    assert!(edges.iter().all(|edge| seen.lock().contains(edge)), "{:?}", seen.lock());
    assert!(!watch.is_cancelled());
}

#[test]
fn a_report_cancels_also_without_progress() {
    let watch = Watch::new(|progress| match progress.step {
        Step::Begin => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    while !watch.token().is_cancelled() {
        std::thread::yield_now();
    }
    assert!(watch.check("disk.img").unwrap_err().is_cancelled());
    let silent = Watch::default();
    silent.at(Step::Data, 1, None);
    assert!(silent.check("disk.img").is_ok());
    let same = silent.clone();
    same.cancel();
    assert!(silent.is_cancelled() && same.is_cancelled());
}

/// The caller's closure ran on the thread that asked, and could cancel a call that had ended.
#[test]
fn regression_to_ask_whether_it_was_cancelled_is_no_checkpoint() {
    let watch = Watch::new(|_| ControlFlow::Break(()));
    std::thread::sleep(EVERY * 2);
    assert!(!watch.is_cancelled());
    assert!(watch.token().is_cancelled() && watch.is_cancelled());
}

/// One that cancels at the checkpoint of this number, from 0.
fn at(checkpoint: u64) -> Watch {
    let passed = AtomicU64::new(0);
    let poll = move || passed.fetch_add(1, Ordering::Relaxed) >= checkpoint;
    Watch { cancel: Cancel::polling(poll), state: Arc::default() }
}

#[cfg(all(feature = "build", feature = "check"))]
mod calls {
    use super::*;
    use crate::{Size, Volume, build, check, mkfs};
    use hectare_device::MemoryDevice;
    use hectare_units::Bytes;
    use std::num::NonZeroUsize;
    use std::path::Path;

    /// A volume with something in it.
    fn volume() -> Arc<MemoryDevice> {
        let device = Arc::new(MemoryDevice::new(Bytes::mib(24)));
        mkfs::Format::new().on_device(&*device).unwrap();
        let shared: Arc<dyn Device> = Arc::clone(&device) as _;
        let volume = Volume::options().write(true).open_device(shared).unwrap();
        for nr in 0..20 {
            volume.create_dir_all(format!("d{nr}/in")).unwrap();
            volume.write(format!("d{nr}/file"), vec![nr; 9000]).unwrap();
        }
        volume.close().unwrap();
        device
    }

    /// What lies in a directory, by name.
    fn listed(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_cancelled_check_has_no_report() {
        let device = volume();
        for threads in [1, 3] {
            let options =
                check::Options { threads: NonZeroUsize::new(threads).unwrap(), ..Default::default() };
            let mut refused = 0;
            loop {
                match check::check_device_watched(&*device, &options, &at(refused)) {
                    Err(error) => {
                        assert!(error.is_cancelled() && error.errno() == 125, "{error}");
                        assert_ne!(error.kind(), std::io::ErrorKind::Interrupted);
                        refused += 1;
                    }
                    Ok(report) => break assert!(report.is_clean(), "{:?}", report.problems),
                }
            }
            assert!(refused > 40, "{refused} checkpoints");
        }
    }

    #[test]
    fn a_cancelled_format_of_a_device_leaves_no_volume() {
        let old = volume().to_vec();
        let mut refused = 0;
        loop {
            let device = Arc::new(MemoryDevice::from_bytes(&old));
            let done = mkfs::Format::new().replace(true).watch(&at(refused)).on_device(&*device);
            let found = Volume::options().open_device(Arc::clone(&device) as _);
            match done {
                Err(error) => {
                    assert!(error.is_cancelled(), "{error}");
                    let is_untouched = old == device.to_vec();
                    assert!(found.is_err() || is_untouched, "checkpoint {refused}");
                    refused += 1;
                }
                Ok(()) => break assert!(found.is_ok()),
            }
        }
        assert!(refused > 8, "{refused} checkpoints");
    }

    /// Has a call make the file `new` in a directory, cancelled at every checkpoint: there is none, or what was
    /// there before, and nothing else.
    fn makes_all_or_nothing(least: u64, make: impl Fn(&Path, &Watch) -> Result<()>) {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("new");
        for before in [None, Some("what was there before")] {
            let names = if before.is_some() { vec!["new"] } else { vec![] };
            let mut refused = 0;
            loop {
                let _ = std::fs::remove_file(&target); // not there at first
                if let Some(before) = before {
                    std::fs::write(&target, before).unwrap();
                }
                match make(&target, &at(refused)) {
                    Err(error) => {
                        assert!(error.is_cancelled(), "{error}");
                        assert_eq!(listed(directory.path()), names, "checkpoint {refused}");
                        if let Some(before) = before {
                            assert_eq!(std::fs::read_to_string(&target).unwrap(), before);
                        }
                        refused += 1;
                    }
                    Ok(()) => break assert!(check::check(&target).unwrap().is_clean()),
                }
            }
            assert!(refused > least, "{refused} checkpoints");
        }
    }

    #[test]
    fn a_cancelled_mkfs_makes_no_file() {
        makes_all_or_nothing(5, |target, watch| {
            mkfs::Format::new().replace(true).watch(watch).create(target, 24 << 20)
        });
    }

    #[test]
    fn a_cancelled_build_makes_no_file() {
        let sources = tempfile::tempdir().unwrap();
        for nr in 0..10 {
            std::fs::create_dir(sources.path().join(format!("d{nr}"))).unwrap();
            std::fs::write(sources.path().join(format!("d{nr}/file")), vec![nr; 300_000]).unwrap();
        }
        makes_all_or_nothing(20, |target, watch| {
            let image = build::Image::new().folder(sources.path()).size(Size::Minimal).replace(true);
            image.watch(watch).create(target).map(drop)
        });
    }

    /// It was asked only when all data was written.
    #[test]
    fn regression_the_cancel_of_the_options_ends_the_writing_of_data() {
        let sources = tempfile::tempdir().unwrap();
        for nr in 0..20 {
            std::fs::write(sources.path().join(format!("file{nr}")), vec![nr; 1 << 20]).unwrap();
        }
        let own = Cancel::new();
        let asked = own.clone();
        let watch = Watch::new(move |progress| {
            if progress.step == Step::Data {
                asked.cancel();
            }
            ControlFlow::Continue(())
        });
        let image = build::Image::new().folder(sources.path()).with_options(|options| options.cancel = own);
        let target = tempfile::tempdir().unwrap();
        let error = image.watch(&watch).create(target.path().join("new")).unwrap_err();
        assert!(error.is_cancelled() && watch.is_cancelled(), "{error}");
        let Progress { done, total, .. } = watch.progress();
        assert!(Some(done) < total, "{done} of {total:?} bytes were written");
        assert!(listed(target.path()).is_empty());
    }

    #[test]
    fn progress_is_reported_to_the_end_of_each_step() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("file"), vec![7; 300_000]).unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&seen);
        let watch = Watch::new(move |progress| {
            list.lock().push(progress);
            ControlFlow::Continue(())
        });
        let image = directory.path().join("image");
        build::Image::new().folder(directory.path()).watch(&watch).create(&image).unwrap();
        check::check_watched(&image, &watch).unwrap();
        for step in [Step::Data, Step::Inodes, Step::Directories, Step::Bitmaps] {
            let seen = seen.lock();
            let last = seen.iter().rfind(|progress| progress.step == step).unwrap();
            assert_eq!(Some(last.done), last.total, "{step:?}");
        }
        assert!(seen.lock().iter().any(|progress| progress.step == Step::Sources));
    }
}
