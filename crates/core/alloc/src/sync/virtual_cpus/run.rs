//! The run loop: chooses the next CPU.
//!
//! Each virtual CPU is a coroutine; all of them share one thread of the host. The loop resumes the CPU with
//! the least clock. Before a job uses anything shared it checks whether its clock still is the least
//! ([`turn`]), and if not returns to the loop.

use super::costs::{Costs, Time};
use super::lines::{ByAddress, Lines, Use};
use crate::sync::Cost;
use generator::{Generator, Gn};
use hectare_units::{index_of, usize_of};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// The most virtual CPUs of a run.
pub(super) const CPUS_MAX: u32 = 256;
/// Words of a job's stack.
const STACK_WORDS: usize = 32 << 10;

/// A CPU that can run from that moment on.
type Ready = (Time, u32);

/// A lock as the CPUs of a run see it.
#[derive(Default)]
pub(super) struct Lock {
    pub(super) holder: Option<u32>,
    /// Its waiters, in the order they came.
    pub(super) waiters: VecDeque<Ready>,
    /// Its last holder.
    pub(super) last: Option<u32>,
}

/// What the CPUs of a run share.
pub(super) struct State {
    pub(super) costs: Costs,
    pub(super) lines: Lines,
    pub(super) locks: ByAddress<Lock>,
    /// Those that can run, but for the one that does.
    ready: BinaryHeap<Reverse<Ready>>,
}

/// The run of this thread of the host.
struct Run {
    /// The CPU that runs, if any does.
    cpu: Cell<Option<u32>>,
    clock: Cell<Time>,
    /// The first of the others.
    next: Cell<Option<Ready>>,
    state: RefCell<Option<State>>,
}

thread_local!(static RUN: Run = const {
    Run {
        cpu: Cell::new(None),
        clock: Cell::new(Time::ZERO),
        next: Cell::new(None),
        state: RefCell::new(None),
    }
});

/// Runs `job` on each of `cpus` virtual CPUs, with the number of its CPU, and returns when each ended.
/// Operations of a job on locks and atomics of this crate, and all of its work that is charged, take virtual
/// time; nothing else does.
///
/// # Panics
/// If `cpus` is not 1 to 256, if it is called from a job, if a job panics, or if no job can continue.
pub fn run(cpus: u32, costs: &Costs, job: impl Fn(u32) + Sync) -> Vec<Time> {
    assert!((1..=CPUS_MAX).contains(&cpus), "{cpus} virtual CPUs are not 1 to {CPUS_MAX}");
    let started = Started::new(cpus, costs);
    let job = &job;
    let coroutine = |cpu| Gn::<()>::new_opt(STACK_WORDS, move || job(cpu));
    let mut coroutines: Vec<Generator<'_, (), ()>> = (0..cpus).map(coroutine).collect();
    let mut ended = vec![Time::ZERO; usize_of(cpus)];
    let mut left = cpus;
    while left > 0 {
        let (_, cpu) = RUN.with(Run::resume_first).expect("virtual CPUs wait for each other in a circle");
        let coroutine = &mut coroutines[usize_of(cpu)];
        coroutine.resume();
        if coroutine.is_done() {
            ended[usize_of(cpu)] = now();
            left -= 1;
        }
    }
    drop(started);
    ended
}

/// A run, as long as it exists.
struct Started;

impl Started {
    fn new(cpus: u32, costs: &Costs) -> Self {
        let ready = (0..cpus).map(|cpu| Reverse((Time::ZERO, cpu))).collect();
        let state = State { costs: *costs, lines: Lines::default(), locks: ByAddress::default(), ready };
        RUN.with(|run| {
            assert!(run.state.borrow().is_none(), "a run inside a run");
            *run.state.borrow_mut() = Some(state);
        });
        Self
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        RUN.with(|run| {
            run.cpu.set(None);
            run.clock.set(Time::ZERO);
            *run.state.borrow_mut() = None;
        });
    }
}

impl Run {
    /// Makes the first CPU that can run the one that does.
    fn resume_first(&self) -> Option<Ready> {
        let mut state = self.state.borrow_mut();
        let ready = &mut state.as_mut()?.ready;
        let Reverse((time, cpu)) = ready.pop()?;
        self.next.set(ready.peek().map(|first| first.0));
        self.cpu.set(Some(cpu));
        self.clock.set(time);
        Some((time, cpu))
    }
}

/// Back to the loop; on return it is this CPU's turn again.
#[allow(deprecated)] // the other form needs a handle that would have to be passed through every function
fn switch() {
    generator::yield_with(());
}

/// Lets those CPUs go first whose clocks show less.
fn turn(run: &Run, cpu: u32) {
    let own = (run.clock.get(), cpu);
    // A CPU that unwinds continues alone: a panic ends the run.
    if run.next.get().is_some_and(|next| next < own) && !std::thread::panicking() {
        make_ready(run, own);
        switch();
    }
}

