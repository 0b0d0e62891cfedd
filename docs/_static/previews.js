// Names of the API and words of the glossary show their sentence when the mouse rests on a link to
// them, or when it has the focus. The sentences are one file, which loads at the first such link.
(() => {
  "use strict";
  const REST = 250; // milliseconds
  const root = document.documentElement.dataset.content_root || "";
  const base = new URL(root, location.href);
  let sentences = null;
  let waiting = [];
  window.galleryPreviews = (table) => {
    sentences = table;
    for (const resume of waiting) resume();
    waiting = [];
  };
  function load(resume) {
    if (sentences) { resume(); return; }
    if (!waiting.length) document.head.append(Object.assign(document.createElement("script"), { src: `${root}_static/previews-data.js` }));
    waiting.push(resume);
  }

  const box = Object.assign(document.createElement("div"), { className: "gallery-preview", hidden: true, id: "gallery-preview" });
  box.setAttribute("role", "tooltip");
  let link = null;
  let timer = 0;

  // "glossary.html#term-warp" for a link to it, where a sentence may be known.
  function nameOf(a) {
    const url = new URL(a.href, location.href);
    if (!url.hash || !url.href.startsWith(base.href)) return "";
    const name = url.pathname.slice(base.pathname.length) + url.hash;
    return /^(glossary|python-api\/)/.test(name) ? name : "";
  }
  function show(a) {
    const text = sentences[nameOf(a)];
    if (!text || link !== a) return;
    if (!box.isConnected) document.body.append(box);
    if (a.title) { a.dataset.title = a.title; a.removeAttribute("title"); } // or the browser shows a second one
    box.textContent = text;
    box.hidden = false;
    a.setAttribute("aria-describedby", box.id);
    const place = a.getClientRects()[0];
    const left = Math.min(place.left, document.documentElement.clientWidth - box.offsetWidth - 8);
    box.style.left = `${scrollX + Math.max(8, left)}px`;
    const below = place.bottom + box.offsetHeight + 8 < innerHeight;
    box.style.top = `${scrollY + (below ? place.bottom + 4 : place.top - box.offsetHeight - 4)}px`;
  }
  function hide() {
    clearTimeout(timer);
    link?.removeAttribute("aria-describedby");
    link = null;
    box.hidden = true;
  }
  function begin(event, delay) {
    const a = event.target.closest?.(".rst-content a[href*='#']");
    if (!a || !nameOf(a) || a === link || a.matches(".headerlink")) return;
    hide();
    link = a;
    timer = setTimeout(() => load(() => show(a)), delay);
  }
  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    if (event.target === box) { clearTimeout(timer); return; }
    begin(event, REST);
  });
  document.addEventListener("pointerout", (event) => {
    if (!link || !(event.target === box || link.contains(event.target))) return;
    if (event.relatedTarget === box || link.contains(event.relatedTarget)) return;
    clearTimeout(timer);
    timer = setTimeout(hide, 150);
  });
  document.addEventListener("focusin", (event) => { if (event.target.matches?.(":focus-visible")) begin(event, 0); });
  document.addEventListener("focusout", () => hide());
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();
