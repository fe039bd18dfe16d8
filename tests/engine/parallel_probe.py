"""Several turns in one context against each of them alone: `parallel_probe.py SPEC.json`.

Prints JSON: scene -> what the test of that name compares. Logits are compared here: `difference` is the largest one of
any logit of any step, over the tokens that both wrote.
"""

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from kvchat.backend.protocol import Evicted, Generate, PromptReady, TextDelta, Title, TurnFinished, Waits, Warm
from kvchat.backend.values import EngineConfig, PromptMessage, Sampling
from kvchat.engine import llama
from kvchat.engine.divergence import differences
from kvchat.engine.interrupt import Interrupt
from kvchat.engine.llama import NO_SLOT
from kvchat.engine.scheduler import Scheduler
from kvchat.engine.session import Session
from kvchat.formats.past import Eviction
from kvchat.kv.store import StoreUnwritable

HARBOUR = "The harbour master wrote down every ship that came in, where it came from and what it carried. "
SYSTEM = "You are the clerk of a harbour, and answer shortly. " + HARBOUR


class Engine:
    """A session that notes the logits of every output of every turn."""

    def __init__(self, config):
        self.events, self.logits, self.batches = [], {}, []
        self.interrupt = Interrupt()
        self.session = Session(config, self.interrupt, lambda fraction: True, self.events.append)
        self.scheduler = Scheduler(self.session, self.interrupt, self.events.append)
        decode = self.session.decode

        def noted(tasks):
            decode(tasks)
            self.batches.append([len(task.step.tokens) for task in tasks])
            names = {each.place.track.sequence: each.name for each in self.scheduler._running}
            for track, step in tasks:
                if step.output:
                    self.logits.setdefault(names[track.sequence], []).append(track.outputs.logits())

        self.session.decode = noted

    def run(self, *requests):
        for request in requests:
            self.scheduler.add(request)
        self.scheduler.run_out()

    def told(self, turn):
        """What the events of a turn say."""
        mine = [event for event in self.events if getattr(event, "turn", None) == turn]
        finished = [event for event in mine if isinstance(event, TurnFinished)]
        assert len(finished) == 1, finished
        deltas = [event for event in mine if isinstance(event, TextDelta)]
        ready = [event for event in mine if isinstance(event, PromptReady)]
        return {
            "reason": finished[0].reason,
            "failure": finished[0].failure and finished[0].failure.message,
            "usage": asdict(finished[0].usage),
            "ids": [token for delta in deltas for token in delta.ids],
            "text": "".join(delta.text for delta in deltas),
            "segments": ready[0].segments if ready else (),
            "waits": [event.reason for event in mine if isinstance(event, Waits)],
            "evicted": sum(isinstance(event, Evicted) for event in mine),
        }

    def close(self):
        self.session.close()


def pairs_of(one, other):
    """Logits of two turns, each what it told and its logits, as far as they wrote the same."""
    (mine, logits), (theirs, others) = one, other
    common = next((i for i, (a, b) in enumerate(zip(mine["ids"], theirs["ids"], strict=False)) if a != b), 10**9)
    return list(zip(logits, others, strict=False))[: common + 1]


def difference(one, other):
    """The largest one of any logit."""
    return max(float(np.abs(a - b).max()) for a, b in pairs_of(one, other))


def divergences(one, other):
    """KL divergence of each step, nats, the largest first."""
    reference, tested = map(np.stack, zip(*pairs_of(one, other), strict=True))
    return sorted(differences(reference, tested, []).kl.tolist(), reverse=True)


def asked(turn, text, predict=24, **more):
    messages = (PromptMessage("system", SYSTEM), PromptMessage("user", text))
    sampling = Sampling(temperature=0.9, seed=more.pop("seed", 1), max_tokens=predict)
    return Generate(turn, messages, sampling, draft=more.pop("draft", "off"), **more)


def config_of(spec, **more):
    return EngineConfig(spec["model"], threads=1, extra_buffers=False, **({"context": 2048} | spec["config"] | more))


def alternatives(spec):
    """Four answers to one prompt with four seeds, and each of them alone."""
    text = HARBOUR * 6 + "What came in?"
    alone, keep = {}, spec.get("keep", True)
    for seed in range(1, 5):
        engine = Engine(config_of(spec))
        engine.run(asked("t", text, seed=seed, keep_kv=keep))
        alone[seed] = engine.told("t"), engine.logits["t"]
        engine.close()
    engine = Engine(config_of(spec))
    first = asked("1", text, seed=1, keep_kv=keep)
    rest = [asked(str(seed), text, seed=seed, alternative_of="1", keep_kv=keep) for seed in (2, 3, 4)]
    engine.run(first, *rest)
    found = {
        seed: {
            "alone": alone[seed][0],
            "beside": engine.told(str(seed)),
            "difference": difference(alone[seed], (engine.told(str(seed)), engine.logits[str(seed)])),
        }
        for seed in range(1, 5)
    }
    seat = engine.session.seat
    found["occupied"], found["places"] = seat.occupied, [len(place.cells) for place in seat.places]
    engine.close()
    return found


