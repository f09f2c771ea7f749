//! Lays out a surveyed volume on a page: title, cells, legend, free extents by size.

use super::survey::{BAND_COLUMNS, Cell, Shape, Survey};
use crate::picture::color::{
    self, BROKEN_UP, FREE, INK, LINE, METADATA, PALE_INK, PAPER, UNREADABLE, WHOLE, mix,
};
use crate::picture::scene::{Anchor, Item, Scene, Size};
use crate::picture::size_text;
use hectare_ext4::superblock::SuperBlock;
use hectare_units::{low32, u64_of, usize_of};

const WIDTH: u32 = 1200;
const MARGIN: u32 = 40;
const TOP: u32 = 126;
/// Room for the labels of groups.
const LABELS: u32 = 72;
/// The highest the cells get.
const FIELD_HEIGHT: u32 = 720;

/// What the title shows.
pub(crate) struct Facts<'a> {
    /// The image.
    pub(crate) name: String,
    /// Its superblock.
    pub(crate) superblock: &'a SuperBlock,
}

/// Places everything.
pub(crate) fn layout(facts: &Facts<'_>, survey: &Survey) -> Scene {
    let mut scene = Scene { width: WIDTH, height: 0, title: facts.name.clone(), items: Vec::new() };
    title(&mut scene, facts, survey);
    let bottom = match survey.shape {
        Shape::Bands { rows, .. } => bands(&mut scene, facts, survey, rows),
        Shape::Grid { groups } => grid(&mut scene, facts, survey, groups),
    };
    scene.items.push(Item::Note(String::new()));
    let legend = bottom + 34;
    let a = legend_at(&mut scene, legend, survey);
    let b = histogram(&mut scene, legend, facts, survey);
    scene.height = a.max(b) + MARGIN;
    // The page itself goes under everything, now that its height is known.
    let page =
        crate::picture::scene::Rectangle { x: 0, y: 0, width: WIDTH, height: scene.height, color: PAPER };
    scene.items.insert(0, Item::Rectangle(page));
    scene
}

fn title(scene: &mut Scene, facts: &Facts<'_>, survey: &Survey) {
    let sb = facts.superblock;
    let geometry = sb.geometry();
    let label = String::from_utf8_lossy(sb.label()).into_owned();
    let name = if label.is_empty() { facts.name.clone() } else { format!("{} ({label})", facts.name) };
    scene.text((MARGIN, MARGIN), Size::Title, Anchor::Left, INK, &shortened(&name, 70));
    let used = geometry.blocks_count.get().saturating_sub(survey.space.blocks());
    let percent = used.saturating_mul(100).checked_div(geometry.blocks_count.get()).unwrap_or(0);
    let group = size_text(u64::from(geometry.blocks_per_group()) << geometry.block_size.shift());
    let cluster = match geometry.cluster_ratio_shift {
        0 => String::new(),
        shift => format!(", {} clusters", size_text(geometry.block_size.bytes().get() << shift)),
    };
    let line = format!(
        "{}, {} blocks{cluster}, {} {} of {group}, {percent}% used",
        size_text(geometry.bytes().get()),
        size_text(geometry.block_size.bytes().get()),
        grouped(survey.groups.into()),
        if survey.groups == 1 { "group" } else { "groups" },
    );
    scene.text((MARGIN, MARGIN + 30), Size::Body, Anchor::Left, PALE_INK, &line);
    let bytes = |blocks: u64| size_text(blocks << geometry.block_size.shift());
    let space = &survey.space;
    let free = format!(
        "{} free in {} {}, the longest {}, {} on average",
        bytes(space.blocks()),
        grouped(space.extents()),
        if space.extents() == 1 { "extent" } else { "extents" },
        bytes(space.longest()),
        bytes(space.average()),
    );
    scene.text((MARGIN, MARGIN + 48), Size::Body, Anchor::Left, PALE_INK, &free);
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}

