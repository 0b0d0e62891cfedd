"""Execute tutorials on a GPU once, keep what they printed and drew, render it anywhere.

The modules, in the order the data flows:

``script``      a tutorial's file: its blocks, title, settings and the key of its code
``recording``   the recording: its format on disk, loading with validation, saving in one step
``recorder``    which tutorials to record, and the report of how it went
``needs``       what a tutorial asks for in its file: time, and the GPU that it needs
``engines``     where tutorials are executed: on this machine, or on a cluster
``cluster``     the nodes of a Ray cluster
``workplace``   staging folders, the GPUs' locks, and what a killed recorder left
``scheduler``   which tutorial runs where and when
``lock``        between recorders: of one recording, and of one GPU
``progress``    what is told meanwhile, and the report
``runner``      one tutorial in one process: time limit, process group, nothing left behind
``job``         what the runner and that process tell each other
``child``       what runs inside that process: sphinx-gallery's executor and scrapers
``figures``     the plots and the thumbnail
``guard``       files are written in the working directory only
``text``        what is kept of printed text
``provenance``  the machine that a recording was made on
``status``      which recordings are current, stale or missing
``compare``     the benchmarks of two recordings, side by side
``replay``      the Sphinx extension that renders recordings instead of executing tutorials
``growth``      what a gallery of many tutorials takes, reckoned from the recordings
``release``     which version the checkout is, from git
``inspection``  whether a build is fit to be published
``versions``    the versions of a site, and the list that their menus read
``front``       the files at the root of a site
``publish``     a build into a site of versions, in one step; a version out of it
``atomic``      a folder in the place of another one in one step
"""
