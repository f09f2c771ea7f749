"use strict";
// Asks for the figures once a second and draws them. All of them are the server's. What comes from the volume
// is only ever set as text.

const SECONDS = 120;
const NAMESPACE = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
let live = null, polls = 0;
const hover = {};

// ---- Words -----------------------------------------------------------------------------------------------

const digits = (n) => (n >= 100 ? n.toFixed(0) : n.toFixed(n >= 10 ? 1 : 2).replace(/\.?0+$/, ""));
const scaled = (n, base, units) => {
  let step = 0;
  while (n >= base * 0.9995 && step < units.length - 1) { n /= base; step += 1; }
  return [step ? digits(n) : n.toFixed(0), units[step]];
};
const bytes = (n) => scaled(n, 1000, ["B", "kB", "MB", "GB", "TB", "PB", "EB"]);
const power = (n) => scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]).join(" ");
const count = (n) => Math.round(n).toLocaleString("en-US").replaceAll(",", " ");
const short = (n) => (n < 10000 ? count(n) : scaled(n, 1000, ["", "k", "M", "G"]).join(""));
const time = (s) => {
  if (!s) return ["–", ""];
  if (s < 0.9995e-3) return [digits(s * 1e6), "µs"];
  return s < 0.9995 ? [digits(s * 1e3), "ms"] : [digits(s), "s"];
};
const since = (s) => {
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  return d ? `${d} d ${h} h` : h ? `${h} h ${m} min` : m ? `${m} min ${Math.floor(s % 60)} s` : `${Math.floor(s)} s`;
};
const set = (id, text) => { at(id).textContent = text; };
const setUnit = (id, unit, [text, of]) => { set(id, text); set(unit, of); };

// ---- Drawing ---------------------------------------------------------------------------------------------

function draw(parent, name, attributes, text) {
  const element = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.appendChild(element);
  return element;
}

// An empty picture and the room inside its margins.
function canvas(svg, left, bottom) {
  svg.replaceChildren();
  const [width, height] = [svg.clientWidth, svg.clientHeight];
  return { svg, left, top: 8, right: width - 2, bottom: height - bottom };
}

// The end of a scale that holds a number, and its step: 1, 2 or 5 times a power of ten.
function linear(most) {
  const rough = Math.max(most, 1e-9) / 4;
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((n) => n * ten >= rough) * ten;
  const ticks = [];
  for (let n = 0; n < Math.max(most, step) + step * 0.999; n += step) ticks.push(n);
  return { ticks, place: (n) => n / ticks[ticks.length - 1] };
}

function logarithmic(least, most) {
  const from = Math.floor(Math.log10(least)), to = Math.max(Math.ceil(Math.log10(most)), from + 1);
  const ticks = Array.from({ length: to - from + 1 }, (_, i) => 10 ** (from + i));
  return { ticks, place: (n) => (Math.log10(n) - from) / (to - from) };
}

// A chart of two lines over the last two minutes; `of` gives the values of a sample, 0 for none on a
// logarithmic scale.
function timeline(id, classes, of, scale, word) {
  const room = canvas(at(id), 62, 22), { svg, left, right, top, bottom } = room;
  const samples = live.history, now = live.report.uptime_seconds;
  const x = (t) => right - ((now - t) / SECONDS) * (right - left);
  const y = (n) => bottom - scale.place(n) * (bottom - top);
  for (const tick of scale.ticks) {
    const line = Math.round(y(tick)) + 0.5;
    draw(svg, "line", { class: "grid", x1: left, x2: right, y1: line, y2: line });
    draw(svg, "text", { x: left - 8, y: line + 4, "text-anchor": "end" }, word(tick));
  }
  for (const ago of right - left > 400 ? [120, 90, 60, 30, 0] : [120, 60, 0]) {
    const anchor = ago === 120 ? "start" : ago ? "middle" : "end";
    draw(svg, "text", { x: x(now - ago), y: bottom + 17, "text-anchor": anchor }, ago ? `${ago} s ago` : "now");
  }
  const shown = samples.filter((sample) => sample.at > now - SECONDS);
  classes.forEach((name, line) => {
    const group = draw(svg, "g", { class: name });
    for (const points of unbroken(shown, (sample) => of(sample)[line])) {
      const [first, last] = [points[0], points[points.length - 1]].map(([sample]) => x(sample.at).toFixed(1));
      const path = "M" + points.map(([sample, n]) => `${x(sample.at).toFixed(1)},${y(n).toFixed(1)}`).join("L");
      if (scale.ticks[0] === 0) draw(group, "path", { class: "area", d: `${path}L${last},${bottom}L${first},${bottom}Z` });
      draw(group, "path", { class: "line", d: points.length > 1 ? path : `${path}h0.1` });
    }
  });
  const chosen = pick(id, shown, x) ?? shown[shown.length - 1];
  if (hover[id] !== undefined && chosen) {
    draw(svg, "line", { class: "hover", x1: x(chosen.at), x2: x(chosen.at), y1: top, y2: bottom });
  }
  ["a", "b"].forEach((key, line) => {
    const value = chosen ? of(chosen)[line] : null;
    set(`${id}-${key}`, value === null ? "–" : word(value));
  });
}

