//! Overwrites without a transaction: direct I/O over blocks that are there, and the same past the page cache
//! altogether.

use super::figure::Figure;
use super::plan::{FileSystem, How, Runner, Section, Volume, published, shown};
use super::{Experiment, Options, Part, Role, sections};
use crate::bench::Settings;
use crate::target::Access;
use crate::target::engine::Through;
use crate::workload::{Workload, random_overwrite};
use hectare_tools::error::Result;
use std::time::Duration;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "overwrite",
    title: "overwrites of blocks that are there start no transaction",
    source: "Jan Kara, \"ext4: Optimize ext4 DIO overwrites\", linux-ext4, 2019-12-18",
    differs: "The published device is simulated persistent memory, 16 GiB of files, 16 CPUs. Here the volume \
              lies where --work says (memory as a rule) and the files are smaller, so rates are not to be \
              compared, only their ratio. \"dax\" maps the image into this process, where the kernel's maps \
              the device; its peer is \"raw\", pread and pwrite on a bare file.",
    make,
};

const THREADS: u32 = 16;

fn make(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Part>> {
    let engine = |title, role, through, overwrite_handles| {
        let settings = Settings { overwrite_handles, ..Settings::default() };
        Runner::with(title, role, through, settings)
    };
    let raw = || Runner { title: "raw".into(), role: Role::Beside, how: How::Raw };
    let both = |through| {
        vec![
            engine("a handle a write", Role::Before, through, true),
            engine("none", Role::After, through, false),
            raw(),
        ]
    };
    let mut direct = both(Through::Direct);
    direct.push(Runner::kernel(FileSystem::Ext4, ""));
    let section = |title: &str, sides, before, after| Section {
        title: title.to_owned(),
        about: "16 threads read and write 4 KiB at random, half of each, in 32 files that are written".into(),
        volume: Volume { size: if options.quick { 1 << 30 } else { 8 << 30 }, block: 4096, aged: None },
        workload: Workload::RandomOverwrite(random_overwrite::Options {
            size: if options.quick { 4 << 20 } else { 128 << 20 },
            ramp: Duration::from_millis(if options.quick { 50 } else { 1000 }),
            time: Duration::from_millis(if options.quick { 300 } else { 5000 }),
            access: Access::Direct,
            ..random_overwrite::Options::default()
        }),
        threads: THREADS,
        sides,
        figures: vec![
            published("MB/s", Figure::Bandwidth, before, after).drawn(),
            shown("reads per second", Figure::JobRate("reads")),
            shown("writes per second", Figure::JobRate("writes")),
            shown("handles per write", Figure::HandlesPerWrite).drawn(),
            shown("processor, user", Figure::UserTime),
            shown("processor, kernel", Figure::SystemTime),
        ],
        notes: Vec::new(),
    };
    let all = vec![
        section("direct I/O", direct, 3018.0, 4059.0),
        section("dax", both(Through::Dax), 3042.0, 4311.0),
    ];
    sections(all, options, say)
}
