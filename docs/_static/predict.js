// Used by: gallery-predict
// A question before its answer: buttons for its choices, or a field for a number. What follows in the
// section is blurred until the reader answers or skips. What was answered is kept in this browser.
(() => {
  "use strict";
  const make = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const { keep, kept } = window.galleryStore; // of site.js
  const SKIPPED = "skipped";

  for (const box of document.querySelectorAll(".gallery-predict")) {
    const key = `predict ${location.pathname} ${box.id}`;
    const fold = box.querySelector("details");
    const verdict = make("p", { className: "gallery-verdict" });
    verdict.setAttribute("role", "status");
    fold.before(verdict);
    const hidden = followers(box);
    blur(hidden);
    const question = { box, fold, verdict, key };
    question.answered = (text) => {
      verdict.textContent = text;
      fold.open = true;
      show(hidden);
      box.querySelector(".skip")?.remove();
    };
    const skip = make("button", { type: "button", className: "skip", textContent: "Skip" });
    skip.addEventListener("click", () => { keep(key, SKIPPED); question.answered(""); });
    fold.addEventListener("toggle", () => { if (fold.open) show(hidden); });
    if (box.dataset.right) chooseAnswer(question, skip);
    else typeNumber(question, skip);
    if (kept(key) === SKIPPED) question.answered("");
  }

  // The rest of the question's section, unless an address leads into it.
  function followers(box) {
    const found = [];
    for (let next = box.nextElementSibling; next; next = next.nextElementSibling) found.push(next);
    let target = null;
    try { target = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { /* no address */ }
    return target && found.some((element) => element.contains(target)) ? [] : found;
  }
  function blur(elements) {
    for (const element of elements) {
      element.classList.add("gallery-blurred");
      element.inert = true;
    }
  }
  function show(elements) {
    for (const element of elements) {
      element.classList.remove("gallery-blurred");
      element.inert = false;
    }
  }

  function chooseAnswer({ box, key, answered }, skip) {
    const list = box.querySelector(".gallery-choices");
    const items = [...list.children];
    const buttons = items.map((item, number) => {
      const button = make("button", { type: "button" }, ...item.firstElementChild.childNodes);
      button.addEventListener("click", () => { choose(number); keep(key, number); });
      item.replaceChildren(button);
      return button;
    });
    list.append(make("li", {}, skip));
    function choose(number) {
      const right = Number(box.dataset.right);
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === number)));
      items.forEach((item, i) => item.classList.toggle("right", i === right));
      answered(number === right ? "Right." : `Not quite: ${items[right].textContent.trim()}.`);
    }
    const before = kept(key);
    if (/^\d+$/.test(before ?? "") && items[Number(before)]) choose(Number(before));
  }

  function typeNumber({ box, key, answered, fold, verdict }, skip) {
    const unit = box.dataset.unit;
    const field = make("input", { type: "number", step: "any", required: true });
    field.setAttribute("aria-label", unit ? `Your prediction, in ${unit}` : "Your prediction");
    const form = make("form", { className: "gallery-guess" }, field, unit, make("button", {}, "Compare"), skip);
    const measured = fold.querySelector(".measured").textContent;
    const compare = () => answered(
      `You predicted ${field.value} ${unit}; ${measured} ${unit} was measured: ${howFarOff(Number(field.value), Number.parseFloat(measured.replaceAll(",", "")), unit)}.`,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      compare();
      keep(key, field.value);
    });
    verdict.before(form);
    const before = kept(key);
    if (before && Number.isFinite(Number(before))) { field.value = before; compare(); }
  }

  // "twice too high", "30 % too low"; a difference in the unit where a ratio says nothing.
  function howFarOff(guess, measured, unit) {
    if (!(guess > 0 && measured > 0)) {
      const away = Number(Math.abs(guess - measured).toPrecision(2));
      return away === 0 ? "right" : `${away} ${unit} too ${guess > measured ? "high" : "low"}`;
    }
    const way = guess > measured ? "high" : "low";
    const ratio = Math.max(guess / measured, measured / guess);
    if (ratio <= 1.05) return "right, within 5 %";
    if (ratio < 1.75) return `${Math.round(100 * Math.abs(guess / measured - 1))} % too ${way}`;
    if (ratio < 2.25) return `twice too ${way}`.replace("twice too low", "half of it");
    const times = ratio < 10 ? Number(ratio.toFixed(1)) : Math.round(ratio);
    return way === "high" ? `${times} times too high` : `too low, by a factor of ${times}`;
  }
})();
