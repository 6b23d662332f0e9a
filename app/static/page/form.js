// The request as tables and sliders. What is typed goes into the request as it is, numbers as numbers and anything
// else as text: the service alone says what is wrong with it, and its pointers say where.

import { byId, h, say } from "./dom.js";
import { get, set } from "./pointer.js";
import { emit, load, on, state } from "./state.js";
import * as words from "./words.js";

const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const MOST_ROWS = 300; // rows of a table; a clique of 200 streams has 19,900 predicates, and those are edited as text
const SLIDER_STEPS = 1000;

const OPS = ["=", "<", "<=", ">", ">=", "!="];
const CHOICES = {
  "/objective": ["min_cpu", "min_memory", "max_headroom"],
  "/options/method": ["auto", "exact", "cp_sat", "two_layer", "state_selection", "state_removal", "mjoin", "bjtree", "anytime"],
  "/options/caches": ["auto", "off", "prefix", "global"],
};
const COSTS = ["join", "insert", "delete", "append", "probe", "scan"];
const CAPS = {
  cpu: { pointer: "/resources/cpu", label: "CPU", unit: "cores", shown: words.cpu, cost: "cpu", fallback: 1 },
  memory: { pointer: "/resources/memory_bytes", label: "Memory", unit: "bytes", shown: words.bytes, cost: "memory_bytes", fallback: 268435456 },
};

let ranges = {}; // ends of the sliders, as logarithms; they stay put while somebody edits
let rangesFollow = true; // until the first plan of a request that was loaded says what it needs
let errors = [];

