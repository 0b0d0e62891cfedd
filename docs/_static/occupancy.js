// Used by: gallery-occupancy
// A calculator of occupancy: choose a recorded kernel, and change its registers, shared memory or warps.
(() => {
  "use strict";
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
  for (const whole of document.querySelectorAll(".gallery-occupancy")) {
    const limits = JSON.parse(whole.dataset.limits);
    const kernels = JSON.parse(whole.dataset.kernels);
    const parts = [
      { text: "Registers a thread", min: 16, max: 255, of: (kernel) => kernel.registers },
      { text: "Shared memory of a program, KiB", min: 0, max: 227, step: "any", of: (kernel) => kernel.shared / 1024 },
      { text: "Warps of a program", min: 1, max: 32, of: (kernel) => kernel.warps },
    ];
    const choice = make("select");
    const picture = make("div", { className: "warps" });
    const result = make("output", { className: "result" });

    function room(registers, shared, warps) {
      const ofWarp = Math.ceil(registers / 8) * 256; // registers come in units of 256
      const found = {
        warps: Math.floor(limits.warps / warps),
        programs: limits.programs,
        registers: Math.floor((4 * Math.floor(limits.registers / ofWarp / 4)) / warps), // 4 schedulers
        "shared memory": Math.floor(limits.shared / 1024 / (shared + 1)), // 1 KiB is the system's
      };
      const limit = Object.keys(found).reduce((a, b) => (found[b] < found[a] ? b : a));
      return [found[limit], limit];
    }
    function show() {
      const values = parts.map((part) => Number(part.slider.value));
      parts.forEach((part, at) => (part.words.textContent = Math.round(values[at])));
      const [programs, limit] = room(...values);
      const total = programs * values[2];
      const share = Math.round((100 * total) / limits.warps);
      result.textContent = `Programs that fit: ${programs}. Warps: ${total} of ${limits.warps} (${share} %). Limited by: ${limit}.`;
      [...picture.children].forEach((cell, at) => {
        cell.className = at < total ? `program-${Math.floor(at / values[2]) % 2}` : "";
      });
    }
    function add(text, ...inside) {
      const label = make("label", { textContent: `${text} ` });
      label.append(...inside);
      whole.insertBefore(label, whole.lastElementChild);
    }
    choice.append(...kernels.map((kernel, at) => new Option(kernel.name, at)));
    choice.addEventListener("change", () => {
      for (const part of parts) part.slider.value = part.of(kernels[choice.value]);
      show();
    });
    add("Start from", choice);
    for (const part of parts) {
      const { text, min, max, step = 1 } = part;
      [part.slider, part.words] = [make("input", { type: "range", min, max, step }), make("output")];
      part.slider.addEventListener("input", show);
      add(text, part.slider, part.words);
    }
    for (let at = 0; at < limits.warps; at++) picture.append(make("i"));
    whole.lastElementChild.before(picture, result);
    choice.dispatchEvent(new Event("change"));
  }
})();
