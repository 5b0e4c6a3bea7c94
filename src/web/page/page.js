"use strict";
const byId = id => document.getElementById(id);
const element = (name, content, className) => {
  const made = document.createElement(name);
  if (content !== undefined) made.append(content);
  if (className) made.className = className;
  return made;
};

let runs = [], chosen = null, run = null, view = null, charts = new Map(), compared = new Set(), turn = 0;

function say(message, bad) {
  byId("state").textContent = message;
  byId("state").className = bad ? "bad" : "";
}

function tableOf(heads, rows) {
  const table = element("table"), head = element("tr");
  for (const name of heads) { const cell = element("th", name); cell.scope = "col"; head.append(cell); }
  table.append(head);
  for (const row of rows) {
    const line = element("tr", undefined, row.className);
    for (const value of row) line.append(element("td", value));
    table.append(line);
  }
  return table;
}

function drawRuns() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = runs.filter(it => words.every(word => (it.folder + " " + it.status).toLowerCase().includes(word)));
  const body = byId("runs").tBodies[0], focused = document.activeElement && document.activeElement.id;
  body.replaceChildren(...shown.map(it => {
    const line = element("tr");
    if (it.id === chosen) line.setAttribute("aria-current", "true");
    const mark = element("input");
    mark.type = "checkbox";
    mark.id = "mark-" + it.id;
    mark.setAttribute("aria-label", "compare " + it.folder);
    mark.checked = compared.has(it.id);
    mark.onchange = () => { mark.checked ? compared.add(it.id) : compared.delete(it.id); };
    const link = element("a", it.folder);
    link.id = "run-" + it.id;
    link.href = "#" + it.id;
    const steps = count(it.step) + (it.num_steps ? " of " + count(it.num_steps) : "");
    line.append(element("td", mark), element("td", link), element("td", it.status, it.status),
      element("td", steps, "number"), element("td", text(it.loss), "number"),
      element("td", count(it.tokens_per_second), "number"));
    return line;
  }));
  if (focused && /^(mark|run)-/.test(focused) && byId(focused)) byId(focused).focus();
}

async function loadRuns() {
  runs = await get("api/runs");
  drawRuns();
  say(`${runs.length} run${runs.length === 1 ? "" : "s"}`);
  if (!chosen && runs.length) choose(location.hash.slice(1) || runs[0].id);
}

async function choose(id) {
  if (!runs.some(it => it.id === id)) return;
  chosen = id;
  view = null;
  drawRuns();
  await loadRun();
}

async function loadRun() {
  const mine = ++turn, loaded = await get("api/run", {id: chosen});
  if (mine !== turn) return;
  const other = !run || run.id !== loaded.id;
  run = loaded;
  byId("run").hidden = false;
  byId("run").querySelector("h2").textContent = run.folder;
  drawFacts();
  if (other) refreshDetails();
  await loadBins();
}

function drawFacts() {
  const last = run.checkpoints[run.checkpoints.length - 1];
  byId("facts").textContent = [run.status + (run.status_detail ? ": " + run.status_detail : ""),
    `${count(run.records)} records`, last === undefined ? "no checkpoint" : `checkpoint after step ${count(last)}`].join(" · ");
  byId("evaluations").replaceChildren(run.evaluations.length ? tableOf(["step", "kind", "set", "name", "value"],
    run.evaluations.slice(-500).reverse().map(it => [count(it.step), it.kind, it.set, it.name, text(it.value)])) : "none yet");
  byId("events").replaceChildren(run.events.length ? tableOf(["time", "step", "event", "detail"], run.events.slice().reverse().map(it => {
    const row = [new Date(it.time * 1000).toLocaleString(), count(it.step), it.event, it.detail];
    row.className = ["error", "failure", "hang"].includes(it.event) ? "error" : it.event === "alert" ? "alert" : "";
    return row;
  })) : "none yet");
  byId("options").replaceChildren(tableOf(["option", "value"], Object.entries(run.options)));
}

// Events and evaluations of a run that continues. What the charts were drawn from stays as it is: follow() needs it.
async function refreshFacts() {
  if (!run) return;
  const {records, generation, first_step, last_step} = run, loaded = await get("api/run", {id: chosen});
  if (loaded.id !== run.id) return;
  run = {...loaded, records, generation, first_step, last_step};
  drawFacts();
}

