// On every page: light and dark, the menu of a phone, the section in view, progress, wide boxes.
(() => {
  "use strict";
  const all = (selector) => [...document.querySelectorAll(selector)];
  const root = document.documentElement;

  // What this browser keeps. Other sites of the same host share the store, so a name says whose it is.
  const STORE = "triton-gallery ";
  const kept = (key) => { try { return localStorage.getItem(STORE + key); } catch { return null; } };
  const keep = (key, value) => { try { localStorage.setItem(STORE + key, value); } catch { /* not remembered */ } };
  window.galleryStore = { kept, keep };

  // The element that an address names; none for one that is damaged.
  function elementAt(hash) {
    try { return document.getElementById(decodeURIComponent(hash.slice(1))); } catch { return null; }
  }

  // Light and dark.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shown = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  for (const button of all(".gallery-theme")) {
    const name = () => { button.textContent = shown() === "dark" ? "Light" : "Dark"; };
    button.addEventListener("click", () => {
      root.dataset.theme = shown() === "dark" ? "light" : "dark";
      keep("theme", root.dataset.theme);
      name();
    });
    dark.addEventListener("change", name);
    name();
  }

  // The menu: open where it has no room beside the page, and scrolled to the page.
  const side = document.querySelector(".wy-nav-side");
  const menu = document.querySelector(".gallery-menu");
  const open = (wanted) => {
    side.classList.toggle("shift", wanted);
    menu.setAttribute("aria-expanded", String(wanted));
  };
  menu?.addEventListener("click", () => open(!side.classList.contains("shift")));
  document.querySelector(".wy-nav-content-wrap")?.addEventListener("click", () => open(false));
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !side?.classList.contains("shift")) return;
    open(false);
    menu.focus();
  });
  side?.addEventListener("click", (event) => { if (event.target.closest("a")) open(false); });
  const here = side?.querySelector("a.current");
  if (here) side.firstElementChild.scrollTop = here.offsetTop - 120;

  // What opens below a word closes by Esc, which gives the focus back, and by a click elsewhere.
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const opened of all(".gallery-opens[open]")) {
      opened.open = false;
      opened.querySelector("summary").focus();
    }
  });
  document.addEventListener("click", (event) => {
    for (const opened of all(".gallery-opens[open]")) if (!opened.contains(event.target)) opened.open = false;
  });

  // A sign behind a heading copies the address of its place.
  document.addEventListener("click", (event) => {
    const sign = event.target.closest?.(".headerlink");
    if (!sign || event.ctrlKey || event.metaKey || !navigator.clipboard) return;
    navigator.clipboard.writeText(sign.href).then(() => {
      const text = sign.textContent;
      if (sign.classList.contains("copied")) return;
      sign.classList.add("copied");
      sign.textContent = "copied";
      setTimeout(() => { sign.textContent = text; sign.classList.remove("copied"); }, 1500);
    }, () => { /* the address is in the bar of the browser */ });
  });

  // The section in view, in both lists of sections.
  const headings = all(".gallery-sections a").map((a) => elementAt(a.hash));
  function markSection() {
    // A link leads to where the bar and its like end, and what loads later may move the text a little.
    const edge = parseFloat(getComputedStyle(root).scrollPaddingTop) + 40;
    const above = headings.filter((section) => section && section.getBoundingClientRect().top < edge);
    const id = above.length ? `#${above.at(-1).id}` : "";
    for (const link of all(".gallery-sections a, li.toctree-l2 a")) {
      if (id && elementAt(link.hash)?.id === id.slice(1)) link.setAttribute("aria-current", "true");
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

  // Progress: lessons that were opened, and those whose end was reached.
  const top = new URL(root.dataset.content_root, location.href).pathname;
  function keptProgress() {
    try {
      const found = JSON.parse(kept("progress"));
      return found && typeof found === "object" ? found : {};
    } catch { return {}; } // damaged: it starts anew
  }
  const progress = keptProgress();
  const nameOf = (url) => url.pathname.slice(top.length).replace(/[.]html$/, "");
  const lesson = document.querySelector("[data-lesson]")?.dataset.lesson;
  function markProgress() {
    for (const link of all(".wy-menu-vertical li.toctree-l1 > a, .gallery-row a")) {
      const state = progress[nameOf(new URL(link.href))];
      if (state !== "seen" && state !== "done") continue;
      link.dataset.progress = state;
      link.title = state === "done" ? "Finished" : "Opened";
    }
  }
  function note(state) {
    if (!lesson || progress[lesson] === "done") return;
    progress[lesson] = state;
    keep("progress", JSON.stringify(progress));
    markProgress();
  }
  markProgress();
  note("seen");
  const end = document.querySelector(".gallery-way");
  if (lesson && end) new IntersectionObserver(([entry]) => { if (entry.isIntersecting) note("done"); }).observe(end);

  // An entry that stood on this page: its old address leads to its page.
  const old = location.hash && elementAt(location.hash)?.closest(".api-index-pages :is(a, p)");
  if (old) location.replace(old.matches("a") ? old.href.replace(/#.*/, location.hash) : old.querySelector("a").href);

  // The page as Markdown.
  for (const button of all(".gallery-copy")) {
    const name = button.textContent;
    button.addEventListener("click", async () => {
      const answer = await fetch(button.dataset.twin).catch(() => null);
      if (!answer?.ok) { location.href = button.dataset.twin; return; }
      await navigator.clipboard.writeText(await answer.text());
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = name; }, 2000);
    });
  }

  // The head of a table that fits stays below the bar, and the keyboard scrolls all wide boxes.
  function letKeyboardScroll() {
    for (const box of all(".gallery-scroll")) {
      box.classList.remove("fits");
      box.classList.toggle("fits", box.scrollWidth <= box.clientWidth + 1);
    }
    for (const box of all("pre, .gallery-scroll:not(.fits), div.math, a.sphx-glr-single-img, .wy-side-scroll, .gallery-sections")) {
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
