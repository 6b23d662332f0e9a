"""A PostgreSQL of the tests' own: started as a user without rights, stopped and started again at will."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from tests.app.tools import postgres

__all__ = ["Postgres", "running_postgres"]

USER, PASSWORD = "reader", "correct horse"
OWNER = "postgres"  # whom Debian's package makes: the server refuses to run as root


@dataclass(frozen=True)
class Postgres:
    """One server."""

    programs: Path
    folder: Path
    port: int

    def url(self, password: str = PASSWORD) -> str:
        return f"postgresql+psycopg://{USER}:{password.replace(' ', '%20')}@127.0.0.1:{self.port}/postgres"

    def jdbc(self, table: str) -> dict[str, str]:
        """What Spark's own source for databases takes."""
        url = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"
        return {"url": url, "dbtable": table, "user": USER, "password": PASSWORD, "driver": "org.postgresql.Driver"}

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def make(self) -> None:
        secret = self.folder / "password"
        secret.write_text(PASSWORD + "\n")
        if os.geteuid() == 0:
            for path in (self.folder, secret):
                shutil.chown(path, OWNER)
        self._run("initdb", "-D", str(self.folder / "data"), "-U", USER, "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync")

    def _run(self, program: str, *arguments: str) -> None:
        user = ["runuser", "-u", OWNER, "--"] if os.geteuid() == 0 else []
        # The server keeps what it inherits open: pipes would never end.
        subprocess.run([*user, str(self.programs / program), *arguments], check=True, cwd=self.folder, stdout=subprocess.DEVNULL)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server with an empty database. Raises NoDatabaseError where there is none."""
    programs = postgres()
    if os.geteuid() == 0:
        pwd.getpwnam(OWNER)
    folder = Path(mkdtemp(prefix="watersmeet-postgres-"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Postgres(programs, folder, port)
    try:
        server.make()
        server.start()
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
