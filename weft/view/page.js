"use strict";
const read = id => JSON.parse(document.getElementById(id).textContent);
const data = read("data"), packed = read("details"), sides = data.sides, classes = data.classes, causes = data.causes;
const find = id => document.getElementById(id), NAMES = ["A", "B"], SHARE = 250, ROW = 18;
const ENGINES = ["load", "loadw", "gemm", "vector", "store"], LANES = [...ENGINES, "why the array is not busy"];
const state = { side: 0, layer: null, cycle: null, instruction: null };
const unpacked = sides.map(() => new Map()), views = [];  // what was opened; timelines on the screen
const tones = new Map();  // asking the page for a colour may make it lay itself out
function colour(name) {
  if (!tones.has(name)) tones.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return tones.get(name);
}
const classColour = number => classes[number].name === "IDLE" ? colour("--idle") : classes[number].colour;
const number = value => typeof value !== "number" ? String(value) : Number.isInteger(value) ? value.toLocaleString("en")
  : Number(value.toPrecision(3)).toLocaleString("en");
const percent = (part, whole) => whole ? `${(100 * part / whole).toFixed(part / whole < .0995 ? 1 : 0)} %` : "";

function make(tag, text, attributes, ...children) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  Object.assign(node, attributes || {});
  node.append(...children);
  return node;
}
function drawn(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
function shortName(name) {  // what layers that are made of several have in common is said once
  const parts = name.split("+");
  if (parts.length < 2) return name;
  const words = parts.map(part => part.split("."));
  let common = 0;
  while (words.every(each => each.length > common + 1 && each[common] === words[0][common])) common += 1;
  const rest = words.map(each => each.slice(common).join("."));
  return (common ? words[0].slice(0, common).join(".") + ": " : "") + rest.join(" + ");
}
const clipped = (text, length) => text.length <= length ? text : text.slice(0, Math.ceil(length / 2) - 1) + "…" + text.slice(-Math.floor(length / 2));
const cyclesOf = layer => layer.end === undefined ? 0 : layer.end - layer.start;
const costOf = layer => layer.end === undefined && layer.work && layer.work.seconds || cyclesOf(layer);  // seconds, where there are no cycles
const costText = layer => layer.end === undefined ? timeText(costOf(layer)) : `${number(cyclesOf(layer))} cycles`;
const layersOf = side => sides[side].layers;
const wholeOf = side => sides[side].cycles || layersOf(side).reduce((sum, layer) => sum + costOf(layer), 0);

// The same layer of the other compilation: by its name, else by the first node that it does the work of.
const partners = sides.map((each, side) => {
  const others = sides.length > 1 ? layersOf(1 - side) : [], byName = new Map(), byNode = new Map();
  others.forEach((layer, place) => {
    if (!byName.has(layer.name)) byName.set(layer.name, place);
    for (const node of layer.nodes) if (!byNode.has(node)) byNode.set(node, place);
  });
  const seen = new Map();
  return each.layers.map(layer => {  // layers of one name: the first meets the first
    const alike = others.map((other, place) => other.name === layer.name ? place : -1).filter(place => place >= 0);
    const turn = seen.get(layer.name) || 0;
    seen.set(layer.name, turn + 1);
    if (alike.length) return alike[Math.min(turn, alike.length - 1)];
    const node = layer.nodes.find(each => byNode.has(each));
    return node === undefined ? null : byNode.get(node);
  });
});

async function opened(side, what, name) {
  const key = `${what} ${name}`;
  if (!unpacked[side].has(key)) {
    const text = atob(packed[side][what][name]), bytes = new Uint8Array(text.length);
    for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
    const stream = new DecompressionStream("gzip"), writer = stream.writable.getWriter();
    writer.write(bytes);
    writer.close();
    const detail = await new Response(stream.readable).json();
    if (detail.code) {
      const code = detail.code;
      for (const name of ["number", "start"]) code[name].reduce((sum, each, place) => code[name][place] = sum + each, 0);
      code.place = new Map(code.number.map((each, place) => [each, place]));
    }
    unpacked[side].set(key, detail);
  }
  return unpacked[side].get(key);
}
const detailOf = (side, layer) => opened(side, "layers", layer);

// Graph

const KINDS = [[/depthwise/, "#45b0a8"], [/conv/, "#2f6690"], [/chain/, "#7b5ea7"], [/pool/, "#5a9367"], [/matmul|dense|gemm|product/, "#3d5a80"],
  [/numpy/, "#d1495b"], [/add|mul|sum|element|vector/, "#f08a5d"]];
const kindColour = layer => layer.device === "cpu" ? "#8d99ae" : (KINDS.find(([words]) => words.test(layer.device + layer.kind)) || [0, "#c99b3f"])[1];
let boxes = [], lines = [];
function showGraph() {
  const side = sides[state.side], graph = side.graph, [width, height] = graph.box, [w, h] = graph.size, first = graph.inputs.length;
  const fit = Math.max(.6, Math.min(1, (find("graph-scroll").clientWidth - 6) / (w + 24)));  // a little too wide is made to fit
  const svg = drawn("svg", { width: fit * (w + 24), height: fit * (h + 24), viewBox: `-12 -12 ${w + 24} ${h + 24}` },
    drawn("defs", {}, drawn("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" },
      drawn("path", { d: "M0 0 8 4 0 8z" }))));
  lines = graph.edges.map(([from, to, route]) => {
    const [x1, y1] = graph.places[from], [x2, y2] = graph.places[to];
    const points = [[x1 + width / 2, y1 + height], ...route, [x2 + width / 2, y2]];
    let path = `M${points[0]}`;
    for (let place = 1; place < points.length; place += 1) {
      const [[px, py], [x, y]] = [points[place - 1], points[place]], middle = (py + y) / 2;
      path += px === x ? `L${x} ${y}` : `C${px} ${middle} ${x} ${middle} ${x} ${y}`;
    }
    const line = drawn("path", { d: path, class: "edge", "marker-end": "url(#arrow)" });
    svg.append(line);
    return [from - first, to - first, line];
  });
  const most = Math.max(...side.layers.map(costOf)) || 1;
  boxes = graph.places.map(([x, y], box) => {
    const layer = side.layers[box - first];
    const node = drawn("g", { class: layer ? "node" : "node end", transform: `translate(${x} ${y})` }, drawn("rect", { class: "box", width, height, rx: 6 }));
    if (!layer) {
      const text = box < first ? graph.inputs[box] : graph.outputs[box - first - side.layers.length], [name, type] = split(text);
      node.append(label(clipped(name, 25), 10, 19), label(type || "", 10, 36, "sub"), drawn("title", {}));
      node.lastChild.textContent = text;
      svg.append(node);
      return node;
    }
    const share = costOf(layer) / most;
    node.append(drawn("rect", { width: 5, height: height - 12, x: 0, y: 6, fill: kindColour(layer), rx: 2 }), label(clipped(shortName(layer.name), 26), 12, 18),
      label(clipped(`${layer.kind} · ${layer.shape.join("×") || "scalar"}`, 34), 12, 33, "sub"), drawn("title", {}));
    if (share) node.append(drawn("rect", { class: "share", x: 12, y: height - 8, height: 4, width: Math.max(1, share * (width - 24)), rx: 2 }));
    node.querySelector("title").textContent = `${layer.name}\n${layer.kind} on ${layer.device}` + (share ? `\n${costText(layer)}` : "");
    node.dataset.layer = box - first;
    node.onclick = () => choose(box - first, { from: "graph" });
    svg.append(node);
    return node;
  });
  find("graph-scroll").replaceChildren(svg);
  markGraph();
}
function split(text) { const place = text.indexOf(": "); return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + 2)]; }
function label(text, x, y, kind) {
  const node = drawn("text", { x, y, ...(kind ? { class: kind } : {}) });
  node.textContent = text;
  return node;
}
function markGraph(scroll = true) {
  const first = sides[state.side].graph.inputs.length;
  boxes.forEach((box, place) => box.classList.toggle("chosen", place - first === state.layer && state.layer !== null));
  for (const [from, to, line] of lines) line.classList.toggle("near", state.layer !== null && (from === state.layer || to === state.layer));
  const box = state.layer === null ? null : boxes[first + state.layer];
  if (!box || !scroll) return;
  const pane = find("graph-scroll"), [x, y] = sides[state.side].graph.places[first + state.layer];
  const fit = box.ownerSVGElement.width.baseVal.value / box.ownerSVGElement.viewBox.baseVal.width;
  pane.scrollTo({ top: fit * (y + 40) - pane.clientHeight / 2, left: fit * (x + 110) - pane.clientWidth / 2 });
}
function search(text) {
  const words = text.toLowerCase(), first = sides[state.side].graph.inputs.length;
  const met = layersOf(state.side).map(layer => [layer.name, layer.kind, ...layer.nodes, ...layer.operators].some(each => each.toLowerCase().includes(words)));
  met.forEach((each, place) => boxes[first + place].classList.toggle("faded", Boolean(text) && !each));
  return met.indexOf(true);
}

