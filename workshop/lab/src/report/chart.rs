//! The charts. Each is a drawing of its own, 560 units wide, with its scale, its unit and a text under the
//! pointer for every mark; a system has one colour in all of them.

use super::humanize::{axis, capital, short, size, whole};
use super::series::{Group, Series};
use super::svg::{Anchor, Box, Svg, ticks};
use super::table::regions;
use crate::fragmentation::{Fragmentation, Region};
use crate::run::{Run, float};
use crate::stats::Pass;
use hectare_engine::Bucket;
use hectare_units::u64_of;

const WIDTH: f64 = 560.0;
/// Most bars in a strip; on larger volumes a bar stands for the worst of several regions.
const BARS: usize = 256;
/// Passes from the cheapest to the dearest; others come after them.
const PASSES: [&str; 10] = [
    "goal",
    "p2_aligned",
    "goal_fast",
    "chunk",
    "best_avail",
    "split",
    "first_fit",
    "goal_slow",
    "best_fit",
    "any_free",
];
/// The height of one system's strip.
const STRIP: f64 = 108.0;
/// Colours there are; later series begin again with the first.
const COLORS: usize = 8;
/// Shades of the passes, from the cheapest to the dearest.
const SHADES: usize = 7;

/// A chart and what it says in words.
pub(super) struct Chart {
    pub(super) title: String,
    pub(super) note: String,
    /// What colours or shades mean, as class and name; none where the chart names its rows itself.
    pub(super) legend: Vec<(String, String)>,
    pub(super) svg: String,
}

/// All charts that have something to show.
pub(super) fn charts(group: &Group<'_>) -> Vec<Chart> {
    let rate = if group.threads().len() > 1 { throughput(group) } else { rates(group) };
    [Some(rate), hits(group), fragmentation(group), histogram(group)].into_iter().flatten().collect()
}

fn color(series: &Series<'_>) -> String {
    format!("c{}", series.color % COLORS)
}

fn float_of(n: usize) -> f64 {
    float(u64_of(n))
}

fn what(group: &Group<'_>) -> String {
    let run = group.series.first().and_then(Series::widest);
    run.map_or_else(String::new, |run| run.measure.what.clone())
}

/// A line for each system over the number of threads.
fn throughput(group: &Group<'_>) -> Chart {
    let threads = group.threads();
    let (top, bottom, left, right) = (16.0, 214.0, 56.0, WIDTH - 16.0);
    let rates = group.series.iter().flat_map(|series| series.runs.iter().map(|run| run.measure.rate()));
    let ticks = ticks(rates.fold(0.0, f64::max));
    let max = ticks.last().copied().unwrap_or(1.0);
    let y = |rate: f64| bottom - (bottom - top) * rate / max;
    let pitch = (right - left - 40.0) / float_of(threads.len().saturating_sub(1).max(1));
    let x = |count: u32| {
        let at = threads.iter().position(|other| *other == count).unwrap_or(0);
        left + 20.0 + pitch * float_of(at)
    };
    let title = format!("{} per second by threads", capital(&what(group)));
    let mut svg = Svg::new(WIDTH, 256.0, &title);
    for tick in &ticks {
        svg.line((left, y(*tick)), (right, y(*tick)), if *tick > 0.0 { "grid" } else { "axis" });
        svg.text(left - 8.0, y(*tick) + 4.0, Anchor::End, "tick", &axis(*tick));
    }
    for count in &threads {
        svg.text(x(*count), bottom + 18.0, Anchor::Middle, "tick", &count.to_string());
    }
    svg.axis_label(left, right, bottom + 36.0, "threads");
    for series in &group.series {
        let points: Vec<(f64, f64)> =
            series.runs.iter().map(|run| (x(run.threads), y(run.measure.rate()))).collect();
        svg.polyline(&points, &format!("line {}", color(series)));
        for (run, point) in series.runs.iter().zip(points) {
            let rate = whole(run.measure.rate());
            svg.tip(&format!("{}, {} threads: {rate} per second", series.name, run.threads));
            svg.dot(point, 4.5, &format!("dot {}", color(series)));
            svg.end();
        }
    }
    let legend = group.series.iter().map(|series| (color(series), series.name.clone())).collect();
    Chart { title, note: "The final sync is not counted.".into(), legend, svg: svg.finish() }
}

