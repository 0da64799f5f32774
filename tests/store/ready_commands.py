"""Commands that begin at once, to be killed at any moment of their work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from dkge_dist.store.models import COMPACT_AFTER_NIGHTS

READY_COMMANDS = """
# Has everything imported and no thread running: a command that is asked for starts at once, as a process of its own.
# In: a line with its words; out: its process. Any other line then asks for its exit code.
import json, os, sys
from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.main import main
from dkge_dist.store import models
models.COMPACT_AFTER_NIGHTS = int(sys.argv[1])

def run(words):
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.argv = ["dkge", *words]
    code = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        os._exit(code)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(json.loads(line))
    print(child, flush=True)
    sys.stdin.readline()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class ReadyCommands:
    """Commands that begin with their work: until its imports are done, a command touches nothing anyway."""

    def __init__(self, compact_after: int = COMPACT_AFTER_NIGHTS) -> None:
        """Deltas are folded after so many nights."""
        script = [sys.executable, "-c", READY_COMMANDS, str(compact_after)]
        self.process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, *words: str) -> int:
        return self._say(json.dumps(words))

    def is_over(self, command: int) -> bool:
        """Has it ended? It stays there until somebody asks how."""
        return Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def end(self) -> int:
        """The exit code of the command, once it is over."""
        return self._say("")

    def _say(self, line: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()
