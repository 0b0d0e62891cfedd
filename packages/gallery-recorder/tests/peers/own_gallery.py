"""sphinx-gallery's own gallery, recorded and executed: every page alike, as a reader sees it.

``python -m tests.peers.own_gallery FOLDER`` uses the source distribution that
:mod:`tests.peers.tinybuild` left in *FOLDER*. It ends with 0 where no page differs.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, Tag

SOURCE = Path(__file__).resolve().parents[2] / "src"

CONF = """
import os

extensions = ["sphinx.ext.autodoc", "sphinx_gallery.gen_gallery", "sphinx.ext.graphviz"]
if not os.environ.get("PLAIN"):
    extensions.append("gallery_recorder")
sphinx_gallery_conf = {
    "examples_dirs": ["../examples", "../tutorials"],
    "gallery_dirs": ["auto_examples", "tutorials"],
    "doc_module": ("sphinx_gallery", "numpy"),
    "backreferences_dir": "gen_modules/backreferences",
    "image_srcset": ["2x"],
    "matplotlib_animations": True,
    "only_warn_on_example_error": True,
}
gallery_recordings = ["../recordings"]
"""


def main(folder: Path) -> int:
    """Record, build both, compare; the exit status."""
    (source,) = folder.glob("sphinx_gallery-*/")
    recorded, plain = (folder / name for name in ("recorded", "plain"))
    for root in (recorded, plain):
        shutil.rmtree(root, ignore_errors=True)
        (root / "doc").mkdir(parents=True)
        for name in ("examples", "tutorials"):
            shutil.copytree(source / name, root / name)
        (root / "doc" / "conf.py").write_text(CONF)
        (root / "doc" / "index.rst").write_text("Title\n=====\n")
    _run(recorded, "gallery_recorder", "record", "--conf", "doc", "--device", "cpu")
    _run(recorded, "sphinx", "-q", "doc", "html")
    _run(plain, "sphinx", "-q", "doc", "html", PLAIN="1")
    different = 0
    pages = sorted(
        path.relative_to(plain / "html")
        for name in ("auto_examples", "tutorials")
        for path in (plain / "html" / name).rglob("*.html")
    )
    for page in pages:
        one, other = (facts(root / "html" / page) for root in (recorded, plain))
        if found := [name for name in one if one[name] != other[name]]:
            different += 1
            print(f"{page}: differs in {', '.join(found)}")
    print(f"{len(pages) - different} of {len(pages)} pages of sphinx-gallery's own are alike.")
    return 1 if different or not pages else 0


def facts(page: Path) -> dict[str, Any]:
    """What a reader sees on a page; the same page twice gives the same facts."""
    if not page.is_file():
        return {}
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    main = soup.select_one("[role=main]") or soup

    def texts(classes: str) -> list[str]:
        return [_without_chance(tag) for tag in main.select(classes)]

    return {
        "images": len(main.select("img")),
        "animations": len(main.select(".sphx-glr-animation")),
        "outputs": texts(".sphx-glr-script-out"),
        "values": texts(".output_html"),
        "code": texts("div.highlight-Python, div.highlight-python, div.highlight-default"),
        "downloads": len(main.select("a.download")),
        "links": len(main.select("[class*=sphx-glr-backref]")),
    }


def _without_chance(tag: Tag) -> str:
    """Its text, less addresses, the folder that it was executed in, and what was left to it.

    In a plain build, an example that imports seaborn has a setting of matplotlib reset in all that
    come after it.
    """
    text = re.sub(r"0x[0-9a-f]+|backend_fallback: \w+", "", tag.get_text())
    return re.sub(r"[^\s\"']*/(?=(examples|tutorials)/)", "", text)


def _run(root: Path, *command: str, **variables: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)} | variables
    subprocess.run([sys.executable, "-m", *command], cwd=root, env=environment, check=False)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
