"""A measurement that is broken off while its second context is built, and one after it: `tuning_probe.py MODEL`.

Prints how many settings the second one measured. llama.cpp ends the process where a context is freed twice.
"""

import sys

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama, tuning
from kvchat.engine.context import Context
from kvchat.engine.model import Model

built = []


class Counted(Context):
    def __init__(self, *arguments):
        built.append(self)
        super().__init__(*arguments)


def main():
    llama.start(lambda text, error: None)
    config = EngineConfig(sys.argv[1], threads=1, extra_buffers=False)
    model = Model(config, lambda fraction: True)
    present = tuning.Setting(flash=False, threads=1)
    tuning.Context = Counted
    try:
        tuning.measure(model, config, present, lambda: len(built) == 2)
    except tuning.Interrupted:
        built.clear()
    print(len(tuning.measure(model, config, present, lambda: False)), len(built))


main()
