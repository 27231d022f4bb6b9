"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const find = id => document.getElementById(id);
const state = { model: 0, example: 0, latency: 0, rate: 0, cycles: null, equal: null, top: null, scores: null, drawn: null };
let module = null, shown = Promise.resolve();

// What is packed in the page: gzip in base64.
async function opened(text) {
  const raw = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new DecompressionStream("gzip"), writer = stream.writable.getWriter();
  writer.write(raw);
  writer.close();
  return new Uint8Array(await new Response(stream.readable).arrayBuffer());
}

// One instance serves one run: its memory is never taken back.
class Instance {
  constructor(code = module) { this.exports = new WebAssembly.Instance(code).exports; }
  bytes(address, size) { return new Uint8Array(this.exports.memory.buffer, address >>> 0, size); }
  view(address, size) { return new DataView(this.exports.memory.buffer, address >>> 0, size); }
  place(content) {
    const address = this.exports.weft_allocate(content.length);
    this.bytes(address, content.length).set(content);
    return address;
  }
}

function predict(model, program) {
  const instance = new Instance(), { layout } = DATA;
  const core = instance.place(model.timingCore);
  instance.view(core, layout.core).setBigInt64(layout.latency, BigInt(state.latency), true);
  instance.view(core, layout.core).setBigInt64(layout.rate, BigInt(state.rate), true);
  const code = instance.place(program.code), result = instance.place(new Uint8Array(layout.result));
  const machine = instance.exports.weft_timing_predict(core, code, BigInt(program.count), program.offset,
    BigInt(DATA.limit), 1, 0, result);
  const found = instance.view(result, layout.result), cycles = Number(found.getBigInt64(layout.cycles, true));
  const counters = DATA.engines.map((_, engine) => Array.from({ length: DATA.kinds }, (_, kind) =>
    Number(found.getBigInt64(layout.counters + 8 * (engine * DATA.kinds + kind), true))));
  const first = instance.place(new Uint8Array(4)), number = Number(instance.exports.weft_timing_activity(machine, first));
  const start = instance.view(first, 4).getUint32(0, true);
  return { cycles, counters, number, activity: instance.view(start, number * layout.activity) };
}

function runProgram(model, program, window) {
  const instance = new Instance(), { layout } = DATA;
  const core = instance.place(model.functionalCore), place = instance.place(window);
  const result = instance.place(new Uint8Array(layout.functionalResult));
  const machine = instance.exports.weft_functional_create(core, place, BigInt(window.length));
  instance.exports.weft_functional_run(machine, BigInt(program.offset), BigInt(program.count), result);
  const fault = Number(instance.view(result, 8).getBigInt64(0, true));
  if (fault) throw Error(`program ${program.number} ends in fault ${fault}`);
  return instance.bytes(place, window.length).slice();
}

// A program of the host: its functions get a table of where inputs, outputs, constants, arena and counters are.
function runHost(step, values) {
  const instance = new Instance(step.module), table = new Uint32Array(5);
  const places = names => instance.place(new Uint8Array(Uint32Array.from(names, each => instance.place(each)).buffer));
  const outputs = step.outputs.map(([, size]) => instance.exports.weft_allocate(size));
  table[0] = places(step.inputs.map(name => values.get(name)));
  table[1] = instance.place(new Uint8Array(Uint32Array.from(outputs).buffer));
  table[2] = instance.place(step.constants);
  table[3] = instance.place(new Uint8Array(step.arena));
  table[4] = instance.place(new Uint8Array(step.counters));
  const start = instance.place(new Uint8Array(table.buffer));
  const at = (kind, number, offset) => offset + (kind === "constant" ? table[2] : kind === "arena" ? table[3]
    : instance.view(table[kind === "input" ? 0 : 1], 4 * (number + 1)).getUint32(4 * number, true));
  for (const each of step.work) {
    if (typeof each === "string") { instance.exports[each](start, 0n); continue; }
    const size = each[6], from = at(...each.slice(0, 3)), to = at(...each.slice(3, 6));
    instance.bytes(to, size).set(instance.bytes(from, size));
  }
  step.outputs.forEach(([name, size], place) => values.set(name, instance.bytes(outputs[place], size).slice()));
}

function freshWindow(model) {
  const window = new Uint8Array(model.window);
  for (const [offset, data] of model.constants) window.set(data, offset);
  for (const program of model.programs) window.set(program.code, program.offset);
  return window;
}

