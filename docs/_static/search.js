// The search: ranks the sections in search-index.js by the words of the query, in a panel below the
// field of the bar as one types, and on the search page.
//
// A word matches words with the same stem, or words with that beginning. If there are none, the closest
// spelling is offered as a question. The score is BM25 with fields (Robertson and Zaragoza, The
// Probabilistic Relevance Framework, 2009), and sections with more of the query's words come first.
(function () {
  "use strict";
  const SHOWN = 40;
  const { pages, phrases, fillers, errors } = window.galleryIndex;
  const plainTable = (table) => Object.assign(Object.create(null), table); // "constructor" is a word, too
  const synonyms = plainTable(window.galleryIndex.synonyms);
  const alone = plainTable(window.galleryIndex.whole);
  const stemmer = new Stemmer();
  for (const word of fillers) stopwords.add(word);
  const saysNothing = (word) => stopwords.has(word) || stopwords.has(stem(word));

  function tokens(text) {
    const whole = text.toLowerCase().replace(/\btl\.(?=\w)/g, "triton.language.")
      .replace(/\b(layer|group|batch|rms)norm/g, "$1 norm").replace(/\bflashatt/g, "flash att");
    return whole.match(/[\p{L}\p{N}_]+(?:\.[\p{L}\p{N}_]+)*/gu) || [];
  }
  function split(text) {
    const words = [];
    for (const token of tokens(text)) {
      words.push(token);
      if (token.includes(".")) words.push(token.slice(token.lastIndexOf(".") + 1));
      if (token.includes("_")) words.push(...token.split(/[._]+/).filter(Boolean));
    }
    for (const joined of text.toLowerCase().match(/\p{L}+(?:-\p{L}+)+/gu) || []) words.push(joined.replaceAll("-", ""));
    return words;
  }
  const stems = new Map();
  function stem(word) {
    if (!stems.has(word)) stems.set(word, /^[a-z]{3,}$/.test(word) ? stemmer.stemWord(word) : word);
    return stems.get(word);
  }

  // The index: for each stem, the sections that have it, and its weighted count there. And words as
  // they are written, with how often: a stem is no word to offer.
  const sections = [];
  const index = new Map();
  const spellings = new Map();
  for (const [address, page, label, rank, parts] of pages) {
    for (const [title, place, kind, prose, code, terms, rest] of parts) {
      const anchor = place === 0 ? title : place === 1 ? title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") : place; // as _place of search.py writes it
      const number = sections.length;
      const counts = new Map();
      let length = 0;
      const add = (text, weight, size) => {
        for (const word of split(text)) {
          const key = stem(word);
          counts.set(key, (counts.get(key) || 0) + weight);
          length += size;
          if (weight >= 0.9 && /^\p{L}[\p{L}\p{N}_]{2,}$/u.test(word)) spellings.set(word, (spellings.get(word) || 0) + 1);
        }
      };
      add(title, 6, 1);
      add(prose, 1, 1);
      add(rest, 0.9, 1.6); // each word once
      add(terms, 3, 0); // words that are introduced here, and words that readers type
      add(code, 0.35, 0.2);
      if (kind !== "page") add(page, 1.5, 1);
      // A page also has the words of its sections.
      else for (const [t, , , p, , , r] of parts.slice(1)) add(`${t} ${p} ${r}`, 0.15, 0.05);
      sections.push({ title, anchor, kind, prose, terms, code: `${code} ${rest}`.trim(), address, page, label, rank, length });
      for (const [key, count] of counts) {
        if (!index.has(key)) index.set(key, []);
        index.get(key).push([number, count]);
      }
    }
  }
  for (const [word, others] of Object.entries(synonyms)) {
    spellings.set(word, (spellings.get(word) || 0) + 1);
    synonyms[stem(word)] ??= others;
    if (!index.has(stem(word))) index.set(stem(word), others.flatMap((other) => index.get(stem(other)) || []));
  }
  // Names as they are written without their underscores.
  const squeezed = new Map([...index.keys()].filter((key) => /^[a-z]\w*_\w+$/.test(key)).map((key) => [key.replaceAll("_", ""), key]));
  const mean = sections.reduce((sum, s) => sum + s.length, 0) / sections.length;

  function postings(word) {
    const exact = index.get(stem(word));
    if (exact || word.length < 3) return [exact || [], 1];
    const found = new Map();
    for (const [key, list] of index) {
      if (key.startsWith(word)) for (const [n, count] of list) found.set(n, (found.get(n) || 0) + count);
    }
    return [[...found], 0.5];
  }

  // The known word with the closest spelling, if there is one: of equals the most frequent.
  function closest(name) {
    const word = name.slice(name.lastIndexOf(".") + 1);
    if (word.length < 4 || /\d{2}|[^\w\p{Script=Latin}]/u.test(word)) return "";
    let best = ["", (word.length < 8 ? 1 : word === name ? 2 : Math.max(2, word.length >> 2)) + 1, Infinity];
    for (const [known, count] of spellings) {
      if (count < 2 && !known.includes("_")) continue;
      const away = slips(known, word);
      if (away < best[1] || (away === best[1] && count > best[2])) best = [known, away, count];
    }
    return best[0];
  }

  // The edit distance: letters too many, missing, wrong or exchanged with the next.
  function slips(a, b) {
    if (Math.abs(a.length - b.length) > 4) return Infinity;
    let [before, last] = [[], Array.from({ length: b.length + 1 }, (_, j) => j)];
    for (let i = 1; i <= a.length; i++) {
      const row = [i];
      for (let j = 1; j <= b.length; j++) {
        row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] !== b[j - 1]));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], before[j - 2] + 1);
      }
      [before, last] = [last, row];
    }
    return last[b.length];
  }

  const OTHERS = /^(torch|numpy|np|jnp|jax|cuda|math)\.(\w+\.)*(?=\w+$)/;
  function alternatives(token) {
    // The parts of a name say less where the whole name is known.
    const isWhole = index.has(stem(token));
    const words = split(token).map((word, i) => [word, i === 0 ? 1 : isWhole ? 0.25 : i === 1 && token.includes(".") ? 0.9 : 0.5]);
    // torch.where is sought for tl.where, and libcuda.so.1 for libcuda.so.
    if (OTHERS.test(token)) words.push([`triton.language.${token.slice(token.lastIndexOf(".") + 1)}`, 1]);
    else if (!isWhole && /\.\d+$/.test(token)) words.push([token.replace(/(\.\d+)+$/, ""), 1]);
    for (const word of synonyms[token] || synonyms[stem(token)] || []) words.push([word, 0.8]);
    if (/^[a-z]{4,}$/.test(token)) words.push([token.endsWith("er") ? token.slice(0, -2) : token + "er", 0.6]);
    return words.filter(([word], i) => i === 0 || index.has(stem(word)));
  }

  // The length of the shortest run of words in a text that has each of the *keys*.
  function narrowest(text, keys) {
    const last = keys.map(() => -1);
    let width = Infinity;
    text.forEach((word, at) => {
      keys.forEach((some, key) => { if (some.has(word)) last[key] = at; });
      const first = Math.min(...last);
      if (first >= 0) width = Math.min(width, at - first + 1);
    });
    return width;
  }

  // A query in the words of the pages, also if it is German, Chinese or Korean.
  const foreign = Object.entries(phrases).sort(([a], [b]) => b.length - a.length);
  function translated(query) {
    let text = query.toLowerCase().trim();
    text = alone[text] ?? text;
    for (const [theirs, ours] of foreign) {
      const form = /^\p{L}{4,}en$/u.test(theirs) ? new RegExp(`${theirs.slice(0, -2)}(en|e|t|st)(?!\\p{L})`, "gu") : theirs;
      text = text.replaceAll(form, ` ${ours} `);
    }
    return text.replace(/ +/g, " ").trim();
  }

  // The sections for a query, best first. If no page has a word, `unknown` names it, and `instead` is the
  // query with the closest spellings, if each such word has one, whose sections these are.
  function search(query) {
    // A name such as cudaErrorIllegalAddress that no page has is its words.
    const plainly = query.replace(/^what does (.+) mean\b/i, "what is $1").replace(/\b[a-z]+(?:[A-Z][a-z]+){2,}/g, (name) => {
      return index.has(stem(name.toLowerCase())) || squeezed.has(name.toLowerCase()) ? name : name.replace(/[A-Z]/g, " $&");
    });
    const text = translated(plainly), found = ranked(text);
    const corrected = found.unknown.map((word) => [word.slice(word.lastIndexOf(".") + 1), closest(word)]);
    const instead = corrected.reduce((all, [word, known]) => all.replace(word, known), text).trim();
    // A word without a correction leaves the others' results as they are, or is left out if there are none.
    return instead === text || !corrected.some(([, known]) => known) || (found.length && corrected.some(([, known]) => !known)) ? found : Object.assign(ranked(instead), { instead, unknown: found.unknown });
  }

  const [ENDINGS, NAMES] = [["en", "er", "es", "e", "n", "s"], ["triton", "vs", "versus"]]; // of German words; on all pages
  const GENERIC = /(^|\.)(runtime|value|type|assertion|import|attribute|name|key|compilation)?(errors?|exception)$/;
  const isNoName = (word) => word.startsWith("triton.") && !index.has(stem(word)) && !index.has(stem(word.slice(word.lastIndexOf(".") + 1)));
  function phrasesOf(section) {
    return section.phrases ??= [section.title, ...section.terms.split(/[,;]/)].map((text) => tokens(text).filter((word) => !saysNothing(word) && !NAMES.includes(word)).map(stem));
  }

  function ranked(query) {
    // `soft max` is softmax.
    const asSaid = (text) => text.replace(/['’]s\b/g, " is");
    const typed = tokens(asSaid(query)).map((word) => {
      const last = word.lastIndexOf(".") + 1;
      if (index.has(stem(word))) return word;
      if (squeezed.has(word.slice(last))) return word.slice(0, last) + squeezed.get(word.slice(last));
      const ending = word.length > 6 && ENDINGS.find((end) => word.endsWith(end) && index.has(stem(word.slice(0, -end.length))));
      return ending ? word.slice(0, -ending.length) : word;
    });
    const known = (word) => saysNothing(word) || index.has(stem(word));
    const joined = typed.flatMap((word, i) => {
      const pairs = (a, b) => a && b && !(known(a) && known(b)) && index.has(stem(a + b));
      return pairs(word, typed[i + 1]) ? [word + typed[i + 1]] : pairs(typed[i - 1], word) ? [] : [word];
    });
    const all = [...new Set(joined)];
    // "triton" is on all pages, but "a vs b" asks for both.
    const both = all.some((word) => ["vs", "versus"].includes(word));
    const rare = all.filter((word) => !saysNothing(word) && !["vs", "versus", both ? "" : "triton"].includes(word));
    let asked = [rare, all.filter((word) => !saysNothing(word)), all].find((words) => words.length) || all;
    // In a message that is pasted whole, numbers and names that no page has say nothing.
    const isError = /(Error|Exception)\b|WARNING|\b(fail(s|ed)|fatal|assert\w*|fault|invalid|unsupported|incompatible|but got|not supported)\b/i.test(query);
    const isMessage = asked.length > (isError ? 2 : 5);
    const isKnown = (word) => alternatives(word).some(([other]) => postings(other)[0].length);
    if (asked.length > 5) asked = asked.filter((word) => !/^[\d.]+$/.test(word) && isKnown(word));
    const unknown = [];
    const scores = new Map();
    const matched = new Map();
    // "what is a warp in CUDA" asks for a warp.
    const subject = /^(?:what(?: is| are| does)|explain)\s+(?:an? |the )?(.+?)(?: (?:in|and|for|of|on|do)\b.*)?$/i.exec(asSaid(query).replace(/[?\s]+$/, ""));
    const subjects = subject && tokens(subject[1]), about = subjects?.map(stem).join();
    let total = 0;
    for (const word of asked) {
      const best = new Map();
      // That there was an error says little of it.
      const weight = (asked.length > 2 && GENERIC.test(word)) || (subjects && !subjects.includes(word)) ? 0.3 : 1;
      for (const [alternative, trust] of alternatives(word)) {
        const [list, sureness] = postings(alternative);
        const rarity = Math.log(1 + (sections.length - list.length + 0.5) / (list.length + 0.5));
        for (const [n, count] of list) {
          const norm = 1.2 * (0.4 + (0.6 * sections[n].length) / mean);
          const score = ((rarity * count * 2.2) / (count + norm)) * sureness * trust * weight;
          best.set(n, Math.max(best.get(n) || 0, score));
        }
      }
      if (!best.size || isNoName(word)) unknown.push(word);
      // A word that few sections have says more of what is sought.
      const share = best.size ? weight * (4 + Math.log(1 + sections.length / best.size)) : 0;
      total += share;
      for (const [n, score] of best) {
        scores.set(n, (scores.get(n) || 0) + score);
        matched.set(n, (matched.get(n) || 0) + share);
      }
    }
    const sense = new Set(asked.flatMap((word) => alternatives(word).filter(([, trust]) => trust > 0.7).map(([other]) => stem(other))));
    const isSymbol = (word) => word.includes("_") || word.startsWith("triton.") || (word.length > 3 && (index.get(stem(word)) || []).length < 20);
    const names = asked.length > 1 ? asked.map((word) => word.replace(OTHERS, "triton.language.")).filter((word) => isSymbol(word) && index.has(stem(word))) : [];
    const plain = (text) => ` ${text.toLowerCase().replace(/[^\p{L}\p{N}_.]+/gu, " ").trim()} `;
    const sole = asked.length === 1 && /[._]/.test(asked[0]) && (index.has(stem(asked[0])) ? asked[0] : asked[0].slice(asked[0].lastIndexOf(".") + 1));
    const whole = sole || asSaid(query).replace(/^tl\./, "triton.language.");
    const phrase = plain(query);
    // A word that other titles have may mean a subject, and not the function of that name.
    const isSubject = /^\p{L}+$/u.test(whole) && sections.some((s) => s.label !== "API" && tokens(s.title).some((word) => stem(word) === stem(whole)));
    for (const [n, score] of scores) {
      const s = sections[n];
      const title = s.title.toLowerCase();
      let factor = s.rank * (isError && isMessage && errors.some((start) => s.address.startsWith(start)) ? 2 : 1) * Math.pow(matched.get(n) / total, isMessage ? 1.5 : 3);
      const named = split(s.title).map(stem);
      const terms = tokens(s.title).map(stem).join();
      const isTerm = s.kind === "term" && terms === asked.map(stem).join();
      const isTitle = title === whole || title.endsWith("." + whole) || isTerm;
      const isPlain = s.label === "API" && isSubject;
      if (about && (s.kind === "term" ? terms === about : s.label === "API" && `.${terms}`.endsWith(`.${about}`))) factor *= 5;
      else if (isTitle) factor *= s.rank < 1 ? 1 : isPlain ? 1.6 : 3;
      else if (/ /.test(title) && ` ${whole} `.includes(` ${title} `)) factor *= 2.5;
      else if (/ /.test(phrase.trim()) && [title, s.prose, s.code, s.terms].some((text) => plain(text).includes(phrase))) factor *= 1.8;
      const most = Math.max(0, ...phrasesOf(s).map((words) => (words.every((word) => sense.has(word)) ? words.length : 0)));
      if ((most > 1 && (s.kind !== "term" || 2 * most >= asked.length)) || most === asked.length) factor *= 1 + Math.min(1, most / asked.length);
      if (names.some((name) => `.${title}`.endsWith(`.${name}`))) factor *= s.rank < 0.5 ? 40 / s.rank : s.rank < 1 ? 1 : names.length === asked.length ? 6 : asked.some((word) => OTHERS.test(word)) ? 3 : 2;
      if (s.kind === "page" && s.label === "glossary") factor *= 0.5;
      if (s.kind === "page") factor *= asked.every((word) => alternatives(word).some(([other]) => named.includes(stem(other)))) ? (named.length < asked.length + 3 ? 2.2 : 1.6) : 0.9;
      if (s.title === "References" || s.title === "Exercises") factor *= s.title === "References" ? 0.3 : 0.4;
      scores.set(n, score * factor);
    }
    // Words that stand together count more than words far apart, among the results that are shown.
    if (asked.length > 1) {
      const keys = asked.map((word) => new Set(alternatives(word).map(([other]) => stem(other))));
      for (const [n, score] of [...scores].sort((a, b) => b[1] - a[1]).slice(0, SHOWN)) {
        const width = narrowest(tokens(`${sections[n].title} ${sections[n].prose}`).map(stem), keys);
        if (width <= 2 * asked.length) scores.set(n, score * 1.5);
        else if (width <= 6 * asked.length) scores.set(n, score * 1.2);
      }
    }
    const best = [...scores].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
    return Object.assign(best.map(([n]) => sections[n]), { unknown });
  }

  // --- what is shown --------------------------------------------------------------------------------

  function make(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  // A piece of the section's text around the words, which are marked.
  function excerpt(section, words) {
    const text = section.prose || section.code;
    const either = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
    const hit = either && new RegExp(`(?<![\\p{L}\\p{N}])(?:${either})\\p{L}*`, "giu");
    const place = hit ? text.search(hit) : -1;
    const from = place > 80 ? text.indexOf(" ", place - 70) + 1 : 0;
    const end = text.indexOf(" ", from + 170);
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
  const isName = (section) => section.kind === "term" || (section.kind === "entry" && section.label === "API");
  function item(section, words) {
    const href = root + section.address + (section.anchor ? `#${section.anchor}` : "");
    const name = section.kind === "page" ? section.page : isName(section) ? section.title : `${section.page} › ${section.title}`;
    return make("li", {}, make("a", { href }, make("b", {}, name), make("small", {}, section.label), excerpt(section, words)));
  }

  // Results of one page stand together. After the first group, a page stands before its sections.
  function grouped(found, most) {
    const groups = new Map();
    for (const section of found.slice(0, 4 * most)) {
      const key = isName(section) ? section : section.address;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(section);
    }
    const rows = [];
    for (const group of groups.values()) {
      const best = group.slice(0, 4);
      const whole = best.findIndex((section) => section.kind === "page");
      if (whole > 0 && rows.length) best.unshift(...best.splice(whole, 1));
      rows.push(...best);
    }
    return rows.slice(0, most);
  }

  function show(place, query, most, heading) {
    const found = search(query);
    const all = split(found.instead || translated(query));
    const words = [...new Set(all)].filter((word) => !stopwords.has(word) && word.length > 1);
    const status = make("p");
    status.setAttribute("role", "status");
    const list = make("ul", { className: "search" });
    if (found.instead) {
      const button = make("button", { type: "button" }, found.instead);
      button.addEventListener("click", () => {
        for (const box of document.querySelectorAll("input[name=q]")) box.value = found.instead;
        show(place, found.instead, most, heading);
      });
      status.append(`No result for “${found.unknown.join(" ")}”. Did you mean `, button, "?");
    } else if (found.length) {
      const more = found.length > most ? `; the first ${most} are shown` : "";
      const none = found.unknown.length ? ` No page has “${found.unknown.join(", ")}”.` : "";
      status.append(`Results for “${query}”: ${found.length}${more}.${none}`);
      list.append(...grouped(found, most).map((section) => item(section, words)));
    } else status.append(`No result for “${query}”. Try fewer words, or a name of the API such as tl.load.`);
    place.replaceChildren(...(heading ? [make("h2", {}, heading)] : []), status, list);
  }

  // The panel below the field.
  const field = document.querySelector(".gallery-search input");
  const panel = make("div", { className: "gallery-results gallery-found", hidden: true });
  document.querySelector(".gallery-searching")?.remove();
  field.form.append(panel);
  const update = () => {
    panel.hidden = !field.value.trim();
    if (!panel.hidden) show(panel, field.value.trim(), 12);
  };
  field.addEventListener("input", update);
  field.addEventListener("focus", update);
  field.form.addEventListener("keydown", (event) => {
    const links = [...panel.querySelectorAll("a, button")];
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
    if (query.trim()) show(place, query.trim(), SHOWN, "Search results");
    else place.replaceChildren();
  } else if (document.activeElement === field) update();
  window.gallerySearch = search;
})();
