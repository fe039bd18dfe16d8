"""What transcoding costs in quality, as benchmarks/transcode.py has it: `quality_probe.py MODEL PROMPTS TEXT TYPE...`.

Prints one JSON object: the noise floor, the mean divergence from f16 of each type itself, and of each pair by how much
it is worse than its types are.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from transcode import divergences, prompts_of

from kvchat.backend.values import EngineConfig
from kvchat.engine import llama
from kvchat.engine.model import Model


def main():
    llama.start(lambda text, error: None)
    model = Model(EngineConfig(sys.argv[1], extra_buffers=False), lambda fraction: True)
    ids = model.tokenize(Path(sys.argv[3]).read_text(), special=False)
    found = divergences(model, prompts_of(ids, int(sys.argv[2])), sys.argv[4:])
    excess = {f"{source}>{target}": found.excess(source, target) for source, target in found.transcoded}
    print(json.dumps({"floor": found.floor, "native": found.native, "excess": excess}))


main()