// Samples with their values, in pieces: a sample without a value ends one.
function unbroken(samples, of) {
  const pieces = [[]];
  for (const sample of samples) {
    const n = of(sample);
    if (n === null) pieces.push([]);
    else pieces[pieces.length - 1].push([sample, n]);
  }
  return pieces.filter((piece) => piece.length);
}

// The sample that the pointer is at, if it is over the chart.
function pick(id, samples, x) {
  if (hover[id] === undefined) return undefined;
  const away = (sample) => Math.abs(x(sample.at) - hover[id].x);
  return samples.reduce((best, sample) => (best && away(best) <= away(sample) ? best : sample), undefined);
}

function throughput() {
  const of = (s) => [s.bytes_read / s.seconds, s.bytes_written / s.seconds];
  const most = live.history.reduce((n, sample) => Math.max(n, ...of(sample)), 1000);
  timeline("throughput", ["read", "write"], of, linear(most), (n) => bytes(n).join(" ") + "/s");
}

function latency() {
  const of = (s) => [s.p50 || null, s.p99 || null];
  const all = live.history.flatMap(of).filter((n) => n !== null);
  const scale = all.length ? logarithmic(Math.min(...all), Math.max(...all)) : logarithmic(1e-6, 1e-3);
  timeline("latency", ["p50", "p99"], of, scale, (n) => time(n).join(" "));
}

function map() {
  const { cells, cell_bytes: size } = live.survey;
  const { svg, right, bottom } = canvas(at("map"), 0, 0);
  if (!cells.length || right <= 0 || bottom <= 0) return;
  const rowsFor = (columns) => Math.ceil(cells.length / columns);
  let columns = 1;
  while (columns < cells.length && (right / columns) * rowsFor(columns) > bottom) columns += 1;
  const width = (right + 2) / columns, height = Math.min(bottom / rowsFor(columns), width * 1.6);
  cells.forEach((used, cell) => {
    const [column, row] = [cell % columns, Math.floor(cell / columns)];
    const shade = used === 0 ? 0 : Math.min(7, 1 + Math.floor((used * 7) / 1001));
    draw(svg, "rect", { class: `f${shade}`, x: (column * width).toFixed(2), y: (row * height).toFixed(2),
      width: Math.max(width - 1, 1).toFixed(2), height: Math.max(height - 1, 1).toFixed(2), rx: 1.5 });
  });
  const over = hover.map && Math.floor(hover.map.y / height) * columns + Math.floor(hover.map.x / width);
  set("map-note", cells[over] === undefined ? `a square is ${power(size)} of the volume`
    : `at ${power(over * size)}: ${cells[over] / 10} % in use`);
}

function extents() {
  const { free, groups, groups_counted: counted } = live.survey;
  const { svg, left, right, top, bottom } = canvas(at("extents"), 38, 36);
  const part = counted < groups ? `, in ${count(counted)} of ${count(groups)} groups` : "";
  set("extents-note", `${count(free.extents)}, the longest ${power(free.longest)}${part}`);
  const scale = linear(free.histogram.reduce((most, bucket) => Math.max(most, (100 * bucket.bytes) / free.bytes), 10) * 1.05);
  for (const share of scale.ticks) {
    const line = Math.round(bottom - scale.place(share) * (bottom - top)) + 0.5;
    draw(svg, "line", { class: "grid", x1: left, x2: right, y1: line, y2: line });
    draw(svg, "text", { x: left - 6, y: line + 4, "text-anchor": "end" }, `${share} %`);
  }
  draw(svg, "text", { x: (left + right) / 2, y: bottom + 32, "text-anchor": "middle" }, "share of the free space, by length of extent; above: how many");
  if (!free.histogram.length) return;
  const step = (bucket) => Math.log2(bucket.from_bytes);
  const first = step(free.histogram[0]), last = step(free.histogram[free.histogram.length - 1]);
  const slots = Math.max(last - first + 1, 6), width = (right - left) / slots;
  for (const bucket of free.histogram) {
    const x = left + (step(bucket) - first) * width, share = (100 * bucket.bytes) / free.bytes;
    const height = Math.max(scale.place(share) * (bottom - top), 1);
    const column = draw(svg, "rect", { class: "column", x: x + width * 0.14, y: bottom - height, width: width * 0.72, height, rx: 2 });
    draw(column, "title", {}, `${count(bucket.runs)} of ${power(bucket.from_bytes)} or more: ${bytes(bucket.bytes).join(" ")}`);
    const label = { x: x + width / 2, y: Math.max(bottom - height - 4, top + 2), "text-anchor": "middle" };
    draw(svg, "text", label, short(bucket.runs));
  }
  const every = Math.ceil(slots / 6);
  for (let slot = 0; slot <= last - first; slot += every) {
    draw(svg, "text", { x: left + (slot + 0.5) * width, y: bottom + 15, "text-anchor": "middle" }, power(2 ** (first + slot)));
  }
}

