"""What pyproject.toml cannot say: a wheel carries `openapi/`, which stands beside the packages here, inside the package `app`."""

from __future__ import annotations

from pathlib import Path
from shutil import copy2, copytree

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithDocuments(build_py):
    """Copies the examples and the OpenAPI document beside the modules; an editable installation finds them where they are."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            place = Path(self.build_lib) / "app" / "openapi"
            copytree("openapi/examples", place / "examples", dirs_exist_ok=True)
            copy2("openapi/openapi.json", place)


setup(cmdclass={"build_py": BuildWithDocuments})
