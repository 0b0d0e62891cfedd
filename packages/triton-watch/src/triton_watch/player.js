// <triton-trace>: shows which elements each program of a kernel touches, step by step.
//
// Its data is JSON, described in trace.py: in a <script type="application/json"> inside the element,
// or in the file that its attribute "src" names, which is loaded when the element becomes visible. A
// file with several traces has them in "traces"; the attribute "name" chooses one. The file may be a
// script that puts the data into `tritonTraces` under its own name: a page that was opened from a
// disk may load scripts, but no data.
// Nothing else is fetched. Colors follow the page's color-scheme; a page may set the variables.
"use strict";

(() => {
  const MOST_COLUMNS = 64; // cells of a picture; a larger tensor has several elements in a cell
  const MOST_ROWS = 64;
  const SECONDS_A_STEP = 0.8;

  async function dataOfFile(source) {
    const answer = await fetch(source);
    if (!answer.ok) throw new Error(answer.statusText);
    return answer.json();
  }

  function dataOfScript(source) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = source;
      script.onload = () => resolve(globalThis.tritonTraces[source.split("/").pop()]);
      script.onerror = () => reject(new Error(`${source} is missing`));
      document.head.append(script);
    });
  }

  const STYLE = `
    :host { display: block; color: var(--text, light-dark(#24313a, #d7dfe5)); font: 1rem/1.45 system-ui, sans-serif; }
    * { box-sizing: border-box; }
    .frame { border: 1px solid var(--border, light-dark(#d3dbe1, #2f3d48)); border-radius: 6px; padding: 0.8rem;
      background: var(--ground, light-dark(#fff, #11191f)); }
    .frame:focus-visible, button:focus-visible, input:focus-visible, summary:focus-visible, select:focus-visible
      { outline: 3px solid var(--focus, light-dark(#c2410c, #ffb454)); outline-offset: 2px; }
    h3 { margin: 0 0 0.5rem; font-size: 1rem; }
    code, pre, .number { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 0.85rem; }
    .controls { display: grid; grid-template-columns: auto 1fr auto; gap: 0.35rem 0.7rem; align-items: center; }
    .controls label { white-space: nowrap; }
    input[type=range] { width: 100%; min-width: 0; accent-color: var(--link, light-dark(#0b62a0, #74b9ff)); min-height: 24px; }
    .buttons { display: flex; flex-wrap: wrap; gap: 0.4rem; margin: 0.5rem 0; }
    button, select { font: inherit; font-size: 0.9rem; color: inherit; min-height: 2.2rem; padding: 0.2rem 0.8rem; cursor: pointer;
      border: 1px solid var(--border, light-dark(#d3dbe1, #2f3d48)); border-radius: 4px;
      background: var(--raised, light-dark(#f5f7f9, #19242c)); }
    button:disabled { opacity: 0.5; cursor: default; }
    .body { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 1rem; }
    @media (max-width: 760px) { .body { grid-template-columns: minmax(0, 1fr); } .body .tensors { order: -1; } }
    pre { margin: 0; padding: 0.5rem 0; overflow-x: auto; background: var(--raised, light-dark(#f5f7f9, #19242c)); border-radius: 4px; }
    pre > span { display: block; min-width: max-content; padding: 0 0.6rem; border-left: 4px solid transparent; }
    pre .current { background: var(--mark, light-dark(#ffe08a, #7a5a00)); border-left-color: var(--focus, light-dark(#c2410c, #ffb454)); }
    .said { min-height: 4.5em; margin: 0.5rem 0; }
    .said p { margin: 0 0 0.2rem; }
    .wrong { color: var(--err, light-dark(#b3261e, #ff8a80)); font-weight: 600; }
    .tensors { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 16rem), 1fr)); gap: 0.8rem; align-content: start; }
    figure { margin: 0; min-width: 0; }
    figcaption { font-size: 0.85rem; }
    svg { display: block; max-width: 100%; max-height: 24rem; height: auto; }
    rect { fill: var(--raised, light-dark(#f0f3f5, #1b2730)); stroke: var(--border, light-dark(#c3ced6, #37474f)); stroke-width: 1; }
    rect.ghost { fill: none; stroke-dasharray: 2 3; opacity: 0.6; }
    rect.read1 { fill: light-dark(#d8e9f6, #17354a); } rect.read2 { fill: light-dark(#b4d5ee, #1d4a69); }
    rect.read3 { fill: light-dark(#86bbe2, #246189); }
    rect.written { fill: light-dark(#dff0d9, #1d3a24); }
    rect.load { fill: light-dark(#0b62a0, #74b9ff); }
    rect.store { fill: light-dark(#2e7d32, #8fd694); }
    rect.atomic { fill: light-dark(#6a3d9a, #cfaaff); }
    rect.note { fill: var(--mark, light-dark(#ffe08a, #7a5a00)); }
    rect.masked { fill: none; stroke: light-dark(#55636e, #c5d0d8); stroke-width: 2; stroke-dasharray: none; opacity: 1; }
    rect.outside { fill: light-dark(#c62828, #ff6b6b); stroke-width: 2; opacity: 1; }
    .small rect.masked, .small rect.outside { stroke-width: 1.5; }
    rect.linked { stroke: light-dark(#c2410c, #ffb454); stroke-width: 3; stroke-dasharray: none; }
    .small rect.linked { stroke-width: 1.5; }
    text { font: 10px ui-monospace, Menlo, Consolas, monospace; text-anchor: middle; dominant-baseline: central;
      fill: var(--text, light-dark(#24313a, #d7dfe5)); pointer-events: none; }
    text.on { fill: light-dark(#fff, #06121a); }
    .programs { display: flex; flex-wrap: wrap; gap: 3px; margin: 0.4rem 0; }
    .programs span { width: 14px; height: 14px; border-radius: 3px; background: var(--raised, light-dark(#dde4e9, #26343e));
      border: 1px solid var(--border, light-dark(#c3ced6, #37474f)); }
    .programs .current { background: var(--text, light-dark(#24313a, #d7dfe5)); }
    .programs .linked { border: 3px solid light-dark(#c2410c, #ffb454); }
    .legend { display: flex; flex-wrap: wrap; gap: 0.2rem 0.9rem; font-size: 0.85rem; margin: 0.4rem 0; padding: 0; list-style: none; }
    .legend svg { display: inline-block; vertical-align: -2px; margin-right: 0.3rem; }
    details { margin-top: 0.6rem; } summary { cursor: pointer; min-height: 24px; }
    .wide { overflow-x: auto; }
    table { border-collapse: collapse; font-size: 0.85rem; }
    th, td { text-align: left; padding: 0.15rem 0.6rem; border-bottom: 1px solid var(--border, light-dark(#d3dbe1, #2f3d48)); }
    tr.current td { background: var(--mark, light-dark(#ffe08a, #7a5a00)); }
    @media (prefers-reduced-motion: reduce) { .play { display: none; } }
    @media (forced-colors: active) { rect { forced-color-adjust: none; } }
    @media print { .buttons, .controls { display: none; } }`;

  const PAST = { load: "loads", store: "stores", atomic: "updates" };

  function make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function draw(name, attributes = {}) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  }

  // The numbers that runs stand for.
  function* numbersIn(runs = []) {
    for (const [first, count, times = 1, step = 0] of runs) {
      for (let i = 0; i < times; i += 1) {
        for (let number = first + i * step; number < first + i * step + count; number += 1) yield number;
      }
    }
  }

  function sizeOf(runs = []) {
    return runs.reduce((sum, [, count, times = 1]) => sum + count * times, 0);
  }

  // The place of an element as a reader writes it: 5, or (1, 3).
  function placeOf(number, shape) {
    if (shape.length < 2) return String(number);
    const places = [];
    let rest = number;
    for (const size of [...shape].slice(1).reverse()) {
      places.unshift(((rest % size) + size) % size);
      rest = Math.floor(rest / size);
    }
    places.unshift(rest);
    return `(${places.join(", ")})`;
  }

  function lastIn(runs) {
    return Math.max(...runs.map(([first, count, times = 1, step = 0]) => first + (times - 1) * step + count - 1));
  }

  function inWords(runs, shape) {
    const count = sizeOf(runs);
    const first = placeOf(Math.min(...runs.map((run) => run[0])), shape);
    if (count === 1) return `1 element, ${first}`;
    return `${count} elements from ${first} to ${placeOf(lastIn(runs), shape)}`;
  }

  function programName(index, grid) {
    let axes = 1;
    grid.forEach((size, axis) => { if (size > 1) axes = axis + 1; });
    return axes === 1 ? String(index[0]) : `(${index.slice(0, axes).join(", ")})`;
  }

  // The picture of one tensor: rows and columns of cells.
  class Picture {
    constructor(tensor, steps, values) {
      this.tensor = tensor;
      this.letters = Math.max(0, ...values.flat().map((value) => value.length)); // of the longest value
      const shape = tensor.shape;
      this.size = shape.reduce((product, n) => product * n, 1);
      this.columns = shape.length > 1 ? shape[shape.length - 1] : Math.min(Math.max(this.size, 1), 32);
      let low = 0;
      let high = this.size - 1;
      for (const step of steps) {
        for (const runs of [step.masked, step.outside]) {
          if (!runs) continue;
          low = Math.min(low, ...runs.map((run) => run[0]));
          high = Math.max(high, lastIn(runs));
        }
      }
      // Elements that do not exist are shown for a row before and two rows behind the tensor.
      low = Math.max(low, -this.columns);
      high = Math.min(high, this.size + 2 * this.columns - 1);
      if (shape.length < 2 && high - low < 32) {
        this.columns = high - low + 1;
        this.origin = low;
      } else {
        this.origin = low < 0 ? -this.columns : 0;
      }
      this.rows = Math.floor((high - this.origin) / this.columns) + 1;
      this.across = Math.ceil(this.columns / MOST_COLUMNS); // elements in a cell, along a row
      this.down = Math.ceil(this.rows / MOST_ROWS);
      this.width = Math.ceil(this.columns / this.across);
      this.height = Math.ceil(this.rows / this.down);
      this.high = high;
      this.build();
    }

    build() {
      let side = this.width > 40 ? 8 : this.width > 20 ? 14 : 20;
      if (this.letters > 2) side = 7 * this.letters + 6;
      this.side = side;
      this.svg = draw("svg", {
        viewBox: `-2 -2 ${this.width * side + 4} ${this.height * side + 4}`,
        width: this.width * side + 4, role: "img", preserveAspectRatio: "xMinYMin",
        class: side < 20 ? "small" : "",
      });
      this.cells = [];
      for (let cell = 0; cell < this.width * this.height; cell += 1) {
        const row = Math.floor(cell / this.width);
        const column = cell % this.width;
        const rect = draw("rect", { x: column * side + 1, y: row * side + 1, width: side - 2, height: side - 2, rx: 1 });
        const text = side >= 20 ? draw("text", { x: (column + 0.5) * side, y: (row + 0.5) * side }) : null;
        const first = this.origin + row * this.down * this.columns + column * this.across;
        const ghost = first < 0 || first >= this.size;
        if (first > this.high && !ghost) continue;
        this.svg.append(rect, ...(text ? [text] : []));
        this.cells[cell] = { rect, text, ghost, classes: "" };
      }
      this.about = make("span");
      const caption = make("figcaption");
      const dtype = this.tensor.dtype ? `, ${this.tensor.dtype}` : "";
      const many = this.across * this.down;
      const sampled = many > 1 ? `; a cell is ${this.down} × ${this.across} elements` : "";
      caption.append(make("code", {}, this.tensor.name), ` [${this.tensor.shape.join(" × ")}]${dtype}${sampled} `);
      this.figure = make("figure", {}, caption, this.svg);
    }

    cellOf(number) {
      const place = number - this.origin;
      const row = Math.floor(place / this.columns / this.down);
      const column = Math.floor((((place % this.columns) + this.columns) % this.columns) / this.across);
      return this.cells[row * this.width + column];
    }

    // Show what has been read and written so far, and the current step if it is of this tensor.
    show(reads, written, step, linked, values) {
      const marks = new Map();
      const mark = (number, name) => {
        const cell = this.cellOf(number);
        if (cell) marks.set(cell, `${marks.get(cell) || ""} ${name}`);
      };
      for (const number of written) mark(number, "written");
      const most = new Map();
      for (const [number, count] of reads) {
        const cell = this.cellOf(number);
        if (cell) most.set(cell, Math.max(most.get(cell) || 0, count));
      }
      for (const [cell, count] of most) {
        const old = marks.get(cell) || "";
        if (!old) marks.set(cell, ` read${Math.min(count, 3)}`);
      }
      if (step) {
        for (const number of numbersIn(step.masked)) mark(number, "masked");
        for (const number of numbersIn(step.elements)) mark(number, step.kind);
        for (const number of numbersIn(step.outside)) mark(number, "outside");
        for (const number of linked) mark(number, "linked");
      }
      for (const [index, cell] of Object.entries(this.cells)) {
        const classes = `${cell.ghost ? "ghost" : ""}${marks.get(cell) || ""}`.trim();
        if (classes !== cell.classes) {
          cell.rect.setAttribute("class", classes);
          cell.classes = classes;
        }
        if (!cell.text) continue;
        const count = most.get(cell);
        const value = values && this.across * this.down === 1 ? values[Number(index) + this.origin] : undefined;
        cell.text.textContent = value !== undefined ? value : count > 1 ? count : "";
        cell.text.setAttribute("class", /load|store|atomic|outside/.test(classes) ? "on" : "");
      }
      const touched = step && step.elements ? inWords(step.elements, this.tensor.shape) : "nothing";
      this.svg.setAttribute("aria-label", `${this.tensor.name}: this step touches ${touched}`);
    }
  }

  class Player extends HTMLElement {
    connectedCallback() {
      if (this.shadowRoot) return;
      this.attachShadow({ mode: "open" });
      this.shadowRoot.append(make("style", {}, STYLE));
      const inside = this.querySelector("script[type='application/json']");
      if (inside) {
        this.start(JSON.parse(inside.textContent));
        return;
      }
      const seen = new IntersectionObserver((entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        seen.disconnect();
        this.load();
      }, { rootMargin: "200px" });
      seen.observe(this);
    }

    async load() {
      try {
        const source = this.getAttribute("src");
        const data = await (source.endsWith(".js") ? dataOfScript(source) : dataOfFile(source));
        this.start(data.traces ? data.traces[this.getAttribute("name")] : data);
      } catch (error) {
        const text = `The trace could not be loaded (${error.message}).`;
        this.shadowRoot.append(make("p", {}, text));
      }
    }

    start(trace) {
      this.trace = trace;
      this.frame = make("div", { class: "frame", tabindex: "0", role: "group" });
      this.shadowRoot.append(this.frame);
      this.frame.addEventListener("keydown", (event) => this.pressed(event));
      this.open(0);
    }

    // Show one of the launches.
    open(number) {
      this.stop();
      const launch = this.trace.launches[number];
      if (!launch) {
        this.frame.replaceChildren("No kernel was launched.");
        return;
      }
      this.launch = launch;
      this.program = 0;
      this.step = 0;
      this.steps = launch.programs.flatMap((program) => program.steps);
      this.begins = [];
      let begin = 0;
      for (const program of launch.programs) {
        this.begins.push(begin);
        begin += program.steps.length;
      }
      this.users = this.whoUses();
      this.build(number);
      this.show();
    }

    // For each tensor: element → the numbers of the programs that touch it.
    whoUses() {
      const users = this.launch.tensors.map(() => new Map());
      this.launch.programs.forEach((program, number) => {
        for (const step of program.steps) {
          if (step.tensor === undefined) continue;
          for (const element of numbersIn(step.elements)) {
            const known = users[step.tensor].get(element);
            if (known === undefined) users[step.tensor].set(element, new Set([number]));
            else known.add(number);
          }
        }
      });
      return users;
    }

    build(number) {
      const { launch } = this;
      this.frame.setAttribute("aria-label", `Trace of ${launch.kernel}`);
      const size = launch.grid.filter((n, i) => i === 0 || n > 1).join(" × ");
      const alone = launch.programs.length === 1;
      const title = make("h3", {}, launch.functions.length ? make("code", {}, launch.kernel) : launch.kernel);
      if (launch.functions.length) title.append(`, ${size} ${size === "1" ? "program" : "programs"}`);
      const parts = [title];
      if (this.trace.launches.length > 1) {
        const choice = make("select", { "aria-label": "Launch" });
        this.trace.launches.forEach((one, i) => {
          const option = make("option", { value: i }, `launch ${i + 1}: ${one.kernel}`);
          if (i === number) option.setAttribute("selected", "");
          choice.append(option);
        });
        choice.addEventListener("change", () => this.open(Number(choice.value)));
        parts.push(choice);
      }
      this.programSlider = make("input", { type: "range", id: "program", min: 0, max: Math.max(launch.programs.length - 1, 0), value: 0 });
      this.stepSlider = make("input", { type: "range", id: "step", min: 0, value: 0 });
      this.programText = make("span", { class: "number" });
      this.stepText = make("span", { class: "number" });
      this.programSlider.addEventListener("input", () => this.go(Number(this.programSlider.value), 0));
      this.stepSlider.addEventListener("input", () => this.go(this.program, Number(this.stepSlider.value)));
      const controls = make("div", { class: "controls" });
      if (!alone) controls.append(make("label", { for: "program" }, "Program"), this.programSlider, this.programText);
      controls.append(make("label", { for: "step" }, "Step"), this.stepSlider, this.stepText);
      parts.push(controls);
      this.back = make("button", { type: "button" }, "Back");
      this.next = make("button", { type: "button" }, "Next");
      this.playing = make("button", { type: "button", class: "play" }, "Play");
      this.back.addEventListener("click", () => this.move(-1));
      this.next.addEventListener("click", () => this.move(1));
      this.playing.addEventListener("click", () => (this.timer ? this.stop() : this.play()));
      parts.push(make("div", { class: "buttons" }, this.back, this.next, this.playing));
      this.map = make("div", { class: "programs", "aria-hidden": "true" });
      this.map.append(...launch.programs.map(() => make("span")));
      if (!alone) parts.push(this.map);
      this.said = make("div", { class: "said", "aria-live": "polite" });
      parts.push(this.said);
      this.code = make("div");
      this.pictures = launch.tensors.map((tensor, i) => {
        const values = this.steps.filter((step) => step.values && step.values[i]).map((step) => step.values[i]);
        return new Picture(tensor, this.steps.filter((step) => step.tensor === i), values);
      });
      const tensors = make("div", { class: "tensors" }, ...this.pictures.map((picture) => picture.figure));
      const body = launch.functions.length ? make("div", { class: "body" }, this.code, tensors) : tensors;
      parts.push(body, this.legend());
      if (launch.left_out > 0) parts.push(make("p", {}, launch.left_out === 1 ? "One more program is not in this trace." : `${launch.left_out} more programs are not in this trace.`));
      this.rows = make("tbody");
      const head = make("tr");
      for (const name of ["Step", "Line", "What", "Tensor", "Elements", "Masked", "Out of bounds", "Bytes"]) {
        head.append(make("th", { scope: "col" }, name));
      }
      const table = make("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Steps of this program" },
        make("table", {}, make("thead", {}, head), this.rows));
      parts.push(make("details", {}, make("summary", {}, "The steps of this program as a table"), table));
      this.frame.replaceChildren(...parts);
      this.shownFunction = null;
      this.shownProgram = null;
    }

    legend() {
      const list = make("ul", { class: "legend" });
      const kinds = new Set(this.steps.map((step) => step.kind));
      const names = [["load", "loaded now"], ["store", "stored now"], ["atomic", "updated now"]].filter(([kind]) => kinds.has(kind));
      if (kinds.has("load")) names.push(["read1", "loaded before; a number says how often"]);
      if (kinds.has("store") || kinds.has("atomic")) names.push(["written", "stored before"]);
      if (this.steps.some((step) => step.masked)) names.push(["masked", "left out by the mask"]);
      if (this.steps.some((step) => step.outside)) names.push(["outside", "out of bounds"]);
      if (this.users.some((elements) => [...elements.values()].some((programs) => programs.size > 1))) {
        names.push(["linked", "another program touches it, too"]);
      }
      if (!this.launch.functions.length) return list; // the texts of a scene say what is shown
      for (const [name, text] of names) {
        const svg = draw("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true" });
        svg.append(draw("rect", { x: 2, y: 2, width: 10, height: 10, class: name }));
        list.append(make("li", {}, svg, text));
      }
      return list;
    }

    pressed(event) {
      if (event.target.closest("input, select, button, summary, .wide")) return;
      const moves = { ArrowRight: () => this.move(1), ArrowLeft: () => this.move(-1),
        ArrowDown: () => this.go(this.program + 1, 0), ArrowUp: () => this.go(this.program - 1, 0),
        Home: () => this.go(0, 0), End: () => this.go(Infinity, Infinity) };
      const move = moves[event.key];
      if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      move();
    }

    // One step further or back, into the next or the previous program where this one ends.
    move(by) {
      const step = this.step + by;
      const { programs } = this.launch;
      if (step < 0 && this.program > 0) this.go(this.program - 1, Infinity);
      else if (step >= programs[this.program].steps.length && this.program + 1 < programs.length) this.go(this.program + 1, 0);
      else this.go(this.program, step);
    }

    go(program, step) {
      const { programs } = this.launch;
      this.program = Math.min(Math.max(program, 0), programs.length - 1);
      const last = programs[this.program].steps.length - 1;
      this.step = Math.min(Math.max(step, 0), last);
      this.show();
    }

    get atEnd() {
      const { programs } = this.launch;
      return this.program === programs.length - 1 && this.step >= programs[this.program].steps.length - 1;
    }

    play() {
      if (this.atEnd) this.go(0, 0);
      this.playing.textContent = "Pause";
      this.timer = setInterval(() => {
        this.move(1);
        if (this.atEnd) this.stop();
      }, 1000 * SECONDS_A_STEP);
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      if (this.playing) this.playing.textContent = "Play";
    }

    show() {
      const { launch } = this;
      const program = launch.programs[this.program];
      if (!program || !program.steps.length) return;
      const step = program.steps[this.step];
      const name = programName(program.index, launch.grid);
      this.programSlider.value = this.program;
      this.programSlider.setAttribute("aria-valuetext", `program ${name}`);
      this.stepSlider.max = program.steps.length - 1;
      this.stepSlider.value = this.step;
      this.stepSlider.setAttribute("aria-valuetext", `step ${this.step + 1} of ${program.steps.length}, line ${step.line}`);
      this.programText.textContent = name;
      this.stepText.textContent = `${this.step + 1} of ${program.steps.length}`;
      this.back.disabled = this.program === 0 && this.step === 0;
      this.next.disabled = this.atEnd;
      const links = this.links(step);
      this.say(step, name, links);
      this.showCode(step);
      this.showTensors(step, links.elements);
      [...this.map.children].forEach((cell, i) => {
        cell.className = i === this.program ? "current" : links.programs.has(i) ? "linked" : "";
      });
      this.showTable(program);
    }

    // The elements of a step that other programs touch, too, and these programs.
    links(step) {
      const elements = [];
      const programs = new Set();
      if (step.tensor !== undefined) {
        for (const element of numbersIn(step.elements)) {
          const users = this.users[step.tensor].get(element);
          if (!users || users.size < 2) continue;
          elements.push(element);
          for (const one of users) if (one !== this.program) programs.add(one);
        }
      }
      return { elements, programs };
    }

    // The bytes that were moved until the current step, in the order of the interpreter.
    bytesSoFar() {
      const until = this.begins[this.program] + this.step;
      const sums = { load: 0, store: 0, atomic: 0 };
      for (const step of this.steps.slice(0, until + 1)) {
        if (step.kind in sums) sums[step.kind] += step.bytes || 0;
      }
      return { loaded: sums.load + sums.atomic, stored: sums.store + sums.atomic };
    }

    say(step, name, links) {
      const lines = [];
      if (step.tensor !== undefined && !step.text) {
        const tensor = this.launch.tensors[step.tensor];
        const what = step.elements ? inWords(step.elements, tensor.shape) : "no element";
        const where = step.line ? ` line ${step.line}` : " this step";
        let text = `Program ${name}, step ${this.step + 1}:${where} ${PAST[step.kind] || "touches"} ${what} of ${tensor.name}`;
        text += step.bytes ? `, ${step.bytes} bytes.` : ".";
        if (step.masked) text += ` The mask leaves out ${sizeOf(step.masked)}.`;
        lines.push(make("p", {}, text));
        if (step.outside) lines.push(make("p", { class: "wrong" }, `Out of bounds: ${inWords(step.outside, tensor.shape)}.`));
      }
      if (step.text) lines.push(make("p", {}, step.text));
      if (links.programs.size) {
        const names = [...links.programs].map((i) => programName(this.launch.programs[i].index, this.launch.grid));
        const more = names.length > 6 ? `, and ${names.length - 6} more` : "";
        lines.push(make("p", {}, `${links.elements.length} of these elements are also touched by program ${names.slice(0, 6).join(", ")}${more}.`));
      }
      const { loaded, stored } = this.bytesSoFar();
      if (loaded || stored) lines.push(make("p", {}, `So far: ${loaded} bytes loaded, ${stored} stored.`));
      this.said.replaceChildren(...lines);
    }

    showCode(step) {
      const number = step.function || 0;
      const source = this.launch.functions[number];
      if (!source) return;
      if (this.shownFunction !== number) {
        const lines = source.source.map((text) => make("span", {}, text || " "));
        const pre = make("pre", { tabindex: "0", "aria-label": `${source.name} in ${source.file}` }, ...lines);
        this.code.replaceChildren(pre);
        this.shownFunction = number;
      }
      [...this.code.firstChild.children].forEach((line, i) => {
        const current = i + source.first === step.line;
        line.className = current ? "current" : "";
        if (current) line.setAttribute("aria-current", "step");
        else line.removeAttribute("aria-current");
      });
    }

    showTensors(step, linked) {
      const until = this.begins[this.program] + this.step;
      const reads = this.launch.tensors.map(() => new Map());
      const written = this.launch.tensors.map(() => new Set());
      let values = {};
      for (const [number, one] of this.steps.slice(0, until + 1).entries()) {
        values = { ...values, ...(one.values || {}) };
        if (one.tensor === undefined) continue;
        if (one.kind === "load") {
          for (const element of numbersIn(one.elements)) {
            reads[one.tensor].set(element, (reads[one.tensor].get(element) || 0) + 1);
          }
        } else if (number < until && one.kind !== "note") {
          for (const element of numbersIn(one.elements)) written[one.tensor].add(element);
        }
      }
      this.pictures.forEach((picture, i) => {
        const own = step.tensor === i;
        picture.show(reads[i], written[i], own ? step : null, own ? linked : [], values[i]);
      });
    }

    showTable(program) {
      if (this.shownProgram !== program) {
        this.rows.replaceChildren(...program.steps.map((step, i) => {
          const tensor = this.launch.tensors[step.tensor];
          const words = (runs) => (runs ? inWords(runs, tensor.shape) : "");
          const values = [i + 1, step.line || "", step.text || step.kind, tensor ? tensor.name : "",
            words(step.elements), step.masked ? sizeOf(step.masked) : "", words(step.outside), step.bytes ?? ""];
          return make("tr", {}, ...values.map((value) => make("td", {}, String(value))));
        }));
        this.shownProgram = program;
      }
      [...this.rows.children].forEach((row, i) => { row.className = i === this.step ? "current" : ""; });
    }

    disconnectedCallback() {
      this.stop();
    }
  }

  if (!customElements.get("triton-trace")) customElements.define("triton-trace", Player);
})();