// The whole network, the host's part included: all values by name.
function runWhole(model, inputs) {
  const values = new Map(inputs);
  let window = freshWindow(model);
  for (const step of model.steps) {
    if (step.module) { runHost(step, values); continue; }
    for (const [name, offset] of step.inputs) window.set(values.get(name), offset);
    window = runProgram(model, model.programs[step.program], window);
    for (const [name, offset, size] of step.outputs) values.set(name, window.slice(offset, offset + size));
  }
  return values;
}

const same = (a, b) => a.length === b.length && a.every((each, place) => each === b[place]);

const ARRAYS = { float32: Float32Array, int8: Int8Array, uint8: Uint8Array };

function scoresIn(model, values) {
  return model.result && [...new ARRAYS[model.result.dtype](values.get(model.result.name).buffer)];
}

// The network on one example, and whether the native run left the same bytes.
async function run(model, example) {
  const inputs = await Promise.all(Object.entries(example.inputs).map(async ([name, data]) => [name, await opened(data)]));
  const values = runWhole(model, inputs);
  let equal = true;
  for (const [name, data] of Object.entries(example.outputs)) equal &&= same(await opened(data), values.get(name));
  for (const [number, step] of model.steps.filter(each => !each.module).entries())
    for (const [place, [, data]] of example.steps[number].outputs.entries())
      equal &&= same(await opened(data), values.get(step.outputs[place][0]));
  return { equal, scores: scoresIn(model, values) };
}

// As above where the page cannot run the host's part: programs of the core begin with what a native run gave them.
async function runCore(model, example) {
  let window = freshWindow(model), equal = true, scores = null;
  for (const [number, program] of model.programs.entries()) {
    const step = example.steps[number];
    for (const [offset, data] of step.inputs) window.set(await opened(data), offset);
    window = runProgram(model, program, window);
    for (const [offset, data] of step.outputs) {
      const expected = await opened(data);
      equal &&= same(expected, window.subarray(offset, offset + expected.length));
    }
  }
  if (model.scores) scores = [...new Int8Array(window.buffer, model.scores[0], model.scores[1])];
  return { equal, scores };
}

function element(name, text = "", parent = null) {
  const made = document.createElement(name);
  made.textContent = text;
  parent?.append(made);
  return made;
}

async function showResult() {
  const model = DATA.models[state.model];
  find("run-box").hidden = !model.examples.length && !model.pad;
  find("pad-box").hidden = !model.pad;
  if (find("run-box").hidden) return;
  const example = model.examples[state.example], started = performance.now();
  if (!example) { showDrawn(); return; }
  const { equal, scores } = await (model.steps.length ? run : runCore)(model, example);
  const took = (performance.now() - started).toFixed(0);
  state.equal = equal;
  find("verdict").className = equal ? "" : "wrong";
  find("verdict").textContent = !equal ? "The result differs from the native simulator's."
    : `Every byte of the result is the native simulator's (${took} ms).` + (model.steps.length ? ""
      : ` The host's part ran before: ${model.why || "this page does not have it"}.`);
  showScores(scores);
}

// What the network says to the picture that is drawn.
function showDrawn() {
  const model = DATA.models[state.model], started = performance.now();
  state.drawn = drawnPicture(model.pad);
  const values = runWhole(model, [[model.pad.name, new Uint8Array(state.drawn.buffer)]]);
  const took = (performance.now() - started).toFixed(0);
  [state.equal, state.top] = [null, null];
  find("verdict").className = "";
  find("verdict").textContent = strokes.length ? `The answer for what is drawn, in ${took} ms.` : "Nothing is drawn yet.";
  showScores(strokes.length ? scoresIn(model, values) : null);
}

function showScores(scores) {
  state.scores = scores;
  find("scores").replaceChildren();
  if (!scores) return;
  const low = Math.min(...scores), high = Math.max(...scores);
  state.top = scores.indexOf(high);
  scores.forEach((score, place) => {
    const mark = place === state.top ? "top" : "";
    element("span", String(place), find("scores")).className = mark;
    element("i", "", find("scores")).style.width = `${100 * (score - low) / ((high - low) || 1)}%`;
    element("span", String(Number(score.toFixed(2))), find("scores")).className = mark;
  });
}

