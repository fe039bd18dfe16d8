"""Which files of a Hugging Face repository are the model that is meant. Owns the reading of a repository's list.

The only module that imports huggingface_hub (the extra `hub`), which knows the hub's address (HF_ENDPOINT) and the
person's token (HF_TOKEN, or what `hf auth login` keeps). The files themselves are fetched like any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from kvchat.errors import KvchatError
from kvchat.formats.gguf import PART_NAME
from kvchat.library.fetch import Remote
from kvchat.library.transport import SECONDS
from kvchat.library.walk import SUFFIX

# What is taken when nobody says: the usual compromise first, then larger ones, then smaller ones.
_USUAL = ("Q4_K_M", "Q4_K_S", "Q4_0", "MXFP4", "Q5_K_M", "Q6_K", "Q8_0", "Q3_K_M", "BF16", "F16")
_MOST_LISTED = 12
_NOT_MODELS = ("mmproj", "imatrix", "mtp-")


def hub_files(repository: str, wanted: str) -> tuple[tuple[str, Remote], ...]:
    """Names and sources of the files of one model, all its parts in order. `wanted`: a file, a quantization, or "" for
    the usual one. KvchatError: no such repository or file, no access, no connection, no huggingface_hub."""
    info, url_of, headers = _ask(repository)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
    names = _choose(repository, wanted, _models(siblings))
    found = []
    for name in names:
        sibling = siblings[name]
        sha256 = sibling.lfs.sha256 if sibling.lfs is not None else None
        found.append((PurePosixPath(name).name, Remote(url_of(name), sibling.size, sha256, headers)))
    return tuple(found)


def _ask(repository: str) -> tuple[Any, Any, dict[str, str]]:
    """What the hub says of a repository, how its files are addressed, and what proves who we are."""
    try:
        from huggingface_hub import HfApi, get_token, hf_hub_url
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HTTPError, RepositoryNotFoundError
    except ImportError as error:
        raise KvchatError("models of Hugging Face need huggingface_hub", "pip install 'kvchat[hub]'") from error
    endpoint = os.environ.get("HF_ENDPOINT") or None
    try:
        token = get_token()
        info = HfApi(endpoint=endpoint, library_name="kvchat").model_info(
            repository, files_metadata=True, timeout=SECONDS, token=token
        )
    except GatedRepoError as error:
        hint = "accept its terms there, then put a token into HF_TOKEN"
        raise KvchatError(f"{repository} is given only to those who accept its terms", hint) from error
    except RepositoryNotFoundError as error:
        hint = "check the name; a private one needs a token in HF_TOKEN"
        raise KvchatError(f"the hub has no repository {repository}, or not for everybody", hint) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise KvchatError(f"the hub answered {status} for {repository}", "try again later") from error
    except (HTTPError, OSError) as error:
        raise KvchatError(f"the hub cannot be reached: {error}", "check the network, and HF_ENDPOINT") from error
    except ValueError as error:  # not how a repository can be called
        raise KvchatError(f"hf:{repository} is no repository", "write hf:OWNER/NAME") from error

    def url_of(name: str) -> str:
        return str(hf_hub_url(repository, name, revision=info.sha, endpoint=endpoint))

    return info, url_of, {"Authorization": f"Bearer {token}"} if token else {}


def _models(names: Iterable[str]) -> dict[str, list[str]]:
    """The GGUF files that are models, the parts of a split one together, under folder and name without part number."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        path = PurePosixPath(name)
        if name.lower().endswith(SUFFIX) and not path.name.lower().startswith(_NOT_MODELS):
            part = PART_NAME.fullmatch(path.stem)
            found.setdefault(str(path.with_name(part["stem"] if part else path.stem)), []).append(name)
    return found


def _choose(repository: str, wanted: str, models: dict[str, list[str]]) -> Sequence[str]:
    if not models:
        raise KvchatError(f"{repository} has no GGUF files", "look for a repository whose name ends with GGUF")
    if not wanted:
        found = next((list(_tagged(models, tag)) for tag in _USUAL if len(list(_tagged(models, tag))) == 1), [])
        found = found or (list(models) if len(models) == 1 else [])
    elif wanted.lower().endswith(SUFFIX):
        found = [key for key, files in models.items() if any(_is_file(file, wanted) for file in files)]
    else:
        found = list(_tagged(models, wanted))
    if len(found) == 1:
        return models[found[0]]
    listed = ", ".join([PurePosixPath(key).name for key in models][:_MOST_LISTED])
    listed += ", ..." if len(models) > _MOST_LISTED else ""
    what = (
        f"{wanted!r} can mean {len(found)} of" if found else f"no {wanted!r} in" if wanted else "no usual choice among"
    )
    raise KvchatError(f"{what} the {len(models)} models of {repository}", f"there are: {listed}")


def _tagged(models: Iterable[str], tag: str) -> Iterable[str]:
    """Those whose name ends with this quantization, or that lie in a folder of its name."""
    for key in models:
        path, lower = PurePosixPath(key), tag.lower()
        name = path.name.lower()
        ends = name.endswith(lower) and name[: -len(lower)][-1:] in ("-", ".", "_", "")
        if ends or path.parent.name.lower() == lower:
            yield key


def _is_file(file: str, wanted: str) -> bool:
    return wanted.lower() in (file.lower(), PurePosixPath(file).name.lower())