class Talk:
    """A chat that goes on."""

    def __init__(self, name, secret):
        self.name, self.turn = name, 0
        self.messages = [PromptMessage("system", SYSTEM), PromptMessage("user", f"My word is {secret}. Keep it.")]

    def request(self, predict):
        self.turn += 1
        sampling = Sampling(temperature=0.9, seed=self.turn, max_tokens=predict)
        return Generate(f"{self.name}{self.turn}", tuple(self.messages), sampling, draft="off")

    def take(self, engine):
        told = engine.told(f"{self.name}{self.turn}")
        ids = [tuple(part) for part in told["segments"]]
        known = [replace(message, ids=part) for message, part in zip(self.messages, ids, strict=True)]
        reply = PromptMessage("assistant", told["text"], tuple(told["ids"]))
        self.messages = [*known, reply, PromptMessage("user", f"And ship number {self.turn}?")]
        return told


def interleaved(spec):
    """Two chats with one system prompt and a secret each, turn by turn at the same time, and each alone."""
    turns, predict, secrets = spec["turns"], spec["predict"], {"a": "heliotrope", "b": "quicksilver"}
    both, talks = Engine(config_of(spec)), [Talk(name, secret) for name, secret in secrets.items()]
    beside = {name: [] for name in secrets}
    for _ in range(turns):
        both.run(*(talk.request(predict) for talk in talks))
        for talk in talks:
            beside[talk.name].append(talk.take(both))
    found = {}
    for name, secret in secrets.items():
        alone, talk, told = Engine(config_of(spec)), Talk(name, secret), []
        for _ in range(turns):
            alone.run(talk.request(predict))
            told.append(talk.take(alone))
        worst = max(
            difference((alone.told(turn), alone.logits[turn]), (both.told(turn), both.logits[turn]))
            for turn in alone.logits
        )
        found[name] = {
            "difference": worst,
            "same": [one["ids"] == other["ids"] for one, other in zip(told, beside[name], strict=True)],
            "beside": [each["usage"]["beside"] for each in beside[name]],
            "computed": [each["usage"]["computed"] for each in beside[name]],
            "alone_computed": [each["usage"]["computed"] for each in told],
        }
        alone.close()
    both.close()
    return found


def crowded(spec):
    """Three answers that outgrow the context together, and each alone."""
    texts = {name: HARBOUR * 3 + f"Ship {name}?" for name in "abc"}
    requests = [asked(name, text, predict=90) for name, text in texts.items()]
    alone = {}
    for request in requests:
        engine = Engine(config_of(spec))
        engine.run(request)
        alone[request.turn] = engine.told(request.turn), engine.logits[request.turn]
        engine.close()
    engine = Engine(config_of(spec))
    engine.run(*requests)
    found = {
        name: {
            "alone": alone[name][0],
            "beside": engine.told(name),
            "divergences": divergences(alone[name], (engine.told(name), engine.logits[name])),
        }
        for name in texts
    }
    found["cells"] = engine.session.context.cells
    engine.close()
    return found


def outgrown(spec):
    """A short and a long answer to one prompt, which the context does not hold beside each other; then the long one's
    chat goes on."""
    text, engine = HARBOUR * 2, Engine(config_of(spec))
    short, long = asked("short", text, predict=4), asked("long", text, predict=400, alternative_of="short")
    engine.run(*(replace(each, overflow=spec["overflow"]) for each in (short, long)))
    engine.run(after(engine, long))
    engine.close()
    return {name: engine.told(name) for name in ("short", "long", "next")}


def exhausted(spec):
    """Three long replies in one chat. Of the first one something leaves as reasoning does, where nothing else would."""
    request = replace(asked("1", "What came in?", predict=spec["first"]), overflow=spec["overflow"])
    engine = Engine(config_of(spec))
    engine.run(request)
    for turn in ("2", "3"):
        request = after(engine, request, turn, HARBOUR * spec["harbours"] + "And then?")
        if turn == "2" and spec["overflow"] == "stop":
            at = sum(len(message.ids) for message in request.messages if message.ids)
            request = replace(request, evictions=(Eviction(at - 1, ((at - 202, at - 2),)),))
        engine.run(replace(request, sampling=Sampling(temperature=0.9, seed=1, max_tokens=400)))
    engine.close()
    return {name: engine.told(name) for name in "123"}


