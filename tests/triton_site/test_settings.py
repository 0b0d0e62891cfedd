"""The engine's settings and commands on the site: all of them, with defaults and options."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from gallery_recorder.project.settings import Settings
from gallery_recorder.run.recorder import Options
from triton_site.pages import settings

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_is_in_the_table_with_its_default() -> None:
    table = {name: (default, text) for name, default, text in settings.rows()}
    assert list(table) == [f"``gallery_{name}``" for name in Settings.__struct_fields__]
    assert table["``gallery_recordings``"][0] == '``["recordings"]``'
    assert table["``gallery_variant``"][0] == "``None``"
    assert '"seconds": 600' in table["``gallery_limits``"][0]
    assert all(text for _, text in table.values())


def test_every_command_is_in_the_reference_with_its_options() -> None:
    page = (ROOT / "docs" / "engine.rst").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. gallery-command:: (\w+)$", page, re.M)
    assert re.findall(r"^ {4}(\w+)", settings.help_of(), re.M) == listed
    shown = settings.help_of("record")
    assert shown.startswith("usage: gallery-recorder record [-h]")
    assert all(f"--{option.name}" in shown for option in fields(Options) if option.name != "names")
