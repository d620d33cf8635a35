// Answers: one card for each task, with bars for classes and a scale for scores; a teacher's stand beside the model's.

import { make } from "./dom.js";
import { percent } from "./numbers.js";

//: Classes that a card shows; of more than these it shows the likeliest, and a button for the rest.
const FEW = 6;

/** Put an answer into a word: its label, its score, or several of them by their names. */
export const word = (answer) => answer.label ?? answer.score?.toFixed(2) ?? Object.entries(answer.scores)
  .map(([name, score]) => `${name} ${score.toFixed(2)}`).join(", ");
/** Tell of a teacher that cannot be asked. */
export const LACKS = "does not have this task";

/** A task's card: what is said in a word, and all of it below. */
export class Card {
  constructor(task) {
    this.differ = make("span", { class: "differ" }, "they differ");
    this.said = make("div", { class: "said" });
    this.body = task.labels ? new Bars(task.labels) : new Scale(task.range);
    const head = make("header", {}, make("h3", {}, task.name), this.differ);
    this.element = make("article", { class: "card", "data-task": task.name }, head, this.said, this.body.element);
  }

  /** Show answers as [who, answer], one or two of them; a model alone needs no name, one without the task no answer. */
  show(answers, apart) {
    this.differ.hidden = !apart;
    this.element.classList.toggle("apart", apart);
    this.said.replaceChildren(...answers.map(makeWord));
    this.body.show(answers.filter(([, answer]) => answer));
  }
}

function makeWord([who, answer]) {
  const by = who ? [make("span", { class: `by ${who}` }, who), " "] : [];
  if (!answer) return make("p", {}, ...by, make("span", { class: "soft" }, LACKS));
  const sure = answer.probabilities?.[answer.label];
  const share = sure === undefined ? [] : [" ", make("span", { class: "sure" }, percent(sure))];
  return make("p", {}, ...by, make("strong", { dir: "auto" }, word(answer)), ...share);
}

/** Give one element for each answer. Those that are there stay, so that they move to where they belong. */
function keep(parent, answers, kind) {
  while (parent.children.length > answers.length) parent.lastChild.remove();
  while (parent.children.length < answers.length) {
    parent.append(make("span", { class: `${kind} who${parent.children.length}` }));
  }
  return parent.children;
}

/** The probabilities of classes: a line for each, with a bar for each answer. */
class Bars {
  constructor(labels) {
    this.lines = labels.map(makeLine);
    this.list = make("ul", { class: "bars" }, ...this.lines.map((line) => line.element));
    this.element = make("div", {}, this.list);
    this.few = labels.length > FEW;
    if (!this.few) return;
    this.more = make("button", { type: "button", class: "plain more" });
    this.more.addEventListener("click", () => {
      this.few = !this.few;
      this.sort();
    });
    this.element.append(this.more);
  }

  show(answers) {
    for (const line of this.lines) {
      const shares = answers.map(([, answer]) => answer.probabilities[line.label]);
      const fills = keep(line.tracks, answers, "fill");
      shares.forEach((share, place) => { fills[place].style.width = `${100 * share}%`; });
      line.most = Math.max(...shares);
      line.numbers.replaceChildren(...answers.map(([who], place) => {
        const unseen = make("span", { class: "unseen" }, who ? `${who} ` : "");
        return make("span", {}, unseen, percent(shares[place]));
      }));
    }
    if (this.more) this.sort();
  }

  /** Put the likeliest first, and show these alone or all. */
  sort() {
    const sorted = [...this.lines].sort((a, b) => b.most - a.most);
    sorted.forEach((line, place) => { line.element.hidden = this.few && place >= FEW - 1; });
    this.list.append(...sorted.map((line) => line.element));
    this.more.textContent = this.few ? `All ${this.lines.length} classes` : "Fewer";
    this.more.setAttribute("aria-expanded", String(!this.few));
  }
}

function makeLine(label) {
  const tracks = make("span", { class: "tracks", "aria-hidden": "true" });
  const numbers = make("span", { class: "numbers" });
  const element = make("li", {}, make("span", { class: "label", dir: "auto" }, label), tracks, numbers);
  return { label, tracks, numbers, element, most: 0 };
}

/** Scores: a mark for each on the line from the lowest to the highest, where there are such. */
class Scale {
  constructor(range) {
    this.range = range;
    this.line = make("span", { class: "line" });
    const ends = (range ?? []).map((end) => make("span", {}, String(end)));
    const scale = [this.line, make("span", { class: "ends" }, ...ends)];
    this.element = range
      ? make("div", { class: "scale", "aria-hidden": "true" }, ...scale)
      : make("p", { class: "soft" }, "A higher score fits better.");
  }

  show(answers) {
    if (!this.range) return;
    const [low, high] = this.range;
    const marks = keep(this.line, answers, "mark");
    answers.forEach(([, answer], place) => {
      if (answer.scores) return; // several on one line would not say which is which
      const share = (answer.score - low) / (high - low);
      marks[place].style.left = `${100 * Math.min(1, Math.max(0, share))}%`;
    });
  }
}