def after(engine, request, turn="next", text="And then?"):
    """The next turn of a chat, with this text."""
    told, log = engine.told(request.turn), list(request.evictions)
    log += [each.eviction for each in engine.events if isinstance(each, Evicted) and each.turn == request.turn]
    ids = [tuple(part) for part in told["segments"]]
    known = [replace(message, ids=part) for message, part in zip(request.messages, ids, strict=True)]
    reply = PromptMessage("assistant", told["text"], tuple(told["ids"]))
    messages = (*known, reply, PromptMessage("user", text))
    return replace(request, turn=turn, messages=messages, alternative_of=None, evictions=tuple(log))


def unmoved(spec):
    """Positions run out, and there is no cell for the decode in which llama.cpp turns the keys."""
    request = replace(asked("first", "What came in?", predict=600), overflow="sinks")
    engine = Engine(config_of(spec))
    engine.run(request)
    engine.session.context.native.decode = lambda *args, **how: NO_SLOT
    engine.run(after(engine, request))
    engine.close()
    roots = [each.eviction.root for each in engine.events if isinstance(each, Evicted) and each.turn == "next"]
    return {"next": engine.told("next"), "roots": roots}


def unsaved(spec):
    """The disk was full in a turn, and is not when the cache type changes while a title is made."""
    engine = Engine(config_of(spec))
    store = engine.session.seat.store
    put, store.put = store.put, full
    engine.run(asked("full", HARBOUR * 8))
    store.put = put
    engine.session.begin_title(Title("title", (PromptMessage("user", HARBOUR), PromptMessage("assistant", "Yes."))))
    engine.session.advance_aside()
    engine.session.configure(config_of(spec, type_k="q8_0", type_v="q8_0"))
    told = engine.told("full")
    warmed = engine.session.warm(Warm("warm", tuple(token for part in told["segments"] for token in part)))
    engine.close()
    return {"full": told, "transcoded": warmed.transcoded_tokens, "tokens": warmed.tokens}


def full(page):
    raise StoreUnwritable("the disk is full", "make room")


def cancelled(spec):
    """Of three turns one is cancelled while it waits, one while it answers; the third goes on."""
    engine = Engine(config_of(spec))
    engine.run(asked("alone", "What came in?"))
    engine.scheduler.add(asked("a", "What came in?"))
    engine.scheduler.add(asked("b", HARBOUR * 20, predict=200))
    engine.scheduler.add(asked("c", "What came in at last?"))
    while not any(isinstance(each, TextDelta) and each.turn == "a" for each in engine.events):
        engine.scheduler.advance()
    engine.interrupt.cancel("b")
    engine.interrupt.cancel("c")
    engine.scheduler.run_out()
    found = {name: engine.told(name) for name in ("alone", "a", "b", "c")}
    engine.close()
    return found


def broken(spec):
    """A decode that fails whenever one of two turns is in it: that one ends, the other goes on."""
    engine = Engine(config_of(spec))
    native = engine.session.context.native
    decode = native.decode_runs

    def failing(runs):
        there = {each.name: each.place.track.sequence for each in engine.scheduler._running}
        bad = there.get("b") in [run.sequence for run in runs] and len(engine.batches) > 4
        return -3 if bad else decode(runs)

    native.decode_runs = failing
    engine.run(asked("a", "What came in?"), asked("b", "And what went out?"))
    found = {name: engine.told(name) for name in "ab"}
    native.decode_runs = decode
    engine.run(asked("c", "What came in?"))
    found["c"] = engine.told("c")
    engine.close()
    return found


def reading(spec):
    """A long prompt is read while another chat answers: tokens of each decode, by what is to go first."""
    found = {}
    for favour in ("answers", "balanced", "prompts"):
        engine = Engine(config_of(spec, favour=favour))
        engine.scheduler.add(asked("a", "What came in?", predict=120))
        while len(engine.batches) < 8:
            engine.scheduler.advance()
        engine.batches.clear()
        engine.run(asked("b", HARBOUR * 25, predict=8))
        found[favour] = {"batches": engine.batches, "a": engine.told("a"), "b": engine.told("b")}
        engine.close()
    return found


def waiting(spec):
    """More turns than places."""
    engine = Engine(config_of(spec, parallel=2))
    engine.run(*(asked(name, f"Ship {name}?", predict=8) for name in "abcd"))
    found = {name: engine.told(name) for name in "abcd"}
    found["order"] = [event.turn for event in engine.events if isinstance(event, PromptReady)]
    engine.close()
    return found


def main():
    spec = json.loads(Path(sys.argv[1]).read_text())
    llama.start(lambda text, error: None)
    print(json.dumps({scene: globals()[scene](spec) for scene in spec["scenes"]}))


if __name__ == "__main__":
    main()
