// What the page knows, and who wants to be told when it changes.

export const state = {
  request: { query: { streams: [], predicates: [] } }, // what is asked, as typed: a field may hold text that is no number
  example: "", // name of the example it came from
  plan: null, // the newest answer, which is for the newest request unless `pending`
  asked: null, // the request that `plan` answers
  pending: false, // whether an edit is waiting for its answer
  viewed: null, // {plan, label, source} of another plan to look at; `source` is what was picked, such as a point of the frontier
  held: null, // {plan, label} to compare with
};

const listeners = new Map();

/** Events: loaded, edited, planned, viewed, held; resumed: an edit came to nothing, the last plan stays. */
export function on(event, listener) {
  if (!listeners.has(event)) listeners.set(event, []);
  listeners.get(event).push(listener);
}

export function emit(event, detail) {
  for (const listener of listeners.get(event) ?? []) listener(detail);
}

/** Puts another request in place of the present one. */
export function load(request, example = "") {
  state.request = request;
  state.example = example;
  emit("loaded");
  emit("edited");
}

/** The plan on screen: the one looked at, else the answer. */
export const shown = () => state.viewed?.plan ?? state.plan;

export function view(plan, label, source = plan) {
  state.viewed = plan === null ? null : { plan, label, source };
  emit("viewed");
}

export function hold(plan, label) {
  state.held = plan === null ? null : { plan, label };
  emit("held");
}
