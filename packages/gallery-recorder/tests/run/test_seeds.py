"""Examples that seed nothing: what repeats, and what is said of outputs that do not."""

import pytest

from gallery_recorder.testing.projects import Gallery

RANDOM = """
import random
import numpy as np
print(random.random(), np.random.rand(), np.random.default_rng is not None)

# %%
print("always the same")
"""
TORCH = "import torch\nprint(torch.rand(1).item())"


def printed(gallery, name):
    return [block.stdout for block in gallery.load(name).blocks]


@pytest.mark.parametrize("conf", ["", "import numpy"])
def test_a_seed_makes_unseeded_examples_repeat(tmp_path, conf):
    gallery = Gallery(tmp_path, more=f"{conf}\ngallery_seed = 3\n")
    gallery.write("random", RANDOM)
    gallery.write("torch", TORCH)
    gallery.record_all()
    first = printed(gallery, "random"), printed(gallery, "torch")
    outcomes = gallery.record(force=True)
    assert (printed(gallery, "random"), printed(gallery, "torch")) == first
    assert [outcome.warnings for outcome in outcomes.values()] == [(), ()]


def test_without_a_seed_it_is_said_which_outputs_changed_though_the_code_did_not(tmp_path):
    gallery = Gallery(tmp_path)
    path = gallery.write("random", RANDOM)
    gallery.record_all()
    line = gallery.load("random").blocks[1].line
    (warning,) = gallery.record(force=True)["random"].warnings
    assert f"the code did not: block of line {line}; see gallery_seed" in warning
    path.write_text(path.read_text().replace("always", "now"))
    assert gallery.record()["random"].warnings == ()
