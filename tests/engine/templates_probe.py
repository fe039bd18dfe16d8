"""Ten turns with every chat template on a tiny model: `templates_probe.py MODEL FOLDER_OF_TEMPLATES`.

Prints JSON: template name -> list of [prompt tokens, reused, tokens of the new user segment, tokens of the past] per
turn, or the message of the error with which the template was refused.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

from kvchat.backend.protocol import Generate, PromptReady, TextDelta
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.asked import read_request
from kvchat.engine.cells import Cells
from kvchat.engine.context import Context
from kvchat.engine.llama_quants import NativeQuants
from kvchat.engine.model import Model
from kvchat.engine.place import Place
from kvchat.engine.reuse import Reuser
from kvchat.engine.running import Running
from kvchat.engine.speculate import Speculation
from kvchat.engine.template import ChatTemplate
from kvchat.engine.turn import Turn
from kvchat.errors import KvchatError

TURNS = 10


def main() -> None:
    llama.start(lambda text, error: None)
    config = EngineConfig(sys.argv[1], context=16384, threads=1, extra_buffers=False)
    model = Model(config, lambda fraction: True)
    context = Context(model, config, lambda: False)
    rows = {}
    for file in sorted(Path(sys.argv[2]).glob("*.jinja")):
        try:
            model.template = ChatTemplate(file.read_text(), bos=model.bos_text, eos="")
            rows[file.stem] = ten_turns(model, context)
        except KvchatError as error:
            rows[file.stem] = error.message
    print(json.dumps(rows))


def ten_turns(model: Model, context: Context) -> list[list[int]]:
    cells = Cells(context.memory, b"")
    context.memory.clear()
    messages = [PromptMessage("system", "Be brief.")]
    rows = []
    for number in range(TURNS):
        messages.append(PromptMessage("user", f"Question {number}?"))
        past = sum(len(message.ids or ()) for message in messages)
        events = []
        sampling = Sampling(temperature=1, seed=number, max_tokens=6)
        request = Generate("t", tuple(messages), sampling, draft="off")
        drafts = Speculation((), on_gpu=False).begin(request, None, model.native.ends_generation)
        place = Place(context.tracks[0], cells, Reuser(cells, None), None)
        asked = read_request(request, model, context.memory)
        running = Running(Turn(asked, model, context, place, drafts, NativeQuants(), events.append))
        while running.resume():
            tokens = running.want.tokens
            context.compute([running.task(tokens, whole=False)])
            running.computed(tokens, 0.0, alone=True)
        usage = running.turn.finish()
        segments = next(event.segments for event in events if isinstance(event, PromptReady))
        messages = [replace(message, ids=ids) for message, ids in zip(messages, segments, strict=True)]
        deltas = [event for event in events if isinstance(event, TextDelta)]
        ids = tuple(token for delta in deltas for token in delta.ids)
        messages.append(PromptMessage("assistant", "".join(delta.text for delta in deltas), ids))
        rows.append([usage.prompt_tokens, usage.reused, len(segments[-1]), past])
    return rows


main()
