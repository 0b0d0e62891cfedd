// Used by: gallery-tiles
// A slider through the waves of a product: which tiles run together, and which tiles they read.
(() => {
  "use strict";
  for (const whole of document.querySelectorAll(".gallery-tiles")) {
    const figures = [...whole.querySelectorAll("figure")];
    const captions = figures.map((figure) => figure.querySelector("figcaption"));
    const names = captions.map((caption) => caption.textContent);
    const read = figures.map((figure) => JSON.parse(figure.dataset.read));
    const count = read[0].length;
    const { processors, tiles } = whole.dataset;
    const label = document.createElement("label");
    const slider = Object.assign(document.createElement("input"), { type: "range", min: 0, max: count, value: 0 });
    const words = document.createElement("output");

    function text(wave) {
      if (!wave) return `All ${count} waves`;
      const first = (wave - 1) * processors;
      const last = Math.min(first + Number(processors), tiles) - 1;
      return `Wave ${wave} of ${count}: ${last === first ? `program ${first}` : `programs ${first} to ${last}`}`;
    }
    function show() {
      const wave = Number(slider.value);
      whole.classList.toggle("one-wave", wave > 0);
      figures.forEach((figure, number) => {
        [...figure.querySelectorAll(".wave")].forEach((group, at) => {
          group.classList.toggle("now", at === wave - 1);
          group.classList.toggle("later", wave > 0 && at > wave - 1);
        });
        const tilesRead = wave ? read[number][wave - 1] : read[number].reduce((a, b) => a + b);
        captions[number].textContent = `${names[number]}: ${tilesRead} tiles read`;
      });
      words.textContent = text(wave);
      const counted = captions.map((caption) => caption.textContent.toLowerCase());
      slider.setAttribute("aria-valuetext", [text(wave), ...counted].join("; "));
    }
    slider.addEventListener("input", show);
    label.append("Go through the waves ", slider, words);
    whole.prepend(label);
    show();
  }
})();