function showTime() {
  const model = DATA.models[state.model], started = performance.now();
  const found = model.programs.map(program => predict(model, program));
  const took = performance.now() - started;
  state.cycles = found.every(each => each.cycles >= 0) ? found.reduce((sum, each) => sum + each.cycles, 0) : null;
  state.took = took;
  find("cycles").textContent = state.cycles?.toLocaleString("en") ?? "no";
  find("took").textContent = `counted in ${took.toFixed(0)} ms by the exact timing model; ` +
    `memory of ${state.latency} cycles and ${state.rate} bytes a cycle`;
  find("latency-is").textContent = state.latency;
  find("rate-is").textContent = state.rate;
  draw(found);
  const body = find("table").tBodies[0];
  body.replaceChildren();
  DATA.engines.forEach((name, engine) => {
    const row = body.insertRow();
    row.insertCell().textContent = name;
    for (const each of DATA.classes) {
      const total = found.reduce((sum, part) => sum + part.counters[engine][each.kind], 0);
      row.insertCell().textContent = total ? total.toLocaleString("en") : "";
    }
  });
}

// Rows of engines; a column has the class that most of its cycles have.
function draw(found) {
  const canvas = find("timeline"), scale = devicePixelRatio || 1, left = 60, row = 22, gap = 4;
  const wide = canvas.clientWidth, bins = Math.max(1, Math.floor(wide - left)), kinds = DATA.kinds;
  canvas.style.height = `${DATA.engines.length * (row + gap)}px`;
  canvas.width = wide * scale;
  canvas.height = DATA.engines.length * (row + gap) * scale;
  const pen = canvas.getContext("2d"), quiet = getComputedStyle(document.body).color;
  pen.scale(scale, scale);
  const shares = DATA.engines.map(() => new Float64Array(bins * kinds));
  const total = Math.max(1, found.reduce((sum, each) => sum + Math.max(0, each.cycles), 0));
  let before = 0;
  for (const part of found) {
    const size = DATA.layout.activity;
    for (let place = 0; place < part.number * size; place += size) {
      const share = shares[part.activity.getUint32(place, true)], kind = part.activity.getUint32(place + 4, true);
      let at = before + Number(part.activity.getBigUint64(place + 8, true));
      const end = at + Number(part.activity.getBigUint64(place + 16, true));
      for (let bin = Math.min(bins - 1, Math.floor(at * bins / total)); at < end; bin += 1) {
        const stop = bin >= bins - 1 ? end : Math.min(end, (bin + 1) * total / bins);
        share[Math.min(bin, bins - 1) * kinds + kind] += Math.max(0, stop - at);
        at = Math.max(at, stop);
      }
    }
    before += Math.max(0, part.cycles);
  }
  const colours = new Map(DATA.classes.map(each => [each.kind, each.colour]));
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  DATA.engines.forEach((name, engine) => {
    const top = engine * (row + gap);
    pen.fillStyle = quiet;
    pen.fillText(name, 0, top + row / 2);
    for (let bin = 0; bin < bins; bin += 1) {
      const share = shares[engine].subarray(bin * kinds, (bin + 1) * kinds);
      const most = share.indexOf(Math.max(...share));
      pen.fillStyle = colours.get(share[most] > 0 ? most : 0);
      pen.fillRect(left + bin, top, 1, row);
    }
  });
}

// Lines on the pad, each a list of points of 0 to 1.
const strokes = [];

