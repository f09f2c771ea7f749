//! What the text of a volume group says: its physical volumes, its logical volumes and where they lie.
//!
//! Numbers of places are extents, whose length the group has; lengths of chunks and the place where the extents
//! of a physical volume begin are sectors of 512 bytes.
//!
//! Hazards. *A logical volume that looks plain may not be*: the store of a snapshot, the parts of a mirror or of
//! a pool are linear themselves, and hold something else than what programs saw on the volume. Nothing but
//! visible volumes of plain segments is [`Kind::Plain`], all else is refused by name.
//! *Numbers lie*: everything is added up with checks, and no two volumes may share an extent.

use crate::text::{Section, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The longest name of a group or volume that LVM2 takes.
const NAME_MAX: usize = 127;
/// The most segments of all volumes: more than a text of 8 MiB can have.
const SEGMENTS_MAX: u64 = 1 << 20;

/// A volume group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Its UUID, without dashes.
    pub(crate) id: String,
    /// How often it was changed.
    pub(crate) seqno: u64,
    /// The length of an extent in sectors.
    pub(crate) extent: u64,
    /// Whether several machines have it at once, and agree on who writes by locks.
    pub(crate) is_shared: bool,
    pub(crate) physical: BTreeMap<String, Physical>,
    pub(crate) logical: BTreeMap<String, Logical>,
}

/// A physical volume, as its group knows it.
#[derive(Clone, Debug)]
pub(crate) struct Physical {
    /// Its UUID, without dashes.
    pub(crate) id: String,
    /// Where it was found when the group was changed last.
    pub(crate) hint: String,
    /// The sector at which its extents begin, and how many there are.
    pub(crate) start: u64,
    pub(crate) extents: u64,
    /// Whether the group was changed without it.
    pub(crate) is_missing: bool,
}

/// A logical volume.
#[derive(Clone, Debug)]
pub(crate) struct Logical {
    pub(crate) kind: Kind,
    /// Its length in extents.
    pub(crate) extents: u64,
    pub(crate) segments: Vec<Segment>,
    /// Whether its group lets it be written.
    pub(crate) is_writable: bool,
    /// Whether snapshots of it exist, which hold what is overwritten in it.
    pub(crate) has_snapshots: bool,
}

/// What a logical volume is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Its bytes are those of its segments.
    Plain,
    /// Something else; in words.
    Other(String),
}

/// A part of a logical volume, in one or several stripes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    /// Its first extent in the logical volume, and how many there are.
    pub(crate) first: u64,
    pub(crate) extents: u64,
    /// The bytes of a stripe that follow one another, in sectors.
    pub(crate) chunk: u64,
    /// The physical volume and the first extent of each stripe.
    pub(crate) stripes: Vec<(String, u64)>,
}

impl Segment {
    /// How many extents each stripe has.
    pub(crate) fn per_stripe(&self) -> u64 {
        self.extents / hectare_units::u64_of(self.stripes.len()).max(1)
    }
}

fn undashed(id: &str) -> String {
    id.chars().filter(|c| *c != '-').collect()
}

/// Whether LVM2 takes a name.
pub(crate) fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    !name.is_empty() && name.len() <= NAME_MAX && !name.starts_with(['-', '.']) && name.bytes().all(known)
}

