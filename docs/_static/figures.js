// The rates behind a plot: at the size that is nearest to the pointer or the finger, or that the
// arrow keys have reached. A picture's attribute names the script that holds them, which is fetched
// when they are first asked for. A picture that is exchanged for another one answers, too.
(() => {
  "use strict";
  const known = new Map();
  const waiting = new Map();
  const SVG = "http://www.w3.org/2000/svg";

  // Each of those scripts calls this, with its own name.
  window.galleryRates = (name, data) => {
    known.set(name, data);
    for (const then of waiting.get(name) ?? []) then();
    waiting.delete(name);
  };
  function fetchRates(address, then) {
    const name = address.replace(/^.*\//, "").replace(/\.js$/, "");
    if (known.has(name)) return then(known.get(name));
    if (waiting.has(name)) return waiting.get(name).push(() => then(known.get(name)));
    waiting.set(name, [() => then(known.get(name))]);
    document.head.append(Object.assign(document.createElement("script"), { src: address }));
  }

  function make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }
  function draw(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  }
  const number = (value) => Number(value.toPrecision(4)).toLocaleString("en");
  const paint = (color) => (color.startsWith("#") ? color : "#999999");

  // The sizes of a frame: where each is on its axis, and what every series has there.
  function stopsOf(frame) {
    const stops = new Map();
    const axis = frame.along === "y" ? 1 : 0;
    for (const [name, color, , points] of frame.series) {
      for (const [x, y, size, median, low, high] of points) {
        if (!stops.has(size)) stops.set(size, { size, places: [], values: [] });
        stops.get(size).places.push([x, y][axis]);
        stops.get(size).values.push({ name, color: paint(color), x, y, median, low, high });
      }
    }
    const made = [...stops.values()];
    for (const stop of made) stop.at = stop.places.reduce((a, b) => a + b) / stop.places.length;
    return made.sort((a, b) => a.at - b.at);
  }

  function answer(image) {
    const over = make("span", { className: "gallery-rates-over", tabIndex: 0 });
    const box = make("span", { className: "gallery-rates-box" });
    box.setAttribute("role", "status");
    box.setAttribute("aria-live", "polite");
    over.setAttribute("role", "slider");
    over.setAttribute("aria-label", `Rates in the plot: ${image.alt}. Arrow keys go from size to size`);
    for (const [name, value] of [["min", 0], ["max", 0], ["now", 0], ["text", "none chosen"]]) {
      over.setAttribute(`aria-value${name}`, value);
    }
    const whole = make("span", { className: "gallery-rates" });
    const picture = image.closest("a") ?? image; // Sphinx makes it a link to the file
    picture.replaceWith(whole);
    whole.append(picture, over, box);

    let frames = [];
    let size = [1, 1];
    let place = [0, -1]; // the frame, and the stop in it
    let shown = "";
    let finger = false;

    function ready(then) {
      const address = image.dataset.rates;
      if (!address) return hide();
      fetchRates(address, (data) => {
        if (image.dataset.rates !== address) return; // exchanged while they were fetched
        if (shown !== address) {
          size = data.size;
          frames = data.axes.map((frame) => ({ ...frame, stops: stopsOf(frame) }));
          place = [0, -1];
          shown = address;
        }
        then();
      });
    }
    // Over the picture, which on a narrow screen is wider than its place, and scrolls there.
    function cover() {
      const [edges, place] = [image.getBoundingClientRect(), whole.getBoundingClientRect()];
      Object.assign(over.style, {
        left: `${edges.left - place.left}px`, top: `${edges.top - place.top}px`,
        width: `${edges.width}px`, height: `${edges.height}px`,
      });
    }
    function hide() {
      over.replaceChildren();
      box.replaceChildren();
    }
    function show(frameNumber, stopNumber) {
      const frame = frames[frameNumber];
      const stop = frame.stops[stopNumber];
      if (!stop) return;
      if (place[0] === frameNumber && place[1] === stopNumber && box.firstChild) return;
      place = [frameNumber, stopNumber];
      const [left, top, right, bottom] = frame.box;
      const drawing = draw("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, "aria-hidden": "true" });
      const line = frame.along === "y"
        ? { x1: left, x2: right, y1: stop.at, y2: stop.at }
        : { x1: stop.at, x2: stop.at, y1: top, y2: bottom };
      drawing.append(draw("line", line));
      for (const value of stop.values) {
        drawing.append(draw("circle", { cx: value.x, cy: value.y, r: 4, fill: value.color, "data-series": "" }));
      }
      over.replaceChildren(drawing);
      cover();
      const name = typeof stop.size === "number" ? `${frame.label} = ${stop.size}` : stop.size;
      const rows = [...stop.values].sort((a, b) => b.median - a.median).map((value) => {
        const color = make("i", {});
        color.style.background = value.color;
        color.dataset.series = "";
        return make("span", {}, color, make("span", { textContent: value.name }),
          make("em", {}, `${number(value.median)} ${frame.unit} `,
            make("small", { textContent: `${number(value.low)} to ${number(value.high)}` })));
      });
      const title = frames.length > 1 && frame.title ? `${frame.title}: ` : "";
      box.replaceChildren(make("b", { textContent: title + name }), ...rows);
      over.setAttribute("aria-valuemax", frame.stops.length - 1);
      over.setAttribute("aria-valuenow", stopNumber);
      over.setAttribute("aria-valuetext", title + name);
      // Beside the line, on the side that has more room; below the picture where that is narrow.
      const width = whole.clientWidth;
      const wide = width >= 560;
      const lying = frame.along === "y";
      const at = (stop.at / size[0]) * width;
      const onLeft = at > width / 2;
      box.style.left = !wide ? "0" : lying || onLeft ? "auto" : `${at + 14}px`;
      box.style.right = !wide || lying ? "0" : onLeft ? `${width - at + 14}px` : "auto";
      if (!wide) return void (box.style.top = "100%");
      if (lying) return void (box.style.top = `${(100 * (Math.max(...stop.places) + 10)) / size[1]}%`);
      // At the top or the bottom of the frame, where it hides fewer points.
      const high = (box.offsetHeight / whole.clientHeight) * size[1];
      const hidden = (from) => frame.series.flatMap((series) => series[3]).filter(
        ([x, y]) => (onLeft ? x < stop.at : x > stop.at) && y > from && y < from + high).length;
      const low = bottom - high - 8;
      box.style.top = `${(100 * (hidden(top + 8) <= hidden(low) ? top + 8 : low)) / size[1]}%`;
    }
    function point(event) {
      const edges = image.getBoundingClientRect();
      ready(() => {
        const x = ((event.clientX - edges.left) / edges.width) * size[0];
        const y = ((event.clientY - edges.top) / edges.height) * size[1];
        const away = (at, low, high) => Math.max(low - at, 0, at - high);
        const far = frames.map(({ box: [l, t, r, b] }) => away(x, l, r) + away(y, t, b));
        const frame = far.indexOf(Math.min(...far));
        if (far[frame] > 30) return hide();
        const to = frames[frame].stops.map((stop) => Math.abs(stop.at - (frames[frame].along === "y" ? y : x)));
        show(frame, to.indexOf(Math.min(...to)));
      });
    }
    whole.addEventListener("pointermove", point);
    whole.addEventListener("pointerdown", (event) => {
      finger = event.pointerType !== "mouse";
      point(event);
    });
    // A finger asks for the rates; a mouse, which has them already, for the picture.
    whole.addEventListener("click", (event) => { if (finger) event.preventDefault(); });
    whole.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && document.activeElement !== over) hide();
    });
    document.addEventListener("pointerdown", (event) => { if (!whole.contains(event.target)) hide(); });
    over.addEventListener("focus", () => ready(() => show(place[0], Math.max(place[1], 0))));
    over.addEventListener("blur", hide);
    picture.addEventListener("scroll", cover);
    over.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      const last = () => frames[place[0]].stops.length - 1;
      const moves = {
        ArrowLeft: () => [place[0], Math.max(place[1] - 1, 0)],
        ArrowRight: () => [place[0], Math.min(place[1] + 1, last())],
        Home: () => [place[0], 0],
        End: () => [place[0], last()],
        ArrowUp: () => [Math.max(place[0] - 1, 0), place[1]],
        ArrowDown: () => [Math.min(place[0] + 1, frames.length - 1), place[1]],
      };
      if (event.key === "Escape") return hide();
      if (!moves[event.key]) return;
      event.preventDefault();
      event.stopPropagation(); // the theme turns pages with these keys
      ready(() => {
        const [frame, stop] = moves[event.key]();
        show(frame, Math.min(Math.max(stop, 0), frames[frame].stops.length - 1));
      });
    });
    // Another picture in this one's place: what is shown is no longer so.
    new MutationObserver(hide).observe(image, { attributeFilter: ["src", "data-rates"] });
  }

  function answerAll(root) {
    for (const image of root.querySelectorAll("img[data-rates]")) {
      if (!image.closest(".gallery-rates")) answer(image);
    }
  }
  answerAll(document);
  // Pictures that come later: another recording's, where the page shows that one instead.
  const page = document.querySelector("[itemprop=articleBody]");
  if (page) {
    new MutationObserver((changes) => {
      for (const change of changes) {
        for (const node of change.addedNodes) {
          // What is no longer there was wrapped, by this script or another.
          if (!node.isConnected) continue;
          if (node.nodeName === "IMG" || node.querySelector?.("img[data-rates]")) answerAll(node.parentNode);
        }
      }
    }).observe(page, { childList: true, subtree: true });
  }
})();
