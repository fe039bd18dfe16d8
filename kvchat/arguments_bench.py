"""The words of `kvchat bench`. Owns these flags and their help; their values are read by `kvchat.bench.wanted`."""

from __future__ import annotations

import argparse

USAGE = """kvchat bench [PART...] [FLAGS]
       kvchat bench fidelity [--chat ID | --text FILE] [FLAGS]
       kvchat bench show A.json [--html FILE]
       kvchat bench compare A.json B.json"""
_EPILOG = """parts: speed (prefill and decode by cache type, depth, threads), restore (save and restore against
computing again), resume (first token over a chat's length), drafts (speculation by task), memory (by cache type),
fidelity (what cache types do to the answers, against f16). Without one: all but the last. Nothing of yours is changed.
"""


def add_bench_flags(bench: argparse.ArgumentParser) -> None:
    """What to measure, and how the report is told. Flags about model and cache come from elsewhere."""
    bench.usage = USAGE
    bench.epilog = _EPILOG
    words = "speed, restore, resume, drafts, memory, fidelity; or show or compare, and reports"
    bench.add_argument("parts", metavar="PART", nargs="*", help=words)
    group = bench.add_argument_group("what is measured")
    group.add_argument("--quick", action="store_true", help="a minute or two: fewer depths, turns and repetitions")
    group.add_argument(
        "--types", metavar="K/V,...", help="cache types, such as f16,q8_0/q4_0; or -ctk and -ctv for one"
    )
    group.add_argument("--depths", metavar="N,N,...", help="after how many tokens: 0,1024,4096,8192; fidelity 256,...")
    group.add_argument("--repeat", metavar="N", help="how often each thing is measured: 3")
    group.add_argument("--fit", metavar="ask|off", help="off loads what does not fit into the free memory")
    text = bench.add_argument_group("fidelity").add_mutually_exclusive_group()
    text.add_argument("--chat", metavar="ID", help="measure on this chat")
    text.add_argument("--text", metavar="FILE", help="measure on this text; without both, on one of our own")
    group = bench.add_argument_group("report")
    group.add_argument("--html", metavar="FILE", help="make a page with plots of it, too")
