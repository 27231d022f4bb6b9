"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const points = data.points, figures = data.figures, axes = data.axes, networks = data.networks;
const onFront = new Set(data.front), find = id => document.getElementById(id);
const state = { x: data.objectives[0], y: data.objectives[1] || data.objectives[0], sort: data.objectives[0], down: false,
  rows: 100, a: null, b: null, hover: null, dropped: new Map(), limits: new Map(), ranges: new Map(), shown: [] };
for (const axis of axes) state.dropped.set(axis, new Set());

function make(tag, text, attributes) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  Object.assign(node, attributes || {});
  return node;
}
function number(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(digits)).toString();
}
const valueOf = (point, column) => column in point.figures ? point.figures[column] : point.assignment[axes.indexOf(column)];
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Which points are to be seen

function passes(point, index) {
  if (point.status !== "measured" || (find("only-front").checked && !onFront.has(index))) return false;
  if (axes.some((axis, place) => state.dropped.get(axis).has(String(point.assignment[place])))) return false;
  for (const [figure, limit] of state.limits)
    if (data.higher.includes(figure) ? point.figures[figure] < limit : point.figures[figure] > limit) return false;
  for (const [column, [low, high]] of state.ranges) {
    const share = position(column, point);
    if (share < low || share > high) return false;
  }
  return true;
}
function update() {
  state.shown = points.map((_, index) => index).filter(index => passes(points[index], index));
  const sign = state.down ? -1 : 1;
  state.shown.sort((one, other) => {
    const [p, q] = [valueOf(points[one], state.sort), valueOf(points[other], state.sort)];
    return sign * (p < q ? -1 : p > q ? 1 : one - other);
  });
  find("count").textContent = `${state.shown.length.toLocaleString("en")} of ${points.length.toLocaleString("en")} points`;
  draw();
  showTable();
}
function draw() { drawScatter(); drawParallel(); drawConvergence(); }

// Pictures

