// A panel: the crawl of one spider, as its snapshots and recent events tell it. The page has one for each that it shows.

import { bytes, cause, clock, count, eta, link, make, rate, seconds, some, whole, write } from "./text.js";

const linksOf = (g) =>
  g.links_admitted + g.links_known + g.links_over_budget + g.links_without_room + g.links_refused + g.links_excluded;

const of = (...spiders) => (g, spider) => spiders.includes(spider);
const others = (g, spider) => !["images", "pages"].includes(spider);
const more = (second, third) => (second === null ? "" : ` 95 %: ${seconds(second)}, 99 %: ${seconds(third)}`);

// Groups of figures. Of each figure: name, value, its key in `trouble`, the small text beside the value, and whether it is
// shown at all.
const GROUPS = {
  Speed: [
    ["done a second", (g) => rate(g.success_rps)],
    ["allowed a second", (g) => rate(g.global_max_rps)],
    ["workers", (g) => count(g.workers), "workers"],
    ["links found a second", (g) => rate(g.links_rps), null, null, linksOf],
    ["first byte", (g) => seconds(g.latency_p50_s), null, (g) => more(g.latency_p95_s, g.latency_p99_s)],
    ["whole fetch", (g) => seconds(g.fetch_p50_s), null, (g) => more(g.fetch_p95_s, g.fetch_p99_s)],
    ["reading a page", (g) => seconds(g.parse_p50_s), null, (g) => more(g.parse_p95_s, g.parse_p99_s), of("pages")],
    ["data a second", (g) => bytes(g.bytes_per_s)],
  ],
  Work: [
    ["time left", (g) => eta(g.eta_s)],
    ["queued or in flight", (g) => count(g.outstanding)],
    ["in flight", (g) => count(g.in_flight), null,
      (g) => (g.in_flight ? ` ${some(g.sources_in_flight, "source")}, ${some(g.domains_in_flight, "domain")}` : "")],
    ["waiting", (g) => count(g.waiting)],
    ["seeds not read yet", (g) => count(g.seeds_waiting - g.waiting)],
    ["sources with work", (g) => count(g.sources_in_progress), null, (g) => ` ${count(g.sources_due)} waiting for a worker`],
  ],
  Trouble: [
    ["errors a second", (g) => rate(g.error_rps), "error_rps"],
    ["sources halted", (g) => count(g.circuit_breaker_tripped.length), "circuit_breaker_tripped"],
    ["circuits open", (g) => count(g.circuit_breaker_open.length), "circuit_breaker_open"],
    ["dead letters", (g) => count(g.dead)],
    ["links over budget", (g) => count(g.links_over_budget), null,
      (g) => ` ${count(g.links_refused)} refused` + (g.links_without_room ? `, ${count(g.links_without_room)} without room` : ""), linksOf],
    ["dropped as excluded", (g) => count(g.excluded), null, (g) => (g.exclusions ? ` ${some(g.exclusions, "name")}` : "")],
    ["requests lost", (g) => count(g.overflow_lost), null, null, (g) => g.overflow_lost],
  ],
  Storage: [
    ["thumbnails", (g) => count(g.num_resized), null, null, of("images")],
    ["responses", (g) => count(g.responses), null, null, others],
    ["items", (g) => count(g.items), null, null, others],
    ["links admitted", (g) => count(g.links_admitted), null, (g) => ` ${count(g.links_known)} known before`, linksOf],
    ["data received", (g) => bytes(g.bytes)],
    ["spilled", (g) => count(g.spilled), null, null, (g) => g.spilled],
    ["memory of Redis", (g) => bytes(g.redis_bytes)],
  ],
};

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

/** The next round number. */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value);
}

// Sources

const actual = (s) => (s.success_rps === null ? null : s.success_rps + s.link_rot_rps + s.error_rps);
const working = (s) => s.work > 0;
const NAMES = { closed: "ok", open: "open", half_open: "half open", halted: "halted", excluded: "excluded" };
const stateName = (s) => (s.state === "closed" && s.trouble ? "slowed" : NAMES[s.state] ?? s.state);

const ofPages = (spider) => spider === "pages";

