"""A small site of one tutorial, whose recording a test writes itself."""

from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bs4 import BeautifulSoup
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from gallery_recorder.api import RecordedFiles
from gallery_recorder.project.script import load_script
from triton_site.numbers import measured
from triton_site.pages import cells

EXTENSIONS = (
    "triton_site.kernels.kernel_diff",
    "triton_site.pages.alt_texts",
    "triton_site.pages.folds",
    "triton_site.pages.keylines",
    "triton_site.numbers.predict",
    "triton_site.numbers.measured",
    "triton_site.kernels.xray_pages",
)


@dataclass
class Built:
    """The site: its page as markup to search in, its folder, and the warnings of Sphinx."""

    page: BeautifulSoup
    folder: Path
    warnings: str


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Built]:
    """Build a site of the tutorial *text*, as recorded with the files *recorded*."""

    def build_site(text: str, recorded: dict[str, Any] | None = None, **settings: Any) -> Built:
        gallery, docs, folder = tmp_path / "gallery", tmp_path / "docs", tmp_path / "recording"
        for path in (gallery, docs, folder):
            path.mkdir(exist_ok=True)
        (gallery / "GALLERY_HEADER.rst").write_text("Gallery\n=======\n")
        script = gallery / "01-first.py"
        script.write_text(text)
        for name, content in (recorded or {}).items():
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        (docs / "index.rst").write_text("Home\n====\n\n.. toctree::\n\n   pages/index\n")
        made = SimpleNamespace(
            timed=not settings.get("interpreted", False),
            provenance=SimpleNamespace(device="NVIDIA H200"),
            probes=settings.get("probes", {}),
        )
        page = SimpleNamespace(
            script=load_script(script, gallery),
            files=RecordedFiles(folder, frozenset(recorded)) if recorded is not None else None,
            recording=made,
            shown=made if recorded is not None else None,
            is_stale=False,
            example=SimpleNamespace(name="01-first"),
        )
        domain = SimpleNamespace(pages={"pages/01-first": page})
        for module in (cells, measured):
            monkeypatch.setattr(module, "domain_of", lambda env: domain)
        monkeypatch.setattr(measured, "_publish", lambda app, error: None)  # of a whole site
        warnings = StringIO()
        with docutils_namespace():
            Sphinx(
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
                status=None,
                warning=warnings,
                freshenv=True,
            ).build()
        html = (tmp_path / "html" / "pages" / "01-first.html").read_text(encoding="utf-8")
        return Built(BeautifulSoup(html, "html.parser"), tmp_path / "html", warnings.getvalue())

    return build_site
