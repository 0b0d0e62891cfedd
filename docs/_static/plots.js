// Used by: sphx-glr-single-img
// The value of the point of a plot that is nearest to the mouse or the finger. The scraper has put a
// <title> into each point of the SVG (triton_site/pages/points.py).
(() => {
  "use strict";
  const NEAR = 30; // pixels

  async function pointsOf(image) {
    const answer = await fetch(image.src).catch(() => null); // none from a file on disk
    if (!answer?.ok) return [];
    const svg = new DOMParser().parseFromString(await answer.text(), "image/svg+xml").documentElement;
    const [, , width, height] = (svg.getAttribute("viewBox") ?? "").split(" ").map(Number);
    return [...svg.querySelectorAll("use > title")].map((title) => ({
      x: title.parentNode.getAttribute("x") / width,
      y: title.parentNode.getAttribute("y") / height,
      text: title.textContent,
    }));
  }

  for (const image of document.querySelectorAll("img.sphx-glr-single-img[src*='.svg']")) {
    let points = null;
    const label = Object.assign(document.createElement("span"), { className: "gallery-point", hidden: true });
    const show = async (event) => {
      points ??= pointsOf(image);
      const all = await points;
      const box = image.getBoundingClientRect();
      const away = (p) => Math.hypot(box.left + p.x * box.width - event.clientX, box.top + p.y * box.height - event.clientY);
      const nearest = all.reduce((a, b) => (!a || away(b) < away(a) ? b : a), null);
      label.hidden = !nearest || away(nearest) > NEAR;
      if (label.hidden) return;
      if (!label.isConnected) document.body.append(label);
      label.textContent = nearest.text;
      const left = scrollX + box.left + nearest.x * box.width - label.offsetWidth / 2;
      label.style.left = `${Math.max(scrollX + 4, Math.min(left, scrollX + document.documentElement.clientWidth - label.offsetWidth - 4))}px`;
      label.style.top = `${scrollY + box.top + nearest.y * box.height - label.offsetHeight - 10}px`;
    };
    image.addEventListener("pointermove", show);
    image.addEventListener("pointerdown", show);
    image.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") label.hidden = true; });
  }
})();
