// The page: what the server can do, which tasks are picked, and which view is shown.

import { askPatiently, hasKey, Refused, useKey } from "./api.js";
import { find, make, say } from "./dom.js";
import { count } from "./numbers.js";
import { Sheet } from "./sheet.js";
import { Typing } from "./typing.js";

//: Tasks that are picked one by one; of more than these, all can be dropped and taken at once.
const FEW = 8;

let views = [];
const refresh = () => views.forEach((view) => view.refresh());

/** Show what went wrong, or that nothing does any more; a key that is missing or wrong is asked for. */
function failed(error) {
  if (error && !(error instanceof Refused)) console.error(error);
  const locked = error?.status === 401;
  if (locked && hasKey()) find("lock-why").textContent = "The server does not know this key.";
  const before = find("lock").hidden;
  find("lock").hidden = !locked;
  if (locked && before) find("key").focus();
  say(find("trouble"), locked ? "" : error?.message);
}

function unlock(event) {
  event.preventDefault();
  try {
    useKey(find("key").value.trim());
  } catch (error) {
    find("lock-why").textContent = error.message;
    return;
  }
  failed(null);
  if (views.length) refresh();
  else start();
}

/** Make a box to tick for each task; return what tells which are ticked. */
function makePicks(server) {
  const boxes = server.tasks.map((task) => {
    const box = make("input", { type: "checkbox", autocomplete: "off" });
    box.checked = true;
    const name = make("span", {}, task.name);
    if (task.pair) name.append(make("small", {}, " two texts"));
    find("tasks").append(make("label", { class: "chip" }, box, name));
    return box;
  });
  if (boxes.length > FEW) find("tasks").append(makeAll(boxes));
  find("models").hidden = !server.teacher;
  return () => ({
    tasks: server.tasks.filter((_, place) => boxes[place].checked),
    teacher: Boolean(server.teacher) && find("teacher").checked,
  });
}

/** Make the button that drops all tasks, or takes all if none is picked. */
function makeAll(boxes) {
  const all = make("button", { type: "button", class: "plain" });
  const none = () => boxes.every((box) => !box.checked);
  const name = () => { all.textContent = none() ? "Pick all" : "Pick none"; };
  all.addEventListener("click", () => {
    const checked = none();
    for (const box of boxes) box.checked = checked;
    all.dispatchEvent(new Event("change", { bubbles: true }));
  });
  find("tasks").addEventListener("change", name);
  name();
  return all;
}

function show(view) {
  find(`view-${view}`).checked = true;
  for (const name of ["text", "file"]) find(name).hidden = name !== view;
}

async function start() {
  let server;
  try {
    const waiting = () => say(find("trouble"), "The server is not ready yet. This page goes on as soon as it is.");
    server = await askPatiently("v1/tasks", null, new AbortController().signal, waiting);
  } catch (error) {
    find("about").textContent = "";
    failed(error);
    return;
  }
  failed(null);
  document.title = `${server.model} · understill`;
  find("model").textContent = server.model;
  const teacher = server.teacher ? `, beside its teacher ${server.teacher}` : "";
  find("about").textContent = `A model of ${count(server.tasks.length, "task")}${teacher}`;
  const picked = makePicks(server);
  find("ready").hidden = false;
  find("first").focus();
  views = [new Typing(server, picked, failed), new Sheet(server, picked, failed, () => show("file"))];
  find("picks").addEventListener("change", refresh);
}

find("lock").addEventListener("submit", unlock);
for (const view of ["text", "file"]) find(`view-${view}`).addEventListener("change", () => show(view));
start();
