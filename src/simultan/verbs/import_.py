"""simultan import: a model of transformers becomes one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simultan import hub


def import_(
    model: Annotated[str, "Folder of the model, or its name on the hub: hf:OWNER/NAME[@REVISION]."],
    out: Annotated[Path, "Folder to write."],
    *,
    source: Annotated[str, "Translate from this language, in the model's own code.", "<CODE>"] = "",
    target: Annotated[str, "Translate into this language.", "<CODE>"] = "",
) -> None:
    """Turn a model of transformers (Marian, M2M100, NLLB) into one of ours.

    It translates as before: its encoder looks both ways, so it is an offline model, which agents
    can run live. To make it one that decides by itself, train from it (train.init_from).

    \b
    simultan import hf:Helsinki-NLP/opus-mt-de-en models/opus-de-en
    simultan import hf:facebook/m2m100_418M OUT --source de --target en
    """
    from simultan import marian
    from simultan.streaming.backends.names import Name

    given = Name.parse(model) or Name("hf", model)
    folder = hub.fetch(given.place, pickled=given.trusts_pickles)
    if hub.kind_of(folder) == "simultan":
        raise ValueError(f"{model}: a model of simultan already; load it as it is")
    languages = source or given.source, target or given.target
    codec = marian.convert(folder, out, *languages, pickled=given.trusts_pickles)
    size = (out / "weights.safetensors").stat().st_size / 2**20
    typer.echo(
        f"{out}: {size:.1f} MiB, {len(codec.source_vocabulary):,} source and"
        f" {len(codec.target_vocabulary):,} target pieces, offline, bidirectional"
    )
