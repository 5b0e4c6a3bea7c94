"use strict";
// Where the page's data come from: the server that serves it, or, in a report, the snapshot that the file itself holds.
const snapshot = window.snapshot || null;

async function get(path, values) {
  if (snapshot) return fromSnapshot(path, values);
  const reply = await fetch(path + (values ? "?" + new URLSearchParams(values) : ""));
  if (!reply.ok) throw new Error((await reply.text()).trim());
  return reply.json();
}

function fromSnapshot(path, values) {
  if (path === "api/runs") return snapshot.runs;
  const details = snapshot.details[values.id];
  if (path === "api/run") return details.run;
  if (path === "api/bins") return slice(details.bins, Number(values.from), Number(values.to));
  throw new Error("a report does not hold this");
}

// The bins of a report are those of the whole run: a closer look shows fewer of them.
function slice(bins, from, to) {
  const begin = Math.max(0, Math.floor((from - bins.first_step) / bins.width));
  const end = Math.floor((to - bins.first_step) / bins.width) + 1;
  const columns = Object.fromEntries(Object.entries(bins.columns).map(
    ([name, [lowest, highest]]) => [name, [lowest.slice(begin, end), highest.slice(begin, end)]]));
  return {...bins, first_step: bins.first_step + begin * bins.width, columns};
}