impl Group {
    /// Reads a text. An error says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let top = Section::parse(text)?;
        let mut groups = top.sections();
        let (name, section) = groups.next().ok_or("there is no volume group")?;
        if groups.next().is_some() || !is_name(name) {
            return Err("there should be one volume group with a name that LVM2 takes".to_owned());
        }
        let number = |name: &str| section.number(name).ok_or_else(|| format!("the group has no {name}"));
        let extent = number("extent_size")?;
        if extent == 0 || extent > u64::from(u32::MAX) {
            return Err("the length of an extent is impossible".to_owned());
        }
        if !matches!(section.text("format"), Some("lvm2") | None) {
            return Err("its format is not lvm2".to_owned());
        }
        let mut group = Self {
            name: name.to_owned(),
            id: undashed(section.text("id").ok_or("the group has no id")?),
            seqno: number("seqno")?,
            extent,
            is_shared: section.text("lock_type").is_some_and(|kind| kind != "none")
                || section.lists("status", "CLUSTERED"),
            physical: BTreeMap::new(),
            logical: BTreeMap::new(),
        };
        for (name, found) in section.section("physical_volumes").into_iter().flat_map(Section::sections) {
            let physical =
                Physical::parse(found).ok_or_else(|| format!("physical volume {name} lacks something"))?;
            group.physical.insert(name.to_owned(), physical);
        }
        let writable = section.lists("status", "WRITE");
        if let Some(volumes) = section.section("logical_volumes") {
            group.read_logical(volumes, writable)?;
        }
        group.check_sharing()?;
        Ok(group)
    }

    fn read_logical(&mut self, volumes: &Section<'_>, writable: bool) -> Result<(), String> {
        for (name, found) in volumes.sections() {
            if !is_name(name) {
                return Err("a logical volume has a name that LVM2 does not take".to_owned());
            }
            let mut logical =
                Logical::parse(found).map_err(|what| format!("logical volume {name}: {what}"))?;
            logical.is_writable &= writable;
            self.logical.insert(name.to_owned(), logical);
        }
        // What snapshots say of others.
        for (_, found) in volumes.sections() {
            for (_, segment) in
                found.sections().filter(|(_, segment)| segment.text("type") == Some("snapshot"))
            {
                let named = |key: &str| segment.text(key).map(str::to_owned);
                if let Some(store) = named("cow_store").and_then(|name| self.logical.get_mut(&name)) {
                    store.kind = Kind::Other("it is a snapshot".to_owned());
                }
                let merges = named("merging_store");
                if let Some(origin) = named("origin").and_then(|name| self.logical.get_mut(&name)) {
                    origin.has_snapshots = true;
                    if merges.is_some() {
                        origin.kind = Kind::Other("a snapshot is being merged into it".to_owned());
                    }
                }
                if let Some(store) = merges.and_then(|name| self.logical.get_mut(&name)) {
                    store.kind = Kind::Other("it is a snapshot that is being merged".to_owned());
                }
            }
        }
        let names: BTreeSet<String> = self.logical.keys().cloned().collect();
        for logical in self.logical.values_mut() {
            let stripes = logical.segments.iter().flat_map(|segment| &segment.stripes);
            let known = |name: &&String| !self.physical.contains_key(*name);
            let unknown = stripes.map(|(name, _)| name).find(known);
            if let (Some(name), Kind::Plain) = (unknown, &logical.kind) {
                if !names.contains(name) {
                    return Err(format!("a segment lies on {}, which is not there", name.escape_debug()));
                }
                let what =
                    format!("it lies on another logical volume, {name} (is it being moved by pvmove?)");
                logical.kind = Kind::Other(what);
            }
        }
        Ok(())
    }

    /// Checks that plain segments lie inside the extents of their physical volumes, each alone.
    fn check_sharing(&self) -> Result<(), String> {
        let mut taken: Vec<(&str, u64, u64, &str)> = Vec::new();
        for (name, logical) in &self.logical {
            for segment in &logical.segments {
                for (on, first) in &segment.stripes {
                    let Some(physical) = self.physical.get(on) else { continue };
                    let end = first.checked_add(segment.per_stripe());
                    let end = end.filter(|end| *end <= physical.extents);
                    let end =
                        end.ok_or_else(|| format!("logical volume {name} reaches beyond the end of {on}"))?;
                    taken.push((on, *first, end, name));
                }
            }
        }
        taken.sort_unstable();
        for pair in taken.windows(2) {
            let [(on, _, end, name), (next_on, first, _, other)] = [pair[0], pair[1]];
            if on == next_on && first < end {
                return Err(format!("logical volumes {name} and {other} share extents of {on}"));
            }
        }
        Ok(())
    }
}

