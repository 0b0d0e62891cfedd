"""What ``torch.compile`` makes of a function that looks at numbers, such as addresses."""

from functools import wraps

import torch


def between_graphs(function):
    """Let ``torch.compile`` call *function* between its graphs, and not trace it.

    ``torch.compiler.disable`` alone does so only where another function calls it: ``torch.compile``
    of the function itself would trace it all the same.
    """
    reason = "it looks at addresses and numbers, which a graph does not have"
    untraced = torch.compiler.disable(function, reason=reason)

    @wraps(function)
    def called(*args, **kwargs):
        return (untraced if torch.compiler.is_compiling() else function)(*args, **kwargs)

    return called
