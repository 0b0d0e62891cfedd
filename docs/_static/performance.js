// Used by: gallery-chart
// The performance page: filters of the chart, which stand in the address, and tables that sort.
(() => {
  "use strict";
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const value = (row, column) => {
      const text = row.cells[column].textContent.trim();
      return Number.isNaN(parseFloat(text)) ? text : parseFloat(text);
    };
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
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

  const chart = document.querySelector(".gallery-chart");
  const rows = [...chart.querySelectorAll(".chart-row")];
  const filters = Object.assign(document.createElement("div"), { className: "gallery-filters" });
  const status = document.createElement("span");
  status.setAttribute("role", "status");
  const names = { lesson: "Page", beside: "Beside", verdict: "Result" };
  const selects = Object.entries(names).map(([name, words]) => {
    const label = document.createElement("label");
    const select = Object.assign(document.createElement("select"), { name });
    const values = [...new Set(rows.map((row) => row.dataset[name]))].sort();
    select.append(new Option("all", ""), ...values.map((text) => new Option(text)));
    label.append(`${words} `, select);
    filters.append(label);
    return select;
  });
  filters.append(status);
  chart.before(filters);

  function apply() {
    let count = 0;
    for (const row of rows) {
      row.hidden = !selects.every((select) => !select.value || row.dataset[select.name] === select.value);
      count += row.hidden ? 0 : 1;
    }
    for (const group of chart.querySelectorAll(".chart-group")) group.hidden = !group.querySelector(".chart-row:not([hidden])");
    status.textContent = count < rows.length ? `${count} of ${rows.length}` : "";
  }
  const asked = new URLSearchParams(location.search);
  for (const select of selects) {
    const wanted = asked.get(select.name);
    if ([...select.options].some((option) => option.value === wanted)) select.value = wanted;
  }
  filters.addEventListener("change", () => {
    const chosen = new URLSearchParams();
    for (const select of selects) if (select.value) chosen.set(select.name, select.value);
    const query = chosen.size ? `?${chosen}` : location.pathname;
    history.replaceState(null, "", query + location.hash);
    apply();
  });
  apply();
})();