/// A bar for each run.
fn rates(group: &Group<'_>) -> Chart {
    // Where data is written bytes say more than calls.
    let bytes = group.series.iter().flat_map(|series| &series.runs).all(|run| run.measure.bytes > 0)
        && what(group) == "writes";
    let figure = |run: &Run| if bytes { run.bandwidth() / 1e6 } else { run.measure.rate() };
    let synced = |run: &Run| if bytes { run.synced_bandwidth() / 1e6 } else { run.synced_rate() };
    let (unit, title) = if bytes {
        ("MB/s", "Written, MB/s".into())
    } else {
        ("per second", capital(&what(group)) + " per second")
    };
    let runs: Vec<(&Series<'_>, &Run)> =
        group.series.iter().filter_map(|series| Some((series, series.widest()?))).collect();
    let max = runs.iter().map(|(_, run)| figure(run)).fold(0.0, f64::max);
    let (full, row) = (WIDTH - 88.0, 42.0);
    let mut svg = Svg::new(WIDTH, 8.0 + row * float_of(runs.len()), &title);
    for (nr, (series, run)) in runs.iter().enumerate() {
        let top = 4.0 + row * float_of(nr);
        let length = |figure: f64| if max > 0.0 { full * figure / max } else { 0.0 };
        svg.text(0.0, top + 11.0, Anchor::Start, "name", &series.name);
        let (without, with) = (figure(run), synced(run));
        svg.tip(&format!(
            "{}: {} {unit}, {} {unit} with the final sync",
            series.name,
            short(without),
            short(with)
        ));
        let bar = |figure: f64| Box { x: 0.0, y: top + 17.0, width: length(figure), height: 14.0 };
        svg.bar(bar(without), &format!("fill pale {}", color(series)));
        svg.bar(bar(with), &format!("fill {}", color(series)));
        svg.end();
        svg.text(length(without) + 8.0, top + 28.5, Anchor::Start, "value", &short(without));
    }
    let note = "The full colour ends where the rate ends with the final sync counted.".into();
    Chart { title, note, legend: Vec::new(), svg: svg.finish() }
}

/// A bar for each system, cut into the passes that answered.
fn hits(group: &Group<'_>) -> Option<Chart> {
    let runs: Vec<(&Series<'_>, &Run)> = group
        .series
        .iter()
        .filter_map(|series| Some((series, series.widest()?)))
        .filter(|(_, run)| run.allocator.as_ref().is_some_and(|stats| !stats.passes.is_empty()))
        .collect();
    let mut passes: Vec<&str> = Vec::new();
    for stats in runs.iter().filter_map(|(_, run)| run.allocator.as_ref()) {
        for pass in &stats.passes {
            if pass.hits() > 0 && !passes.contains(&pass.name.as_str()) {
                passes.push(&pass.name);
            }
        }
    }
    if passes.is_empty() {
        return None;
    }
    let rank = |name: &str| PASSES.iter().position(|known| *known == name).unwrap_or(PASSES.len());
    passes.sort_by_key(|name| rank(name));
    let row = 42.0;
    let title = "Requests answered by each pass";
    let mut svg = Svg::new(WIDTH, 8.0 + row * float_of(runs.len()), title);
    for (nr, (series, run)) in runs.iter().enumerate() {
        let top = 4.0 + row * float_of(nr);
        let Some(stats) = &run.allocator else { continue };
        let all: u64 = stats.passes.iter().map(Pass::hits).sum();
        svg.text(0.0, top + 11.0, Anchor::Start, "name", &series.name);
        let words = format!(
            "{} answered, {} extents scanned",
            whole(float(all)),
            whole(float(stats.count("extents_scanned")))
        );
        svg.text(WIDTH, top + 11.0, Anchor::End, "value", &words);
        svg.rect(Box { x: 0.0, y: top + 17.0, width: WIDTH, height: 14.0 }, "track");
        let mut at = 0.0;
        for (shade, name) in passes.iter().enumerate() {
            let Some(pass) = stats.passes.iter().find(|pass| pass.name == *name) else { continue };
            let shade = shade.min(SHADES - 1);
            let width = if all > 0 { WIDTH * float(pass.hits()) / float(all) } else { 0.0 };
            if width <= 0.0 {
                continue;
            }
            let percent = short(100.0 * float(pass.hits()) / float(all));
            svg.tip(&format!(
                "{}: {} by {} ({percent} %)",
                series.name,
                whole(float(pass.hits())),
                words_of(&pass.name)
            ));
            // Two units of paper between neighbours keep shades apart.
            svg.rect(
                Box { x: at, y: top + 17.0, width: (width - 2.0).max(1.0), height: 14.0 },
                &format!("fill p{shade}"),
            );
            svg.end();
            at += width;
        }
    }
    let legend =
        passes.iter().enumerate().map(|(nr, name)| (format!("p{}", nr.min(SHADES - 1)), words_of(name)));
    let note = "Passes from the cheapest to the dearest.".into();
    Some(Chart { title: title.into(), note, legend: legend.collect(), svg: svg.finish() })
}

fn words_of(pass: &str) -> String {
    pass.replace('_', " ")
}

/// The systems whose volume was looked at.
fn inspected<'g>(group: &'g Group<'_>) -> Vec<(&'g Series<'g>, &'g Run, &'g Fragmentation)> {
    let seen = |series: &'g Series<'_>| {
        let run = series.widest()?;
        let fragmentation = &run.inspection.as_ref()?.fragmentation;
        Some((series, run, fragmentation))
    };
    group.series.iter().filter_map(seen).collect()
}

/// A strip for each system: how fragmented each region is.
fn fragmentation(group: &Group<'_>) -> Option<Chart> {
    let mut runs = inspected(group);
    runs.retain(|(_, run, _)| regions(run).is_some());
    let regions_max = runs.iter().map(|(_, _, seen)| seen.regions.len()).max().filter(|max| *max > 0)?;
    let title = "Fragmentation of each region of 1 GiB";
    let (left, right, strip) = (40.0, WIDTH, STRIP);
    let mut svg = Svg::new(WIDTH, strip * float_of(runs.len()) + 34.0, title);
    let fold = regions_max.div_ceil(BARS);
    let pitch = (right - left) / float_of(regions_max.div_ceil(fold));
    for (nr, (series, run, seen)) in runs.iter().enumerate() {
        let (top, bottom) = (strip * float_of(nr) + 32.0, strip * float_of(nr) + strip - 10.0);
        strip_axis(&mut svg, series, &summary(run), (left, right, top, bottom), "100 %");
        for (bar, regions) in seen.regions.chunks(fold).enumerate() {
            let Some((at, region)) = worst(regions) else { continue };
            let at = bar * fold + at;
            let (x, width) = (left + pitch * float_of(bar), (pitch - 1.0).clamp(1.0, 28.0));
            let percent = region.percent();
            let free = size(region.free_bytes);
            svg.tip(&format!(
                "{}, region {at}: {percent:.0} % of {free} free lies outside the longest run; \
                 {} runs, {} of data",
                series.name,
                region.free_runs,
                size(region.data_bytes)
            ));
            if region.data_bytes == 0 {
                svg.rect(Box { x, y: bottom - 1.0, width, height: 2.0 }, "unused");
            } else if percent > 0.0 {
                let height = ((bottom - top) * percent / 100.0).max(2.0);
                svg.column(Box { x, y: bottom - height, width, height }, &format!("fill {}", color(series)));
            } else {
                svg.rect(Box { x, y: bottom - 2.0, width, height: 3.0 }, &format!("fill {}", color(series)));
            }
            svg.end();
        }
    }
    let foot = strip * float_of(runs.len());
    let step = regions_max.div_ceil(8).next_multiple_of(fold);
    for at in (0..regions_max).step_by(step) {
        let x = left + pitch * float_of(at / fold) + (pitch - 1.0).clamp(1.0, 28.0) / 2.0;
        svg.text(x, foot + 6.0, Anchor::Middle, "tick", &at.to_string());
    }
    svg.axis_label(left, right, foot + 26.0, "GiB from the start of the volume");
    let note = "Share of the free space outside the longest free run; grey where no file has data.".into();
    Some(Chart { title: title.into(), note, legend: Vec::new(), svg: svg.finish() })
}

/// The most fragmented of some neighbours, those with data first.
fn worst(regions: &[Region]) -> Option<(usize, &Region)> {
    let key = |region: &Region| (region.data_bytes > 0, region.percent());
    regions.iter().enumerate().max_by(|(_, a), (_, b)| {
        let (a, b) = (key(a), key(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

fn summary(run: &Run) -> String {
    match regions(run) {
        Some((0, used, _)) => format!("none of {used} in use is fragmented"),
        Some((fragmented, used, mean)) => format!("{fragmented} of {used} in use, mean {mean:.0} %"),
        None => String::new(),
    }
}

/// The name, the summary and the scale of a strip.
fn strip_axis(svg: &mut Svg, series: &Series<'_>, summary: &str, frame: (f64, f64, f64, f64), full: &str) {
    let (left, right, top, bottom) = frame;
    svg.text(0.0, top - 17.0, Anchor::Start, "name", &series.name);
    svg.text(right, top - 17.0, Anchor::End, "value", summary);
    svg.line((left, top), (right, top), "grid");
    svg.line((left, bottom), (right, bottom), "axis");
    svg.text(left - 6.0, top + 4.0, Anchor::End, "tick", full);
    svg.text(left - 6.0, bottom + 4.0, Anchor::End, "tick", "0");
}

/// A strip for each system: in runs of which length its free space lies.
fn histogram(group: &Group<'_>) -> Option<Chart> {
    let runs = inspected(group);
    let buckets = || runs.iter().flat_map(|(_, _, seen)| &seen.histogram).filter(|bucket| bucket.runs > 0);
    let least = buckets().map(|bucket| bucket.from_bytes.max(1).ilog2()).min()?;
    let most = buckets().map(|bucket| bucket.from_bytes.max(1).ilog2()).max()?.max(least + 7);
    let share = |bucket: &Bucket, seen: &Fragmentation| {
        let all: u64 = seen.histogram.iter().map(|bucket| bucket.bytes).sum();
        if all > 0 { 100.0 * float(bucket.bytes) / float(all) } else { 0.0 }
    };
    let highest = runs
        .iter()
        .flat_map(|(_, _, seen)| seen.histogram.iter().map(|bucket| share(bucket, seen)))
        .fold(0.0, f64::max);
    let max = ticks(highest).last().copied().unwrap_or(100.0).min(100.0);
    let title = "Free space by the length of its runs";
    let (left, right, strip) = (40.0, WIDTH, STRIP);
    let mut svg = Svg::new(WIDTH, strip * float_of(runs.len()) + 34.0, title);
    let pitch = (right - left) / f64::from(most - least + 1);
    let x = |from: u64| left + pitch * f64::from(from.max(1).ilog2().saturating_sub(least));
    for (nr, (series, _, seen)) in runs.iter().enumerate() {
        let (top, bottom) = (strip * float_of(nr) + 32.0, strip * float_of(nr) + strip - 10.0);
        strip_axis(
            &mut svg,
            series,
            &runs_in_words(seen),
            (left, right, top, bottom),
            &format!("{max:.0} %"),
        );
        for bucket in seen.histogram.iter().filter(|bucket| bucket.runs > 0) {
            let percent = share(bucket, seen);
            svg.tip(&format!(
                "{}: {} runs of {} to {} hold {percent:.1} % of the free space",
                series.name,
                whole(float(bucket.runs)),
                size(bucket.from_bytes),
                size(bucket.from_bytes.saturating_mul(2))
            ));
            let height = ((bottom - top) * percent / max).max(1.5);
            let width = (pitch - 2.0).clamp(1.0, 28.0);
            let shape =
                Box { x: x(bucket.from_bytes) + (pitch - width) / 2.0, y: bottom - height, width, height };
            svg.column(shape, &format!("fill {}", color(series)));
            svg.end();
        }
    }
    let foot = strip * float_of(runs.len());
    let step = hectare_units::usize_of((most - least + 1).div_ceil(12));
    for power in (least..=most).step_by(step) {
        svg.text(x(1 << power) + pitch / 2.0, foot + 6.0, Anchor::Middle, "tick", &size(1 << power));
    }
    svg.axis_label(left, right, foot + 26.0, "length of a free run in bytes: from this to twice it");
    let note = "Share of the free space of the whole volume.".into();
    Some(Chart { title: title.into(), note, legend: Vec::new(), svg: svg.finish() })
}

fn runs_in_words(seen: &Fragmentation) -> String {
    let runs: u64 = seen.histogram.iter().map(|bucket| bucket.runs).sum();
    let bytes: u64 = seen.histogram.iter().map(|bucket| bucket.bytes).sum();
    let mean = bytes.checked_div(runs).unwrap_or(0);
    format!("{} runs, mean {}", whole(float(runs)), size(mean))
}
