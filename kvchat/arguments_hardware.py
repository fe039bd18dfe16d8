"""The words of the command line for how a machine runs a model, for positions, and for LoRA adapters.

Owns these flags and their help; their values are read by config_hardware.
"""

from __future__ import annotations

from typing import Any


def add_memory_flags(group: Any) -> None:
    """What changes how much memory a model takes, and where."""
    words = "a LoRA adapter, a GGUF file, and how strongly it acts (1); repeatable; none for none"
    group.add_argument("--lora", metavar="FILE[:SCALE]", action="append", help=words)
    words = "tokens of one step of reading a prompt, 0 for automatic"
    group.add_argument("-b", "--batch-size", metavar="N", help=words)
    group.add_argument("-ub", "--ubatch-size", metavar="N", help="of these, so many are computed at once")
    words = "the cache stays in RAM, also of layers on a GPU"
    group.add_argument("-nkvo", "--no-kv-offload", dest="kv_offload", action="store_false", help=words)


def add_hardware_flags(group: Any) -> None:
    """What decides which part of the machine does what."""
    words = "threads for more than one token at once, 0 for as many as --threads"
    group.add_argument("-tb", "--threads-batch", metavar="N", help=words)
    words = "over several GPUs: by layers, by rows, or none: all on --main-gpu"
    group.add_argument("-sm", "--split-mode", metavar="none|layer|row", help=words)
    group.add_argument("-mg", "--main-gpu", metavar="N", help="the GPU that has everything with --split-mode none")
    group.add_argument("-ts", "--tensor-split", metavar="N,N,...", help="the share of each GPU, such as 3,1")
    words = "read the weights into memory in place of mapping the file"
    group.add_argument("--no-mmap", dest="mmap", action="store_false", help=words)
    group.add_argument("--mlock", action="store_true", help="keep the weights from being swapped out")


def add_rope_flags(group: Any) -> None:
    """Positions otherwise than the model file says."""
    group.add_argument("--rope-scaling", metavar="none|linear|yarn", help="how positions are scaled")
    group.add_argument("--rope-freq-base", metavar="X", help="base frequency of RoPE")
    words = "factor of the frequencies of RoPE: 0.5 is for twice the context"
    group.add_argument("--rope-freq-scale", metavar="X", help=words)
    group.add_argument("--yarn-orig-ctx", metavar="N", help="YaRN: the context that the model was trained for")
    group.add_argument("--yarn-ext-factor", metavar="X", help="YaRN: share of extrapolation, 0 is all interpolation")
    group.add_argument("--yarn-attn-factor", metavar="X", help="YaRN: factor of the attention")
    group.add_argument("--yarn-beta-slow", metavar="X", help="YaRN: where interpolation is complete")
    group.add_argument("--yarn-beta-fast", metavar="X", help="YaRN: where it begins")
