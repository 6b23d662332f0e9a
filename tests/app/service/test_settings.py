from __future__ import annotations

from dataclasses import fields

import pytest

from app.service.settings import PREFIX, Settings, SettingsError, settings_from
from tests.app.serving import ROOT


def test_every_setting_is_read_from_its_variable() -> None:
    given = {"WATERSMEET_WORKERS": "3", "WATERSMEET_GRACE": "0.5", "WATERSMEET_BODY_BYTES": " 1000 ", "WATERSMEET_QUEUE": ""}
    assert settings_from(given) == Settings(workers=3, grace=0.5, body_bytes=1000)
    for entry in fields(Settings):
        value = entry.metadata.get("most", "text")
        assert getattr(settings_from({f"WATERSMEET_{entry.name.upper()}": str(value)}), entry.name) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("many", "WATERSMEET_QUEUE must be a whole number, got 'many'"),
        ("1.5", "WATERSMEET_QUEUE must be a whole number, got '1.5'"),
        ("-1", "WATERSMEET_QUEUE must be between 0 and 100000, got -1"),
    ],
)
def test_a_wrong_value_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=f"^{says}$"):
        settings_from({"WATERSMEET_QUEUE": text})


def test_no_number_is_no_setting() -> None:
    with pytest.raises(SettingsError):
        settings_from({"WATERSMEET_GRACE": "nan"})


def test_there_is_a_worker_per_core_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores in ({0}, {0, 1, 4, 7, 8}):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: cores)
        assert settings_from({}).worker_count == len(cores)
    assert Settings(workers=7).worker_count == 7


def test_the_service_page_shows_every_setting() -> None:
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for entry in fields(Settings):
        rows.append(f"| `{PREFIX}{entry.name.upper()}` | {entry.metadata['shown'] or entry.default} | {entry.metadata['doc']} |")
    assert "\n".join(rows) in (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


def test_keys_are_separated_by_commas_and_not_shown() -> None:
    settings = settings_from({"WATERSMEET_API_KEYS": "one, two,"})
    assert settings.keys == ("one", "two") and "one" not in repr(settings)
    assert Settings().keys == ()
