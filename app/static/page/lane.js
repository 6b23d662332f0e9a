// One question in flight, the newest edit wins.
//
// Edits are gathered for a moment. While a question runs, only the newest edit waits; a question that is outdated and
// slow is given up. Each edit has a number, and an answer is passed on only if no later edit was made: what is on screen
// is the last answer, and never one that overtook another.

const GATHER = 50; // ms without another edit; typing and dragging come faster
const LONGEST_GATHER = 150; // ms: while somebody drags, something still moves
export const QUIET = 250; // ms without an edit after which there is time for more than the plan
const SLOW = 1200; // ms: giving a solve up costs the service a worker for a moment, and most end within a second

export class Lane {
  #newest = 0;
  #waiting = null;
  #running = null;
  #timer = 0;
  #edited = 0;

  /** `ask(body, signal, note)` asks; `told` hears `waiting`, `started`, `note`, `answer`, `refused`, `cancelled`, `idle`. */
  constructor(ask, told) {
    this.ask = ask;
    this.told = told;
  }

  get busy() {
    return this.#waiting !== null || this.#running !== null;
  }

  /** Whether nobody is typing or dragging, and nothing is asked. */
  get quiet() {
    return !this.busy && performance.now() - this.#edited >= QUIET;
  }

  edit(makeBody) {
    this.#newest += 1;
    this.#edited = performance.now();
    const since = this.#waiting?.since ?? performance.now();
    this.#waiting = { number: this.#newest, makeBody, since };
    this.told.waiting?.();
    const wait = Math.max(0, Math.min(GATHER, since + LONGEST_GATHER - performance.now()));
    this.#later(wait);
  }

  cancel() {
    clearTimeout(this.#timer);
    const had = this.busy;
    this.#newest += 1; // whatever still arrives is outdated
    this.#waiting = null;
    this.#running?.controller.abort();
    this.#running = null;
    if (had) this.told.cancelled?.();
  }

  #later(wait) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#next(), wait);
  }

  #next() {
    if (this.#waiting === null) return;
    if (this.#running !== null) {
      const left = this.#running.began + SLOW - performance.now();
      if (left > 0) return this.#later(left); // or earlier, when it ends
      this.#running.controller.abort();
      this.#running = null;
    }
    const { number, makeBody } = this.#waiting;
    this.#waiting = null;
    this.#run(number, makeBody());
  }

  async #run(number, body) {
    const running = { controller: new AbortController(), began: performance.now() };
    this.#running = running;
    const current = () => number === this.#newest;
    this.told.started?.(number);
    try {
      const answer = await this.ask(body, running.controller.signal, (note) => current() && this.told.note?.(note));
      if (current()) this.told.answer(answer, body, performance.now() - running.began);
    } catch (failure) {
      if (!running.controller.signal.aborted && current()) this.#refused(failure, number, body);
    } finally {
      if (this.#running === running) {
        this.#running = null;
        if (this.#waiting !== null) this.#next();
        else this.told.idle?.();
      }
    }
  }

  #refused(failure, number, body) {
    this.told.refused(failure);
    if (!failure.retryAfter) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#run(number, body), failure.retryAfter * 1000);
  }
}

/** Work for idle moments, one piece at a time: a later piece under the same name takes the place of an earlier one. */
export class Background {
  #pieces = new Map();
  #running = null;
  #free;

  /** `free()` is whether there is room for background work now. */
  constructor(free) {
    this.#free = free;
  }

  add(name, work) {
    if (this.#running?.name === name) this.#running.controller.abort();
    this.#pieces.delete(name);
    this.#pieces.set(name, work);
    this.go();
  }

  /** Nothing runs, nothing waits. */
  stop() {
    this.#pieces.clear();
    this.#running?.controller.abort();
  }

  drop(name) {
    this.#pieces.delete(name);
    if (this.#running?.name === name) this.#running.controller.abort();
  }

  async go() {
    if (this.#running !== null || this.#pieces.size === 0 || !this.#free()) return;
    const [name, work] = this.#pieces.entries().next().value;
    this.#pieces.delete(name);
    const running = { name, controller: new AbortController() };
    this.#running = running;
    try {
      await work(running.controller.signal);
    } catch (failure) {
      if (!running.controller.signal.aborted) console.error(failure);
    } finally {
      this.#running = null;
      this.go();
    }
  }
}