const text = (value) => (value === undefined || value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** What somebody typed: nothing, a number, or text that the service will refuse with a reason. */
function typed(value) {
  const trimmed = value.trim();
  if (trimmed === "") return undefined;
  return NUMBER.test(trimmed) && Number.isFinite(Number(trimmed)) ? Number(trimmed) : value;
}

const list = (name) => (Array.isArray(state.request?.query?.[name]) ? state.request.query[name] : []);

function changed(pointer, value) {
  set(state.request, pointer, value);
  writeJson();
  emit("edited");
}

/** A field of the request. */
function field(pointer, label, { words: asText = false, size = 8, list: options, oninput } = {}) {
  const read = (event) => (asText ? event.target.value : typed(event.target.value));
  return h("input", {
    type: "text",
    inputmode: asText ? undefined : "decimal",
    size,
    value: text(get(state.request, pointer)),
    "data-pointer": pointer,
    "aria-label": label,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    list: options,
    oninput: oninput ?? ((event) => changed(pointer, read(event))),
  });
}

function choice(pointer, label, values, fallback) {
  const present = text(get(state.request, pointer)) || fallback;
  const all = values.includes(present) ? values : [present, ...values];
  const options = all.map((value) => h("option", { value, selected: value === present }, value));
  return h("select", { "data-pointer": pointer, "aria-label": label, onchange: (event) => changed(pointer, event.target.value) }, options);
}

function removal(label, remove) {
  return h("button", { type: "button", class: "remove", "aria-label": label, title: label, onclick: remove }, "×");
}

// Streams

function streamRow(stream, i) {
  const at = `/query/streams/${i}`;
  const name = text(stream?.name) || `stream ${i + 1}`;
  const rows = stream?.window?.rows !== undefined;
  const unit = h(
    "select",
    {
      "aria-label": `${name} window unit`,
      onchange: (event) => {
        const length = get(state.request, `${at}/window/seconds`) ?? get(state.request, `${at}/window/rows`);
        changed(`${at}/window`, { [event.target.value]: length });
        render();
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
      removal(`Remove ${name}`, () => removeStream(i)),
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
    followers = list("streams").filter((stream) => stream?.name === was).length === 1 ? references(was) : [];
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

function removeStream(i) {
  const [gone] = list("streams").splice(i, 1);
  const query = state.request.query;
  const mentions = (reference) => typeof reference === "string" && reference.split(".")[0] === gone?.name;
  if (gone?.name !== undefined && !list("streams").some((stream) => stream?.name === gone.name)) {
    if (Array.isArray(query.predicates)) query.predicates = query.predicates.filter((p) => !mentions(p?.left) && !mentions(p?.right));
    if (Array.isArray(query.observed)) query.observed = query.observed.filter((o) => !(Array.isArray(o?.streams) && o.streams.includes(gone.name)));
  }
  restructured(`#form [data-row^="/query/streams/"] input`);
}

function addStream() {
  if (!Array.isArray(state.request?.query?.streams)) set(state.request, "/query/streams", []);
  const names = new Set(list("streams").map((stream) => stream?.name));
  let number = list("streams").length + 1;
  while (names.has(`s${number}`)) number += 1;
  list("streams").push({ name: `s${number}`, rate: 100, window: { seconds: 60 }, tuple_bytes: 100 });
  restructured(`[data-pointer="/query/streams/${list("streams").length - 1}/name"]`);
}

// Predicates

function predicateRow(predicate, i) {
  const at = `/query/predicates/${i}`;
  const name = `predicate ${i + 1}`;
  const selectivity = field(`${at}/selectivity`, `${name} selectivity`);
  const estimated = state.plan?.query.predicates[i]?.selectivity;
  if (estimated) selectivity.placeholder = `≈ ${words.amount(estimated)}`;
  return h(
    "tr",
    { "data-row": at, class: "predicate" },
    h("td", {}, field(`${at}/left`, `${name} left side`, { words: true, size: 14 })),
    h("td", {}, choice(`${at}/op`, `${name} comparison`, OPS, "=")),
    h("td", {}, field(`${at}/right`, `${name} right side`, { words: true, size: 14 })),
    h("td", { class: "short", "data-label": "selectivity" }, selectivity),
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

function addPredicate() {
  if (!Array.isArray(state.request?.query?.predicates)) set(state.request, "/query/predicates", []);
  const names = list("streams").map((stream) => text(stream?.name));
  list("predicates").push({ left: `${names.at(-2) ?? ""}.id`, right: `${names.at(-1) ?? ""}.id`, selectivity: 0.001 });
  restructured(`[data-pointer="/query/predicates/${list("predicates").length - 1}/left"]`);
}

function restructured(focus) {
  render();
  writeJson();
  document.querySelector(focus)?.focus();
  emit("edited");
}

// Caps

function capRow(kind) {
  const cap = CAPS[kind];
  const value = get(state.request, cap.pointer);
  const capped = value !== undefined && value !== null;
  const input = field(cap.pointer, `${cap.label} cap, ${cap.unit}`, {
    size: 10,
    oninput: (event) => {
      changed(cap.pointer, typed(event.target.value));
      placeSlider(kind);
    },
  });
  input.id = `${kind}-cap`;
  input.disabled = !capped;
  const slider = h("input", {
    type: "range",
    id: `${kind}-slider`,
    min: 0,
    max: SLIDER_STEPS,
    "aria-label": `${cap.label} cap`,
    disabled: !capped,
    oninput: (event) => {
      const [low, high] = ranges[kind];
      const chosen = Number((10 ** (low + ((high - low) * event.target.value) / SLIDER_STEPS)).toPrecision(3));
      input.value = String(chosen);
      tellCap(kind, chosen);
      changed(cap.pointer, chosen);
    },
  });
  const box = h("input", {
    type: "checkbox",
    id: `${kind}-capped`,
    checked: capped,
    onchange: (event) => {
      const usual = state.plan ? Number((state.plan.cost[cap.cost] * 2).toPrecision(2)) : cap.fallback;
      changed(cap.pointer, event.target.checked ? usual || cap.fallback : undefined);
      render();
      byId(`${kind}-capped`).focus();
    },
  });
  return h(
    "div",
    { class: "cap", "data-row": cap.pointer },
    h("label", { for: `${kind}-capped` }, box, ` ${cap.label}`),
    slider,
    input,
    h("span", { class: "unit", id: `${kind}-words` }, cap.unit),
  );
}

/** Sliders reach a tenth to ten times of what is capped and of what the plan needs. */
function placeRanges() {
  ranges = {};
  for (const [kind, cap] of Object.entries(CAPS)) {
    const values = [get(state.request, cap.pointer), state.plan?.cost[cap.cost]].filter((value) => typeof value === "number" && value > 0);
    const logs = (values.length ? values : [cap.fallback]).map(Math.log10);
    ranges[kind] = [Math.floor(Math.min(...logs)) - 1, Math.ceil(Math.max(...logs)) + 1];
    placeSlider(kind);
  }
}

function placeSlider(kind) {
  const slider = byId(`${kind}-slider`);
  const value = get(state.request, CAPS[kind].pointer);
  if (!slider || !ranges[kind] || typeof value !== "number" || value <= 0) return;
  const [low, high] = ranges[kind];
  slider.value = String(Math.round(((Math.log10(value) - low) / (high - low)) * SLIDER_STEPS));
  tellCap(kind, value);
}

function tellCap(kind, value) {
  byId(`${kind}-slider`).setAttribute("aria-valuetext", CAPS[kind].shown(value));
  if (kind === "memory") say(byId("memory-words"), words.bytes(value));
}

// The whole

function table(title, headings, rows, total, add, addLabel) {
  const more = total > rows.length ? h("p", { class: "note" }, `The first ${rows.length} of ${total}; all are in the JSON below.`) : null;
  return h(
    "section",
    { class: "table" },
    h("div", { class: "bar" }, h("h3", {}, title), h("span", { class: "spring" }), h("button", { type: "button", onclick: add }, addLabel)),
    h(
      "div",
      { class: "rows", tabindex: total > 6 ? 0 : undefined, role: total > 6 ? "region" : undefined, "aria-label": total > 6 ? title : undefined },
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
  const open = new Set([...document.querySelectorAll("#form details[open]")].map((details) => details.id));
  const streams = list("streams").slice(0, MOST_ROWS).map(streamRow);
  const predicates = list("predicates").slice(0, MOST_ROWS).map(predicateRow);
  const removeHeading = h("span", { class: "hidden" }, "Remove");
  const json = h("textarea", {
    id: "json",
    rows: 14,
    spellcheck: "false",
    autocomplete: "off",
    "aria-label": "Request as JSON",
    "aria-describedby": "json-fault",
    value: JSON.stringify(state.request, null, 2),
    oninput: (event) => readJson(event.target.value),
  });
  byId("form").replaceChildren(
    table("Streams", ["name", "rate /s", "window", "bytes", removeHeading], streams, list("streams").length, addStream, "Add stream"),
    table(
      "Predicates",
      ["left", "", "right", "selectivity", removeHeading.cloneNode(true)],
      predicates,
      list("predicates").length,
      addPredicate,
      "Add predicate",
    ),
    h("section", { class: "caps" }, h("h3", {}, "Caps"), capRow("cpu"), capRow("memory")),
    h(
      "section",
      { class: "options" },
      h("h3", {}, "Search"),
      h(
        "div",
        { class: "grid" },
        h("label", {}, "objective", choice("/objective", "objective", CHOICES["/objective"], "min_cpu")),
        h("label", {}, "method", choice("/options/method", "method", CHOICES["/options/method"], "auto")),
        h("label", {}, "caches", choice("/options/caches", "caches", CHOICES["/options/caches"], "auto")),
        h("label", {}, "time limit, s", withPlaceholder(field("/options/time_limit", "time limit, seconds"), "1")),
      ),
      h("div", { "data-row": "/options" }),
    ),
    h(
      "details",
      { id: "costs-details", open: open.has("costs-details") },
      h("summary", {}, "Cost constants, seconds per tuple"),
      h(
        "div",
        { class: "grid" },
        COSTS.map((name) =>
          h("label", {}, name, withPlaceholder(field(`/costs/${name}`, `cost of ${name}`), text(state.plan?.costs[name]) || "default")),
        ),
      ),
      h("div", { "data-row": "/costs" }),
    ),
    h(
      "details",
      { id: "json-details", open: open.has("json-details") },
      h("summary", {}, "Request as JSON"),
      json,
      h("p", { id: "json-fault", class: "fault" }),
    ),
  );
  if (Object.keys(ranges).length === 0) placeRanges();
  for (const kind of Object.keys(CAPS)) placeSlider(kind);
  showFaults(errors);
}

function withPlaceholder(input, placeholder) {
  input.placeholder = placeholder;
  return input;
}

function writeJson() {
  const json = byId("json");
  if (json && document.activeElement !== json) {
    json.value = JSON.stringify(state.request, null, 2);
    say(byId("json-fault"), "");
  }
}

/** Text that is no request stays as it was typed, and the last one that was stays in force. */
function readJson(value) {
  let request;
  try {
    request = JSON.parse(value);
  } catch (failure) {
    say(byId("json-fault"), `This is not JSON: ${failure.message}`);
    return;
  }
  if (request === null || typeof request !== "object" || Array.isArray(request)) {
    say(byId("json-fault"), "A request is a JSON object with a query.");
    return;
  }
  say(byId("json-fault"), "");
  const json = byId("json");
  const [start, end] = [json.selectionStart, json.selectionEnd];
  load(request);
  const again = byId("json");
  again.value = value;
  again.focus();
  again.setSelectionRange(start, end);
}

/** Opens the text of the request, ready to be pasted over. */
export function openJson() {
  byId("json-details").open = true;
  byId("json").focus();
  byId("json").select();
}

// Faults

/** The field that a pointer is about, or the nearest one around it. */
function fieldOf(pointer) {
  for (let at = pointer; at !== ""; at = at.slice(0, at.lastIndexOf("/"))) {
    const exact = document.querySelector(`#form [data-pointer="${CSS.escape(at)}"]`);
    if (exact) return exact;
    const inside = document.querySelector(`#form [data-pointer^="${CSS.escape(at)}/"]`);
    if (inside && at.split("/").length > 3) return inside;
  }
  return null;
}

/** Each fault beside its field; those about no field of the form, above it. */
export function showFaults(found) {
  errors = found;
  for (const old of document.querySelectorAll("#form .fault-row, #form .row-fault")) old.remove();
  for (const input of document.querySelectorAll("#form [aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
  const homeless = [];
  found.forEach((error, i) => {
    const input = fieldOf(error.pointer);
    if (!input) {
      homeless.push(error);
      return;
    }
    const id = `fault-${i}`;
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", [input.getAttribute("aria-describedby"), id].filter(Boolean).join(" "));
    place(input, id, error.detail);
  });
  const box = byId("faults");
  box.hidden = found.length === 0;
  box.replaceChildren();
  if (found.length === 0) return;
  const count = found.length - homeless.length;
  if (count) box.append(h("p", {}, `${count} field${count > 1 ? "s need" : " needs"} another value; the plan shown is the last one that was right.`));
  for (const error of homeless) box.append(h("p", {}, error.pointer ? h("code", {}, error.pointer) : null, error.pointer ? " " : null, error.detail));
}

function place(input, id, detail) {
  const message = h("span", { class: "fault", id }, detail);
  const row = input.closest("tr");
  if (row) {
    let after = row;
    while (after.nextElementSibling?.classList.contains("fault-row")) after = after.nextElementSibling;
    after.after(h("tr", { class: "fault-row" }, h("td", { colspan: row.children.length }, message)));
    return;
  }
  const home = input.closest("[data-row]") ?? input.closest("section, details")?.querySelector("[data-row]");
  home?.after(h("div", { class: "row-fault" }, message));
  const details = input.closest("details");
  if (details) details.open = true;
}

on("loaded", () => {
  ranges = {};
  rangesFollow = true;
  errors = [];
  render();
});

on("planned", () => {
  if (rangesFollow) {
    rangesFollow = false;
    placeRanges();
  }
  list("predicates")
    .slice(0, MOST_ROWS)
    .forEach((predicate, i) => {
      const estimated = state.plan.query.predicates[i]?.selectivity;
      if (predicate?.selectivity !== undefined) return;
      const input = document.querySelector(`[data-pointer="/query/predicates/${i}/selectivity"]`);
      if (input && estimated) input.placeholder = `≈ ${words.amount(estimated)}`;
    });
});