impl Physical {
    fn parse(section: &Section<'_>) -> Option<Self> {
        Some(Self {
            id: undashed(section.text("id")?),
            hint: section.text("device").unwrap_or_default().to_owned(),
            start: section.number("pe_start")?,
            extents: section.number("pe_count")?,
            is_missing: section.lists("flags", "MISSING") || section.lists("status", "MISSING"),
        })
    }
}

impl Logical {
    fn parse(section: &Section<'_>) -> Result<Self, String> {
        let count = section.number("segment_count").ok_or("it has no count of segments")?;
        let mut logical = Self {
            kind: Kind::Plain,
            extents: 0,
            segments: Vec::new(),
            is_writable: section.lists("status", "WRITE"),
            has_snapshots: false,
        };
        if count > SEGMENTS_MAX {
            return Err("it has more segments than can be".to_owned());
        }
        for number in 1..=count {
            let found = section.section(&format!("segment{number}"));
            let found = found.ok_or_else(|| format!("it has no segment {number}"))?;
            logical.take(found).map_err(|what| format!("segment {number}: {what}"))?;
        }
        if !section.lists("status", "VISIBLE") && logical.kind == Kind::Plain {
            logical.kind = Kind::Other("it is a part of another one".to_owned());
        }
        Ok(logical)
    }

    fn take(&mut self, found: &Section<'_>) -> Result<(), String> {
        let number = |name: &str| found.number(name).ok_or_else(|| format!("it has no {name}"));
        let (first, extents) = (number("start_extent")?, number("extent_count")?);
        if first != self.extents || extents == 0 {
            return Err("it does not begin where the one before ends, or is empty".to_owned());
        }
        self.extents = first.checked_add(extents).ok_or("it can't be so long")?;
        let kind = found.text("type").ok_or("it has no type")?;
        if !matches!(kind, "striped" | "linear") {
            self.kind = Kind::Other(other(kind));
            return Ok(());
        }
        let stripes = found.list("stripes").ok_or("it has no stripes")?;
        let stripes: Option<Vec<_>> = stripes.chunks(2).map(stripe).collect();
        let stripes = stripes.filter(|stripes| !stripes.is_empty()).ok_or("its stripes are no pairs")?;
        let count = hectare_units::u64_of(stripes.len());
        if found.number("stripe_count").unwrap_or(1) != count || extents % count != 0 {
            return Err("its stripes are not as many as it says, or not equally long".to_owned());
        }
        let chunk = if count == 1 { 1 } else { number("stripe_size")? };
        if !chunk.is_power_of_two() || chunk > u64::from(u32::MAX) {
            return Err("the length of its chunks is impossible".to_owned());
        }
        self.segments.push(Segment { first, extents, chunk, stripes });
        Ok(())
    }
}

fn stripe(pair: &[Value<'_>]) -> Option<(String, u64)> {
    match pair {
        [Value::Text(on), Value::Number(first)] => {
            Some((on.clone().into_owned(), u64::try_from(*first).ok()?))
        }
        _ => None,
    }
}

/// What a volume with a segment of this type is, in words.
fn other(kind: &str) -> String {
    let plain = kind.split('+').next().unwrap_or(kind);
    let what = match plain {
        "snapshot" => "it is a snapshot".to_owned(),
        "thin" => "it is thin, and its map lies in its pool".to_owned(),
        "thin-pool" => "it is a pool of thin volumes".to_owned(),
        "mirror" => "it is a mirror".to_owned(),
        "cache" | "cache-pool" | "writecache" => {
            "it is cached, and its newest data may lie in the cache".to_owned()
        }
        "vdo" | "vdo-pool" => "it is compressed (VDO)".to_owned(),
        "error" | "zero" => format!("it has a segment of type {plain}"),
        raid if raid.starts_with("raid") => format!("it is a RAID ({})", raid.escape_debug()),
        _ => format!("it has a segment of the type {}", plain.escape_debug()),
    };
    what.chars().take(200).collect()
}

#[cfg(test)]
mod tests;
