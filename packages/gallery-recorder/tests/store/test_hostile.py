"""A recording with any value changed is refused in one line, or its page shows text as text."""

import json
import os
import random
import shutil
import time
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, directives, roles
from docutils.parsers.rst.directives.misc import Class
from docutils.utils import column_width

from gallery_recorder.render import labels, markup, pages
from gallery_recorder.store import recording
from gallery_recorder.store.recording import RecordingError
from gallery_recorder.testing import hostile

STORED = Path(__file__).parent / "stored" / "schema-4" / "examples" / "everything"
#: The time for all mutants; those of a random order that come first are tried.
SECONDS = float(os.environ.get("HOSTILE_SECONDS", "15"))

#: The nodes of a page's outputs; nothing else may come of a recording's text.
NODES = {
    "document", "paragraph", "#text", "literal_block", "raw", "image", "comment", "container",
    "bullet_list", "list_item", "pending", "block_quote", "figure", "caption", "title", "inline",
}  # fmt: skip


class Code(Directive):
    has_content = True
    optional_arguments = 1
    option_spec = dict.fromkeys(("dedent",), int)

    def run(self):
        text = "\n".join(self.content)
        return [nodes.literal_block(text, text)]


class ScrapedImage(Directive):
    required_arguments = 1
    option_spec = dict.fromkeys(("alt", "srcset", "class"), directives.unchanged)

    def run(self):
        assert "<" not in self.options.get("alt", ""), "HTML that sphinx-gallery does not escape"
        assert '"' not in self.options.get("alt", ""), "HTML that sphinx-gallery does not escape"
        return [nodes.image(uri=self.arguments[0])]


class Video(Directive):
    required_arguments = 1
    option_spec = dict.fromkeys(
        ("alt", "class", "height", "width", "autoplay", "loop", "muted"), directives.unchanged
    )

    def run(self):
        return [nodes.image(uri=self.arguments[0])]


def download(name, rawtext, text, lineno, inliner, options=None, content=()):
    return [nodes.inline("", text)], []


@pytest.fixture
def docutils_with_sphinx_names(monkeypatch):
    own = {"code-block": Code, "image-sg": ScrapedImage, "video": Video, "rst-class": Class}
    for name, directive in own.items():
        monkeypatch.setitem(directives._directives, name, directive)
    monkeypatch.setitem(roles._roles, "download", download)


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(STORED, tmp_path / "everything")


def shown(made):
    """The outputs of all blocks of a recording as markup, without HTML of the author."""
    sizes = dict.fromkeys(made.files, 1)
    places = {name: f"g/{name}" for name in made.files}
    parts = [markup.output(block, places.__getitem__, "g", sizes) for block in made.blocks]
    title = markup.escaped(f"Recordings of {made.gallery} on {made.provenance.device}")
    return "\n\n".join([title + "\n" + "=" * column_width(title), *parts])


def unexpected(rst):
    """The nodes and messages in *rst* that no page has."""
    settings = {"report_level": 5, "file_insertion_enabled": False, "doctitle_xform": False}
    tree = publish_doctree(rst, settings_overrides=settings)
    found = {node.tagname for node in tree.findall()} - NODES - {"section"}
    return found | {node["refuri"] for node in tree.findall(nodes.reference)}


def loaded(folder):
    """The recording in *folder*, or None and the message about it."""
    try:
        return recording.load(folder), ""
    except RecordingError as error:
        return None, str(error)


def test_each_value_of_a_recording_may_be_anything(folder, docutils_with_sphinx_names):
    path = folder / "recording.json"
    # Without the hash of the text, which would refuse each of them.
    made = {n: v for n, v in json.loads(path.read_text()).items() if n != "sha256"}
    content = json.dumps(made).encode()
    assert not unexpected(shown(recording.load(folder)))
    mutants = list(hostile.mutants(content))
    random.Random(1).shuffle(mutants)
    end = time.monotonic() + SECONDS
    tried = 0
    for what, mutant in mutants:
        if time.monotonic() > end:
            break
        tried += 1
        path.write_bytes(mutant)
        made, refusal = loaded(folder)
        if made is None:
            assert refusal.startswith(str(path)), what
            assert "\n" not in refusal, what
            continue
        assert not unexpected(shown(made)), what
        assert labels.readable_date(made.run.recorded), what
        assert pages.record_of(made, []), what
    print(f"{tried} of {len(mutants)} mutants")
    assert tried >= min(300, len(mutants))
