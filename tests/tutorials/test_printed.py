"""What the tutorials print and draw of their measurements, from made-up rows: no GPU is needed.

A measured number has three significant figures, a table fits the narrowest page, and a plot says
what was measured, in which unit and on which GPU.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

TUTORIALS = Path(__file__).parents[2] / "tutorials"
VECTOR, SOFTMAX, MATMUL, DROPOUT = NAMES = (
    "01-vector-add",
    "02-fused-softmax",
    "03-matrix-multiplication",
    "04-low-memory-dropout",
)
WAVES = "03b-full-waves"
every_tutorial = pytest.mark.parametrize("name", [*NAMES, WAVES])

#: A name as long as names of GPUs get.
GPU = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"


# Three significant figures


def has_three_figures(text: str) -> bool:
    digits = text.lstrip("-").replace(".", "").lstrip("0")
    if "." in text:
        return len(digits) == 3 or text == "0.00"
    return len(digits) >= 3 and not digits[3:].strip("0")


@every_tutorial
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4312.4, "4310"),
        (0.98, "0.980"),
        (1, "1.00"),
        (52.06, "52.1"),
        (9.996, "10.0"),
        (999.6, "1000"),
        (0.09996, "0.100"),
        (1234567.0, "1230000"),
        (0.00123456, "0.00123"),
        (0.0, "0.00"),
        (-0.0305, "-0.0305"),
        (-4312, "-4310"),
    ],
)
def test_three_significant_figures(tutorial, name, value, text):
    assert tutorial(name)["significant"](value) == text


@given(value=st.floats(1e-9, 1e12) | st.floats(-1e12, -1e-9))
def test_three_significant_figures_of_any_number(tutorial, value):
    text = tutorial(VECTOR)["significant"](value)
    assert has_three_figures(text)
    assert float(text) == pytest.approx(value, rel=0.00501)


@every_tutorial
def test_nothing_is_printed_with_a_number_of_decimals(name):
    tree = ast.parse((TUTORIALS / f"{name}.py").read_text())
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("print", "tabulate"):
            assert not [keyword for keyword in call.keywords if keyword.arg == "floatfmt"]
            specs = [n.format_spec for n in ast.walk(call) if isinstance(n, ast.FormattedValue)]
            for spec in filter(None, specs):
                text = "".join(v.value for v in spec.values if isinstance(v, ast.Constant))
                assert not re.search(r"\.[1-9]", text), f"line {call.lineno}"


# Tables

#: Columns of what is counted and not measured.
COUNTED = {"elements", "size", "N", "M=N=K", "BLOCK", "programs", "at size", "layers"}
COUNTED |= {"of", "counted", "expected"}


def assert_table(printed: str) -> None:
    """Check the width of a table, how its columns are aligned, and the figures of its numbers."""
    lines = [line.ljust(72) for line in printed.splitlines()]
    assert max(map(len, lines)) <= 72, printed
    (ruler,) = (i for i, line in enumerate(lines) if re.fullmatch(r"-[- ]+", line))
    heads, body = lines["better" in lines[0] : ruler], lines[ruler + 1 :]
    assert body
    for left, right in (match.span() for match in re.finditer("-+", lines[ruler])):
        header = " ".join(line[left:right].strip() for line in heads).strip()
        cells = [line[left:right] for line in body]
        names = left == 0 and not cells[0].strip().isdigit()
        for cell in [*cells, *(line[left:right] for line in heads)]:
            assert not cell.strip() or cell[0 if names else -1] != " ", f"{header}\n{printed}"
        cells = [cell.strip() for cell in cells]
        if header in COUNTED and not names:
            assert all(cell.isdigit() for cell in cells), f"{header}\n{printed}"
        elif not names and header != "dropout":
            wrong = [cell for cell in cells if not has_three_figures(cell)]
            assert not wrong, f"{header}: {wrong}\n{printed}"


def made_up(number: int, largest: float) -> list[float]:
    """*number* rates up to *largest*, of all magnitudes below it, no two of them alike."""
    return [largest * (0.05 + 0.95 * ((7 * i) % number + 0.37) / number) for i in range(number)]


def rows_of(sizes, providers, unit, largest):
    """Rows as the benchmarks return them; *sizes* are tuples."""
    rates = iter(made_up(len(sizes) * len(providers), largest))
    return [
        (*size, provider, unit, rate := next(rates), 0.9 * rate, 1.1 * rate)
        for size in sizes
        for provider in providers
    ]


VECTOR_ROWS = [((2**i,)) for i in range(12, 28)], ("triton", "torch", "copy"), "GB/s"
STEPS = ("triton, one row a program", "triton, tiles")
SOFTMAX_ROWS = (
    [(4096, 128 * i) for i in range(2, 100)],
    ("triton", "torch", "copy", "naive", *STEPS),
    "GB/s",
)
DROPOUT_ROWS = (
    [((2**i,)) for i in range(20, 29)],
    ("triton", "triton, one sample a call", "torch", "mask", "copy"),
    "GB/s",
)
every_scale = pytest.mark.parametrize("largest", [9.996, 88.8, 936.6, 7654.3])


@every_scale
def test_tables_of_vector_addition(tutorial, capsys, largest):
    page = tutorial(VECTOR)
    rows = rows_of(*VECTOR_ROWS, largest)
    capsys.readouterr()
    page["print_table"](rows)
    assert_table(capsys.readouterr().out)
    rate = {(n, provider): median for n, provider, _, median, *_ in rows}
    page["print_ratios"](rate, {f"triton / {o}": ("triton", o) for o in ("torch", "copy")})
    assert_table(capsys.readouterr().out)
    blocks = (64, 256, 1024, 4096, 16384)
    page["print_blocks"](dict(zip(blocks, made_up(5, largest), strict=True)), 2**24)
    assert_table(capsys.readouterr().out)


@every_scale
def test_tables_of_softmax(tutorial, capsys, largest):
    page = tutorial(SOFTMAX)
    rows = rows_of(*SOFTMAX_ROWS, largest)
    capsys.readouterr()
    page["print_table"](rows, page["SOME"])
    assert_table(capsys.readouterr().out)
    rate = {(n, provider): median for _, n, provider, _, median, *_ in rows}
    page["print_ratios"](rate, {"triton / naive": ("triton", "naive"), "step 2 / step 1": STEPS})
    assert_table(capsys.readouterr().out)


@pytest.mark.parametrize("library", ["cublas", "rocblas"])
@every_scale
def test_tables_of_the_matrix_product(tutorial, capsys, monkeypatch, largest, library):
    page = tutorial(MATMUL)
    providers = ("triton", library, "triton + leaky_relu", f"{library} + leaky_relu")
    monkeypatch.setitem(page["print_table"].__globals__, "LIBRARY", library)
    monkeypatch.setitem(page["print_table"].__globals__, "PROVIDERS", providers)
    steps = page["STEPS"]
    rows = rows_of([(n, n, n) for n in page["SIZES"]], (*providers, *steps), "TFLOPS", largest)
    rate = page["medians"](rows)
    capsys.readouterr()
    page["print_table"](rows, page["SIZES"][::3])
    assert_table(capsys.readouterr().out)
    some = [n for n in page["STEP_SIZES"] if n != 1024]
    for sizes in (some, [4096]):
        page["print_steps"](rate, [*steps, *providers[:2]], sizes)
        assert_table(capsys.readouterr().out)
    pairs = {f"triton / {library}": providers[:2], "both + leaky_relu": providers[2:]}
    page["print_ratios"](rate, pairs)
    assert_table(capsys.readouterr().out)


@every_scale
def test_tables_of_the_steps_with_descriptors(tutorial, capsys, largest):
    page = tutorial(WAVES)
    sizes = [(n, n, n) for n in page["SIZES"]]
    rows = rows_of(sizes, (*page["STEPS"], page["LIBRARY"]), "TFLOPS", largest)
    rate = {(n, provider): median for n, _, _, provider, _, median, *_ in rows}
    capsys.readouterr()
    page["print_steps"](rate, page["SIZES"][::3])
    assert_table(capsys.readouterr().out)


@every_scale
def test_tables_of_dropout(tutorial, capsys, largest):
    page = tutorial(DROPOUT)
    rows = rows_of(*DROPOUT_ROWS, largest)
    capsys.readouterr()
    page["print_table"](rows)
    assert_table(capsys.readouterr().out)
    rate = {(n, provider): median for n, provider, _, median, *_ in rows}
    pairs = {"triton / mask": ("triton", "mask")}
    page["print_ratios"](rate, pairs | {"triton / one a call": DROPOUT_ROWS[1][:2]})
    assert_table(capsys.readouterr().out)
    page["print_memory"](
        [
            (layers, name, kept, largest + kept)
            for layers in (1, 8)
            for name, kept in (("seeded", 0.0), ("torch", 1.0 * layers), ("mask", 1.0 * layers))
        ]
    )
    assert_table(capsys.readouterr().out)
    page["print_counts"](page["count_kept"](2**14, 0.25), 0.25)
    assert_table(capsys.readouterr().out)


# Plots


@pytest.fixture
def draw(monkeypatch):
    """Return ``draw(function, ...)``: the figure that it shows, drawn as on a GPU."""
    device = SimpleNamespace(get_device_name=lambda: GPU)
    monkeypatch.setattr(torch, "get_device_module", lambda *_: device)
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))

    def draw(function, *arguments):
        function(*arguments)
        figures[-1].canvas.draw()
        return figures[-1]

    yield draw
    plt.close("all")


def assert_says_what_it_shows(figure, unit: str) -> None:
    """Check title, labels, sizes of letters, bands, and that no legend lies on a line."""
    upper = figure.axes[0]
    assert f", {unit}\non {GPU}" in upper.get_title()
    assert unit in upper.get_ylabel()
    assert figure.axes[-1].get_xlabel()
    assert len(upper.collections) >= 2, "bands"
    legends = [*figure.legends, *filter(None, (ax.get_legend() for ax in figure.axes))]
    said = " ".join(text.get_text() for legend in legends for text in legend.get_texts())
    assert "ceiling" in said
    assert "best alternative" in said
    texts = [text for legend in legends for text in legend.get_texts()]
    for ax in figure.axes:
        texts += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels()]
    for text in texts:
        # Seven inches become 360 pixels on a phone, so 13 points become 9 pixels.
        assert text.get_fontsize() >= 13
    for text in figure.axes[0].title, figure.axes[0].yaxis.label:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y0 >= 0, text
        assert box.y1 <= figure.bbox.y1, text
    for legend in legends:
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        for ax in figure.axes:
            for line in ax.lines:
                points = line.get_transform().transform(line.get_xydata())
                inside = ax.bbox.count_contains(points) and box.count_contains(points)
                assert not inside, f"a legend lies on {line.get_label()}"
    looks = [
        (line.get_linestyle(), line.get_marker())
        for line in upper.lines
        if not line.get_label().startswith("_")
    ]
    assert len(set(looks)) == len(looks), "lines that differ in their colour alone"


def rising(rows):
    """The same rows, their rates shaped as those of real curves: rising and levelling out."""
    for *key, provider, unit, rate, _, _ in rows:
        rate = (4000 + 0.1 * rate) * key[-1] / (key[-1] + 2**20)
        yield (*key, provider, unit, rate, 0.9 * rate, 1.05 * rate)


def test_plots(tutorial, draw):
    page = tutorial(VECTOR)
    rows = list(rising(rows_of(*VECTOR_ROWS, 4000)))
    figure = draw(page["plot_rates"], rows, 0.004)
    assert_says_what_it_shows(figure, "GB/s")
    assert figure.axes[0].get_xscale() == "log"

    rows = rows_of(*SOFTMAX_ROWS, 4000)
    assert_says_what_it_shows(draw(tutorial(SOFTMAX)["plot_softmaxes"], rows), "GB/s")

    figure = draw(tutorial(DROPOUT)["plot_dropouts"], rows_of(*DROPOUT_ROWS, 4000))
    assert_says_what_it_shows(figure, "GB/s")
    assert figure.axes[0].get_xscale() == "log"

    page = tutorial(MATMUL)
    rows = rows_of([(n, n, n) for n in page["SIZES"]], page["PROVIDERS"], "TFLOPS", 700)
    for labels in ("PLAIN", "FUSED"):
        figure = draw(
            page["plot_products"], rows, page[labels], "Matrix product + LeakyReLU in fp16"
        )
        assert_says_what_it_shows(figure, "TFLOPS")

    page = tutorial(WAVES)
    providers = (*page["STEPS"], page["LIBRARY"])
    rows = rows_of([(n, n, n) for n in page["SIZES"]], providers, "TFLOPS", 700)
    assert_says_what_it_shows(draw(page["plot_steps"], rows), "TFLOPS")
