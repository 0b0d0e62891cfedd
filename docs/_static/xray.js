// Used by: gallery-xray
// The intermediate code of a kernel beside its source. Opening its tab fetches it; choosing a line of
// the source, by mouse or keyboard, marks the lines that were compiled from it.
(function () {
  "use strict";
  const NAMES = { ttgir: "TTGIR", ptx: "PTX", amdgcn: "AMDGCN" };
  const waiting = new Map();

  // Each file calls this with its own name and its data.
  window.galleryXray = (name, data) => {
    for (const place of waiting.get(name) ?? []) show(place, data);
    waiting.delete(name);
  };

  function make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function list(lines, kind) {
    return make("pre", { className: kind, tabIndex: 0 }, ...lines.map(([line, text, number]) => {
      const row = make("span", { className: "line" }, `${text}\n`);
      row.dataset.line = line;
      if (number) row.dataset.number = number;
      return row;
    }));
  }

  function show(place, data) {
    const kinds = Object.keys(data.codes);
    const made = new Set(kinds.flatMap((kind) => data.codes[kind].map(([line]) => line)));
    const source = list(data.source.map((text, i) => [data.first + i, text, i + 1]), "source");
    const code = make("div", { className: "code" });
    const choice = make("div", { className: "kinds" });
    choice.setAttribute("role", "group");
    choice.setAttribute("aria-label", "Which code");
    let marked = 0;

    function mark(line) {
      marked = line;
      for (const row of place.querySelectorAll(".line")) {
        row.classList.toggle("marked", line > 0 && row.dataset.line === String(line));
      }
      const first = code.querySelector(".marked");
      if (first) first.parentElement.scrollTop = first.offsetTop - 40;
    }
    function choose(kind) {
      code.replaceChildren(list(data.codes[kind], "made"));
      for (const button of choice.children) {
        button.setAttribute("aria-pressed", String(button.value === kind));
      }
      mark(marked);
    }
    for (const kind of kinds) {
      const button = make("button", { type: "button", value: kind, textContent: NAMES[kind] });
      button.addEventListener("click", () => choose(kind));
      choice.append(button);
    }
    for (const row of source.children) {
      const line = Number(row.dataset.line);
      if (!made.has(line)) continue;
      row.classList.add("choosable");
      row.tabIndex = 0;
      row.setAttribute("role", "button");
      row.addEventListener("click", () => mark(line));
      row.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        mark(line);
      });
    }
    source.removeAttribute("tabindex");
    const hint = make("p", {}, "Choose a line of the kernel to see what it became.");
    const both = make("div", { className: "both" }, make("div", {}, source), make("div", {}, code));
    place.replaceChildren(hint, choice, both);
    if (kinds.length) choose(kinds.includes("ptx") ? "ptx" : kinds[0]);
  }

  function wait(place) {
    place.closest("details")?.addEventListener("toggle", () => {
      const name = place.dataset.source.replace(/^.*\//, "").replace(/\.js$/, "");
      waiting.set(name, [...(waiting.get(name) ?? []), place]);
      document.head.append(make("script", { src: place.dataset.source }));
    }, { once: true });
  }
  document.querySelectorAll(".gallery-xray").forEach(wait);
})();
