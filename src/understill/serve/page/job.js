// A job: the rows of a table sent in small blocks, and what was said of them. It can be given up, and gone on with.

import { word } from "./answers.js";
import { predict } from "./api.js";

//: Rows in a request, and requests at a time: the server is never idle, and the page shows progress often.
const ROWS = 64;
const LANES = 2;
//: What is about the rows and not about the server: too much, not to be answered, or the model failed on them.
const ABOUT_ROWS = [413, 422, 500];

const bytesOf = (text) => new TextEncoder().encode(JSON.stringify(text)).length;

export class Job {
  /** `choice` tells the columns of the first and the second text, the tasks, and whether the teacher is asked. */
  constructor(table, choice, limits) {
    Object.assign(this, { table, choice, limits });
    this.columns = choice.columns.filter((column) => column >= 0);
    this.tasks = answerable(choice);
    this.teacher = choice.teacher;
    this.untaught = new Set(); // the names of tasks that the teacher does not have
    this.answers = []; // by row: task → {student, teacher, differ}; undefined until the row is done
    this.done = 0;
    this.spent = 0; // milliseconds, of all runs
    this.refused = new Map(); // row → what the server said
    this.controller = null;
    this.faults = this.#findFaults();
  }

  get total() {
    return this.table.rows.length;
  }

  get running() {
    return this.controller !== null;
  }

  /** Return the texts of a row: one, or both. */
  texts(place, pair) {
    return this.columns.slice(0, pair ? 2 : 1).map((column) => this.table.rows[place][column]);
  }

  /** Tell whether the teacher is asked for a task; that it does not have it shows in its first answers. */
  isTaught({ name }) {
    return this.teacher && !this.untaught.has(name);
  }

  /** Tell whether the teacher says something else of a row. */
  differs(place) {
    return Object.values(this.answers[place] ?? {}).some((each) => each.differ);
  }

  /** Tell why tasks of one text, or of two, do not answer a row: it is odd, empty or long; "" says that they do. */
  #fault(place, pair) {
    if (this.table.odd.has(place)) return "odd";
    const texts = this.texts(place, pair);
    if (texts.some((text) => !text.trim())) return "empty";
    const most = this.limits.characters;
    return texts.some((text) => text.length > most && [...text].length > most) ? "long" : "";
  }

  /** Return the rows that a task does not answer, by reason. */
  #findFaults() {
    const faults = { odd: [], empty: [], long: [] };
    const kinds = new Set(this.tasks.map((task) => task.pair));
    for (let place = 0; place < this.total; place += 1) {
      const found = [...kinds].map((pair) => this.#fault(place, pair)).find(Boolean);
      if (found) faults[found].push(place);
    }
    return faults;
  }

  cancel() {
    this.controller?.abort();
  }

  /** Answer all rows that are not done; `progress` is told of every block, `waiting` of a busy server. */
  async run(progress, waiting) {
    this.controller = new AbortController();
    const { signal } = this.controller;
    const began = performance.now();
    const blocks = this.#blocks();
    const lane = async () => {
      for (const block of blocks) {
        await this.#answer(block, signal, waiting);
        progress();
      }
    };
    try {
      await Promise.all(Array.from({ length: LANES }, lane));
    } finally {
      this.controller.abort(); // one lane has failed: the other need not go on
      this.controller = null;
      this.spent += performance.now() - began;
    }
  }

  /** Give blocks of rows that one request can hold. */
  *#blocks() {
    const room = this.limits.bytes - bytesOf(this.tasks.map((task) => task.name)) - 200;
    let block = [];
    let size = 0;
    for (let place = 0; place < this.total; place += 1) {
      if (this.answers[place]) continue;
      const own = this.texts(place, true).reduce((sum, text) => sum + bytesOf(text) + 1, 0);
      if (block.length && (block.length >= Math.min(ROWS, this.limits.rows) || size + own > room)) {
        yield block;
        [block, size] = [[], 0];
      }
      block.push(place);
      size += own;
    }
    if (block.length) yield block;
  }

  async #answer(block, signal, waiting) {
    const found = new Map(block.map((place) => [place, {}]));
    for (const pair of [false, true]) {
      const tasks = this.tasks.filter((task) => task.pair === pair).map((task) => task.name);
      const places = block.filter((place) => !this.#fault(place, pair));
      if (tasks.length && places.length) await this.#ask(places, pair, tasks, found, signal, waiting);
    }
    signal.throwIfAborted();
    for (const [place, answer] of found) this.answers[place] = answer;
    this.done += block.length;
  }

  /** Ask for rows. If the server refuses them it gets them in halves, until the row is found that it does not take. */
  async #ask(places, pair, tasks, found, signal, waiting) {
    const texts = places.map((place) => this.texts(place, pair));
    const seconds = pair ? texts.map((each) => each[1]) : null;
    let said;
    try {
      said = await predict(texts.map((each) => each[0]), seconds, tasks, this.teacher, 1, signal, waiting);
    } catch (error) {
      if (!ABOUT_ROWS.includes(error.status)) throw error;
      if (places.length === 1) {
        this.refused.set(places[0], error.message);
        return;
      }
      const half = places.length >> 1;
      await this.#ask(places.slice(0, half), pair, tasks, found, signal, waiting);
      await this.#ask(places.slice(half), pair, tasks, found, signal, waiting);
      return;
    }
    if (said.answers.length !== places.length) throw new Error("The server answered more or fewer rows than it got.");
    for (const name of tasks) if (said.teacher && !said.teacher.answers[0][name]) this.untaught.add(name);
    places.forEach((place, number) => {
      for (const name of tasks) {
        found.get(place)[name] = {
          student: brief(said.answers[number][name]),
          teacher: brief(said.teacher?.answers[number][name]),
          differ: said.differ?.[number].includes(name) ?? false,
        };
      }
    });
  }
}

