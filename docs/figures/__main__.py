"""Draw the figures of the lessons and of the guide: ``python -m docs.figures``.

A lesson's drawing has the name of its script and lies beside it.
"""

from pathlib import Path

from docs.figures import guide, lessons

ROOT = Path(__file__).parents[2]

for path, draw in (guide.FIGURES | lessons.FIGURES).items():
    (ROOT / path).write_text(draw().svg(), encoding="utf-8")
