"""kvchat as a worker: begins as `kvchat ask` does, with an engine process that gets ready while the program does."""

from __future__ import annotations

from wire import Wire, setup

from kvchat.backend.head_start import HeadStart
from kvchat.paths import HOME_VARIABLE, Paths


def main() -> None:
    wire, given = Wire(), setup()
    paths = Paths.find({HOME_VARIABLE: given["home"]})
    with HeadStart(paths.log_file) as ahead:
        from program_kvchat import Program

        program = Program(wire, given, paths, ahead)
        for command in wire.commands():
            if command["do"] == "rest":
                program.rest()
            else:
                program.ask(command)
        program.close()


if __name__ == "__main__":
    main()
