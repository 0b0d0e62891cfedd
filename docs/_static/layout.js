// The section being read is marked in the margin; a button changes the colors and remembers it.
(() => {
  "use strict";
  // Boxes are observed and never measured: a browser has not laid out what is far away.
  const links = new Map();
  for (const link of document.querySelectorAll(".gallery-contents a[href^='#']")) {
    const target = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (target) links.set(target.closest("section, dl.py"), link);
  }
  const near = new Set();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) near[entry.isIntersecting ? "add" : "delete"](entry.target);
    // The last section that reaches into the upper third of the window.
    const now = [...links.keys()].filter((section) => near.has(section)).at(-1);
    for (const [section, link] of links) {
      if (section === now) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const nav = document.querySelector(".gallery-contents");
    const link = links.get(now);
    if (link && nav.scrollHeight > nav.clientHeight) nav.scrollTop = link.offsetTop - nav.clientHeight / 2;
  }, { rootMargin: "0px 0px -66% 0px" });
  const wide = matchMedia("(min-width: 1500px)"); // layout.css shows the list from there on
  const follow = () => {
    watch.disconnect();
    if (wide.matches) for (const section of links.keys()) watch.observe(section);
  };
  wide.addEventListener("change", follow);
  follow();

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  for (const button of document.querySelectorAll(".gallery-theme")) {
    const name = () => { button.textContent = shown() === "dark" ? "Light" : "Dark"; };
    button.setAttribute("title", "Change between light and dark");
    button.addEventListener("click", () => {
      root.dataset.theme = shown() === "dark" ? "light" : "dark";
      try { localStorage.setItem("gallery-theme", root.dataset.theme); } catch { /* not remembered */ }
      name();
    });
    dark.addEventListener("change", name);
    name();
  }
})();
