// The menu beside a page: what the theme does with jQuery, which is twice as large as a page.
//
// A button opens the menu on a narrow screen; others open the lists below an entry. The entry of the
// section that the address names is marked and comes into sight.
(() => {
  "use strict";
  const menu = document.querySelector(".wy-menu-vertical");
  const opener = document.querySelector("button[data-toggle='wy-nav-top']");

  function show(open) {
    for (const part of document.querySelectorAll("[data-toggle='wy-nav-shift'], [data-toggle='rst-versions']")) {
      part.classList.toggle("shift", open);
    }
    opener.setAttribute("aria-expanded", String(open));
  }
  opener.addEventListener("click", () => show(opener.getAttribute("aria-expanded") !== "true"));
  show(false);

  const buttons = new Map();
  function open(entry, isOpen) {
    entry.classList.toggle("current", isOpen);
    buttons.get(entry)?.setAttribute("aria-expanded", String(isOpen));
  }
  for (const list of menu.querySelectorAll("li > ul")) {
    const entry = list.parentElement;
    const link = entry.querySelector("a");
    const button = Object.assign(document.createElement("button"), { type: "button", className: "toctree-expand" });
    button.setAttribute("aria-label", `Entries below ${link.textContent}`);
    button.addEventListener("click", (event) => {
      event.preventDefault();
      event.stopPropagation();
      open(entry, !entry.classList.contains("current"));
    });
    buttons.set(entry, button);
    open(entry, entry.classList.contains("current"));
    link.prepend(button);
  }

  // An observer measures when the page is drawn anyway; to ask before would have it drawn twice.
  const box = document.querySelector(".wy-side-scroll");
  const seen = new IntersectionObserver(([{ isIntersecting, boundingClientRect: at, rootBounds }]) => {
    if (!isIntersecting && rootBounds) box.scrollTop += at.top - rootBounds.top - rootBounds.height / 2;
    seen.disconnect();
  }, { root: box });

  function mark() {
    const here = [...menu.querySelectorAll("a[href^='#']")].find((link) => link.hash && link.hash === location.hash);
    const page = menu.querySelector("a.current");
    for (const marked of menu.querySelectorAll("[aria-current]")) marked.removeAttribute("aria-current");
    (here ?? page)?.setAttribute("aria-current", here ? "location" : "page");
    for (let entry = here?.closest("li"); entry; entry = entry.parentElement.closest("li")) open(entry, true);
    if (here ?? page) seen.observe(here ?? page);
  }
  menu.addEventListener("click", (event) => {
    if (event.target.closest("a[href^='#']")) show(false);
  });
  addEventListener("hashchange", mark);
  mark();
})();
