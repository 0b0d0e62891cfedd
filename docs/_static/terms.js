// What a word of the glossary means, at the pointer, the keyboard's focus or the first tap on it.
// The link to the glossary stays: a click, Enter or the second tap follows it. Escape closes.
(() => {
  "use strict";
  const links = [...document.querySelectorAll("a[href*='glossary.html#term-']")];
  if (!links.length) return;
  const box = Object.assign(document.createElement("div"), { className: "gallery-definition", id: "gallery-definition", hidden: true });
  box.setAttribute("role", "tooltip");
  document.body.append(box);
  let definitions = null;
  let open = null;
  let timer = 0;
  let tapped = false;

  window.galleryTerms = (found) => {
    definitions = found;
    if (open) show(open);
  };
  function load() {
    const src = links[0].href.replace(/glossary\.html.*$/, "_static/glossary-terms.js");
    document.head.append(Object.assign(document.createElement("script"), { src }));
  }
  for (const kind of ["pointerover", "focusin"]) {
    document.addEventListener(kind, () => { if (definitions === null) { definitions = {}; load(); } }, { once: true });
  }

  function show(link) {
    clearTimeout(timer);
    if (open !== link) hide();
    open = link;
    const text = definitions?.[decodeURIComponent(link.hash.slice(1))];
    if (!text) return;
    box.textContent = text;
    box.hidden = false;
    link.setAttribute("aria-describedby", box.id);
    const at = link.getClientRects()[0];
    const width = Math.min(420, document.documentElement.clientWidth - 24);
    box.style.width = `${width}px`;
    const left = Math.min(at.left, document.documentElement.clientWidth - width - 12);
    const below = at.bottom + box.offsetHeight + 8 < innerHeight || at.top < box.offsetHeight + 8;
    box.style.left = `${Math.max(left, 12) + scrollX}px`;
    box.style.top = `${(below ? at.bottom + 4 : at.top - box.offsetHeight - 4) + scrollY}px`;
  }
  function hide() {
    clearTimeout(timer);
    open?.removeAttribute("aria-describedby");
    open = null;
    box.hidden = true;
  }
  const later = (then, wait) => { clearTimeout(timer); timer = setTimeout(then, wait); };

  for (const link of links) {
    link.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") later(() => show(link), 150); });
    link.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") later(hide, 250); });
    link.addEventListener("focus", () => { if (!tapped) show(link); });
    link.addEventListener("blur", () => later(hide, 0));
    link.addEventListener("pointerdown", (event) => { tapped = event.pointerType !== "mouse"; });
    link.addEventListener("click", (event) => {
      if (tapped && open !== link) {
        event.preventDefault();
        show(link);
      }
      tapped = false;
    });
  }
  box.addEventListener("pointerenter", () => clearTimeout(timer));
  box.addEventListener("pointerleave", () => later(hide, 250));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  document.addEventListener("pointerdown", (event) => {
    if (open && event.target !== box && !open.contains(event.target)) hide();
  });
})();
