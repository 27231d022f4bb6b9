"use strict";
// Kernels of a processor or a GPU: their code, their time, and the roof over them.

const KIND_TONES = ["--mac", "--strip-a", "--load", "--store", "--worse", "--strip-b", "--quiet", "--chosen"];
const timeText = seconds => seconds >= 1 ? `${number(seconds)} s` : seconds >= 1e-3 ? `${number(1e3 * seconds)} ms` : `${number(1e6 * seconds)} µs`;
const measuredOn = side => { const machine = sides[side].machine; return machine && machine.roof ? machine : null; };  // or by a data sheet: `why` says so
const timeWord = side => sides[side].machine.why ? "least time" : "time";
const boundOf = layer => layer.work && layer.work.bound !== undefined ? data.bounds[layer.work.bound] : null;

// Time by node: a strip of the whole run, each layer as wide as its time.
function timesOf(side, longest) {
  const canvas = make("canvas", undefined, { className: "pick", tabIndex: 0 }), layers = layersOf(side), name = sides[side].name;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Time of each layer of ${name}, in the order of the run; the table of layers has the figures. Arrow keys go to the next layer.`);
  const ends = [];
  layers.reduce((sum, layer) => { ends.push(sum + layer.work.seconds); return ends.at(-1); }, 0);
  const layerAtTime = x => ends.findIndex(end => end > (x - 8) * longest / (canvas.clientWidth - 16));
  const self = { canvas, side, draw() {
    const { pen, width, height } = canvasOf(canvas, 62), at = seconds => 8 + seconds * (width - 16) / longest;
    layers.forEach((layer, place) => {
      const x = at(ends[place] - layer.work.seconds), wide = Math.max(.5, at(ends[place]) - x - .5), chosen = place === state.layerOf[side];
      pen.fillStyle = chosen ? colour("--chosen") : boundOf(layer).colour;
      pen.fillRect(x, chosen ? 0 : 4, Math.max(wide, chosen ? 2 : 0), chosen ? 38 : 32);
      if (wide > 40) { pen.fillStyle = chosen ? colour("--card") : "#fff"; pen.textAlign = "left"; pen.fillText(fitted(pen, shortName(layer.name), wide - 8), x + 4, 24); }
    });
    pen.fillStyle = colour("--quiet");
    for (const tick of ticksOf(longest, width / 110)) {
      const text = tick ? timeText(tick) : "0", half = pen.measureText(text).width / 2;
      pen.fillRect(at(tick), 40, 1, 4);
      pen.textAlign = "center";
      pen.fillText(text, Math.max(half + 2, Math.min(width - half - 2, at(tick))), height - 4);
    }
  } };
  const told = place => place < 0 ? "" : `${shortName(layers[place].name)}: ${timeText(layers[place].work.seconds)}, ${percent(layers[place].work.seconds, ends.at(-1))}, ${boundOf(layers[place]).label}`;
  canvas.onpointermove = event => tell(told(layerAtTime(event.offsetX)));
  canvas.onclick = event => { const place = layerAtTime(event.offsetX); if (place >= 0) { turnTo(side); choose(place); } };
  canvas.onkeydown = event => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) { event.preventDefault(); turnTo(side); step(by); }
  };
  return self;
}
function ticksOf(most, count) {  // round numbers from 0 to `most`
  const rough = most / Math.max(1, count), unit = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find(each => each * unit >= rough) * unit;
  return most > 0 ? Array.from({ length: Math.floor(most / step * (1 + 1e-9)) + 1 }, (_, place) => place * step) : [];
}

// The roofline: operations a second over operations a byte, both axes logarithmic.
const ROOF = { left: 80, right: 14, top: 12, bottom: 40, height: 330 };
function rooflineOf(side, box) {
  const { roof } = measuredOn(side), shown = layersOf(side).map((layer, place) => [layer.work, place]).filter(([work]) => work.operations && work.bytes && work.seconds);
  const near = roof.gbytes[0], far = roof.gbytes.at(-1), peaks = [["float32", roof.float_gops], ["8-bit integers", roof.byte_gops]].sort((a, b) => b[1] - a[1]);
  const whole = layersOf(side).reduce((sum, layer) => sum + layer.work.seconds, 0);
  const span = (values, low, high) => [10 ** Math.floor(Math.log10(Math.min(low, ...values) * .9)), 10 ** Math.ceil(Math.log10(Math.max(high, ...values) * 1.1))];
  const [x0, x1] = span(shown.map(([work]) => work.intensity), .1, 100), [y0, y1] = span(shown.map(([work]) => work.gops), peaks[0][1] / 100, peaks[0][1]);
  const place = (value, low, high, from, to) => from + Math.log(value / low) / Math.log(high / low) * (to - from);
  return { side, draw() {
    const width = box.clientWidth || 600, { left, right, top, bottom, height } = ROOF, across = width - left - right, down = height - top - bottom;
    const x = value => place(value, x0, x1, left, left + across), y = value => place(value, y0, y1, top + down, top);
    const svg = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, class: "roof", role: "img", "aria-label": `Roofline of ${sides[side].name}: ${shown.length} kernels under the roof of ${roof.processor}` });
    for (const [low, high, vertical] of [[x0, x1, true], [y0, y1, false]]) for (let tick = low; tick <= high * 1.001; tick *= 10) {
      const here = vertical ? x(tick) : y(tick), text = tick >= 1 ? number(tick) : String(Number(tick.toPrecision(1)));
      svg.append(drawn("path", { class: "grid", d: vertical ? `M${here} ${top}V${top + down}` : `M${left} ${here}H${left + across}` }));
      const last = vertical && tick * 1.001 >= high, mark = vertical ? label(text, here, top + down + 16, "tick") : label(text, left - 6, here + 4, "tick");
      mark.setAttribute("text-anchor", !vertical || last ? "end" : "middle");
      svg.append(mark);
    }
    const top0 = peaks[0][1];
    for (const [[size, rate], word] of near === far ? [[far, "memory"]] : [[near, "first cache"], [far, "memory"]]) {
      const ridge = Math.min(x1, Math.max(x0, top0 / rate)), start = Math.max(x0, y0 / rate);
      svg.append(drawn("path", { class: "rate", d: `M${x(start)} ${y(start * rate)}L${x(ridge)} ${y(Math.min(top0, ridge * rate))}H${left + across}` }));
      const note = label(`${word}: ${number(rate)} GB/s`, 0, -5, "tick"), slope = Math.atan2(y(rate * start * 10) - y(rate * start), x(start * 10) - x(start)) * 180 / Math.PI;
      note.setAttribute("transform", `translate(${x(start) + 8} ${y(start * rate) - 8 * Math.abs(Math.tan(slope * Math.PI / 180))}) rotate(${slope})`);
      svg.append(note, drawn("title", {}));
      if (near !== far) svg.lastChild.textContent = `${number(size)} bytes`;
    }
    for (const [word, rate] of peaks) {
      const note = label(`${word}: ${number(rate)} Gop/s`, left + across - 2, y(rate) - 4, "tick");
      note.setAttribute("text-anchor", "end");
      svg.append(drawn("path", { class: "peak", d: `M${left} ${y(rate)}H${left + across}` }), note);
    }
    const order = [...shown].sort(([a, i], [b, j]) => (i === state.layerOf[side]) - (j === state.layerOf[side]) || b.seconds - a.seconds);  // the chosen one on top
    for (const [work, layer] of order) {
      const chosen = layer === state.layerOf[side], spot = drawn("circle", { class: chosen ? "spot chosen" : "spot", cx: x(work.intensity), cy: y(work.gops), r: Math.max(3.5, 26 * Math.sqrt(work.seconds / whole)), fill: data.bounds[work.bound].colour }, drawn("title", {}));
      spot.firstChild.textContent = `${layersOf(side)[layer].name}\n${number(work.gops)} Gop/s at ${number(work.intensity)} operations a byte\n${timeText(work.seconds)}, ${data.bounds[work.bound].label}`;
      spot.dataset.layer = layer;
      spot.onclick = () => { turnTo(side); choose(layer); };
      svg.append(spot);
    }
    const below = label("operations a byte read or written", left + across / 2, height - 5, "tick"), beside = label("10⁹ operations a second", 0, 0, "tick");
    below.setAttribute("text-anchor", "middle");
    beside.setAttribute("text-anchor", "middle");
    beside.setAttribute("transform", `translate(13 ${top + down / 2}) rotate(-90)`);
    svg.append(below, beside);
    box.replaceChildren(svg);
  } };
}
function showMachines() {  // in place of the timeline of cycles
  const known = sides.map((_, side) => side).filter(side => sides[side].machine && !sides[side].timeline), measured = known.filter(measuredOn);
  const longest = Math.max(...measured.map(side => layersOf(side).reduce((sum, layer) => sum + layer.work.seconds, 0)));
  for (const side of known) {
    const machine = sides[side].machine, named = sides.length > 1 ? [make("b", `${NAMES[side]}: `)] : [];
    const box = make("div", undefined, { className: "run" });
    find("runs").append(box);
    if (!measuredOn(side)) {
      box.append(make("p", undefined, {}, ...named, `Static counts only, nothing was measured: ${machine.why}.`));
      continue;
    }
    const strip = timesOf(side, longest), plot = make("div"), whole = layersOf(side).reduce((sum, layer) => sum + layer.work.seconds, 0);
    const nothing = layersOf(side).filter(layer => !layer.work.operations).length, threads = machine.roof.threads;
    const said = machine.why ? `At least ${timeText(whole)} in ${number(layersOf(side).length)} layers, by the data sheet of the ${machine.roof.processor}: arithmetic at its peak, or each tensor once through its memory. Nothing was measured: ${machine.why}.`
      : `${timeText(whole)} in ${number(layersOf(side).length)} layers on ${machine.processor}, ${threads} thread${threads > 1 ? "s" : ""}; each layer's best of several runs.`;
    box.append(make("p", undefined, {}, ...named, said), strip.canvas,
      make("h3", machine.why ? `Where its kernels touch the roof of the ${machine.roof.processor}` : "Under the roof of this machine", { className: "above" }), plot);
    if (nothing) box.append(make("p", `Not in the picture, because they only move data: ${number(nothing)}.`, { className: "quiet" }));
    views.push(strip, rooflineOf(side, plot));
  }
  if (known.length) find("run-head").textContent = "Time by node";
  if (known.length) tell(measured.length ? "A click on a bar or a point shows its kernel." : "");
  const used = new Set(measured.flatMap(side => layersOf(side).map(layer => layer.work.bound)));
  find("legend").append(...Object.entries(data.bounds).filter(([name]) => used.has(name)).map(([, each]) =>
    make("span", undefined, {}, Object.assign(make("i"), { style: `background:${each.colour}` }), each.label)));
  return known.length;
}

