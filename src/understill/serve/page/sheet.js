// A sheet: a table of texts that is chosen, dropped or pasted, answered row by row, shown, and downloaded.

import { decode, guessColumns, guessNames, guessSeparator, habitsOf, readTable, SEPARATORS, write } from "./csv.js";
import { count, find, make, say } from "./dom.js";
import { Job, withAnswers } from "./job.js";
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
    this.table = null;
    this.job = null;
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
      if (event.key !== "Escape" || event.isComposing) return;
      find("paste").value = "";
      this.takePasted();
    });
    for (const id of ["separator", "header"]) on(id, "change", () => this.read());
    for (const id of ["column", "column2"]) on(id, "change", () => this.renew());
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
      if (this.opening === file) this.take(decode(bytes), file.name);
    } catch (error) {
      if (this.opening !== file) return;
      this.take("", file.name);
      say(find("wrong"), error.message);
    }
  }

  /** Take a text as the table, with a guess at how it is to be read. */
  take(text, name) {
    this.source = { text: text.toWellFormed(), name };
    find("separator").value = guessSeparator(this.source.text);
    find("header").checked = guessNames(this.source.text, find("separator").value);
    this.read();
  }

  /** Read the table as the controls say, and guess which columns hold texts. */
  read() {
    const { text } = this.source;
    this.table = readTable(text, find("separator").value, find("header").checked);
    const empty = text.trim() && !this.table.rows.length ? "There are no rows in this table." : "";
    say(find("wrong"), this.table.fault ?? empty);
    find("sheet").hidden = !this.table.names.length;
    const columns = this.table.names.map((name, place) => [place, name]);
    fillSelect("column", columns);
    fillSelect("column2", [[-1, "no column"], ...columns]);
    const always = this.server.tasks.every((task) => task.pair);
    const [first, second] = guessColumns(this.table.names, this.table.rows, always);
    find("column").value = first;
    find("column2").value = this.pairs ? second : -1;
    this.renew();
  }

  /** Begin anew, with the columns and tasks that are chosen now. */
  renew() {
    this.job?.cancel();
    const columns = [Number(find("column").value), Number(find("column2").value)];
    this.job = new Job(this.table, columns, this.picked(), this.server.limits);
    find("differing").checked = false;
    find("done").textContent = "";
    this.turn(0);
  }

  /** Take up other tasks, or a key: a job that has not begun is made anew, one that waited for a key goes on. */
  refresh() {
    if (!this.job) return;
    if (this.locked) this.run();
    else if (this.job.done || this.job.running) this.draw();
    else this.renew();
  }

  /** Tell whether the answers are to other questions than those that are picked now. */
  get outdated() {
    return this.job.done > 0 && question(this.picked()) !== question(this.job.picked);
  }

  start() {
    if (this.outdated) this.renew();
    this.run();
  }

  async run() {
    const { job } = this;
    const began = performance.now();
    const before = job.done;
    const waiting = (seconds) => { find("done").textContent = `The server is busy. Asking again in ${seconds} s.`; };
    this.locked = false;
    this.failed(null);
    const running = job.run(() => this.drawSoon(), waiting);
    this.draw();
    let told;
    try {
      await running;
      told = `${count(job.done - before, "row")} in ${((performance.now() - began) / 1000).toFixed(1)} s.`;
    } catch (error) {
      told = `Stopped after ${job.done.toLocaleString("en")} of ${count(job.total, "row")}.`;
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
    const all = this.table.rows.map((_, place) => place);
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
    const places = this.places();
    const last = Math.max(0, Math.ceil(places.length / PAGE) - 1);
    this.page = Math.min(this.page, last);
    const from = this.page * PAGE;
    const some = places.slice(from, from + PAGE);
    const size = `${count(table.rows.length, "row")}, ${count(table.names.length, "column")}`;
    find("sheet-name").textContent = `${this.source.name}: ${size}`;
    find("notes").replaceChildren(...notesOf(job).map((note) => make("li", {}, note)));
    find("tally").hidden = job.running || !job.done;
    find("tally").replaceChildren(...(find("tally").hidden ? [] : [drawTally(job)]));
    find("only").hidden = !job.teacher || !job.done;
    const shown = `Rows ${from + 1} to ${from + some.length} of ${places.length}`;
    find("shown").textContent = some.length ? shown : "No rows";
    find("back").hidden = find("next").hidden = last === 0;
    find("back").disabled = this.page === 0;
    find("next").disabled = this.page === last;
    find("rows").replaceChildren(...drawRows(job, some));
    find("download").textContent = `Download ${count(places.length, "row")}`;
    find("download").disabled = !places.length;
    this.waiting = find("differing").checked || some.some((place) => !job.answers[place]);
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
    find("start").disabled = !job.tasks.length || this.table.fault !== null;
    find("start").textContent = this.outdated ? "Answer again" : fresh;
    find("cancel").hidden = find("progress").hidden = !job.running;
    find("progress").max = job.total || 1;
    find("progress").value = job.done;
    if (job.running) find("done").textContent = `${job.done.toLocaleString("en")} of ${count(job.total, "row")}`;
    find("download").hidden = job.running || !job.done;
    // The button that was pressed may be gone now: the one that took its place gets the focus.
    if (focus?.hidden) (["cancel", "download", "start"].map(find).find((each) => !each.hidden) ?? focus).focus();
  }

  /** Hand out the rows that are to be seen, with the answers added. */
  download() {
    const { start, separator, newline } = habitsOf(this.source.text, find("separator").value);
    const text = start + write(withAnswers(this.job, this.places()), separator, newline);
    const type = separator === "\t" ? "text/tab-separated-values" : "text/csv";
    const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    const stem = this.source.name.replace(/\.(csv|tsv|tab|txt)$/i, "");
    make("a", { href: address, download: `${stem}-predictions.${separator === "\t" ? "tsv" : "csv"}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }
}

const question = ({ tasks, teacher }) => JSON.stringify([tasks.map((task) => task.name), teacher]);

function fillSelect(id, options) {
  find(id).replaceChildren(...options.map(([value, name]) => make("option", { value }, name)));
}
