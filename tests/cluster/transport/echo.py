"""A server that sends back what it gets, here or in a process of its own that can be stopped, killed and starved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.cluster.transport import Address, AllocateReply, Message, Received, TransportClient, TransportServer

SECRET = "0123456789abcdef"
ECHO, WORK = 1, 2
SHORT = {"keepalive_seconds": 0.05, "handshake_seconds": 1.0}


def echo(secret: str, request: Received, allocate: AllocateReply) -> Message:
    """The same again; WORK takes as many seconds as its scalar says."""
    assert secret == SECRET
    if request.kind == WORK:
        time.sleep(request.scalar)
    return Message(*request[:4], [array.copy() for array in request.arrays])


def message(*arrays: Any, kind: int = ECHO, seconds: float = 0.0) -> Message:
    return Message(kind, (1, 2, 3), seconds, list(range(len(arrays))), list(arrays))


def says_hello(client: TransportClient) -> bool:
    """Does it get an answer?"""
    sent = np.arange(5, dtype=np.float32)
    return bool((client.answer(client.ask(message(sent))).arrays[0] == sent).all())


def far(address: Address) -> Address:
    """The same server, as if it were on another machine."""
    return address._replace(unix_name="")


class Process(NamedTuple):
    """A server in a process of its own."""

    child: subprocess.Popen[bytes]
    address: Address

    @property
    def pid(self) -> int:
        return self.child.pid

    def tell(self, command: str) -> None:
        """`exhaust` its descriptors, or `release` them."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{command}\n".encode())
        self.child.stdin.flush()
        assert self.child.stdout.readline() == b"done\n"

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """As by SIGSTOP. Signals take their time: until no thread of it runs any more."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            while {self._state(task) for task in Path(f"/proc/{self.pid}/task").iterdir()} != {"T"}:
                time.sleep(0.01)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    @staticmethod
    def _state(task: Path) -> str:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]

    def peak_bytes(self) -> int:
        """Most memory that it ever had."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")


@contextmanager
def process(files: int = 0) -> Iterator[Process]:
    """A server that may have so many files open (0: as many as we)."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "tests.cluster.transport.echo", str(files)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    with child:
        assert child.stdout is not None
        try:
            yield Process(child, Address(*json.loads(child.stdout.readline())))
        finally:
            child.kill()


def main() -> None:
    files = int(sys.argv[1])
    if files:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    server = TransportServer("127.0.0.1", lambda: SECRET, echo, **SHORT)
    print(json.dumps(server.address), flush=True)
    taken: list[int] = []
    for command in sys.stdin:
        if command == "exhaust\n":
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
        else:
            while taken:
                os.close(taken.pop())
        print("done", flush=True)


if __name__ == "__main__":
    main()
