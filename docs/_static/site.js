// On every page: light and dark, the menu of a phone, the section in view, progress, wide boxes.
(() => {
  "use strict";
  const all = (selector) => [...document.querySelectorAll(selector)];
  const root = document.documentElement;
  const kept = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
  const keep = (key, value) => { try { localStorage.setItem(key, value); } catch { /* not remembered */ } };

  // Light and dark.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  for (const button of all(".gallery-theme")) {
    const name = () => { button.textContent = shown() === "dark" ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = shown() === "dark" ? "light" : "dark";
      keep("gallery-theme", root.dataset.theme);
      name();
    });
    dark.addEventListener("change", name);
    name();
  }

  // The menu: open on a phone, and scrolled to the page.
  const side = document.querySelector(".wy-nav-side");
  const menu = document.querySelector(".gallery-menu");
  const open = (wanted) => {
    side.classList.toggle("shift", wanted);
    menu.setAttribute("aria-expanded", String(wanted));
  };
  menu?.addEventListener("click", () => open(!side.classList.contains("shift")));
  document.querySelector(".wy-nav-content-wrap")?.addEventListener("click", () => open(false));
  addEventListener("keydown", (event) => { if (event.key === "Escape") open(false); });
  side?.addEventListener("click", (event) => { if (event.target.closest("a")) open(false); });
  const here = side?.querySelector("a.current");
  if (here) side.firstElementChild.scrollTop = here.offsetTop - 120;

  // The section in view, in both lists of sections.
  const headings = all(".gallery-sections a").map((a) => document.getElementById(decodeURIComponent(a.hash.slice(1))));
  function markSection() {
    // A link leads to where the bar and its like end, and what loads later may move the text a little.
    const edge = parseFloat(getComputedStyle(root).scrollPaddingTop) + 40;
    const above = headings.filter((section) => section && section.getBoundingClientRect().top < edge);
    const id = above.length ? `#${above.at(-1).id}` : "";
    for (const link of all(".gallery-sections a, li.toctree-l2 a")) {
      if (id && decodeURIComponent(link.hash) === id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const other = document.querySelector(".gallery-same-section");
    if (other) other.hash = id;
  }
  if (headings.length) {
    let asked = 0;
    addEventListener("scroll", () => { asked ||= requestAnimationFrame(() => { asked = 0; markSection(); }); }, { passive: true });
    addEventListener("load", markSection);
    markSection();
  }

  // Progress: lessons that were opened, and those whose question was answered or whose end was reached.
  const top = new URL(root.dataset.content_root, location.href).pathname;
  const progress = JSON.parse(kept("gallery-progress") || "{}");
  const nameOf = (url) => url.pathname.slice(top.length).replace(/[.]html$/, "");
  const lesson = document.querySelector("[data-lesson]")?.dataset.lesson;
  function markProgress() {
    for (const link of all(".wy-menu-vertical li.toctree-l1 > a, .gallery-card-title a")) {
      const state = progress[nameOf(new URL(link.href))];
      if (!state) continue;
      link.dataset.progress = state;
      link.title = state === "done" ? "Finished" : "Opened";
    }
  }
  function note(state) {
    if (!lesson || progress[lesson] === "done") return;
    progress[lesson] = state;
    keep("gallery-progress", JSON.stringify(progress));
    markProgress();
  }
  markProgress();
  note("seen");
  addEventListener("gallery-answered", () => note("done"));
  const end = document.querySelector(".gallery-way");
  if (lesson && end) new IntersectionObserver(([entry]) => { if (entry.isIntersecting) note("done"); }).observe(end);

  // An entry that stood on this page: its old address leads to its page.
  const old = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)))?.closest(".api-index-pages :is(a, p)");
  if (old) location.replace(old.matches("a") ? old.href.replace(/#.*/, location.hash) : old.querySelector("a").href);

  // The page as Markdown.
  for (const button of all(".gallery-copy")) {
    button.addEventListener("click", async () => {
      const answer = await fetch(button.dataset.twin).catch(() => null);
      if (!answer?.ok) { location.href = button.dataset.twin; return; }
      await navigator.clipboard.writeText(await answer.text());
      button.textContent = "Copied";
    });
  }

  // Wide tables scroll by themselves, and the keyboard scrolls all wide boxes.
  for (const table of all(".rst-content table.docutils:not(.field-list, .footnote, .citation)")) {
    const box = Object.assign(document.createElement("div"), { className: "wy-table-responsive wide" });
    table.replaceWith(box);
    box.append(table);
  }
  function letKeyboardScroll() {
    for (const box of all(".wy-table-responsive")) box.classList.toggle("wide", box.firstElementChild.offsetWidth > box.clientWidth + 1);
    for (const box of all("pre, .wy-table-responsive, div.math, .rst-content figure, .wy-side-scroll, .gallery-sections")) {
      if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight + 1) box.tabIndex = 0;
    }
  }
  addEventListener("load", letKeyboardScroll);
  addEventListener("resize", letKeyboardScroll);
  document.addEventListener("toggle", letKeyboardScroll, true); // a fold that opens

  // The search loads when it is wanted.
  const form = document.querySelector(".gallery-search");
  const field = form?.querySelector("input");
  let loaded = false;
  function load() {
    if (loaded) return;
    loaded = true;
    const wait = Object.assign(document.createElement("p"), { className: "gallery-results gallery-searching", textContent: "Searching…", hidden: !field.value });
    field.addEventListener("input", () => { wait.hidden = !field.value; });
    form.append(wait);
    for (const src of form.dataset.scripts.split(" ")) {
      document.head.append(Object.assign(document.createElement("script"), { src, async: false }));
    }
  }
  field?.addEventListener("focus", load);
  if (document.getElementById("search-results")) load();
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if ((event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) || (event.key === "k" && (event.ctrlKey || event.metaKey))) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  });
})();
