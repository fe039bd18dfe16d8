"""What an engine process takes beside the buffers of model and context. Owns these figures; reads nothing.

They are measured, not computed: resident memory of the engine process on Linux with a build for the CPU, less what
llama.cpp logs as its buffers (`tests/engine/test_plan_memory.py` compares the whole with the plan).
"""

from __future__ import annotations

from kvchat.kv.compute import Workload

PROCESS = 60 << 20  # Python with numpy and Jinja, the code of llama.cpp, what both allocate for themselves
_TOKEN, _MERGE = 150, 90  # bytes: of a token in llama.cpp's tables, of a rule by which tokens are joined


def vocabulary_bytes(work: Workload) -> int:
    """The vocabulary as llama.cpp keeps it for tokenizing."""
    return work.vocabulary * _TOKEN + work.merges * _MERGE
