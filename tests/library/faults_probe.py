"""Opens bad models as a person would: `faults_probe.py HOME`, with a line of JSON [fault, path] each on stdin.

For each fault and command it prints a line of JSON: the fault, the command, its exit code, what it said, how many bytes
it read of files, and whether an engine was started. The address space is limited to what it is before the first fault,
and ALLOWED bytes; numpy and the rest are loaded by then.
"""

import contextlib
import io
import json
import os
import resource
import sys
from pathlib import Path

from kvchat import cli
from kvchat.backend import local
from kvchat.errors import KvchatError

ALLOWED = 64 << 20
COMMANDS = {
    "show": ("models", "show", "{path}"),
    "plan": ("plan", "{path}"),
    "ask": ("ask", "-m", "{path}", "Hello?"),
    "ls": ("models", "ls", "--json"),
}


class Watch:
    """Counts what a command does."""

    def __init__(self):
        self.read = self.started = 0
        self._pread = os.pread
        os.pread = self._counted
        local.Engine.start = self._not_started

    def _counted(self, fd, size, offset):
        data = self._pread(fd, size, offset)
        self.read += len(data)
        return data

    def _not_started(self, *_):
        self.started += 1
        raise KvchatError("the engine would have been started")


def run(arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    return code, out.getvalue(), err.getvalue()


def limit():
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ALLOWED, now + ALLOWED))


def main():
    watch, faults = Watch(), [json.loads(line) for line in sys.stdin]
    sys.stdin = io.StringIO()
    models = Path(sys.argv[1]) / "models"
    models.mkdir(exist_ok=True)
    for command in COMMANDS.values():  # all that they need is loaded
        run([word.format(path="/no/such/model.gguf") for word in command])
    run(["models", "show", "SmolLM2"])
    run(["plan", "SmolLM2"])
    limit()
    for fault, path in faults:
        for name, command in COMMANDS.items():
            watch.read = watch.started = 0
            link = models / Path(path).name
            beside = [models / each.name for each in Path(path).parent.iterdir()] if name == "ls" else []
            for each in beside:
                each.symlink_to(Path(path).parent / each.name)
            code, out, err = run([word.format(path=path) for word in command])
            rows = [row["error"] for row in json.loads(out) if row["path"] == str(link)] if name == "ls" else []
            for each in beside:
                each.unlink()
            said = " ".join(str(row) for row in rows) if name == "ls" else err
            print(json.dumps([fault, name, code, said, watch.read, watch.started]))


if __name__ == "__main__":
    main()
