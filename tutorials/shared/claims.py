"""What a page teaches as true of speed or memory is computed, printed and kept."""

import json

from shared.measuring import significant
from tabulate import tabulate

CLAIMS = []


def claim(statement, value, *, at_least=None, at_most=None, spread=0.0, section=""):
    """Note whether *value*, measured in this run, supports *statement*.

    Args:
        statement: One sentence that is true where *value* keeps the limit.
        value: What was measured: a ratio of rates, of bytes or the like.
        at_least: The least that supports it.
        at_most: Or the most; give one of the two.
        spread: How far *value* scatters, relative to itself.
        section: The heading on this page that the claim belongs to.
    """
    limit = at_most if at_least is None else at_least
    margin = value / limit - 1 if at_most is None else 1 - value / limit
    CLAIMS.append({
        "statement": statement, "value": value, "at_least": at_least, "at_most": at_most,
        "margin": margin, "spread": spread, "section": section, "held": margin >= 0,
    })  # fmt: skip


def spread(rows):
    """Return the widest (p80 - p20) / median among rows (…, median, p20, p80); 0 without any."""
    return max(((high - low) / median for *_, median, low, high in rows), default=0.0)


def print_claims(path="claims.json"):
    """Print every claim with its value and whether it held, and write them to *path*."""
    table = [
        (
            c["statement"],
            significant(c["value"]),
            f"≥ {significant(c['at_least'])}" if c["at_most"] is None
            else f"≤ {significant(c['at_most'])}",
            f"{c['margin']:+.0%}",
            "yes" if c["held"] else "NO",
        )
        for c in CLAIMS
    ]  # fmt: skip
    headers = ["claim", "value", "limit", "margin", "held"]
    widths = {"maxcolwidths": [44, None, None, None, None]}
    print(tabulate(table, headers, disable_numparse=True, **widths))
    with open(path, "w") as file:
        json.dump(CLAIMS, file, indent=1)
