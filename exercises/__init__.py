"""The exercises of the lessons: what each asks for, inputs to try, and what is right.

``python -m exercises`` in a checkout is the same command as the one that readers download,
``exercise.pyz``: this folder and the package triton_watch in one file.
"""
