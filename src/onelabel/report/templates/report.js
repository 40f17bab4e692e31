"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const value = (row, at) => {
    const text = row.cells[at].dataset.value;
    return text === undefined ? row.cells[at].textContent : text === "" ? null : Number(text);
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending" || (at === 0 && !head.hasAttribute("aria-sort"));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].sort((one, two) => {
        const a = value(one, at), b = value(two, at);
        if (a === null || b === null) return (a === null) - (b === null);  // what is unknown comes last
        const order = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
}
const search = document.getElementById("class-search");
if (search) {
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const row of document.querySelectorAll("#class-table tbody tr"))
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
}
document.documentElement.dataset.ready = "true";
