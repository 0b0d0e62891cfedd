"""A small site of one tutorial, whose recording a test writes itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from gallery_recorder.project.script import load_script
from gallery_recorder.render import others
from triton_site.kernels import xray_pages
from triton_site.pages import cells

EXTENSIONS = (
    "triton_site.numbers.ladder",
    "triton_site.kernels.kernel_diff",
    "triton_site.pages.folds",
    "triton_site.kernels.xray_pages",
)


@dataclass
class Built:
    """The site: its page as markup to search in, its folder, and what Sphinx warned of."""

    page: BeautifulSoup
    folder: Path
    warnings: str


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Built]:
    """Build a site of the tutorial *text*, as recorded with the files *recorded*."""

    def build_site(text: str, recorded: dict[str, str] | None = None, **settings: Any) -> Built:
        gallery, docs, folder = tmp_path / "gallery", tmp_path / "docs", tmp_path / "recording"
        for path in (gallery, docs, folder):
            path.mkdir(exist_ok=True)
        (gallery / "GALLERY_HEADER.rst").write_text("Gallery\n=======\n")
        script = gallery / "01-first.py"
        script.write_text(text)
        for name, content in (recorded or {}).items():
            (folder / name).write_text(content)
        (docs / "index.rst").write_text("Home\n====\n\n.. toctree::\n\n   pages/index\n")
        page = cells.Page(
            load_script(script, gallery),
            folder if recorded is not None else None,
            settings.get("interpreted", False),
            "NVIDIA H200",
            probes=settings.get("probes", {}),
        )
        monkeypatch.setattr(
            cells, "recorded_page", lambda app, name: page if name == "pages/01-first" else None
        )
        monkeypatch.setattr(xray_pages, "stamps", lambda app: {"pages/01-first": ""})
        monkeypatch.setattr(others, "views_of", lambda env, name: [])
        with (
            open(os.devnull, "w") as silent,
            open(tmp_path / "warnings", "w") as warnings,
            docutils_namespace(),
        ):
            app = Sphinx(
                docs,
                None,
                tmp_path / "html",
                tmp_path / "trees",
                "html",
                confoverrides={
                    "extensions": ["sphinx_gallery.gen_gallery", *EXTENSIONS],
                    "sphinx_gallery_conf": {
                        "examples_dirs": str(gallery),
                        "gallery_dirs": "pages",
                        "plot_gallery": False,
                        "remove_config_comments": True,
                        "within_subsection_order": "FileNameSortKey",
                    },
                    "html_baseurl": "https://example.org/stable/",
                },
                status=silent,
                warning=warnings,
                freshenv=True,
            )
            app.build()
        html = (tmp_path / "html" / "pages" / "01-first.html").read_text(encoding="utf-8")
        return Built(
            BeautifulSoup(html, "html.parser"),
            tmp_path / "html",
            (tmp_path / "warnings").read_text(),
        )

    return build_site
