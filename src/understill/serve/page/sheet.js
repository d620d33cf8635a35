// A sheet: a table of texts that is chosen, dropped or pasted, answered row by row, shown, and downloaded.

import { decode, guessColumns, guessNames, guessSeparator, habitsOf, readTable, SEPARATORS, write } from "./csv.js";
import { find, make, say } from "./dom.js";
import { answerable, Job, withAnswers } from "./job.js";
import { amount, count, duration } from "./numbers.js";
import { drawRows, drawTally, notesOf } from "./rows.js";

//: Rows that are shown at once.
const PAGE = 50;
//: Bytes of a file that a browser can well hold beside its answers.
const LARGEST = 200e6;

export class Sheet {
  /** `picked` tells which tasks, and whether the teacher; `failed` is told what went wrong; `reveal` shows the view. */
  constructor(server, picked, failed, reveal) {
    Object.assign(this, { server, picked, failed, reveal });
    this.opening = null; // the file that is being read; one chosen later takes its place
    this.source = null; // the text, and what it is called
    this.table = null; // the text, as it is read now
    this.job = null; // the answers, maybe to an earlier choice, and to a table that was read otherwise
    this.page = 0;
    this.locked = false; // a key was missing; with one, the job goes on by itself
    this.drawing = 0; // the timer of what is drawn soon
    this.waiting = true; // for answers to rows that are in sight
    this.pairs = server.tasks.some((task) => task.pair);
    find("column-other").hidden = !this.pairs;
    fillSelect("separator", Object.entries(SEPARATORS));
    this.listen();
  }

