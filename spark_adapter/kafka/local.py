"""One broker on this machine, from Kafka's own jars: for the demo and for tests.

It is a whole Kafka of one node (KRaft mode: it is its own controller), on ports that are free, with everything it writes in one folder. It deletes
nothing: records may have times long past.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark_adapter.errors import ConnectorError
from spark_adapter.java import java_home
from spark_adapter.kafka.connector import BROKER, fetched

__all__ = ["Broker", "running_broker"]

HOST = "127.0.0.1"
PATIENCE = 60.0  # seconds to start or to stop
CLUSTER = "d2F0ZXJzbWVldC1sb2NhbA"  # any 16 bytes, in base 64
SMALL = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""


class Broker:
    """A broker over the files in `folder`. `stop` and `start` again: it has the same address and the same topics."""

    def __init__(self, folder: Path, options: tuple[str, ...] = SMALL) -> None:
        self._folder, self._options = folder, options
        self._jars = fetched(BROKER, alone=False)
        self._java = str(java_home() / "bin" / "java")
        self._process: subprocess.Popen[bytes] | None = None
        port, controller = _free_ports()
        self.address = f"{HOST}:{port}"
        folder.mkdir(parents=True, exist_ok=True)
        properties = PROPERTIES.format(host=HOST, port=port, controller=controller, folder=folder)
        (folder / "server.properties").write_text(properties, encoding="utf-8")
        command = self._command("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(folder / "server.properties"))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise ConnectorError(f"Kafka's storage cannot be made in {folder}: {(done.stderr or done.stdout).strip().splitlines()[-1]}")

    @property
    def pid(self) -> int:
        """Of its process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> Broker:
        """Start it, and wait until it answers."""
        with (self._folder / "broker.log").open("ab") as log:
            # A group of its own: Ctrl-C is for whoever uses the broker, and stops it in due order.
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._folder / "server.properties")), stdout=log, stderr=log, process_group=0
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "broker.log").read_text(errors="replace").strip().splitlines()
                self.stop(signal.SIGKILL)
                raise ConnectorError(f"Kafka's broker does not start: {said[-1] if said else 'it gives no reason'}")
            time.sleep(0.05)
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it in due order, or at once with SIGKILL."""
        if self._process is None:
            return
        os.kill(self._process.pid, how)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self) -> bool:
        host, port = self.address.split(":")
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((host, int(port))) == 0

    def _command(self, *arguments: str) -> list[str]:
        return [self._java, *self._options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{self._jars}/*", *arguments]


@contextmanager
def running_broker(folder: Path, options: tuple[str, ...] = SMALL) -> Iterator[Broker]:
    """A broker for as long as the block runs."""
    broker = Broker(folder, options).start()
    try:
        yield broker
    finally:
        broker.stop()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind((HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]
