//! The groups of a volume, coloured by their fate in a search.
//!
//! Each explanation gets a field of cells, one per group, or one for several where there are more than a
//! picture has room for; of several groups, and of several requests, the furthest fate is shown. Numbers may
//! be anything: what lies outside the volume is left out.

use super::{Units, counted, how, text};
use crate::picture::color::{BROKEN_UP, Color, FREE, INK, PALE_INK, PAPER, UNREADABLE, WHOLE};
use crate::picture::scene::{Anchor, Item, Rectangle, Scene, Size};
use hectare_alloc::{Event, What, Why};
use hectare_engine::Explanation;
use hectare_units::{u64_of, usize_of};

const WIDTH: u32 = 1200;
const MARGIN: u32 = 40;
const LABELS: u32 = 72;
/// Cells that a field has at most.
const CELLS_MAX: u32 = 6000;
/// The highest that all fields together get, roughly.
const HEIGHT: u32 = 720;
/// Characters of a line that fit into the width.
const LINE: usize = 122;

/// The fate of a group; the further, the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fate {
    NotLookedAt,
    ByIndex,
    ByClass,
    Passed,
    Unreadable,
    Busy,
    Scanned,
    Taken,
}

impl Fate {
    const ALL: [Self; 8] = [
        Self::NotLookedAt,
        Self::ByIndex,
        Self::ByClass,
        Self::Passed,
        Self::Busy,
        Self::Scanned,
        Self::Taken,
        Self::Unreadable,
    ];

    const fn of(what: What) -> Self {
        match what {
            What::Passed { why: Why::Index, .. } => Self::ByIndex,
            What::Passed { why: Why::Class, .. } => Self::ByClass,
            What::Passed { why: Why::Busy, .. } => Self::Busy,
            What::Passed { why: Why::Unreadable, .. } => Self::Unreadable,
            What::Passed { .. } => Self::Passed,
            What::Scanned { .. } => Self::Scanned,
            What::Taken { .. } => Self::Taken,
            _ => Self::NotLookedAt,
        }
    }

    const fn color(self) -> Color {
        match self {
            Self::NotLookedAt => FREE,
            Self::ByIndex => Color(0xb9, 0xc6, 0xd8),
            Self::ByClass => Color(0xc9, 0xb8, 0xdd),
            Self::Passed => Color(0x7f, 0x93, 0xb0),
            Self::Busy => Color(0xe8, 0xb0, 0x2f),
            Self::Scanned => WHOLE,
            Self::Taken => BROKEN_UP,
            Self::Unreadable => UNREADABLE,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::NotLookedAt => "not looked at",
            Self::ByIndex => "left out by the index",
            Self::ByClass => "of another size class",
            Self::Passed => "passed by for what is known of it",
            Self::Busy => "passed by, busy",
            Self::Scanned => "scanned",
            Self::Taken => "taken",
            Self::Unreadable => "can't be read",
        }
    }
}

/// The cells of one explanation.
struct Field<'a> {
    explanation: &'a Explanation,
    /// Groups of a cell.
    each: u32,
    cells: Vec<Fate>,
}

impl<'a> Field<'a> {
    fn of(explanation: &'a Explanation) -> Self {
        let groups = explanation.shape.groups.max(1);
        let each = groups.div_ceil(CELLS_MAX);
        let cells = vec![Fate::NotLookedAt; usize_of(groups.div_ceil(each))];
        let mut field = Self { explanation, each, cells };
        explanation
            .trace
            .requests
            .iter()
            .flat_map(|request| &request.events)
            .for_each(|event| field.add(event));
        field
    }

    fn add(&mut self, event: &Event) {
        let Some(last) = event.groups.checked_sub(1).map(|more| event.group.saturating_add(more)) else {
            return;
        };
        let (first, last) = (usize_of(event.group / self.each), usize_of(last / self.each));
        let fate = Fate::of(event.what);
        for cell in self.cells.iter_mut().skip(first).take(last.saturating_sub(first) + 1) {
            *cell = fate.max(*cell);
        }
    }

    /// The cell that the search started at.
    fn start(&self) -> Option<usize> {
        let request = self.explanation.trace.requests.first()?;
        (self.explanation.trace.requests.len() == 1).then(|| usize_of(request.asked.group / self.each))
    }

    fn name(&self, cell: u32) -> String {
        let first = cell.saturating_mul(self.each);
        let last = first.saturating_add(self.each - 1).min(self.explanation.shape.groups.saturating_sub(1));
        let block = Units::of(self.explanation)
            .block(u64::from(first).saturating_mul(self.explanation.shape.group_clusters.into()));
        let name = if first >= last { format!("group {first}") } else { format!("groups {first} to {last}") };
        format!("{name}, blocks from {block}")
    }
}

