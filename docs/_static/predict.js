// A question before its answer: buttons for its choices, or a field for a number. Answering opens the
// fold with the answer. What was answered is kept in this browser.
(() => {
  "use strict";
  const make = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const keep = (key, value) => { try { localStorage.setItem(key, value); } catch { /* not remembered */ } };
  const kept = (key) => { try { return localStorage.getItem(key); } catch { return null; } };

  for (const box of document.querySelectorAll(".gallery-predict")) {
    const key = `gallery-predict ${location.pathname} ${box.id}`;
    const fold = box.querySelector("details");
    const verdict = make("p", { className: "gallery-verdict" });
    verdict.setAttribute("role", "status");
    fold.before(verdict);
    const answered = (text) => {
      verdict.textContent = text;
      fold.open = true;
    };
    if (box.dataset.right) chooseAnswer(box, key, answered);
    else typeNumber(box, key, answered, fold);
  }

  function chooseAnswer(box, key, answered) {
    const items = [...box.querySelectorAll(".gallery-choices > li")];
    const buttons = items.map((item, number) => {
      const button = make("button", { type: "button" }, ...item.firstElementChild.childNodes);
      button.addEventListener("click", () => { choose(number); keep(key, number); dispatchEvent(new Event("gallery-answered")); });
      item.replaceChildren(button);
      return button;
    });
    function choose(number) {
      const right = Number(box.dataset.right);
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === number)));
      items.forEach((item, i) => item.classList.toggle("right", i === right));
      answered(number === right ? "Right." : `Not quite: ${items[right].textContent.trim()}.`);
    }
    if (kept(key) !== null) choose(Number(kept(key)));
  }

  function typeNumber(box, key, answered, fold) {
    const field = make("input", { type: "number", step: "any", required: true });
    field.setAttribute("aria-label", "Your prediction");
    const form = make("form", { className: "gallery-guess" }, field, ` ${box.dataset.unit} `, make("button", {}, "Compare"));
    const compare = () => answered(`You predicted ${field.value} ${box.dataset.unit}; ${fold.querySelector(".measured").textContent} was measured.`);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      compare();
      keep(key, field.value);
      dispatchEvent(new Event("gallery-answered"));
    });
    fold.previousElementSibling.before(form);
    if (kept(key) !== null) { field.value = kept(key); compare(); }
  }
})();
