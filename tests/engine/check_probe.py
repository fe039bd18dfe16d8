"""Restores that are clean and restores that are not: `check_probe.py SPEC.json`.

Every turn is run in a session of its own, which has nothing but the page store. Pages of another model get under the
namespace of the right one by its fingerprint, which that model is given here. Prints JSON: scene -> list of turns, each
with its usage, its ids, what the check found (divergences), and what the chat's cells held in the end.
"""

import hashlib
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import kvchat.engine.model
from kvchat.backend.protocol import Generate, PromptReady, Restored, TextDelta, TurnFinished, Warm
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import check, llama
from kvchat.engine.check import ResumeCheck
from kvchat.engine.context import Aborted
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.memory import CHAT, SCRATCH
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.kv.geometry import geometry

FINGERPRINT = kvchat.engine.model.fingerprint
DIVERGENCES: list[float] = []
divergence = check.coarse_divergence


def noted(kept, logits):
    DIVERGENCES.append(divergence(kept, logits))
    return DIVERGENCES[-1]


check.coarse_divergence = noted


class Chat:
    """One conversation. `wrong`: the file of another model, which takes itself for this one."""

    def __init__(self, model, folder, type_k="f16", type_v="f16"):
        self._config = EngineConfig(
            str(model), 2048, type_k, type_v, threads=1, extra_buffers=False, kv_folder=str(folder)
        )
        self._fingerprint = FINGERPRINT(model, kvchat.engine.model.read_header(model))
        self.messages = []

    def ask(self, text, *, wrong=None, warm=False, keep_kv=True, abort=False, predict=8):
        kvchat.engine.model.fingerprint = lambda path, header: self._fingerprint
        config = replace(self._config, model_path=str(wrong)) if wrong else self._config
        events = []
        session = Session(config, Interrupt(), lambda fraction: True, events.append)
        DIVERGENCES.clear()
        warmed = 0
        if warm:
            past = tuple(token for message in self.messages for token in message.ids)
            warmed = session.warm(Warm("w", past)).pages
        if abort:
            self._abort_once(session)
        messages = (*self.messages, PromptMessage("user", text))
        request = Generate("t", messages, Sampling(temperature=0, max_tokens=predict), keep_kv=keep_kv, draft="off")
        for _ in range(2 if abort else 1):
            events.clear()
            scheduler = Scheduler(session, Interrupt(), events.append)
            scheduler.add(request)
            scheduler.run_out()
        cells = hashlib.sha256(session.context.native.state(CHAT)).hexdigest()
        session.close()
        finished = next(event for event in events if isinstance(event, TurnFinished))
        assert finished.failure is None, finished
        segments = next(event.segments for event in events if isinstance(event, PromptReady))
        deltas = [event for event in events if isinstance(event, TextDelta)]
        ids = tuple(token for delta in deltas for token in delta.ids)
        known = [replace(message, ids=part) for message, part in zip(messages, segments, strict=True)]
        self.messages = [*known, PromptMessage("assistant", "".join(delta.text for delta in deltas), ids)]
        return asdict(finished.usage) | {
            "ids": ids,
            "new": len(segments[-1]),
            "left": finished.reason == "length",
            "checked": list(DIVERGENCES),
            "cells_held": cells,
            "warmed": warmed,
            "restored": [event.reused for event in events if isinstance(event, Restored)],
        }

    def _abort_once(self, session):
        """The first decode of the turn is broken off, with the witness in it."""
        decode = session.context.native.decode_runs

        def broken(runs):
            session.context.native.decode_runs = decode
            assert [run.sequence for run in runs] == [CHAT, SCRATCH]
            raise Aborted

        session.context.native.decode_runs = broken


def clean(spec, folder):
    """Three turns, with the check and without it."""
    found = {}
    for model in map(Path, spec["models"]):
        shape = geometry(kvchat.engine.model.read_header(model))
        for type_k, type_v in spec["pairs"]:
            if shape.refusal(type_k, type_v, "auto") is not None:
                continue
            name = f"{model.stem} {type_k} {type_v}"
            for checked in (True, False):
                chat = Chat(model, folder / name / str(checked), type_k, type_v)
                restored = ResumeCheck.restored
                if not checked:
                    ResumeCheck.restored = lambda self, ids, text: None
                found[f"{name} {checked}"] = [chat.ask(text) for text in spec["questions"]]
                ResumeCheck.restored = restored
    return found


def poisoned(spec, folder):
    """The first turn was computed with the wrong model; then another question, by various ways."""
    right, wrong = Path(spec["right"]), Path(spec["wrong"])
    first, then, last = spec["questions"]
    found = {}
    for way, options in {"poisoned": {}, "warmed": {"warm": True}, "aborted": {"abort": True}}.items():
        chat = Chat(right, folder / way, *spec["types"])
        found[way] = [chat.ask(first, wrong=wrong, predict=4), chat.ask(then, **options)]
        if way == "poisoned":
            found[way].append(chat.ask(last))
    chat = Chat(right, folder / "truth", *spec["types"])
    chat.ask(first, wrong=wrong, predict=4)
    found["truth"] = [chat.ask(then, keep_kv=False)]
    return found


def main():
    llama.start(lambda text, error: None)
    spec = json.loads(Path(sys.argv[1]).read_text())
    scene = clean if "models" in spec else poisoned
    print(json.dumps(scene(spec, Path(spec["folder"]))))


main()
