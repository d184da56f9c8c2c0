"""simultan push: a model folder goes to the Hugging Face hub, with its card."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simultan import hub

if TYPE_CHECKING:
    from simultan.config import Config
    from simultan.data.codec import Codec

CARDS = "README.md", "MODEL_CARD.md"  # of a folder, the first that is there


def push(
    model: Annotated[Path, "Folder of the model, such as simultan export writes it."],
    repository: Annotated[str, "Its name on the hub, OWNER/NAME."],
    *,
    licence: Annotated[
        str, "Name its licence as the hub does, such as apache-2.0.", "--license", "<NAME>"
    ] = "",
    private: Annotated[bool, "Make a repository that only its owner sees."] = False,
) -> None:
    """Upload a model to the Hugging Face hub, with a card.

    The card is README.md or MODEL_CARD.md of the folder, with what the hub wants to know in front;
    or it is written from the model's configuration. Others then load hf:OWNER/NAME.
    """
    from simultan import checkpoint
    from simultan.data.codec import Codec

    if licence and not re.fullmatch(r"[\w.-]+", licence):
        raise ValueError(f"--license {licence!r}: write its short name, such as apache-2.0")
    config, codec = checkpoint.load_config(model), Codec.load(model)
    checkpoint.load_weights(model)  # a damaged file is told here, not to who downloads it
    card = make_card(model, repository, config, codec, licence)
    typer.echo(hub.push(model, repository, card, private=private))


def make_card(folder: Path, repository: str, config: Config, codec: Codec, licence: str) -> str:
    """The card in the hub's form: YAML in front, then text."""
    texts = (folder / name for name in CARDS)
    written = next((path.read_text(encoding="utf-8") for path in texts if path.is_file()), "")
    if written.startswith("---\n"):
        return written
    languages = [code for code in (codec.source_language, codec.target_language) if code]
    lines = ["---", "library_name: simultan", "pipeline_tag: translation"]
    lines += [f"license: {licence}"] if licence else []
    lines += ["language:", *(f"- {code}" for code in languages)] if languages else []
    lines += ["tags:", "- simultaneous-translation", f"- {config.policy.name}", "---", ""]
    return "\n".join(lines) + (written or _text(repository, config, codec))


def _text(repository: str, config: Config, codec: Codec) -> str:
    model, name = config.model, repository.partition("/")[2]
    pair = f"{codec.source_language or '?'} to {codec.target_language or '?'}"
    return (
        f"# {name}\n\n"
        f"Simultaneous translation, {pair}: policy {config.policy.name}, {model.architecture} of"
        f" width {model.width}, {model.encoder_layers} encoder and {model.decoder_layers} decoder"
        f" layers, {len(codec.source_vocabulary):,} source and"
        f" {len(codec.target_vocabulary):,} target pieces.\n\n"
        f'```python\nimport simultan\n\ntranslator = simultan.load("hf:{repository}")\n'
        'session = translator.session()\nprint(session.feed("..."))\n```\n'
    )
