//! The tree and the list of found volumes, for programs.

use super::next::{Source, command, for_volume};
use crate::name::JsonName;
use hectare_identify::{Place, Survey, Volume};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
pub(super) struct Json {
    #[serde(flatten)]
    place: JsonPlace,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<JsonSurvey>,
}

#[derive(Serialize)]
struct JsonPlace {
    start: u64,
    len: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<JsonPartition>,
    /// The kind in words; null if it is not known.
    content: Option<&'static str>,
    label: Option<String>,
    uuid: Option<String>,
    size: Option<u64>,
    facts: BTreeMap<&'static str, String>,
    notes: Vec<String>,
    next: Option<String>,
    partitions: Vec<JsonPlace>,
}

#[derive(Serialize)]
struct JsonPartition {
    number: u32,
    len: u64,
    kind: String,
    name: String,
}

#[derive(Serialize)]
struct JsonSurvey {
    volumes: Vec<JsonVolume>,
    left_out: u64,
    unreadable: u64,
}

#[derive(Serialize)]
struct JsonVolume {
    /// Null if it lies before the device.
    start: Option<u64>,
    size: u64,
    label: JsonName,
    uuid: String,
    block_size: u32,
    has_first_superblock: bool,
    superblocks: Vec<JsonCopy>,
    superblock_count: u64,
    strays: u64,
    /// The start of the volume in which it lies.
    inside: Option<u64>,
    next: Option<String>,
}

#[derive(Serialize)]
struct JsonCopy {
    at: u64,
    group: u32,
}

/// Everything as JSON.
pub(super) fn of(place: &Place, survey: Option<&Survey>, source: &Source) -> Json {
    Json { place: of_place(place, source), search: survey.map(|survey| of_survey(survey, source)) }
}

fn of_place(place: &Place, source: &Source) -> JsonPlace {
    let partition = place.partition.as_ref().map(|partition| JsonPartition {
        number: partition.number,
        len: partition.len.get(),
        kind: partition.kind.code(),
        name: partition.name.clone(),
    });
    JsonPlace {
        start: place.start.get(),
        len: place.len.get(),
        partition,
        content: place.what.map(hectare_identify::What::name),
        label: place.details.label.clone(),
        uuid: place.details.uuid.clone(),
        size: place.details.size.map(hectare_units::Bytes::get),
        facts: place.details.facts.iter().cloned().collect(),
        notes: place.notes.clone(),
        next: command(place, source),
        partitions: place.parts.iter().map(|part| of_place(part, source)).collect(),
    }
}

fn of_survey(survey: &Survey, source: &Source) -> JsonSurvey {
    JsonSurvey {
        volumes: survey.volumes.iter().map(|volume| of_volume(volume, source)).collect(),
        left_out: survey.left_out,
        unreadable: survey.unreadable.get(),
    }
}

fn of_volume(volume: &Volume, source: &Source) -> JsonVolume {
    let sb = &volume.superblock;
    let copy =
        |copy: &hectare_identify::SuperblockCopy| JsonCopy { at: copy.at.get(), group: copy.group.get() };
    let on_device = |start: hectare_identify::Start| start.on_device().map(hectare_units::Bytes::get);
    JsonVolume {
        start: on_device(volume.start),
        size: volume.len().get(),
        label: JsonName(sb.label().to_vec()),
        uuid: crate::dumpe2fs::uuid_text(&sb.uuid()).unwrap_or_default(),
        block_size: sb.geometry().block_size.get(),
        has_first_superblock: volume.has_primary(),
        superblocks: volume.copies.iter().map(copy).collect(),
        superblock_count: volume.copy_count,
        strays: volume.strays,
        inside: volume.inside.and_then(on_device),
        next: for_volume(volume, source),
    }
}
