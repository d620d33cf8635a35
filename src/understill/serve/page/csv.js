// Tables as text: decoded, read with whatever separates their cells, and written again.

/** What may separate cells, in words; nothing does where every line is a text. */
export const SEPARATORS = { ",": "commas", ";": "semicolons", "\t": "tabs", "": "nothing: a text per line" };

const BOM = "\ufeff";
//: Rows that a guess looks at.
const LOOK = 200;
//: What columns of texts are called; those of second texts come with a number, a letter or a name of their own.
const FIRST = /text|sentence|question|premise|message|review|comment|query|ticket|title|body|content|utterance|first/i;
const SECOND = /(?<!^column )2$|(^|[^a-z])b$|hypothesis|second|candidate|answer|reply|passage|statement|claim/i;

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
  if (!text.includes("\0")) return text;
  throw new Error("This is no text in UTF-8. Save it as “CSV UTF-8”, then choose it again.");
}

const breaksIn = (text) => text.match(/\r\n|\n|\r/g)?.length ?? 0;

/** Read rows of cells. What cannot be read ends the table, and a sentence says why. */
export function parse(text, separator, quotes = true, most = Infinity) {
  const found = { rows: [], quoted: false, fault: null };
  const end = text.length;
  const stop = new RegExp(`[${separator}\r\n]`, "g");
  let at = text.startsWith(BOM) ? 1 : 0;
  let line = 1;
  while (at < end && found.rows.length < most) {
    const row = [];
    do {
      if (row.length) at += 1; // past the separator
      const start = at;
      if (quotes && separator && text[at] === '"') {
        let cell = "";
        do {
          const close = text.indexOf('"', at + 1);
          if (close < 0) return { ...found, fault: `Line ${line}: a cell begins with a quote that is never closed.` };
          cell += text.slice(at + 1, close + 1);
          at = close + 1;
        } while (text[at] === '"');
        if (at < end && !(separator + "\r\n").includes(text[at])) {
          const rule = "Quotes inside a cell have to be doubled.";
          return { ...found, fault: `Line ${line}: a cell goes on after its closing quote. ${rule}` };
        }
        row.push(cell.slice(0, -1));
        line += breaksIn(cell);
        found.quoted = true;
      } else {
        stop.lastIndex = at;
        at = stop.exec(text)?.index ?? end;
        row.push(text.slice(start, at));
      }
    } while (at < end && text[at] === separator);
    found.rows.push(row);
    at += text.startsWith("\r\n", at) ? 2 : 1;
    line += 1;
  }
  return found;
}

const isBlank = (row) => row.length === 1 && row[0] === "";
const withoutBlanks = (rows) => rows.filter((row) => !isBlank(row));

/** Count the rows that have more or fewer cells than the first. */
function oddOnes(rows) {
  const full = withoutBlanks(rows);
  return full.filter((row) => row.length !== full[0].length).length;
}

/** Read cells. Between tabs, a quote may enclose a cell or be a character like any other: what fits better is taken. */
function cellsOf(text, separator, most) {
  const read = parse(text, separator, true, most);
  if (separator !== "\t" || !(read.fault || oddOnes(read.rows))) return read;
  const plain = parse(text, separator, false, most);
  return read.fault || oddOnes(plain.rows) < oddOnes(read.rows) ? plain : read;
}

/** Guess whether the first row has the names of columns. */
export function guessNames(text, separator) {
  return looksLikeNames(withoutBlanks(cellsOf(text, separator, LOOK).rows)[0] ?? [""]);
}

function looksLikeNames(row) {
  const names = row.map((cell) => cell.trim());
  const isShort = (name) => name.length <= 40 && name.split(/\s+/).length <= 4;
  const isName = (name) => name && isNaN(name) && isShort(name) && !/[.!?…]$/.test(name);
  if (!names.every(isName)) return false;
  // A cell that stands alone, or is there twice, is a name if it sounds like one.
  const distinct = new Set(names).size === names.length;
  return (names.length > 1 && distinct) || names.some((name) => FIRST.test(name));
}

/** Guess what separates cells: what gives the first rows one width, and the greatest. */
export function guessSeparator(text) {
  let best = { separator: "", share: 0, width: 1 };
  for (const separator of [",", ";", "\t"]) {
    const { rows, quoted, fault } = cellsOf(text, separator, LOOK);
    const full = withoutBlanks(rows);
    if (full.length < 2 && !(full.length && fault && looksLikeNames(full[0]))) continue;
    const width = full[0].length;
    const share = 1 - oddOnes(full) / full.length;
    // Sentences have commas, too: rows without names above them have to agree on more.
    const fits = width > 1 && share >= (looksLikeNames(full[0]) ? 0.5 : 0.8);
    const better = share > best.share || (share === best.share && width > best.width);
    const column = quoted && width === 1 && share === 1 && !fault;
    if ((fits && better) || (column && !best.separator)) best = { separator, share: fits ? share : 0, width };
  }
  return best.separator;
}

/** Guess which columns hold texts, by name, then by length; a second one by name alone, unless there must be one. */
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
  const { rows, fault } = cellsOf(text, separator);
  while (rows.length && isBlank(rows.at(-1))) rows.pop();
  const blank = rows.findIndex((row) => !isBlank(row)); // how many come before the first that is not
  const width = rows.reduce((most, row) => Math.max(most, row.length), 0);
  const usual = rows[blank]?.length;
  const written = named && rows.length ? rows[blank] : [];
  rows.splice(0, named ? blank + 1 : blank);
  const odd = new Set();
  rows.forEach((row, place) => {
    if (row.length !== usual && !isBlank(row)) odd.add(place);
    while (row.length < width) row.push("");
  });
  const unnamed = (place) => (width > 1 ? `column ${place + 1}` : "text");
  const called = Array.from({ length: width }, (_, place) => written[place]?.trim() || unnamed(place));
  const isTwice = (name) => called.indexOf(name) !== called.lastIndexOf(name);
  const names = called.map((name, place) => (isTwice(name) ? `${name} (column ${place + 1})` : name));
  const header = called.map((name, place) => written[place] ?? name);
  return { names, header, rows, odd, fault };
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
