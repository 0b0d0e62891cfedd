"""One recording, in a terminal and as a notebook."""

import nbformat

from gallery_recorder.testing.projects import Room


def test_a_recording_can_be_read_in_a_terminal_and_as_a_notebook(tmp_path):
    room = Room(tmp_path)
    path = room.write("01-a", "print('\\x1b[2Jprinted')\nopen('a.csv', 'w').write('a,b\\n1,2\\n')")
    assert "has no recording" in room.run("show", "01").stderr
    room.record()
    shown = room.run("show", "01").stdout
    assert "\x1b" not in shown
    for text in (
        "tutorials/01-a: ",
        "current\n",
        "block 2 of 2",
        "printed\n",
        "a.csv\n",
    ):
        assert text in shown
    made = room.run("export", "01-a", "--output", str(tmp_path))
    assert made.returncode == 0, made.stderr
    notebook = nbformat.read(tmp_path / "01-a.ipynb", 4)
    nbformat.validate(notebook)
    assert "printed" in notebook.cells[-1].outputs[0].text
    path.write_text(path.read_text().replace("1,2", "3,4"))
    assert "1 of 2 code blocks has changed" in room.run("show", "01").stdout
    assert "1 of 2 code blocks has changed" in room.run("export", "01").stderr
