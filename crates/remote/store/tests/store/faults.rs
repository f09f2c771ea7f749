//! Requests that fail, lose their answer or get none: repeated, and never done twice with another outcome.

use crate::fault_store::{Fate, FaultStore};
use crate::setup::{content, impatient, made, opened, options, stored, whole};
use hectare_device::{Clock, Device};
use hectare_store::Options;
use hectare_units::Bytes;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;
use std::time::Duration;

fn stores() -> (Arc<FaultStore>, Arc<dyn ObjectStore>) {
    let faults = FaultStore::new(Arc::new(InMemory::new()));
    (Arc::clone(&faults), faults)
}

#[test]
fn every_third_request_fails_in_some_way_and_nothing_is_noticed() {
    for fate in [Fate::Refused, Fate::Lost, Fate::Silent, Fate::Stuck] {
        let (faults, store) = stores();
        faults.rule(
            move |request| {
                if request.number % 3 == 1 && request.kind != "delete" { fate } else { Fate::Done }
            },
        );
        let logs = tempfile::tempdir().unwrap();
        let options =
            Options { attempt: Duration::from_millis(60), clock: Clock::fast(10), ..options(logs.path()) };
        let device = made(&store, Bytes::mib(1), &options);
        let mut expected = vec![0; 1 << 20];
        for turn in 0..6_u8 {
            let at = usize::from(turn) * 70_000;
            device.write_at(Bytes::of(at), &vec![turn + 1; 90_000]).unwrap();
            expected[at..at + 90_000].fill(turn + 1);
            device.flush().unwrap();
        }
        assert!(content(&device) == expected, "{fate:?}");
        assert!(device.cost().retries > 5, "{fate:?}");
        drop(device);
        faults.rule(|_| Fate::Done);
        assert!(stored(&store) == expected, "{fate:?}");
    }
}

#[test]
fn a_lost_answer_to_the_swap_is_no_failure() {
    for fate in [Fate::Lost, Fate::Silent] {
        let (faults, store) = stores();
        let logs = tempfile::tempdir().unwrap();
        let options = Options { attempt: Duration::from_millis(100), ..options(logs.path()) };
        let device = made(&store, Bytes::mib(1), &options);
        let mut left = 2;
        faults.rule(move |request| {
            let strikes = request.kind == "swap" && request.name.ends_with("manifest") && left > 0;
            left -= usize::from(strikes);
            if strikes { fate } else { Fate::Done }
        });
        device.write_at(Bytes::ZERO, b"here").unwrap();
        device.flush().unwrap();
        device.write_at(Bytes::new(4), b" too").unwrap();
        device.flush().unwrap();
        assert_eq!(&stored(&store)[..8], b"here too");
    }
}

#[test]
fn a_store_that_stays_away_fails_the_flush_and_everything_after_without_secrets() {
    let (faults, store) = stores();
    let logs = tempfile::tempdir().unwrap();
    let device = made(&store, Bytes::mib(1), &impatient(logs.path()));
    device.write_at(Bytes::ZERO, b"old").unwrap();
    device.flush().unwrap();
    device.write_at(Bytes::ZERO, b"new").unwrap();
    faults.rule(|request| if request.kind == "put" { Fate::Refused } else { Fate::Done });
    let error = device.flush().unwrap_err().to_string();
    assert!(error.contains("can't write") && error.contains("the line is broken"), "{error}");
    assert!(!error.contains("hunter2") && !error.contains('\n'), "{error}");
    faults.rule(|_| Fate::Done);
    // What is there is unknown by now, so nothing is promised any more.
    for error in [device.flush().unwrap_err(), device.write_at(Bytes::ZERO, b"x").unwrap_err()] {
        assert!(error.to_string().contains("an earlier flush failed"), "{error}");
    }
    assert_eq!(&content(&device)[..3], b"new");
    assert_eq!(&stored(&store)[..3], b"old");
    drop(device);
    // The log has it.
    let device = opened(&store, &options(logs.path())).unwrap();
    assert_eq!(&content(&device)[..3], b"new");
    assert_eq!(device.notes().len(), 1, "{:?}", device.notes());
    assert_eq!(crate::setup::objects(&store).len(), 2);
}

