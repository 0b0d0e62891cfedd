// The page as it was recorded on another device, or with another release. What is chosen is in the
// address, on links to other pages, and remembered; a page without that recording says so.
(() => {
  "use strict";
  const box = document.querySelector(".gallery-switch");
  const select = box?.querySelector("select");
  const options = [...(select?.options ?? [])];
  const usual = options.find((option) => "shown" in option.dataset)?.value ?? "";
  const home = new URL(document.documentElement.dataset.content_root, location.href.replace(/[?#].*/, ""));
  const files = new Map(); // place → a promise of what the page has otherwise there
  const given = new Map(); // place → what gives it
  const undo = [];
  let shown = usual;

  // As the page came, before other scripts add to it: exchanges count the elements of a section.
  const body = document.querySelector("[itemprop=articleBody]");
  const sections = new Map();
  for (const section of options.length ? [body, ...body.querySelectorAll("section")] : []) {
    sections.set(section === body ? "" : section.id, [section, [...section.children]]);
  }

  const memory = {
    get: () => { try { return localStorage.getItem("gallery-device") ?? ""; } catch { return ""; } },
    set: (place) => {
      try {
        if (place) localStorage.setItem("gallery-device", place);
        else localStorage.removeItem("gallery-device");
      } catch { /* not remembered */ }
    },
  };
  const asked = () => new URLSearchParams(location.search).get("device") ?? "";
  const option = (place) => options.find((one) => one.value === place);
  const name = (place) => (option(place)?.text ?? place).replace(/ \(.*/, "");
  const say = (text) => { box.querySelector("[role=status]").textContent = text; };

  function withDevice(address, place) {
    const [, path, query, anchor] = /^([^?#]*)(\?[^#]*)?(#.*)?$/s.exec(address);
    const said = new URLSearchParams(query);
    if ((said.get("device") ?? "") === place) return address;
    if (place) said.set("device", place);
    else said.delete("device");
    const made = said.toString().replaceAll("%2F", "/");
    return path + (made && `?${made}`) + (anchor ?? "");
  }

  // Links to pages of this site take the choice along; a link within the page is none.
  function keep(link, place) {
    const before = link.getAttribute("href") ?? "#";
    if (before.startsWith("#") || !link.href.startsWith(home.href)) return;
    const after = withDevice(before, place);
    if (after !== before && /(\.html|\/)([?#]|$)/.test(link.href)) link.setAttribute("href", after);
  }

  window.galleryView = (place, data) => given.get(place)?.(data);
  function fetched(place) {
    if (!files.has(place)) {
      files.set(place, new Promise((resolve, reject) => {
        given.set(place, resolve);
        const script = document.createElement("script");
        script.src = option(place).dataset.file;
        script.onerror = () => { files.delete(place); reject(new Error(script.src)); };
        document.head.append(script);
      }));
    }
    return files.get(place);
  }

  function exchange([name, first, end, html]) {
    const [section, children] = sections.get(name);
    const outermost = (node) => { // a script may have wrapped it
      let outer = node;
      while (outer && outer.parentNode !== section) outer = outer.parentNode;
      return outer;
    };
    const old = children.slice(first, end).map(outermost);
    const mark = document.createComment("");
    const next = old[0] ?? outermost(children[first]) ?? null;
    section.insertBefore(mark, next);
    const made = [...document.createRange().createContextualFragment(html).childNodes];
    mark.after(...made);
    const title = (fold) => fold.querySelector("summary span")?.textContent;
    const folds = (all) => all.flatMap((node) => node.matches?.("details") ? [node] : [...(node.querySelectorAll?.("details") ?? [])]);
    const open = new Set(folds(old).filter((fold) => fold.open).map(title));
    for (const node of old) node.remove();
    undo.push(() => { mark.before(...old); for (const node of [mark, ...made]) node.remove(); });
    return { made, open: () => folds(made).forEach((fold) => { fold.open ||= open.has(title(fold)); }) };
  }

  function show(place, data) {
    const colab = document.querySelector(".wy-breadcrumbs a[href^='https://colab.']");
    while (undo.length) undo.pop()();
    if (data) {
      const done = data.exchanges.map(exchange);
      const nodes = done.flatMap(({ made }) => made).filter((node) => node.nodeType === Node.ELEMENT_NODE);
      document.dispatchEvent(new CustomEvent("gallery-view", { detail: nodes }));
      for (const { open } of done) open();
      if (colab && data.notebook) {
        const before = colab.href;
        colab.href = before.replace(/_downloads\/.*/, `_downloads/${data.notebook}`);
        undo.push(() => { colab.href = before; });
      }
    }
    shown = place;
    document.documentElement.dataset.device = place;
    dispatchEvent(new Event("resize")); // what measures the page does so again
  }

  // Shows what is wanted, or says why not; resolves when it is there.
  let turns = 0;
  async function turn(wanted) {
    const number = ++turns;
    for (const link of document.links) keep(link, wanted);
    if (!box) return;
    const known = option(wanted);
    const place = known && !known.disabled ? wanted : usual;
    select.value = known ? wanted : usual;
    if (place !== shown) {
      try {
        const data = place !== usual && known.dataset.file ? await fetched(place) : null;
        if (number !== turns) return; // another was chosen meanwhile
        show(place, data);
        say(`Shown: ${name(place)}.`);
      } catch {
        if (number !== turns) return;
        select.value = shown;
        say(`What was recorded on ${name(place)} could not be fetched. Shown: ${name(shown)}.`);
      }
    }
    if (wanted && place !== wanted) {
      say(`This page was not recorded on ${name(wanted)}. Shown: ${name(place)}, the newest.`);
    }
    for (const link of document.links) keep(link, wanted);
  }

  function address(wanted, how) {
    const url = withDevice(location.href, wanted);
    try { if (url !== location.href) history[how](null, "", url); } catch { /* as it is */ }
  }

  let wanted = asked() || memory.get();
  if (box && wanted && !option(wanted)) { // there is no such place
    if (!asked()) memory.set(wanted = "");
  }
  if (wanted && (!box || option(wanted))) {
    if (box) memory.set(wanted === usual ? "" : wanted);
    address(wanted, "replaceState");
  }
  if (box) {
    box.hidden = false;
    select.addEventListener("change", () => {
      wanted = select.value === usual ? "" : select.value;
      memory.set(wanted);
      address(wanted, "pushState");
      turn(wanted);
    });
    addEventListener("popstate", () => {
      if (asked() === wanted) return; // a link within the page
      wanted = asked();
      memory.set(wanted);
      turn(wanted);
    });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (link) keep(link, wanted); // that a script has made meanwhile
  }, true);
  if (wanted) {
    turn(wanted).then(() => {
      if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
    });
  }
})();
