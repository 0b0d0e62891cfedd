// The search page: ranks the sections in search-sections.js by the words of the query.
//
// A word matches words with the same stem. If no section has it, words with that beginning count, or
// else the words with the closest spelling. The score is BM25 with fields (Robertson and Zaragoza, The
// Probabilistic Relevance Framework, 2009), and sections with more of the query's words come first.
(function () {
  "use strict";
  const SHOWN = 40;
  // What readers type: what the pages call it.
  const SYNONYMS = {
    tma: ["descriptor"], gemm: ["matmul"], moe: ["expert"], norm: ["normalization"], layernorm: ["normalization"],
    rmsnorm: ["normalization"], smem: ["shared"], vectorize: ["contiguous"], printf: ["device_print"],
    print: ["device_print"], oob: ["mask"], bounds: ["mask"], sm: ["multiprocessor"], cta: ["program"],
    libdevice: ["math"], crash: ["illegal"], stuck: ["hang"], bf16: ["bfloat16"], fp16: ["float16"],
    matmul: ["product"], size: ["large"], swizzle: ["group"], rasterization: ["group"], flash: ["online"],
    profile: ["profiler"], overflow: ["64"], deterministic: ["same"], smaller: ["small"],
    recompilation: ["again"], recompile: ["again"], recompiles: ["again"], overhead: ["price"],
    throttling: ["clock"], amd: ["rocm"], licence: ["license"], deadlock: ["hang"], citation: ["cite"],
    backward: ["gradient"], precision: ["accuracy", "error"], prefix: ["cumsum"],
    fp8e4nv: ["float8e4nv"], fp8e5: ["float8e5"], welford: ["variance"], uncoalesced: ["coalescing"],
    attn: ["attention"], vecadd: ["addition"], mutex: ["lock"], semaphore: ["lock"], aot: ["compile"],
    infinite: ["hang"], notes: ["changelog"], jl: ["johnson"], multi: ["several"], multiple: ["several"],
  };
  const stemmer = new Stemmer();

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

  // The index: for each stem, the sections that have it, and its weighted count there.
  const sections = [];
  const index = new Map();
  for (const [address, page, rank, parts] of window.gallerySections) {
    for (const [title, anchor, kind, prose, code, terms] of parts) {
      const number = sections.length;
      const counts = new Map();
      let length = 0;
      const add = (text, weight, size) => {
        for (const word of split(text)) {
          const key = stem(word);
          counts.set(key, (counts.get(key) || 0) + weight);
          length += size;
        }
      };
      add(title, 6, 1);
      add(prose, 1, 1);
      add(terms, 2, 0); // words that are introduced here
      add(code, 0.35, 0.2);
      if (kind !== "page") add(page, 1.5, 1);
      // A page also has the words of its sections.
      else for (const [t, , , p] of parts.slice(1)) add(`${t} ${p}`, 0.15, 0.05);
      sections.push({ title, anchor, kind, prose, code, address, page, rank, length });
      for (const [key, count] of counts) {
        if (!index.has(key)) index.set(key, []);
        index.get(key).push([number, count]);
      }
    }
  }
  // A misspelled synonym is found, too.
  for (const [word, others] of Object.entries(SYNONYMS)) {
    if (!index.has(stem(word))) index.set(stem(word), others.flatMap((other) => index.get(stem(other)) || []));
  }
  const mean = sections.reduce((sum, s) => sum + s.length, 0) / sections.length;

  function postings(word) {
    const exact = index.get(stem(word));
    if (exact || word.length < 3) return [exact || [], 1];
    const found = new Map();
    for (const [key, list] of index) {
      if (key.startsWith(word)) for (const [n, count] of list) found.set(n, (found.get(n) || 0) + count);
    }
    const name = word.slice(word.lastIndexOf(".") + 1);
    if (found.size || !/^[a-z]{4,}$/.test(name)) return [[...found], 0.5];
    const like = [...index].map(([key, list]) => [Math.min(slips(key, name), slips(key, stem(name))), -list.length, list]);
    const [least, , list] = like.reduce((a, b) => (a[0] - b[0] || a[1] - b[1]) <= 0 ? a : b);
    return [least < (name.length < 8 ? 2 : 3) ? list : [], 0.5];
  }

  // The edit distance: letters too many, missing, wrong or exchanged with the next.
  function slips(a, b) {
    if (Math.abs(a.length - b.length) > 2) return Infinity;
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

  function alternatives(token) {
    const words = split(token).map((word, i) => [word, i ? 0.5 : 1]);
    for (const word of SYNONYMS[token] || []) words.push([word, 0.8]);
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

  function search(query) {
    // `soft max` is softmax.
    const typed = tokens(query.replace(/['’]s\b/g, " is"));
    const known = (word) => stopwords.has(word) || index.has(stem(word));
    const joined = typed.flatMap((word, i) => {
      const pairs = (a, b) => a && b && !(known(a) && known(b)) && index.has(stem(a + b));
      return pairs(word, typed[i + 1]) ? [word + typed[i + 1]] : pairs(typed[i - 1], word) ? [] : [word];
    });
    const all = [...new Set(joined)];
    // "triton" is on all pages, but "a vs b" asks for both.
    const both = all.some((word) => ["vs", "versus"].includes(word));
    const rare = all.filter((word) => !stopwords.has(word) && !["vs", "versus", both ? "" : "triton"].includes(word));
    const asked = rare.length ? rare : all;
    const scores = new Map();
    const matched = new Map();
    for (const word of asked) {
      const best = new Map();
      for (const [alternative, trust] of alternatives(word)) {
        const [list, sureness] = postings(alternative);
        const rarity = Math.log(1 + (sections.length - list.length + 0.5) / (list.length + 0.5));
        for (const [n, count] of list) {
          const norm = 1.2 * (0.4 + (0.6 * sections[n].length) / mean);
          const score = ((rarity * count * 2.2) / (count + norm)) * sureness * trust;
          best.set(n, Math.max(best.get(n) || 0, score));
        }
      }
      for (const [n, score] of best) {
        scores.set(n, (scores.get(n) || 0) + score);
        matched.set(n, (matched.get(n) || 0) + 1);
      }
    }
    const plain = (text) => text.toLowerCase().replaceAll("-", " ");
    const whole = query.trim().toLowerCase().replace(/^tl\./, "triton.language.").replace(/['’]s\b/g, " is");
    const phrase = plain(query.trim());
    for (const [n, score] of scores) {
      const s = sections[n];
      const title = s.title.toLowerCase();
      let factor = s.rank * Math.pow(matched.get(n) / asked.length, 3);
      const named = split(s.title).map(stem);
      const isTerm = s.kind === "term" && named.join() === asked.map(stem).join();
      const isTitle = title === whole || title.endsWith("." + whole) || isTerm;
      if (isTitle) factor *= s.rank < 1 ? 1 : 3;
      else if (/ /.test(phrase) && [title, s.prose, s.code].some((text) => plain(text).includes(phrase))) factor *= 1.8;
      if (s.kind === "page") factor *= asked.every((word) => named.includes(stem(word))) ? 1.6 : 0.9;
      if (s.title === "References" || s.title === "Exercises") factor *= s.title === "References" ? 0.3 : 0.6;
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
    return [...scores].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([n]) => sections[n]);
  }

  function excerpt(section, words) {
    const text = section.prose || section.code;
    const places = words.map((word) => text.toLowerCase().indexOf(word)).filter((place) => place >= 0);
    const from = places.length ? text.lastIndexOf(" ", Math.max(0, Math.min(...places) - 80)) + 1 : 0;
    const end = text.indexOf(" ", from + 220);
    return (from ? "… " : "") + (end < 0 ? text.slice(from) : `${text.slice(from, end)} …`);
  }

  function element(name, text, attributes) {
    const made = Object.assign(document.createElement(name), attributes);
    if (text) made.textContent = text;
    return made;
  }

  function show(query) {
    const place = document.getElementById("search-results");
    const found = search(query);
    const words = split(query);
    const list = element("ul", "", { className: "search" });
    for (const section of found.slice(0, SHOWN)) {
      const item = element("li");
      const root = document.documentElement.dataset.content_root || "";
      const href = root + section.address + (section.anchor ? "#" + section.anchor : "");
      item.append(element("a", section.title, { href }));
      if (section.kind !== "page") item.append(element("span", " – " + section.page, { className: "search-page" }));
      item.append(element("p", excerpt(section, words), { className: "context" }));
      list.append(item);
    }
    const more = found.length > SHOWN ? `; the first ${SHOWN} are shown` : "";
    const none = found.length ? "" : ". Try fewer words, or a name of the API such as tl.load";
    const summary = `Results for “${query}”: ${found.length}${more}${none}.`;
    place.replaceChildren(element("h2", "Search results"), element("p", summary, { role: "status" }), list);
  }

  const query = new URLSearchParams(window.location.search).get("q") || "";
  for (const box of document.querySelectorAll("input[name=q]")) box.value = query;
  if (query.trim()) show(query);
  window.gallerySearch = search;
})();
