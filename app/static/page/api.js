// Questions to the service. Relative addresses, so that the page works behind a prefix.

const KEY = "watersmeet-key";

/** The service said no: a problem (RFC 9457). */
export class Refused extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail ?? `The service answered ${status}.`);
    this.status = status;
    this.errors = problem.errors ?? [];
    this.retryAfter = retryAfter;
  }
}

export const getKey = () => sessionStorage.getItem(KEY) ?? "";
export const setKey = (key) => sessionStorage.setItem(KEY, key);

async function send(path, body, signal, accept) {
  const headers = { "Content-Type": "application/json", Accept: accept };
  if (getKey()) headers["X-API-Key"] = getKey();
  let response;
  try {
    response = await fetch(path, { method: "POST", headers, signal, body: typeof body === "string" ? body : JSON.stringify(body) });
  } catch (failure) {
    if (signal?.aborted) throw failure;
    throw new Refused(0, { detail: "The service does not answer." }, 2);
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Refused(response.status, problem, Number(response.headers.get("Retry-After")) || null);
}

/** The answer to a question. */
export async function post(path, body, signal) {
  return (await send(path, body, signal, "application/json")).json();
}

/** A plan, with what is known on the way to it; a service that tells nothing on the way answers all the same. */
export async function postPlan(body, signal, onIncumbent) {
  const response = await send("v1/plans", body, signal, "text/event-stream, application/json;q=0.9");
  if (!(response.headers.get("Content-Type") ?? "").startsWith("text/event-stream")) return response.json();
  for await (const { event, data } of events(response.body)) {
    if (event === "incumbent") onIncumbent(JSON.parse(data));
    else if (event === "answer") return JSON.parse(data);
    else if (event === "problem") {
      const problem = JSON.parse(data);
      throw new Refused(problem.status, problem, null);
    }
  }
  throw new Refused(0, { detail: "The service ended before it answered." }, 2);
}

/** Server-sent events of a body. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const blocks = text.split(/\r?\n\r?\n/);
      text = blocks.pop();
      for (const block of blocks) {
        const lines = block.split(/\r?\n/);
        const field = (name) => lines.filter((line) => line.startsWith(`${name}:`)).map((line) => line.slice(name.length + 1).replace(/^ /, ""));
        yield { event: field("event")[0] ?? "message", data: field("data").join("\n") };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
