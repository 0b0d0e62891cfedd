"""A reference shows the names of its authors: ``D. Author`` at its start would become a number."""

import docutils.core
import docutils.nodes
import pytest
from sphinx_gallery.py_source_parser import split_code_and_text_blocks

from tests.galleries import FILES

PAGES = ["06-fused-attention", "06b-attention-backward", "06c-attention-gluon", "09b-fp8-gluon"]


@pytest.mark.parametrize("name", PAGES)
def test_no_reference_begins_with_an_initial(name):
    kind, text, _ = split_code_and_text_blocks(str(FILES[name].path))[1][-1]
    assert kind == "text"
    references = text[text.index("References\n") :]
    tree = docutils.core.publish_doctree(references, settings_overrides={"report_level": 5})
    assert list(tree.findall(docutils.nodes.bullet_list))
    assert not list(tree.findall(docutils.nodes.enumerated_list))
