"""What is asked of the programs, scenario by scenario. Each writes its records into the bench, and ends what it starts.

Programs are taken in turn within a scenario, question by question: what disturbs the machine disturbs all of them.
"""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict
from typing import Any

from bench import Bench, in_turn, running
from processes import memory, on_disk, written
from programs import Answer, Program
from prompts import SYSTEM, TASKS, long_system, passage, question

CHAT = "chat"
SETTLED = 3.0  # seconds after an answer in which kvchat has written its pages and given back what it freed


def _told(answer: Answer) -> dict[str, Any]:
    return {
        "first": answer.first,
        "seconds": answer.seconds,
        "tokens": answer.tokens,
        "prompt": answer.prompt,
        "computed": answer.computed,
        "inside": answer.told.get("usage", {}).get("ttft_seconds"),
    }


# ------------------------------------------------------------------ plain speed


def speed(bench: Bench, share: float) -> None:
    """A prompt from nothing and an answer behind it, against llama-bench with the same settings. Flash attention is
    off with f16 and on with q8_0, which needs it."""
    for cache, _ in bench.scale.rounds:
        flash = cache != "f16"
        same = {"flash": flash, "batch": 256, "draft": "off"}
        programs: list[Program] = [bench.kvchat(cache, **same), bench.server(cache, **same)]
        last, number = 0.0, 0
        with running(programs):
            while number < bench.scale.speed_rounds and bench.goes_on(number, last, share):
                began = bench.elapsed
                _llama_bench(bench, cache, number)
                for program in in_turn(programs, number):
                    _plain(bench, program, cache, number)
                last, number = bench.elapsed - began, number + 1
        bench.say(f"speed, {cache}: {number} rounds")


def _plain(bench: Bench, program: Program, cache: str, number: int) -> None:
    asked = f"{passage(bench.scale.prompt, number)}\n\n{question(1)}"
    answer = program.ask(f"speed-{number}", SYSTEM, asked, bench.scale.decode)
    bench.note(
        "speed",
        program=program.name,
        type=cache,
        round=number,
        prefill=(answer.computed or 0) / answer.first,
        decode=(answer.tokens - 1) / (answer.seconds - answer.first),
        decode_inside=answer.told.get("usage", {}).get("decode_seconds"),
        **_told(answer),
    )


def _llama_bench(bench: Bench, cache: str, number: int) -> None:
    """Once for the prompt, once for the answer at the depth of the prompt; and with batches as they come."""
    scale = bench.scale
    prompt, answer = ["-p", scale.prompt, "-n", 0], ["-p", 0, "-n", scale.decode, "-d", scale.prompt]
    prefill = _bench_once(bench, cache, 256, prompt)
    decode = _bench_once(bench, cache, 256, answer)
    bench.note("speed", program="llama-bench", type=cache, round=number, prefill=prefill, decode=decode)
    usual = _bench_once(bench, cache, 0, prompt)
    bench.note("speed", program="llama-bench, batch 2,048/512", type=cache, round=number, prefill=usual, decode=None)


def _bench_once(bench: Bench, cache: str, batch: int, test: list[Any]) -> float:
    """Tokens per second of one test."""
    words = [bench.binaries / "llama-bench", "-m", bench.model, "-t", bench.threads, "-ctk", cache, "-ctv", cache]
    words += ["-fa", "off" if cache == "f16" else "on", "-r", 1, "-o", "json", *test]
    words += ["-b", batch, "-ub", batch] if batch else []
    done = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, timeout=300)
    return float(json.loads(done.stdout)[0]["avg_ts"])


# ------------------------------------------------------------------ one chat, turn by turn


def chat(bench: Bench, share: float) -> None:
    """A chat of many turns; after the last round of a cache type, memory and restarts."""
    rounds = [(cache, number, number == count - 1) for cache, count in bench.scale.rounds for number in range(count)]
    spent = 0.0
    for cache, number, last in rounds:
        if not bench.goes_on(number, spent, share) and not last:
            continue
        began = bench.elapsed
        programs: list[Program] = [
            bench.kvchat(cache),
            bench.server(cache),
            bench.python(cache, "ram"),
            bench.python(cache, "disk"),
        ]
        if cache == "f16":
            programs.append(bench.llm())
        with running(programs):
            before = {program: written(program.pids) for program in programs}
            for turn in range(1, bench.scale.turns + 1):
                for program in in_turn(programs, turn + number):
                    _turn(bench, program, cache, number, turn)
            time.sleep(SETTLED)
            for program in programs:
                _taken(bench, program, cache, number, before[program])
        spent = bench.elapsed - began
        bench.say(f"chat, {cache}: round {number + 1}")
        if last:
            _restarts(bench, cache, programs)


def _turn(bench: Bench, program: Program, cache: str, number: int, turn: int) -> None:
    if program.gave_up:
        return
    answer = program.ask(CHAT, SYSTEM, question(turn), bench.scale.answer)
    if answer.failed:
        program.gave_up = True
        bench.note("failed", program=program.name, type=cache, turn=turn, why=answer.failed)
        return
    kept = program.keep(CHAT)
    bench.note(
        "turns",
        program=program.name,
        type=cache,
        round=number,
        turn=turn,
        keep=kept,
        **_told(answer),
    )


