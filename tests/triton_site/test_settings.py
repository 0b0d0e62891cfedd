"""The table of settings: every value of the engine, with its default and what it says."""

from __future__ import annotations

from gallery_recorder.source.settings import Settings
from triton_site import settings


def test_every_setting_is_in_the_table_with_its_default() -> None:
    table = {name: (default, text) for name, default, text in settings.rows()}
    assert list(table) == [f"``gallery_{name}``" for name in Settings.__struct_fields__]
    assert table["``gallery_recordings``"][0] == '``["recordings"]``'
    assert table["``gallery_variant``"][0] == "``None``"
    assert '"seconds": 600' in table["``gallery_limits``"][0]
    assert all(text for _, text in table.values())
