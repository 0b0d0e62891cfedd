// The waves of a product, one by one: which tiles run together, and what they read.
(() => {
  "use strict";
  for (const whole of document.querySelectorAll(".gallery-tiles")) {
    const figures = [...whole.querySelectorAll("figure")];
    const read = figures.map((figure) => JSON.parse(figure.dataset.read));
    const count = read[0].length;
    const processors = Number(whole.dataset.processors);
    const tiles = Number(whole.dataset.tiles);
    const label = document.createElement("label");
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: count, value: 0 });
    const words = document.createElement("output");
    const text = () => {
      const wave = Number(slider.value);
      if (!wave) return `All ${count} waves`;
      const first = (wave - 1) * processors;
      const last = Math.min(first + processors, tiles) - 1;
      return `Wave ${wave} of ${count}: ${last === first ? `program ${first}` : `programs ${first} to ${last}`}`;
    };
    function show() {
      const wave = Number(slider.value);
      whole.classList.toggle("one-wave", wave > 0);
      figures.forEach((figure, number) => {
        [...figure.querySelectorAll(".wave")].forEach((group, at) => {
          group.classList.toggle("now", at === wave - 1);
          group.classList.toggle("later", wave > 0 && at > wave - 1);
        });
        const caption = figure.querySelector("figcaption");
        caption.dataset.name ??= caption.textContent;
        const tilesRead = wave ? read[number][wave - 1] : read[number].reduce((a, b) => a + b);
        caption.textContent = `${caption.dataset.name}: ${tilesRead} tiles read`;
      });
      const said = figures.map((figure) => figure.querySelector("figcaption").textContent.toLowerCase());
      words.textContent = text();
      slider.setAttribute("aria-valuetext", `${text()}; ${said.join("; ")}`);
    }
    slider.addEventListener("input", show);
    // The theme turns pages with these keys.
    slider.addEventListener("keydown", (event) => event.stopPropagation());
    label.append("Go through the waves ", slider, words);
    whole.prepend(label);
    show();
  }
})();