// One layer

function workOf(side, layer) {  // panes: what bounds it, and its figures
  const work = layer.work, rows = [], machine = measuredOn(side);
  if (machine) rows.push([timeWord(side), timeText(work.seconds)], ["arithmetic", work.operations && `${number(work.gops)} · 10⁹ operations a second`], ["traffic", work.seconds && `${number(work.bytes / work.seconds / 1e9)} GB/s`]);
  rows.push(["operations", work.operations && number(work.operations)], ["read and written", `${number(work.bytes)} bytes`], ["operations a byte", work.operations && number(work.intensity)],
    ["launches", number(work.launches)], ["bytes are multiplied by", work.form]);
  const table = make("table", undefined, { className: "causes" });
  for (const [name, value] of rows) if (value) table.append(make("tr", undefined, {}, make("td", name, { className: "quiet" }), Object.assign(make("td", value, { className: "word" }), { style: "white-space:normal" })));
  if (!machine) return [pane("What it does, counted", false, table)];
  const peak = work.on_bytes ? "bytes at peak" : "floats at peak";
  return [pane("What it would take at least", false, barsOf([[peak, work.least[0]], ["its traffic", work.least[1]], ...(machine.why ? [] : [["it takes", work.seconds]])], timeText)), pane("What it does", false, table)];
}
function barsOf(rows, text) {
  const most = Math.max(...rows.map(([, value]) => value)) || 1, box = make("div", undefined, { className: "bound" });
  for (const [name, value] of rows)
    box.append(make("span", name), Object.assign(make("i", undefined, { className: name === "it takes" ? "over" : "" }), { style: `width:${100 * value / most}%` }), make("span", text(value)));
  return box;
}
function countsOf(kernel) {
  const table = make("table", undefined, { className: "causes" }), [hot, all] = kernel.counts, sum = hot.reduce((a, b) => a + b, 0);
  table.append(make("tr", undefined, {}, make("th", ""), ...(kernel.looped ? [make("th", "hottest loop"), make("th", "")] : []), make("th", "whole kernel")));
  data.kinds.forEach((kind, place) => {
    if (!all[place]) return;
    const dot = Object.assign(make("i", undefined, { className: "dot" }), { style: `background:var(${KIND_TONES[place]})` });
    table.append(make("tr", undefined, {}, make("td", undefined, {}, dot, kind), ...(kernel.looped ? [make("td", number(hot[place])), make("td", percent(hot[place], sum))] : []), make("td", number(all[place]))));
  });
  const notes = [];
  if (kernel.readers[0]) notes.push(make("p", `${number(kernel.readers[0])} of those that compute${kernel.looped ? " in the loop" : ""} read an operand from memory themselves.`, { className: "quiet" }));
  for (const [mnemonic, count, how] of kernel.forms) notes.push(make("p", undefined, {}, make("code", mnemonic), ` × ${number(count)}: ${how}`));
  return [table, ...notes];
}
// The code of a kernel: only the rows on the screen exist; those of the hottest loop are marked.
function codeOf(kernel) {
  const box = make("div", undefined, { className: "code asm", tabIndex: 0 }), inner = make("div"), hot = new Set(kernel.looped ? kernel.hottest : []);
  box.setAttribute("aria-label", "assembly; arrow keys scroll");
  inner.style.height = `${kernel.lines.length * ROW}px`;
  box.append(inner);
  const depth = new Uint8Array(kernel.lines.length);
  for (const [level, first, last] of kernel.loops_of_code) for (let line = first; line <= last; line += 1) depth[line] = Math.max(depth[line], level);
  const fill = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4), last = Math.min(kernel.lines.length, first + Math.ceil((box.clientHeight || 300) / ROW) + 8);
    inner.replaceChildren(...Array.from({ length: last - first }, (_, offset) => {
      const place = first + offset, text = kernel.lines[place], kind = kernel.kinds[place];
      const row = make("div", undefined, { className: hot.has(place) ? "row hot" : "row" }, make("span", place + 1), make("span", kind < 0 ? text : `${"  ".repeat(depth[place] + 1)}${text}`));
      row.style.top = `${place * ROW}px`;
      if (kind >= 0) { row.title = data.kinds[kind]; row.lastChild.style.color = `var(${KIND_TONES[kind]})`; }
      return row;
    }));
  };
  box.onscroll = fill;
  const jump = () => { box.scrollTop = kernel.hottest[0] * ROW; fill(); };
  return { box, jump, draw: fill };
}
const LANGUAGES = { assembly: "Assembly", opencl: "OpenCL C", ptx: "PTX" };
async function kernelPanes(side, symbols) {
  const panes = [], own = [];
  for (const symbol of symbols) {
    const kernel = await opened(side, "kernels", symbol), machine = sides[side].machine;
    const nest = pane("Loop nest", true, make("pre", kernel.loops));
    if (!kernel.lines) { panes.push(nest); continue; }
    const code = codeOf(kernel), title = `${LANGUAGES[machine.language]} for ${machine.processor}: ${number(kernel.lines.length)} lines`;
    const jump = kernel.looped ? [make("p", undefined, {}, make("button", "to the hottest loop", { onclick: code.jump }), make("span", ` lines ${kernel.hottest[0] + 1} to ${kernel.hottest.at(-1) + 1}`, { className: "quiet" }))] : [];
    const counted = kernel.counts[1].some(Boolean);  // of OpenCL C only a driver knows the instructions
    panes.push(...(counted ? [pane("Its instructions", false, ...countsOf(kernel))] : []), nest, pane(title, true, ...jump, code.box));
    own.push({ draw: code.draw, settled() { if (kernel.looped) code.jump(); } });
  }
  return { panes, own };
}

// Waveforms: the command that shows the chosen cycle in the RTL. Cycles count over all programs there, too.
const BEFORE = 100, AFTER = 200;
function showWave(length = 0) {
  const { waves } = sides[state.side], box = find("wave");
  box.hidden = !waves || state.cycle === null;
  if (box.hidden) return;
  const text = `${waves} --from ${Math.max(0, state.cycle - BEFORE)} --to ${state.cycle + length + AFTER}`, code = make("code", text), button = make("button", "copy");
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(code); button.textContent = "selected"; }
  };
  box.replaceChildren("As a waveform: ", code, " ", button);
}