/// A number with commas between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A band of cells for each group; the y after the last.
fn bands(scene: &mut Scene, facts: &Facts<'_>, survey: &Survey, rows: u32) -> u32 {
    let geometry = facts.superblock.geometry();
    let left = MARGIN + LABELS;
    let width = (WIDTH - MARGIN - left) / BAND_COLUMNS;
    let gap = if rows > 1 { 6 } else { 1 };
    let all_gaps = gap * survey.groups;
    let height = (FIELD_HEIGHT.saturating_sub(all_gaps) / (rows * survey.groups)).clamp(6, 12);
    let every = (14 / (rows * height + gap)).max(1);
    let mut y = TOP;
    for group in 0..survey.groups {
        if group % every == 0 {
            let label_y = if rows * height > 12 { y + 1 } else { y };
            scene.text((left - 12, label_y), Size::Small, Anchor::Right, PALE_INK, &format!("group {group}"));
        }
        let first = usize_of(group * survey.cells_each());
        let cells = survey.cells.get(first..first + usize_of(survey.cells_each())).unwrap_or_default();
        let nr = hectare_units::GroupNr::new(group);
        let name = format!("group {group}, blocks from {}", geometry.first_block(nr));
        note(scene, &name, cells);
        let mut last_row = 0;
        for (index, cell) in (0u32..).zip(cells).filter(|(_, cell)| cell.blocks > 0) {
            let (row, column) = (index / BAND_COLUMNS, index % BAND_COLUMNS);
            last_row = row;
            draw_cell(scene, cell, (left + column * width, y + row * height), (width, height), rows > 1);
        }
        y += (last_row + 1) * height + gap;
    }
    y - gap
}

/// A cell for each group, or for several; the y after the last.
fn grid(scene: &mut Scene, facts: &Facts<'_>, survey: &Survey, groups: u32) -> u32 {
    let left = MARGIN + LABELS;
    let room = WIDTH - MARGIN - left;
    let count = u32::try_from(survey.cells.len()).unwrap_or(u32::MAX);
    let edge = (8..=44).rev().find(|edge| count.div_ceil(room / edge) * edge <= FIELD_HEIGHT).unwrap_or(8);
    let columns = room / edge;
    let label_rows = 20u32.div_ceil(edge);
    let geometry = facts.superblock.geometry();
    for (index, cell) in (0u32..).zip(&survey.cells) {
        let (row, column) = (index / columns, index % columns);
        let y = TOP + row * edge;
        let first = index.saturating_mul(groups);
        if column == 0 && row % label_rows == 0 {
            let text = grouped(first.into());
            scene.text((left - 12, y + 2), Size::Small, Anchor::Right, PALE_INK, &text);
        }
        let last = first.saturating_add(groups - 1).min(survey.groups - 1);
        let name = if groups == 1 { format!("group {first}") } else { format!("groups {first} to {last}") };
        let block = geometry.first_block(hectare_units::GroupNr::new(first));
        note(scene, &format!("{name}, blocks from {block}"), std::slice::from_ref(cell));
        draw_cell(scene, cell, (left + column * edge, y), (edge, edge), true);
    }
    scene.text((left - 12, TOP - 13), Size::Small, Anchor::Right, PALE_INK, "group");
    TOP + count.div_ceil(columns) * edge
}

fn note(scene: &mut Scene, name: &str, cells: &[Cell]) {
    let sum = |of: fn(&Cell) -> u64| cells.iter().map(of).sum::<u64>();
    let (blocks, free, metadata) = (sum(|c| c.blocks), sum(|c| c.free), sum(|c| c.metadata));
    let used = blocks.saturating_sub(free).saturating_mul(100).checked_div(blocks).unwrap_or(0);
    scene.items.push(Item::Note(format!("{name}: {used}% used, {free} blocks free, {metadata} of metadata")));
}

/// A cell: its colour, the format's share as a dark foot, and a hairline of paper between cells.
fn draw_cell(scene: &mut Scene, cell: &Cell, at: (u32, u32), size: (u32, u32), spaced: bool) {
    let (x, y) = at;
    let line = u32::from(size.0 >= 6);
    let (width, height) = (size.0 - line, size.1 - if spaced { line } else { 0 });
    if cell.unreadable {
        scene.rectangle(x, y, width, height, UNREADABLE);
        return;
    }
    scene.rectangle(x, y, width, height, color::cell(cell.fill(), cell.fragmentation()));
    let foot = match cell.metadata_share() {
        0 => 0,
        share => (share * height).div_ceil(256),
    };
    scene.rectangle(x, y + height - foot, width, foot, METADATA);
}

