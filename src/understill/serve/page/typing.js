// Typing: answers for one text or one pair, as it is typed.

import { Card, word } from "./answers.js";
import { predict } from "./api.js";
import { find, make, say } from "./dom.js";
import { duration, percent } from "./numbers.js";

//: Milliseconds without a key before the server is asked: more than between letters, less than between thoughts.
const REST = 150;

export class Typing {
  /** `picked` tells which tasks, and whether the teacher; `failed` is told what went wrong. */
  constructor(server, picked, failed) {
    Object.assign(this, { picked, failed });
    this.timer = 0;
    this.asked = new AbortController();
    this.groups = [false, true].map((pair) => new Group(server.tasks.filter((task) => task.pair === pair), pair));
    find("answers").append(...this.groups.map((group) => group.element));
    for (const id of ["first", "second"]) find(id).addEventListener("input", () => this.soon());
    find("text").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.ask();
      if (event.key === "Escape" && !event.isComposing) this.clear();
    });
    this.refresh();
  }

  /** Ask for what is picked now; the second field is there if a task reads it. */
  refresh() {
    const { tasks } = this.picked();
    const pair = tasks.some((task) => task.pair);
    find("other").hidden = !pair;
    find("first-name").textContent = pair ? "First text" : "Text";
    const both = pair && tasks.some((task) => !task.pair);
    for (const group of this.groups) group.name(both);
    say(find("none"), tasks.length ? "" : "Pick a task to see its answer.");
    this.ask();
  }

  soon() {
    clearTimeout(this.timer);
    find("answers").setAttribute("aria-busy", "true");
    this.timer = setTimeout(() => this.ask(), REST);
  }

  clear() {
    find("first").value = find("second").value = "";
    find("first").focus();
    this.ask();
  }

  /** Ask for what stands in the fields. What was asked before is given up, so that it never arrives later. */
  async ask() {
    clearTimeout(this.timer);
    this.asked.abort();
    this.asked = new AbortController();
    const { signal } = this.asked;
    const texts = [find("first").value, find("second").value];
    const waiting = (seconds) => say(find("trouble"), `The server is busy. Asking again in ${seconds} s.`);
    find("answers").setAttribute("aria-busy", "true");
    const asked = this.groups.map((group) => group.fill(texts, this.picked(), signal, waiting));
    const told = await Promise.allSettled(asked);
    if (signal.aborted) return;
    const wrong = told.find((each) => each.reason)?.reason;
    told.forEach(({ reason }, place) => { if (reason) this.groups[place].clear(); });
    if (wrong || told.some((each) => each.value) || find("lock").hidden) this.failed(wrong);
    find("spoken").textContent = told.map((each) => each.value).filter(Boolean).join(" ");
    find("answers").setAttribute("aria-busy", "false");
  }
}

/** The cards of the tasks that read one text, or two. */
class Group {
  constructor(tasks, pair) {
    this.pair = pair;
    this.cards = new Map(tasks.map((task) => [task.name, new Card(task)]));
    this.classes = Math.max(1, ...tasks.map((task) => task.labels?.length ?? 1)); // all, whatever the server's --top-k
    this.time = make("span", { class: "time" });
    this.hint = make("p", { class: "soft" });
    this.title = make("span");
    const cards = make("div", { class: "cards" }, ...[...this.cards.values()].map((card) => card.element));
    this.head = make("h2", {}, this.title, this.time);
    this.element = make("section", { class: "group" }, this.head, this.hint, cards);
  }

  /** Tell which texts the answers are about where there are answers about others, too. */
  name(both) {
    this.title.textContent = !both ? "Answers" : this.pair ? "Both texts" : "First text";
  }

  clear(sentence = "") {
    say(this.hint, sentence);
    this.head.hidden = true;
    for (const card of this.cards.values()) card.element.hidden = true;
  }

  /** Fill the cards of picked tasks with answers; return these in sentences, for those who do not see the page. */
  async fill(texts, { tasks, teacher }, signal, waiting) {
    const names = tasks.map((task) => task.name).filter((name) => this.cards.has(name));
    this.element.hidden = !names.length;
    if (!names.length) return "";
    const [first, second] = texts;
    if (!first.trim() || (this.pair && !second.trim())) {
      this.clear(this.wanted(names, texts));
      return "";
    }
    const said = await predict([first], this.pair ? [second] : null, names, teacher, this.classes, signal, waiting);
    signal.throwIfAborted();
    say(this.hint);
    this.head.hidden = false;
    const taught = names.some((name) => said.teacher?.answers[0][name]);
    const time = `${said.teacher ? "student " : ""}${duration(said.milliseconds)}`;
    this.time.textContent = taught ? `${time}, teacher ${duration(said.teacher.milliseconds)}` : time;
    for (const [name, card] of this.cards) card.element.hidden = !names.includes(name);
    return names.map((name) => this.show(name, said)).join(" ");
  }

  show(name, said) {
    const answer = said.answers[0][name];
    const other = said.teacher?.answers[0][name];
    const apart = said.differ?.[0].includes(name) ?? false;
    this.cards.get(name).show(said.teacher ? [["student", answer], ["teacher", other]] : [["", answer]], apart);
    const one = (each) => word(each) + (each.label ? ` ${percent(each.probabilities[each.label])}` : "");
    return `${name}: ${one(answer)}${apart ? `, but the teacher says ${one(other)}` : ""}.`;
  }

  wanted(names, [first, second]) {
    if (!this.pair) return second.trim() ? "Type a first text." : "Type a text to see what the model says of it.";
    const missing = first.trim() ? "a second text" : second.trim() ? "a first text" : "two texts";
    return `Type ${missing} to see ${names.join(", ")}.`;
  }
}