// ---- Figures ---------------------------------------------------------------------------------------------

function head() {
  const { report } = live;
  set("image", report.image);
  set("dir", report.dir);
  set("label", report.label && `“${report.label}”`);
  set("uptime", `up ${since(report.uptime_seconds)} · ${report.policy}`);
  const state = live.state;
  set("state", state);
  at("state").className = `state ${state}`;
  document.title = `Hectare: ${report.dir}`;
  const broken = report.broken_places ? `${report.broken_places} places of the volume are broken. ` : "";
  const trouble = report.stopped ? `No change is taken any more: ${report.stopped}` : broken;
  set("trouble", trouble);
  at("trouble").hidden = !trouble;
}

function tiles() {
  const { report, history, kinds } = live, last = history[history.length - 1];
  set("operations-total", count(kinds.reduce((sum, kind) => sum + kind.count, 0)));
  set("read-total", bytes(report.operations.bytes_read).join(" "));
  set("write-total", bytes(report.operations.bytes_written).join(" "));
  if (last) {
    set("operations-rate", count(last.operations / last.seconds));
    const rate = (n) => { const [text, unit] = bytes(n / last.seconds); return [text, unit + "/s"]; };
    setUnit("read-rate", "read-unit", rate(last.bytes_read));
    setUnit("write-rate", "write-unit", rate(last.bytes_written));
    setUnit("p50", "p50-unit", time(last.p50));
    set("p99", time(last.p99).join(" "));
  }
  set("commits", count(report.journal.commits));
  set("pause", time(report.journal.longest_pause_nanoseconds / 1e9).join(" "));
  if (report.space) {
    const { size, free } = report.space;
    setUnit("free", "free-unit", bytes(free));
    const share = size ? (100 * (size - free)) / size : 0;
    set("used", `${share.toFixed(1)} % of ${bytes(size).join(" ")} in use`);
    at("used-bar").style.width = `${share}%`;
  }
}

function kinds() {
  const rows = live.kinds.filter((kind) => kind.count).sort((a, b) => b.count - a.count).map((kind) => {
    const row = document.createElement("tr");
    row.title = kind.missing ? `${count(kind.missing)} of the errors: there is no such name or attribute` : "";
    const cells = [kind.name, kind.rate ? short(kind.rate) : "–", short(kind.count), time(kind.p50).join(" "), time(kind.p99).join(" "),
      kind.errors ? short(kind.errors) : "–"];
    cells.forEach((text, at) => {
      const cell = row.appendChild(document.createElement("td"));
      cell.textContent = text;
      if (text === "–") cell.className = "none";
      else if (at === 5) cell.className = kind.errors > kind.missing ? "some" : "soft";
    });
    return row;
  });
  at("kinds").replaceChildren(...rows);
}

function show() {
  if (!live) return;
  head(); tiles(); throughput(); latency(); map(); extents(); kinds();
}

async function poll() {
  try {
    const answer = await fetch("live.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    live = await answer.json();
    polls += 1;
    document.body.dataset.polls = polls;
    show();
  } catch (error) {
    set("state", "not reachable");
    at("state").className = "state gone";
    console.warn(error);
  }
  setTimeout(poll, 1000);
}

for (let shade = 0; shade < 8; shade += 1) {
  at("ramp").appendChild(document.createElement("span")).className = `f${shade}`;
}
for (const [id, redraw] of [["throughput", throughput], ["latency", latency], ["map", map]]) {
  at(id).addEventListener("pointermove", (event) => {
    const box = at(id).getBoundingClientRect();
    hover[id] = { x: event.clientX - box.left, y: event.clientY - box.top };
    if (live) redraw();
  });
  at(id).addEventListener("pointerleave", () => { delete hover[id]; if (live) redraw(); });
}
addEventListener("resize", show);
poll();