/// What the colours mean; the y after it.
fn legend_at(scene: &mut Scene, y: u32, survey: &Survey) -> u32 {
    let left = MARGIN + LABELS;
    scene.text((left, y), Size::Body, Anchor::Left, INK, "What the colours mean");
    let box_y = y + 44;
    let (steps, cell) = (12, 18);
    for fill in 0..steps {
        for fragmentation in 0..4 {
            let shade = color::cell(fill * 256 / (steps - 1), fragmentation * 256 / 3);
            scene.rectangle(left + 92 + fill * cell, box_y + fragmentation * cell, cell - 1, cell - 1, shade);
        }
    }
    let right = left + 92 + steps * cell;
    scene.text((left + 92, box_y - 14), Size::Small, Anchor::Left, PALE_INK, "empty");
    scene.text((right, box_y - 14), Size::Small, Anchor::Right, PALE_INK, "full");
    scene.text((left + 84, box_y + 5), Size::Small, Anchor::Right, PALE_INK, "free space");
    scene.text((left + 84, box_y + 16), Size::Small, Anchor::Right, PALE_INK, "in one piece");
    scene.text((left + 84, box_y + 3 * cell + 5), Size::Small, Anchor::Right, PALE_INK, "in many");
    let row = box_y + 4 * cell + 14;
    scene.rectangle(left + 92, row, cell - 1, cell - 1, color::cell(128, 0));
    scene.rectangle(left + 92, row + 9, cell - 1, cell - 10, METADATA);
    let what = "dark foot: the share of metadata";
    scene.text((left + 92 + cell + 6, row + 5), Size::Small, Anchor::Left, PALE_INK, what);
    let mut end = row + cell;
    if survey.cells.iter().any(|cell| cell.unreadable) {
        scene.rectangle(left + 92, end + 4, cell - 1, cell - 1, UNREADABLE);
        scene.text((left + 92 + cell + 6, end + 9), Size::Small, Anchor::Left, PALE_INK, "can't be read");
        end += 4 + cell;
    }
    let each = match survey.shape {
        Shape::Bands { blocks, .. } => format!("one cell: {}", counted(u64::from(blocks), "block")),
        Shape::Grid { groups } => format!("one cell: {}", counted(u64::from(groups), "group")),
    };
    scene.text((left + 92, end + 10), Size::Small, Anchor::Left, PALE_INK, &each);
    end + 20
}

fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Free blocks by the size of their extents; the y after it.
fn histogram(scene: &mut Scene, y: u32, facts: &Facts<'_>, survey: &Survey) -> u32 {
    let (left, right) = (MARGIN + LABELS + 470, WIDTH - MARGIN);
    let height = 100;
    let base = y + 44 + height;
    scene.text((left, y), Size::Body, Anchor::Left, INK, "Free space by size of extent");
    let classes = survey.space.classes();
    let used: Vec<usize> = (0..classes.len()).filter(|class| classes[*class].extents > 0).collect();
    let (Some(first), Some(last)) = (used.first(), used.last()) else {
        scene.text((left, y + 44), Size::Small, Anchor::Left, PALE_INK, "there is none");
        return base;
    };
    let classes = &classes[*first..=*last];
    let slot = ((right - left) / u32::try_from(classes.len()).unwrap_or(1).max(1)).min(64);
    let most = classes.iter().map(|class| class.blocks).max().unwrap_or(1).max(1);
    let block = facts.superblock.geometry().block_size.bytes().get();
    for (index, class) in (0u32..).zip(classes) {
        let x = left + index * slot;
        let bar =
            low32((u128::from(class.blocks) * u128::from(height) / u128::from(most)).try_into().unwrap_or(0));
        let bar = bar.max(u32::from(class.extents > 0));
        // Small extents in the colour of fragmentation, large ones in that of whole space.
        let length =
            low32(block.checked_shl(low32(u64_of(*first)) + index).unwrap_or(u64::MAX).ilog2().into());
        let warm = 256 - (length.saturating_sub(12) * 256 / 15).min(256);
        scene.rectangle(x, base - bar, slot - 3, bar, mix(FREE, mix(WHOLE, BROKEN_UP, warm), 230));
        if class.extents > 0 {
            let percent = u128::from(class.blocks) * 100 / u128::from(survey.space.blocks().max(1));
            let text = if percent == 0 { "<1%".to_owned() } else { format!("{percent}%") };
            scene.text((x + slot / 2 - 1, base - bar - 12), Size::Small, Anchor::Middle, PALE_INK, &text);
        }
        let size = short_size(block << (first + usize_of(index)));
        scene.text((x + slot / 2 - 1, base + 8), Size::Small, Anchor::Middle, PALE_INK, &size);
    }
    scene.rectangle(left, base + 2, slot * u32::try_from(classes.len()).unwrap_or(1), 1, LINE);
    let caption = "at least; height: share of the free space";
    scene.text((left, base + 22), Size::Small, Anchor::Left, PALE_INK, caption);
    base + 32
}

/// `4K`, `128M`.
fn short_size(bytes: u64) -> String {
    let unit = bytes.ilog2() / 10;
    let letter = ["", "K", "M", "G", "T", "P", "E"].get(usize_of(unit)).copied().unwrap_or("");
    format!("{}{letter}", bytes >> (10 * unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_long_names_cut() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(999), "999");
        assert_eq!(shortened("abcdefgh", 6), "abc...");
        assert_eq!(short_size(128 << 20), "128M");
    }
}
