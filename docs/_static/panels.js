// Used by: gallery-panel
// The tabs of a panel. Without this script each tab but the first is a fold below it.
(() => {
  "use strict";
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  let count = 0;

  function tabsOf(panel) {
    const tabs = [...panel.children].filter((child) => child.matches(".gallery-tab"));
    const list = make("div", { className: "gallery-tabs" });
    const row = make("div", {});
    row.setAttribute("role", "tablist");
    const buttons = tabs.map((tab) => {
      count += 1;
      tab.id ||= `panel-tab-${count}`;
      const title = tab.dataset.title ?? tab.querySelector(":scope > summary").textContent;
      const button = make("button", { type: "button", textContent: title });
      button.setAttribute("role", "tab");
      button.setAttribute("aria-controls", tab.id);
      tab.setAttribute("role", "tabpanel");
      tab.setAttribute("aria-label", title);
      return button;
    });
    function choose(number) {
      tabs.forEach((tab, i) => {
        tab.classList.toggle("chosen", i === number);
        if (tab.matches("details")) tab.open = i === number; // its content may load when it opens
        buttons[i].setAttribute("aria-selected", String(i === number));
        buttons[i].tabIndex = i === number ? 0 : -1;
      });
      dispatchEvent(new Event("resize")); // boxes that were hidden have a width now
    }
    buttons.forEach((button, number) => button.addEventListener("click", () => choose(number)));
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length;
      choose(next);
      buttons[next].focus();
    });
    row.append(...buttons);
    list.append(row);
    const file = panel.querySelector(":scope > .gallery-data-link"); // the data of a figure
    if (file) {
      const link = make("a", { href: file.querySelector("a").href, textContent: "CSV", title: file.textContent.trim() });
      link.download = "";
      list.append(link);
      file.hidden = true;
    }
    panel.prepend(list);
    panel.classList.add("tabbed");
    choose(0);
  }

  document.querySelectorAll(".gallery-panel").forEach(tabsOf);
})();