// Timelines

function fitted(pen, text, room) {  // as much of a text as has room: letters differ in width
  let shown = text;
  for (let size = text.length; size > 1 && pen.measureText(shown).width > room; shown = clipped(text, size)) size -= 1;
  return shown;
}
function canvasOf(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth || 600;
  const [across, down] = [Math.max(1, Math.round(width * scale)), Math.round(height * scale)];
  if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  const pen = canvas.getContext("2d");
  pen.reset();  // nothing of the drawing before is left, nor how its text was aligned
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "11px system-ui, sans-serif";
  return { pen, width, height };
}
const LEFT = 84, LANE = 26, GAP = 4, TOP = 22;

// A canvas of lanes over cycles. `binned`: shares of classes; `code`: instructions, drawn where there is room for them.
function timelineOf(side, binned, options) {
  const canvas = make("canvas", undefined, { className: "pick", tabIndex: 0 });
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", options.label);
  const [begin, end] = binned.edges, whole = options.whole || end - begin, view = { from: begin, to: begin + whole };
  const self = { canvas, view, side };
  const at = (cycle, width) => LEFT + (cycle - view.from) * (width - LEFT - 8) / (view.to - view.from);
  const cycleAt = x => Math.min(end - 1, Math.max(begin, Math.floor(view.from + (x - LEFT) * (view.to - view.from) / (canvas.clientWidth - LEFT - 8))));
  self.draw = () => {
    const { pen, width, height } = canvasOf(canvas, TOP + LANES.length * (LANE + GAP) + 18), step = (end - begin) / binned.bins;
    pen.save(); pen.beginPath(); pen.rect(LEFT, 0, width - LEFT - 6, height); pen.clip();
    layersOf(side).forEach((layer, place) => {
      if (layer.end === undefined || layer.end <= view.from || layer.start >= view.to) return;
      const x = at(layer.start, width), x2 = at(layer.end, width);
      pen.fillStyle = place === state.layerOf[side] ? colour("--chosen") : colour(place % 2 ? "--strip-a" : "--strip-b");
      pen.fillRect(x, 4, Math.max(1, x2 - x - .5), 13);
      const left = Math.max(x, LEFT);
      if (x2 - left > 60) { pen.fillStyle = colour("--card"); pen.fillText(fitted(pen, shortName(layer.name), x2 - left - 8), left + 4, 14); }
    });
    binned.rows.forEach((row, lane) => {
      const y = TOP + lane * (LANE + GAP), levels = new Float64Array(binned.bins), tall = options.code && lane < ENGINES.length ? LANE - 10 : LANE;
      pen.fillStyle = colour("--soft"); pen.fillRect(at(begin, width), y, at(end, width) - at(begin, width), tall);
      const low = Math.max(0, Math.floor((view.from - begin) / step) - 1), high = Math.min(binned.bins, Math.ceil((view.to - begin) / step) + 1);
      for (const [kind, shares] of Object.entries(row)) {
        pen.fillStyle = classColour(kind);
        for (let place = low; place < high; place += 1) {
          const share = shares[place];
          if (!share) continue;
          let last = place;
          while (share === SHARE && last + 1 < high && shares[last + 1] === SHARE) { levels[last] += share; last += 1; }  // whole bins are one piece
          const x = at(begin + place * step, width), x2 = at(begin + (last + 1) * step, width), base = levels[last] / SHARE * tall;
          pen.fillRect(x, y + tall - base - share / SHARE * tall, Math.max(.6, x2 - x + .3), share / SHARE * tall);
          levels[last] += share;
          place = last;
        }
      }
    });
    if (options.code) drawCode(pen, width, at, options.code, view);
    pen.restore();
    pen.textAlign = "right"; pen.fillStyle = colour("--text");
    LANES.forEach((name, lane) => pen.fillText(lane < 5 ? name : "why", LEFT - 8, TOP + lane * (LANE + GAP) + LANE / 2 + 4));
    axis(pen, width, height, view, at);
    if (state.cycle !== null && state.layerOf[side] !== null && side === state.side) mark(pen, at(state.cycle, width), height - 18);
  };
  self.zoom = (factor, around = (view.from + view.to) / 2) => {
    const span = Math.max(8, Math.min(whole, (view.to - view.from) * factor)), share = (around - view.from) / (view.to - view.from);
    self.show(around - share * span, span);
  };
  self.show = (from, span) => {
    view.from = Math.max(begin, Math.min(begin + whole - span, from)); view.to = view.from + span;
    self.draw();
  };
  canvas.onwheel = event => {
    if (!event.ctrlKey && !event.shiftKey && !options.code) return;
    event.preventDefault();
    self.zoom(event.deltaY > 0 ? 1.25 : .8, cycleAt(event.offsetX));
  };
  let held = null, moved = false;
  canvas.onpointerdown = event => { held = [event.clientX, view.from]; moved = false; };
  canvas.onpointermove = event => {
    if (held && Math.abs(event.clientX - held[0]) > 3) moved = true;
    if (held && moved) return self.show(held[1] - (event.clientX - held[0]) * (view.to - view.from) / (canvas.clientWidth - LEFT - 8), view.to - view.from);
    if (event.offsetX >= LEFT) options.hover(cycleAt(event.offsetX), laneAt(event.offsetY));
  };
  canvas.onpointerup = event => { if (held && !moved && event.offsetX >= LEFT) options.click(cycleAt(event.offsetX), laneAt(event.offsetY)); held = null; };
  canvas.onpointerleave = () => { held = null; };
  canvas.ondblclick = () => self.show(begin, whole);
  canvas.onkeydown = event => {
    const span = view.to - view.from, keys = { "+": () => self.zoom(.6), "=": () => self.zoom(.6), "-": () => self.zoom(1.6), "0": () => self.show(begin, whole),
      ArrowLeft: () => self.show(view.from - span / 8, span), ArrowRight: () => self.show(view.from + span / 8, span), Enter: () => options.click(Math.floor((view.from + view.to) / 2), 2) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  };
  return self;
}
const laneAt = y => Math.max(0, Math.min(LANES.length - 1, Math.floor((y - TOP) / (LANE + GAP))));
function drawCode(pen, width, at, code, view) {  // a bar for each instruction, in two shades by tile
  const least = (view.to - view.from) / (width - LEFT) * .75;
  const reached = new Float64Array(ENGINES.length).fill(-1);
  for (let place = 0; place < code.number.length; place += 1) {
    const start = code.start[place] + code.origin, length = code.length[place], lane = code.engine[place];
    if (start + length < view.from || start > view.to) continue;
    if (start + length < reached[lane] + least) continue;  // it would be drawn on the one before
    reached[lane] = start + length;
    const x = at(start, width), wide = Math.max(1, at(start + length, width) - x - .4), chosen = code.number[place] === state.instruction;
    pen.fillStyle = chosen ? colour("--chosen") : colour(code.tile[place] % 2 ? "--strip-a" : "--strip-b");
    pen.fillRect(x, TOP + lane * (LANE + GAP) + LANE - 9, wide, 9);
    if (chosen) { pen.strokeStyle = colour("--chosen"); pen.lineWidth = 1.5; pen.strokeRect(x - 1, TOP + lane * (LANE + GAP), wide + 2, LANE); }
  }
  const chosen = code.place.get(state.instruction);
  if (chosen === undefined) return;
  pen.strokeStyle = colour("--chosen"); pen.lineWidth = 1.5;
  for (const sender of code.waits[chosen]) {
    const other = code.place.get(sender);
    if (other === undefined) continue;
    const x1 = at(code.start[other] + code.length[other] + code.origin, width), x2 = at(code.start[chosen] + code.origin, width);
    const y1 = TOP + code.engine[other] * (LANE + GAP) + LANE - 4, y2 = TOP + code.engine[chosen] * (LANE + GAP) + LANE - 4;
    pen.beginPath(); pen.moveTo(x1, y1); pen.bezierCurveTo(x1 + 14, y1, x2 - 14, y2, x2, y2); pen.stroke();
  }
}
function axis(pen, width, height, view, at) {
  pen.fillStyle = colour("--quiet"); pen.strokeStyle = colour("--line"); pen.textAlign = "center";
  const rough = (view.to - view.from) / Math.max(2, (width - LEFT) / 110), unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].find(each => each * unit >= rough) * unit);
  for (let tick = Math.ceil(view.from / step) * step; tick <= view.to; tick += step) {
    const x = at(tick, width), text = number(tick), half = pen.measureText(text).width / 2;
    if (x < LEFT - 1) continue;
    pen.fillRect(x, height - 18, 1, 3);
    pen.fillText(text, Math.max(LEFT + half - 6, Math.min(width - half - 2, x)), height - 3);
  }
}
function mark(pen, x, height) {
  if (x < LEFT) return;
  pen.strokeStyle = colour("--chosen"); pen.lineWidth = 1.5;
  pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height); pen.stroke();
}
function layerAt(side, cycle) { return layersOf(side).findIndex(layer => layer.end !== undefined && layer.start <= cycle && cycle < layer.end); }
const tell = text => { find("at").textContent = text; };
function at(side, cycle) {
  const layer = layersOf(side)[layerAt(side, cycle)];
  return `cycle ${number(cycle)}` + (layer ? ` · ${shortName(layer.name)}` : "");
}
function classesAt(binned, cycle, lane) {
  const [begin, end] = binned.edges, place = Math.min(binned.bins - 1, Math.floor((cycle - begin) * binned.bins / (end - begin)));
  return Object.entries(binned.rows[lane]).map(([kind, shares]) => [classes[kind].word, shares[place]]).filter(each => each[1]).sort((a, b) => b[1] - a[1])
    .map(([word, share]) => share === SHARE ? word : `${word} ${percent(share, SHARE)}`).join(", ");
}
// Cores that share a model: a lane for each, with the programs that it runs
function lanesOf(side, place) {
  const { cores, cycles, items, system, split } = side.lanes, wide = 1000, high = cores.length * (LANE + GAP), left = 200;
  const at = cycle => left + cycle * (wide - left) / cycles;
  const picture = drawn("svg", { viewBox: `0 0 ${wide} ${high}`, class: "cores", role: "img",
    "aria-label": `What each core of ${system} does in ${number(cycles)} cycles` });
  cores.forEach((core, row) => {
    const y = row * (LANE + GAP), told = drawn("text", { x: 0, y: y + LANE / 2 + 4 });
    told.textContent = `core ${row}, ${core.name}: ${percent(core.busy, cycles)} busy`;
    const waits = core.waits.filter(([other, waited]) => other !== row && waited).map(([other, waited]) => `${number(waited)} cycles for core ${other}`);
    told.append(drawn("title", {}, waits.length ? `waited ${waits.join(", ")}` : "waited for none"));
    picture.append(told, drawn("rect", { x: left, y, width: wide - left, height: LANE, class: "wait" }));
    core.work.forEach(each => {
      const names = each.layers.map(layer => shortName(layersOf(place)[layer].name)).join(", ");
      const what = split ? `turn ${each.turn}` : `item ${each.item}`;
      const bar = drawn("rect", { x: at(each.start), y, width: Math.max(.5, at(each.stop) - at(each.start) - .4), height: LANE,
        class: (split ? each.turn : each.item) % 2 ? "work odd" : "work" }, drawn("title", {}, `${what}, cycles ${number(each.start)} to ${number(each.stop)}: ${names}`));
      bar.onclick = () => { turnTo(place); choose(each.layers[0]); };
      picture.append(bar);
    });
  });
  const head = `${system}: ${items === 1 ? "1 item" : `${items} items`} in ${number(cycles)} cycles; ${split ? "turns" : "items"} in two shades, and where a core waits nothing. ${split ? "Below is the core with the most to do." : "Below is one item on its way through all stages."}`;
  return make("div", undefined, { className: "run" }, make("p", head, { className: "quiet" }), picture);
}
let stay = 0;  // so many of the views are of the whole run
function showRuns() {
  const longest = Math.max(...sides.map(side => side.timeline ? side.timeline.edges[1] - side.timeline.edges[0] : 0));
  sides.forEach((side, place) => {
    if (!side.timeline) return;
    if (side.lanes) find("runs").append(lanesOf(side, place));
    const line = timelineOf(place, side.timeline, {
      label: `What each engine does in ${number(side.cycles)} cycles of ${side.name}; the table of layers has the figures`, whole: longest,
      hover: (cycle, lane) => tell(`${at(place, cycle)} · ${LANES[lane]}: ${classesAt(side.timeline, cycle, lane)}`),
      click: cycle => { const layer = layerAt(place, cycle); if (layer >= 0) { turnTo(place); choose(layer, { cycle }); } },
    });
    find("runs").append(make("div", undefined, { className: "run" }, ...(sides.length > 1 ? [make("b", `${NAMES[place]}: ${number(side.cycles)} cycles`)] : []), line.canvas));
    views.push(line);
  });
  const machines = showMachines();
  find("run-box").hidden = !views.length && !machines;
  stay = views.length;
  const used = new Set(sides.flatMap(side => side.timeline ? side.timeline.rows.flatMap(row => Object.keys(row)) : []));
  find("legend").append(...classes.map((each, kind) => [each, kind]).filter(([, kind]) => used.has(String(kind))).map(([each, kind]) =>
    make("span", undefined, {}, Object.assign(make("i"), { style: `background:${each.name === "IDLE" ? "var(--idle)" : classColour(kind)}` }), each.word)));
}

