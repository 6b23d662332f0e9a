// The request as tables: streams, tables, predicates, caps, how to search, cost constants.

import { capRows, placeSliders } from "./caps.js";
import { byId, h } from "./dom.js";
import { showFaultsAgain } from "./faults.js";
import { changed, choice, field, list, removal, text } from "./fields.js";
import { get, set } from "./pointer.js";
import { emit, on, state } from "./state.js";
import * as words from "./words.js";

const MOST_ROWS = 300; // rows of a table; a clique of 200 streams has 19,900 predicates, and those are edited as text
const SCROLLS = 6; // rows from which on a table may scroll, so that the keyboard must reach it

// What may be chosen, by the models of the service: for each name a sentence, or nothing.
const CHOICES = JSON.parse(document.querySelector('meta[name="choices"]').content);

// Streams

function streamRow(stream, i) {
  const at = `/query/streams/${i}`;
  const name = text(stream?.name) || `stream ${i + 1}`;
  const rows = stream?.window?.rows !== undefined;
  const unit = h(
    "select",
    {
      "data-unit": at,
      "aria-label": `${name} window unit`,
      onchange: (event) => {
        const length = get(state.request, `${at}/window/seconds`) ?? get(state.request, `${at}/window/rows`);
        changed(`${at}/window`, { [event.target.value]: length });
        render();
        document.querySelector(`[data-unit="${at}"]`).focus();
      },
    },
    h("option", { value: "seconds", selected: !rows }, "s"),
    h("option", { value: "rows", selected: rows }, "rows"),
  );
  return h(
    "tr",
    { "data-row": at },
    h("td", { "data-label": "name" }, nameField(at, name)),
    h("td", { class: "short", "data-label": "rate /s" }, field(`${at}/rate`, `${name} rate, tuples per second`)),
    h(
      "td",
      { class: "pair unit-pair", "data-label": "window" },
      h("div", {}, field(`${at}/window/${rows ? "rows" : "seconds"}`, `${name} window`, { size: 6 }), unit),
    ),
    h("td", { class: "shorter", "data-label": "bytes" }, field(`${at}/tuple_bytes`, `${name} bytes per tuple`, { size: 5 })),
    h(
      "td",
      {},
      removal(`Remove ${name}`, () => removeInput("streams", i)),
    ),
  );
}

/** A stream's name; the predicates and observed sets that name it follow. */
function nameField(at, name) {
  let followers = [];
  const input = field(`${at}/name`, `${name} name`, {
    words: true,
    size: 11,
    oninput: (event) => {
      const now = event.target.value;
      for (const follower of followers) {
        set(state.request, follower.pointer, now + follower.rest);
        const other = document.querySelector(`[data-pointer="${follower.pointer}"]`);
        if (other) other.value = now + follower.rest;
      }
      changed(`${at}/name`, now);
    },
  });
  input.addEventListener("focus", () => {
    const was = input.value;
    followers = inputs().filter((input) => input?.name === was).length === 1 ? references(was) : [];
  });
  return input;
}

function references(name) {
  const found = [];
  list("predicates").forEach((predicate, i) => {
    for (const side of ["left", "right"]) {
      const value = predicate?.[side];
      if (typeof value === "string" && value.startsWith(`${name}.`))
        found.push({ pointer: `/query/predicates/${i}/${side}`, rest: value.slice(name.length) });
    }
  });
  list("observed").forEach((observed, i) => {
    (Array.isArray(observed?.streams) ? observed.streams : []).forEach((stream, j) => {
      if (stream === name) found.push({ pointer: `/query/observed/${i}/streams/${j}`, rest: "" });
    });
  });
  return found;
}

function removeInput(kind, i) {
  const [gone] = list(kind).splice(i, 1);
  const query = state.request.query;
  const mentions = (reference) => typeof reference === "string" && reference.split(".")[0] === gone?.name;
  if (gone?.name !== undefined && !inputs().some((input) => input?.name === gone.name)) {
    if (Array.isArray(query.predicates)) query.predicates = query.predicates.filter((p) => !mentions(p?.left) && !mentions(p?.right));
    if (Array.isArray(query.observed)) query.observed = query.observed.filter((o) => !(Array.isArray(o?.streams) && o.streams.includes(gone.name)));
  }
  restructured(`#form [data-row^="/query/${kind}/"] input, #form [data-row^="/query/streams/"] input`);
}

/** Everything that predicates may name. */
const inputs = () => [...list("streams"), ...list("tables")];

// Tables: what they offer is edited as text

function tableRow(entry, i) {
  const at = `/query/tables/${i}`;
  const name = text(entry?.name) || `table ${i + 1}`;
  const offers = Array.isArray(entry?.access) ? entry.access : [{ kind: "scan" }];
  const said = offers.map((offer) => (offer?.kind === "index" ? `asked by ${[offer.bound].flat().join(", ")}` : "kept")).join(", ");
  return h(
    "tr",
    { "data-row": at },
    h("td", { "data-label": "name" }, nameField(at, name)),
    h("td", { class: "short", "data-label": "rows" }, field(`${at}/rows`, `${name} rows`)),
    h("td", { class: "shorter", "data-label": "bytes" }, field(`${at}/tuple_bytes`, `${name} bytes per row`, { size: 5 })),
    h("td", { "data-label": "access" }, h("span", { class: "note" }, said)),
    h(
      "td",
      {},
      removal(`Remove ${name}`, () => removeInput("tables", i)),
    ),
  );
}

