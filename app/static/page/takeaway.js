// The request and the plan in forms that work elsewhere.

import { h, say } from "./dom.js";
import { fragmentOf } from "./link.js";
import { on, shown, state } from "./state.js";

const SAFE_WORD = /^[A-Za-z_][A-Za-z0-9_.]*$/;
const RESERVED = /^(y|n|yes|no|on|off|true|false|null)$/i; // words that YAML 1.1 takes for something else

const MOST_SHOWN = 40_000; // characters: thousands of predicates would take longer to lay out than to plan

const service = () => new URL(".", location.href).href.replace(/[?#].*$/, "").replace(/\/$/, "");

/** The request as YAML that every version reads the same way. */
export function yamlOf(value, indent = "") {
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return value.map((item) => `\n${indent}- ${yamlOf(item, `${indent}  `).replace(/^\n\s*/, "")}`).join("");
  }
  if (value !== null && typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return "{}";
    return entries.map(([key, item]) => `\n${indent}${scalar(key)}: ${yamlOf(item, `${indent}  `)}`.replace(/: \n/, ":\n")).join("");
  }
  return scalar(value);
}

function scalar(value) {
  if (typeof value !== "number") return typeof value === "string" && SAFE_WORD.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value);
  const [digits, exponent] = String(value).split("e"); // YAML 1.1 takes 1e-7 for text: a point and a sign make it a number
  return exponent === undefined
    ? digits
    : `${digits.includes(".") ? digits : `${digits}.0`}e${exponent.startsWith("-") ? "" : "+"}${exponent.replace("+", "")}`;
}

function curlOf(request) {
  const body = JSON.stringify(request, null, 1).replaceAll("'", "'\\''");
  return `curl -s ${service()}/v1/plans -H 'content-type: application/json' -d '${body}'\n`;
}

function pythonOf(request) {
  const body = JSON.stringify(request, null, 1);
  const literal = /\\|"""/.test(body) ? JSON.stringify(body) : `"""${body}"""`;
  return `# pip install openapi-python-client; curl -s ${service()}/openapi.json -o openapi.json
# openapi-python-client generate --path openapi.json --meta none --output-path watersmeet_client
import json

from watersmeet_client import Client
from watersmeet_client.api.plans import plan
from watersmeet_client.models import PlanRequest

request = PlanRequest.from_dict(json.loads(${literal}))
answer = plan.sync(client=Client(base_url="${service()}", timeout=60.0), body=request)
print(answer.proof, answer.cost.cpu, answer.cost.memory_bytes)
`;
}

const FORMS = { curl: curlOf, Python: pythonOf, YAML: (request) => `${yamlOf(request).trimStart()}\n` };

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export function startTakeaway(host, drawing) {
  let form = "curl";
  const code = h("pre", { id: "taken", tabindex: 0, "aria-label": "The request, to copy" });
  const told = h("span", { class: "note", role: "status" });
  let whole = "";
  const refresh = () => {
    whole = FORMS[form](state.request);
    say(code, whole.length > MOST_SHOWN ? `${whole.slice(0, MOST_SHOWN)}\n… (${whole.length} characters; Copy gives all of them)` : whole);
  };
  const copy = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
      say(told, `${what} copied`);
    } catch {
      getSelection().selectAllChildren(code);
      say(told, "Selected: press Ctrl+C");
    }
  };
  const radios = Object.keys(FORMS).map((name) =>
    h(
      "label",
      { class: "segment" },
      h("input", {
        type: "radio",
        name: "form",
        value: name,
        checked: name === form,
        onchange: () => {
          form = name;
          refresh();
        },
      }),
      name,
    ),
  );
  const name = () => state.example || "plan";
  host.append(
    h(
      "div",
      { class: "bar" },
      h("div", { class: "segments", role: "radiogroup", "aria-label": "Form of the request" }, radios),
      h("button", { type: "button", id: "copy", onclick: () => copy(whole, form) }, "Copy"),
      h(
        "button",
        { type: "button", id: "copy-link", onclick: async () => copy(service() + "/" + (await fragmentOf(state.request)), "Link") },
        "Copy link",
      ),
      h("span", { class: "spring" }),
      told,
      h(
        "button",
        {
          type: "button",
          id: "plan-json",
          onclick: () => download(`${name()}.plan.json`, "application/json", `${JSON.stringify(shown(), null, 2)}\n`),
        },
        "Plan as JSON",
      ),
      h("button", { type: "button", id: "plan-svg", onclick: () => download(`${name()}.plan.svg`, "image/svg+xml", drawing()) }, "Plan as SVG"),
    ),
    code,
  );
  on("loaded", refresh);
  on("edited", refresh);
}