function canvasOf(id) {
  const canvas = find(id), scale = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  canvas.width = Math.max(1, box.width * scale);
  canvas.height = Math.max(1, box.height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = "12px system-ui, sans-serif";
  return { pen, width: box.width, height: box.height };
}
function scaleFor(column, from, to, indices) {
  const values = indices.map(index => valueOf(points[index], column)).filter(value => value > 0 || value <= 0);
  let low = Math.min(...extremes(values)), high = Math.max(...extremes(values));
  const log = low > 0 && high / low > 20, map = log ? Math.log : value => value;
  if (low === high) { low = log ? low / 2 : low - 1; high = log ? high * 2 : high + 1; }
  const at = value => from + (to - from) * (map(value) - map(low)) / (map(high) - map(low));
  return { at, ticks: roundTicks(low, high, log) };
}
function roundTicks(low, high, log) {  // 1, 2 or 5 times a power of ten, between `low` and `high`
  if (log) {
    const found = [];
    for (let unit = 10 ** Math.floor(Math.log10(low)); unit <= high; unit *= 10) for (const each of [1, 2, 5]) found.push(each * unit);
    const inside = found.filter(tick => tick >= low * .999 && tick <= high * 1.001);
    const tens = inside.filter(tick => Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-9);
    return inside.length > 7 && tens.length > 2 ? tens : inside;
  }
  const rough = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find(each => each * unit >= rough * .999) * unit;
  const first = Math.ceil(low / step - 1e-9), count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}
function titleUp(pen, text, height) {  // along the axis at the left
  pen.save();
  pen.textAlign = "center"; pen.translate(12, (height - 24) / 2); pen.rotate(-Math.PI / 2); pen.fillText(text, 0, 0);
  pen.restore();
}
function extremes(values) {  // spreading 10,000 values into a call is slow, and fails for more
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return low <= high ? [low, high] : [0, 1];
}
let placed = [];
function drawScatter() {
  const { pen, width, height } = canvasOf("scatter"), all = state.shown;
  const x = scaleFor(state.x, 64, width - 16, all), y = scaleFor(state.y, height - 36, 12, all);
  pen.fillStyle = colour("--quiet"); pen.strokeStyle = colour("--line"); pen.lineWidth = 1;
  pen.textAlign = "center";
  for (const tick of x.ticks) { line(pen, x.at(tick), 12, x.at(tick), height - 36); tickLabel(pen, tick, x.at(tick), width, height - 20); }
  pen.fillText(label(state.x), (width + 48) / 2, height - 4);
  pen.textAlign = "right";
  for (const tick of y.ticks) { line(pen, 64, y.at(tick), width - 16, y.at(tick)); pen.fillText(number(tick, 3), 60, y.at(tick) + 4); }
  titleUp(pen, label(state.y), height);
  placed = all.map(index => [index, x.at(valueOf(points[index], state.x)), y.at(valueOf(points[index], state.y))]);
  pen.fillStyle = colour("--dot"); pen.globalAlpha = all.length > 2000 ? .35 : .7;
  for (const [index, px, py] of placed) if (!onFront.has(index)) dot(pen, px, py, 2.5);
  pen.globalAlpha = 1; pen.fillStyle = colour("--front");
  for (const [index, px, py] of placed) if (onFront.has(index)) dot(pen, px, py, 4.5);
  markTwins(pen);
  for (const [index, name] of [[state.hover, "--text"], [state.a, "--a"], [state.b, "--b"]]) {
    const found = placed.find(each => each[0] === index);
    if (index === null || !found) continue;
    pen.strokeStyle = colour(name); pen.lineWidth = 2.5;
    pen.beginPath(); pen.arc(found[1], found[2], 8, 0, 7); pen.stroke();
  }
}
// Points that lie on one another: the topmost gets a ring for the others, and says how many they are.
let twins = new Map();
function markTwins(pen) {
  const spots = new Map();
  for (const [index, px, py] of placed) {
    const key = `${Math.round(px)} ${Math.round(py)}`;
    if (!spots.has(key)) spots.set(key, []);
    spots.get(key).push(index);
  }
  twins = new Map();
  pen.strokeStyle = colour("--quiet"); pen.lineWidth = 1;
  for (const [key, indices] of spots) {
    if (indices.length < 2) continue;
    for (const index of indices) twins.set(index, indices);
    const [x, y] = key.split(" ").map(Number);
    pen.beginPath(); pen.arc(x, y, 6, 0, 7); pen.stroke();
  }
}
function tickLabel(pen, tick, x, width, y) {
  const text = number(tick, 3), half = pen.measureText(text).width / 2;
  pen.fillText(text, Math.min(x, width - half - 2), y);
}
function line(pen, x1, y1, x2, y2) { pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke(); }
function dot(pen, x, y, radius) { pen.beginPath(); pen.arc(x, y, radius, 0, 7); pen.fill(); }
function label(column) { return column in data.units ? `${column} (${data.units[column]})` : column; }

const columns = [...axes, ...figures], measured = points.map((_, i) => i).filter(i => points[i].status === "measured");
const positions = new Map(columns.map(column => {
  const known = [...new Set(measured.map(index => valueOf(points[index], column)))];
  if (known.some(value => typeof value !== "number")) {  // words and numbers: one place for each value
    const places = new Map(known.map((value, place) => [value, known.length > 1 ? place / (known.length - 1) : .5]));
    return [column, value => places.get(value)];
  }
  return [column, scaleFor(column, 0, 1, measured).at];
}));
const position = (column, point) => positions.get(column)(valueOf(point, column));
find("parallel").style.minWidth = `${100 + 62 * (columns.length - 1)}px`;
const across = (place, width) => 50 + place * (width - 100) / Math.max(1, columns.length - 1);
function drawParallel() {
  const { pen, width, height } = canvasOf("parallel"), top = 34, bottom = height - 12;
  const level = share => bottom - share * (bottom - top);
  const polyline = index => {
    pen.beginPath();
    columns.forEach((column, place) => pen.lineTo(across(place, width), level(position(column, points[index]))));
    pen.stroke();
  };
  pen.lineWidth = 1; pen.strokeStyle = colour("--dot"); pen.globalAlpha = Math.max(.04, Math.min(.6, 60 / (state.shown.length + 1)));
  for (const index of state.shown) if (!onFront.has(index)) polyline(index);
  pen.globalAlpha = .9; pen.strokeStyle = colour("--front");
  for (const index of state.shown) if (onFront.has(index)) polyline(index);
  pen.globalAlpha = 1; pen.lineWidth = 2.5;
  for (const [index, name] of [[state.hover, "--text"], [state.a, "--a"], [state.b, "--b"]])
    if (index !== null) { pen.strokeStyle = colour(name); polyline(index); }
  pen.textAlign = "center"; pen.lineWidth = 1;
  columns.forEach((column, place) => {
    const x = across(place, width);
    pen.strokeStyle = colour("--quiet"); line(pen, x, top, x, bottom);
    pen.fillStyle = colour("--text"); pen.fillText(column.split(".").pop(), x, place % 2 ? 12 : 26);
    if (state.ranges.has(column)) {
      const [low, high] = state.ranges.get(column);
      pen.fillStyle = colour("--front"); pen.globalAlpha = .35; pen.fillRect(x - 6, level(high), 12, level(low) - level(high)); pen.globalAlpha = 1;
    }
  });
}

function drawConvergence() {
  const { pen, width, height } = canvasOf("convergence"), counts = data.convergence.counts, last = counts.at(-1) || 1;
  const x = count => 64 + (width - 80) * count / last, y = share => height - 24 - (height - 36) * share;
  pen.strokeStyle = colour("--line"); pen.fillStyle = colour("--quiet"); pen.lineWidth = 1;
  for (const share of [0, .5, 1]) {
    pen.textAlign = "right"; line(pen, 64, y(share), width - 16, y(share)); pen.fillText(`${100 * share} %`, 60, y(share) + 4);
    pen.textAlign = "center"; tickLabel(pen, Math.round(share * last), x(share * last), width, height - 6);
  }
  pen.lineWidth = 2;
  for (const [shares, name] of [[data.convergence.shuffled, "--dot"], [data.convergence.measured, "--front"]]) {
    pen.strokeStyle = colour(name); pen.beginPath();
    counts.forEach((count, place) => pen.lineTo(x(count), y(shares[place])));
    pen.stroke();
  }
}

// Table and details

function showTable() {
  const head = find("table").tHead, body = find("table").tBodies[0], row = make("tr");
  for (const column of ["point", ...axes, ...figures]) {
    const cell = make("th", column + (column === state.sort ? (state.down ? " ▾" : " ▴") : ""), { tabIndex: 0, scope: "col", title: label(column) });
    const sort = () => {
      if (column === "point") return;
      state.down = state.sort === column && !state.down; state.sort = column; update();
    };
    cell.onclick = sort;
    cell.onkeydown = event => { if (event.key === "Enter") sort(); };
    row.append(cell);
  }
  head.replaceChildren(row);
  body.replaceChildren(...state.shown.slice(0, state.rows).map(index => {
    const point = points[index], line = make("tr", undefined, { tabIndex: 0 });
    line.className = `${onFront.has(index) ? "front" : ""} ${index === state.a ? "a" : ""} ${index === state.b ? "b" : ""}`;
    line.dataset.point = index;
    line.append(make("td", `${index}${onFront.has(index) ? " ★" : ""}`), ...point.assignment.map(value => make("td", String(value))),
      ...figures.map(name => make("td", number(point.figures[name]))));
    line.onclick = event => choose(index, event.shiftKey);
    line.onkeydown = event => { if (event.key === "Enter") choose(index, false); if (event.key === "b") choose(index, true); };
    return line;
  }));
  find("more").hidden = state.shown.length <= state.rows;
}
function choose(index, second) {
  if (second && state.a !== null && index !== state.a) state.b = index;
  else { state.a = index; state.b = null; }
  draw();
  for (const row of find("table").tBodies[0].rows) {
    row.classList.toggle("a", Number(row.dataset.point) === state.a);
    row.classList.toggle("b", Number(row.dataset.point) === state.b);
  }
  showDetail();
}
function copyable(title, text) {
  const box = make("div"), button = make("button", "copy");
  button.onclick = async () => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(box.querySelector("pre")); button.textContent = "selected"; }
  };
  box.append(make("b", title + " "), button, make("pre", text));
  return box;
}
function side(index, name) {
  const point = points[index], box = make("div"), list = make("table");
  box.append(make("h3", `${name}: point ${index}${onFront.has(index) ? ", on the front" : ""}`, { className: `${name.toLowerCase()}-colour` }));
  for (const figure of figures) { const row = make("tr"); row.append(make("td", label(figure)), make("td", number(point.figures[figure]))); list.append(row); }
  for (const network of networks) {
    const row = make("tr");
    row.append(make("td", `${network}: cycles an image, core + host`),
      make("td", `${number(point.cycles[network])} + ${number(Math.round(point.host[network]))}; ${number(100 * point.on_core[network], 3)} % on the core`));
    list.append(row);
  }
  box.append(list);
  return box;
}
function texts(index, name) {
  const point = points[index], box = make("div");
  box.append(make("h3", `${name}: to make it again`, { className: `${name.toLowerCase()}-colour` }), copyable("Configuration", point.config),
    copyable(`This point alone, as point-${index}.toml`, point.space));
  for (const command of point.commands) box.append(copyable("Command", command));
  return box;
}
function layersOf(index, network) { return ((data.layers[index] || {})[network] || []).map(row => Object.fromEntries(data.layer_fields.map((name, place) => [name, row[place]]))); }
function showDetail() {
  const box = find("detail"), chosen = [[state.a, "A"], ...(state.b === null ? [] : [[state.b, "B"]])];
  const besides = show => {
    const sides = make("div", undefined, { className: "sides" });
    sides.append(...chosen.map(([index, name]) => show(index, name)));
    return sides;
  };
  box.replaceChildren(make("h2", state.b === null ? "Point" : "Two points"), besides(side));
  for (const network of networks) box.append(timelines(network, chosen), layerTable(network));
  box.append(besides(texts));
}
function timelines(network, sides) {
  const box = make("div");
  const layers = sides.map(([index]) => layersOf(index, network));
  const lengths = layers.map(all => all.reduce((sum, layer) => sum + layer.cycles, 0)), longest = Math.max(1, ...lengths);
  if (!layers[0].length) return box;
  box.append(make("p", `${network} in time; how much of it array, vector engine and memory work at least, from top to bottom`, { className: "quiet" }));
  sides.forEach(([index, name], side) => {
    const line = make("div", undefined, { className: "timeline", role: "img" });
    line.setAttribute("aria-label", `${name}: ${number(lengths[side])} cycles, layer by layer; the table below has the figures`);
    line.style.width = `${100 * lengths[side] / longest}%`;
    let begun = 0;
    for (const layer of layers[side]) {
      const part = make("div", undefined, { title: `${layer.name}: from cycle ${number(begun)}, ${number(layer.cycles)} cycles, ${layer.verdict}` });
      part.style.flex = `${layer.cycles} 0 0`;
      for (const bound of ["array", "vector", "memory"]) {
        const lane = make("i");
        lane.style.opacity = Math.min(1, layer[bound] / (layer.cycles || 1)).toFixed(3);
        part.append(lane);
      }
      line.append(part);
      begun += layer.cycles;
    }
    box.append(make("b", name, { className: `${name.toLowerCase()}-colour` }), line);
  });
  return box;
}
function layerTable(network) {
  const box = make("div", undefined, { className: "scroll" }), a = layersOf(state.a, network);
  if (!a.length) { box.append(make("p", `${network}: layers are not in this page; the command shows them`, { className: "quiet" })); return box; }
  const b = state.b === null ? [] : layersOf(state.b, network), of = new Map(b.map(layer => [layer.name, layer]));
  const table = make("table"), head = make("tr");
  table.append(make("caption", `${network}, layer by layer`));
  const titles = state.b === null ? ["layer", "kind", "cycles", "used", "array", "vector", "memory", "bytes", "verdict"]
    : ["layer", "kind", "cycles A", "cycles B", "B - A", "B / A", "used A", "used B", "verdict A", "verdict B"];
  head.append(...titles.map(title => make("th", title)));
  table.append(head);
  const names = [...a, ...b.filter(layer => !a.some(each => each.name === layer.name))].map(layer => layer.name);
  for (const name of names) {
    const one = a.find(layer => layer.name === name), other = of.get(name), row = make("tr");
    const used = (layer, index) => {
      const cell = make("td", "", { className: "used" });
      if (!layer) return cell;
      const share = layer.macs / (layer.cycles * points[index].macs_per_cycle[network] || 1);
      cell.textContent = `${(100 * share).toFixed(0)} %`; cell.style.setProperty("--share", `${100 * share}%`);
      return cell;
    };
    const text = (layer, field) => make("td", layer ? number(layer[field]) : "");
    if (state.b === null) row.append(make("td", name), text(one, "kind"), text(one, "cycles"), used(one, state.a),
      ...["array", "vector", "memory", "dram_bytes", "verdict"].map(field => text(one, field)));
    else {
      const both = one && other, more = both ? other.cycles - one.cycles : 0;
      row.append(make("td", name), text(one || other, "kind"), text(one, "cycles"), text(other, "cycles"),
        make("td", both ? number(more) : "", { className: more > 0 ? "worse" : more < 0 ? "better" : "" }),
        make("td", both && one.cycles ? (other.cycles / one.cycles).toFixed(2) : ""), used(one, state.a), used(other, state.b),
        text(one, "verdict"), text(other, "verdict"));
    }
    table.append(row);
  }
  box.append(table);
  return box;
}