def _taken(bench: Bench, program: Program, cache: str, number: int, before: int) -> None:
    """Memory and what was written, at the end of the chat. Not of one that gave up on the way."""
    if not program.gave_up:
        pids, turns = program.pids, bench.scale.turns
        bench.note(
            "taken",
            program=program.name,
            type=cache,
            round=number,
            turns=turns,
            processes=len(pids),
            written=(written(pids) - before) / turns,
            **asdict(memory(pids)),
        )


def _restarts(bench: Bench, cache: str, programs: list[Program]) -> None:
    """Each program anew, and the next turn of the chat. What does not come back by itself, or by a file, is read."""
    turns = dict.fromkeys(programs, bench.scale.turns)
    for number in range(bench.scale.restarts):
        for program in in_turn(programs, number):
            if program.gave_up or (number and not program.keeps):
                continue
            turns[program] += 1
            _restart(bench, program, cache, number, turns[program])
    server = next(program for program in programs if program.name == "llama-server")
    server.name = "llama-server, without a saved slot"
    server.keeps = False
    turns[server] += 1
    _restart(bench, server, cache, 0, turns[server])
    bench.say(f"restarts, {cache}")


def _restart(bench: Bench, program: Program, cache: str, number: int, turn: int) -> None:
    ready = program.start()
    try:
        back = program.bring_back(CHAT) if program.keeps else 0.0
        answer = program.ask(CHAT, SYSTEM, question(turn), bench.scale.answer)
        if not answer.failed and program.keeps:
            program.keep(CHAT)
    finally:
        program.stop()
    bench.note(
        "restarts",
        program=program.name,
        type=cache,
        round=number,
        ready=ready,
        back=back,
        whole=ready + back + answer.first,
        **_told(answer),
    )


# ------------------------------------------------------------------ many chats


def many(bench: Bench, _share: float) -> None:
    """Chats with one system prompt: what they take on disk, and how the first of them comes back."""
    system = long_system(bench.scale.system)
    programs: list[Program] = [bench.kvchat("f16"), bench.server("f16"), bench.python("f16", "disk")]
    with running(programs):
        for chat_number in range(1, bench.scale.chats + 1):
            for program in in_turn(programs, chat_number):
                answer = program.ask(f"chat{chat_number}", system, question(chat_number), bench.scale.answer)
                program.keep(f"chat{chat_number}")
                bench.note("many", program=program.name, chat=chat_number, **_told(answer))
        for program in programs:
            answer = program.ask("chat1", system, question(bench.scale.chats + 1), bench.scale.answer)
            bench.note("return", program=program.name, chats=bench.scale.chats, **_told(answer))
    for program in programs:  # ended: all is written
        bench.note("disk", program=program.name, chats=bench.scale.chats, bytes=_kept(program))
    bench.say(f"{bench.scale.chats} chats with one system prompt")


def _kept(program: Program) -> int:
    """Bytes of the cache on disk, without logs and chat texts."""
    folder = {"kvchat": "kv", "llama-server": "slots", "LlamaDiskCache": "cache"}[program.name]
    return on_disk(program.setup.home / folder)


# ------------------------------------------------------------------ drafts


def drafts(bench: Bench, share: float) -> None:
    """Tasks with and without drafts from what was said before. Ratios are within a program."""
    simple = ("--spec-type", "ngram-simple", "--spec-draft-n-max", "64")
    programs: list[tuple[Program, str]] = [
        (bench.kvchat("f16", draft="off"), "off"),
        (bench.kvchat("f16", draft="auto"), "auto"),
        (bench.server("f16"), "off"),
        (bench.server("f16", "llama-server-mod", ("--spec-default",)), "--spec-default"),
        (bench.server("f16", "llama-server-simple", simple), "ngram-simple"),
        (bench.python("f16", "none"), "off"),
        (bench.python("f16", "none", draft="ngram"), "LlamaPromptLookupDecoding"),
    ]
    modes = dict(programs)
    last, number = 0.0, 0
    with running(list(modes)):
        while number < bench.scale.draft_rounds and bench.goes_on(number, last, share):
            began = bench.elapsed
            for task, asked in TASKS.items():
                for program in in_turn(list(modes), number):
                    answer = program.ask(f"{task}-{number}", SYSTEM, asked, bench.scale.drafted)
                    bench.note(
                        "drafts",
                        program=program.name.removesuffix("-mod").removesuffix("-simple"),
                        mode=modes[program],
                        task=task,
                        round=number,
                        decode=(answer.tokens - 1) / (answer.seconds - answer.first),
                        **_drafted(answer.told),
                        **_told(answer),
                    )
            last, number = bench.elapsed - began, number + 1
    bench.say(f"drafts: {number} rounds")


def _drafted(told: dict[str, Any]) -> dict[str, Any]:
    """Tokens that were drafted and that stood, from what kvchat or llama-server tells."""
    usage = told.get("usage", {})
    proposed = usage.get("draft_proposed", told.get("draft_n"))
    return {"proposed": proposed, "accepted": usage.get("draft_accepted", told.get("draft_n_accepted"))}
