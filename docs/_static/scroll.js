// A box that is wider than the page scrolls by itself; this lets the keyboard reach it. A box is
// measured when it comes near the window, since to measure all of them a browser would lay out all of
// them; until then the keyboard can reach it.
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) letKeyboardScroll(target);
}, { rootMargin: "300px" });
function letKeyboardScroll(box) {
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}
function watchBoxes() {
  near.disconnect(); // an observer reports everything anew that it observes anew
  for (const box of document.querySelectorAll("pre, .wy-table-responsive, div.math, .rst-content figure")) {
    box.tabIndex = 0;
    near.observe(box);
  }
}
watchBoxes();
addEventListener("resize", watchBoxes);
