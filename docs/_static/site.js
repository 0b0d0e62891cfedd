// On every page: the button for light and dark, and wide boxes that the keyboard can scroll.
(() => {
  "use strict";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  for (const button of document.querySelectorAll(".gallery-theme")) {
    const name = () => { button.textContent = shown() === "dark" ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = shown() === "dark" ? "light" : "dark";
      try { localStorage.setItem("gallery-theme", root.dataset.theme); } catch { /* not remembered */ }
      name();
    });
    dark.addEventListener("change", name);
    name();
  }

  const boxes = "pre, .wy-table-responsive, div.math, .rst-content figure";
  function letKeyboardScroll() {
    for (const box of document.querySelectorAll(boxes)) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    }
  }
  addEventListener("load", letKeyboardScroll);
  addEventListener("resize", letKeyboardScroll);
  document.addEventListener("toggle", letKeyboardScroll, true); // a fold that opens
})();
