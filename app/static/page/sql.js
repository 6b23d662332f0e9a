// SQL in: the request that a query means takes the place of the present one. What was known of streams and predicates of the same names stays,
// so that a query can be mended after rates have been filled in.

import { post } from "./api.js";
import { byId, h } from "./dom.js";
import { load, on, state } from "./state.js";

const QUIET = 300; // ms after the last key, until the query is read
const OF_STREAMS = ["rate", "tuple_bytes", "freshness", "distinct"];
const OF_REQUESTS = ["resources", "costs", "objective", "options"];

const text = byId("sql");
const dialect = byId("sql-dialect");
const faults = byId("sql-faults");
const notes = byId("sql-notes");
let waiting = 0;
let asked = null;
let ours = false; // whether it is this module that loads a request

function edited() {
  clearTimeout(waiting);
  asked?.abort();
  if (text.value.trim() === "") show([], []);
  else waiting = setTimeout(read, QUIET);
}

async function read() {
  asked = new AbortController();
  const { signal } = asked;
  try {
    const meaning = await post("v1/requests", { sql: text.value, dialect: dialect.value }, signal);
    if (signal.aborted) return;
    show([], meaning.warnings);
    ours = true;
    load(withKnown(meaning.request, state.request));
    ours = false;
  } catch (failure) {
    if (signal.aborted) return;
    show(failure.errors?.length ? failure.errors.map((error) => error.detail) : [failure.message], []);
  }
}

/** The request with the figures that the one before had for streams and predicates of the same names. */
function withKnown(request, before) {
  const listed = (holder) => (Array.isArray(holder) ? holder : []);
  const of = (predicate) => `${predicate.left} ${predicate.op ?? "="} ${predicate.right}`;
  const streams = new Map(listed(before?.query?.streams).map((stream) => [stream?.name, stream]));
  const predicates = new Map(listed(before?.query?.predicates).map((predicate) => [of(predicate ?? {}), predicate]));
  for (const stream of request.query.streams) {
    const known = streams.get(stream.name) ?? {};
    for (const name of OF_STREAMS) if (name in known) stream[name] = known[name];
  }
  for (const predicate of request.query.predicates) {
    const known = predicates.get(of(predicate));
    if (known && "selectivity" in known) predicate.selectivity = known.selectivity;
  }
  for (const name of OF_REQUESTS) {
    if (before && name in before) request[name] = before[name];
    else delete request[name];
  }
  return request;
}

function show(wrong, said) {
  faults.hidden = wrong.length === 0;
  faults.replaceChildren(...wrong.map((sentence) => h("p", {}, sentence)));
  notes.replaceChildren(...said.map((sentence) => h("li", {}, sentence)));
  text.setAttribute("aria-invalid", wrong.length > 0);
}

/** Opens the text, ready to be pasted over. */
export function openSql() {
  byId("sql-details").open = true;
  text.focus();
  text.select();
}

text.addEventListener("input", edited);
dialect.addEventListener("change", edited);
on("loaded", () => {
  // Another request came from elsewhere: the query is not its any more.
  if (!ours && text.value !== "") {
    text.value = "";
    edited();
  }
});
