//! Logical volumes of LVM2 as devices: those whose bytes lie in plain or striped segments on physical volumes
//! that are given.
//!
//! [`VolumeSet::open`] takes a physical volume, perhaps with others of its group, verifies labels and metadata, and
//! lists the logical volumes; [`VolumeSet::volume`] makes one of them a [`Device`](hectare_device::Device).
//! The kernel's device mapper is not involved.
//!
//! Invariants: metadata is used only with the right checksums. Of several copies the one that was changed last
//! counts. Nothing of the metadata is written.
//!
//! Hazards:
//! - *Volumes that are not what their extents hold*: snapshots, thin and cached volumes, mirrors, parts of
//!   others. They are refused by name ([`group`]); so is writing a volume with snapshots, which need what is
//!   overwritten.
//! - *Metadata from strangers*: bounded in length and depth, every place checked to lie on its device, and not
//!   on the label or the metadata.
//! - *The system may have the group active.* A block device is locked by the process that opens it; files that a
//!   loop device has are noticed as well. Locks of a cluster are not taken: a group that has them is only read.
//!
//! What it is not: it changes no group, and knows nothing of what lies on the volumes.

mod area;
mod device;
mod error;
mod group;
mod label;
mod sector;
mod text;
#[cfg(test)]
mod volumes_tests;

pub use device::LogicalVolume;
pub use error::{Error, Result};

use device::Piece;
use group::{Group, Kind, Logical};
use hectare_device::{Device, Span};
use hectare_units::{Bytes, u64_of};
use label::Label;
use sector::{SECTOR, crc};
use std::sync::Arc;

/// Whether a device begins with the label of a physical volume. One that can't be read does not.
#[must_use]
pub fn is_physical_volume(device: &dyn Device) -> bool {
    label::is_there(device)
}

/// A logical volume of a group, for lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The names of the group and the volume, with a slash between them.
    pub name: String,
    /// Its length.
    pub len: Bytes,
    /// Why it can't be used whatever physical volumes are given, in words; `None` for a plain one.
    pub refused: Option<String>,
}

/// A physical volume that was given.
struct Given {
    device: Arc<dyn Device>,
    label: Label,
}

/// A volume group, and those of its physical volumes that were given.
pub struct VolumeSet {
    group: Group,
    given: Vec<Given>,
}

