// Two plans side by side: what moved, which figures differ most, and what `watersmeet check` would say.

import { post } from "./api.js";
import { byId, h, say } from "./dom.js";
import { labelOf } from "./layout.js";
import { hold, load, on, shown, state } from "./state.js";
import * as words from "./words.js";

const MOST_ROWS = 40;

/** What each stream and each join is, whatever its id and figures: where it stands, and in which order it is probed. */
function placesOf(plan) {
  const names = new Map(plan.operators.map((operator) => [operator.id, labelOf(operator)]));
  const name = (id) => names.get(id) ?? id;
  const places = new Map();
  for (const operator of plan.operators) {
    const orders = operator.pipelines.map((pipeline) =>
      [name(pipeline.input), ...pipeline.probes.map((probe) => `${name(probe.target)} ${probe.algorithm}`)].join(" > "),
    );
    places.set(operator.id, JSON.stringify([name(operator.id), operator.inputs.map(name).sort(), orders.sort()]));
    for (const input of operator.inputs) if (!names.has(input)) places.set(input, JSON.stringify([input, name(operator.id)]));
  }
  return places;
}

/** Streams and joins of one plan, by id, that the other has not. */
export function movedIn(plan, other) {
  const known = new Set(placesOf(other).values());
  return new Set([...placesOf(plan)].filter(([, place]) => !known.has(place)).map(([id]) => id));
}

export function startCompare(background) {
  const refresh = () => {
    byId("release").hidden = state.held === null;
    if (state.held === null) return rest();
    if (state.plan === null) return undefined;
    const [before, after, asked, name] = [state.held.plan, shown(), state.asked, state.held.label];
    return background.add("compare", async (signal) => {
      say(byId("compare-note"), "comparing…");
      const [diff, check] = [
        await attempt("v1/diffs", { before, after }, signal),
        await attempt("v1/checks", { cases: [{ name, request: asked, plan: before }] }, signal),
      ];
      if (!signal.aborted && state.held?.plan === before) report(diff, check);
    });
  };
  for (const event of ["held", "planned", "resumed", "viewed"]) on(event, refresh);
  byId("hold").addEventListener("click", () => hold(shown(), state.viewed?.label ?? (state.example || "held plan")));
  byId("release").addEventListener("click", () => hold(null));
  byId("load-approved").addEventListener("click", () => byId("approved").click());
  byId("approved").addEventListener("change", (event) => readApproved(event.target));
  rest();
}

async function attempt(path, body, signal) {
  try {
    return { answer: await post(path, body, signal) };
  } catch (failure) {
    return { failure };
  }
}

async function readApproved(input) {
  const [file] = input.files;
  input.value = "";
  if (!file) return;
  try {
    const plan = JSON.parse(await file.text());
    if (plan?.format !== "watersmeet.plan/1" || !Array.isArray(plan.operators)) throw new Error("it is not a watersmeet.plan/1");
    await post("v1/diffs", { before: plan, after: plan }); // the service knows whether it is a whole plan
    hold(plan, file.name);
  } catch (failure) {
    const [first] = failure.errors ?? [];
    say(
      byId("compare-note"),
      `${file.name} could not be loaded: ${first ? `${first.pointer.replace(/^\/before/, "")} ${first.detail}` : failure.message}`,
    );
  }
}

function rest() {
  byId("compare").classList.remove("active");
  say(byId("compare-note"), "");
  byId("compare").replaceChildren(
    h("p", { class: "note" }, "Hold the plan or load an approved one, then change something: both are drawn, and what differs is listed here."),
  );
}

function report(diff, check) {
  const result = check.answer?.cases[0];
  const verdict = result
    ? h("p", { class: `outcome ${result.verdict}` }, h("strong", { id: "check-verdict" }, result.verdict), " ", reasonsOf(result))
    : h("p", { class: "outcome failed" }, check.failure.message);
  const about = diff.answer;
  const notes = (result?.notes ?? []).filter((note) => !about?.request.includes(note));
  say(byId("compare-note"), `with ${state.held.label}`);
  byId("compare").classList.add("active");
  byId("compare").replaceChildren(
    h(
      "div",
      { class: "caption" },
      h("code", {}, "watersmeet check"),
      " would say",
      h("span", { class: "spring" }),
      h("button", { type: "button", class: "link", id: "held-request", onclick: loadHeldRequest }, "back to the held plan's request"),
    ),
    verdict,
    ...(notes.length
      ? [
          h(
            "ul",
            { class: "notes" },
            notes.map((note) => h("li", {}, note)),
          ),
        ]
      : []),
    ...(about ? [changes(about), figures(about)] : [h("p", { class: "fault" }, diff.failure.message)]),
  );
}

/** A plan stands on its own: it holds the request that it answers, but for the options. */
function loadHeldRequest() {
  const { query, resources, costs, objective } = structuredClone(state.held.plan);
  load({ query, resources, costs, objective, ...(state.request.options ? { options: state.request.options } : {}) });
}

function reasonsOf(result) {
  if (result.reasons.length) return result.reasons.join("; ");
  return result.verdict === "identical" ? "the same plan" : "";
}

function changes(diff) {
  const lines = [...diff.request, ...diff.structure];
  if (!lines.length) return h("p", { class: "note" }, "Same request, same structure.");
  return h(
    "ul",
    { class: "moves" },
    lines.map((line) => h("li", {}, line)),
  );
}

const shownFigure = (figure, value) => (value === null ? "–" : /bytes$/.test(figure) ? words.bytes(value) : words.amount(value));

/** Whether a change is for the worse or the better, where that can be said: rates are neither. */
function leaning({ figure, ratio }) {
  if (ratio === null || /rate$/.test(figure)) return "";
  return ratio > 1 === (figure !== "headroom") ? "worse" : "better";
}

function figures(diff) {
  if (!diff.cost.length) return h("p", { class: "note" }, "No figure differs.");
  const rows = diff.cost.slice(0, MOST_ROWS).map((change) => {
    return h(
      "tr",
      {},
      h("th", { scope: "row" }, change.figure),
      h("td", {}, shownFigure(change.figure, change.before)),
      h("td", {}, shownFigure(change.figure, change.after)),
      h("td", { class: leaning(change) }, change.ratio === null ? (change.before === null ? "new" : "gone") : `×${words.amount(change.ratio)}`),
    );
  });
  const head = ["figure", "held", "now", "change"].map((heading) => h("th", { scope: "col" }, heading));
  const more = diff.cost.length > MOST_ROWS ? h("p", { class: "note" }, `and ${diff.cost.length - MOST_ROWS} more`) : null;
  return h("div", {}, h("table", { class: "figures-table" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)), more);
}
