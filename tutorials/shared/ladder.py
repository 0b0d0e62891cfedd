"""The steps of a page, with what each reached: the page shows them at its top."""

import csv

from shared.measuring import significant
from tabulate import tabulate


def ladder(rungs, ceiling, unit, at, path="ladder.csv"):
    """Print the steps from the first to the last, and write them for the top of the page.

    Args:
        rungs: (heading of the section on this page, what changed, rate) of each step.
        ceiling: (name, rate) of what no step can pass.
        unit: The unit of all rates.
        at: The size they were measured at, in words.
        path: The file to write.
    """
    name, most = ceiling
    rows = [(section, change, rate, rate / most) for section, change, rate in rungs]
    headers = ["step", "what changed", unit, f"of {name}"]
    table = [(s, c, significant(rate), significant(share)) for s, c, rate, share in rows]
    print(f"At {at}:")
    align = {"colalign": ("left", "left", "right", "right"), "maxcolwidths": [30, 34, None, None]}
    print(tabulate(table, headers, disable_numparse=True, **align))
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["section", "change", "rate", "unit", "share", "ceiling", "at"])
        writer.writerows(
            (s, c, f"{rate:.6g}", unit, f"{share:.4g}", name, at) for s, c, rate, share in rows
        )