function line(pen, points, width) {
  [pen.lineCap, pen.lineJoin, pen.lineWidth, pen.strokeStyle] = ["round", "round", width, "#fff"];
  pen.beginPath();
  points.forEach(([x, y], place) => (place ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  if (points.length === 1) pen.lineTo(points[0][0] + 0.01, points[0][1]);
  pen.stroke();
}

// The strokes as the network gets them: means of the ink in its pixels. Lines are a little wider than a pixel.
function drawnPicture(pad) {
  const fine = 8, { width, height } = pad, big = new OffscreenCanvas(width * fine, height * fine);
  const pen = big.getContext("2d", { willReadFrequently: true }), thick = fine * Math.min(width, height) / 7;
  const all = strokes.flat(), sides = [0, 1].map(axis => all.map(point => point[axis]));
  const [low, high] = [Math.min, Math.max].map(end => sides.map(each => end(...each)));
  const room = [big.width - thick, big.height - thick];
  const size = Math.min(...[0, 1].map(axis => room[axis] / Math.max(high[axis] - low[axis], 1e-6)), 8 * room[0]);
  const move = point => (find("fit").checked
    ? point.map((each, axis) => [big.width, big.height][axis] / 2 + (each - (low[axis] + high[axis]) / 2) * size)
    : [point[0] * big.width, point[1] * big.height]);
  for (const stroke of strokes) line(pen, stroke.map(move), thick);
  const ink = pen.getImageData(0, 0, big.width, big.height).data, values = new Float32Array(width * height);
  for (let y = 0; y < big.height; y += 1)
    for (let x = 0; x < big.width; x += 1)
      values[Math.floor(y / fine) * width + Math.floor(x / fine)] += ink[4 * (y * big.width + x) + 3] / 255 / fine ** 2;
  showGrey(find("seen"), width, height, Array.from(values, each => 255 * each));
  return values.map(each => pad.low + each * (pad.high - pad.low));
}

function preparePad() {
  const canvas = find("pad"), pen = canvas.getContext("2d");
  const answer = () => {
    pen.clearRect(0, 0, canvas.width, canvas.height);
    for (const stroke of strokes)
      line(pen, stroke.map(([x, y]) => [x * canvas.width, y * canvas.height]), canvas.width / 7);
    state.example = null;
    showPictures();
    showDrawn();
  };
  const point = event => [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight];
  canvas.onpointerdown = event => {
    if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    strokes.push([point(event)]);
    answer();
  };
  canvas.onpointermove = event => { if (event.buttons && strokes.length) { strokes.at(-1).push(point(event)); answer(); } };
  find("clear").onclick = () => { strokes.length = 0; answer(); };
  find("fit").onchange = answer;
}

function showGrey(canvas, width, height, values) {
  [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d"), image = pen.createImageData(width, height);
  values.forEach((value, at) => image.data.set([value, value, value, 255], 4 * at));
  pen.putImageData(image, 0, 0);
}

function showPictures() {
  find("examples").replaceChildren();
  DATA.models[state.model].examples.forEach((example, place) => {
    const button = element("button", "", find("examples"));
    button.setAttribute("aria-pressed", place === state.example);
    button.setAttribute("aria-label", `example ${place}`);
    button.onclick = () => { state.example = place; shown = show(); };
    if (!example.picture) { button.textContent = String(place); return; }
    const { width, height, values } = example.picture;
    showGrey(element("canvas", "", button), width, height, values);
  });
}

async function show() {
  showPictures();
  await showResult();
  showTime();
}

function asCompiled() {
  const model = DATA.models[state.model];
  [state.latency, state.rate] = [model.latency, model.rate];
  for (const name of ["latency", "rate"]) {
    find(name).max = Math.max(Number(find(name).max), state[name]);
    find(name).value = state[name];
  }
}

async function start() {
  module = new WebAssembly.Module(await opened(DATA.wasm));  // small: it is compiled at once
  for (const model of DATA.models) {
    for (const name of ["timingCore", "functionalCore"]) model[name] = await opened(model[name]);
    for (const program of model.programs) program.code = await opened(program.code);
    for (const constant of model.constants) constant[1] = await opened(constant[1]);
    for (const step of model.steps.filter(each => each.wasm)) {
      step.module = new WebAssembly.Module(await opened(step.wasm));
      step.constants = await opened(step.constants);
    }
    element("option", model.name, find("model")).value = DATA.models.indexOf(model);
  }
  find("model-box").hidden = DATA.models.length < 2;
  const head = find("table").tHead.insertRow();
  element("th", "engine", head);
  for (const each of DATA.classes) {
    element("th", each.name, head);
    const entry = element("span", "", find("legend"));
    element("i", "", entry).style.background = each.colour;
    entry.append(each.word);
  }
  find("model").onchange = event => {
    [state.model, state.example] = [Number(event.target.value), 0];
    asCompiled();
    shown = show();
  };
  for (const name of ["latency", "rate"])
    find(name).oninput = event => { state[name] = Number(event.target.value); showTime(); };
  find("reset").onclick = () => { asCompiled(); showTime(); };
  addEventListener("resize", showTime);
  preparePad();
  asCompiled();
  await show();
  state.first = performance.now();
}

shown = start();
shown.catch(error => { find("took").textContent = String(error); find("took").className = "wrong"; });