impl VolumeSet {
    /// The group of a physical volume. Of `others`, those that belong to it are used.
    ///
    /// # Errors
    /// If it is no physical volume, belongs to no group, or metadata is damaged.
    pub fn open(first: Arc<dyn Device>, others: &[Arc<dyn Device>]) -> Result<Self> {
        let label = Label::read(&*first)?.ok_or_else(|| Error::NoLabel(first.name().to_owned()))?;
        let mut newest = group_of(&*first, &label)?;
        let mut given = vec![Given { device: first, label }];
        for device in others {
            let label = Label::read(&**device)?.ok_or_else(|| Error::NoLabel(device.name().to_owned()))?;
            let found = group_of(&**device, &label)?;
            given.push(Given { device: Arc::clone(device), label });
            newest = match (newest, found) {
                (Some(group), Some(other)) if other.id == group.id && other.seqno > group.seqno => {
                    Some(other)
                }
                // A first one without metadata belongs to the group that lists it.
                (None, Some(other)) if other.lists(&given[0].label.uuid) => Some(other),
                (before, _) => before,
            };
        }
        let name = given[0].device.name().to_owned();
        let Some(group) = newest else {
            let (place, reason) =
                (Bytes::ZERO, "it belongs to no volume group, or has no metadata itself".to_owned());
            return Err(Error::Damaged { device: name, place, reason });
        };
        let set_error = |reason: &str| Error::Group {
            device: name.clone(),
            group: group.name.clone(),
            reason: reason.to_owned(),
        };
        given.retain(|given| group.lists(&given.label.uuid));
        if given.first().is_none_or(|given| given.device.name() != name) {
            return Err(set_error("the physical volume is not among those that it lists"));
        }
        let mut uuids: Vec<&str> = given.iter().map(|given| given.label.uuid.as_str()).collect();
        uuids.sort_unstable();
        if uuids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(set_error("the same physical volume is given twice"));
        }
        Ok(Self { group, given })
    }

    /// The name of the group.
    #[must_use]
    pub fn group(&self) -> &str {
        &self.group.name
    }

    /// Its visible volumes, in the order of their names.
    #[must_use]
    pub fn volumes(&self) -> Vec<Listed> {
        let listed = |(name, logical): (&String, &Logical)| Listed {
            name: format!("{}/{name}", self.group.name),
            len: Bytes::new(logical.extents.saturating_mul(self.group.extent).saturating_mul(SECTOR)),
            refused: match &logical.kind {
                Kind::Plain => None,
                Kind::Other(what) => Some(what.clone()),
            },
        };
        self.group.logical.iter().map(listed).collect()
    }

    /// A volume by its name, `GROUP/VOLUME`. It can be written if all devices below and the group allow that.
    ///
    /// # Errors
    /// If there is none of that name, it is not plain, a physical volume is missing or too short, or it has
    /// snapshots and the devices are open for writing.
    pub fn volume(&self, name: &str) -> Result<LogicalVolume> {
        let first = self.given[0].device.name().to_owned();
        let refuse = |reason: String| {
            let (device, volume) = (first.clone(), name.escape_debug().to_string());
            Error::Volume { device, volume, reason }
        };
        let own = name.split_once('/').filter(|(group, _)| *group == self.group.name);
        let logical = own.and_then(|(_, volume)| self.group.logical.get(volume));
        let Some(logical) = logical else {
            let names: Vec<String> = self.volumes().into_iter().map(|listed| listed.name).collect();
            let there = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
            return Err(refuse(format!("there is none of that name: {there}")));
        };
        if let Kind::Other(what) = &logical.kind {
            return Err(refuse(format!(
                "{what}: only plain and striped volumes are read; let the system activate it"
            )));
        }
        let mut devices = Vec::new();
        let pieces = logical.segments.iter().map(|segment| self.piece(segment, &mut devices));
        let pieces = pieces.collect::<std::result::Result<Vec<_>, _>>().map_err(refuse)?;
        let locked = devices.iter().any(|device| device.is_read_only());
        if logical.has_snapshots && !locked {
            let what =
                "it has snapshots, which need what is overwritten: it is only read (lvremove removes them)";
            return Err(refuse(what.to_owned()));
        }
        if self.group.is_shared && !locked {
            let what = "its group is shared with other machines, whose locks are not taken: it is only read";
            return Err(refuse(what.to_owned()));
        }
        if !logical.is_writable && !locked {
            return Err(refuse("its group allows reading only (lvchange -prw)".to_owned()));
        }
        Ok(LogicalVolume::new(format!("{name} on {first}"), devices, joined(pieces), locked))
    }

    /// Where the first byte of a volume lies on the physical volume that was given first; `None` if it lies on
    /// another one.
    ///
    /// # Errors
    /// As for [`VolumeSet::volume`].
    pub fn start(&self, name: &str) -> Result<Option<Bytes>> {
        Ok(self.volume(name)?.begins_on(&self.given[0].device))
    }

    /// A segment as bytes on devices, which are added to those that are used already.
    fn piece(
        &self,
        segment: &group::Segment,
        devices: &mut Vec<Arc<dyn Device>>,
    ) -> std::result::Result<Piece, String> {
        const TOO_LONG: &str = "it reaches beyond 2^64";
        let bytes = |extents: u64| {
            let sectors = extents.checked_mul(self.group.extent);
            sectors.and_then(|sectors| sectors.checked_mul(SECTOR)).ok_or_else(|| TOO_LONG.to_owned())
        };
        let (start, len) = (bytes(segment.first)?, bytes(segment.extents)?);
        let end = start.checked_add(len).ok_or(TOO_LONG)?;
        let chunk = segment.chunk.checked_mul(SECTOR).ok_or(TOO_LONG)?;
        let own = bytes(segment.per_stripe())?;
        if own % chunk != 0 {
            return Err("its stripes are no multiple of their chunks".to_owned());
        }
        let mut stripes = Vec::new();
        for (on, first) in &segment.stripes {
            let (device, begins) = self.physical(on)?;
            let at = begins.checked_add(bytes(*first)?).ok_or(TOO_LONG)?;
            let span = Span::new(Bytes::new(at), Bytes::new(own));
            if !span.fits(device.device.len()) {
                return Err(format!(
                    "it reaches beyond the end of {}, which has {} bytes",
                    device.device.name(),
                    device.device.len()
                ));
            }
            let overlaps =
                |area: &Span| area.at.get() < at + own && at < area.at.get().saturating_add(area.len.get());
            if at < 4 * SECTOR || device.label.areas.iter().any(overlaps) {
                return Err(format!(
                    "its extents cover the label or the metadata of {}",
                    device.device.name()
                ));
            }
            let known = devices.iter().position(|known| Arc::ptr_eq(known, &device.device));
            let index = known.unwrap_or_else(|| {
                devices.push(Arc::clone(&device.device));
                devices.len() - 1
            });
            stripes.push((index, at));
        }
        Ok(Piece { start, end, chunk, stripes })
    }

    /// A physical volume by the group's name for it, and the byte at which its extents begin.
    fn physical(&self, name: &str) -> std::result::Result<(&Given, u64), String> {
        let physical = self.group.physical.get(name).ok_or("a physical volume is not in its group")?;
        let dashed = dashed(&physical.id);
        let hint = physical.hint.escape_debug();
        if physical.is_missing {
            return Err(format!(
                "the group was changed without physical volume {dashed} ({hint}): its data is old"
            ));
        }
        let given = self.given.iter().find(|given| given.label.uuid == physical.id);
        let given = given.ok_or_else(|| {
            format!(
                "a part of it lies on physical volume {dashed} (it was {hint}), which is not given: add it \
                 with --pv FILE"
            )
        })?;
        Ok((given, physical.start.checked_mul(SECTOR).ok_or("a physical volume begins beyond 2^64")?))
    }
}

