"""Lighthouse on a phone, behind gzip as hosts serve it: medians of three visits.

It needs Google's Lighthouse in PATH or in .venv/lighthouse (npm install --prefix .venv/lighthouse
lighthouse), and a browser. Words name pages: ``python -m benchmarks lighthouse 01 06``.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tabulate import tabulate

from gallery_recorder.publish import publish, versions
from tests.fixtures import chromium
from tests.fixtures.served import served

ROOT = Path(__file__).parents[1]
LOCAL = ROOT / ".venv/lighthouse/node_modules/.bin/lighthouse"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
VISITS = 3
TUTORIALS = "getting-started/tutorials"
PAGES = {
    "index": "index.html",
    "01": f"{TUTORIALS}/01-vector-add.html",
    "03": f"{TUTORIALS}/03-matrix-multiplication.html",
    "06": f"{TUTORIALS}/06-fused-attention.html",
    "13": f"{TUTORIALS}/13-sampling.html",
    "performance": "performance.html",
}


def main(names: list[str] | None = None) -> None:
    """Print a table of scores."""
    build = ROOT / "build" / "html"
    lighthouse = shutil.which("lighthouse") or (str(LOCAL) if LOCAL.exists() else None)
    if lighthouse is None or not build.is_dir():
        print("left out: it needs " + ("Lighthouse" if lighthouse is None else "`make html` first"))
        return
    with tempfile.TemporaryDirectory() as scratch:
        version = versions.read_build(build).all[0].name
        publish.publish(build, Path(scratch, "site"), version)
        rows = _rows(lighthouse, Path(scratch, "site"), version, names or list(PAGES))
    heads = ("page", *CATEGORIES, "first paint s", "largest paint s", "blocked ms", "shift")
    print(tabulate(rows, heads, floatfmt=(".0f",) * 5 + (".1f", ".1f", ".0f", ".3f")))


def _rows(lighthouse: str, site: Path, version: str, names: list[str]) -> list[tuple[Any, ...]]:
    """The medians of each page of a published site."""
    rows = []
    with served(site, compressed=True) as root:
        for name in names:
            address = f"{root}{version}/{PAGES[name]}"
            visits = [_visit(lighthouse, address) for _ in range(VISITS)]
            rows.append((name, *map(statistics.median, zip(*visits, strict=True))))
    return rows


def _visit(lighthouse: str, address: str) -> list[float]:
    """The scores of one visit, of 100, and what decides the first of them."""
    flags = " ".join(chromium.FLAGS) + " --headless=new"
    command = [lighthouse, address, "--quiet", "--output=json", f"--chrome-flags={flags}"]
    command.append(f"--only-categories={','.join(CATEGORIES)}")
    known = os.environ | {"CHROME_PATH": chromium.executable() or ""}
    done = subprocess.run(command, capture_output=True, text=True, env=known, check=False)
    if done.returncode:
        sys.exit(f"Lighthouse failed on {address}:\n{done.stderr}")
    report = json.loads(done.stdout)
    audits = report["audits"]
    return [
        *(100 * (report["categories"][name]["score"] or 0) for name in CATEGORIES),
        audits["first-contentful-paint"]["numericValue"] / 1000,
        audits["largest-contentful-paint"]["numericValue"] / 1000,
        audits["total-blocking-time"]["numericValue"],
        audits["cumulative-layout-shift"]["numericValue"],
    ]