// One layer

function pane(title, wide, ...children) { return make("div", undefined, { className: wide ? "pane wide" : "pane" }, make("h3", title), ...children); }
function causesOf(layer) {
  const whole = cyclesOf(layer), bar = make("div", undefined, { className: "bar" }), table = make("table", undefined, { className: "causes" });
  layer.causes.forEach((count, place) => {
    if (!count) return;
    const cause = causes[place], ground = classColour(cause.class);
    bar.append(Object.assign(make("i", undefined, { title: `${cause.name}: ${number(count)} cycles` }), { style: `background:${ground};flex:${count} 0 0` }));
    table.append(make("tr", undefined, {}, make("td", undefined, {}, Object.assign(make("i", undefined, { className: "dot" }), { style: `background:${ground}` }), cause.why || cause.name),
      make("td", number(count)), make("td", percent(count, whole))));
  });
  return [bar, table];
}
const boundsOf = layer => barsOf([["useful MACs", layer.bounds[0]], ["with padding", layer.bounds[1]], ["vector", layer.bounds[2]], ["memory", layer.bounds[3]], ["it takes", cyclesOf(layer)]], number);
function factsOf(layer) {
  const table = make("table", undefined, { className: "causes" });
  const rows = [["nodes", layer.nodes.join(", ")], ["operators", layer.operators.join(", ")], ["result", layer.shape.join(" × ") || "scalar"], ["multiply-accumulates", layer.macs && number(layer.macs)],
    ["loaded from DRAM", layer.loaded && `${number(layer.loaded)} bytes`], ["stored to DRAM", layer.stored && `${number(layer.stored)} bytes`],
    ["kept out of DRAM", layer.saved && `${number(layer.saved)} bytes`], ["why not on the core", layer.reason], ["not fused", layer.boundaries.join("; ")]];
  for (const [name, value] of rows) if (value) table.append(make("tr", undefined, {}, make("td", name, { className: "quiet" }), Object.assign(make("td", value, { className: "word" }), { style: "white-space:normal;overflow-wrap:anywhere" })));
  return table;
}
// Areas of memories over cycles, each under the line of its room; and bytes a cycle.
function memoriesOf(detail) {
  const canvas = make("canvas", undefined, {}), held = Object.entries(detail.held || {}), moved = Object.entries(detail.traffic || {});
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", held.map(([name, each]) => `${name}: at most ${number(Math.max(...each.values))} bytes`).join("; "));
  const self = { canvas, draw() {
    const rows = [...held.map(([name, each]) => [name === "dram" ? "DRAM" : name, each.values, each.room || Math.max(...each.values), each.room ? "--accent" : "--strip-a", each.room ? "room" : "bytes"]),
      ...moved.map(([name, values]) => [`DRAM ${name}`, values, Math.max(...values), "--chosen", "bytes a cycle"])];
    const { pen, width } = canvasOf(canvas, rows.length * 40 + 4);
    rows.forEach(([name, values, room, tone, unit], place) => {
      const y = place * 40 + 6, tall = 30, across = (width - LEFT - 8) / values.length, peak = values.reduce((a, b) => Math.max(a, b), 0);
      pen.fillStyle = colour("--soft"); pen.fillRect(LEFT, y, width - LEFT - 8, tall);
      pen.fillStyle = colour(tone); pen.globalAlpha = .75;
      values.forEach((value, bin) => pen.fillRect(LEFT + bin * across, y + tall - value / (room || 1) * tall, across + .4, value / (room || 1) * tall));
      pen.globalAlpha = 1; pen.fillStyle = colour("--text"); pen.textAlign = "right"; pen.fillText(name, LEFT - 8, y + 19);
      const text = unit === "room" ? `at most ${number(peak)} of ${number(room)} bytes` : `at most ${number(peak)} ${unit}`, wide = pen.measureText(text).width;
      pen.textAlign = "left"; pen.fillStyle = colour("--card"); pen.globalAlpha = .8; pen.fillRect(LEFT + 4, y + 3, wide + 8, 15);
      pen.globalAlpha = 1; pen.fillStyle = colour("--text"); pen.fillText(text, LEFT + 8, y + 14);
    });
  } };
  return self;
}
// A list of which only the rows on the screen exist.
function listing(side, layer, detail, line) {
  const code = detail.code, box = make("div", undefined, { className: "code", tabIndex: 0 }), inner = make("div");
  box.setAttribute("aria-label", "instructions; arrow keys go from one to the next");
  inner.style.height = `${code.number.length * ROW}px`;
  box.append(inner);
  const fill = () => {
    const first = Math.max(0, Math.floor(box.scrollTop / ROW) - 4), last = Math.min(code.number.length, first + Math.ceil((box.clientHeight || 300) / ROW) + 8);
    const chosen = code.place.get(state.instruction), senders = new Set(chosen === undefined ? [] : code.waits[chosen]);
    inner.replaceChildren(...Array.from({ length: last - first }, (_, offset) => {
      const place = first + offset, row = make("div", undefined, { className: "row" }, make("span", code.number[place]),
        make("span", `@${number(code.start[place] + code.origin)} +${number(code.length[place])}`), make("span", code.text[place]));
      if (code.number[place] === state.instruction) row.classList.add("chosen");
      if (senders.has(code.number[place])) { row.classList.add("sender"); row.title = "the chosen one waits for its token"; }
      row.style.top = `${place * ROW}px`;
      row.onclick = () => pick(place);
      return row;
    }));
  };
  const pick = (place, scroll = false) => {
    state.instruction = code.number[place];
    state.cycle = code.start[place] + code.origin;
    if (scroll) box.scrollTop = place * ROW - (box.clientHeight || 300) / 2;
    const span = line.view.to - line.view.from;
    if (state.cycle < line.view.from || state.cycle > line.view.to) line.show(state.cycle - span / 2, span);
    const senders = code.waits[place].map(each => code.place.has(each) ? each : `${each} (of another layer)`);
    showWave(code.length[place]);
    tell(`instruction ${code.number[place]}, from cycle ${number(state.cycle)}, ${number(code.length[place])} cycles` + (senders.length ? `; waits for ${senders.join(", ")}` : ""));
    views.forEach(each => each.draw());
  };
  box.onscroll = fill;
  box.onkeydown = event => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 16, PageUp: -16 }[event.key], from = code.place.get(state.instruction);
    if (step) { event.preventDefault(); pick(from === undefined ? 0 : Math.max(0, Math.min(code.number.length - 1, from + step)), true); }
  };
  return { box, draw: fill, pick };
}
function instructionAt(code, cycle, lane) {
  let best = -1;
  for (let place = 0; place < code.number.length; place += 1) {
    if (code.engine[place] !== lane) continue;
    const start = code.start[place] + code.origin;
    if (start <= cycle && (best < 0 || start >= code.start[best] + code.origin)) best = place;
  }
  return best;
}
async function layerSide(side, place) {
  const layer = layersOf(side)[place], detail = await detailOf(side, place), box = make("div"), parts = make("div", undefined, { className: "panes" });
  const head = make("div", undefined, { className: "head" }, make("h2", (sides.length > 1 ? `${NAMES[side]}: ` : "") + shortName(layer.name), { className: "name", title: layer.name }),
    make("span", layer.kind, { className: "badge" }), make("span", layer.device, { className: `badge ${layer.device}` }));
  if (costOf(layer)) head.append(make("span", `${costText(layer)}, ${percent(costOf(layer), wholeOf(side))} of the run`, { className: "quiet" }));
  box.append(head);
  if (layer.verdict || boundOf(layer)) box.append(make("p", layer.verdict || boundOf(layer).label, { className: "verdict" }));
  let list = null;
  if (detail.timeline) {
    const line = timelineOf(side, detail.timeline, {
      label: `Cycles of ${layer.name}: what each engine does, and its instructions`, code: detail.code,
      hover: (cycle, lane) => {
        const met = lane < 5 ? instructionAt(detail.code, cycle, lane) : -1;
        tell(`cycle ${number(cycle)} · ${LANES[lane]}: ${classesAt(detail.timeline, cycle, lane)}` + (met < 0 ? "" : ` · ${detail.code.text[met]}`));
      },
      click: (cycle, lane) => {
        state.cycle = cycle;
        showWave();
        const met = lane < 5 ? instructionAt(detail.code, cycle, lane) : -1;
        if (met >= 0) list.pick(met, true);
        markGraph();
        views.forEach(each => each.draw());
      },
    });
    const memory = memoriesOf(detail), zoom = make("span", undefined, {}, ...[["−", () => line.zoom(1.6)], ["+", () => line.zoom(.6)], ["all", () => line.canvas.ondblclick()]].map(([name, onclick]) =>
      make("button", name, { onclick })), make("span", " the wheel zooms, dragging moves; bars below each lane are instructions, in two shades by tile", { className: "quiet" }));
    list = listing(side, place, detail, line);
    parts.append(pane("Why it takes so long", false, ...causesOf(layer)), pane("What it would take at least", false, boundsOf(layer)),
      pane("Its cycles", true, zoom, line.canvas), pane("Bytes held in scratchpads and DRAM, and moved", true, memory.canvas),
      pane(`Its ${number(detail.code.number.length)} instructions`, true, list.box));
    views.push(line, memory, list);
  }
  if (layer.work) parts.append(...workOf(side, layer));
  const kernels = await kernelPanes(side, detail.kernels), loops = kernels.panes;
  views.push(...kernels.own);
  if (detail.loops) loops.push(pane("Loop nest", true, make("pre", detail.loops)));
  if (detail.nests) loops.push(pane("Loops that the engines' registers run", false, make("pre", detail.nests)));
  if (detail.schedule) loops.push(pane("Schedule", false, make("pre", detail.schedule)));
  parts.append(...loops, pane("What it is", !detail.nests, factsOf(layer)));
  box.append(parts);
  return box;
}

