// Numbers, written in one way all over the page.

export const amount = (number) => number.toLocaleString("en");
/** Write a count with its noun. */
export const count = (number, one, many = `${one}s`) => `${amount(number)} ${number === 1 ? one : many}`;
export const percent = (share) => `${(100 * share).toFixed(1)}\u00a0%`;

/** Write milliseconds as the unit that people would use. */
export function duration(milliseconds) {
  if (milliseconds < 9.95) return `${milliseconds.toFixed(1)}\u00a0ms`;
  if (milliseconds < 999.5) return `${Math.round(milliseconds)}\u00a0ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 99.95) return `${seconds.toFixed(1)}\u00a0s`;
  return `${amount(Math.floor(Math.round(seconds) / 60))}\u00a0min ${Math.round(seconds) % 60}\u00a0s`;
}