// Name, what to sort by, how it is shown in a cell, and of which spiders (of all, if that is not said).
const COLUMNS = [
  ["source", (s) => s.source, showName],
  ["state", (s) => ["halted", "open", "half_open", "closed", "excluded"].indexOf(s.state), showTag],
  ["rate", actual, showRate],
  ["to do", (s) => s.queued + s.waiting + s.delayed, showWork],
  ["in flight", (s) => s.in_flight, (cell, s) => write(cell, count(s.in_flight))],
  ["done", (s) => s.successful, (cell, s) => write(cell, count(s.successful))],
  ["failed", (s) => s.failed, (cell, s) => write(cell, count(s.failed))],
  ["links", (s) => s.links.admitted ?? 0, showLinks, ofPages],
  ["budget", (s) => (s.budget?.allowed ? s.budget.admitted / s.budget.allowed : -1), showBudget, ofPages],
  ["first byte", (s) => s.latency_mean_s ?? -1, (cell, s) => write(cell, seconds(s.latency_mean_s)), (spider) => !ofPages(spider)],
  ["whole fetch", (s) => s.fetch_p99_s ?? -1, showFetch],
  ["last 50", (s) => s.last_50_statuses["200"] ?? 0, showStatuses],
  ["done in", (s) => s.eta_s ?? Infinity, (cell, s) => write(cell, eta(s.eta_s))],
];
const STEP = matchMedia("(max-width: 860px)").matches ? 20 : 100; // rows

/** What waits: in the queues (of pages: in the source's window), beyond, and of that in the store. */
function showWork(cell, s) {
  if (!cell.firstChild) cell.append(make("span"), make("small", { className: "muted" }));
  const apart = s.waiting - s.spilled;
  const parts = [
    s.delayed && `${count(s.delayed)} delayed`, apart && `${count(apart)} waiting`, s.spilled && `${count(s.spilled)} spilled`,
  ];
  write(cell.firstChild, count(s.queued));
  write(cell.lastChild, parts.filter(Boolean).map((part) => ` + ${part}`).join(""));
}

/** Links found that belong to the source: those admitted, and a bar of what became of all. */
function showLinks(cell, s) {
  const all = Object.entries(s.links);
  const text = all.map(([result, number]) => `${count(number)} ${result.replace("_", " ")}`).join(", ") || "none yet";
  if (cell.dataset.shown === text) return;
  cell.dataset.shown = text;
  const number = make("span", { textContent: count(s.links.admitted ?? 0), "aria-hidden": "true" });
  cell.replaceChildren(make("span", { className: "hidden", textContent: text }), number, bar(all, text, ([result]) => result));
}

/** How many links its budget has admitted, of how many. */
function showBudget(cell, s) {
  if (!cell.firstChild) cell.append(make("span"), make("small", { className: "muted" }), make("span", { className: "meter" }, make("i")));
  const [used, of, meter] = cell.children;
  write(used, s.budget ? count(s.budget.admitted) : "–");
  write(of, s.budget?.allowed ? ` of ${count(s.budget.allowed)}` : "");
  meter.hidden = !s.budget?.allowed;
  meter.firstChild.style.width = `${s.budget?.allowed ? Math.min(100, (100 * s.budget.admitted) / s.budget.allowed) : 0}%`;
}

/** The median of its last whole fetches, and what 99 % of them do not exceed. */
function showFetch(cell, s) {
  write(cell, s.fetch_p50_s === null ? "–" : `p50 ${seconds(s.fetch_p50_s)}, p99 ${seconds(s.fetch_p99_s)}`);
  cell.title = s.fetch_p50_s === null ? "" : "median and 99th percentile of its last whole fetches, time-outs included";
}

