// Elements of the page, found and made. Texts of users and models become text nodes, never markup.

export const find = (id) => document.getElementById(id);

/** Make an element with attributes and children; strings among these stay text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Show a sentence in a place that is hidden while it has nothing to say. */
export function say(place, sentence = "") {
  place.textContent = sentence;
  place.hidden = !sentence;
}
