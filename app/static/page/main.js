// The page: one request, its plan, and what can be asked about it.

import { getKey, postPlan, setKey } from "./api.js";
import { movedIn, startCompare } from "./compare.js";
import { byId, h, say } from "./dom.js";
import { showFaults } from "./faults.js";
import "./form.js";
import { startFrontier } from "./frontier.js";
import { openJson } from "./json.js";
import { Background, Lane, QUIET } from "./lane.js";
import { fragmentOf, requestIn } from "./link.js";
import { startSensitivity } from "./sensitivity.js";
import { openSql } from "./sql.js";
import { emit, load, on, shown, state, view } from "./state.js";
import { showFigures, showWhy } from "./summary.js";
import { startTakeaway } from "./takeaway.js";
import { TreePane, describeProbes } from "./tree.js";
import * as words from "./words.js";

const FIRST = "auction"; // the example that opens: the README's
const REMEMBER = 600; // ms after an answer, until the address carries the request
const SHORT = 0.3; // seconds of a solve before its progress is shown
const TICK = 100; // ms between looks at the clock while a solve runs

const background = new Background(() => lane.quiet && state.plan !== null);
const probes = byId("probes");
const pointed = (plan, node) => describeProbes(probes, plan, node);
const pane = new TreePane(byId("tree-pane"), "the plan", pointed);
const heldPane = new TreePane(byId("held-pane"), "the held plan", pointed);

// Planning

let began = 0;
let incumbent = null;
let ticking = 0;

const lane = new Lane((body, signal, note) => postPlan(body, signal, note), {
  waiting() {
    pend(true);
    background.stop(); // an answer is near that all of it would be asked again for
  },
  started() {
    began = performance.now();
    incumbent = null;
    clearInterval(ticking);
    ticking = setInterval(progress, TICK);
  },
  note(found) {
    incumbent = found;
    progress();
  },
  answer(plan, body, took) {
    state.plan = plan;
    state.asked = JSON.parse(body);
    state.viewed = null;
    settle(`planned in ${words.seconds(took / 1000)}`);
    showFaults([]);
    emit("planned");
    remember();
  },
  idle() {
    setTimeout(() => background.go(), QUIET);
  },
  refused(failure) {
    settle(failure.retryAfter ? `${failure.message} Trying again…` : failure.errors.length ? "not planned: see the request" : failure.message);
    if (failure.status === 401) askKey();
    showFaults(failure.errors.length || failure.retryAfter ? failure.errors : [{ pointer: "", detail: failure.message }]);
    if (!failure.retryAfter) resume();
  },
  cancelled() {
    settle("cancelled; this is the last answer");
    resume();
  },
});

/** An edit came to nothing: what was being found out about the last plan is worth knowing after all. */
function resume() {
  if (state.plan) emit("resumed");
  setTimeout(() => background.go(), QUIET);
}

function pend(pending) {
  state.pending = pending;
  document.body.toggleAttribute("data-pending", pending);
  byId("cancel").disabled = !pending;
}

function settle(text) {
  clearInterval(ticking);
  pend(false);
  say(byId("status"), text);
  byId("status").title = text;
  byId("progress").className = "progress";
  byId("incumbent").hidden = true;
}

/** What is known while a solve runs; nothing is said of one that is over before it could be read. */
function progress() {
  const elapsed = (performance.now() - began) / 1000;
  if (elapsed < SHORT || !state.pending) return;
  byId("progress").className = "progress running";
  const gap = incumbent?.gap ?? null;
  say(byId("status"), `solving ${elapsed.toFixed(1)} s${gap === null ? "" : ` · gap ${words.percent(gap)}`}`);
  byId("incumbent").hidden = incumbent === null;
  if (incumbent === null) return;
  const known = [
    `so far ${words.cpu(incumbent.cpu)} CPU, ${words.bytes(incumbent.memory_bytes)}${incumbent.qualified ? "" : ", which does not fit"}`,
  ];
  if (incumbent.bound !== null) known.push(`bound ${words.amount(incumbent.bound)}`);
  known.push(incumbent.step);
  say(byId("incumbent"), known.filter(Boolean).join(" · "));
}

function askKey() {
  byId("key-field").hidden = false;
  byId("key").value = getKey();
}

byId("key").addEventListener("change", (event) => {
  setKey(event.target.value);
  emit("edited");
});

on("edited", () => lane.edit(() => JSON.stringify(state.request)));
byId("cancel").addEventListener("click", () => lane.cancel());
document.addEventListener("keydown", (event) => event.key === "Escape" && state.pending && lane.cancel());

// Showing

function show() {
  const plan = shown();
  if (!plan) return;
  const held = state.held?.plan ?? null;
  byId("panes").classList.toggle("two", held !== null);
  byId("held-pane").hidden = held === null;
  pane.show(plan, held ? (state.viewed?.label ?? "now") : "", held ? movedIn(plan, held) : new Set(), "+");
  if (held) heldPane.show(held, `held: ${state.held.label}`, movedIn(held, plan), "−");
  describeProbes(probes, null, null);
  showFigures(plan);
  showWhy(byId("why"), plan);
  byId("viewing").replaceChildren(
    ...(state.viewed
      ? [`${state.viewed.label} `, h("button", { type: "button", class: "link", id: "back", onclick: () => view(null) }, "back to the chosen plan")]
      : []),
  );
  document.body.dataset.fingerprint = plan.fingerprint;
}

on("loaded", () => [pane, heldPane].forEach((each) => each.unzoom()));
on("planned", show);
on("viewed", show);
on("held", show);

// Requests: examples, links, pasted text

let remembering = 0;
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(async () => history.replaceState(null, "", await fragmentOf(state.request)), REMEMBER);
}

async function fromAddress() {
  try {
    const request = await requestIn(location.hash);
    notice("");
    if (request) load(request);
    return request !== null;
  } catch (failure) {
    notice(failure.message);
    return false;
  }
}

/** Something about the page itself; it stays until another request is loaded. */
function notice(text) {
  byId("notice").hidden = text === "";
  say(byId("notice"), text);
}

const examples = await (await fetch("static/page/examples.json")).json();
const picker = byId("example");
picker.append(h("option", { value: "" }, "–"), ...Object.keys(examples).map((name) => h("option", { value: name }, name.replaceAll("_", " "))));
picker.addEventListener("change", () => {
  notice("");
  if (picker.value) load(structuredClone(examples[picker.value]), picker.value);
});
on("loaded", () => {
  picker.value = state.example;
});
byId("paste").addEventListener("click", openJson);
byId("paste-sql").addEventListener("click", openSql);
window.addEventListener("hashchange", fromAddress);

// A recorded run is looked at now and then: its modules are fetched when somebody does.
const runs = () => import("./run.js");
byId("open-run").addEventListener("click", () => byId("run-files").click());
byId("run-files").addEventListener("change", async (event) => {
  const files = [...event.target.files];
  event.target.value = "";
  if (files.length) (await runs()).openRun(files);
});
byId("close-run").addEventListener("click", async () => (await runs()).closeRun());

startCompare(background);
startFrontier(background);
startSensitivity(background);
startTakeaway(byId("take"), () => pane.file);
describeProbes(probes, null, null);
if (!(await fromAddress())) load(structuredClone(examples[FIRST]), FIRST);
