"""How long a lesson of the new form is, in screens, and where its kernel begins."""

from playwright.sync_api import Page

from tests.docs import form
from tests.galleries import PAGES

KERNEL_TOP = """() => {
  const blocks = [...document.querySelectorAll('.highlight-Python pre, .highlight-python pre')];
  const isKernel = (pre) => /@(triton|gluon)[.]jit/.test(pre.textContent);
  const kernel = blocks.find((pre) => !pre.closest('details') && isKernel(pre));
  return kernel ? kernel.getBoundingClientRect().top + scrollY : Infinity;
}"""


def test_screens_and_the_place_of_the_kernel(page: Page, address: str):
    page.set_viewport_size({"width": 1280, "height": 800})
    found = {}
    for name in form.lessons():
        page.goto(f"{address}stable/{PAGES[name]}.html")
        screens = page.evaluate("document.documentElement.scrollHeight") / 800
        kernel = page.evaluate(KERNEL_TOP) / 800
        idea_first = name.partition("-")[0] in form.IDEA_FIRST
        latest = form.KERNEL_AFTER_IDEA if idea_first else form.KERNEL_AT
        if screens > form.SCREENS or kernel > latest:
            found[name] = f"{screens:.1f} screens, the kernel at {kernel:.2f}"
    assert not found
