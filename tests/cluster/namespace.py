"""A network namespace that stands for another machine: a node of a Ray cluster in it can be cut off.

It is joined to this machine by one pair of virtual interfaces, with addresses of a private range that exist on this
pair alone. No route leads from there to anywhere else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import ray

from tests.cluster.nodes import NODE_CPUS, NODE_MEMORY, soon

NOWHERE = "02:00:00:00:00:01"
"""A hardware address that neither end of the pair has."""

CLEAN = """
cat > /dev/null
kill -9 $(ip netns pids $0)
ip link delete $1
ip netns delete $0
ip route delete unreachable $2
"""
"""Waits until its input ends, then removes everything."""


class Namespace:
    """Skips the test where none can be made. `here` and `there` are the addresses of the two ends."""

    def __init__(self) -> None:
        number = os.getpid() % (1 << 14)
        network, last = f"10.213.{number >> 6}", 4 * (number & 63)
        self.here, self.there = f"{network}.{last + 1}", f"{network}.{last + 2}"
        self.name, self._near, self._far = f"dkge-{number}", f"dkge-{number}a", f"dkge-{number}b"
        self._node: subprocess.Popen[bytes] | None = None
        try:
            _ip("netns", "add", self.name)
        except (OSError, subprocess.CalledProcessError) as error:
            told = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else error
            pytest.skip(f"no network namespace can be made: {told}")
        routed = f"{network}.{last}/30"
        # A process of its own: Ray ends this one if it loses its head node.
        self._cleaner = subprocess.Popen(
            ["sh", "-c", CLEAN, self.name, self._near, routed],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far, "netns", self.name)
            # Without the pair, packets to these addresses would leave by the default route.
            _ip("route", "add", "unreachable", routed, "metric", "4278198272")
            _ip("address", "add", f"{self.here}/30", "dev", self._near)
            _ip("link", "set", self._near, "up")
            _ip("-n", self.name, "address", "add", f"{self.there}/30", "dev", self._far)
            _ip("-n", self.name, "link", "set", "lo", "up")
            self.heal()
        except BaseException:
            self.close()
            raise

    def start_node(self, address: str) -> None:
        """Join a Ray cluster with a node of the same size as the others."""
        before = _alive_nodes()
        words = ["start", "--address", address, "--node-ip-address", self.there, "--num-cpus", str(NODE_CPUS)]
        words += ["--memory", str(NODE_MEMORY), "--object-store-memory", str(150 << 20), "--disable-usage-stats"]
        command = ["ip", "netns", "exec", self.name, sys.executable, "-m", "ray.scripts.scripts", *words, "--block"]

        def has_joined() -> bool:
            """A node that comes too late to its own heartbeats, on a busy machine, ends: it is started again."""
            if self._node is None or self._node.poll() is not None:
                self.end_node()
                self._node = subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
                )
            # Not how many: one that was cut off may still count, and cease to meanwhile.
            return bool(_alive_nodes() - before)

        soon(has_joined, 300)

    def end_node(self) -> None:
        """Kill everything that runs in the namespace: all of it was started there by `start_node`."""
        until = time.monotonic() + 60
        while found := _ip("netns", "pids", self.name).split():
            assert time.monotonic() < until, f"processes {found} do not end"
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            time.sleep(0.1)
        if self._node is not None:
            self._node.wait()
            self._node = None

    def cut(self) -> None:
        """Take the link down at the other end: packets to it vanish."""
        _ip("-n", self.name, "link", "set", self._far, "down")

    def drop(self) -> None:
        """Both ends send, and neither takes what arrives: the link looks well, and every packet is dropped."""
        _ip("neighbour", "replace", self.there, "lladdr", NOWHERE, "nud", "permanent", "dev", self._near)
        _ip("-n", self.name, "neighbour", "replace", self.here, "lladdr", NOWHERE, "nud", "permanent", "dev", self._far)

    def heal(self) -> None:
        """Both ends reach each other again."""
        _ip("-n", self.name, "link", "set", self._far, "up")
        for place, end, address in (((), self._near, self.there), (("-n", self.name), self._far, self.here)):
            with suppress(subprocess.CalledProcessError):  # There was none.
                _ip(*place, "neighbour", "delete", address, "dev", end)

    def close(self) -> None:
        """Remove all that was made."""
        self._cleaner.communicate()
        if self._node is not None:
            self._node.wait()
        assert self.name not in _ip("netns", "list").split()


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60).stdout


def _alive_nodes() -> set[str]:
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
