// The dashboard. Everything it shows comes as server-sent events, and goes into the page as text, never as
// markup: names, URLs and reasons come from strangers.

const $ = (id) => document.getElementById(id);

/** Make an element with properties and children; `data-*` and `aria-*` become attributes. */
function make(tag, properties = {}, ...children) {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) one.setAttribute(name, value);
    else one[name] = value;
  }
  one.append(...children);
  return one;
}

/** Set a text only if it has changed, so that selections and screen readers are not disturbed. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Numbers for people

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const count = (n) => (n === null || n === undefined ? "–" : n < 100000 ? whole.format(n) : short.format(n));

const some = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;

function rate(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0";
  return n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : Number(n.toPrecision(2)).toString();
}

function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${(s / 3600).toFixed(1)} h`;
  return `${whole.format(s / 86400)} days`;
}

/** How long the work takes: 0 without work, null while nothing goes out. */
const eta = (s) => (s === 0 ? "–" : s === null ? "never" : seconds(s));

function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; n >= 1000 && unit < units.length - 1; unit++) n /= 1000;
  return `${n >= 100 || unit === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}

function clock(time) {
  const moment = new Date(time);
  const today = moment.toDateString() === new Date().toDateString();
  return moment.toLocaleString([], today ? { timeStyle: "medium" } : { dateStyle: "short", timeStyle: "short" });
}

/** A link to a stranger's page, or its text if that is not a URL that a browser should follow. */
function link(url, text = url) {
  return /^https?:\/\//i.test(url)
    ? make("a", { href: url, target: "_blank", rel: "noopener noreferrer", textContent: text })
    : document.createTextNode(text);
}

// State

let token = "";
let greeted = () => {}; // called when the token has come
let snapshot = null;
let arrived = 0; // when the latest snapshot came, by this page's clock
let staleMs = Infinity; // after which it is not the present; the monitor says
let connected = false;
const history = new Map(); // time -> [done, failed] a second

// Head

function showState() {
  const state = $("state");
  const stale = arrived && performance.now() - arrived > staleMs;
  const paused = snapshot && snapshot.general.paused;
  const [text, kind] = !connected
    ? ["not connected to the monitor, retrying", "bad"]
    : !snapshot
      ? ["waiting for the first figures", ""]
      : stale
        ? ["no new figures: see the monitor's log, is Redis down?", "bad"]
        : paused
          ? ["paused", "bad"]
          : snapshot.general.outstanding + snapshot.general.seeds_waiting === 0
            ? ["nothing to do", ""]
            : ["running", "good"];
  write(state, text);
  state.className = `pill ${kind}`;
  $("obstacle").hidden = !paused;
  write($("obstacle"), paused ? `Nothing goes out: ${paused}` : "");
  const age = snapshot ? Math.max(0, Math.round((performance.now() - arrived) / 1000)) : 0;
  write($("age"), snapshot ? `${clock(snapshot.time)}, ${age} s ago` : "");
}

const linksOf = (g) => g.links_admitted + g.links_known + g.links_over_budget + g.links_refused + g.links_excluded;

// Name, value, its key in `trouble`, the small text beside the value, and whether it is shown at all.
const TILES = [
  ["done a second", (g) => rate(g.success_rps)],
  ["errors a second", (g) => rate(g.error_rps), "error_rps"],
  ["allowed a second", (g) => rate(g.global_max_rps)],
  ["to do", (g) => count(g.outstanding)],
  ["in flight", (g) => count(g.in_flight), null,
    (g) => (g.in_flight ? ` ${some(g.sources_in_flight, "source")}, ${some(g.domains_in_flight, "domain")}` : "")],
  ["seeds waiting", (g) => count(g.seeds_waiting - g.waiting)],
  ["waiting beyond shares", (g) => count(g.waiting), null,
    (g) => (g.spilled ? ` ${count(g.spilled)} spilled` : "") + (g.overflow_lost ? ` ${count(g.overflow_lost)} lost` : "")],
  ["sources due", (g) => count(g.sources_due), null, (g) => ` of ${count(g.sources_in_progress)} with work`],
  ["all done in", (g) => eta(g.eta_s), null,
    (g) => (g.seeds_outside === null ? " + more being fed" : g.seeds_outside ? ` + about ${count(g.seeds_outside)} being fed` : "")],
  ["workers", (g) => count(g.workers), "workers"],
  ["thumbnails", (g) => count(g.num_resized), null, null, (g, spider) => spider !== "pages"],
  ["links a second", (g) => rate(g.links_rps), null,
    (g) => ` ${count(g.links_admitted)} admitted, ${count(g.links_known)} known`, linksOf],
  ["links over budget", (g) => count(g.links_over_budget), null,
    (g) => ` ${count(g.links_refused)} refused, ${count(g.links_excluded)} excluded`, linksOf],
  ["dead letters", (g) => count(g.dead)],
  ["dropped as excluded", (g) => count(g.excluded), null, (g) => (g.exclusions ? ` ${some(g.exclusions, "name")}` : "")],
  ["first byte: median, 95 %, 99 %", (g) => seconds(g.latency_p50_s), null,
    (g) => (g.latency_p95_s === null ? "" : ` ${seconds(g.latency_p95_s)}, ${seconds(g.latency_p99_s)}`)],
  ["whole fetch: median, 95 %, 99 %", (g) => seconds(g.fetch_p50_s), null,
    (g) => (g.fetch_p95_s === null ? "" : ` ${seconds(g.fetch_p95_s)}, ${seconds(g.fetch_p99_s)}`)],
  ["reading a page: median, 95 %, 99 %", (g) => seconds(g.parse_p50_s), null,
    (g) => (g.parse_p95_s === null ? "" : ` ${seconds(g.parse_p95_s)}, ${seconds(g.parse_p99_s)}`), (g, spider) => spider === "pages"],
  ["data a second", (g) => bytes(g.bytes_per_s), null, () => ""],
  ["memory of Redis", (g) => bytes(g.redis_bytes)],
];

function showTiles(general) {
  const list = $("tiles");
  if (!list.children.length) {
    for (const [name] of TILES) list.append(make("div", {}, make("dt", { textContent: name }), make("dd")));
  }
  TILES.forEach(([, value, key, more, isShown], index) => {
    const tile = list.children[index];
    tile.hidden = isShown ? !isShown(general, snapshot.spider) : false;
    const text = value(general) + (more ? more(general) : "");
    const shown = tile.lastChild;
    if (shown.textContent !== text) {
      shown.replaceChildren(value(general));
      if (more) shown.append(make("small", { textContent: more(general) }));
    }
    tile.className = general.trouble.includes(key) ? "alarm" : "";
  });
}

// Chart

const SVG = "http://www.w3.org/2000/svg";
const SPAN_MAX_MS = 30 * 60 * 1000;
const SPAN_MIN_MS = 60 * 1000;
const MARGIN = { left: 40, right: 8, top: 8, bottom: 20 };

function draw(tag, attributes, text) {
  const one = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  if (text !== undefined) one.textContent = text;
  return one;
}

let plotted = null; // the points that the pointer reads

function showChart() {
  const box = $("chart");
  const [width, height] = [box.clientWidth, box.clientHeight];
  const points = [...history].map(([time, values]) => [Date.parse(time), ...values]).sort((a, b) => a[0] - b[0]);
  if (!points.length || !width) return;
  const end = points.at(-1)[0];
  const begin = Math.min(Math.max(points[0][0], end - SPAN_MAX_MS), end - SPAN_MIN_MS);
  const seen = points.filter(([time]) => time >= begin);
  const top = nice(Math.max(1, ...seen.map(([, done, failed]) => Math.max(done, failed))));
  const x = (time) => MARGIN.left + ((time - begin) / (end - begin)) * (width - MARGIN.left - MARGIN.right);
  const y = (value) => height - MARGIN.bottom - (value / top) * (height - MARGIN.top - MARGIN.bottom);
  const path = (column) => seen.map((p, n) => `${n ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(p[column]).toFixed(1)}`).join("");
  const [, done, failed] = seen.at(-1);
  const svg = draw("svg", { role: "img", "aria-label": `${rate(done)} done and ${rate(failed)} failed a second now; ` +
    `at most ${rate(Math.max(...seen.map((p) => p[1])))} done in ${seconds((end - begin) / 1000)}` });
  for (const part of [0, 0.5, 1]) {
    svg.append(draw("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(top * part), y2: y(top * part) }));
    svg.append(draw("text", { x: MARGIN.left - 6, y: y(top * part) + 4, "text-anchor": "end" }, rate(top * part)));
  }
  const ticks = width < 500 ? 2 : 4;
  for (let tick = 0; tick < ticks; tick++) {
    const time = begin + ((end - begin) * tick) / (ticks - 1);
    const anchor = tick === 0 ? "start" : tick === ticks - 1 ? "end" : "middle";
    const label = new Date(time).toLocaleTimeString([], { timeStyle: "medium" });
    svg.append(draw("text", { x: x(time), y: height - 4, "text-anchor": anchor }, label));
  }
  svg.append(draw("path", { class: "area", d: `${path(1)}L${x(seen.at(-1)[0])} ${y(0)}L${x(seen[0][0])} ${y(0)}Z` }));
  svg.append(draw("path", { class: "good", d: path(1) }), draw("path", { class: "bad", d: path(2) }));
  const hair = draw("line", { class: "hair", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
  svg.append(hair);
  box.replaceChildren(svg);
  plotted = { seen, x, hair };
}

/** The next round number. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value);
}

$("chart").addEventListener("pointermove", (event) => {
  if (!plotted) return;
  const at = event.clientX - $("chart").getBoundingClientRect().left;
  const nearest = plotted.seen.reduce((a, b) => (Math.abs(plotted.x(a[0]) - at) < Math.abs(plotted.x(b[0]) - at) ? a : b));
  plotted.hair.setAttribute("x1", plotted.x(nearest[0]));
  plotted.hair.setAttribute("x2", plotted.x(nearest[0]));
  plotted.hair.setAttribute("visibility", "visible");
  write($("reading"), `${clock(nearest[0])}: ${rate(nearest[1])} done, ${rate(nearest[2])} failed a second`);
});
$("chart").addEventListener("pointerleave", () => {
  write($("reading"), "");
  plotted?.hair.setAttribute("visibility", "hidden");
});
new ResizeObserver(showChart).observe($("chart"));

// Sources

const actual = (s) => (s.success_rps === null ? null : s.success_rps + s.link_rot_rps + s.error_rps);
const working = (s) => s.work > 0;
const NAMES = { closed: "ok", open: "open", half_open: "half open", halted: "halted", excluded: "excluded" };
const stateName = (s) => (s.state === "closed" && s.trouble ? "slowed" : NAMES[s.state] ?? s.state);

// Name, what to sort by, and how it is shown in a cell.
const COLUMNS = [
  ["source", (s) => s.source, showName],
  ["state", (s) => ["halted", "open", "half_open", "closed", "excluded"].indexOf(s.state), showTag],
  ["rate", actual, showRate],
  ["to do", (s) => s.queued + s.waiting + s.delayed, (cell, s) => write(cell, count(s.queued + s.waiting) + (s.delayed ? ` + ${count(s.delayed)} later` : ""))],
  ["in flight", (s) => s.in_flight, (cell, s) => write(cell, count(s.in_flight))],
  ["done", (s) => s.successful, (cell, s) => write(cell, count(s.successful))],
  ["failed", (s) => s.failed, (cell, s) => write(cell, count(s.failed))],
  ["first byte", (s) => s.latency_mean_s ?? -1, (cell, s) => write(cell, seconds(s.latency_mean_s))],
  ["whole fetch", (s) => s.fetch_p99_s ?? -1, showFetch],
  ["last 50", (s) => s.last_50_statuses["200"] ?? 0, showStatuses],
  ["done in", (s) => s.eta_s ?? Infinity, (cell, s) => write(cell, eta(s.eta_s))],
];
const STEP = 100; // rows

let sortBy = null; // [column, descending]; null: what needs attention first
let limit = STEP;
let sources = [];
const rows = new Map(); // source -> its row

/** The median of its last whole fetches, and what 99 % of them do not exceed. */
function showFetch(cell, s) {
  write(cell, s.fetch_p50_s === null ? "–" : `${seconds(s.fetch_p50_s)}, ${seconds(s.fetch_p99_s)}`);
  cell.title = s.fetch_p50_s === null ? "" : "median and 99th percentile of its last whole fetches, time-outs included";
}

function showName(cell, s) {
  if (!cell.firstChild) cell.append(make("strong"), make("small"));
  write(cell.firstChild, s.source);
  write(cell.lastChild, s.reason.replace(/^by size(; )?/, ""));
}

function showTag(cell, s) {
  if (!cell.firstChild) cell.append(make("span"));
  cell.firstChild.className = `tag ${s.state}`;
  write(cell.firstChild, stateName(s));
}

function showRate(cell, s) {
  if (!cell.firstChild) {
    cell.append(make("span"), make("small", { className: "muted" }), make("span", { className: "meter" }, make("i", { className: "limit" }), make("i")));
  }
  const [text, of, meter] = cell.children;
  write(text, rate(actual(s)));
  write(of, ` of ${rate(s.effective_rate)}${s.effective_rate < s.rate_limit ? `, limit ${rate(s.rate_limit)}` : ""}`);
  const share = (value) => `${Math.min(100, s.rate_limit ? (100 * value) / s.rate_limit : 0)}%`;
  meter.firstChild.style.width = share(s.effective_rate);
  meter.lastChild.style.width = share(actual(s) ?? 0);
}

function showStatuses(cell, s) {
  const all = Object.entries(s.last_50_statuses).sort();
  const text = all.map(([status, number]) => `${status}: ${number}`).join(", ") || "none yet";
  if (cell.dataset.shown === text) return;
  cell.dataset.shown = text;
  const bar = make("span", { className: "statuses", title: text, "aria-hidden": "true" });
  for (const [status, number] of all) {
    const part = make("i", { className: /^[2-5]\d\d$/.test(status) ? `s${status[0]}` : "s0" });
    part.style.flexGrow = number;
    bar.append(part);
  }
  cell.replaceChildren(make("span", { className: "hidden", textContent: text }), bar);
}

// What the first button of a row does.
const doing = (s) => ({ closed: "Halt", excluded: "Include" }[s?.state ?? "closed"] ?? "Resume");

function newRow(source) {
  const row = make("tr", { "data-source": source });
  for (const [name] of COLUMNS) row.append(make("td", { className: name, "data-label": name }));
  const halt = make("button", { type: "button" });
  const set = make("button", { type: "button", textContent: "Rate…", "aria-label": `Set the rate of ${source}` });
  halt.addEventListener("click", () => {
    const s = sources.find((one) => one.source === source);
    send(`/${doing(s).toLowerCase()}`, { source }, halt);
  });
  set.addEventListener("click", () => askRate(source));
  row.append(make("td", { className: "actions" }, halt, set));
  return row;
}

function fillRow(row, s) {
  COLUMNS.forEach(([, , show], index) => show(row.children[index], s));
  const button = row.lastChild.firstChild;
  const what = doing(s);
  write(button, what);
  if (button.getAttribute("aria-label") !== `${what} ${s.source}`) button.setAttribute("aria-label", `${what} ${s.source}`);
}

function attention(a, b) {
  return b.trouble - a.trouble || working(b) - working(a) || b.rate_limit - a.rate_limit || a.source.localeCompare(b.source);
}

/** Show the sources; `changed`: the operator has just changed the selection or the order. */
function showSources(changed = false) {
  const wanted = $("filter").value.trim().toLowerCase();
  const test = { work: working, trouble: (s) => s.trouble > 0 }[$("which").value] ?? (() => true);
  const chosen = sources.filter((s) => test(s) && (!wanted || `${s.source} ${s.reason}`.toLowerCase().includes(wanted)));
  if (sortBy) {
    const [column, descending] = sortBy;
    const value = COLUMNS[column][1];
    chosen.sort((a, b) => {
      const [one, other] = [value(a) ?? -1, value(b) ?? -1];
      const order = typeof one === "string" ? one.localeCompare(other) : one - other;
      return (descending ? -order : order) || a.source.localeCompare(b.source);
    });
  } else chosen.sort(attention);
  const shown = chosen.slice(0, limit);
  const body = $("rows");
  const names = new Set(shown.map((s) => s.source));
  for (const [name, row] of rows) {
    if (!names.has(name)) {
      row.remove();
      rows.delete(name);
    }
  }
  // While somebody points at a row, or has focused one of its buttons, the rows stay where they are.
  const fixed = !changed && (body.matches(":hover") || body.contains(document.activeElement));
  shown.forEach((s, index) => {
    let row = rows.get(s.source);
    if (!row) rows.set(s.source, (row = newRow(s.source)));
    fillRow(row, s);
    if (!row.isConnected) body.append(row);
    if (!fixed && body.children[index] !== row) body.insertBefore(row, body.children[index]);
  });
  write($("shown"), `${whole.format(chosen.length)} of ${whole.format(snapshot?.general.sources ?? sources.length)}`);
  $("empty").hidden = shown.length > 0;
  $("more").hidden = chosen.length <= limit;
  write($("more"), `Show ${whole.format(Math.min(STEP, chosen.length - limit))} more of ${whole.format(chosen.length - limit)}`);
}

function showColumns() {
  const head = $("columns");
  if (!head.children.length) {
    COLUMNS.forEach(([name], index) => {
      const button = make("button", { type: "button", textContent: name });
      button.addEventListener("click", () => {
        const same = sortBy && sortBy[0] === index;
        sortBy = !same ? [index, index > 1] : sortBy[1] === index > 1 ? [index, !sortBy[1]] : null;
        showColumns();
        showSources(true);
      });
      head.append(make("th", { scope: "col" }, button));
    });
    head.append(make("th", { scope: "col" }, make("span", { textContent: "actions" })));
  }
  COLUMNS.forEach((_, index) => {
    if (sortBy && sortBy[0] === index) head.children[index].setAttribute("aria-sort", sortBy[1] ? "descending" : "ascending");
    else head.children[index].removeAttribute("aria-sort");
  });
}

$("filter").addEventListener("input", () => { limit = STEP; showSources(true); });
$("which").addEventListener("change", () => { limit = STEP; showSources(true); });
$("more").addEventListener("click", () => { limit += STEP; showSources(true); });
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (event.key === "/" && !typing && !$("rate").open) {
    event.preventDefault();
    $("filter").focus();
  } else if (event.key === "Escape" && event.target === $("filter")) {
    $("filter").value = "";
    showSources(true);
    $("filter").blur();
  }
});

// Halted sources, and what has happened recently

function fillList(list, items, none) {
  list.replaceChildren(...(items.length ? items : [make("li", { className: "muted", textContent: none })]));
}

let halts = [];

function showOpen() {
  const open = sources.filter((s) => s.state !== "closed").sort(attention);
  fillList($("open"), open.map((s) => {
    const since = halts.find((one) => one.source === s.source && one.event === "halted");
    return make("li", {}, make("span", { className: `tag ${s.state}`, textContent: stateName(s) }), " ",
      make("strong", { textContent: s.source }),
      make("span", { className: "what", textContent: [since && `since ${clock(since.time)}: ${[since.reason, since.msg].filter(Boolean).join("; ")}`, s.reason].filter(Boolean).join("; ") }));
  }), "All circuits are closed, nothing is halted.");
}

function showErrors(general) {
  const all = Object.entries(general.errors).sort((a, b) => b[1] - a[1]);
  const most = Math.max(1, ...all.map(([, number]) => number));
  fillList($("errors"), all.map(([kind, number]) => {
    const part = make("i");
    part.style.width = `${(100 * number) / most}%`;
    const now = general.errors_now[kind];
    return make("li", {}, make("span", { textContent: kind }), make("span", { className: "meter" }, part),
      make("span", { textContent: count(number) + (now ? ` (${count(now)} now)` : "") }));
  }), "None so far.");
}

function entry(time, source, text, url, what) {
  const item = make("li", {}, make("time", { dateTime: time, textContent: clock(time) }),
    make("strong", { textContent: source ?? "–" }), " ", url ? link(url, text) : text ?? "");
  if (what) item.append(make("span", { className: "what", textContent: what }));
  return item;
}

function showRecent(recent) {
  halts = recent.halts;
  fillList($("halts"), halts.map((one) =>
    entry(one.time, one.source, `${one.event} (${one.type})`, null,
      [one.reason, one.msg, one.by && `by ${one.by}`].filter(Boolean).join("; "))), "Nothing yet.");
  fillList($("dead"), recent.dead.map((one) => entry(one.time, one.source, one.url ?? one.seed, one.url, one.reason)), "None.");
  fillList($("rot"), recent.link_rot.map((one) => entry(one.time, one.source, one.url, one.url, `status ${one.status}`)), "None.");
  const known = new Map([...$("pictures").children].map((item) => [item.dataset.name, item]));
  $("pictures").replaceChildren(...recent.thumbnails.filter((one) => typeof one.thumbnail === "string").map((one) => known.get(one.thumbnail) ?? picture(one)));
  if (!recent.thumbnails.length) $("pictures").append(make("li", { className: "muted", textContent: "None yet." }));
  showOpen();
}

function picture(one) {
  const name = one.thumbnail.split("/").map(encodeURIComponent).join("/");
  const image = make("img", { src: `/thumbnails/${name}`, loading: "lazy", alt: "" });
  image.addEventListener("error", () => { image.style.visibility = "hidden"; });
  const text = make("span", { textContent: one.source });
  const about = `${one.source}, ${one.width} × ${one.height}: ${one.identifier}`;
  const whole = link(one.url, "");
  if (!(whole instanceof Element)) return make("li", { "data-name": one.thumbnail, title: about }, image, text);
  whole.append(image, text);
  whole.setAttribute("aria-label", about);
  whole.title = about;
  return make("li", { "data-name": one.thumbnail }, whole);
}

// Changes by the operator

let saying = 0;

function say(text) {
  $("said").textContent = text;
  clearTimeout(saying);
  saying = setTimeout(() => { $("said").textContent = ""; }, 8000);
}

/** Send a change; return the error, "" if there is none. */
async function send(path, body, button) {
  if (button) button.disabled = true;
  try {
    const post = () => fetch(path, {
      method: "POST", body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", "X-CSRF-Token": token },
    });
    let answer = await post();
    if (answer.status === 403) { // another page of this browser has begun a new session
      await new Promise((resolve) => { greeted = resolve; connect(); });
      answer = await post();
    }
    if (answer.status === 401) location.assign("/login");
    const data = await answer.json();
    if (!answer.ok) {
      say(data.error);
      return data.error;
    }
    if (path === "/logout") {
      location.assign("/login");
      return "";
    }
    const row = sources.find((s) => s.source === data.source);
    if (row) for (const key of ["state", "reason", "rate_limit", "effective_rate", "trouble"]) row[key] = data.row[key];
    showSources();
    showOpen();
    say({ "/halt": `${data.source} is halted`, "/resume": `${data.source} has been resumed`, "/include": data.row.state === "excluded" ? `${data.source} is still excluded: CRAWL_EXCLUDE names it` : `${data.source} is included again`, "/rate": `${data.source}: the rate applies within two seconds` }[path]);
    return "";
  } catch (error) {
    say(`The monitor does not respond: ${error.message}`);
    return error.message;
  } finally {
    if (button) {
      button.disabled = false;
      button.focus();
    }
  }
}

function askRate(source) {
  const s = sources.find((one) => one.source === source);
  const dialog = $("rate");
  dialog.dataset.source = source;
  write($("rate-of"), `Rate of ${source}`);
  write($("rate-now"), s ? `Now ${rate(s.rate_limit)}: ${s.reason}` : "");
  write($("rate-wrong"), "");
  $("rps").value = s ? s.rate_limit : "";
  dialog.showModal();
  $("rps").select();
}

async function setRate(value) {
  const wrong = await send("/rate", { source: $("rate").dataset.source, rate: value });
  write($("rate-wrong"), wrong);
  if (!wrong) $("rate").close();
}

$("rate").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  setRate($("rps").value);
});
$("rate-auto").addEventListener("click", () => setRate("auto"));
$("rate-cancel").addEventListener("click", () => $("rate").close());

$("logout").addEventListener("click", () => send("/logout", {}, $("logout")));

// Light and dark

const THEMES = { "": "dark", dark: "light", light: "" };
function showTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  write($("theme"), { "": "Theme: system", dark: "Theme: dark", light: "Theme: light" }[theme]);
}
showTheme(localStorage.getItem("theme") ?? "");
$("theme").addEventListener("click", () => {
  const theme = THEMES[localStorage.getItem("theme") ?? ""];
  localStorage.setItem("theme", theme);
  showTheme(theme);
});

// Events

function remember(time, done, failed) {
  history.set(time, [done, failed]);
  if (history.size > 2000) history.delete(history.keys().next().value);
}

let stream = null;

function connect() {
  stream?.close();
  if (document.hidden) return; // a browser has six connections to a site, for all its pages and their requests
  const events = (stream = new EventSource("/events"));
  events.addEventListener("open", () => { connected = true; showState(); });
  events.addEventListener("error", async () => {
    connected = false;
    showState();
    if (events.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    const answer = await fetch("/", { redirect: "manual" }).catch(() => null);
    if (answer && answer.type === "opaqueredirect") location.assign("/login");
    else setTimeout(connect, 2000);
  });
  events.addEventListener("hello", (event) => {
    const hello = JSON.parse(event.data);
    token = hello.token;
    staleMs = hello.stale_s * 1000;
    greeted();
    write($("spider"), hello.spider);
    $("logout").hidden = !hello.password;
    for (const point of hello.history) remember(...point);
  });
  events.addEventListener("snapshot", (event) => {
    const latest = JSON.parse(event.data);
    if (snapshot && latest.time === snapshot.time) return;
    snapshot = latest;
    arrived = performance.now();
    sources = Object.entries(snapshot.specific).map(([source, rest]) => ({ source, ...rest }));
    remember(snapshot.time, snapshot.general.success_rps, snapshot.general.error_rps);
    document.title = `${rate(snapshot.general.success_rps)}/s · crawlproject`;
    showState();
    showTiles(snapshot.general);
    $("pictures").parentElement.hidden = snapshot.spider === "pages";
    showChart();
    showSources();
    showOpen();
    showErrors(snapshot.general);
  });
  events.addEventListener("recent", (event) => showRecent(JSON.parse(event.data)));
}

document.addEventListener("visibilitychange", () => {
  connected = false;
  document.title = "crawlproject";
  showState();
  connect();
});

showColumns();
connect();
setInterval(showState, 1000);