// What is chosen

state.layerOf = sides.map(() => null);
function turnTo(side) {
  if (side === state.side) return;
  state.side = side;
  state.layer = state.layerOf[side];
  showTabs();
  showGraph();
}
let turn = 0, shown = Promise.resolve();
function choose(layer, how = {}) { return shown = show(layer, how); }  // `shown`: when what was chosen last can be seen
async function show(layer, { cycle = null, from = "" }) {
  const mine = turn += 1;
  Object.assign(state, { layer, cycle, instruction: null });
  state.layerOf = sides.map((_, side) => side === state.side ? layer : partners[state.side][layer]);
  const parts = [];
  views.length = stay;
  for (const [side, place] of state.layerOf.entries()) parts.push(place === null ? make("p", `${NAMES[side]} has no such layer.`, { className: "quiet" }) : await layerSide(side, place));
  if (mine !== turn) return;
  find("layer-box").replaceChildren(make("div", undefined, { className: "sides" }, ...parts));
  markGraph(from !== "graph");
  views.forEach(view => view.draw());
  views.forEach(view => view.settled && view.settled());
  for (const row of find("table").tBodies[0].rows) row.classList.toggle("chosen", Number(row.dataset.layer) === state.layerOf[0] && state.layerOf[0] !== null);
  if (cycle !== null) tell(at(state.side, cycle));
  showWave();
  history.replaceState(null, "", `#${state.side ? "B:" : ""}${layer}`);
}

