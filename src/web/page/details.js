"use strict";
// Parts of a run that are asked for when somebody opens them: where its ranks are, its plan, the texts of a step.
const rankColumns = [["rank", "rank"], ["host", "host"], ["pid", "process"], ["state", "state"], ["phase", "phase"],
  ["step", "step"], ["micro_batch", "micro-batch"], ["seconds_since_progress", "seconds in place"],
  ["waits_for", "waits for"]];

async function showRanks() {
  const id = chosen, status = await get("api/ranks", {id});
  if (id !== chosen || !byId("ranks").open) return;
  const cell = (rank, key) => rank[key] === undefined || rank[key] === null ? "-"
    : typeof rank[key] === "number" ? text(rank[key]) : String(rank[key]);
  byId("ranks").lastElementChild.replaceChildren(status.ranks.length
    ? tableOf(rankColumns.map(it => it[1]), status.ranks.map(rank => rankColumns.map(([key]) => cell(rank, key))))
    : status.why);
}

function showPlan() {
  const place = byId("plan").lastElementChild, picture = element("img");
  const source = snapshot ? snapshot.details[chosen].plan : null;
  if (snapshot && !source) return place.replaceChildren("this report does not hold it");
  picture.alt = "schedule and memory of the run as planned";
  picture.onerror = async () => {  // a picture that failed has no text: ask once more for the reason
    const reply = await fetch(picture.src);
    place.replaceChildren((await reply.text()).trim());
  };
  picture.src = source ? "data:image/svg+xml," + encodeURIComponent(source) : "api/plan?" + new URLSearchParams({id: chosen});
  place.replaceChildren(picture);
}

async function showTexts() {
  const place = byId("texts").lastElementChild, input = byId("text-step"), id = chosen;
  if (!input.value) input.value = run.last_step ?? 1;
  place.replaceChildren("reading ...");
  let read;
  try {
    read = await get("api/texts", {id, step: input.value});
  } catch (error) {
    return place.replaceChildren(error.message);
  }
  if (id !== chosen) return;
  const proof = read.as_recorded === true ? "its hash is as recorded"
    : read.as_recorded === false ? "NOT what was trained on: the hash in the record differs" : "no hash was recorded";
  const list = read.samples.map(sample => {
    const item = element("li");
    item.append(element("p", `sample ${count(sample.sample)} from ${sample.source}`, "hint"));
    for (const piece of sample.pieces)
      item.append(element("p", `document ${count(piece.document)}, ${count(piece.length)} tokens`, "hint"), element("pre", piece.text));
    return item;
  });
  const items = element("ol");
  items.append(...list);
  const shown = read.samples.length < read.count ? `, ${read.samples.length} of ${count(read.count)} samples` : "";
  place.replaceChildren(element("p", `step ${count(read.step)}: ${read.fate}${shown}; ${proof}`), items);
}

const logPlaces = new Map();  // by run: how far its log was read
const mostLog = 400000;       // characters that are shown

// Stays at the end, unless somebody has scrolled up to read.
async function showLog() {
  const id = chosen, place = byId("log").lastElementChild;
  const since = place.textContent && logPlaces.get(id) || {file: 0, bytes: 0};
  const piece = await get("api/log", {id, ...since});
  if (id !== chosen || !byId("log").open) return;
  logPlaces.set(id, {file: piece.file, bytes: piece.bytes});
  const atEnd = place.scrollTop + place.clientHeight > place.scrollHeight - 8;
  if (piece.anew) place.textContent = piece.text;
  else if (piece.text) place.append(piece.text);
  if (place.textContent.length > mostLog) place.textContent = place.textContent.slice(-mostLog / 2).replace(/^.*\n/, "");
  if (!place.textContent) place.textContent = "the run keeps no log.txt";
  if (atEnd) place.scrollTop = place.scrollHeight;
}

// Another run was chosen: what is open is of that one now.
function refreshDetails() {
  byId("text-step").value = "";
  for (const [id, show] of Object.entries(shows)) {
    byId(id).lastElementChild.replaceChildren();
    if (byId(id).open) guarded(async () => show())();
  }
}

const shows = {ranks: showRanks, plan: showPlan, log: showLog, texts: showTexts};
for (const [id, show] of Object.entries(shows))
  byId(id).addEventListener("toggle", () => { if (byId(id).open && run) guarded(async () => show())(); });
byId("text-form").addEventListener("submit", event => { event.preventDefault(); guarded(showTexts)(); });
if (snapshot) byId("ranks").hidden = byId("log").hidden = byId("texts").hidden = true;
else for (const id of ["ranks", "log"])
  setInterval(guarded(async () => { if (run && byId(id).open && !document.hidden) await shows[id](); }), 2000);
