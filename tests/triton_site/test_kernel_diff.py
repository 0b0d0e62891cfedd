"""A page shows what a step changes against the kernel that its cell names."""

TEXT = '''"""
First
=====

Words.
"""


def kernel(x, y):
    """One
    step."""
    x = x + 1
    return y


# %%
# Then another one.

# sphinx_gallery_difference = "{name}"


def launcher():
    pass


def tile_kernel(x, y):
    """One
    step."""
    x = x + 2
    return y
'''


def test_the_page_shows_what_is_gone_and_what_is_new(build):
    built = build(TEXT.format(name="kernel"))
    (fold,) = built.page.select(".gallery-panel-kernel > details.gallery-tab-difference")
    assert fold.summary.text == "Difference"
    assert "kernel → tile_kernel" in fold.p.text
    assert fold.pre.text.splitlines() == [
        "-def kernel(x, y):",
        "+def tile_kernel(x, y):",
        *[f" {line}" for line in ('    """One', '    step."""')],
        "-    x = x + 1",
        "+    x = x + 2",
        "     return y",
    ]
    assert built.warnings == ""


def test_an_unknown_kernel_is_a_warning(build):
    assert (
        "no earlier cell defines the function 'kernle'"
        in build(TEXT.format(name="kernle")).warnings
    )