// Table

const sorting = { column: null, down: true };
function columnsOf() {
  const one = sides.length === 1, timed = sides.some(side => side.cycles), measured = sides.every((_, side) => measuredOn(side)), own = side => row => row[side] && costOf(row[side]);
  const columns = [["layer", row => shortName((row[0] || row[1]).name), "word"], ["kind", row => (row[0] || row[1]).kind, "word"], ["on", row => (row[0] || row[1]).device, "word"]];
  if (one) return timed ? [...columns, ["cycles", own(0)], ["of the run", row => cyclesOf(row[0]) / sides[0].cycles, "share"], ["DRAM bytes", row => row[0].loaded + row[0].stored], ["why", row => row[0].verdict || "", "word"]]
    : [...columns, ...(measured ? [[timeWord(0), own(0), "time"], ["of the run", row => costOf(row[0]) / wholeOf(0), "share"], ["10⁹ operations/s", row => row[0].work.gops], ["bound by", row => boundOf(row[0]).label, "word"]] : []),
      ["MACs", row => row[0].macs], ["bytes", row => row[0].work && row[0].work.bytes], ["operators", row => row[0].operators.join(", "), "word"]];
  if (measured) return [...columns, [`${timeWord(0)} A`, own(0), "time"], [`${timeWord(1)} B`, own(1), "time"], ["B ÷ A", row => row[0] && row[1] && costOf(row[0]) ? costOf(row[1]) / costOf(row[0]) : null, "ratio"],
    ["A is bound by", row => row[0] ? boundOf(row[0]).label : "", "word"], ["B is bound by", row => row[1] ? boundOf(row[1]).label : "", "word"]];
  if (!timed) return [...columns, ["MACs A", row => row[0] && row[0].macs], ["MACs B", row => row[1] && row[1].macs], ["operators", row => (row[0] || row[1]).operators.join(", "), "word"]];
  return [...columns, ["cycles A", own(0)], ["cycles B", own(1)], ["B − A", row => row[0] && row[1] ? cyclesOf(row[1]) - cyclesOf(row[0]) : null, "change"],
    ["why, A", row => row[0] ? row[0].verdict || "" : "", "word"], ["why, B", row => row[1] ? row[1].verdict || "" : "", "word"]];
}
function showTable() {
  const columns = columnsOf(), head = make("tr"), pairs = layersOf(0).map((layer, place) => [layer, sides.length > 1 && partners[0][place] !== null ? layersOf(1)[partners[0][place]] : null, place, 0]);
  if (sides.length > 1) layersOf(1).forEach((layer, place) => { if (partners[1][place] === null) pairs.push([null, layer, place, 1]); });
  columns.forEach(([name, , kind], place) => {
    const cell = make("th", name + (sorting.column === place ? (sorting.down ? " ▾" : " ▴") : ""), { className: kind === "word" ? "word" : "", tabIndex: 0, scope: "col" });
    cell.onclick = () => { Object.assign(sorting, { column: place, down: sorting.column === place ? !sorting.down : true }); showTable(); };
    cell.onkeydown = event => { if (event.key === "Enter") cell.onclick(); };
    head.append(cell);
  });
  if (sorting.column !== null) {
    const value = columns[sorting.column][1], sign = sorting.down ? -1 : 1;
    pairs.sort((one, other) => { const [p, q] = [value(one), value(other)]; return sign * (p < q ? -1 : p > q ? 1 : 0); });
  }
  find("table").tHead.replaceChildren(head);
  find("table").tBodies[0].replaceChildren(...pairs.map(row => {
    const line = make("tr", undefined, { tabIndex: 0 });
    for (const [, value, kind] of columns) {
      const found = value(row), text = found === null || found === undefined ? "" : kind === "share" ? percent(found, 1) : kind === "time" ? timeText(found) : kind === "ratio" ? `${number(found)} ×` : kind === "word" ? found : kind === "change" && found > 0 ? `+${number(found)}` : found ? number(found) : kind === "change" ? "0" : "";
      const cell = make("td", text, { className: kind === "word" ? "word" : kind === "change" && found ? (found > 0 ? "worse" : "better") : kind === "ratio" && found ? (found > 1.05 ? "worse" : found < .95 ? "better" : "") : "" });
      if (kind === "word") cell.title = text;
      line.append(cell);
    }
    if (row[3] === 0) line.dataset.layer = row[2];
    line.onclick = () => { turnTo(row[3]); choose(row[2]); find("layer-box").scrollIntoView({ block: "nearest" }); };
    line.onkeydown = event => { if (event.key === "Enter") line.onclick(); };
    return line;
  }));
}

