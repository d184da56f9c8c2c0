"""The command line: each verb opens what it needs only when it is called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simultan.data.corpus import Prepared
    from simultan.evaluation.scores import Scores
    from simultan.reproduce.plan import PlannedRun
    from simultan.server.settings import Settings
    from simultan.streaming.session import Event

PipelineName = Literal["words", "moses-bpe", "bpe"]
LatencyUnit = Literal["words", "subwords"]
Quantization = Literal["int8"]
StoredWeights = Literal["float32", "float16", "int8"]
CaptionLayout = Literal["reading", "instant"]
QualityName = Literal["bleu", "bleu_lowercased", "chrf"]
Threshold = Annotated[
    float | None, typer.Option(help="Learned policies: lower is faster; 0.5 unless given.")
]
Lag = Annotated[
    float | None,
    typer.Option(help="Instead of a threshold: words to stay behind, if the model was measured."),
]

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Train, measure and run simultaneous machine translation.",
)


@app.callback()
def _root() -> None:
    """Keeps the verbs verbs even while there is only one of them."""


@app.command("prepare")
def prepare_verb(
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    corpus: Annotated[
        str, typer.Argument(help="A named corpus, iwslt15-en-vi or wmt15-de-en; or none.")
    ] = "",
    folders: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Folder with the named corpus's files; repeat for several."),
    ] = None,
    source: Annotated[
        list[Path] | None, typer.Option(help="Training text (plain, .gz, .xz); repeatable.")
    ] = None,
    target: Annotated[
        list[Path] | None, typer.Option(help="Its translation, line by line; repeatable.")
    ] = None,
    weight: Annotated[
        list[float] | None, typer.Option(help="How often each text is seen an epoch; repeatable.")
    ] = None,
    documents: Annotated[
        list[str] | None,
        typer.Option(help="A file that names each line's document, or -; one for each text."),
    ] = None,
    document_columns: Annotated[
        int, typer.Option(min=0, help="Its tab-separated columns that name it; 0: all.")
    ] = 0,
    join: Annotated[
        float, typer.Option(help="Share of pairs put together, two to four of a document.")
    ] = 0.0,
    asr: Annotated[
        float, typer.Option(help="Share of sources without case, punctuation, or both.")
    ] = 0.0,
    valid_source: Annotated[Path | None, typer.Option(help="Validation text.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    test_source: Annotated[Path | None, typer.Option(help="Test text.")] = None,
    test_target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    pipeline: Annotated[
        PipelineName, typer.Option(help="Whole words, Moses tokens and BPE, or BPE alone.")
    ] = "bpe",
    vocabulary: Annotated[
        int | None, typer.Option(help="Pieces; bpe: 8000, moses-bpe: 32000, words: no limit.")
    ] = None,
    joint: Annotated[
        bool | None,
        typer.Option("--joint/--separate", help="One vocabulary or two; words: two, else one."),
    ] = None,
    min_count: Annotated[int, typer.Option(help="words: rarer ones are unknown.")] = 5,
    bpe_dropout: Annotated[float, typer.Option(help="Chance that a merge is left out.")] = 0.0,
    samples: Annotated[int, typer.Option(help="Segmentations of each word with dropout.")] = 8,
    max_length: Annotated[int, typer.Option(help="Longer training pairs are left out.")] = 1024,
    source_language: Annotated[str, typer.Option(help="If the file's name does not say it.")] = "",
    target_language: Annotated[str, typer.Option(help="If the file's name does not say it.")] = "",
    like: Annotated[
        Path | None, typer.Option(help="Take the vocabularies of this model or prepared folder.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where downloads are kept; ~/.cache/simultan.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at a bad training pair.")] = False,
    allow_undecodable: Annotated[
        bool, typer.Option("--allow-undecodable", help="Even if over 5% is no UTF-8.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
    seed: Annotated[int, typer.Option(help="Of BPE-dropout, --join and --asr.")] = 1,
) -> None:
    """Turn parallel text into vocabularies and memory-mapped shards.

    simultan prepare iwslt15-en-vi --from FOLDER --pipeline words --out DIR

    simultan prepare --source a.de --target a.en --source b.de.xz --target b.en.xz --out DIR
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from simultan.data.codec import Codec
    from simultan.data.corpus import prepare
    from simultan.data.named import gather_pairs

    columns = TextColumn("{task.description:<32}"), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def show(what: str, done: float) -> None:
            bar.update(task, description=what, completed=done, total=1.0 if done else None)

        parts = gather_pairs(
            corpus,
            folders or (),
            source or (),
            target or (),
            (valid_source, valid_target),
            (test_source, test_target),
            weight or (),
            cache,
            show,
            documents or (),
            document_columns,
        )
        prepared = prepare(
            out,
            *parts,
            pipeline=pipeline,
            vocabulary=vocabulary,
            joint=joint,
            min_count=min_count,
            bpe_dropout=bpe_dropout,
            samples=samples,
            max_length=max_length,
            source_language=source_language,
            target_language=target_language,
            join=join,
            asr=asr,
            seed=seed,
            strict=strict,
            allow_undecodable=allow_undecodable,
            codec=None if like is None else Codec.load(like),
            overwrite=overwrite,
            progress=show,
        )
    _show_prepared(prepared)


