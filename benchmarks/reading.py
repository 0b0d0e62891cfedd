"""How pages read: code in sight and folded, where the first kernel is, what is kernel and prose.

Lines are those of the script that are not blank. A kernel is in sight where its cell is not folded;
its place and the height of the page are measured in a browser, 1280 pixels wide, in screens of 900.
`make form` prints the table and fails where a page does not keep to the limits.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Response, sync_playwright
from tabulate import tabulate

from benchmarks.pages import FLAGS, find_browser
from gallery_recorder.project.script import load_script
from tests.fixtures import fixture_site
from triton_site.pages.cells import cells_of, in_sight

ROOT = Path(__file__).parents[1]
#: Scripts as their pages have them: what they share is in each.
MADE = ROOT / "build" / "galleries"

#: Pixels of a screen, and within how many the first kernel begins.
SCREEN, FIRST_KERNEL = 900, 1800
#: Lines of code in sight before it, and the share of a page's code that is in sight.
BEFORE_KERNEL, IN_SIGHT = 40, 0.6
#: Kilobytes of a first visit: all, and scripts.
FIRST_VISIT, SCRIPTS = 600, 150

#: What is far from the reader is not laid out, and has a guessed height until then.
_WHOLE = "section, dl { content-visibility: visible !important }"
_KERNEL_AT = """() => {
    for (const code of document.querySelectorAll("[itemprop=articleBody] pre"))
        if (/@(triton|gluon)\\.jit/.test(code.textContent) && code.checkVisibility())
            return code.getBoundingClientRect().top + scrollY;
    return null;
}"""


@dataclass(frozen=True)
class Form:
    """The measures of one page; places are pixels from its top."""

    name: str
    visible: int
    folded: int
    kernels: int
    prose: int
    before_kernel: int
    kernel_at: float | None
    height: float
    kilobytes: float
    scripts: float

    @property
    def in_sight(self) -> float:
        """The share of the code that is not folded."""
        return self.visible / (self.visible + self.folded)

    def faults(self) -> list[str]:
        """What a page must not be; the place of the first kernel is a matter of tutorials."""
        found = []
        if self.in_sight > IN_SIGHT:
            found.append(f"{self.in_sight:.0%} of its code is in sight, more than {IN_SIGHT:.0%}")
        if self.before_kernel > BEFORE_KERNEL:
            found.append(f"{self.before_kernel} lines of code stand before the first kernel")
        tutorial = self.name[0].isdigit()
        if tutorial and (self.kernel_at is None or self.kernel_at > FIRST_KERNEL):
            found.append(f"its first kernel begins {self.kernel_at} pixels from the top")
        if self.kilobytes > FIRST_VISIT or self.scripts > SCRIPTS:
            found.append(f"a first visit has {self.kilobytes} kB, {self.scripts} kB of scripts")
        return [f"{self.name}: {fault}" for fault in found]


def main() -> None:
    """Print a table of all pages of build/html; exit with 1 where one breaks a limit."""
    build = ROOT / "build" / "html"
    if not build.is_dir() or (browser := find_browser()) is None:
        print("left out: it needs a browser, and `make html` first")
        return
    with sync_playwright() as playwright, fixture_site.served(build) as root:
        running = playwright.chromium.launch(executable_path=browser, args=FLAGS)
        forms = [measure(running, root, script) for script in scripts()]
        running.close()
    print(table(forms))
    if faults := [fault for form in forms for fault in form.faults()]:
        sys.exit("\n".join(faults))


def scripts() -> list[Path]:
    """The tutorials, and the chapters that execute code."""
    return sorted(MADE.glob("tutorials/[0-9]*.py")) + sorted(MADE.glob("chapter-*/*.py"))


def measure(browser: Browser, root: str, path: Path) -> Form:
    """Measure the page of the script *path*, on the site at *root*."""
    script = load_script(path)
    cells = cells_of(script)
    shown = [in_sight(cell) for cell in cells]
    first = next((n for n, code in enumerate(shown) if _kernel_lines(code)), len(shown))
    begin = shown[first] if first < len(shown) else ""
    folder = "getting-started/tutorials"
    if path.parent.name != "tutorials":
        folder = f"programming-guide/{path.parent.name}"
    page = browser.new_page(viewport={"width": 1280, "height": SCREEN})
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))
    page.goto(f"{root}{folder}/{path.stem}.html", wait_until="networkidle")
    page.add_style_tag(content=_WHOLE)
    sizes = {urlsplit(a.url).path: len(a.body()) / 1000 for a in answers if a.ok}
    form = Form(
        name=path.stem,
        visible=sum(map(_lines, shown)),
        folded=sum(_lines(cell.code) for cell in cells) - sum(map(_lines, shown)),
        kernels=sum(_kernel_lines(cell.code) for cell in cells),
        prose=sum(_lines(block.content) for block in script.blocks if block.type == "text"),
        before_kernel=sum(map(_lines, shown[:first])) + _lines(begin.partition(".jit")[0]),
        kernel_at=page.evaluate(_KERNEL_AT),
        height=page.evaluate("document.scrollingElement.scrollHeight"),
        kilobytes=sum(sizes.values()),
        scripts=sum(size for path, size in sizes.items() if path.endswith(".js")),
    )
    page.close()
    return form


def table(forms: list[Form]) -> str:
    """The measures as a table to read."""
    rows = [
        (
            form.name,
            form.visible,
            form.folded,
            f"{form.in_sight:.0%}",
            f"{form.kernels / (form.visible + form.folded + form.prose):.0%}",
            f"{form.prose / (form.visible + form.folded + form.prose):.0%}",
            form.before_kernel,
            "-" if form.kernel_at is None else f"{form.kernel_at / SCREEN + 1:.1f}",
            f"{form.height / SCREEN:.1f}",
            f"{form.kilobytes:.0f}",
        )
        for form in forms
    ]
    head = ("page", "lines in\nsight", "folded", "share in\nsight", "kernels", "prose",
            "lines before\na kernel", "first kernel\non screen", "screens", "kB")  # fmt: skip
    return tabulate(rows, head, disable_numparse=True, stralign="right")


def _lines(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


def _kernel_lines(code: str) -> int:
    """The lines of the kernels in *code*: functions that Triton or Gluon compiles."""
    return sum(
        (node.end_lineno or 0) - min(d.lineno for d in node.decorator_list) + 1
        for node in ast.parse(code).body
        if isinstance(node, ast.FunctionDef)
        and any(".jit" in ast.unparse(decorator) for decorator in node.decorator_list)
    )


if __name__ == "__main__":
    main()
