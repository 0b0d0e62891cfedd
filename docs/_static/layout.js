// The section being read is marked in the margin; a button changes the colors and remembers it.
(() => {
  "use strict";
  const links = new Map();
  for (const link of document.querySelectorAll(".gallery-contents a[href^='#']")) {
    const section = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (section) links.set(section, link);
  }
  const visible = new Set();
  const mark = () => {
    // The last section that has begun above the middle of the window, else the first that shows.
    const begun = [...links.keys()].filter((s) => s.getBoundingClientRect().top < innerHeight / 3);
    const now = begun.at(-1) || [...links.keys()].find((s) => visible.has(s));
    for (const [section, link] of links) {
      if (section === now) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const nav = document.querySelector(".gallery-contents");
    const link = links.get(now);
    if (link && nav.scrollHeight > nav.clientHeight) nav.scrollTop = link.offsetTop - nav.clientHeight / 2;
  };
  if (links.size) {
    const watch = new IntersectionObserver((entries) => {
      for (const entry of entries) visible[entry.isIntersecting ? "add" : "delete"](entry.target);
      mark();
    }, { threshold: [0, 0.1], rootMargin: "0px 0px -66% 0px" });
    for (const section of links.keys()) watch.observe(section);
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  for (const button of document.querySelectorAll(".gallery-theme")) {
    const name = () => { button.textContent = shown() === "dark" ? "Light" : "Dark"; };
    button.setAttribute("title", "Change between light and dark");
    button.hidden = false;
    button.addEventListener("click", () => {
      root.dataset.theme = shown() === "dark" ? "light" : "dark";
      try { localStorage.setItem("gallery-theme", root.dataset.theme); } catch { /* not remembered */ }
      name();
    });
    dark.addEventListener("change", name);
    name();
  }
})();
