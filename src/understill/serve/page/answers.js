// Answers: one card for each task, with bars for classes and a scale for scores; a teacher's stand beside the model's.

import { make } from "./dom.js";

//: Classes that are shown at first where there are many.
const FEW = 6;

export const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;
export const milliseconds = (time) => `${time < 10 ? time.toFixed(1) : Math.round(time)}\u00a0ms`;
/** Put an answer into a word: its label, or its score. */
export const word = (answer) => answer?.label ?? (answer ? answer.score.toFixed(2) : "–");

/** A task's card. `show` fills it with what was said by each, by name: the model, or student and teacher. */
export function makeCard(task) {
  const differ = make("span", { class: "differ" }, "they differ");
  const said = make("div", { class: "said" });
  const body = task.labels ? makeBars(task) : makeScale(task);
  const title = make("h3", {}, task.name);
  const element = make("article", { class: "card", "data-task": task.name }, make("header", {}, title, differ), said, body.element);
  const show = (answers, apart) => {
    differ.hidden = !apart;
    element.classList.toggle("apart", Boolean(apart));
    said.replaceChildren(...Object.entries(answers).map(([by, answer]) => makeWord(by, answer)));
    body.show(Object.entries(answers));
  };
  return { element, show };
}

function makeWord(by, answer) {
  const parts = [make("strong", { dir: "auto" }, word(answer))];
  if (answer?.probabilities) parts.push(" ", make("span", { class: "sure" }, percent(answer.probabilities[answer.label])));
  if (by) parts.unshift(make("span", { class: `by ${by}` }, by), " ");
  return make("p", {}, ...parts);
}

function makeBars(task) {
  const list = make("ul", { class: "bars" });
  const more = make("button", { type: "button", class: "more", "aria-expanded": "false" });
  const lines = task.labels.map((label) => {
    const tracks = make("span", { class: "tracks", "aria-hidden": "true" });
    const numbers = make("span", { class: "numbers" });
    const element = make("li", {}, make("span", { class: "label", dir: "auto" }, label), tracks, numbers);
    return { label, tracks, numbers, element };
  });
  list.append(...lines.map((line) => line.element));
  let answers = [];
  let all = task.labels.length <= FEW;
  const arrange = () => {
    if (task.labels.length <= FEW) return;
    const most = (line) => Math.max(...answers.map(([, answer]) => answer?.probabilities[line.label] ?? 0));
    const sorted = [...lines].sort((a, b) => most(b) - most(a));
    sorted.forEach((line, place) => { line.element.hidden = !all && place >= FEW - 1; });
    list.append(...sorted.map((line) => line.element));
    more.textContent = all ? "Fewer" : `All ${task.labels.length} classes`;
    more.setAttribute("aria-expanded", String(all));
  };
  more.addEventListener("click", () => {
    all = !all;
    arrange();
  });
  const show = (given) => {
    answers = given;
    for (const { label, tracks, numbers } of lines) {
      const shares = answers.map(([, answer]) => answer?.probabilities[label] ?? 0);
      // Bars stay, so that they move to their new length; numbers are written anew.
      while (tracks.children.length > shares.length) tracks.lastChild.remove();
      while (tracks.children.length < shares.length) tracks.append(make("span", { class: `fill who${tracks.children.length}` }));
      shares.forEach((share, place) => { tracks.children[place].style.width = `${100 * share}%`; });
      numbers.replaceChildren(...answers.map(([by, answer], place) => {
        const who = make("span", { class: "unseen" }, by ? `${by} ` : "");
        return make("span", {}, who, answer ? percent(shares[place]) : "–");
      }));
    }
    arrange();
  };
  const element = make("div", {}, list);
  if (task.labels.length > FEW) element.append(more);
  return { element, show };
}

function makeScale(task) {
  const element = make("div", { class: "scale", "aria-hidden": "true" });
  if (!task.range) return { element: make("p", { class: "soft" }, "A higher score fits better."), show: () => {} };
  const [low, high] = task.range;
  const line = make("span", { class: "line" });
  element.append(line, make("span", { class: "ends" }, make("span", {}, String(low)), make("span", {}, String(high))));
  const show = (answers) => {
    const marks = answers.map(([, answer], place) => {
      const mark = line.children[place] ?? make("span", { class: `mark who${place}` });
      const share = answer ? (answer.score - low) / (high - low) : 0;
      mark.hidden = !answer;
      mark.style.left = `${100 * Math.min(1, Math.max(0, share))}%`;
      return mark;
    });
    line.replaceChildren(...marks);
  };
  return { element, show };
}