// The losses first, then what one looks at next, then the rest by name.
const order = ["grad_norm", "learning_rate", "tokens_per_second", "step_seconds"];
const rank = name => name.endsWith("loss") ? 0 : name.includes("loss") ? 1 : 2 + (order.indexOf(name) + 1 || 9);
const hidden = new Set(["consumed_samples"]);

async function loadBins() {
  if (!run || run.last_step === null) { byId("charts").replaceChildren(); charts.clear(); return; }
  const [from, to] = view || [run.first_step, run.last_step];
  const start = performance.now(), mine = ++turn;
  const reply = await get("api/bins", {id: chosen, from, to, bins: 1000});
  if (mine !== turn) return;
  run.records = reply.records;
  run.generation = reply.generation;
  const names = Object.keys(reply.columns).filter(name => !hidden.has(name))
    .sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  const shown = [...charts.keys()].join("\n") === names.join("\n");
  if (!shown) {
    charts = new Map(names.map(name => [name, new Chart(name, zoom)]));
    byId("charts").replaceChildren(...[...charts.values()].map(it => it.figure));
  }
  for (const name of names)
    charts.get(name).set(reply.first_step, reply.width, reply.columns[name][0], reply.columns[name][1], to);
  window.lastDrawing = performance.now() - start;  // for tests
}

function zoom(from, to) {
  view = from === null ? null : [Math.max(from, run.first_step), Math.max(from + 1, Math.min(to, run.last_step))];
  loadBins().catch(error => say(error.message, true));
}

// New records only; the whole is asked for again when it has become twice as long as what the bins were made for.
async function follow() {
  if (!run || document.hidden) return;
  const reply = await get("api/new", {id: chosen, since: run.records, generation: run.generation});
  if (reply.anew) return loadRun();
  if (!reply.steps.length) return;
  const start = performance.now();
  run.records = reply.records;
  if (run.last_step === null) return loadRun();
  run.last_step = reply.steps[reply.steps.length - 1];
  if (view) return;
  if (Object.keys(reply.columns).some(name => !hidden.has(name) && !charts.has(name))) return loadBins();
  for (const [name, chart] of charts) {
    reply.steps.forEach((step, at) => chart.add(step, reply.columns[name][at]));
    chart.draw();
  }
  window.lastTick = performance.now() - start;  // for tests
  if ([...charts.values()].some(it => it.lowest.length > 2000)) return loadBins();
}

async function compare() {
  if (compared.size < 2) return say("mark two or more runs first", true);
  const all = await Promise.all([...compared].map(id => get("api/run", {id})));
  const keys = [...new Set(all.flatMap(it => Object.keys(it.options)))].sort();
  const rows = keys.map(key => [key, ...all.map(it => it.options[key] ?? "")])
    .filter(row => row.slice(2).some(value => value !== row[1]));
  byId("comparison").hidden = false;
  byId("comparison").querySelector("div").replaceChildren(tableOf(["option", ...all.map(it => it.folder)], rows));
  byId("comparison").scrollIntoView();
}

function move(by) {
  const links = [...byId("runs").querySelectorAll("a")], at = links.indexOf(document.activeElement);
  const next = links[Math.max(0, Math.min(links.length - 1, at + by))];
  if (next) next.focus();
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === byId("filter")) {
    if (event.key === "Escape") { byId("filter").value = ""; drawRuns(); byId("filter").blur(); }
    return;
  }
  if (event.key === "/") { byId("filter").focus(); event.preventDefault(); }
  if (event.key === "j") move(1);
  if (event.key === "k") move(-1);
  if (event.key === "c") byId("compare").click();
});
const guarded = work => () => work().catch(error => say(error.message, true));
byId("filter").oninput = drawRuns;
byId("compare").onclick = guarded(compare);
addEventListener("hashchange", guarded(() => choose(location.hash.slice(1))));
const redraw = () => { for (const chart of charts.values()) chart.draw(); };
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("load", () => {  // the other scripts are there
  guarded(loadRuns)();
  if (snapshot) return;
  setInterval(guarded(follow), 1000);
  setInterval(guarded(async () => { if (!document.hidden) { await loadRuns(); await refreshFacts(); } }), 10000);
});
