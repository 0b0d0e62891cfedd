"""The scripts to download: numbers and titles stand in their text in place of roles.

``:measured:`share` % `` becomes *95 % on an NVIDIA H200*: the reader of a script sees no page. The
GPU is named once in each text, behind its first number. ``:doc:`02-fused-softmax` `` becomes the
title of that page. Code does not change, so the script still belongs to its recording.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx
from sphinx.domains.std import StandardDomain
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join

from gallery_recorder.api import Page, domain_of
from triton_site.numbers.measured import page_of_script, quantity_of
from triton_site.numbers.quantities import QuantityError

_MEASURED = re.compile(
    r":measured:`([^`]+)`(\\ )?(\s*(?:#\s)?\s*(?:%|[GT]B/s|TFLOPS|µs|ms)(?=\W|$))?"
)
_LINK = re.compile(r":(doc|ref|term):`([^`]+)`")
#: A text block, or the docstring at the beginning: where roles stand.
_TEXTS = re.compile(r'\A(?:#[^\n]*\n|\s)*[rR]?"""(?s:.*?)"""|(?:^#[^\n]*\n)+', re.M)


def setup(app: Sphinx) -> dict[str, Any]:
    """Change each script that the engine offers."""
    app.connect("gallery-script", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def finish(app: Sphinx, docname: str, text: str) -> str:
    """The script *text* of the page *docname*, for readers."""
    page = domain_of(app.env).pages[docname]
    return _TEXTS.sub(lambda match: _finished(app.env, page, match[0]), text)


def _finished(env: BuildEnvironment, page: Page, text: str) -> str:
    named: set[str] = set()

    def number(match: re.Match[str]) -> str:
        script, _, name = match[1].rpartition(":")
        of = page_of_script(env, script) if script else page
        if of is None or of.shown is None or not of.shown.timed:
            return f"…{match[3] or ''}"
        device = of.recording.provenance.device
        try:
            shown = f"{quantity_of(of, name).text}{match[3] or ''}"
        except QuantityError:
            if not of.is_stale:
                raise
            return f"–{match[3] or ''}"  # the older code did not measure it; the page has warned
        if device in named:
            return shown
        named.add(device)
        where = f"on {'an' if device[:1] in 'AEINMRS' else 'a'} {device}"
        return f"{shown} {where}" if match[3] else f"{shown} ({where})"

    return _LINK.sub(lambda match: _title(env, page, *match.groups()), _MEASURED.sub(number, text))


def _title(env: BuildEnvironment, page: Page, role: str, inside: str) -> str:
    words = " ".join(re.sub(r"\n#", "\n", inside).split())
    if explicit := re.fullmatch(r"(.+?)\s*<[^>]+>", words):
        return explicit[1]
    if role == "doc" and (name := docname_join(page.main, words)) in env.titles:
        return f"*{env.titles[name].astext()}*"
    std = env.get_domain("std")
    assert isinstance(std, StandardDomain)
    if role == "ref" and (label := std.labels.get(words.lower())):
        return f"*{label[2]}*"
    return words
