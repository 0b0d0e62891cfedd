// A box that is wider than the page scrolls by itself; this lets the keyboard reach it.
function letKeyboardScroll() {
  for (const box of document.querySelectorAll("pre, .wy-table-responsive, div.math")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
addEventListener("load", letKeyboardScroll);
addEventListener("resize", letKeyboardScroll);
