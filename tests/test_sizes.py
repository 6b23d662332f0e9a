"""The size check that `make lint` runs says what is too large, and takes an argument only where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sizes import FILE_LINES, FUNCTION_LINES, PARAMETERS, main, sizes_of

LONG_BODY = "\n".join(["    x = 1"] * FUNCTION_LINES)
WIDE = ", ".join(f"p{i}" for i in range(PARAMETERS + 1))


def offenders(text: str) -> list[str]:
    files, functions = sizes_of(text, "room/file.py")
    return [f"{size}" for size in (*files, *functions) if size.offends]


def test_a_function_may_be_as_long_as_the_limit_and_no_longer() -> None:
    assert offenders(f"def f():\n{LONG_BODY}\n") == [f"room/file.py:1 f has {FUNCTION_LINES + 1} lines"]
    assert offenders("def f():\n" + LONG_BODY[: LONG_BODY.rindex("\n")]) == []


def test_a_docstring_does_not_make_a_function_long() -> None:
    text = "\n".join(["    more"] * FUNCTION_LINES)
    assert offenders(f'def f():\n    """Says\n{text}\n    """\n    return 1\n') == []


def test_self_is_no_parameter_and_keywords_are() -> None:
    assert offenders(f"def f({WIDE}): ...\n") == [f"room/file.py:1 f has {PARAMETERS + 1} parameters"]
    assert offenders(f"def f(p0, /, *args, {WIDE.removeprefix('p0, ')}): ...\n") == [f"room/file.py:1 f has {PARAMETERS + 2} parameters"]
    assert offenders(f"class C:\n    def f(self, {WIDE.removesuffix(f', p{PARAMETERS}')}): ...\n") == []


@pytest.mark.parametrize(
    "head",
    [
        "# long: one table, read row by row\ndef f():",
        "# long: one table,\n# read row by row\n@g\ndef f():",
        "def f():\n    # long: one table, read row by row",
    ],
)
def test_an_argument_above_the_function_or_before_its_first_statement_counts(head: str) -> None:
    assert offenders(f"{head}\n{LONG_BODY}\n") == []


@pytest.mark.parametrize(
    "head",
    [
        "# long:\ndef f():",
        "# wide: other\ndef f():",
        "# long: far away\n\ndef f():",
        's = "# long: no comment"\ndef f():',
        "def f():\n    y = 2\n    # long: too late",
    ],
)
def test_no_reason_the_wrong_kind_or_the_wrong_place_do_not(head: str) -> None:
    assert len(offenders(f"{head}\n{LONG_BODY}\n")) == 1


def test_a_file_is_argued_for_before_its_first_statement() -> None:
    rest = "x = 1\n" * FILE_LINES
    assert offenders(f'"""What."""\n{rest}') == [f"room/file.py has {FILE_LINES + 1} lines"]
    assert offenders(f'"""What."""\n\n# long: generated\n{rest}') == []
    assert offenders(f"{rest}# long: too late\n") == [f"room/file.py has {FILE_LINES + 1} lines"]


def test_it_prints_the_longest_and_fails_on_an_offender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "a.py").write_text("def f():\n    return 1\n")
    assert main(tmp_path) == 0
    assert capsys.readouterr().out == "longest function: app/a.py:1 f has 2 lines\nlongest file: app/a.py has 2 lines\n"
    (tmp_path / "app" / "b.py").write_text(f"def g({WIDE}): ...\n")
    assert main(tmp_path) == 1
    assert f"app/b.py:1 g has {PARAMETERS + 1} parameters, more than {PARAMETERS}" in capsys.readouterr().out
