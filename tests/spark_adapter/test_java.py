"""A Java is found where there is one, refused where it will not do, and wrapped where it lacks what Spark asks for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spark_adapter.errors import JavaError
from spark_adapter.java import java_home, write_wrapper

VECTOR = "--add-modules=jdk.incubator.vector"


def pretend_java(home: Path, body: str) -> Path:
    """A runtime that is a shell script."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{body}\n")
    java.chmod(0o755)
    return java


def version(number: str) -> str:
    return f"echo 'openjdk version \"{number}\"' >&2"


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No runtime from PyPI, and wrappers go to a folder of the test."""
    monkeypatch.setattr("spark_adapter.java.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("spark_adapter.java.sys.prefix", str(tmp_path / "venv"))


def test_java_home_wins_over_path(tmp_path: Path) -> None:
    pretend_java(tmp_path / "first", version("17.0.1"))
    pretend_java(tmp_path / "second", version("21.0.2"))
    assert java_home({"JAVA_HOME": str(tmp_path / "first"), "PATH": f"{tmp_path}/second/bin"}) == tmp_path / "first"


def test_a_link_on_path_leads_to_the_runtime_behind_it(tmp_path: Path) -> None:
    java = pretend_java(tmp_path / "runtime", version("21"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(java)
    assert java_home({"PATH": str(tmp_path / "links")}) == tmp_path / "runtime"


def test_an_old_java_is_passed_over_for_a_newer_one(tmp_path: Path) -> None:
    pretend_java(tmp_path / "old", version("1.8.0_402"))
    pretend_java(tmp_path / "new", version("25"))
    assert java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{tmp_path}/new/bin"}) == tmp_path / "new"


def test_where_none_will_do_the_message_says_what_was_found_and_what_helps(tmp_path: Path) -> None:
    pretend_java(tmp_path / "old", version("11.0.22"))
    pretend_java(tmp_path / "broken", "exit 1")
    with pytest.raises(JavaError) as raised:
        java_home({"JAVA_HOME": str(tmp_path / "old"), "PATH": f"{tmp_path}/broken/bin"})
    text = str(raised.value)
    assert "Java 17 or later" in text and "(Java 11)" in text and "(does not start)" in text and "python -m spark_adapter.java" in text


def test_a_runtime_without_the_vector_module_is_wrapped(tmp_path: Path) -> None:
    slim = f'for a do [ "$a" = "{VECTOR}" ] && exit 1; done\n{version("17.0.9")}'
    pretend_java(tmp_path / "slim", slim)
    home = java_home({"JAVA_HOME": str(tmp_path / "slim")})
    assert home == tmp_path / "venv" / "share" / "watersmeet" / "java"
    started = subprocess.run([home / "bin" / "java", VECTOR, "-version"], capture_output=True, text=True, check=True)
    assert "17.0.9" in started.stderr


def test_a_wrapper_passes_every_other_argument_as_it_is(tmp_path: Path) -> None:
    java = pretend_java(tmp_path / "it's here", 'for a do printf "<%s>" "$a"; done')
    home = write_wrapper(java, tmp_path / "wrapped")
    given = ["-cp", "a b", VECTOR, "", "*", '"$HOME"', "--add-modules=other", "--", "-version"]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"<{argument}>" for argument in given if argument != VECTOR)


def test_a_wrapper_is_not_wrapped_again(tmp_path: Path) -> None:
    slim = f'for a do [ "$a" = "{VECTOR}" ] && exit 1; done\n{version("21")}'
    pretend_java(tmp_path / "slim", slim)
    home = java_home({"JAVA_HOME": str(tmp_path / "slim")})
    assert java_home({"JAVA_HOME": str(home)}) == home