/** Return the tasks of a choice that its columns suffice for; -1 stands for no column. */
export const answerable = ({ tasks, columns }) => tasks.filter((task) => !task.pair || columns[1] >= 0);

/** Keep of an answer what tables show; the probabilities of all classes of all rows would be too much. */
function brief(answer) {
  if (!answer) return null;
  return answer.probabilities ? { label: answer.label, probability: answer.probabilities[answer.label] } : answer;
}

/** Return a job's table with its answers, as rows of cells under a header. */
export function withAnswers(job, places) {
  const taken = new Set(job.table.header);
  const own = (name) => {
    let free = name;
    for (let number = 2; taken.has(free); number += 1) free = `${name}_${number}`;
    taken.add(free);
    return free;
  };
  const columns = job.tasks.flatMap((task) => columnsOf(task, job.isTaught(task)));
  const header = [...job.table.header, ...columns.map(([name]) => own(name))];
  const rows = places.map((place) => {
    const answer = job.answers[place] ?? {};
    return [...job.table.rows[place], ...columns.map(([, cell]) => cell(answer))];
  });
  return [header, ...rows];
}

function columnsOf({ name, labels }, teacher) {
  const by = (who, prefix) => {
    const value = (key, format) => (answer) => (answer[name]?.[who] ? format(answer[name][who][key]) : "");
    const number = (each) => each.toFixed(4);
    const scores = (answer) => answer[name]?.[who]?.scores;
    if (!labels) {
      const cell = value("score", number);
      return [[`${prefix}_score`, (answer) => (scores(answer) ? word(answer[name][who]) : cell(answer))]];
    }
    return [[`${prefix}_label`, value("label", String)], [`${prefix}_probability`, value("probability", number)]];
  };
  if (!teacher) return by("student", name);
  const differ = (answer) => (answer[name]?.teacher ? (answer[name].differ ? "yes" : "no") : "");
  return [...by("student", name), ...by("teacher", `${name}_teacher`), [`${name}_differ`, differ]];
}