/// A CPU can run from that moment on.
fn make_ready(run: &Run, cpu: Ready) {
    if let Some(state) = run.state.borrow_mut().as_mut() {
        state.ready.push(Reverse(cpu));
    }
    if run.next.get().is_none_or(|next| cpu < next) {
        run.next.set(Some(cpu));
    }
}

/// What the running CPU does to what is shared, at its turn; nothing outside a run. `f` gets the CPU and its
/// clock, and returns when it is done.
fn at_turn<R>(f: impl FnOnce(&mut State, u32, Time) -> (Time, R)) -> Option<R> {
    RUN.with(|run| {
        let cpu = run.cpu.get()?;
        turn(run, cpu);
        let mut state = run.state.borrow_mut();
        let (done, result) = f(state.as_mut()?, cpu, run.clock.get());
        run.clock.set(done);
        Some(result)
    })
}

/// The running CPU uses a line.
pub(super) fn touch<T>(place: &T, how: Use) {
    let address = std::ptr::from_ref(place).addr();
    at_turn(|state, cpu, now| (state.lines.touch(&state.costs, now, cpu, address, how), ()));
}

impl State {
    fn lock(&mut self, address: usize) -> &mut Lock {
        self.locks.entry(address).or_default()
    }

    /// A lock has come to a CPU at that time; returns when the CPU can continue.
    fn taken(&mut self, address: usize, cpu: u32, at: Time) -> Time {
        let lock = self.lock(address);
        lock.holder = Some(cpu);
        let last = lock.last.replace(cpu);
        match last.filter(|last| *last != cpu) {
            Some(last) => at + self.costs.between(last, cpu) * self.costs.behind_lock,
            None => at,
        }
    }
}

/// Takes a lock if it is free at this moment.
pub(super) fn try_take(address: usize) -> bool {
    let attempt = |state: &mut State, cpu, now| {
        if state.lock(address).holder.is_some() {
            // The real one looks first, and writes only if it may.
            return (state.lines.touch(&state.costs, now, cpu, address, Use::Load), false);
        }
        let done = state.lines.touch(&state.costs, now, cpu, address, Use::Update);
        (state.taken(address, cpu, done), true)
    };
    at_turn(attempt).unwrap_or(true)
}

/// Whether a lock is held at this moment; the check costs a load.
pub(super) fn is_held(address: usize) -> bool {
    let look = |state: &mut State, cpu, now| {
        let held = state.lock(address).holder.is_some();
        (state.lines.touch(&state.costs, now, cpu, address, Use::Load), held)
    };
    at_turn(look).unwrap_or(false)
}

/// Takes a lock, waiting for it.
pub(super) fn take(address: usize) {
    if try_take(address) {
        return;
    }
    RUN.with(|run| {
        let Some(cpu) = run.cpu.get() else { return };
        let own = (run.clock.get(), cpu);
        if let Some(state) = run.state.borrow_mut().as_mut() {
            state.lock(address).waiters.push_back(own);
        }
        // The thread that releases the lock makes this CPU its holder, and ready.
        switch();
    });
}

/// Releases a lock to its first waiter.
pub(super) fn release(address: usize) {
    let pass_on = |state: &mut State, cpu, now| {
        let released = state.lines.touch(&state.costs, now, cpu, address, Use::Update);
        let lock = state.lock(address);
        lock.holder = None;
        let Some((since, next)) = lock.waiters.pop_front() else { return (released, None) };
        let has = state.lines.touch(&state.costs, released.max(since), next, address, Use::Update);
        (released, Some((state.taken(address, next, has), next)))
    };
    if let Some(Some(next)) = at_turn(pass_on) {
        RUN.with(|run| make_ready(run, next));
    }
}

/// The running CPU's clock: virtual time since the start of the run. Outside a run, 0.
#[must_use]
pub fn now() -> Time {
    RUN.with(|run| run.clock.get())
}

/// Charges the running CPU for something it has done `times` times.
pub(crate) fn charge(cost: Cost, times: u32) {
    RUN.with(|run| {
        if run.cpu.get().is_some()
            && let Some(state) = run.state.borrow().as_ref()
        {
            run.clock.set(run.clock.get() + state.costs.of(cost) * times);
        }
    });
}

/// Charges the running CPU for a change of the count of references to something shared.
pub(crate) fn count_reference<T>(shared: &std::sync::Arc<T>) {
    touch(&**shared, Use::Update);
}

/// The number of the virtual CPU that runs; outside a run, of the host's thread.
pub(crate) fn thread_number() -> usize {
    RUN.with(|run| run.cpu.get()).map_or_else(hectare_units::thread_number, |cpu| index_of(cpu.into()))
}

/// What the crate needs of threads.
pub(crate) mod thread {
    use super::{Cost, charge};

    /// Others may go first.
    pub(crate) fn yield_now() {
        // Not for nothing: waiting for others this way must not stop the time.
        charge(Cost::Request, 1);
    }
}
