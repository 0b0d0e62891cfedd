"""Traces of the lessons' kernels: what each program touches, for the player on the page.

``traces/<lesson>.py`` has a function for each trace. It gets the kernels of the lesson and launches
them on small inputs; its docstring is the caption. ``make traces`` writes ``<lesson>.trace.json``
beside it, in Triton's interpreter. A lesson shows a trace by ``.. trace:: NAME`` in its prose.
"""
