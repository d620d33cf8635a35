// Numbers as text, by the rules of understill/numbers.py: tests/test_numbers.py holds both to the same cases.

const format = (options) => new Intl.NumberFormat("en", { roundingMode: "halfEven", ...options }).format;
const fixed = (digits) => format({ minimumFractionDigits: digits, maximumFractionDigits: digits });
const whole = fixed(0), tenths = fixed(1), threeDigits = format({ maximumSignificantDigits: 3 });
const twoPlaces = (number) => String(number).padStart(2, "0");

export const amount = (number) => number.toLocaleString("en");
/** Write a count with its noun. */
export const count = (number, one, many = `${one}s`) => `${amount(number)} ${number === 1 ? one : many}`;
export const percent = (share) => `${tenths(100 * share)}\u00a0%`;

/** Write milliseconds in the unit that people would use. */
export function duration(milliseconds) {
  const seconds = milliseconds / 1000;
  if (seconds <= 0) return "0\u00a0s";
  if (seconds < 0.9995) return `${threeDigits(milliseconds)}\u00a0ms`;
  if (seconds < 9.95) return `${tenths(seconds)}\u00a0s`;
  const rounded = Number(whole(seconds).replaceAll(",", ""));
  if (rounded < 90) return `${rounded}\u00a0s`;
  const minutes = Math.floor(rounded / 60);
  if (rounded < 5400) return `${minutes}\u00a0min ${twoPlaces(rounded % 60)}\u00a0s`;
  return `${amount(Math.floor(minutes / 60))}\u00a0h ${twoPlaces(minutes % 60)}\u00a0min`;
}