function addTable() {
  if (!Array.isArray(state.request?.query?.tables)) set(state.request, "/query/tables", []);
  const names = new Set(inputs().map((input) => input?.name));
  let number = list("tables").length + 1;
  while (names.has(`t${number}`)) number += 1;
  list("tables").push({ name: `t${number}`, rows: 10000, tuple_bytes: 100 });
  restructured(`[data-pointer="/query/tables/${list("tables").length - 1}/name"]`);
}

function addStream() {
  if (!Array.isArray(state.request?.query?.streams)) set(state.request, "/query/streams", []);
  const names = new Set(inputs().map((input) => input?.name));
  let number = list("streams").length + 1;
  while (names.has(`s${number}`)) number += 1;
  list("streams").push({ name: `s${number}`, rate: 100, window: { seconds: 60 }, tuple_bytes: 100 });
  restructured(`[data-pointer="/query/streams/${list("streams").length - 1}/name"]`);
}

// Predicates

function predicateRow(predicate, i) {
  const at = `/query/predicates/${i}`;
  const name = `predicate ${i + 1}`;
  return h(
    "tr",
    { "data-row": at, class: "predicate" },
    h("td", {}, field(`${at}/left`, `${name} left side`, { words: true, size: 14 })),
    h("td", {}, choice(`${at}/op`, `${name} comparison`, CHOICES["/query/predicates/op"], "=")),
    h("td", {}, field(`${at}/right`, `${name} right side`, { words: true, size: 14 })),
    h("td", { class: "short", "data-label": "selectivity" }, field(`${at}/selectivity`, `${name} selectivity`, { placeholder: estimateOf(i) })),
    h(
      "td",
      {},
      removal(`Remove ${name}`, () => {
        list("predicates").splice(i, 1);
        restructured(`#form [data-row^="/query/predicates/"] input`);
      }),
    ),
  );
}

/** What the service took for a selectivity that was left out. */
function estimateOf(i) {
  const estimated = state.plan?.query.predicates[i]?.selectivity;
  return estimated ? `≈ ${words.amount(estimated)}` : undefined;
}

function addPredicate() {
  if (!Array.isArray(state.request?.query?.predicates)) set(state.request, "/query/predicates", []);
  const names = inputs().map((input) => text(input?.name));
  list("predicates").push({ left: `${names.at(-2) ?? ""}.id`, right: `${names.at(-1) ?? ""}.id`, selectivity: 0.001 });
  restructured(`[data-pointer="/query/predicates/${list("predicates").length - 1}/left"]`);
}

function restructured(focus) {
  render();
  document.querySelector(focus)?.focus();
  emit("edited");
}

// The whole

function table(title, headings, rows, total, add, addLabel) {
  const more = total > rows.length ? h("p", { class: "note" }, `The first ${rows.length} of ${total}; all are in the JSON below.`) : null;
  return h(
    "section",
    { class: "table" },
    h("div", { class: "bar" }, h("h3", {}, title), h("span", { class: "spring" }), h("button", { type: "button", onclick: add }, addLabel)),
    total === 0 && title === "Tables" ? null : h(
      "div",
      { class: "rows", ...(total > SCROLLS ? { tabindex: 0, role: "region", "aria-label": title } : {}) },
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            headings.map((heading) => h("th", { scope: "col" }, heading)),
          ),
        ),
        h("tbody", {}, rows),
      ),
    ),
    more,
  );
}

function render() {
  const costsOpen = byId("costs-details")?.open;
  const streams = list("streams").slice(0, MOST_ROWS).map(streamRow);
  const tables = list("tables").slice(0, MOST_ROWS).map(tableRow);
  const predicates = list("predicates").slice(0, MOST_ROWS).map(predicateRow);
  const remove = () => h("span", { class: "hidden" }, "Remove");
  byId("form").replaceChildren(
    table("Streams", ["name", "rate /s", "window", "bytes", remove()], streams, list("streams").length, addStream, "Add stream"),
    table("Tables", ["name", "rows", "bytes", "access", remove()], tables, list("tables").length, addTable, "Add table"),
    table("Predicates", ["left", "", "right", "selectivity", remove()], predicates, list("predicates").length, addPredicate, "Add predicate"),
    h("section", { class: "caps" }, h("h3", {}, "Caps"), capRows()),
    h("section", { class: "options" }, h("h3", {}, "Search"), h("div", { class: "grid" }, options()), h("div", { "data-row": "/options" })),
    h(
      "details",
      { id: "costs-details", open: costsOpen },
      h("summary", {}, "Cost constants, seconds per tuple"),
      h("div", { class: "grid" }, Object.keys(CHOICES["/costs"]).map(cost)),
      h("div", { "data-row": "/costs" }),
    ),
  );
  placeSliders();
  showFaultsAgain();
}

const options = () => [
  h("label", {}, "objective", choice("/objective", "objective", CHOICES["/objective"], "min_cpu")),
  h("label", {}, "method", choice("/options/method", "method", CHOICES["/options/method"], "auto")),
  h("label", {}, "caches", choice("/options/caches", "caches", CHOICES["/options/caches"], "auto")),
  h("label", {}, "time limit, s", field("/options/time_limit", "time limit, seconds", { placeholder: "1" })),
];

const cost = (name) => h("label", {}, name, field(`/costs/${name}`, `cost of ${name}`, { placeholder: text(state.plan?.costs[name]) || "default" }));

on("loaded", render);

on("planned", () => {
  list("predicates")
    .slice(0, MOST_ROWS)
    .forEach((predicate, i) => {
      if (predicate?.selectivity !== undefined) return;
      const input = document.querySelector(`[data-pointer="/query/predicates/${i}/selectivity"]`);
      if (input) input.placeholder = estimateOf(i);
    });
});
