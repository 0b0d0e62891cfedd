"""What disturbs a recorder, a recording or a site from outside, and what it says of it then.

Each case does one such thing, and gives the line that it was told; the table in the documentation
is made of these.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gallery_recorder.run import confine, keeper, watch, workspace
from gallery_recorder.store import lock, recording
from tests.fixtures import fault_table, forked
from tests.fixtures.fixture_site import make_build, tree, write
from tests.fixtures.room import PROJECT, Room
from tests.fixtures.waiting import PATIENCE, wait_for

CASES = []
HEAD = ("What happens", "What is said", "What becomes of it")


def case(what: str, then: str):
    """Register a function as a case: *what* happens, and what happens *then*."""

    def register(function):
        CASES.append((what, then, function))
        return function

    return register


def running(room):
    """Start to record a script that waits until ``go`` is there; give it once it runs."""
    room.write(
        "01-a",
        f"""
        import os, time
        while not os.path.exists({str(room.folder / "go")!r}):
            time.sleep(0.02)
        """,
    )
    return room.folder / "go"


def begun(room):
    return list(room.device.glob(".workspace-*/stdout")) and any(
        b"begun" in path.read_bytes() for path in room.device.glob(".workspace-*/stdout")
    )


def last_line(text):
    return [line for line in text.splitlines() if line.strip()][-1]


# --- the recorder ---------------------------------------------------------------------------------


@case("its terminal is closed, under nohup", "recorded")
def nohup(room):
    go = running(room)
    command = ["nohup", *room.command("record", "--device", "cpu")]
    process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: begun(room))
    process.send_signal(signal.SIGHUP)
    go.touch()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return last_line(printed)


@case("signals without a meaning for it: SIGUSR1, SIGUSR2", "recorded")
def strange_signals(room):
    go = running(room)
    process = room.start(stdout=subprocess.PIPE, text=True)
    wait_for(lambda: begun(room))
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGUSR2)
    go.touch()
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    return last_line(printed)


@case("who starts it ignores that processes end: SIGCHLD", "recorded")
def deaf_starter(room):
    for name in ("01-a", "02-b"):
        room.write(name, "x = 1")
    code = "import os, signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    command = [sys.executable, "-c", f"{code}os.execv(sys.argv[1], sys.argv[1:])"]
    command += room.command("record", "--device", "cpu", "--jobs", "1")
    done = subprocess.run(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    return last_line(done.stdout)


@case("SIGQUIT", "as interrupted with Ctrl-C: exit status 128 + 3, nothing is left behind")
def quit_signal(room):
    running(room)
    process = room.start(stdout=subprocess.PIPE, text=True)
    wait_for(lambda: begun(room))
    process.send_signal(signal.SIGQUIT)
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGQUIT
    assert room.left_over() == []
    return last_line(printed)


@case("nobody reads any more what it prints: ``| head -1``", "recorded, exit status 0")
def closed_pipe(room):
    for name in ("01-a", "02-b", "03-c"):
        room.write(name, "x = 1")
    process = room.start("--jobs", "1", stdout=subprocess.PIPE, text=True)
    first = process.stdout.readline()
    process.stdout.close()
    assert process.wait(PATIENCE) == 0
    assert [room.load(name).name for name in ("01-a", "02-b", "03-c")]
    return first.strip()


@case("its standard output is closed: ``>&-``", "recorded, exit status 0")
def closed_output(room):
    room.write("01-a", "print('kept')")
    words = " ".join(f"'{word}'" for word in room.command("record", "--device", "cpu"))
    done = subprocess.run(
        ["sh", "-c", f"{words} >&-"], cwd=PROJECT, stderr=subprocess.PIPE, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert room.load("01-a").blocks[1].stdout == "kept\n"
    return "nothing"


@case("its locale is ASCII, and the report is not", "the report, with ``\\u4e2d`` for 中")
def ascii_locale(room):
    room.write("01-a", "raise ValueError('中')")
    variables = {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONIOENCODING": "",
    }
    command, env = room.command("record", "--device", "cpu"), os.environ | variables
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "UnicodeEncodeError" not in done.stdout + done.stderr
    return next(line.strip() for line in done.stdout.splitlines() if "ValueError: " in line)


@case(
    "it is killed, and a script's process has left its session and its environment", "ended at once"
)
def killed_with_a_daemon(room):
    room.write(
        "01-a",
        """
        import subprocess, time
        subprocess.Popen(['env', '-i', 'setsid', 'sleep', '985'])
        time.sleep(985)
        """,
    )
    process = room.start(stdout=subprocess.DEVNULL)
    daemon = []

    def there():
        found = [p for p, c in keeper.descendants(process.pid).items() if c == "sleep 985"]
        daemon[:] = found
        return found

    wait_for(there)
    process.kill()
    process.wait()
    wait_for(lambda: not os.path.exists(f"/proc/{daemon[0]}"))
    return "nothing"


@case("the clock is set back while a script is executed", "recorded")
def clock(room):
    room.write("01-a", "x = 1")
    with (room.folder / "conf.py").open("a") as conf:
        conf.write("from sphinx_gallery import gen_rst\n")
        conf.write("gen_rst.time = iter((2e9, 1e9)).__next__  # what it calls at begin and end\n")
    done = room.run("record", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert 0 <= room.load("01-a").run.seconds < PATIENCE
    return last_line(done.stdout)


@case("a script takes the permissions of the folder of recordings away", "given back")
def permissions(room):
    gallery = room.device / "tutorials"
    gallery.mkdir(parents=True)
    room.write("01-a", f"import os\nos.system('chmod 0 {gallery} {room.device}')\n")
    done = room.run("record", "--device", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.stat().st_mode & 0o700 for path in (room.device, gallery)} == {0o700}
    return next(line for line in done.stdout.splitlines() if "permissions" in line)


@case("something that is no lock lies in a lock's place", "the others are recorded")
def no_lock(room):
    for name in ("01-a", "02-b"):
        room.write(name, "x = 1")
    room.device.mkdir(parents=True)
    (room.device / ".lock-tutorials--01-a").symlink_to("/etc/passwd")
    done = room.run("record", "--device", "cpu")
    assert done.returncode == 1
    assert room.load("02-b").name == "02-b"
    return next(
        line.strip() for line in done.stdout.splitlines() if "in the place of a lock" in line
    )


# --- a recording ----------------------------------------------------------------------------------


KEPT = tempfile.TemporaryDirectory()  # the recordings of two scripts


def with_recordings(room):
    """Write two scripts, and their recordings, which are made once."""
    for script in ("01-a", "02-b"):
        room.write(script, "print('new')")
    kept = Path(KEPT.name, "recordings")
    if not kept.exists():
        room.record()
        shutil.copytree(room.recordings, kept)
    elif not room.recordings.exists():
        shutil.copytree(kept, room.recordings)


def damaged(room, change, name="recording.json"):
    """*change* a file of a recording; it alone is damaged, and recorded again."""
    with_recordings(room)
    folder = room.gallery / "01-a"
    change(folder / name)
    done = room.run("status", "--check", "any")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert re.search(r"01-a +interpreter +damaged", done.stdout), done.stdout
    assert re.search(r"02-b +interpreter +current", done.stdout)
    told = next(line for line in done.stdout.splitlines() if line.startswith("01-a is damaged"))
    assert room.record()["01-a"].status == "recorded"
    assert room.load("01-a").blocks[1].stdout == "new\n"
    return told.partition("damaged: ")[2]


AGAIN = "told for this recording alone; ``record`` makes it again"


@case("a script is a pipe", "the others are recorded")
def script_is_a_pipe(room):
    os.mkfifo(room.tutorials / "01-a.py")
    room.write("02-b", "x = 1")
    done = room.run("record", "--device", "cpu")
    assert done.returncode == 1
    assert room.load("02-b")
    return next(line for line in done.stdout.splitlines() if "01-a.py" in line).strip()


@case("the folder of recordings is a link to itself", "nothing")
def recordings_are_a_loop(room):
    room.write("01-a", "x = 1")
    room.recordings.symlink_to("recordings")
    for verb in ("status", "record"):
        done = room.run(verb)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    return last_line(done.stderr).removeprefix("gallery_recorder: ")


@case("one byte of ``recording.json`` is no UTF-8", AGAIN)
def no_utf8(room):
    return damaged(room, lambda p: p.write_bytes(p.read_bytes().replace(b"A title", b"A \xff", 1)))


@case("``recording.json`` is nested 200 000 deep", AGAIN)
def nested(room):
    return damaged(room, lambda p: p.write_bytes(b'{"schema": 2, "x": ' + b"[" * 200_000))


@case("``recording.json`` is a pipe", AGAIN)
def pipe(room):
    return damaged(room, lambda p: (p.unlink(), os.mkfifo(p)))


@case("``recording.json`` leads to ``/dev/zero``", AGAIN)
def endless(room):
    return damaged(room, lambda p: (p.unlink(), p.symlink_to("/dev/zero")))


def edited(edit):
    def change(path):
        content = json.loads(path.read_text())
        edit(content)
        path.write_text(json.dumps(content))

    return change


@case("its date is none: 2026-02-30", AGAIN)
def no_date(room):
    return damaged(room, edited(lambda c: c["run"].update(recorded="2026-02-30T00:00:00Z")))


@case("its blocks are swapped", AGAIN)
def swapped(room):
    return damaged(room, edited(lambda c: c["blocks"].reverse()))


def with_file(room, name, text, edit):
    """A recording with a file more, which *edit* names somewhere."""

    def change(path):
        file = path.parent / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        edited(lambda c: (c["files"].update({name: recording.digest(file)}), edit(c)))(path)

    return damaged(room, change)


@case("its thumbnail is no image", AGAIN)
def no_image(room):
    return with_file(room, "t.png", "<script>", lambda c: c.update(thumbnail="t.png"))


@case("it says that its thumbnail is a page: ``index.rst``", AGAIN)
def page_for_thumbnail(room):
    text = ".. raw:: html\n\n   <script>evil()</script>\n"
    return with_file(room, "index.rst", text, lambda c: c.update(thumbnail="index.rst"))


@case("an image of it would replace the project's ``conf.py``", AGAIN)
def image_for_conf(room):
    name = "source/conf.py"
    return with_file(room, name, "evil()", lambda c: c["blocks"][0].update(images=[name]))


@case("an object that its code names is a path", AGAIN)
def path_for_object(room):
    said = {
        "name": "x",
        "module": "..",
        "module_short": "../..",
        "is_class": True,
        "is_explicit": True,
    }
    return damaged(room, edited(lambda c: c.update(backreferences={"../../x": [said]})))


@case("it is copied into the folder of a GPU", "``status --check`` fails")
def another_device(room):
    with_recordings(room)
    shutil.copytree(room.gallery / "01-a", room.recordings / "nvidia-h200" / "tutorials" / "01-a")
    done = room.run("status", "--check")
    assert done.returncode == 1
    told = next(line for line in done.stdout.splitlines() if line.startswith("01-a is damaged"))
    return told.partition("damaged: ")[2]


@case("its folder is a link to another one", "the link is replaced, what it leads to stays")
def linked(room):
    with_recordings(room)
    before = room.content("02-b")
    shutil.rmtree(room.gallery / "01-a")
    (room.gallery / "01-a").symlink_to("02-b")
    outcome = room.record()["01-a"]
    assert (outcome.status, room.content("02-b")) == ("recorded", before)
    assert not (room.gallery / "01-a").is_symlink()
    return "recorded"


# --- a site ---------------------------------------------------------------------------------------


def publish(room, name, *options, edition="1"):
    build = make_build(room.folder / f"build-{name}-{edition}", name, edition)
    command = [sys.executable, "-m", "gallery_recorder", "publish", str(build)]
    return forked.run([*command, str(room.folder / "site"), "--version", name, *options])


def refused(room, name, change):
    site = room.folder / "site"
    assert publish(room, "v1.0.0").returncode == 0
    change(site)
    before = tree(site)
    done = publish(room, name, edition="2")
    assert (done.returncode, tree(site)) == (1, before)
    return done.stderr.strip().removeprefix("gallery_recorder: ")


@case("publishing ``main`` where a folder of somebody else is called so", "nothing was changed")
def foreign_folder(room):
    return refused(room, "main", lambda site: write(site / "main" / "thesis.txt", "precious"))


@case("publishing a release again that lost its ``versions.json``", "nothing was changed")
def lost_list(room):
    return refused(room, "v1.0.0", lambda site: (site / "v1.0.0" / "versions.json").unlink())


@case("publishing ``1.0.0`` beside ``v1.0.0``", "nothing was changed")
def twins(room):
    return refused(room, "1.0.0", lambda site: None)


@case("one byte of a version's ``versions.json`` is no UTF-8", "the others are published")
def damaged_list(room):
    assert publish(room, "v1.0.0").returncode == 0
    path = room.folder / "site" / "v1.0.0" / "versions.json"
    path.write_bytes(path.read_bytes().replace(b"-1", b"\xff1", 1))
    done = publish(room, "main")
    assert done.returncode == 0, done.stderr
    assert "v1.0.0, main" in done.stdout
    return done.stderr.strip().removeprefix("gallery_recorder: ")


# --- the tests ------------------------------------------------------------------------------------

SEEN: dict[str, str] = {}


@pytest.mark.parametrize("what", [what for what, _, _ in CASES])
def test_it_goes_on_or_says_why_not(tmp_path, what):
    (function,) = [f for name, _, f in CASES if name == what]
    room = Room(tmp_path)
    told = function(room)
    told = told.replace(str(tmp_path), "…").replace(
        "python -m gallery_recorder", "gallery-recorder"
    )
    told = re.sub(r"--conf \S+ --source \S+", "", told)
    SEEN[what] = re.sub(r"in (?:\d+ min )?[\d.]+ s|process \d+", "in … s", told).strip()


def test_the_table_in_the_docs_is_what_was_seen():
    if len(SEEN) < len(CASES):
        pytest.skip("the other tests were not all executed in this process")
    out = io.StringIO()
    rows = [(what, re.sub(r"([\\`*_|])", r"\\\1", SEEN[what]), then) for what, then, _ in CASES]
    csv.writer(out, lineterminator="\n").writerows([HEAD, *rows])
    fault_table.check_text("faults-disturbed.csv", out.getvalue(), "tests/run/test_disturbed.py")


# --- what only another user can do ----------------------------------------------------------------


def test_what_another_user_left_is_stepped_around(tmp_path):
    """Its lock is taken all the same; what cannot be removed stays, and is told."""
    told = []
    folder = tmp_path / "device"
    folder.mkdir()
    (folder / ".workspace-a-1234").mkdir()
    (folder / ".lock-b").symlink_to("nowhere")
    workspace.remove_leftovers(folder, told.append)
    assert not (folder / ".workspace-a-1234").exists()
    assert len(told) == 1
    assert ".lock-b" in told[0]
    assert lock.try_lock(folder / ".lock-c") is not None


def test_a_link_among_what_was_left_leads_nowhere(tmp_path):
    folder, victim = tmp_path / "device", tmp_path / "victim"
    (victim / "sub").mkdir(parents=True)
    (victim / "sub").chmod(0o755)
    folder.mkdir()
    (folder / ".workspace-a-1234").symlink_to(victim)
    (folder / ".workspace-b-1234").write_text("")
    told = []
    workspace.remove_leftovers(folder, told.append)
    assert list(folder.iterdir()) == told == []
    assert (victim / "sub").stat().st_mode & 0o777 == 0o755


def test_folders_without_end_are_removed(tmp_path, monkeypatch):
    folder = tmp_path / "device" / ".workspace-a-1234"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    for _ in range(1500):
        os.mkdir("folder")
        os.chdir("folder")
    os.chdir(tmp_path)
    workspace.remove_leftovers(folder.parent, lambda text: None)
    assert list(folder.parent.iterdir()) == []


def test_permissions_are_given_back_from_the_root_down(tmp_path):
    told = []
    folder = tmp_path / "root" / "device" / "variant"
    folder.mkdir(parents=True)
    for path in (folder, folder.parent, tmp_path / "root"):
        path.chmod(0)
    workspace.repair(folder, tmp_path / "root", told.append)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "root", folder.parent, folder)] == [
        0o700,
        0o700,
        0o700,
    ]
    assert len(told) == 3


def test_a_file_in_the_place_of_a_folder_keeps_its_permissions(tmp_path):
    path, told = tmp_path / "recordings", []
    path.write_text("")
    path.chmod(0o600)
    workspace.repair(path, tmp_path, told.append)
    assert (path.stat().st_mode & 0o777, told) == (0o600, [])


@pytest.mark.parametrize("stderr", ["joined", "apart"])
def test_what_is_printed_is_text_that_reads_as_it_is(tmp_path, stderr):
    room = Room(tmp_path)
    code = "print('safe\\u202eevil \\ud83d')\nprint('\\u2066', file=sys.stderr)"
    room.write("01-a", f"import sys\n{code}")
    with (room.folder / "conf.py").open("a") as conf:
        conf.write(f'gallery_stderr = "{stderr}"\n')
    assert room.record()["01-a"].status == "recorded"
    rst = room.load("01-a").blocks[1].rst
    assert ("safe\\u202eevil \\ud83d" in rst, "\\u2066" in rst) == (True, True)


def test_what_a_script_may_do_to_its_files_and_values_does_no_harm(tmp_path):
    room = Room(tmp_path)
    room.write("01-umask", "import os\n_ = os.umask(0o777)\n_ = open('a.csv', 'w').write('x\\n')")
    room.write("02-value", "class A:\n    __repr__ = lambda _: 'safe\\u202eevil\\x1b[31m'\n\nA()")
    outcomes = room.record()
    assert [outcome.status for outcome in outcomes.values()] == ["recorded"] * 2
    assert (room.gallery / "01-umask" / "a.csv").stat().st_mode & 0o777 == 0o644
    assert "safe\\u202eevil" in room.load("02-value").blocks[1].rst


# --- without Landlock -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ("rm -r {0}", ""),
        ("echo x >{0}/recording.json", ""),
        ("echo x >{0}/new.csv", ""),
        ("chmod 0 {0}/*", ""),
        ("echo x >{0}/../stray", "/../stray"),
        ("ln -s /etc {0}/../../.stray", "/../../.stray"),
        ("mkdir {0}/../03-new && echo x >{0}/../03-new/x.csv", "/../03-new/x.csv"),
    ],
)
def test_without_the_kernels_help_a_change_of_another_recording_is_seen(
    tmp_path, monkeypatch, harm, told
):
    room = Room(tmp_path)
    monkeypatch.setattr(confine, "version", lambda: 0)
    (tmp_path / "conf.py").write_text(
        (tmp_path / "conf.py").read_text()
        + "\nfrom gallery_recorder.run import confine\nconfine.version = lambda: 0\n"
    )
    room.write("01-sound", "x = 1")
    room.put_recording("02-other")
    other = room.gallery / "02-other"
    room.write("03-harms", f"import os\n_ = os.system({harm.format(other)!r})")
    outcomes = room.record(jobs=1)
    assert outcomes["01-sound"].status == "recorded"
    assert outcomes["03-harms"].status == "failed"
    changed = os.path.normpath(f"{other}{told}")
    assert f"was changed that is not its own: {changed}" in outcomes["03-harms"].text


def test_what_another_recorder_saves_meanwhile_is_no_harm(tmp_path):
    room = Room(tmp_path)
    room.put_recording("01-a")
    watched = watch.Watch(room.recordings)
    room.write("02-b", "x = 1")
    room.record()
    assert watched.changed() == []
    (room.gallery / "02-b" / "recording.json").write_text("{}")
    assert watched.changed() == [room.gallery / "02-b"]
    assert watched.changed() == []
    room.put_recording("01-a")
    watched.saved(room.gallery / "01-a")
    assert watched.changed() == []
