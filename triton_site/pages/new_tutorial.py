"""Write the skeleton of a tutorial: ``make new T=11-my-kernel``."""

import re
import sys
from pathlib import Path

#: The skeleton; ``{title}``, ``{line}``, ``{name}`` and ``{slug}`` are replaced.
SKELETON = Path(__file__).with_suffix(".txt")


def main(name: str) -> None:
    """Write the file *name*; an existing tutorial stays as it is."""
    if not re.fullmatch(r"\d\d[a-z]?(-[a-z0-9]+)+", name) or len(name) > 60:
        sys.exit(
            f"make new: {name[:60]!r} is not a name of up to 60 characters such as 11-my-kernel"
        )
    number, _, slug = name.partition("-")
    if taken := sorted(Path("tutorials").glob(f"{number}-*.py")):
        sys.exit(f"make new: {taken[0]} has the number {number}. Use another number.")
    title = slug.replace("-", " ").capitalize()
    path = Path("tutorials", f"{name}.py")
    skeleton = SKELETON.read_text(encoding="utf-8")
    path.write_text(skeleton.format(title=title, line="=" * len(title), name=name, slug=slug))
    print(f"{path} is written. Record it on a machine with a GPU: make record T={number}")


if __name__ == "__main__":
    main(sys.argv[1])
