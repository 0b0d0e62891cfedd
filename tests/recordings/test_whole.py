"""Each committed recording says where it was made, and shows nothing that says nothing."""

from pathlib import Path

import pytest

from gallery_recorder.store import recording
from gallery_recorder.store.format import FILE_NAME, slug
from triton_site.references import SOFTWARE

ROOT = Path(__file__).parents[2] / "recordings"


@pytest.mark.parametrize("folder", sorted(p.parent for p in ROOT.rglob(FILE_NAME)))
def test_recording_is_whole_and_says_where_it_was_made(folder):
    content = recording.load(folder)
    where = content.provenance
    assert slug(where.device) == folder.relative_to(ROOT).parts[0]
    assert where.commit
    assert where.gpu is not None
    assert where.gpu.driver
    assert where.gpu.compute_capability
    assert content.probe(SOFTWARE)["torch"]
    assert where.before is not None
    assert where.after is not None
    # The address of a function says nothing to a reader.
    values = [block.value.get("text/plain", "") for block in content.blocks if block.value]
    assert not [value for value in values if value.startswith("<function")]
    # Tensor cores at full speed take all the power that the board may draw; heat is another matter.
    assert set(where.after.throttling) <= {"power cap"}
