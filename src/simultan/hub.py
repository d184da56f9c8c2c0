"""The Hugging Face hub: models by name and revision, as folders of files that hold no code.

`hf:OWNER/NAME` is the newest version of a model, `hf:OWNER/NAME@REVISION` one that stays as it is,
and `hf:FOLDER` a folder on this machine. Only files whose names are listed here are ever
downloaded, and none of them is a program or a pickle; what they may weigh is checked before.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

PREFIX, CARD = "hf:", "README.md"
OURS = (
    "config.toml",
    "pipeline.json",
    "vocabulary.source.json",
    "vocabulary.target.json",
    "weights.safetensors",
    "SHA256SUMS",
    "lags.json",
    CARD,
)
THEIRS = (  # of `transformers`; weights in one file or in numbered ones
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "model-?????-of-?????.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "target_vocab.json",
    "source.spm",
    "target.spm",
    "sentencepiece.bpe.model",
    "spiece.model",
    CARD,
)
PICKLED = "pytorch_model.bin"
MOST = 20 * 2**30  # bytes of all files together: no translation model that fits here has more
MOST_TEXT = 256 * 2**20  # bytes of a file that is not weights
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_MARKS: dict[Literal["simultan", "transformers"], str] = {
    "simultan": "config.toml",
    "transformers": "config.json",
}


def is_named(name: str | Path) -> bool:
    """Whether a model's name asks for the hub."""
    return isinstance(name, str) and name.startswith(PREFIX)


def parse(name: str) -> tuple[str, str | None]:
    """Repository or folder, and revision, of a name with or without its `hf:`."""
    plain = name.removeprefix(PREFIX)
    if plain and Path(plain).is_dir():  # whose name may hold any sign
        return plain, None
    repository, at, revision = plain.partition("@")
    if not _NAME.fullmatch(repository) or ".." in repository:
        raise ValueError(
            f"{name}: neither a folder nor a name on the hub; write hf:OWNER/NAME, or"
            " hf:OWNER/NAME@REVISION"
        )
    if at and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ValueError(f"{name}: {revision!r} is no revision; a branch, a tag or a commit is one")
    return repository, revision or None


def kind_of(folder: Path) -> Literal["simultan", "transformers"]:
    """Whose folder this is, told by the configuration in it."""
    for kind, mark in _MARKS.items():
        if (folder / mark).is_file():
            return kind
    raise FileNotFoundError(
        f"{folder}: no model; it has neither config.toml (simultan) nor config.json (transformers)"
    )


def fetch(name: str, *, pickled: bool = False) -> Path:
    """The folder of a model: a local one, or a snapshot in the cache of huggingface_hub.

    What is in the cache is used when the hub cannot be reached. `pickled`: weights may be a
    pickle, if there are no others.
    """
    repository, revision = parse(name)
    if Path(repository).is_dir():
        return Path(repository)
    hub = _library()
    download = partial(hub.snapshot_download, repository, revision=revision)
    try:
        info = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
    except Exception as error:
        if not _unreachable(error):
            _explain(error, repository, revision)
        wanted = [*OURS, *THEIRS, *([PICKLED] if pickled else [])]
        try:
            return Path(download(allow_patterns=wanted, local_files_only=True))
        except OSError as missing:
            raise OSError(
                f"hf:{repository}: not in the cache, and the hub cannot be reached ("
                f"{_first_line(error)}); download it where there is a network, and name the folder"
            ) from missing
    files = {file.rfilename: file.size or 0 for file in info.siblings or []}
    chosen = choose(files, repository, pickled)
    _check_room(sum(files[name] for name in chosen), repository, hub)
    try:
        return Path(download(allow_patterns=chosen))
    except Exception as error:
        if isinstance(error, OSError) or _unreachable(error):
            raise OSError(f"hf:{repository}: not downloaded ({_first_line(error)})") from error
        raise


