// The dashboard: what it is sent, as server-sent events, and what it sends; its panels show the crawls.

import { makePanel } from "./panel.js";
import { make, rate, write } from "./text.js";

const $ = (id) => document.getElementById(id);

const panels = new Map(); // spider -> its panel
let token = "";
let greeted = () => {}; // called when the token has come
let staleMs = Infinity; // after which a snapshot is not the present; the monitor says
let connected = false;

function showState() {
  for (const panel of panels.values()) panel.showState(connected, staleMs);
  if (!panels.size) write($("state"), connected ? "connected" : "not connected to the monitor, retrying");
}

function showTitle() {
  const rates = [...panels.values()].map((panel) => panel.rate()).filter((one) => one !== undefined);
  document.title = rates.length && !document.hidden ? `${rates.map((one) => `${rate(one)}/s`).join(" + ")} · crawlproject` : "crawlproject";
}

/** Make the panels of the spiders whose crawls are shown; where others are shown by now, begin anew. */
function openPanels(spiders, pages) {
  if (panels.size) {
    if (spiders.join() !== [...panels.keys()].join()) location.reload();
    return;
  }
  $("heads").replaceChildren();
  $("panels").classList.toggle("side-by-side", spiders.length > 1);
  spiders.forEach((spider, index) => {
    const tag = index ? `-${index + 1}` : "";
    panels.set(spider, makePanel(spider, tag, spiders.length === 1, { order: send, askRate, pages }));
  });
}

// Which spiders there are to choose from

const addressOf = (spiders) => `/?${new URLSearchParams(spiders.map((spider) => ["spider", spider]))}`;

function showChoice(all) {
  const names = all.map((one) => one.spider);
  const choices = names.length > 1 ? [...names.map((name) => [name]), names] : [];
  const nav = $("spiders");
  nav.hidden = !choices.length;
  write($("spider"), choices.length ? "" : names.join());
  if (nav.children.length !== choices.length || [...nav.children].some((a, index) => a.dataset.of !== choices[index].join())) {
    const shown = [...panels.keys()].join();
    nav.replaceChildren(...choices.map((some) => {
      const a = make("a", { href: addressOf(some), "data-of": some.join() }, some.length > 1 ? "side by side" : some[0]);
      if (some.join() === shown) a.setAttribute("aria-current", "page");
      if (some.length === 1) a.append(make("small"));
      return a;
    }));
  }
  all.forEach((one, index) => {
    const small = nav.children[index]?.querySelector("small");
    if (!small) return;
    write(small, one.success_rps === null ? "" : ` ${rate(one.success_rps)}/s${one.trouble ? ", in trouble" : ""}`);
    small.className = one.trouble ? "bad" : "";
  });
}

// Changes by the operator

let saying = 0;
let asked = null; // whose rate the dialogue is about

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
    panels.get(body.spider)?.showChange(data);
    say({ "/halt": `${data.source} is halted`, "/resume": `${data.source} has been resumed`, "/include": data.row.state === "excluded" ? `${data.source} is still excluded, by CRAWL_EXCLUDE or its domain` : `${data.source} is included again`, "/rate": `${data.source}: the rate applies within two seconds` }[path]);
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

/** Ask for the rate of a source; `row` is how it stands. */
function askRate(change, row) {
  const dialog = $("rate");
  asked = change;
  write($("rate-of"), `Rate of ${change.source}`);
  write($("rate-now"), row ? `Now ${rate(row.rate_limit)}: ${row.reason}` : "");
  write($("rate-wrong"), "");
  $("rps").value = row ? Number(row.rate_limit.toPrecision(3)) : "";
  dialog.showModal();
  $("rps").select();
}

async function setRate(value) {
  const wrong = await send("/rate", { ...asked, rate: value });
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

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLElement && event.target.matches("input, select, textarea");
  if (event.key !== "/" || typing || $("rate").open || !panels.size) return;
  event.preventDefault();
  panels.values().next().value.focusFilter();
});

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

let stream = null;

function connect() {
  stream?.close();
  if (document.hidden) return; // a browser has six connections to a site, for all its pages and their requests
  const events = (stream = new EventSource(`/events${location.search}`));
  const on = (name, show) => events.addEventListener(name, (event) => show(JSON.parse(event.data)));
  events.addEventListener("open", () => { connected = true; showState(); });
  events.addEventListener("error", async () => {
    connected = false;
    showState();
    if (events.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
    const answer = await fetch("/", { redirect: "manual" }).catch(() => null);
    if (answer && answer.type === "opaqueredirect") location.assign("/login");
    else setTimeout(connect, 2000);
  });
  on("hello", (hello) => {
    token = hello.token;
    staleMs = hello.stale_s * 1000;
    greeted();
    $("logout").hidden = !hello.password;
    openPanels(hello.spiders, hello.pages);
    for (const [spider, points] of Object.entries(hello.histories)) {
      for (const point of points) panels.get(spider)?.remember(...point);
    }
    showState();
  });
  on("spiders", showChoice);
  on("snapshot", (snapshot) => {
    panels.get(snapshot.spider)?.show(snapshot);
    showState();
    showTitle();
  });
  on("recent", (recent) => panels.get(recent.spider)?.showRecent(recent));
}

document.addEventListener("visibilitychange", () => {
  connected = false;
  showTitle();
  showState();
  connect();
});

connect();
setInterval(showState, 1000);
