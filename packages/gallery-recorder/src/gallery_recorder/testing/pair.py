"""Recordings to compare, made without executing anything."""

import msgspec
import pytest
from gallery_recorder.store import recording
from gallery_recorder.store.format import Block, Provenance, slug
from gallery_recorder.testing.recordings import made_up


@pytest.fixture
def make(tmp_path):
    """Make a recording with one block a key, of which the last is as *changes* say."""

    def make(version, files=None, *, keys=("1",), name="01-a", device="NVIDIA H200", **changes):
        staging = tmp_path / "staging"
        staging.mkdir()
        for path, content in (files or {}).items():
            (staging / path).parent.mkdir(exist_ok=True)
            content = content if isinstance(content, bytes) else content.encode()
            (staging / path).write_bytes(content)
        data = [path for path in files or {} if not path.startswith("images/")]
        images = [path for path in files or {} if path not in data]
        blocks = [Block(10 * n, key * 64, 1.0) for n, key in enumerate(keys, 1)]
        blocks[-1] = msgspec.structs.replace(
            blocks[-1], images=tuple(images), data=tuple(data), **changes
        )
        provenance = Provenance(device, "gpu", "Linux", "3.12")
        made = made_up(staging, blocks, name=name, provenance=provenance)
        at = recording.Location(tmp_path / version, slug(device), None, "tutorials", name)
        recording.save(made, staging, at.folder)
        return at.folder

    return make
