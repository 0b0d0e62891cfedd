"""Execute a gallery's scripts once, where the hardware is; keep what they did; render it anywhere.

In ``conf.py`` of a sphinx-gallery project::

    extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]

The rooms, in the order in which the data flows:

``seam``     every name of sphinx-gallery that the engine touches, each checked on start
``errors``   what can be told and put right
``source``   a project as its conf.py describes it: galleries, scripts, blocks, keys, needs
``store``    recordings on the disk: their format, locks, replacement in one step, comparison
``run``      executing scripts: the recorder, its places and processes, what it collects
``render``   the Sphinx extension: recordings in the place of execution
``publish``  versions of a site: inspection, publishing in one step, the files at the root
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    from gallery_recorder.render import extension

    return extension.setup(app)
