"use strict";
// Each table of rows shows its first few; a search looks through all of them.
for (const part of document.querySelectorAll(".rows")) {
  const rows = [...part.querySelectorAll("tbody tr")];
  const field = part.querySelector("input"), more = part.querySelector("button"), status = part.querySelector("output");
  let most = 20;
  const show = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let matches = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = words.every((word) => text.includes(word));
      matches += fits;
      row.hidden = !fits || matches > most;
    }
    more.hidden = matches <= most;
    status.textContent = `${Math.min(matches, most)} of ${matches} shown`;
  };
  field.addEventListener("input", () => { most = 20; show(); });
  more.addEventListener("click", () => { most += 100; show(); });
  part.querySelector(".search").hidden = false;
  show();
}
