"""Which servers can be named, in the settings and on the command line, and which one a turn goes to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvchat.arguments import parse
from kvchat.backend.choices import EngineConfig, Remote
from kvchat.backend.remote_key import key_of
from kvchat.chats.types import Chat
from kvchat.choosing import chosen_remote
from kvchat.config import Settings, load_settings
from kvchat.config_remote import base_url, remote_named
from kvchat.config_values import BadValue
from kvchat.config_write import write_values
from kvchat.errors import KvchatError, UsageError
from kvchat.paths import Paths

LAB = Remote("lab", "http://127.0.0.1:8080/v1")
TEAM = Remote("team", "https://gpu.example.org/v1", "qwen", "TEAM_KEY")


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths.find({"KVCHAT_HOME": str(home)})


def settings_of(paths: Paths, text: str) -> Settings:
    paths.config_file.write_text(text)
    return load_settings(paths, {}, {})


def test_tables_of_the_settings_file(paths: Paths) -> None:
    found = settings_of(
        paths,
        'temp = 0.5\n[remote.lab]\nurl = "http://127.0.0.1:8080"\n'
        '[remote.team]\nurl = "https://GPU.example.org/v1/"\nmodel = "qwen"\nkey_env = "TEAM_KEY"\n',
    )
    assert found.remotes == (LAB, TEAM)
    assert found.remote is None
    assert found.sampling.temperature == 0.5


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('[remote.x]\nmodel = "m"', "x has no url", "url ="),
        ('[remote.x]\nurl = "ftp://h/v1"', "'ftp://h/v1' is not the URL of a server", "https://"),
        ('[remote.x]\nurl = "h:8000"', "is not the URL of a server", "https://"),
        ('[remote.x]\nurl = "http://h/v1"\nkey = "sk-1"', "a key has no place in a settings file", "key_env"),
        ('[remote.x]\nurl = "http://h/v1"\napi_token = "sk-1"', "a key has no place in a settings file", "keyring"),
        ('[remote.x]\nurl = "http://h/v1"\nkey_env = "sk-1"', "key_env is not the name of a variable", "no place"),
        ('[remote.x]\nurl = "http://h/v1"\nmodle = "m"', "x has no setting 'modle'", "did you mean model?"),
        ('[remote."a b"]\nurl = "http://h/v1"', "'a b' is no name for a server", "letters"),
        ("[remote]\nx = 3", "x is no table", "[remote.x]"),
        ('[remote.x]\nurl = "http://h/v1?q=1"', "has no ?", "http://h/v1"),
    ],
)
def test_what_is_wrong_with_a_table(paths: Paths, text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(paths, text)
    assert message in caught.value.message
    assert str(paths.config_file) in caught.value.message
    assert hint in caught.value.hint
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1"),
        ("https://h/api/v1/", "https://h/api/v1"),
        ("http://h:1/v1/chat/completions", "http://h:1/v1"),
        ("http://h:1/v1/models", "http://h:1/v1"),
        (" HTTP://H:1 ", "http://h:1/v1"),
        ("http://[::1]:8080", "http://[::1]:8080/v1"),
    ],
)
def test_the_base_of_a_url(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["http://me:pw@h/v1", "https://token@h"])
def test_a_password_in_a_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(BadValue) as caught:
        base_url(text)
    assert "password" in caught.value.problem
    assert "pw" not in caught.value.problem.replace("password", "") + caught.value.hint
    assert "token@" not in caught.value.problem + caught.value.hint


@pytest.mark.parametrize(
    "text", ["http://", "http://h:99999", "http://h:x", "http://hä/v1", "http://h/ v1", "http://h\n"]
)
def test_no_url(text: str) -> None:
    if text == "http://h\n":
        assert base_url(text) == "http://h/v1"
        return
    with pytest.raises(BadValue):
        base_url(text)


@pytest.mark.parametrize(
    ("url", "leaves", "bare"),
    [
        ("http://127.0.0.1:8080/v1", False, False),
        ("http://localhost/v1", False, False),
        ("http://[::1]:1/v1", False, False),
        ("https://gpu.example.org/v1", True, False),
        ("http://gpu.example.org/v1", True, True),
        ("http://192.168.1.7:8000/v1", True, True),
        ("http://127.0.0.1.example.org/v1", True, True),
        ("http://127.evil.example/v1", True, True),
        ("http://localhost.example.org/v1", True, True),
    ],
)
def test_whether_text_leaves_the_machine(url: str, leaves: bool, bare: bool) -> None:
    remote = Remote("x", url)
    assert (remote.leaves, remote.bare) == (leaves, bare)


def test_names_and_models() -> None:
    assert remote_named("team", (LAB, TEAM)) == TEAM
    assert remote_named("remote:team", (LAB, TEAM)) == TEAM
    assert remote_named("team", (LAB, TEAM), "other").model == "other"
    assert remote_named("team#other", (LAB, TEAM)).reference == "remote:team#other"
    given = remote_named("http://h:8000", ())
    assert (given.name, given.url, given.key_env) == ("h:8000", "http://h:8000/v1", "KVCHAT_REMOTE_KEY")
    with pytest.raises(UsageError) as caught:
        remote_named("taem", (LAB, TEAM))
    assert caught.value.hint == "did you mean team?"


def test_keys_by_their_variables() -> None:
    assert key_of(LAB, {}) == ""
    assert key_of(TEAM, {"TEAM_KEY": " sk-1\n"}) == "sk-1"
    given = remote_named("http://h:8000", ())
    assert key_of(given, {}) == ""
    assert key_of(given, {"KVCHAT_REMOTE_KEY": "sk-2"}) == "sk-2"
    assert key_of(LAB, {"KVCHAT_REMOTE_KEY": "sk-2"}) == "", "the key of one server is not for another"


def test_keys_of_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring")
    kept = {("kvchat", "team"): "sk-3"}
    monkeypatch.setattr(keyring, "get_password", lambda service, user: kept.get((service, user)))
    assert key_of(Remote("team", "http://h/v1", keyring="kvchat"), {}) == "sk-3"
    with pytest.raises(KvchatError) as caught:
        key_of(Remote("lab", "http://h/v1", keyring="kvchat"), {})
    assert "python -m keyring set kvchat lab" in caught.value.hint


def test_a_keyring_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    keyring = pytest.importorskip("keyring")

    def locked(*_: str) -> str:
        raise keyring.errors.NoKeyringError("no backend")

    monkeypatch.setattr(keyring, "get_password", locked)
    with pytest.raises(KvchatError) as caught:
        key_of(Remote("team", "http://h/v1", keyring="kvchat"), {})
    assert "cannot be asked" in caught.value.message


def chat(model_path: str | None, name: str = "m") -> Chat:
    choice = {"type_k": "f16", "type_v": "f16", "context": 0, "flash_attention": "auto"}
    settings = json.dumps({} if model_path is None else {"model": model_path, **choice})
    return Chat("c", "", 0.0, 0.0, "", 0.0, name, None, settings=settings)


def flags(**given: object) -> Settings:
    """As if they stood on the command line."""
    return Settings(remotes=(LAB, TEAM), given=frozenset(given), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "opened", "expected"),
    [
        (flags(), None, None),
        (flags(remote="lab"), None, "remote:lab"),
        (flags(remote="team", model="other"), None, "remote:team#other"),
        (flags(remote="http://h:8000/v1"), None, "remote:h:8000"),
        (flags(model="lab"), None, "remote:lab"),
        (flags(model="remote:team"), None, "remote:team#qwen"),
        (flags(model="smollm2"), chat("remote:lab"), None),  # back to this machine
        (flags(), chat("remote:lab"), "remote:lab"),
        (flags(), chat("remote:team#other"), "remote:team#other"),
        (flags(), chat("/models/a.gguf"), None),
        (flags(remote="lab"), chat("/models/a.gguf"), "remote:lab"),
        (Settings(remotes=(LAB,), model="remote:lab"), None, "remote:lab"),  # of the settings file
        (Settings(remotes=(LAB,), model="remote:lab"), chat("/models/a.gguf"), None),
        (Settings(remotes=(LAB,), remote="lab"), None, "remote:lab"),
        (Settings(remotes=(LAB,), remote="lab"), chat("/models/a.gguf"), None),
    ],
)
def test_who_decides(settings: Settings, opened: Chat | None, expected: str | None) -> None:
    found = chosen_remote(settings, opened)
    assert (found.reference if found else None) == expected


def test_a_server_that_is_not_in_the_settings_any_more() -> None:
    with pytest.raises(KvchatError) as caught:
        chosen_remote(flags(), chat("remote:gone"))
    assert "the server of this chat, gone, is not in the settings" in caught.value.message
    assert "-m NAME" in caught.value.hint


def test_offline_refuses_every_server() -> None:
    for settings, opened in ((flags(remote="lab", offline=True), None), (flags(offline=True), chat("remote:lab"))):
        with pytest.raises(KvchatError) as caught:
            chosen_remote(settings, opened)
        assert "--offline" in caught.value.message


def test_a_configuration_goes_to_a_server_and_back() -> None:
    here = EngineConfig("/models/a.gguf", type_k="q8_0", context=2048)
    there = here.on(TEAM)
    assert (there.model_path, there.remote, there.draft_path) == ("remote:team#qwen", TEAM, None)
    assert there.of_model("/models/a.gguf") == here
    assert there.on(LAB).remote == LAB


def test_the_flag_means_something_to_the_app_and_to_ask_only() -> None:
    assert parse(["--remote", "lab"]).remote == "lab"
    assert parse(["ask", "--remote", "http://h:1", "x"]).remote == "http://h:1"
    with pytest.raises(UsageError):
        parse(["doctor", "--remote", "lab"])


def test_a_default_is_written_beside_the_tables(paths: Paths) -> None:
    text = '# mine\n[remote.lab]\nurl = "http://127.0.0.1:8080"\n'
    paths.config_file.write_text(text)
    write_values(paths.config_file, {"model": "remote:lab"})
    found = load_settings(paths, {}, {})
    assert chosen_remote(found, None) == LAB
    assert text.partition("\n")[2] in paths.config_file.read_text()
