"""Pictures of sums: who adds what, when rows are loaded, and what registers hold."""

import matplotlib.pyplot as plt

from shared.bench import figure


def draw_partial_sums(rows, programs, columns):
    """Draw the rows of a matrix, the partial sums of each program, and their sum."""
    _, ax = figure(height=3.2)
    colors, gap = ["#cfe3f1", "#eeeeee", "#f6d9c4"], columns + 1.6
    blocks = [(0, row, colors[row % programs]) for row in range(rows)]
    blocks += [(gap, rows / 2 - 1.5 + program, colors[program]) for program in range(programs)]
    blocks += [(2 * gap, rows / 2 - 0.5, "white")]
    for left, top, color in blocks:
        for column in range(columns):
            ax.add_patch(plt.Rectangle((left + column, top), 1, 0.85, fc=color, ec="#444444"))
    for i, title in enumerate(("one row after the other", "partial sums", "dw")):
        ax.text(i * gap + columns / 2, -0.4, title, ha="center", va="bottom")
        ends = (i * gap - 0.1, rows / 2 - 0.1), (i * gap - 1.5, rows / 2 - 0.1)
        ax.annotate("", *ends, arrowprops={"arrowstyle": "->"} if i else {"alpha": 0})
    ax.set(xlim=(-0.1, 2 * gap + columns + 0.1), ylim=(rows + 0.1, -1.2))
    ax.set_title("9 rows: the color of a row is the program that adds it")
    ax.axis("off")
    plt.show()


def draw_sums(rows, columns):
    """Draw a matrix, the sums of its rows at its right, and the sums of its columns below."""
    _, ax = figure(height=3)
    for row in range(rows):
        for column in range(columns):
            color = "#cfe3f1" if row == 1 else "white"
            ax.add_patch(plt.Rectangle((column, row), 1, 0.9, fc=color, ec="#444444"))
    for row in range(rows):
        ax.add_patch(plt.Rectangle((columns + 1, row), 1, 0.9, fc="#eeeeee", ec="#444444"))
        ax.annotate("", (columns + 0.95, row + 0.45), (columns + 0.1, row + 0.45),
                    arrowprops={"arrowstyle": "->"})  # fmt: skip
    for column in range(columns):
        ax.add_patch(plt.Rectangle((column, rows + 1), 1, 0.9, fc="#f6d9c4", ec="#444444"))
        ax.annotate("", (column + 0.5, rows + 0.95), (column + 0.5, rows),
                    arrowprops={"arrowstyle": "->"})  # fmt: skip
    ax.text(columns + 2.2, rows / 2, "two means\nof a row", va="center")
    ax.text(columns + 0.4, rows + 1.45, "dw and db: kept in registers,\nall columns, until the end",
            va="center")  # fmt: skip
    ax.text(-0.2, 1.45, "now", ha="right", va="center")
    ax.set(xlim=(-1, columns + 7), ylim=(rows + 2, -0.1))
    ax.axis("off")
    plt.show()


def draw_timeline():
    """Draw when rows are loaded and worked on, without fetching ahead and with three stages."""
    _, ax = figure(height=3)
    load, work = {"color": "#eeeeee"}, {"color": "#cfe3f1"}
    bars = [(0, 4 * i, 3, load, i) for i in range(3)] + [
        (1, 4 * i + 3, 1, work, i) for i in range(3)
    ]
    starts = [0, 0, 0, 3, 4, 5]
    bars += [(2.5 + 0.8 * (i % 3), starts[i], 3, load, i) for i in range(6)]
    bars += [(4.9, 3 + i, 1, work, i) for i in range(6)]
    for top, start, length, style, row in bars:
        ax.barh(top, length, left=start, height=0.7, edgecolor="#444444", **style)
        ax.text(
            start + length / 2, top, f"row {row}" if length > 1 else row, ha="center", va="center"
        )
    ax.set_yticks([0, 1, 3.3, 4.9], ["load", "work", "loads", "work"])
    ax.set(ylim=(5.5, -0.6), xticks=[], xlabel="time; above waiting, below with three stages")
    ax.spines[["top", "right"]].set_visible(False)
    plt.show()


def draw_registers():
    """Draw the registers that hold a row of 16384 elements, by what they hold."""
    _, ax = figure(height=2.9)
    ways = {"one block": (2, 1, 2), "pieces": (2, 0.5, 1), "weight again": (2, 0, 1)}
    ways |= {"shared row": (1, 0.5, 0.5)}
    left, names = [0] * len(ways), ["dw and db", "weight", "x and g"]
    for i, (name, color) in enumerate(zip(names, ["#f6d9c4", "#eeeeee", "#cfe3f1"], strict=True)):
        widths = [16384 * way[i] / 1000 for way in ways.values()]
        ax.barh(list(ways), widths, left=left, color=color, edgecolor="#444444", label=name)
        left = [one + width for one, width in zip(left, widths, strict=True)]
    ax.axvline(65.536, color="#444444", linestyle="--")
    ax.invert_yaxis()
    ax.set(xlabel="thousand registers, of 65.5 (dashed)")
    ax.set_title("A row of 16,384 elements in fp16")
    ax.figure.legend(loc="outside lower center", ncols=3, frameon=False)
    plt.show()
