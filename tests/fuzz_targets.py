"""The readers of what others wrote, each with sound inputs to be mutated: see `fuzzing`. `fuzz_remote` has those of
servers."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

import gguf
import numpy as np
from blob_layout import BLOBS
from fuzz_remote import REMOTE
from fuzzing import Target
from kv_pages import Disk, checkpoint, namespace, page, put_chat

from kvchat.backend import guarding, journal, tuning
from kvchat.backend.values import Usage
from kvchat.chats.rows import read_evictions
from kvchat.chats.types import Chat, Message
from kvchat.config import load_settings
from kvchat.conversation.preferences import engine_choice
from kvchat.conversation.turns import read_sampling, read_usage
from kvchat.engine.acceptance import Acceptance
from kvchat.errors import KvchatError
from kvchat.formats.gguf import fingerprint, read_header
from kvchat.formats.gguf_adapter import read_adapter
from kvchat.formats.gguf_peek import peek
from kvchat.formats.page import decode_header
from kvchat.formats.state import parse
from kvchat.formats.transcript import Broken, Transcript, TranscriptMessage
from kvchat.formats.transcript_json import write_json
from kvchat.formats.transcript_read import read_transcripts
from kvchat.kv import pagefile
from kvchat.kv.namespace import loads
from kvchat.kv.pins import PinFolder
from kvchat.paths import Paths
from kvchat.ui.keys_file import read_keys
from kvchat.ui.presets_file import read_preset


def _file(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _gguf_seeds(folder: Path) -> list[bytes]:
    return [_gguf(folder / "model.gguf", adapter=False), _gguf(folder / "adapter.gguf", adapter=True)]


def _gguf(path: Path, *, adapter: bool) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_type("adapter" if adapter else "model")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_chat_template("{{ messages }}")
    writer.add_array("tokenizer.ggml.tokens", ["one", "two", "three"])
    writer.add_array("numbers", [1, 2, 3])
    if adapter:
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", 8.0)
    for name in ("blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b") if adapter else ("a", "b"):
        writer.add_tensor(name, np.zeros((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def _read_gguf(data: bytes, folder: Path) -> None:
    path = _file(data, folder, "input.gguf")
    with suppress(KvchatError):
        peek(path)
    with suppress(KvchatError):
        read_adapter(path)
    fingerprint(path, read_header(path))


def _page_seeds(folder: Path) -> list[bytes]:
    disk = Disk(folder / "kv")
    with closing(disk.store()) as store:
        put_chat(store, list(range(200)))
        store.put(page(store.namespace.root, range(5), 0, window=3))
        store.put(checkpoint(range(20), store.namespace.root))
    return [path.read_bytes() for path in disk.folder.glob("pages/*/*/*") if len(path.name) == 64]


def _read_page(data: bytes, folder: Path) -> None:
    with suppress(KvchatError):
        decode_header(data)
    with pagefile.opened(_file(data, folder, "page")) as fd:
        pagefile.verify_payload(fd, pagefile.read_header(fd))


def _state_seeds(_: Path) -> list[bytes]:
    return [blob.encoded() for blob in BLOBS.values()]


def _read_state(data: bytes, _: Path) -> str:
    said = []
    for layout in {blob.layout for blob in BLOBS.values()}:
        try:
            said.append(" ".join(parse(data, layout)))
        except KvchatError as error:
            said.append(error.message)
    return " ".join(said)


def _transcript_seeds(_: Path) -> list[bytes]:
    own = write_json(
        Transcript(
            *("kvchat", "c", "T", 1.0, 2.0),
            messages=(
                TranscriptMessage("a", None, "user", "Hello", 1.0, ""),
                TranscriptMessage("b", "a", "assistant", "Hi", 2.0, "stop", "m", ids={"key": (1, 2)}, usage="{}"),
            ),
            head="b",
            settings='{"sampling":{"seed":1}}',
        )
    )
    mapping = {
        "r": {"id": "r", "message": None, "parent": None, "children": ["m"]},
        "m": {
            "id": "m",
            "message": {"id": "m", "author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Hello"]}},
            "parent": "r",
            "children": [],
        },
    }
    chatgpt = [{"title": "T", "create_time": 1.0, "mapping": mapping, "current_node": "m", "conversation_id": "c"}]
    llama = {
        "conv": {"id": "c", "name": "T", "lastModified": 1},
        "messages": [{"id": 1, "role": "user", "content": "H"}],
    }
    texts = [own.encode(), *(json.dumps(each).encode() for each in (chatgpt, llama, [llama, chatgpt[0]]))]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(zipfile.ZipInfo("conversations.json"), texts[1], zipfile.ZIP_DEFLATED)
    return [*texts, archive.getvalue()]


def _read_transcript(data: bytes, _: Path) -> str:
    found = list(read_transcripts(io.BytesIO(data)))
    return " ".join(each.problem if isinstance(each, Broken) else "chat" for each in found)


def _config_seeds(_: Path) -> list[bytes]:
    return [
        b'model = "SmolLM2"\ncache_type_k = "q8_0"\nkv_budget = "8GiB"\ntemp = 0.7\nmouse = true\n',
        b'model_folders = ["/a"]\nlora = ["/b.gguf:0.8"]\n[remote.box]\nurl = "http://box.lan/v1"\nkey_env = "K"\n',
    ]


def _read_config(data: bytes, folder: Path) -> None:
    paths = Paths.find({"KVCHAT_HOME": str(folder)})
    paths.config_file.write_bytes(data)
    load_settings(paths, {}, {})


def _text_seeds(_: Path) -> list[bytes]:
    return [
        b'chat.new = ["ctrl+n", "f9"]\nprompt.send = "ctrl+j"\nbrowse.next = "n"\n',
        b"+++\ntemp = 0.3\ntop_k = 4\n+++\nYou are brief and exact.\n",
    ]


def _read_text(data: bytes, folder: Path) -> str:
    keys, preset = read_keys(_file(data, folder, "keys.toml")), read_preset(_file(data, folder, "preset.md"))
    return f"{keys.problems} {preset.problem}"


def _json_seeds(_: Path) -> list[bytes]:
    verdict = {"type_k": "q8_0", "type_v": "q8_0", "positions": 5, "kl": 0.1, "agreement": 0.9, "noise": 0.01}
    speeds = {"speed": 10.0, "f16_speed": 12.0}
    checked = {"k": {"model": "m", "types": "q8_0", "verdict": verdict | speeds}}
    tuned = {"model": "m", "types": "f16/f16", "flash_attention": True, "threads": 2, "sentences": ["on: 5 tokens/s"]}
    evictions = [[10, [[0, 4]], ""], [20, [[4, 8]], ""]]
    pin = {"tokens": 3, "keys": ["ab" * 32]}
    learned = Acceptance()
    learned.learn("ngram", 0, 4, 2)
    settings = {"model": "m", "type_k": "f16", "type_v": "f16", "context": 512, "flash_attention": "auto"}
    usage = asdict(Usage(prompt_tokens=5, computed=5)) | {"temperature": 0.7, "seed": 3}
    kept = [
        settings,
        usage,
        checked,
        {"k": tuned | {"draft_costs": [1.0, 1.2]}},
        evictions,
        pin,
        json.loads(learned.told() or "{}"),
    ]
    return [*(json.dumps(each).encode() for each in kept), namespace().dumps().encode()]


def _read_json(data: bytes, folder: Path) -> str:
    """What the program keeps for itself: damage of it is as good as not having it."""
    for module in (journal, guarding, tuning):
        _file(data, folder, module.FILE)
    reports = [module.read_report(folder) for module in (journal, guarding, tuning)]
    text = data.decode("utf-8", "replace")
    pins = folder / "pins"
    pins.mkdir(exist_ok=True)
    _file(data, pins, f"a-{'0' * 16}.json")
    chat = Chat("c", "T", 1.0, 1.0, "", 1.0, "", None, settings=text)
    message = Message("m", "c", None, "assistant", "", 1.0, "stop", usage=text)
    found = (
        *(read_evictions(text), Acceptance.recalled(text).told(), PinFolder(folder).read()),
        *(engine_choice(chat), read_usage(message), read_sampling(message)),
    )
    said = f"{reports} {[bool(each) for each in found]}"
    try:
        return f"{said} {loads(data).page_version}"
    except KvchatError as error:
        return f"{said} {error.message}"


TARGETS: Mapping[str, Target] = {
    "gguf": Target(_gguf_seeds, _read_gguf),
    "page": Target(_page_seeds, _read_page),
    "state": Target(_state_seeds, _read_state),
    "transcript": Target(_transcript_seeds, _read_transcript),
    "config": Target(_config_seeds, _read_config),
    "keys and presets": Target(_text_seeds, _read_text),
    "kept json": Target(_json_seeds, _read_json),
    **REMOTE,
}