  listen() {
    const on = (id, event, does) => find(id).addEventListener(event, does);
    on("choose", "change", (event) => {
      if (event.target.files.length) this.open(event.target.files[0]);
      event.target.value = ""; // so that the same file may be chosen again
    });
    on("paste", "input", () => this.takePasted());
    on("paste", "keydown", (event) => {
      // Without a text here, there is nothing to clear: the table may come from a file.
      if (event.key !== "Escape" || event.isComposing || !find("paste").value) return;
      find("paste").value = "";
      this.takePasted();
    });
    for (const id of ["separator", "header"]) on(id, "change", () => this.read());
    for (const id of ["column", "column2"]) on(id, "change", () => this.change());
    on("start", "click", () => this.start());
    on("cancel", "click", () => this.job.cancel());
    on("download", "click", () => this.download());
    on("differing", "change", () => this.turn(0));
    on("back", "click", () => this.turn(this.page - 1));
    on("next", "click", () => this.turn(this.page + 1));
    // A file that misses its mark would otherwise replace the page, and what was typed would be gone.
    const holdsFile = (event) => event.dataTransfer?.types.includes("Files");
    document.addEventListener("dragover", (event) => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      this.reveal();
    });
    document.addEventListener("drop", (event) => {
      if (!holdsFile(event)) return;
      event.preventDefault();
      this.open(event.dataTransfer.files[0]);
    });
  }

  takePasted() {
    this.opening = null;
    this.take(find("paste").value, "pasted");
  }

  async open(file) {
    this.reveal();
    find("paste").value = "";
    this.opening = file;
    try {
      if (file.size > LARGEST) throw new Error("This file is larger than 200 MB. Cut it into parts.");
      const bytes = new Uint8Array(await file.arrayBuffer());
      if (this.opening !== file) return;
      const text = decode(bytes);
      if (!text.trim()) throw new Error(`${file.name} is empty.`);
      this.take(text, file.name);
    } catch (error) {
      if (this.opening !== file) return;
      this.take("", file.name);
      say(find("wrong"), error.message);
    }
  }

  /** Take a text as the table, with a guess at how it is to be read. */
  take(text, name) {
    this.source = { text: text.toWellFormed(), name };
    this.job?.cancel();
    this.job = null;
    this.locked = false;
    find("separator").value = guessSeparator(this.source.text);
    find("header").checked = guessNames(this.source.text, find("separator").value);
    this.read();
  }

  /** Read the table as the controls say, and guess which columns hold texts. */
  read() {
    const { text } = this.source;
    const { separator, named } = this.choice;
    this.table = readTable(text, separator, named);
    const empty = text.trim() && !this.table.rows.length ? "There are no rows in this table." : "";
    say(find("wrong"), this.table.fault ?? empty);
    find("sheet").hidden = !this.table.names.length;
    const columns = this.table.names.map((name, place) => [place, name]);
    fillSelect("column", columns);
    fillSelect("column2", [[-1, "no column"], ...columns]);
    const always = this.server.tasks.every((task) => task.pair);
    const before = this.job?.choice;
    const isAsBefore = before?.separator === separator && before.named === named;
    const [first, second] = isAsBefore ? before.columns : guessColumns(this.table.names, this.table.rows, always);
    find("column").value = first;
    find("column2").value = this.pairs ? second : -1;
    this.change();
  }

  /** Return what is chosen now: how the table is read, which columns hold texts, and which tasks are picked. */
  get choice() {
    return {
      separator: find("separator").value,
      named: find("header").checked,
      columns: [Number(find("column").value), Number(find("column2").value)],
      ...this.picked(),
    };
  }

  /** Begin anew, with what is chosen now. */
  renew() {
    this.job = new Job(this.table, this.choice, this.server.limits);
    find("differing").checked = false;
    find("done").textContent = find("told").textContent = "";
    this.turn(0);
  }

  /** Take up another choice: a job that has not begun is made anew, answers stay until others are asked for. */
  change() {
    if (!this.job?.done && !this.job?.running) {
      this.renew();
      return;
    }
    this.draw();
    find("told").textContent = this.outdated ? this.formerly() : "";
  }

  /** Take up other tasks, or a key: a job that waited for one goes on. */
  refresh() {
    if (!this.job) return;
    if (this.locked) this.run();
    else this.change();
  }

  /** Tell whether there are answers, but to another choice than that of now. */
  get outdated() {
    const { done, running, choice } = this.job;
    return done > 0 && !running && question(this.choice) !== question(choice);
  }

  /** Tell whether there is something to answer, as the table is read now and with what is chosen. */
  get possible() {
    return answerable(this.choice).length > 0 && this.table.rows.length > 0 && this.table.fault === null;
  }

  formerly() {
    const now = this.possible ? "“Answer again” replaces them." : "What is chosen now cannot be answered.";
    return `The answers below are to what was chosen before. ${now}`;
  }

  start() {
    if (this.outdated) this.renew();
    this.run();
  }

  async run() {
    const { job } = this;
    const waiting = (seconds) => { find("done").textContent = `The server is busy. Asking again in ${seconds} s.`; };
    this.locked = false;
    this.failed(null);
    find("told").textContent = "";
    const running = job.run(() => this.drawSoon(), waiting);
    this.draw();
    let told;
    try {
      await running;
      told = `${count(job.done, "row")} in ${duration(job.spent)}.`;
    } catch (error) {
      told = `Stopped after ${amount(job.done)} of ${count(job.total, "row")}.`;
      if (job !== this.job) return;
      this.locked = error.status === 401;
      if (error.name !== "AbortError") this.failed(error);
    }
    if (job !== this.job) return;
    this.draw();
    find("done").textContent = find("told").textContent = told;
  }

  /** Return the rows that are to be seen: all, or those where student and teacher differ. */
  places() {
    const all = this.job.table.rows.map((_, place) => place);
    return find("differing").checked ? all.filter((place) => this.job.differs(place)) : all;
  }

  turn(page) {
    this.page = page;
    this.draw();
  }

  /** Draw what has changed, a few times a second; rows only while there are some in sight to which that happens. */
  drawSoon() {
    this.drawing ||= setTimeout(() => (this.waiting ? this.draw() : this.drawActions()), 150);
  }

  draw() {
    const { job, table } = this;
    const apart = find("differing").checked;
    const places = this.places();
    const last = Math.max(0, Math.ceil(places.length / PAGE) - 1);
    this.page = Math.min(this.page, last);
    const from = this.page * PAGE;
    const some = places.slice(from, from + PAGE);
    const size = `${count(table.rows.length, "row")}, ${count(table.names.length, "column")}`;
    find("sheet-name").replaceChildren(make("bdi", {}, this.source.name), `: ${size}`);
    const notes = [...(this.outdated ? [this.formerly()] : []), ...notesOf(job)];
    find("notes").replaceChildren(...notes.map((note) => make("li", {}, note)));
    find("tally").hidden = job.running || !job.done;
    find("tally").replaceChildren(...(find("tally").hidden ? [] : [drawTally(job)]));
    find("only").hidden = !job.teacher || !job.done;
    const shown = `${amount(from + 1)} to ${amount(from + some.length)} of ${count(places.length, "row")}`;
    find("shown").textContent = `${some.length ? shown : "No rows"}${apart ? " where they differ" : ""}`;
    find("back").hidden = find("next").hidden = last === 0;
    find("back").disabled = this.page === 0;
    find("next").disabled = this.page === last;
    find("rows").replaceChildren(...drawRows(job, some));
    const partly = apart || job.done === job.total ? "" : `, ${amount(job.done)} answered`;
    find("download").textContent = `Download ${count(places.length, "row")}${partly}`;
    find("download").disabled = !places.length;
    this.waiting = apart || some.some((place) => !job.answers[place]);
    this.drawActions();
  }

  drawActions() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    const { job } = this;
    const focus = document.activeElement;
    const fresh = job.done ? "Go on" : `Answer ${count(job.total, "row")}`;
    find("columns").disabled = job.running;
    find("start").hidden = job.running || (job.done === job.total && !this.outdated);
    find("start").disabled = !this.possible;
    find("start").textContent = this.outdated ? "Answer again" : fresh;
    find("cancel").hidden = find("progress").hidden = !job.running;
    find("progress").max = job.total || 1;
    find("progress").value = job.done;
    if (job.running) find("done").textContent = `${amount(job.done)} of ${count(job.total, "row")}`;
    find("download").hidden = job.running || !job.done;
    // The button that was pressed may be gone now: the one that took its place gets the focus.
    if (focus?.hidden) (["cancel", "download", "start"].map(find).find((each) => !each.hidden) ?? focus).focus();
  }

  /** Hand out the rows that are to be seen, with the answers added. */
  download() {
    const { start, separator, newline } = habitsOf(this.source.text, this.job.choice.separator);
    const text = start + write(withAnswers(this.job, this.places()), separator, newline);
    const type = separator === "\t" ? "text/tab-separated-values" : "text/csv";
    const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    const stem = this.source.name.replace(/\.(csv|tsv|tab|txt)$/i, "");
    make("a", { href: address, download: `${stem}-predictions.${separator === "\t" ? "tsv" : "csv"}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }
}

const question = ({ tasks, ...rest }) => JSON.stringify([tasks.map((task) => task.name), rest]);

function fillSelect(id, options) {
  find(id).replaceChildren(...options.map(([value, name]) => make("option", { value }, name)));
}