// Controls

function nearest(event) {
  const box = find("scatter").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  let best = null, distance = 400;
  for (const [index, px, py] of placed) {
    const d = (px - x) ** 2 + (py - y) ** 2 - (onFront.has(index) ? 20 : 0);
    if (d < distance) { distance = d; best = index; }
  }
  return best;
}
function twinsText(index) {
  const others = (twins.get(index) || []).filter(each => each !== index), shown = others.slice(0, 5).join(", ");
  return others.length ? `; at the same place: point${others.length > 1 ? "s" : ""} ${shown}${others.length > 5 ? ` and ${others.length - 5} more` : ""}` : "";
}
function hover(index) {
  if (index === state.hover) return;
  state.hover = index;
  const point = index === null ? null : points[index];
  find("hovered").textContent = point ? `point ${index}: ${axes.map((axis, place) => `${axis} ${point.assignment[place]}`).join(", ")}; ` +
    data.objectives.map(name => `${name} ${number(point.figures[name])}`).join(", ") + twinsText(index) : "";
  drawScatter();
  if (state.shown.length <= 2000) drawParallel();
}
function connect() {
  const scatter = find("scatter"), parallel = find("parallel");
  scatter.onpointermove = event => hover(nearest(event));
  scatter.onclick = event => { const index = nearest(event); if (index !== null) choose(index, event.shiftKey); };
  scatter.onkeydown = event => {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (step && placed.length) {
      const order = [...placed].sort((one, other) => one[1] - other[1] || one[0] - other[0]).map(each => each[0]);
      const at = order.indexOf(state.hover);
      hover(order[at < 0 ? 0 : Math.min(order.length - 1, Math.max(0, at + step))]);
    } else if (event.key === "Enter" && state.hover !== null) choose(state.hover, false);
    else if (event.key === "b" && state.hover !== null) choose(state.hover, true);
    else return;
    event.preventDefault();
  };
  let brush = null;
  const share = event => {
    const box = parallel.getBoundingClientRect();
    return Math.min(1, Math.max(0, (box.height - 12 - (event.clientY - box.top)) / (box.height - 46)));
  };
  parallel.onpointerdown = event => {
    const box = parallel.getBoundingClientRect(), x = event.clientX - box.left;
    const place = columns.findIndex((_, number) => Math.abs(across(number, box.width) - x) < 14);
    if (place >= 0) { brush = [columns[place], share(event)]; parallel.setPointerCapture(event.pointerId); }
  };
  parallel.onpointerup = event => {
    if (!brush) return;
    const [column, start] = brush, end = share(event);
    if (Math.abs(end - start) < .02) state.ranges.delete(column);
    else state.ranges.set(column, [Math.min(start, end) - 1e-9, Math.max(start, end) + 1e-9]);
    brush = null;
    update();
  };
  for (const axis of axes) {
    const group = make("fieldset"), place = axes.indexOf(axis);
    group.append(make("legend", axis));
    for (const value of [...new Set(points.map(point => point.assignment[place]))].sort((one, other) => one - other || String(one).localeCompare(other))) {
      const box = make("input", undefined, { type: "checkbox", checked: true, name: `${axis}=${value}` }), text = make("label");
      box.onchange = () => { state.dropped.get(axis)[box.checked ? "delete" : "add"](String(value)); update(); };
      text.append(box, ` ${value}`);
      group.append(text);
    }
    find("axes").append(group);
  }
  if (data.without_effect.length) find("effect").textContent = `Without effect on any figure of these points: ${data.without_effect.join(", ")}.`;
  for (const name of figures) {
    const text = make("label", `${name}\u00a0${data.higher.includes(name) ? "≥" : "≤"}`), box = make("input", undefined, { type: "number", min: 0, step: "any", name });
    box.oninput = () => { if (box.value === "") state.limits.delete(name); else state.limits.set(name, Number(box.value)); update(); };
    text.append(box);
    find("limits").append(text);
  }
  for (const id of ["x", "y"]) {
    for (const column of figures) find(id).append(make("option", label(column), { value: column, selected: column === state[id] }));
    find(id).onchange = () => { state[id] = find(id).value; draw(); };
  }
  find("only-front").onchange = update;
  find("more").onclick = () => { state.rows += 400; showTable(); };
  find("reset").onclick = () => {
    for (const dropped of state.dropped.values()) dropped.clear();
    state.limits.clear(); state.ranges.clear();
    for (const box of find("filters").querySelectorAll("input")) if (box.type === "checkbox") box.checked = box.id !== "only-front"; else box.value = "";
    update();
  };
  new ResizeObserver(draw).observe(scatter);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// A run that goes on: the page is loaded again where there is more, and looks as it did

const controls = () => [...document.querySelectorAll("#filters input, #x, #y")];
const keyOf = index => index === null ? null : JSON.stringify(points[index].assignment);
function remember() {
  const values = Object.fromEntries(controls().map(box => [box.name || box.id, box.type === "checkbox" ? box.checked : box.value]));
  const kept = { values, sort: state.sort, down: state.down, ranges: [...state.ranges], a: keyOf(state.a), b: keyOf(state.b) };
  sessionStorage.setItem("weft", JSON.stringify(kept));
}
function recall() {
  const kept = JSON.parse(sessionStorage.getItem("weft") || "null");
  if (!kept) return;
  for (const box of controls()) {
    const value = kept.values[box.name || box.id];
    if (value === undefined) continue;
    if (box.type === "checkbox") box.checked = value; else box.value = value;
    (box.oninput || box.onchange)();
  }
  Object.assign(state, { sort: kept.sort, down: kept.down, ranges: new Map(kept.ranges) });
  const places = new Map(points.map((_, index) => [keyOf(index), index])), a = places.get(kept.a), b = places.get(kept.b);
  if (a !== undefined) choose(a, false);
  if (b !== undefined) choose(b, true);
  update();
}
async function follow() {
  try {
    const version = Number(await (await fetch("version")).text()), typing = document.activeElement?.type === "number";
    find("live").textContent = "The run goes on, and this page follows it.";
    if (version !== data.version && !typing) { remember(); location.reload(); return; }
  } catch { find("live").textContent = "The run has ended; this is the last that was seen of it."; return; }
  setTimeout(follow, 2000);
}
find("summary").textContent = data.summary;
connect();
update();
if (data.version !== null) { recall(); follow(); }