#[test]
fn objects_that_can_not_be_deleted_are_garbage_that_is_found() {
    let (faults, store) = stores();
    let logs = tempfile::tempdir().unwrap();
    let options = whole(logs.path());
    let device = made(&store, Bytes::mib(1), &options);
    faults.rule(|request| if request.kind == "delete" { Fate::Refused } else { Fate::Done });
    for turn in 0..3 {
        device.write_at(Bytes::ZERO, &[turn + 1]).unwrap();
        device.flush().unwrap();
    }
    drop(device);
    faults.rule(|_| Fate::Done);
    let bucket = crate::setup::bucket(&store, &options);
    let kept = hectare_store::sweep(&bucket, &options, true).unwrap();
    assert_eq!((kept.used, kept.garbage, kept.left), (2, 4, 4));
    let swept = hectare_store::sweep(&bucket, &options, false).unwrap();
    assert_eq!((swept.used, swept.garbage, swept.left), (2, 4, 0));
    assert_eq!(crate::setup::objects(&store).len(), 2);
    assert_eq!(stored(&store)[0], 3);
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    /// The fault store can't do that: it is one of its own.
    #[derive(Debug)]
    struct Careless(InMemory);
    impl std::fmt::Display for Careless {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("careless")
        }
    }
    #[async_trait::async_trait]
    impl ObjectStore for Careless {
        async fn put_opts(
            &self,
            location: &object_store::path::Path,
            payload: object_store::PutPayload,
            _: object_store::PutOptions,
        ) -> object_store::Result<object_store::PutResult> {
            self.0.put_opts(location, payload, object_store::PutOptions::default()).await
        }
        async fn put_multipart_opts(
            &self,
            location: &object_store::path::Path,
            opts: object_store::PutMultipartOptions,
        ) -> object_store::Result<Box<dyn object_store::MultipartUpload>> {
            self.0.put_multipart_opts(location, opts).await
        }
        async fn get_opts(
            &self,
            location: &object_store::path::Path,
            options: object_store::GetOptions,
        ) -> object_store::Result<object_store::GetResult> {
            self.0.get_opts(location, options).await
        }
        fn delete_stream(
            &self,
            locations: futures_util::stream::BoxStream<
                'static,
                object_store::Result<object_store::path::Path>,
            >,
        ) -> futures_util::stream::BoxStream<'static, object_store::Result<object_store::path::Path>>
        {
            self.0.delete_stream(locations)
        }
        fn list(
            &self,
            prefix: Option<&object_store::path::Path>,
        ) -> futures_util::stream::BoxStream<'static, object_store::Result<object_store::ObjectMeta>>
        {
            self.0.list(prefix)
        }
        async fn list_with_delimiter(
            &self,
            prefix: Option<&object_store::path::Path>,
        ) -> object_store::Result<object_store::ListResult> {
            self.0.list_with_delimiter(prefix).await
        }
        async fn copy_opts(
            &self,
            from: &object_store::path::Path,
            to: &object_store::path::Path,
            options: object_store::CopyOptions,
        ) -> object_store::Result<()> {
            self.0.copy_opts(from, to, options).await
        }
    }
    let store: Arc<dyn ObjectStore> = Arc::new(Careless(InMemory::new()));
    let logs = tempfile::tempdir().unwrap();
    let options = options(logs.path());
    hectare_store::create(&crate::setup::bucket(&store, &options), Bytes::mib(1), crate::setup::CHUNK)
        .unwrap();
    let error = opened(&store, &options).err().unwrap().to_string();
    assert!(error.contains("ignores the conditions of puts"), "{error}");
}
