// Used by: gallery-figure
// A figure: a crosshair with the values of all lines at one size, by mouse, finger or arrow keys, and
// buttons that switch lines off. The page has the figure without this script.
(() => {
  "use strict";
  const make = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  for (const figure of document.querySelectorAll(".gallery-figure")) {
    const data = JSON.parse(figure.dataset.figure);
    const off = new Set();
    const values = make("div", { className: "values", hidden: true });
    values.setAttribute("role", "status");
    figure.append(values);
    let at = -1;

    const drawn = () => [...figure.querySelectorAll("svg")].findIndex((svg) => svg.checkVisibility());
    function show(number) {
      at = number;
      const which = drawn();
      const svg = figure.querySelectorAll("svg")[which];
      const scale = svg.getBoundingClientRect().width / data.widths[which];
      const place = data.places[which][number];
      for (const cross of figure.querySelectorAll(".cross")) {
        cross.setAttribute("x1", place);
        cross.setAttribute("x2", place);
      }
      const rows = data.series
        .filter((series) => series.texts[number] && !off.has(series.name))
        .sort((a, b) => b.values[number] - a.values[number])
        .map((series) => make("span", { className: series.kind }, make("i", { textContent: series.name }), series.texts[number]));
      values.replaceChildren(make("b", { textContent: data.sizes[number] }), ...rows);
      values.hidden = false;
      figure.classList.add("pointed");
      const left = svg.offsetLeft + svg.getBoundingClientRect().left - svg.parentElement.getBoundingClientRect().left + place * scale;
      const room = figure.clientWidth;
      values.style.left = `${left + 14 + values.offsetWidth > room ? Math.max(2, left - 14 - values.offsetWidth) : left + 14}px`;
      values.style.top = `${svg.getBoundingClientRect().top - figure.getBoundingClientRect().top + 16}px`;
    }
    function hide() {
      values.hidden = true;
      figure.classList.remove("pointed");
    }
    function nearest(event) {
      const which = drawn();
      const box = figure.querySelectorAll("svg")[which].getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * data.widths[which];
      const places = data.places[which];
      return places.reduce((best, place, i) => (Math.abs(place - x) < Math.abs(places[best] - x) ? i : best), 0);
    }
    for (const svg of figure.querySelectorAll("svg")) {
      svg.addEventListener("pointermove", (event) => show(nearest(event)));
      svg.addEventListener("pointerdown", (event) => show(nearest(event)));
      svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
    }
    figure.tabIndex = 0;
    figure.setAttribute("role", "group");
    figure.setAttribute("aria-label", "Figure; the arrow keys read its values");
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      show(Math.min(Math.max(at + step, 0), data.sizes.length - 1));
    });
    figure.addEventListener("blur", hide);

    const keys = make("div", { className: "gallery-keys" });
    keys.setAttribute("role", "group");
    keys.setAttribute("aria-label", "Lines of the figure");
    for (const series of data.series) {
      const button = make("button", { type: "button", className: series.kind, textContent: series.name });
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (!off.delete(series.name)) off.add(series.name);
        const gone = off.has(series.name);
        button.setAttribute("aria-pressed", String(!gone));
        for (const group of figure.querySelectorAll(".series")) {
          if (group.dataset.name === series.name) group.classList.toggle("off", gone);
        }
      });
      keys.append(button);
    }
    figure.append(keys);
  }
})();