@app.command("train")
def train_verb(
    recipe: Annotated[Path, typer.Argument(help="A recipe, such as recipes/toy/mma-il.toml.")],
    out: Annotated[Path, typer.Option(help="The run's folder; an unfinished run there goes on.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="Change the recipe: section.key=value.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Remove a run in that folder first.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda; empty: a GPU if there is one.")] = "",
    minutes: Annotated[
        float, typer.Option(min=0, help="End by then: the rate falls early enough; 0: no limit.")
    ] = 0.0,
) -> None:
    """Train a model. Under torchrun all processes train it together."""
    from simultan import config
    from simultan.train.loop import fit

    settings = config.load(recipe, changes or ())
    outcome = fit(settings, out, overwrite, device=device or None, minutes=minutes)
    if not outcome.finished:
        typer.echo(f"stopped at update {outcome.update}; the same command goes on", err=True)
        raise typer.Exit(143)
    if os.environ.get("RANK", "0") == "0":  # torchrun's other processes have nothing to add
        typer.echo(outcome.folder)


@app.command("toy")
def toy_verb(
    folder: Annotated[Path, typer.Argument(help="Where train, valid and test go.")],
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs.")] = 3000,
    seed: Annotated[int, typer.Option(help="Of the sentences drawn.")] = 1,
) -> None:
    """Write a toy language pair (.en, .fr) that a small model learns in seconds."""
    from simultan.data.toy import write_toy

    write_toy(folder, pairs, seed)


@app.command("translate")
def translate_verb(
    model: Annotated[str, typer.Argument(help="A model's folder or name; empty: de-en.")] = "",
    show: Annotated[
        bool, typer.Option("--show", help="Draw source, heads and target side by side.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="A line is a sentence; else full stops end one.")
    ] = False,
    threshold: Threshold = None,
    lag: Lag = None,
    k: Annotated[int | None, typer.Option(help="wait-k models: another k, in tokens.")] = None,
    rule: Annotated[
        str | None, typer.Option(help="Offline models: a rule, as for simultan evaluate.")
    ] = None,
    quantize: Annotated[
        Quantization | None, typer.Option(help="Round the weights: faster on a CPU.")
    ] = None,
    pace: Annotated[
        float, typer.Option(min=0, help="Read this many words a second; 0: as they come.")
    ] = 0.0,
    url: Annotated[
        str, typer.Option(help="A server to ask instead of a model: ws://127.0.0.1:8000/ws.")
    ] = "",
    token: Annotated[
        str | None, typer.Option(envvar="SIMULTAN_TOKEN", help="Of that server.")
    ] = None,
) -> None:
    """Translate words from standard input while they come.

    for word in the young dog sees a star; do echo $word; sleep 1; done | simultan translate MODEL
    """
    import os

    from rich.console import Console

    import simultan
    from simultan import display
    from simultan.streaming.decoding import Decoding

    words = display.read_words(0, pace)
    if url:
        if model or lines or k is not None or rule is not None or lag is not None:
            raise ValueError("--url asks a server: without a model, --lines, --k, --rule and --lag")
        events = display.translate_remotely(url, words, threshold or 0.5, token)
    else:
        translator = simultan.load(model or _default_model(), quantize=quantize)
        decoding = Decoding(threshold=threshold, lag=lag, k=k, agent=rule)
        session = translator.session(decoding, segment=not lines)
        events = display.translate(session, words, lines)
    try:
        if show:
            display.draw(events, Console())
        else:
            display.write(events, sys.stdout)
    except KeyboardInterrupt:
        typer.echo()
        sys.exit(130)
    except BrokenPipeError:  # the reader has gone; Python must not try to flush once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command("demo")
def demo_verb(
    model: Annotated[str, typer.Argument(help="A model's folder or name; empty: de-en.")] = "",
    text: Annotated[
        Path | None, typer.Option(help="What is said; a short German talk if not given.")
    ] = None,
    pace: Annotated[float, typer.Option(min=0, help="Words a second; 0: no waiting.")] = 2.5,
    threshold: Threshold = None,
    lag: Lag = None,
    svg: Annotated[Path | None, typer.Option(help="Save the picture, too.")] = None,
) -> None:
    """Play a short talk at speaking speed and translate it live; then say how far behind it was."""
    import io
    import os
    import re

    from rich.console import Console

    import simultan
    from simultan import display
    from simultan.streaming.decoding import Decoding

    path = text or Path(__file__).with_name("talk.de.txt")
    translator = simultan.load(model or _default_model())
    session = translator.session(Decoding(threshold=threshold, lag=lag))
    tally = display.Tally()
    events: list[tuple[str, Event]] = []
    descriptor = os.open(path, os.O_RDONLY)
    try:
        words = display.read_words(descriptor, pace)
        stream = display.translate(session, words, False, tally)
        display.draw(display.kept(stream, events), Console())
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        os.close(descriptor)
    if tally.sentences:
        typer.echo(
            f"average lagging (AL) {tally.average_lagging():.1f} words;"
            f" {tally.words} words written at {tally.words / tally.seconds:.0f} words a second"
            " of computing"
        )
    if svg is not None:
        console = Console(record=True, file=io.StringIO(), width=100)
        display.draw(events, console)
        picture = console.export_svg(title="simultan demo")
        # no fonts from elsewhere: the picture is the same without a network
        svg.write_text(re.sub(r"@font-face {.*?}\s*", "", picture, flags=re.S), encoding="utf-8")


@app.command("captions")
def captions_verb(
    captions: Annotated[Path, typer.Argument(help="Captions: IN.vtt or IN.srt.")],
    model: Annotated[str, typer.Argument(help="A model's folder or name; empty: de-en.")] = "",
    out: Annotated[
        Path | None, typer.Option(help="OUT.vtt or OUT.srt; else standard output.")
    ] = None,
    layout: Annotated[
        CaptionLayout,
        typer.Option(help="Phrases to be read at ease, or every word as soon as it is there."),
    ] = "reading",
    threshold: Threshold = None,
    lag: Lag = None,
    computing: Annotated[
        float, typer.Option(min=0, help="Seconds assumed to compute a written word.")
    ] = 0.02,
    measure: Annotated[
        bool, typer.Option("--measure", help="Take the seconds this machine needs instead.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Play it in the terminal; --out is written after.")
    ] = False,
    speed: Annotated[float, typer.Option(help="Of --live: 2 is twice as fast.")] = 1.0,
    quantize: Annotated[
        Quantization | None, typer.Option(help="Round the weights: faster on a CPU.")
    ] = None,
) -> None:
    """Translate captions as if they were being spoken, each word shown when it could have been.

    simultan captions talk.de.vtt --out talk.en.vtt
    """
    from rich.console import Console

    import simultan
    from simultan import cues, display
    from simultan.captions import speak, translate, written
    from simultan.layout import lay_out
    from simultan.layout import measure as readability
    from simultan.streaming.decoding import Decoding

    if not speed > 0:
        raise ValueError(f"--speed {speed}: it must be more than 0")
    spoken = speak(cues.read(captions))
    if out is not None and out.exists() and out.samefile(captions):
        raise ValueError(f"--out {out}: this is the file to be read; write to another one")
    kind = cues.format_of(captions if out is None else out)
    translator = simultan.load(model or _default_model(), quantize=quantize)
    session = translator.session(Decoding(threshold=threshold, lag=lag))
    wait = display.timer(speed) if live else None
    stream = translate(session, spoken, None if measure or live else computing, wait)
    if live:
        stream = display.play(stream, Console())
    words = written(stream)
    how = "as measured" if measure or live else f"assumed to be {computing} s a word"
    note = f"Each word is shown when it could have been at the earliest; computing {how}."
    laid_out = lay_out(words, layout, translator.codec.pipeline.target_language)
    text = cues.render(laid_out, kind, note)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    elif not live:
        typer.echo(text, nl=False)
    if words:
        lag = sum(word.time - spoken[word.delay - 1].end for word in words) / len(words) / 1000
        typer.echo(
            f"{len(spoken)} words heard, {len(words)} written, {lag:.2f} s after"
            f" the word they waited for; computing {how}",
            err=True,
        )
        typer.echo(str(readability(laid_out, words, layout)), err=True)


@app.command("serve")
def serve_verb(
    model: Annotated[str, typer.Argument(help="A model's folder or name; empty: de-en.")] = "",
    host: Annotated[str, typer.Option(help="0.0.0.0: for everyone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    threshold: Annotated[float, typer.Option(help="Lower is faster; clients may choose.")] = 0.5,
    lag: Lag = None,
    rows: Annotated[int, typer.Option(min=1, help="Streams translated side by side.")] = 32,
    max_sessions: Annotated[
        int | None, typer.Option(min=1, help="Sessions at once; as many as rows.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="SIMULTAN_TOKEN", help="Clients must know it.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Another site whose pages may connect: https://...; repeatable."),
    ] = None,
    max_message: Annotated[int, typer.Option(min=1024, help="Bytes in a message.")] = 65_536,
    words_per_second: Annotated[
        float, typer.Option(help="Heard of one stream; what comes faster waits.")
    ] = 100.0,
    idle_seconds: Annotated[float, typer.Option(help="Silent sessions end then.")] = 600.0,
    k: Annotated[int | None, typer.Option(help="wait-k models: another k, in tokens.")] = None,
    rule: Annotated[
        str | None, typer.Option(help="Offline models: a rule, as for simultan evaluate.")
    ] = None,
    quantize: Annotated[
        bool, typer.Option("--int8", help="Round the weights: faster on a CPU.")
    ] = False,
    batching: Annotated[
        bool, typer.Option(help="One step of the model for all streams, or one for each.")
    ] = True,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[
        int, typer.Option(min=0, help="Of the model; 0: all cores but one, with --ray: 1.")
    ] = 0,
    use_ray: Annotated[
        bool, typer.Option("--ray", help="Replicas under Ray Serve, on one or more machines.")
    ] = False,
    replicas: Annotated[
        str, typer.Option(metavar="MIN:MAX", help="With --ray: as many as the load needs.")
    ] = "",
) -> None:
    """Translate live, for many at once: a page, a websocket and an HTTP API."""
    import os

    import torch

    import simultan

    try:
        from simultan.server.run import serve
        from simultan.server.settings import Settings
    except ImportError as error:
        raise ValueError(
            f"the server needs more packages: pip install 'simultan[serve]' ({error})"
        ) from error

    model = model or _default_model()
    settings = Settings(
        threshold=_threshold(model, threshold, lag),
        rows=rows,
        max_sessions=max_sessions,
        token=token,
        origins=tuple(origin or ()),
        local=host in ("127.0.0.1", "localhost", "::1"),
        max_message=max_message,
        words_per_second=words_per_second,
        idle_seconds=idle_seconds,
        batching=batching,
        k=k,
        rule=rule,
    )
    if use_ray:
        _serve_replicas(model, settings, host, port, replicas or "1:1", device, threads, quantize)
        return
    if replicas:
        raise ValueError("--replicas goes with --ray")
    translator = simultan.load(model, device=device)
    if device == "cpu":
        torch.set_num_threads(threads or max(1, (os.cpu_count() or 2) - 1))
        translator.model.prepare_inference("int8" if quantize else None)
    serve(translator, settings, host, port)


def _serve_replicas(
    model: str, settings: Settings, host: str, port: int, replicas: str, device: str,
    threads: int, quantize: bool,
) -> None:  # fmt: skip
    import simultan

    try:
        from simultan.server.cluster import Cluster, serve_cluster
    except ImportError as error:
        raise ValueError(
            f"--ray needs more packages: pip install 'simultan[serve,cluster]' ({error})"
        ) from error

    least, _, most = replicas.partition(":")
    if not (least.isdecimal() and (most or least).isdecimal()):
        raise ValueError(f"--replicas {replicas}: MIN:MAX, such as 2:8")
    if Path(model).is_dir():
        model = str(Path(model).resolve())  # replicas start elsewhere
    simultan.load(model)  # what is wrong with it is told here, not by each replica
    cluster = Cluster(
        model, settings, (int(least), int(most or least)), device, threads or 1, quantize
    )
    serve_cluster(cluster, host, port)


@app.command("export")
def export_verb(
    model: Annotated[str, typer.Argument(help="A model's folder, such as RUN/final.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    weights: Annotated[
        StoredWeights, typer.Option(help="How they are stored; they load as float32.")
    ] = "float16",
    average: Annotated[
        int, typer.Option(min=0, help="MODEL is a run: the mean of so many last checkpoints.")
    ] = 0,
) -> None:
    """Write a model to ship: small weights, configuration and vocabularies, nothing else."""
    from simultan import boxed, checkpoint

    folders = [boxed.resolve(model)]
    if average:
        folders = sorted((folders[0] / "checkpoints").glob("[0-9]*"))[-average:]
        if len(folders) < average:
            raise ValueError(f"{model} has {len(folders)} checkpoints, not {average}")
    size = checkpoint.export(folders, out, weights)
    typer.echo(f"{out}: {size / 2**20:.1f} MiB")


@app.command("distill")
def distill_verb(
    model: Annotated[str, typer.Argument(help="The teacher: an offline model's folder.")],
    source: Annotated[Path, typer.Option(help="Training text (plain, .gz, .xz).")],
    out: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    rows: Annotated[int, typer.Option(min=1, help="Sentences translated side by side.")] = 256,
    beam: Annotated[int, typer.Option(help="Beams of the search.")] = 1,
    first: Annotated[int, typer.Option(min=0, help="Only so many lines; 0: all.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Translate training text with a teacher, to prepare and train a student on the result.

    What is there of OUT is kept: the same command goes on where it was stopped.
    """
    from itertools import islice

    from rich.progress import Progress

    import simultan
    from simultan.data.sources import read_lines
    from simultan.streaming.decoding import Decoding
    from simultan.streaming.distill import distill

    translator = simultan.load(model, device=device)
    total = sum(1 for _ in islice(read_lines(source, "replace"), first or None))
    lines = islice(read_lines(source, "replace"), first or None)
    with Progress(transient=True) as bar:
        task = bar.add_task("translating", total=total)
        written = distill(
            translator,
            lines,
            out,
            Decoding(beam=beam) if beam > 1 else Decoding(),
            rows=rows,
            progress=lambda n: bar.advance(task, n),
        )
    typer.echo(f"{out}: {written:,} lines")


@app.command("evaluate")
def evaluate_verb(
    model: Annotated[str, typer.Argument(help="A model's folder or name.")],
    source: Annotated[Path, typer.Option(help="Source text, a sentence to a line.")],
    reference: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    out: Annotated[Path, typer.Option(help="Folder for instances.log and scores.json.")],
    rows: Annotated[int, typer.Option(min=1, help="Sentences translated side by side.")] = 32,
    threshold: Threshold = None,
    lag: Lag = None,
    k: Annotated[int | None, typer.Option(help="wait-k models: another k, in tokens.")] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Offline models: wait-k:K, static:S,N, wait-if-worse:S,N or wait-if-diff:S,N."
        ),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="Offline models: beams of a search over whole sentences.")
    ] = None,
    quantize: Annotated[
        Quantization | None, typer.Option(help="Round the weights: faster on a CPU.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    tokenized: Annotated[bool, typer.Option(help="BLEU of text that is in tokens.")] = False,
    latency_unit: Annotated[LatencyUnit, typer.Option(help="What delays count.")] = "words",
    words_per_second: Annotated[float, typer.Option(help="Speaking rate of al_ca.")] = 2.5,
    system: Annotated[str, typer.Option(help="The system's name in figures.")] = "",
) -> None:
    """Translate a test set as it would be spoken; log it and score it."""
    from rich.progress import Progress

    import simultan
    from simultan.evaluation.evaluate import evaluate
    from simultan.evaluation.instances import read_lines
    from simultan.model import memory
    from simultan.streaming.decoding import Decoding

    sources, references = read_lines(source), read_lines(reference)
    memory.keep()
    translator = simultan.load(model, device=device, quantize=quantize)
    with Progress(transient=True) as bar:
        task = bar.add_task("translating", total=len(sources))
        scores = evaluate(
            translator,
            sources,
            references,
            out,
            rows=rows,
            decoding=Decoding(threshold=threshold, lag=lag, k=k, agent=rule, beam=beam),
            tokenized=tokenized,
            latency_unit=latency_unit,
            words_per_second=words_per_second,
            system=system,
            progress=lambda done: bar.advance(task, done),
        )
    _show_scores(scores)


@app.command("score")
def score_verb(
    log: Annotated[Path, typer.Argument(help="An instances.log, or the folder it lies in.")],
    source: Annotated[Path | None, typer.Option(help="Source text, if not in the log.")] = None,
    reference: Annotated[Path | None, typer.Option(help="References, if not in the log.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the scores to this file.")] = None,
    tokenized: Annotated[bool, typer.Option(help="BLEU of text that is in tokens.")] = False,
    latency_unit: Annotated[LatencyUnit, typer.Option(help="What delays count.")] = "words",
    words_per_second: Annotated[float, typer.Option(help="Speaking rate of al_ca.")] = 2.5,
    system: Annotated[str, typer.Option(help="The system's name in figures.")] = "",
) -> None:
    """Score a log of SimulEval's format, ours or another's."""
    from simultan.evaluation.instances import read_lines, read_log, with_texts
    from simultan.evaluation.scores import score, write_scores

    instances = with_texts(
        read_log(log),
        None if source is None else read_lines(source),
        None if reference is None else read_lines(reference),
    )
    scores = score(
        instances,
        tokenized=tokenized,
        latency_unit=latency_unit,
        words_per_second=words_per_second,
        system=system,
    )
    if out is not None:
        write_scores(out, scores)
    _show_scores(scores)


@app.command("reproduce")
def reproduce_verb(
    experiment: Annotated[str, typer.Argument(help="A folder of experiments/, or a plan file.")],
    only: Annotated[
        str, typer.Option(help="Names of runs or groups, part1 or part2; comma between them.")
    ] = "",
    data: Annotated[
        Path | None, typer.Option(help="Folder of prepared corpora, or of the corpus's files.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for checkpoints; work/EXPERIMENT.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder for results; the experiment's own.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="Begin nothing after this; the same command goes on.")
    ] = 0.0,
    train_minutes: Annotated[
        float, typer.Option(min=0, help="Stop training after this, and only measure.")
    ] = 0.0,
    jobs: Annotated[
        int, typer.Option(min=-1, help="Processes that measure; 0: this one; -1: all cores but 3.")
    ] = 0,
    device_jobs: Annotated[
        int, typer.Option(min=0, help="Of a GPU: processes that measure on it while it trains.")
    ] = 0,
    scale: Annotated[float, typer.Option(help="Shorten every run to this share.")] = 1.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="Tiny models: does every run run?")] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Again, from the start.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the runs and the time they will take.")
    ] = False,
    revision: Annotated[str, typer.Option(help="Of the code, if git cannot say it.")] = "",
    device: Annotated[str, typer.Option(help="cpu or cuda; empty: a GPU if there is one.")] = "",
) -> None:
    """Run an experiment, or a part of it, as its plan says; what has a result is skipped."""
    import os

    from simultan.reproduce import plan as plans
    from simultan.reproduce.experiment import Options, reproduce
    from simultan.reproduce.record import revision as revision_of

    plan = plans.load(plans.find_plan(experiment))
    runs = plan.select([name for name in only.split(",") if name])
    if dry_run:
        _show_estimate(plans.estimate(runs, scale))
        measuring = plans.estimate_measuring(runs) / 60
        typer.echo(
            f"(on one H200; beside it, measuring: about {measuring:.0f} minutes of one core)"
        )
        return
    options = Options(
        out=out or Path("work") / plan.name,
        results=results or plan.folder,
        data=data,
        minutes=minutes,
        train_minutes=train_minutes,
        tiny=tiny,
        device=device,
        jobs=max(1, (os.cpu_count() or 1) - 3) if jobs < 0 else jobs,
        device_jobs=device_jobs,
        redo=redo,
        scale=scale,
        revision=revision or revision_of(plan.folder),
        command=f"simultan reproduce {experiment} --only {only}".removesuffix(" --only "),
    )
    summary = reproduce(plan, runs, options, lambda line: print(line, flush=True))
    for name in ("done", "skipped", "left", "failed"):
        found = getattr(summary, name)
        typer.echo(f"{name:<8} {len(found):>3}  {' '.join(found)}")
    if summary.failed:
        raise typer.Exit(1)


def _show_estimate(rows: Sequence[tuple[PlannedRun, int, float]]) -> None:
    """The runs, their updates and seconds, and how they add up."""
    total = 0.0
    for run, updates, seconds in rows:
        total += seconds
        need = f"  after {run.needs}" if run.needs else ""
        typer.echo(f"{run.name:<36} {updates:>7,} {seconds:>7.0f} s {total / 60:>6.1f} min{need}")


@app.command("plot")
def plot_verb(
    folders: Annotated[list[Path], typer.Argument(help="Runs, or folders of a system's runs.")],
    out: Annotated[Path, typer.Option(help="The figure's name, without .png or .svg.")],
    quality: Annotated[QualityName, typer.Option(help="The upward axis.")] = "bleu",
    latency: Annotated[str, typer.Option(help="The panels, from left to right.")] = "AP,AL,DAL",
    label: Annotated[list[str] | None, typer.Option(help="A name for each folder.")] = None,
    sentence: Annotated[
        int | None, typer.Option(help="Draw the read/write path of the sentence of this index.")
    ] = None,
) -> None:
    """Draw quality against latency, or the path of one sentence with every head's position."""
    from simultan.evaluation.figures import draw_path, draw_tradeoff, find_runs
    from simultan.evaluation.instances import read_log

    if sentence is None:
        files = draw_tradeoff(find_runs(folders, label or ()), out, quality, latency.split(","))
    else:
        if len(folders) > 1:
            raise ValueError("--sentence draws one sentence of one run: give one folder")
        found = [i for i in read_log(folders[0]) if i.index == sentence]
        if not found:
            raise ValueError(f"{folders[0]} has no sentence with index {sentence}")
        files = draw_path(found[0], out)
    for file in files:
        typer.echo(file)


def _default_model() -> str:
    """The model in the box, where there is one."""
    from simultan import boxed

    if not (name := boxed.default()):
        raise ValueError("which model? `make toy-demo` trains one: runs/toy/mma-il/final")
    return name


def _threshold(model: str, threshold: float, lag: float | None) -> float:
    """The threshold that was asked for, or the one for a lag."""
    from simultan import boxed
    from simultan.streaming.lags import Lags

    if lag is None:
        return threshold
    if threshold != 0.5:
        raise ValueError("--threshold and --lag: choose one of them")
    return Lags.load(boxed.resolve(model)).threshold(lag)


def _show_prepared(prepared: Prepared) -> None:
    """What was written and what was left out."""
    from rich.console import Console
    from rich.table import Table

    console, table = Console(), Table("split", "pairs", "source tokens", "target tokens", "unknown")
    for split, pairs in prepared.pairs.items():
        tokens, unknown = prepared.tokens[split], prepared.unknown[split]
        shares = " / ".join(f"{share:.1%}" for share in unknown)
        table.add_row(split, f"{pairs:,}", f"{tokens[0]:,}", f"{tokens[1]:,}", shares)
    console.print(table)
    sizes = " and ".join(f"{size:,}" for size in prepared.vocabulary)
    joint = prepared.settings["joint"]
    console.print(
        f"vocabulary: {prepared.vocabulary[0]:,} pieces, joint"
        if joint
        else f"vocabularies: {sizes} pieces"
    )
    speech = prepared.speech
    if speech["runs"]:
        console.print(f"joined: {speech['pairs_in_runs']:,} pairs to {speech['runs']:,}")
    changed = [speech[kind] for kind in ("lower_cased", "unpunctuated", "both")]
    if any(changed):
        few, bare, both = changed
        console.print(
            f"like a recogniser's: {few:,} sources lower-cased, {bare:,} without punctuation,"
            f" {both:,} both"
        )
    for reason, skip in prepared.skipped.items():
        places = ", ".join(skip["first"])
        console.print(f"left out: {skip['count']:,} pairs, {reason} ({places}, ...)")


def _show_scores(scores: Scores) -> None:
    """One line to a score; what the log does not say is not shown."""
    for name, value in scores.flat().items():
        if value not in (None, ""):
            shown = f"{value:.3f}" if isinstance(value, float) else value
            typer.echo(f"{name:<26} {shown}")


def main() -> None:
    """Run a verb; bad input ends in one line that says what to do, not in a traceback."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"simultan: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
