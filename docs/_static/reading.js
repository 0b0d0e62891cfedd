// A link into a fold opens it. Browsers that do so by themselves find it open already.
//
// Sections far away have guessed heights (layout.css). A browser that goes to a place counts with
// them, lays out what is near, and finds the place moved: so it is told again until it stays there.
(() => {
  "use strict";
  let traversed = false; // back and forward lead to where the reader was, not to the place itself
  globalThis.navigation?.addEventListener("navigate", (event) => {
    traversed = event.navigationType === "traverse";
  });

  function goTo(anchor, stay) {
    const target = document.getElementById(decodeURIComponent(anchor.slice(1)));
    let opened = false;
    for (let fold = target?.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      opened ||= !fold.open;
      fold.open = true;
    }
    if (target && (stay || opened)) settle(target);
  }

  function settle(target) {
    let [frames, same, before] = [60, 0, NaN];
    const leave = () => { frames = 0; }; // the reader has gone on
    for (const sign of ["wheel", "touchstart", "keydown", "pointerdown", "popstate"]) {
      addEventListener(sign, leave, { once: true, passive: true });
    }
    requestAnimationFrame(function again() {
      const at = target.getBoundingClientRect().top + scrollY;
      same = at === before ? same + 1 : 0;
      before = at;
      if (frames-- <= 0 || same > 3) return;
      target.scrollIntoView();
      requestAnimationFrame(again);
    });
  }

  addEventListener("hashchange", () => goTo(location.hash, !traversed));
  goTo(location.hash, performance.getEntriesByType("navigation")[0]?.type === "navigate");
})();
