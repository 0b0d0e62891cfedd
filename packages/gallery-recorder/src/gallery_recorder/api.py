"""The names that a project may import; other modules change without notice.

They give access to the state of a build, recordings and their files, the examples and settings of a
project, and the names of sphinx-gallery that the engine checks.
"""

from gallery_recorder import seam
from gallery_recorder.console import visible
from gallery_recorder.errors import RecorderError
from gallery_recorder.project import galleries, reader
from gallery_recorder.project.script import Script, ScriptError, load_script
from gallery_recorder.publish import versions
from gallery_recorder.render import downloads, files
from gallery_recorder.render.domain import domain_of
from gallery_recorder.render.labels import Fact, readable_bytes
from gallery_recorder.render.selection import ListedRecording, Page
from gallery_recorder.store import compare, reading, recording
from gallery_recorder.store.format import Block, Provenance, Recording, slug
from gallery_recorder.store.reading import ReadingError

__all__ = [
    "Block",
    "Fact",
    "ListedRecording",
    "Page",
    "Provenance",
    "ReadingError",
    "RecorderError",
    "Recording",
    "Script",
    "ScriptError",
    "compare",
    "domain_of",
    "downloads",
    "files",
    "galleries",
    "load_script",
    "readable_bytes",
    "reader",
    "reading",
    "recording",
    "seam",
    "slug",
    "versions",
    "visible",
]
