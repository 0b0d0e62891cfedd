"""Makers of projects and recordings, for tests of the engine and of extensions that use it.

``projects``       a project with conf.py and scripts, recorded and built; of recordings, too
``small_gallery``  a project whose recordings are invented, to test pages without executing anything
``recordings``     invented recordings
``in_process``     read projects and record examples in this process
``processes``      run commands and Sphinx in copies of a process that has their imports
``waiting``        wait for what has to happen
"""
