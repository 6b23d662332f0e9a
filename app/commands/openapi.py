"""`watersmeet openapi`: the document that clients are generated from."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from app.commands.terminal import DONE, put, say

__all__ = ["HELP", "add_arguments", "run"]

HELP = "print the OpenAPI document"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", metavar="FILE", help="write it there instead")


def run(arguments: argparse.Namespace) -> int:
    from app.service.openapi_document import document

    text = json.dumps(document(), indent=2, ensure_ascii=False)
    if arguments.output:
        Path(arguments.output).write_text(text + "\n", encoding="utf-8")
        say(f"wrote {arguments.output}")
    else:
        put(text)
    return DONE