def choose(files: dict[str, int], repository: str, pickled: bool = False) -> list[str]:
    """Of the files of a repository, with their sizes, those that a model needs."""
    wanted = OURS if _MARKS["simultan"] in files else THEIRS
    chosen = [name for name in files if _matches(name, wanted)]
    if not any(name.endswith(".safetensors") for name in chosen):
        if PICKLED not in files:
            raise ValueError(f"hf:{repository}: it has no weights (*.safetensors)")
        if not pickled:
            raise ValueError(
                f"hf:{repository}: its weights are a pickle ({PICKLED}), which may run code when it"
                " is opened; name a revision that has model.safetensors (many have one in"
                " @refs/pr/N) or, if you trust who made it, write ?pickle=trusted after its name"
            )
        chosen.append(PICKLED)
    for name in chosen:
        if not name.endswith((".safetensors", PICKLED)) and files[name] > MOST_TEXT:
            size = files[name] / 2**20
            raise ValueError(f"hf:{repository}: {name} has {size:,.0f} MiB, which is too much")
    total = sum(files[name] for name in chosen)
    if total > MOST:
        raise ValueError(
            f"hf:{repository}: {total / 2**30:,.1f} GiB are more than a translation model has;"
            " download it yourself and name its folder"
        )
    return chosen


def push(folder: Path, repository: str, card: str, *, private: bool = False) -> str:
    """Upload a model folder and its card; returns its address. The repository is made if need be,
    and nothing but a model's own files leaves the folder."""
    if not _NAME.fullmatch(repository) or "/" not in repository:
        raise ValueError(f"{repository}: write OWNER/NAME")
    hub = _library()
    api = hub.HfApi()
    if hub.get_token() is None:
        raise ValueError(
            f"{repository}: pushing needs a token of the hub; make one on its page, then run"
            " `hf auth login` or set HF_TOKEN"
        )
    names = [name for name in OURS if name != CARD and (folder / name).is_file()]
    additions = [hub.CommitOperationAdd(name, folder / name) for name in names]
    additions.append(hub.CommitOperationAdd(CARD, card.encode()))
    try:
        address = str(api.create_repo(repository, private=private, exist_ok=True))
        api.create_commit(repository, additions, commit_message="Upload with simultan push")
    except Exception as error:
        if _unreachable(error):
            raise OSError(
                f"{repository}: the hub cannot be reached ({_first_line(error)})"
            ) from error
        _explain(error, repository, None)
    return address


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError('the hub needs a package: pip install "simultan[hf]"') from error
    return huggingface_hub


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """Like a shell's, but a sign stands for a digit; a path never matches."""
    return any(
        re.fullmatch(re.escape(pattern).replace(r"\?", "[0-9]"), name) for pattern in patterns
    )


def _check_room(needed: int, repository: str, hub: Any) -> None:
    place = Path(hub.constants.HF_HUB_CACHE)
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise OSError(
            f"hf:{repository}: {needed / 2**30:,.1f} GiB to download, {free / 2**30:,.1f} GiB are"
            " free; set HF_HOME to a folder on another disk"
        )


def _unreachable(error: Exception) -> bool:
    """No answer, or one that says that there will be none now; not a refusal."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status is not None:
        return int(status) >= 500 or int(status) == 429
    library = type(error).__module__.partition(".")[0]
    network = library in ("httpx", "httpx2", "requests", "urllib3")
    return network or isinstance(error, ConnectionError | TimeoutError)


def _explain(error: Exception, repository: str, revision: str | None) -> NoReturn:
    """One line instead of the hub's own."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        raise ValueError(
            f"hf:{repository}: its owner asks who uses it; accept that on its page, then run"
            " `hf auth login` or set HF_TOKEN"
        ) from error
    if isinstance(error, errors.RepositoryNotFoundError):
        raise ValueError(
            f"hf:{repository}: no such model on the hub, or a private one; for a private one run"
            " `hf auth login` or set HF_TOKEN"
        ) from error
    if isinstance(error, errors.RevisionNotFoundError):
        raise ValueError(f"hf:{repository}: no revision {revision}") from error
    if isinstance(error, OSError | ValueError):
        raise ValueError(f"hf:{repository}: the hub refuses ({_first_line(error)})") from error
    raise error


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return text or type(error).__name__
