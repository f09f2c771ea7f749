//! What an experiment runs, as data, and the samples of its sides.

use super::figure::Figure;
use super::{Part, Role, Row, Side};
use crate::bench::Settings;
use crate::run::Run;
use crate::target::engine::Through;
use crate::workload::Workload;
use hectare_alloc::Policy;
use hectare_tools::error::{Error, Result};

/// One table: a volume, a workload, the sides that run it, the figures that are shown.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) about: String,
    pub(super) volume: Volume,
    pub(super) workload: Workload,
    pub(super) threads: u32,
    pub(super) sides: Vec<Runner>,
    pub(super) figures: Vec<Shown>,
    pub(super) notes: Vec<String>,
}

/// The volume that every run gets a fresh copy of.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Volume {
    /// Bytes.
    pub(super) size: u64,
    /// Bytes of a block.
    pub(super) block: u32,
    /// How it is aged, if it is.
    pub(super) aged: Option<crate::age::Options>,
}

/// One contender.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Runner {
    pub(super) title: String,
    pub(super) role: Role,
    pub(super) how: How,
}

/// What a contender runs on.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum How {
    /// The engine.
    Engine(Through, Settings),
    /// The kernel's file system with mount options: ext4 on a copy of the volume, others on a volume of
    /// their own of the same size.
    Kernel(FileSystem, &'static str),
    /// One bare file.
    Raw,
}

/// File systems of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    /// Its name, for `mount` and for people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }
}

impl Runner {
    /// The engine with a policy.
    pub(super) fn engine(title: &str, role: Role, policy: Policy) -> Self {
        Self::with(title, role, Through::Cache, Settings { policy, ..Settings::default() })
    }

    /// The engine with all its settings.
    pub(super) fn with(title: &str, role: Role, through: Through, settings: Settings) -> Self {
        Self { title: title.to_owned(), role, how: How::Engine(through, settings) }
    }

    /// The kernel.
    pub(super) fn kernel(file_system: FileSystem, options: &'static str) -> Self {
        let title = format!("kernel {} {options}", file_system.name()).trim_end().to_owned();
        Self { title, role: Role::Beside, how: How::Kernel(file_system, options) }
    }
}

/// A figure that is shown: under which name, and what was published.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) figure: Figure,
    pub(super) published: [Option<f64>; 2],
    /// Whether the page has a chart of it.
    pub(super) drawn: bool,
}

impl Shown {
    /// The same, with a chart.
    pub(super) fn drawn(self) -> Self {
        Self { drawn: true, ..self }
    }
}

/// A figure for which nothing was published.
pub(super) fn shown(name: &str, figure: Figure) -> Shown {
    Shown { name: name.to_owned(), figure, published: [None; 2], drawn: false }
}

/// A figure, and what was published before and after.
pub(super) fn published(name: &str, figure: Figure, before: f64, after: f64) -> Shown {
    Shown { published: [Some(before), Some(after)], ..shown(name, figure) }
}

/// Policies of the experiments, which are known to be good.
pub(super) fn policy(text: &str) -> Policy {
    text.parse().expect("a policy of an experiment is put together from mechanisms there are")
}

/// Why a side gave no run.
#[derive(Debug)]
pub(super) enum Failed {
    /// It can't run here, which is no failure: the reason.
    LeftOut(String),
    /// It should have run.
    Broken(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// The sides of a section, and what they measured.
pub(super) struct Sides {
    sides: Vec<Side>,
    /// By figure and side.
    samples: Vec<Vec<Vec<f64>>>,
    remarks: Vec<String>,
}

impl Sides {
    pub(super) fn new(section: &Section, kernel: bool) -> Self {
        let side = |runner: &Runner| {
            let not_asked = !kernel && matches!(runner.how, How::Kernel(..));
            let left_out = not_asked.then(|| "not asked for".to_owned());
            Side { title: runner.title.clone(), role: runner.role, left_out }
        };
        let sides: Vec<Side> = section.sides.iter().map(side).collect();
        let samples = vec![vec![Vec::new(); sides.len()]; section.figures.len()];
        Self { sides, samples, remarks: Vec::new() }
    }

    pub(super) fn title(&self, nr: usize) -> &str {
        &self.sides[nr].title
    }

    /// The sides that run in a round, in an order that alternates: whatever drifts within a round must not
    /// be for or against one of them.
    pub(super) fn order(&self, round: u32) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.sides.len()).filter(|nr| self.sides[*nr].left_out.is_none()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        order
    }

    /// Takes what a side measured. One that can't run is left out from now on.
    pub(super) fn add(
        &mut self,
        nr: usize,
        figures: &[Shown],
        run: std::result::Result<Run, Failed>,
    ) -> Result<()> {
        let run = match run {
            Ok(run) => run,
            Err(Failed::LeftOut(reason)) => {
                self.sides[nr].left_out = Some(reason);
                return Ok(());
            }
            Err(Failed::Broken(error)) => return Err(error),
        };
        for (shown, samples) in figures.iter().zip(&mut self.samples) {
            samples[nr].extend(shown.figure.of(&run));
        }
        for remark in run.remarks {
            let remark = format!("{}: {remark}", self.sides[nr].title);
            if !self.remarks.contains(&remark) {
                self.remarks.push(remark);
            }
        }
        Ok(())
    }

    /// The table of all samples. A figure that no side has is no row.
    pub(super) fn part(self, section: Section) -> Part {
        let rows = section.figures.into_iter().zip(self.samples).map(|(shown, samples)| Row {
            name: shown.name,
            unit: shown.figure.unit(),
            published: shown.published,
            samples,
            drawn: shown.drawn,
        });
        let says = |row: &Row| row.published != [None; 2] || row.samples.iter().any(|side| !side.is_empty());
        Part {
            title: section.title,
            about: section.about,
            sides: self.sides,
            rows: rows.filter(says).collect(),
            points_of: None,
            notes: section.notes.into_iter().chain(self.remarks).collect(),
        }
    }
}
