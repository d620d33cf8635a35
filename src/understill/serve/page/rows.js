// Rows of a job, drawn: what was said of each, what was said in all, and what could not be answered.

import { LACKS, word } from "./answers.js";
import { make } from "./dom.js";
import { amount, count, percent } from "./numbers.js";

//: Characters of a text that a table shows, classes that a tally names, and rows that a note names.
const LONG = 300;
const NAMED = 5;

const short = (text) => (text.length > LONG ? `${text.slice(0, LONG)} …` : text);

/** Draw the head and the body of a table of some rows. */
export function drawRows(job, places) {
  const texts = job.columns.map((column) => job.table.names[column]);
  const said = job.tasks.flatMap((task) => [task.name, ...(job.isTaught(task) ? [`${task.name}, teacher`] : [])]);
  return table(["row", ...texts, ...said], places.map((place) => drawRow(job, place)));
}

function drawRow(job, place) {
  const row = job.table.rows[place];
  const number = make("th", { scope: "row", class: "n" }, amount(place + 1));
  const texts = job.columns.map((column) => make("td", { class: "text", dir: "auto" }, short(row[column])));
  const answers = job.tasks.flatMap((task) => cells(job.answers[place]?.[task.name], job.isTaught(task)));
  return make("tr", {}, number, ...texts, ...answers);
}

function table(names, rows) {
  const head = names.map((name) => make("th", { scope: "col" }, name));
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
  if (answer.label === undefined) return [word(answer)];
  return [make("bdi", {}, answer.label), " ", make("span", { class: "soft" }, percent(answer.probability))];
}

/** Draw what was said in all: how often each class, the mean of scores, and how often the teacher differs. */
export function drawTally(job) {
  const rows = job.tasks.map((task) => {
    const said = job.answers.map((answer) => answer?.[task.name]).filter(Boolean);
    const row = [make("th", { scope: "row" }, task.name), make("td", {}, ...inAll(said.map((each) => each.student)))];
    if (job.teacher) row.push(make("td", {}, job.isTaught(task) ? differing(said) : LACKS));
    return make("tr", {}, ...row);
  });
  const names = ["task", "answers", ...(job.teacher ? ["the teacher differs"] : [])];
  return make("table", {}, make("caption", {}, "In all"), ...table(names, rows));
}

function differing(said) {
  if (!said.length) return "–";
  const times = said.filter((each) => each.differ).length;
  return `${amount(times)} of ${count(said.length, "row")} (${percent(times / said.length)})`;
}

function inAll(answers) {
  if (!answers.length) return ["–"];
  if (answers[0].scores) return ["–"];
  if (answers[0].label === undefined) {
    const scores = answers.map((each) => each.score);
    const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;
    const low = scores.reduce((a, b) => Math.min(a, b));
    const high = scores.reduce((a, b) => Math.max(a, b));
    return [`mean ${mean.toFixed(2)}, from ${low.toFixed(2)} to ${high.toFixed(2)}`];
  }
  const counts = new Map();
  for (const { label } of answers) counts.set(label, (counts.get(label) ?? 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const more = sorted.length > NAMED ? [`, ${amount(sorted.length - NAMED)} more`] : [];
  const parts = sorted.slice(0, NAMED).flatMap(([label, times], place) => [
    place ? ", " : "", make("bdi", {}, label), ` ${percent(times / answers.length)}`,
  ]);
  return [...parts, ...more];
}

/** Tell in sentences which rows get no answers, and why. */
export function notesOf(job) {
  const { odd, empty, long } = job.faults;
  const left = "and answers that need it are left blank";
  const leftOut = job.choice.tasks.filter((task) => !job.tasks.includes(task)).map((task) => task.name);
  const refused = [...job.refused.keys()];
  const notes = [];
  if (!job.choice.tasks.length) notes.push("No task is picked.");
  if (leftOut.length) notes.push(`${leftOut.join(", ")}: no answers without a column for the second text.`);
  if (odd.length) notes.push(`${rowsOf(odd)}: more or fewer cells than in the first row, so no answers.`);
  if (empty.length) notes.push(`${rowsOf(empty)}: a text is missing, ${left}.`);
  if (long.length) notes.push(`${rowsOf(long)}: a text is longer than the server takes, ${left}.`);
  if (refused.length) notes.push(`${rowsOf(refused)}: refused. The server said: ${job.refused.get(refused[0])}`);
  return notes;
}

function rowsOf(places) {
  const some = places.slice(0, NAMED).map((place) => amount(place + 1));
  const more = places.length - some.length;
  const rest = more ? ` and ${amount(more)} more` : "";
  return `${places.length === 1 ? "Row" : "Rows"} ${some.join(", ")}${rest}`;
}
