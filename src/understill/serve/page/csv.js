// Tables as text: decoded, read with whatever separates their cells, and written again.

/** What may separate cells, in words; nothing does where every line is a text. */
export const SEPARATORS = { ",": "commas", ";": "semicolons", "\t": "tabs", "": "nothing: a text per line" };

const BOM = "\ufeff";
//: Rows that a guess looks at.
const LOOK = 200;

/** Return the text in a file's bytes, or throw an error that says what to do. */
export function decode(bytes) {
  const start = `${bytes[0]} ${bytes[1]}`;
  const name = { "255 254": "utf-16le", "254 255": "utf-16be" }[start] ?? "utf-8";
  let text;
  try {
    text = new TextDecoder(name, { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    text = "\0";
  }
  if (text.includes("\0")) throw new Error("This is no text in UTF-8. Save it as “CSV UTF-8”, then choose it again.");
  return text;
}

/** Read rows of cells and where each begins. What cannot be read ends the table with a fault; a sentence tells of it. */
export function parse(text, separator, quotes = true, most = Infinity) {
  const rows = [];
  const starts = [];
  const end = text.length;
  const stop = new RegExp(`[${separator}\r\n]`, "g");
  let at = text.startsWith(BOM) ? 1 : 0;
  const fault = (start, what) => ({ rows, starts, fault: `Line ${lineOf(text, start)}: ${what}` });
  while (at < end && rows.length < most) {
    const row = [];
    starts.push(at);
    for (;;) {
      const start = at;
      let cell = "";
      if (quotes && separator && text[at] === '"') {
        do {
          const close = text.indexOf('"', at + 1);
          if (close < 0) return fault(start, "a cell begins with a quote that is never closed.");
          cell += text.slice(at + 1, close + 1);
          at = close + 1;
        } while (text[at] === '"');
        cell = cell.slice(0, -1);
        if (at < end && text[at] !== separator && text[at] !== "\r" && text[at] !== "\n") {
          return fault(start, "a cell begins with a quote and goes on after the closing one. Double the quotes inside cells.");
        }
      } else {
        stop.lastIndex = at;
        at = stop.exec(text)?.index ?? end;
        cell = text.slice(start, at);
      }
      row.push(cell);
      if (at < end && text[at] === separator) at += 1;
      else break;
    }
    rows.push(row);
    at += text.startsWith("\r\n", at) ? 2 : 1;
  }
  return { rows, starts, fault: null };
}

/** Return the number of the line that a place in a text is in. */
export const lineOf = (text, place) => text.slice(0, place).split(/\r\n|\n|\r/).length;

const isBlank = (row) => row.length === 1 && row[0] === "";
const oddOnes = (rows) => rows.filter((row) => !isBlank(row) && row.length !== rows[0].length).length;

/** Read cells. In tables of tabs a quote may enclose a cell or be a character like any other: what fits better is taken. */
export function cellsOf(text, separator, most) {
  const read = parse(text, separator, true, most);
  if (separator !== "\t" || !(read.fault || oddOnes(read.rows))) return read;
  const plain = parse(text, separator, false, most);
  return read.fault || oddOnes(plain.rows) < oddOnes(read.rows) ? plain : read;
}

/** Guess whether the first row has the names of columns. */
export const guessNames = (text, separator) => looksLikeNames(cellsOf(text, separator, 1).rows[0] ?? [""]);

function looksLikeNames(row) {
  const names = row.map((cell) => cell.trim());
  const fine = (name) => name && name.length <= 40 && name.split(/\s+/).length <= 4 && !/[.!?…]$/.test(name) && isNaN(name);
  if (!names.every(fine) || new Set(names).size < names.length) return false;
  return names.length > 1 || FIRST.test(names[0]);
}

/** Guess what separates cells: what gives the first rows one width, and the greatest. */
export function guessSeparator(text) {
  let best = { separator: "", share: 0, width: 1 };
  for (const separator of [",", ";", "\t"]) {
    const { rows, starts, fault } = cellsOf(text, separator, LOOK);
    const full = rows.filter((row) => !isBlank(row));
    if (full.length < 2 && !(full.length && fault && looksLikeNames(full[0]))) continue;
    const width = full[0].length;
    const share = 1 - oddOnes(full) / full.length;
    // Sentences have commas, too: rows without names above them have to agree on more.
    const fits = width > 1 && share >= (looksLikeNames(full[0]) ? 0.5 : 0.8);
    const better = share > best.share || (share === best.share && width > best.width);
    const quoted = width === 1 && share === 1 && !fault && starts.some((place) => text[place] === '"');
    if ((fits && better) || (quoted && !best.separator)) best = { separator, share: fits ? share : 0, width };
  }
  return best.separator;
}

//: What columns of texts are called; those of second texts come with a number, a letter or a name of their own.
const FIRST = /text|sentence|question|premise|message|review|comment|query|ticket|title|body|content|utterance|first/i;
const SECOND = /(?<!^column )2$|(^|[^a-z])b$|hypothesis|second|candidate|answer|reply|passage|statement|claim/i;

/** Guess which columns hold texts: by their names, then by how long their cells are; a second one only where it must. */
export function guessColumns(names, rows, must) {
  const places = names.map((_, place) => place);
  const sizes = places.map((place) => rows.slice(0, LOOK).reduce((sum, row) => sum + row[place].length, 0));
  const longest = (some) => some.reduce((best, place) => (best < 0 || sizes[place] > sizes[best] ? place : best), -1);
  const called = (pattern) => places.filter((place) => pattern.test(names[place]));
  const seconds = called(SECOND);
  const firsts = called(FIRST).filter((place) => !seconds.includes(place));
  const first = longest(firsts.length ? firsts : places);
  const others = (some) => some.filter((place) => place !== first);
  const second = longest(others(seconds));
  return [first, second < 0 && must ? longest(others(places)) : second];
}

/** Read a table: its names, its rows, and which of these have more or fewer cells than they should. */
export function readTable(text, separator, named) {
  const { rows, starts, fault } = cellsOf(text, separator);
  while (rows.length && isBlank(rows.at(-1))) rows.pop();
  while (rows.length && isBlank(rows[0])) {
    rows.shift();
    starts.shift();
  }
  const odd = new Set();
  const first = rows[0] ?? [];
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  const written = named ? rows.shift() : [];
  if (named) starts.shift();
  rows.forEach((row, place) => {
    if (row.length !== first.length && !isBlank(row)) odd.add(place);
    while (row.length < width) row.push("");
  });
  const names = Array.from({ length: width }, (_, place) => written[place]?.trim() || (width > 1 ? `column ${place + 1}` : "text"));
  const header = names.map((name, place) => written[place] ?? name);
  return { names, header, rows, odd, fault, line: (place) => lineOf(text, starts[place]) };
}

/** Write rows as text, quotes where they are needed. */
export function write(rows, separator, newline) {
  const needs = new RegExp(`["\r\n${separator}]`);
  const cell = (value) => (needs.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return rows.map((row) => row.map(cell).join(separator) + newline).join("");
}

/** Return what a table is written with so that it is like the text it came from. */
export function habitsOf(text, separator) {
  return {
    start: text.startsWith(BOM) ? BOM : "",
    separator: separator || ",",
    newline: /\r\n|\n|$/.exec(text)[0] || "\n",
  };
}
