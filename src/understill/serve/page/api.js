// The server: asked once, or until it has time. Texts travel in bodies, never in addresses.

/** What the server did not answer, in a sentence for people; status 0 says that it was not reached. */
export class Refused extends Error {
  constructor(sentence, status, wait = 1) {
    super(sentence);
    this.status = status;
    this.wait = wait; // seconds, when the server is busy
  }
}

let key = "";

/** Keep a key for the requests to come; memory is the only place it is in. */
export function useKey(value) {
  if (!/^[\x21-\x7e]+$/.test(value)) throw new Refused("A key has letters, digits and signs, and no spaces.", 401);
  key = value;
}

export const hasKey = () => key !== "";

/** Ask for an address, with a body or without, and return what the JSON says. */
async function ask(address, body, signal) {
  const headers = { Accept: "application/json" };
  if (body) headers["Content-Type"] = "application/json";
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  let said;
  try {
    response = await fetch(address, { method: body ? "POST" : "GET", headers, body, signal, cache: "no-store" });
    said = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server cannot be reached. See whether it still runs, then try again.", 0);
  }
  let answer;
  try {
    answer = JSON.parse(said);
  } catch {
    throw new Refused(`The server answered ${response.status}, and nothing that this page can read.`, response.status);
  }
  if (response.ok) return answer;
  const sentence = answer.error ?? `The server answered ${response.status}.`;
  throw new Refused(sentence, response.status, Number(response.headers.get("Retry-After")) || 1);
}

/** Ask again while the server says that it is busy; `waiting` is told how many seconds there are to wait. */
export async function askPatiently(address, body, signal, waiting) {
  for (;;) {
    try {
      return await ask(address, body, signal);
    } catch (error) {
      if (error.status !== 503) throw error;
      waiting(error.wait);
      await pause(error.wait * 1000, signal);
    }
  }
}

/** Wait for milliseconds, or until given up. */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal.addEventListener("abort", stop, { once: true });
  });
}

/** Ask what is said of texts, or of pairs of them, with the probabilities of so many classes. */
export function predict(texts, pairs, tasks, teacher, classes, signal, waiting) {
  const question = JSON.stringify({ texts, pairs, tasks, teacher, top_k: classes });
  return askPatiently("v1/predict", question, signal, waiting);
}
