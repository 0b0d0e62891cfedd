// The search: MiniSearch (minisearch.js) ranks the sections in search-index.js by the words of the
// query, in a panel below the field of the bar as one types, and on the search page.
//
// A result is a page with its best sections below it, or an entry of the API reference or a term of
// the glossary by itself. The words of words.toml, as readers type them, are added to the query.
(() => {
  "use strict";
  const { pages, phrases, fillers, synonyms, whole } = window.galleryIndex;
  const own = (table, key) => (Object.hasOwn(table, key) ? table[key] : undefined); // "constructor" is a word, too
  const stemmer = new Stemmer();
  const silent = new Set([...stopwords, ...fillers]);
  //: Results in the panel and on the page, and sections below a page.
  const [SHOWN_BELOW_THE_FIELD, SHOWN_ON_A_PAGE, SECTIONS] = [8, 30, 3];

  // --- words and documents --------------------------------------------------------------------------

  // A name such as tl.load is a word, and so are its parts.
  function words(text) {
    const found = [];
    for (const name of text.toLowerCase().replace(/\btl\.(?=\w)/g, "triton.language.").match(/[\p{L}\p{N}_]+(?:[.-][\p{L}\p{N}_]+)*/gu) ?? []) {
      const parts = name.split(/[._-]+/).filter(Boolean);
      found.push(name);
      if (parts.length > 1) found.push(...parts, parts.join(""));
      if (name.includes(".")) found.push(name.slice(name.lastIndexOf(".") + 1));
    }
    return found;
  }
  const stem = (word) => (/^[a-z]{3,}$/.test(word) ? stemmer.stemWord(word) : word);
  const term = (word) => (silent.has(word) ? null : stem(word));

  const sections = [];
  for (const [address, page, label, parts] of pages) {
    for (const [title, place, kind, prose, code, terms, rest] of parts) {
      const anchor = place === 0 ? title : place === 1 ? title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") : place; // as _place of search.py writes it
      sections.push({ id: sections.length, address, page, label, title, anchor, kind, code, terms, prose, words: `${prose} ${rest}`, of: kind === "page" ? "" : page });
    }
  }
  const index = new MiniSearch({ fields: ["title", "of", "words", "code", "terms"], tokenize: words, processTerm: term });
  index.addAll(sections);

  // --- ranking --------------------------------------------------------------------------------------

  // The title counts most, code least; a page more than its sections, a solution less than its lesson.
  const options = {
    boost: { title: 3, terms: 2, of: 1.5, code: 0.5 },
    boostDocument: (id) => (sections[id].kind === "page" ? 1.5 : 1) * (sections[id].label === "exercise" ? 0.5 : 1),
    prefix: (word) => word.length > 3,
    fuzzy: (word) => (word.length > 4 ? 0.2 : false),
    weights: { prefix: 0.4, fuzzy: 0.3 },
  };
  const isName = (section) => section.kind === "term" || (section.kind === "entry" && section.label === "API");
  // Pages about this site and the engine stand behind all others.
  const isOfTheProject = (group) => /^(engine|your-gallery|contributing|recordings|releases|claims)/.test(group.address);

  // A query in the words of the pages, also if it is German, Chinese or Korean.
  const foreign = Object.entries(phrases).sort(([a], [b]) => b.length - a.length);
  function translated(query) {
    let text = query.toLowerCase().trim();
    text = own(whole, text) ?? text;
    for (const [theirs, ours] of foreign) if (text.includes(theirs)) text = text.replaceAll(theirs, ` ${ours} `);
    const others = words(text).flatMap((word) => own(synonyms, word) ?? []);
    return `${text} ${others.join(" ")}`;
  }

  // The stems of a text as one, to tell whether a query is a title.
  const stems = (text) => [...new Set((text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) ?? []).map(stem))].sort().join(" ");

  // Groups of results, the best first; one whose title is the query stands before all others: {address, anchor, title, label, sections}; `unknown` are the
  // words of the query that no page has.
  function search(query) {
    const groups = new Map();
    for (const { id, score } of index.search(translated(query), options)) {
      const section = sections[id];
      const key = isName(section) ? `${section.address}#${section.anchor}` : section.address;
      if (!groups.has(key)) {
        const head = isName(section) ? section : { ...section, title: section.page, anchor: "" };
        groups.set(key, { ...head, score: 0, sections: [] });
      }
      const group = groups.get(key);
      if (group.sections.length < SECTIONS) group.score += score / 2 ** group.sections.length; // each further one counts half
      group.sections.push(section);
    }
    const asked = stems(query);
    const isAsked = (group) => stems(group.title) === asked;
    const found = [...groups.values()].sort((a, b) => isOfTheProject(a) - isOfTheProject(b) || isAsked(b) - isAsked(a) || b.score - a.score);
    const unknown = query.toLowerCase().match(/[\p{L}\p{N}_]{3,}/gu)?.filter((word) => term(word) && !index.search(word, { ...options, prefix: false, fuzzy: false }).length && !own(synonyms, word));
    return Object.assign(found, { unknown: unknown ?? [] });
  }

  // --- what is shown --------------------------------------------------------------------------------

  function make(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  // A piece of the section's text around the words, which are marked.
  function excerpt(section, asked) {
    const text = section.prose || section.code;
    const either = asked.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    const hit = either && new RegExp(`(?<![\\p{L}\\p{N}])(?:${either})\\p{L}*`, "giu");
    const place = hit ? text.search(hit) : -1;
    const from = place > 80 ? text.indexOf(" ", place - 70) + 1 : 0;
    const end = text.indexOf(" ", from + 150);
    const piece = (from ? "… " : "") + (end < 0 ? text.slice(from) : `${text.slice(from, end)} …`);
    const line = make("span", { className: "context" });
    let last = 0;
    for (const match of hit ? piece.matchAll(hit) : []) {
      line.append(piece.slice(last, match.index), make("mark", {}, match[0]));
      last = match.index + match[0].length;
    }
    line.append(piece.slice(last));
    return line;
  }

  const root = document.documentElement.dataset.content_root || "";
  const link = ({ address, anchor }, ...content) => make("a", { href: root + address + (anchor ? `#${anchor}` : "") }, ...content);
  function item(group, asked) {
    const [best] = group.sections;
    const below = isName(group) ? [] : group.sections.filter((section) => section.kind !== "page").slice(0, SECTIONS);
    const head = link(group, make("b", {}, group.title), make("small", {}, group.label), ...(below.length ? [] : [excerpt(best, asked)]));
    const list = make("ul", {}, ...below.map((section) => make("li", {}, link(section, make("b", {}, section.title), excerpt(section, asked)))));
    return make("li", {}, head, ...(below.length ? [list] : []));
  }

  function show(place, query, most, heading) {
    const found = search(query);
    const asked = words(query).filter((word) => !silent.has(word) && word.length > 1);
    const status = make("p");
    status.setAttribute("role", "status");
    const none = found.unknown.length ? `No page has “${found.unknown.join(", ")}”. ` : "";
    const close = none && found.length ? "The closest words: " : "";
    const count = `${found.length} ${found.length === 1 ? "page" : "pages"}`;
    const more = found.length > most ? `; the first ${most} are shown` : "";
    status.append(found.length ? `${none}${close}“${query}”: ${count}${more}.` : `No result for “${query}”. Try fewer words, or a name of the API such as tl.load.`);
    const list = make("ul", { className: "search" }, ...found.slice(0, most).map((group) => item(group, asked)));
    place.replaceChildren(...(heading ? [make("h2", {}, heading)] : []), status, list);
  }

  // The panel below the field.
  const field = document.querySelector(".gallery-search input");
  const panel = make("div", { className: "gallery-results gallery-found", hidden: true });
  document.querySelector(".gallery-searching")?.remove();
  field.form.append(panel);
  const update = () => {
    panel.hidden = !field.value.trim();
    if (!panel.hidden) show(panel, field.value.trim(), SHOWN_BELOW_THE_FIELD);
  };
  field.addEventListener("input", update);
  field.addEventListener("focus", update);
  field.form.addEventListener("keydown", (event) => {
    const links = [...panel.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") { panel.hidden = true; field.blur(); }
    if (!step || panel.hidden) return;
    event.preventDefault();
    (at + step < 0 ? field : links[Math.min(at + step, links.length - 1)])?.focus();
  });
  document.addEventListener("click", (event) => { if (!event.composedPath().includes(field.form)) panel.hidden = true; });
  panel.addEventListener("click", (event) => { if (event.target.closest("a")) panel.hidden = true; });

  // The search page.
  const place = document.getElementById("search-results");
  const query = new URLSearchParams(location.search).get("q") || "";
  if (place) {
    for (const box of document.querySelectorAll("input[name=q]")) box.value = query;
    if (query.trim()) show(place, query.trim(), SHOWN_ON_A_PAGE, "Search results");
    else place.replaceChildren();
  } else if (document.activeElement === field) update();
  window.gallerySearch = search;
})();
