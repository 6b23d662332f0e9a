"""`watersmeet serve`: requests over HTTP."""

from __future__ import annotations

import argparse

from app.commands.numbers import port
from app.commands.terminal import DONE

__all__ = ["HELP", "add_arguments", "run"]

HELP = "answer requests over HTTP"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=port, default=8080)


def run(arguments: argparse.Namespace) -> int:
    from app.service.serve import serve

    serve(arguments.host, arguments.port)
    return DONE
