// The performance page: tables sort by their heads; the first one has filters by lesson and library.
(() => {
  "use strict";
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const value = (row, column) => {
      const cell = row.cells[column];
      const bar = cell.querySelector("svg");
      const text = (bar ? bar.getAttribute("aria-label").split(": ")[1] : cell.textContent).trim();
      return Number.isNaN(parseFloat(text)) ? text : parseFloat(text);
    };
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.querySelector("p").childNodes);
      head.querySelector("p").append(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((one, two) => {
          const [a, b] = [value(one, column), value(two, column)];
          return (a > b ? 1 : a < b ? -1 : 0) * (down ? -1 : 1);
        });
        body.append(...rows);
      });
    });
  }
  const table = document.querySelector("table.sortable");
  if (!table) return;
  const rows = [...table.tBodies[0].rows];
  const lesson = (row) => row.querySelector(".gallery-lesson").textContent.split(" · ")[0];
  const beside = (row) => row.cells[1].textContent.trim();
  const filters = Object.assign(document.createElement("div"), { className: "gallery-filters" });
  const choose = [["Lesson", lesson], ["Beside", beside]].map(([name, of]) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.append(new Option("all", ""), ...[...new Set(rows.map(of))].sort().map((text) => new Option(text)));
    label.append(`${name} `, select);
    filters.append(label);
    return (row) => !select.value || of(row) === select.value;
  });
  filters.addEventListener("change", () => {
    for (const row of rows) row.hidden = !choose.every((fits) => fits(row));
  });
  (table.closest(".wy-table-responsive") || table).before(filters);
})();
