"""Execute a gallery's examples once, where the hardware is; keep recordings; render anywhere.

In ``conf.py`` of a sphinx-gallery project::

    extensions = ["sphinx_gallery.gen_gallery", "gallery_recorder"]

An *example* is a file of a gallery; its *script* is the text of this file, split into blocks. The
rooms, in the order of the data flow:

``seam``     every name of sphinx-gallery that the engine uses, each checked on start
``project``  a project as its conf.py describes it: galleries, examples, blocks, keys, settings
``store``    recordings on disk: format, reading, replacement in one step, states, comparison
``run``      executing examples: the recorder and its processes
``render``   the Sphinx extension: it shows recordings and executes nothing
``publish``  versions of a site
"""

from typing import Any

from gallery_recorder import version

__version__ = version.VERSION


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    from gallery_recorder.render import extension

    return extension.setup(app)
