// The request as text: to be pasted over, and for what has no field of its own. Text that is no request stays as it was
// typed, and the last request that was one stays in force.

import { byId, say } from "./dom.js";
import { load, on, state } from "./state.js";

const json = byId("json");
const fault = byId("json-fault");

const typing = () => document.activeElement === json;
const write = () => {
  json.value = JSON.stringify(state.request, null, 2);
  say(fault, "");
};

function read() {
  let request;
  try {
    request = JSON.parse(json.value);
  } catch (failure) {
    say(fault, `This is not JSON: ${failure.message}`);
    return;
  }
  if (request === null || typeof request !== "object" || Array.isArray(request)) {
    say(fault, "A request is a JSON object with a query.");
    return;
  }
  say(fault, "");
  load(request);
}

/** Opens the text, ready to be pasted over. */
export function openJson() {
  byId("json-details").open = true;
  json.focus();
  json.select();
}

json.addEventListener("input", read);
on("loaded", () => typing() || write());
on("edited", () => typing() || fault.textContent || write());