// The page

function showTabs() {
  find("tabs").replaceChildren(...(sides.length < 2 ? [] : sides.map((each, side) => {
    const button = make("button", NAMES[side], { title: each.name, onclick: () => turnTo(side) });
    button.setAttribute("aria-pressed", side === state.side);
    return button;
  })));
}
function step(by) {
  const count = layersOf(state.side).length;
  if (count) choose(Math.max(0, Math.min(count - 1, state.layer === null ? 0 : state.layer + by)));
}
function follow(down) {
  const near = lines.find(([from, to]) => down ? from === state.layer && to < layersOf(state.side).length : to === state.layer && from >= 0);
  if (near) choose(near[down ? 1 : 0]);
}
find("search").oninput = event => search(event.target.value.trim());
find("search").onkeydown = event => {
  if (event.key === "Escape") { event.target.value = ""; search(""); event.target.blur(); }
  if (event.key !== "Enter") return;
  const met = search(event.target.value.trim());
  if (met >= 0) choose(met);
};
find("graph-scroll").onkeydown = event => {
  const keys = { ArrowDown: () => step(1), ArrowUp: () => step(-1), Home: () => choose(0), End: () => choose(layersOf(state.side).length - 1) };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
};
addEventListener("keydown", event => {
  if (event.target.closest("input, .code, canvas") || event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = { "/": () => find("search").focus(), j: () => step(1), k: () => step(-1), "[": () => follow(false), "]": () => follow(true) };
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});
sides.forEach((side, place) => {
  const line = make("div", undefined, { className: "facts" });
  if (sides.length > 1) line.append(make("b", `${NAMES[place]}: ${side.name}`));
  for (const [name, value] of side.facts) line.append(make("span", `${name} `, {}, make("b", value)));
  find("facts").append(line);
});
let waiting = 0;
const again = () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(() => views.forEach(view => view.draw())); };
addEventListener("resize", again);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { tones.clear(); again(); });
showTabs();
showGraph();
showRuns();
showTable();
views.forEach(view => view.draw());
function start() {
  const [, second, layer] = /^#(B:)?(\d+)$/.exec(location.hash) || [], side = second && sides.length > 1 ? 1 : 0;
  turnTo(side);
  const slowest = layersOf(side).reduce((best, each, place, all) => costOf(each) > costOf(all[best]) ? place : best, 0);
  const wanted = layer === undefined ? slowest : Number(layer);
  return layersOf(side).length ? choose(Math.min(wanted, layersOf(side).length - 1)) : null;
}
find("layer-box").textContent = "";
shown = new Promise(done => requestAnimationFrame(() => setTimeout(() => done(start()))));  // the graph is seen first