impl Group {
    /// Whether it has the physical volume with that UUID.
    fn lists(&self, uuid: &str) -> bool {
        self.physical.values().any(|physical| physical.id == uuid)
    }
}

/// The group of a physical volume, as its newest sound metadata area says; `None` if it has no metadata.
fn group_of(device: &dyn Device, label: &Label) -> Result<Option<Group>> {
    let (mut newest, mut failed): (Option<Group>, _) = (None, None);
    for area in &label.areas {
        let read = area::read(device, *area).and_then(|text| {
            let parse = |text: Vec<u8>| {
                let group = Group::parse(&String::from_utf8_lossy(&text));
                group.map_err(|reason| Error::damaged(device, area.at, &reason))
            };
            text.map(parse).transpose()
        });
        match read {
            Ok(Some(group)) if newest.as_ref().is_none_or(|known| known.seqno < group.seqno) => {
                newest = Some(group);
            }
            Ok(_) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match (newest, failed) {
        (None, Some(error)) => Err(error),
        (newest, _) => Ok(newest),
    }
}

/// Pieces that follow one another on the same device, as one.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for piece in pieces {
        if let Some(last) = out.last_mut()
            && let ([(device, at)], [(next, next_at)]) = (&last.stripes[..], &piece.stripes[..])
            && device == next
            && at + (last.end - last.start) == *next_at
        {
            last.end = piece.end;
            continue;
        }
        out.push(piece);
    }
    out
}

/// A UUID in the groups in which LVM2 shows it.
fn dashed(id: &str) -> String {
    const PARTS: [usize; 7] = [6, 4, 4, 4, 4, 4, 6];
    let mut rest = id.escape_debug().to_string();
    if rest.len() != PARTS.iter().sum::<usize>() || !rest.is_ascii() {
        return rest;
    }
    let parts = PARTS.map(|len| {
        let after = rest.split_off(len);
        std::mem::replace(&mut rest, after)
    });
    parts.join("-")
}

/// The checksum of metadata: for the fuzzer.
#[doc(hidden)]
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc(bytes)
}

/// Reads whatever a device holds, as far as that is possible: for the fuzzer.
#[doc(hidden)]
pub fn digest(bytes: &[u8]) {
    let device: Arc<dyn Device> = Arc::new(hectare_device::MemoryDevice::from_bytes(bytes));
    let Ok(set) = VolumeSet::open(device, &[]) else { return };
    for listed in set.volumes() {
        let Ok(volume) = set.volume(&listed.name) else { continue };
        let mut buf = [0; 4096];
        let ends = [0, volume.len().get().saturating_sub(u64_of(buf.len()))];
        for at in ends {
            let len = hectare_units::index_of(volume.len().get().min(u64_of(buf.len())));
            let _ = volume.read_at(Bytes::new(at), &mut buf[..len]);
        }
    }
}
