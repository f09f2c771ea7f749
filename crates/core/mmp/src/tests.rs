//! Two hosts and one volume, by a clock that the tests set.

use crate::block::{MmpBlock, program_of, user_name};
use crate::guard::Wait;
use crate::lease::Lease;
use hectare_device::{Device, Fence, FencedDevice, Mark, MemoryDevice};
use hectare_ext4::mmp::{Mmp, Status};
use hectare_units::{BlockNr, Bytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const PLACE: MmpBlock = MmpBlock { at: Bytes::new(4096), block: BlockNr::new(4), seed: None };

fn mark(node: &str, sequence: u32, check_interval: u16) -> Mmp {
    let status = Status::InUse { node: node.into(), device: "hectare[7] vol".into(), sequence };
    Mmp { status, time: 1_800_000_000, check_interval }
}

/// One host's lease on a device, and how often its alarm rang.
struct Host {
    lease: Arc<Lease>,
    fence: Arc<dyn Fence>,
    device: FencedDevice<Arc<MemoryDevice>>,
    alarms: Arc<AtomicUsize>,
}

impl Host {
    fn takes(device: &Arc<MemoryDevice>, time: &Arc<AtomicU64>, mark: Mmp) -> Self {
        PLACE.write(&**device, &mark).unwrap();
        let (time, alarms) = (Arc::clone(time), Arc::new(AtomicUsize::new(0)));
        let clock = move || Duration::from_millis(time.load(Ordering::SeqCst));
        let rings = Arc::clone(&alarms);
        let alarm = Box::new(move || {
            rings.fetch_add(1, Ordering::SeqCst);
        });
        let seen = clock();
        let lease = Arc::new(Lease::new(PLACE, Box::new(clock), mark, seen, alarm));
        let fence: Arc<dyn Fence> = Arc::clone(&lease) as _;
        let device = FencedDevice::new(Arc::clone(device), PLACE.at, Arc::clone(&fence));
        Self { lease, fence, device, alarms }
    }

    fn writes(&self) -> hectare_device::Result<()> {
        self.device.write_at(Bytes::ZERO, b"x")
    }
}

fn setting() -> (Arc<MemoryDevice>, Arc<AtomicU64>) {
    (Arc::new(MemoryDevice::new(Bytes::kib(64))), Arc::new(AtomicU64::new(1_000_000)))
}

#[test]
fn a_host_that_was_stopped_writes_nothing_after_another_has_taken_the_volume() {
    let (device, time) = setting();
    let first = Host::takes(&device, &time, mark("a", 10, 10));
    first.writes().unwrap();
    // The first is stopped; the other waits 21 s, takes the volume, and waits 21 s again.
    time.fetch_add(21_000, Ordering::SeqCst);
    let second = Host::takes(&device, &time, mark("b", 500, 10));
    device.write_at(Bytes::ZERO, b"?").unwrap();
    let before = device.to_vec();
    let error = first.writes().unwrap_err().to_string();
    assert!(
        error.contains("host b, program hectare (process 7), device vol, last seen 2027-01-15"),
        "{error}"
    );
    assert!(first.device.flush().is_err() && first.writes().is_err());
    assert!(!first.lease.renew(&*device, mark("a", 11, 10)).unwrap());
    assert!(device.to_vec() == before, "the first changed something");
    assert_eq!((first.alarms.load(Ordering::SeqCst), second.alarms.load(Ordering::SeqCst)), (1, 0));
    second.writes().unwrap();
    // Even a mark of ours that appears again changes nothing of that.
    PLACE.write(&*device, &mark("a", 10, 10)).unwrap();
    assert!(first.writes().is_err());
}

/// Whatever the moment at which the other looks and writes its mark, and however long the first is stopped: no
/// write of the first begins after the moment from which the other may write.
#[test]
fn no_write_begins_when_the_other_may_have_begun() {
    for interval in [5_u16, 10, 40, 300] {
        let wait = 1000 * u64::from((2 * interval + 1).min(interval + 60));
        for stopped in (0..6 * wait).step_by(997) {
            for taken_after in [wait, wait + 1, wait + 400, 2 * wait] {
                let (device, time) = setting();
                let first = Host::takes(&device, &time, mark("a", 10, interval));
                let other_writes = taken_after + wait;
                if taken_after <= stopped {
                    PLACE.write(&*device, &mark("b", 500, interval)).unwrap();
                }
                time.fetch_add(stopped, Ordering::SeqCst);
                let admitted = first.writes().is_ok();
                assert!(!admitted || stopped < taken_after, "{interval}: {stopped}, {taken_after}");
                assert!(!admitted || stopped < other_writes);
            }
        }
    }
    // The mark is put there right after it was seen: it is not noticed before the interval is over, and the
    // other has not begun by then.
    let (device, time) = setting();
    let first = Host::takes(&device, &time, mark("a", 10, 10));
    PLACE.write(&*device, &mark("b", 500, 10)).unwrap();
    let admitted = (0..60).take_while(|_| {
        let admitted = first.writes().is_ok();
        time.fetch_add(1000, Ordering::SeqCst);
        admitted
    });
    assert_eq!(admitted.count(), 10);
}

#[test]
fn a_shorter_interval_counts_before_it_is_durable_and_a_longer_one_after() {
    let (device, time) = setting();
    let host = Host::takes(&device, &time, mark("a", 10, 10));
    let fresh_for = |host: &Host| {
        let start = time.load(Ordering::SeqCst);
        let seconds = (0..400).take_while(|second| {
            time.store(start + second * 1000, Ordering::SeqCst);
            host.fence.is_fresh()
        });
        let seconds = seconds.count();
        time.store(start, Ordering::SeqCst);
        seconds
    };
    assert_eq!(fresh_for(&host), 10);
    assert!(host.lease.renew(&*device, mark("a", 11, 40)).unwrap());
    assert_eq!(fresh_for(&host), 40);
    let faulty = hectare_device::FaultDevice::new(Arc::clone(&device));
    let rule = hectare_device::Rule::new(hectare_device::Outcome::IO).on(&[hectare_device::Operation::Flush]);
    faulty.add(rule);
    assert!(host.lease.renew(&faulty, mark("a", 12, 5)).is_err());
    assert_eq!(fresh_for(&host), 5);
    // Either of both may be what a server that crashed has.
    for sequence in [11, 12] {
        let judged = host.lease.judge(Duration::from_secs(1), &mark("a", sequence, 5).render(None));
        assert_eq!(judged, Mark::Ours);
    }
}

#[test]
fn marks_of_others_and_older_ones_are_not_ours() {
    let (device, time) = setting();
    let others = [mark("b", 11, 10), mark("a", 9, 10), mark("a", 12, 10)];
    let other_process = {
        let status = Status::InUse { node: "a".into(), device: "hectare[8] vol".into(), sequence: 11 };
        Mmp { status, time: 0, check_interval: 10 }
    };
    let clean = Mmp { status: Status::Clean, time: 0, check_interval: 10 };
    for other in others.into_iter().chain([other_process, clean]) {
        let host = Host::takes(&device, &time, mark("a", 10, 10));
        assert!(host.lease.renew(&*device, mark("a", 11, 10)).unwrap());
        let judged = host.lease.judge(Duration::from_secs(1), &other.render(None));
        assert!(matches!(judged, Mark::Lost(_)), "{other:?}");
    }
    let host = Host::takes(&device, &time, mark("a", 10, 10));
    assert!(matches!(host.lease.judge(Duration::ZERO, &[0; 1024]), Mark::Unclear(_)));
}

#[test]
fn hosts_that_find_the_volume_clean_at_once_wait_long_enough_to_see_each_other() {
    let second = Duration::from_secs;
    let settle = Wait::Settle(second(5), second(1), second(21));
    assert_eq!(settle.after(second(5)), second(1));
    assert_eq!(settle.after(second(6)), second(1));
    assert_eq!(settle.after(Duration::from_millis(6001)), second(21));
    let kernel = Wait::Settle(second(5), Duration::ZERO, second(21));
    assert_eq!(kernel.after(second(99)), Duration::ZERO);
    assert_eq!(Wait::Full(second(11)).after(second(99)), second(11));
}

#[test]
fn the_program_is_in_the_name() {
    assert_eq!(program_of("hectare[12] vol"), Some(("hectare", "12", "vol")));
    for other in ["sdz", "dm-0 x", "a[b] c", "a[] c", "[1]"] {
        assert!(program_of(other).is_none(), "{other}");
    }
    let name = user_name("nbd+unix:///exports/vol?socket=/run/s");
    assert!(name.ends_with("] vol") && program_of(&name).is_some(), "{name}");
}

/// The mark of a volume whose protection moves: it is judged, and renewed, in its new place only.
#[test]
fn a_mark_that_moves_leaves_its_old_place_alone() {
    let (device, time) = setting();
    let host = Host::takes(&device, &time, mark("a", 10, 10));
    let to = MmpBlock { at: Bytes::new(8192), block: BlockNr::new(8), seed: None };
    assert!(host.lease.moved(&*device, Some(to)).unwrap() && !host.lease.moved(&*device, Some(to)).unwrap());
    device.write_at(PLACE.at, &[7; 1024]).unwrap();
    time.fetch_add(60_000, Ordering::SeqCst);
    let write = || host.lease.check(&*device, hectare_device::Operation::Write);
    write().unwrap();
    assert!(host.lease.renew(&*device, mark("a", 11, 10)).unwrap());
    let mut old = [0; 1024];
    device.read_at(PLACE.at, &mut old).unwrap();
    assert!(old == [7; 1024]);
    to.write(&*device, &mark("b", 500, 10)).unwrap();
    time.fetch_add(60_000, Ordering::SeqCst);
    assert!(write().unwrap_err().to_string().contains("host b"));
    // Where there is no protection any more, nothing is judged or written.
    let host = Host::takes(&device, &time, mark("a", 10, 10));
    assert!(host.lease.moved(&*device, None).unwrap());
    device.write_at(PLACE.at, &[7; 1024]).unwrap();
    time.fetch_add(60_000, Ordering::SeqCst);
    host.lease.check(&*device, hectare_device::Operation::Write).unwrap();
    assert!(host.lease.renew(&*device, mark("a", 11, 10)).unwrap());
    device.read_at(PLACE.at, &mut old).unwrap();
    assert!(old == [7; 1024]);
}