function showName(cell, s) {
  if (!cell.firstChild) cell.append(make("strong"), make("small"));
  write(cell.firstChild, s.source);
  write(cell.lastChild, cause(s.reason));
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

/** A bar of numbers, each as wide as its share; `text` says them, and `kind` how each is coloured. */
function bar(all, text, kind) {
  const made = make("span", { className: "shares", title: text, "aria-hidden": "true" });
  for (const one of all) {
    const part = make("i", { className: kind(one) });
    part.style.flexGrow = one[1];
    made.append(part);
  }
  return made;
}

function showStatuses(cell, s) {
  const all = Object.entries(s.last_50_statuses).sort();
  const text = all.map(([status, number]) => `${status}: ${number}`).join(", ") || "none yet";
  if (cell.dataset.shown === text) return;
  cell.dataset.shown = text;
  const kind = ([status]) => (/^[2-5]\d\d$/.test(status) ? `s${status[0]}` : "s0");
  cell.replaceChildren(make("span", { className: "hidden", textContent: text }), bar(all, text, kind));
}

// What the first button of a row does.
const doing = (s) => ({ closed: "Halt", excluded: "Include" }[s?.state ?? "closed"] ?? "Resume");

function attention(a, b) {
  return b.trouble - a.trouble || working(b) - working(a) || b.rate_limit - a.rate_limit || a.source.localeCompare(b.source);
}

// Lists

// What happened to a circuit, and because of which statuses.
const HAPPENED = { "halted temporary": "circuit opened", "resumed temporary": "circuit closed" };
const happened = (one) => HAPPENED[`${one.event} ${one.type}`] ?? one.event;

function why(one) {
  const [, codes] = /Response codes: \{(.+)\}/.exec(one.msg ?? "") ?? [];
  return [one.reason, codes && `last statuses ${codes.replaceAll('"', "")}`].filter(Boolean).join("; ");
}

// Kinds of errors, and what is none: a site forbids it, or an address is refused.
const KINDS = {
  dns: "name not found", connect: "no connection", tls: "certificate or TLS", timeout: "no answer in time",
  http_2xx: "status 2xx, but not 200", http_3xx: "redirect to nowhere", http_4xx: "status 4xx", http_5xx: "status 5xx",
  http_other: "invalid status", decode: "unreadable image", too_large: "too large", store: "storage failed", ours: "internal fault",
};
const FORBIDDEN = { robots: "robots.txt (also: unreachable)", opt_out: "opt-out", refused: "address, port or scheme" };

function fillList(list, items, none) {
  list.replaceChildren(...(items.length ? items : [make("li", { className: "muted", textContent: none })]));
}

function entry(time, source, text, url, what) {
  const item = make("li", {}, make("time", { dateTime: time, textContent: clock(time) }),
    make("strong", { textContent: source ?? "–" }), " ", url ? link(url, text) : text ?? "");
  if (what) item.append(make("span", { className: "what", textContent: what }));
  return item;
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

/** A copy of a template. `tag` is added to all ids in it, and `of`, if given, to what names its parts. */
function copyOf(template, tag, of) {
  const copy = template.content.cloneNode(true);
  for (const one of copy.querySelectorAll("[id]")) one.id += tag;
  for (const one of copy.querySelectorAll("[for]")) one.htmlFor += tag;
  for (const one of copy.querySelectorAll("[aria-labelledby]")) {
    one.setAttribute("aria-labelledby", `${of ? `${of}${tag} ` : ""}${one.getAttribute("aria-labelledby")}${tag}`);
  }
  return copy;
}

/**
 * Make the panel of a spider, and return what the page does with it. `tag` is added to the ids of its elements; "" for the
 * first one. `alone`: the page has no other. `order(path, change, button)` sends a change by the operator, `askRate(change,
 * row)` opens the dialogue for one; a change names the source and the spider.
 */
export function makePanel(spider, tag, alone, { order, askRate, pages }) {
  const $ = (id) => document.getElementById(id + tag);
  document.getElementById("heads").append(copyOf(document.getElementById("head-of-panel"), tag));
  document.getElementById("panels").append(copyOf(document.getElementById("panel"), tag, alone ? "" : "h-panel"));
  $("of").hidden = $("h-panel").hidden = alone;
  write($("of"), spider);
  write($("h-panel"), spider);
  const columns = COLUMNS.filter(([, , , isShown]) => !isShown || isShown(spider));
  let snapshot = null;
  let arrived = 0; // when the latest snapshot came, by this page's clock
  const history = new Map(); // time -> [done, failed] a second

  // Head

  /** `staleMs`: after which a snapshot is not the present. */
  function showState(connected, staleMs) {
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
    const stopped = snapshot ? Object.entries(snapshot.general.shards_stopped) : [];
    const obstacles = paused ? [`Nothing goes out: ${paused}`] : [];
    obstacles.push(...stopped.slice(0, 5).map(([number, reason]) => `Shard ${number}: ${reason}`));
    if (stopped.length > 5) obstacles.push(`and ${stopped.length - 5} more shards`);
    $("obstacle").hidden = !obstacles.length;
    write($("obstacle"), obstacles.join("; "));
    const age = snapshot ? Math.max(0, Math.round((performance.now() - arrived) / 1000)) : 0;
    write($("age"), snapshot ? `${clock(snapshot.time)}, ${age} s ago` : "");
  }

  function showTiles(general) {
    const box = $("tiles");
    if (!box.children.length) {
      for (const [group, figures] of Object.entries(GROUPS)) {
        const rows = figures.map(([name]) => make("div", {}, make("dt", { textContent: name }), make("dd")));
        box.append(make("section", { className: "card" }, make("h3", { textContent: group }), make("dl", {}, ...rows)));
      }
    }
    const tiles = box.querySelectorAll("dl > div");
    Object.values(GROUPS).flat().forEach(([, value, key, more, isShown], index) => {
      const tile = tiles[index];
      tile.hidden = isShown ? !isShown(general, spider) : false;
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
      const label = anchor === "end" ? clock(time) : new Date(time).toLocaleTimeString([], { timeStyle: "medium" });
      svg.append(draw("text", { x: x(time), y: height - 4, "text-anchor": anchor }, label));
    }
    svg.append(draw("path", { class: "area", d: `${path(1)}L${x(seen.at(-1)[0])} ${y(0)}L${x(seen[0][0])} ${y(0)}Z` }));
    svg.append(draw("path", { class: "good", d: path(1) }), draw("path", { class: "bad", d: path(2) }));
    const hair = draw("line", { class: "hair", y1: MARGIN.top, y2: height - MARGIN.bottom, visibility: "hidden" });
    svg.append(hair);
    box.replaceChildren(svg);
    plotted = { seen, x, hair };
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

  let sortBy = null; // [column, descending]; null: what needs attention first
  let limit = STEP;
  let sources = [];
  const rows = new Map(); // source -> its row

  function newRow(source) {
    const row = make("tr", { "data-source": source });
    for (const [name] of columns) row.append(make("td", { className: name, "data-label": name }));
    const halt = make("button", { type: "button" });
    const set = make("button", { type: "button", textContent: "Rate…", "aria-label": `Set the rate of ${source}` });
    halt.addEventListener("click", () => {
      const s = sources.find((one) => one.source === source);
      order(`/${doing(s).toLowerCase()}`, { source, spider }, halt);
    });
    set.addEventListener("click", () => askRate({ source, spider }, sources.find((one) => one.source === source)));
    const links = pages.flatMap((page) => {
      const about = { href: `/${page}?source=${encodeURIComponent(source)}`, target: "_blank", rel: "noopener" };
      const name = page[0].toUpperCase() + page.slice(1);
      return [" ", make("a", { ...about, textContent: name, "aria-label": `${name} on ${source}, for its admin` })];
    });
    row.append(make("td", { className: "actions" }, halt, set, ...links));
    return row;
  }

  function fillRow(row, s) {
    columns.forEach(([, , show], index) => show(row.children[index], s));
    const button = row.lastChild.firstChild;
    const what = doing(s);
    write(button, what);
    if (button.getAttribute("aria-label") !== `${what} ${s.source}`) button.setAttribute("aria-label", `${what} ${s.source}`);
  }

  /** Show the sources; `changed`: the operator has just changed the selection or the order. */
  function showSources(changed = false) {
    const wanted = $("filter").value.trim().toLowerCase();
    const test = { work: working, trouble: (s) => s.trouble > 0 }[$("which").value] ?? (() => true);
    const chosen = sources.filter((s) => test(s) && (!wanted || `${s.source} ${s.reason}`.toLowerCase().includes(wanted)));
    if (sortBy) {
      const [column, descending] = sortBy;
      const value = columns[column][1];
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
      columns.forEach(([name], index) => {
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
    columns.forEach((_, index) => {
      if (sortBy && sortBy[0] === index) head.children[index].setAttribute("aria-sort", sortBy[1] ? "descending" : "ascending");
      else head.children[index].removeAttribute("aria-sort");
    });
  }

  $("filter").addEventListener("input", () => { limit = STEP; showSources(true); });
  $("which").addEventListener("change", () => { limit = STEP; showSources(true); });
  $("more").addEventListener("click", () => { limit += STEP; showSources(true); });
  $("filter").addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    $("filter").value = "";
    showSources(true);
    $("filter").blur();
  });

  // Halted sources, and what has happened recently

  let halts = [];

  function showOpen() {
    const open = sources.filter((s) => s.state !== "closed").sort(attention);
    fillList($("open"), open.map((s) => {
      const since = halts.find((one) => one.source === s.source && one.event === "halted");
      return make("li", {}, make("span", { className: `tag ${s.state}`, textContent: stateName(s) }), " ",
        make("strong", { textContent: s.source }),
        make("span", { className: "what", textContent: [since && `since ${clock(since.time)}: ${why(since)}`, cause(s.reason)].filter(Boolean).join("; ") }));
    }), "All circuits are closed, nothing is halted.");
  }

  function showErrors(general) {
    showKinds("errors", KINDS, general, "None so far.");
    showKinds("forbidden", FORBIDDEN, general, "Nothing so far.");
  }

  function showKinds(id, names, general, none) {
    const all = Object.entries(general.errors).filter(([kind]) => kind in names).sort((a, b) => b[1] - a[1]);
    const most = Math.max(1, ...all.map(([, number]) => number));
    fillList($(id), all.map(([kind, number]) => {
      const part = make("i");
      part.style.width = `${(100 * number) / most}%`;
      const now = general.errors_now[kind];
      return make("li", {}, make("span", { textContent: names[kind] }), make("span", { className: "meter" }, part),
        make("span", { textContent: count(number) + (now ? ` (${count(now)} now)` : "") }));
    }), none);
  }

  function showRecent(recent) {
    halts = recent.halts;
    fillList($("halts"), halts.map((one) =>
      entry(one.time, one.source, happened(one), null, [why(one), one.by && `by ${one.by}`].filter(Boolean).join("; "))), "Nothing yet.");
    fillList($("dead"), recent.dead.map((one) => entry(one.time, one.source, one.url ?? one.seed, one.url, one.reason)), "None.");
    fillList($("rot"), recent.link_rot.map((one) => entry(one.time, one.source, one.url, one.url, `status ${one.status}`)), "None.");
    const known = new Map([...$("pictures").children].map((item) => [item.dataset.name, item]));
    $("pictures").replaceChildren(...recent.thumbnails.filter((one) => typeof one.thumbnail === "string").map((one) => known.get(one.thumbnail) ?? picture(one)));
    if (!recent.thumbnails.length) $("pictures").append(make("li", { className: "muted", textContent: "None yet." }));
    showOpen();
  }

  // What the page does with it

  function remember(time, done, failed) {
    history.set(time, [done, failed]);
    if (history.size > 2000) history.delete(history.keys().next().value);
  }

  showColumns();
  return {
    showState,
    showRecent,
    remember,
    /** Show a snapshot, unless it is the one that is shown. */
    show(latest) {
      if (snapshot && latest.time === snapshot.time) return;
      snapshot = latest;
      arrived = performance.now();
      sources = Object.entries(snapshot.specific).map(([source, rest]) => ({ source, ...rest }));
      remember(snapshot.time, snapshot.general.success_rps, snapshot.general.error_rps);
      showTiles(snapshot.general);
      $("pictures").parentElement.hidden = spider !== "images";
      showChart();
      showSources();
      showOpen();
      showErrors(snapshot.general);
    },
    /** Show how a source stands after a change. */
    showChange(changed) {
      const row = sources.find((s) => s.source === changed.source);
      if (row) for (const key of ["state", "reason", "rate_limit", "effective_rate", "trouble"]) row[key] = changed.row[key];
      showSources();
      showOpen();
    },
    rate: () => snapshot?.general.success_rps,
    focusFilter: () => $("filter").focus(),
  };
}