/// Draws explanations one below the other, of an image of this name.
pub(crate) fn scene(name: &str, explanations: &[Explanation]) -> Scene {
    let mut scene = Scene {
        width: WIDTH,
        height: 0,
        title: format!("{name}: where space is looked for"),
        items: Vec::new(),
    };
    scene.text((MARGIN, MARGIN), Size::Title, Anchor::Left, INK, &cut(name, 70));
    let mut y = MARGIN + 30;
    let room = HEIGHT / u32::try_from(explanations.len()).unwrap_or(1).max(1);
    for field in explanations.iter().map(Field::of) {
        y = heading(&mut scene, &field, y);
        y = cells(&mut scene, &field, y, room) + 30;
    }
    scene.height = legend(&mut scene, y, explanations) + MARGIN;
    let page = Rectangle { x: 0, y: 0, width: WIDTH, height: scene.height, color: PAPER };
    scene.items.insert(0, Item::Rectangle(page));
    scene
}

fn heading(scene: &mut Scene, field: &Field<'_>, y: u32) -> u32 {
    let trace = &field.explanation.trace;
    let policy = cut(&how(field.explanation), 90);
    scene.text((MARGIN, y), Size::Body, Anchor::Left, INK, &policy);
    let came = match &trace.requests[..] {
        [] => "no request".to_owned(),
        [only] => text::answer(Units::of(field.explanation), only),
        many => format!("the last {}", counted(u64_of(many.len()), "request")),
    };
    scene.text((MARGIN, y + 18), Size::Body, Anchor::Left, PALE_INK, &cut(&came, LINE));
    y + 42
}

/// The cells, no higher than `room` if they can be drawn so; the y after them.
fn cells(scene: &mut Scene, field: &Field<'_>, top: u32, room: u32) -> u32 {
    let left = MARGIN + LABELS;
    let width = WIDTH - MARGIN - left;
    let count = u32::try_from(field.cells.len()).unwrap_or(u32::MAX);
    let edge = (8..=44).rev().find(|edge| count.div_ceil(width / edge) * edge <= room).unwrap_or(8);
    let columns = width / edge;
    for (index, fate) in (0..count).zip(&field.cells) {
        let (row, column) = (index / columns, index % columns);
        let (x, y) = (left + column * edge, top + row * edge);
        if column == 0 && row % 20u32.div_ceil(edge) == 0 {
            let text = index.saturating_mul(field.each).to_string();
            scene.text((left - 12, y + 2), Size::Small, Anchor::Right, PALE_INK, &text);
        }
        scene.items.push(Item::Note(format!("{}: {}", field.name(index), fate.name())));
        if field.start() == Some(usize_of(index)) {
            scene.rectangle(x, y, edge - 1, edge - 1, INK);
            scene.rectangle(x + 2, y + 2, edge - 5, edge - 5, fate.color());
        } else {
            scene.rectangle(x, y, edge - 1, edge - 1, fate.color());
        }
    }
    scene.items.push(Item::Note(String::new()));
    top + count.div_ceil(columns) * edge
}

/// What the colours mean, with how many cells have each; the y after it.
fn legend(scene: &mut Scene, top: u32, explanations: &[Explanation]) -> u32 {
    let fields: Vec<Field<'_>> = explanations.iter().map(Field::of).collect();
    let mut y = top;
    let swatch = MARGIN + LABELS;
    for fate in Fate::ALL {
        let counts: Vec<usize> =
            fields.iter().map(|field| field.cells.iter().filter(|cell| **cell == fate).count()).collect();
        if counts.iter().all(|count| *count == 0) {
            continue;
        }
        scene.rectangle(swatch, y, 14, 14, fate.color());
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        let line = format!("{}: {}", fate.name(), counts.join(", "));
        scene.text((swatch + 22, y + 2), Size::Body, Anchor::Left, INK, &cut(&line, 100));
        y += 20;
    }
    if fields.iter().any(|field| field.start().is_some()) {
        scene.rectangle(swatch, y, 14, 14, INK);
        scene.rectangle(swatch + 2, y + 2, 10, 10, FREE);
        scene.text((swatch + 22, y + 2), Size::Body, Anchor::Left, INK, "where the search starts");
        y += 20;
    }
    let each = fields.iter().map(|field| field.each).max().unwrap_or(1);
    let line = format!("one cell: {}", counted(each.into(), "group"));
    scene.text((swatch, y + 6), Size::Small, Anchor::Left, PALE_INK, &line);
    y + 20
}

/// A text that fits into a line.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}
