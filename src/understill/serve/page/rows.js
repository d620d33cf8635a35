// Rows of a job, drawn: what was said of each, what was said in all, and what could not be answered.

import { percent } from "./answers.js";
import { count, make } from "./dom.js";

//: Characters of a text that a table shows, classes that a tally names, and lines that a note names.
const LONG = 300;
const NAMED = 5;

const short = (text) => (text.length > LONG ? `${text.slice(0, LONG)} …` : text);

/** Draw the head and the body of a table of some rows. */
export function drawRows(job, places) {
  const names = job.columns.map((column) => job.table.names[column]);
  const said = job.tasks.flatMap(({ name }) => (job.teacher ? [name, `${name}, teacher`] : [name]));
  const head = ["", ...names, ...said].map((name) => make("th", { scope: "col" }, name));
  const rows = places.map((place) => {
    const texts = job.columns.map((column) => make("td", { class: "text", dir: "auto" }, short(job.table.rows[place][column])));
    const answers = job.tasks.flatMap(({ name }) => cells(job.answers[place]?.[name], job.teacher));
    return make("tr", {}, make("th", { scope: "row", class: "n" }, (place + 1).toLocaleString("en")), ...texts, ...answers);
  });
  return [make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)];
}

function cells(answer, teacher) {
  const one = make("td", {}, ...words(answer?.student));
  if (!teacher) return [one];
  const other = words(answer?.teacher);
  return [one, make("td", {}, ...(answer?.differ ? [make("mark", {}, "≠ ", ...other)] : other))];
}

function words(answer) {
  if (!answer) return [];
  if (answer.label === undefined) return [answer.score.toFixed(2)];
  return [answer.label, " ", make("span", { class: "soft" }, percent(answer.probability))];
}

/** Draw what was said in all: how often each class, the mean of scores, and how often the teacher differs. */
export function drawTally(job) {
  const head = ["task", "answers", ...(job.teacher ? ["the teacher differs"] : [])].map((name) => make("th", { scope: "col" }, name));
  const rows = job.tasks.map(({ name }) => {
    const said = job.answers.map((answer) => answer?.[name]).filter(Boolean);
    const row = [make("th", { scope: "row" }, name), make("td", {}, inAll(said.map((each) => each.student)))];
    const apart = said.filter((each) => each.differ).length;
    const share = said.length ? ` (${percent(apart / said.length)})` : "";
    if (job.teacher) row.push(make("td", {}, `${apart.toLocaleString("en")} of ${count(said.length, "row")}${share}`));
    return make("tr", {}, ...row);
  });
  return make("table", {}, make("caption", {}, "In all"), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

function inAll(answers) {
  if (!answers.length) return "–";
  if (answers[0].label === undefined) {
    const scores = answers.map((each) => each.score);
    const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
    const ends = scores.reduce(([low, high], score) => [Math.min(low, score), Math.max(high, score)], [Infinity, -Infinity]);
    return `mean ${mean.toFixed(2)}, from ${ends[0].toFixed(2)} to ${ends[1].toFixed(2)}`;
  }
  const counts = new Map();
  for (const { label } of answers) counts.set(label, (counts.get(label) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const parts = sorted.slice(0, NAMED).map(([label, times]) => `${label} ${percent(times / answers.length)}`);
  if (sorted.length > NAMED) parts.push(`${sorted.length - NAMED} more`);
  return parts.join(", ");
}

/** Tell in sentences which rows get no answers, and why. */
export function notesOf(job) {
  const { odd, empty, long } = job.faults;
  const names = job.leftOut.map((task) => task.name).join(", ");
  const refused = [...job.refused];
  const notes = [
    [!job.picked.tasks.length, () => "No task is picked."],
    [names, () => `${names}: no answers without a column for the second text.`],
    [odd.length, () => `${linesOf(job, odd)}: more or fewer cells than in the first row, so no answers.`],
    [empty.length, () => `${linesOf(job, empty)}: a text is missing, and answers that need it are left blank.`],
    [long.length, () => `${linesOf(job, long)}: a text is longer than the server takes, and answers that need it are left blank.`],
    [refused.length, () => `${linesOf(job, refused.map(([place]) => place))}: refused. The server said: ${refused[0][1]}`],
  ];
  return notes.filter(([is]) => is).map(([, sentence]) => sentence());
}

function linesOf(job, places) {
  const some = places.slice(0, NAMED).map((place) => job.table.line(place).toLocaleString("en"));
  const more = places.length - some.length;
  return `${places.length === 1 ? "Line" : "Lines"} ${some.join(", ")}${more ? ` and ${more.toLocaleString("en")} more` : ""}`;
}
