"""`kvchat doctor` with a scripted engine."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from fake_backend import make_ready
from scripted_engine import ScriptedEngine

import kvchat
from kvchat.backend.errands import look
from kvchat.backend.fidelity import Verdict
from kvchat.backend.guarding import GuardBook
from kvchat.backend.inspection import Build, Device, Look, Looked
from kvchat.backend.protocol import EngineDied, LoadFailed, Loading
from kvchat.backend.values import EngineConfig, Failure
from kvchat.commands import doctor
from kvchat.commands.doctor_build import Ask
from kvchat.config import Settings
from kvchat.errors import KvchatError
from kvchat.paths import Paths

NOTE = "extra buffers: off, because the engine was killed by SIGILL"


CPU = Device("CPU", "CPU", "Some Processor", "CPU", 8 * 2**30, 8 * 2**30)
CPU_BUILD = Build((CPU,), "CPU : AVX = 1 | AVX2 = 1 | AVX512 = 0 | ", False, 16, True, True)


def on_cpu(question: Look, log_file: Path) -> Looked:
    assert question == Look()
    return Looked(CPU_BUILD)


def examine(
    paths: Paths, engine: ScriptedEngine, *, json: bool = False, model: str | None = None, ask: Ask = on_cpu
) -> tuple[int, str]:
    out = io.StringIO()
    code = doctor.run_doctor(Settings(model=model), paths, json=json, out=out, engine_factory=engine, ask=ask)
    return code, out.getvalue()


def test_a_healthy_machine(paths: Paths, engine: ScriptedEngine) -> None:
    code, text = examine(paths, engine)
    assert code == 0
    assert f"kvchat      {kvchat.__version__}, Python 3." in text
    assert "llama-cpp-python 0." in text
    assert "llama.cpp starts: first was loaded" in text
    assert "cache K f16, V f16, context 4096 tokens, flash attention off, 1 thread, no GPU, KV state is kept" in text
    assert "PROBLEM" not in text
    assert engine.closed


def test_a_build_that_dies_says_what_was_turned_off_and_what_it_costs(paths: Paths, engine: ScriptedEngine) -> None:
    ready = make_ready(name="first")
    ready = replace(ready, notes=(NOTE,), cache=replace(ready.cache, extra_buffers=False))
    engine.begin = [EngineDied("the engine was killed by SIGILL", (), True), ready]
    code, text = examine(paths, engine)
    assert code == 0
    assert "- While it started, the engine was killed by SIGILL; another configuration was tried." in text
    assert f"- {NOTE}" in text
    assert "reading a prompt takes longer. Answers are right." in text


def test_a_model_that_does_not_load(paths: Paths, engine: ScriptedEngine) -> None:
    engine.begin = [Loading(0.1), LoadFailed(Failure("not enough memory", "use a smaller model"))]
    code, text = examine(paths, engine)
    assert code == 1
    assert "llama.cpp does not start: not enough memory\nhint: use a smaller model" in text
    assert engine.closed


def test_an_unknown_model(paths: Paths, engine: ScriptedEngine) -> None:
    code, text = examine(paths, engine, model="frist")
    assert code == 1
    assert "did you mean first?" in text
    assert engine.configs == []


def test_no_model(home: object, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, paths: Paths) -> None:
    monkeypatch.setattr(doctor, "find_files", lambda *_: [])
    code, text = examine(paths, engine)
    assert code == 1
    assert "No model was found" in text


def test_a_folder_that_cannot_be_used(paths: Paths, engine: ScriptedEngine) -> None:
    paths.kv_folder.write_text("a file in the way")
    code, text = examine(paths, engine)
    assert code == 1
    assert f"PROBLEM: {paths.kv_folder} is a file" in text


def test_json(paths: Paths, engine: ScriptedEngine) -> None:
    paths.log_file.parent.write_text("a file in the way")
    code, text = examine(paths, engine, json=True)
    report = json.loads(text)
    assert code == 1
    assert report["models"][:2] == ["first", "second"]
    assert report["engine"]["starts"] is True
    assert report["engine"]["cache"]["type_k"] == "f16"
    assert report["folder_problems"] == {"engine log": f"{paths.log_file.parent} is a file"}
    assert report["cores_physical"] >= 1
    assert report["cores_physical"] <= report["cores_logical"]


def test_model_names_cannot_steer_the_terminal(paths: Paths, engine: ScriptedEngine) -> None:
    (paths.models_folder / "first.gguf").rename(paths.models_folder / "a\x1b[2J.gguf")
    _, text = examine(paths, engine)
    assert "\x1b" not in text


def test_what_the_guard_found(paths: Paths, engine: ScriptedEngine) -> None:
    config = EngineConfig("/models/some.gguf", type_k="q4_0", type_v="q4_0")
    GuardBook(paths.state_folder).remember(config, Verdict("q4_0", "q4_0", 10.0, 20.0, 100, 0.05, 0.9, 0.01))
    _, text = examine(paths, engine)
    said = "some, cache q4_0: decode 10.0 tokens/s at depth 1,024, 0.50 of f16; divergence from f16 0.0500 nats"
    assert f"- Checked on this machine: {said}" in text
    assert "WARNING" in text
    _, text = examine(paths, engine, json=True)
    assert said in json.loads(text)["guard"][0]


# ------------------------------------------------------------------ the build and its devices


def test_a_build_without_gpus(paths: Paths, engine: ScriptedEngine) -> None:
    _, text = examine(paths, engine)
    assert "build       AVX, AVX2\n" in text
    assert "device      CPU, CPU: Some Processor, 8.0 GiB\n" in text
    assert "GPUs        this build uses none" in text
    build = json.loads(examine(paths, engine, json=True)[1])["build"]
    assert build["gpu_offload"] is False
    assert build["features"] == ["AVX", "AVX2"]
    assert [device["gpu"] for device in build["devices"]] == [False]


def test_a_build_with_gpus(paths: Paths, engine: ScriptedEngine) -> None:
    gpu = Device("CUDA0", "CUDA", "Some\x1b[31m Card", "GPU", 20 * 2**30, 24 * 2**30)
    features = "CUDA : ARCHS = 890 | USE_GRAPHS = 1 | CPU : AVX = 1 | "

    def ask(question: Look, log_file: Path) -> Looked:
        return Looked(Build((gpu, CPU), features, True, 16, True, True))

    _, text = examine(paths, engine, ask=ask)
    assert "device      CUDA0 of CUDA, GPU: Some␛[31m Card, 24.0 GiB, 20.0 GiB free\n" in text
    assert "build       CUDA ARCHS 890, CUDA USE_GRAPHS, AVX\n" in text
    assert "1 found" in text
    build = json.loads(examine(paths, engine, json=True, ask=ask)[1])["build"]
    assert [(device["name"], device["gpu"]) for device in build["devices"]] == [("CUDA0", True), ("CPU", False)]


def test_a_build_for_gpus_that_finds_none(paths: Paths, engine: ScriptedEngine) -> None:
    _, text = examine(paths, engine, ask=lambda *_: Looked(Build((CPU,), "", True, 16, True, True)))
    assert "finds none: is the driver there?" in text


def test_a_driver_that_breaks(paths: Paths, engine: ScriptedEngine) -> None:
    def ask(question: Look, log_file: Path) -> Looked:
        raise KvchatError("the helper process was killed by SIGSEGV", "its log")

    code, text = examine(paths, engine, ask=ask)
    assert code == 0
    assert "build       PROBLEM: the helper process was killed by SIGSEGV" in text
    build = json.loads(examine(paths, engine, json=True, ask=ask)[1])["build"]
    assert build["problem"] == "the helper process was killed by SIGSEGV"
    assert build["devices"] == []


def test_the_real_build(paths: Paths, engine: ScriptedEngine) -> None:
    """ggml always has a device for the CPU, and says of which instructions it was built."""
    build = json.loads(examine(paths, engine, json=True, ask=look)[1])["build"]
    assert "CPU" in [device["kind"] for device in build["devices"]]
    assert all(device["total_bytes"] > 0 for device in build["devices"] if device["kind"] == "CPU")
    assert build["problem"] is None
    assert build["features"]
