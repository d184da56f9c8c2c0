"""Models of transformers and CTranslate2 as sessions: the same words from all of them."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from ctranslate2.converters import TransformersConverter
from foreign import make_m2m100, make_marian, make_t5, toy_pairs, toy_tests
from small import feed_all, writes
from typer.testing import CliRunner

import simultan
from simultan import cues
from simultan.cli import app
from simultan.evaluation.evaluate import evaluate
from simultan.server.run import make_server
from simultan.server.settings import Settings
from simultan.streaming.session import Session
from simultan.streaming.translator import Translator

KINDS = ["marian", "m2m100", "t5"]
OPTIONS = {
    "marian": "",
    "m2m100": "?source=en&target=fr",
    "t5": "?prefix=translate English to French:",
}
TOKENIZERS = {
    "marian": ["source.spm", "target.spm", "tokenizer_config.json"],
    "m2m100": ["sentencepiece.bpe.model"],
    "t5": ["tokenizer.json"],
}
WHOLE = "wait-k:99"  # nothing is written before the source has ended


class Models:
    """A folder of each kind, and the same for CTranslate2; each is made when it is first used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pairs = toy_pairs(root / "text")
        self.tests = toy_tests(root / "text", 24)
        self.loaded: dict[str, Translator] = {}

    def folder(self, kind: str) -> Path:
        made = {"marian": make_marian, "m2m100": make_m2m100, "t5": make_t5}[kind]
        folder = self.root / kind
        return folder if folder.exists() else made(folder, self.pairs)

    def converted(self, kind: str) -> Path:
        folder = self.root / f"{kind}-ct2"
        if not folder.exists():
            converter = TransformersConverter(str(self.folder(kind)), copy_files=TOKENIZERS[kind])
            converter.convert(str(folder))
        return folder

    def name(self, kind: str, system: str) -> str:
        folder = self.folder(kind) if system == "hf" else self.converted(kind)
        return f"{system}:{folder}{OPTIONS[kind]}"

    def load(self, kind: str, system: str) -> Translator:
        name = self.name(kind, system)
        if name not in self.loaded:
            self.loaded[name] = simultan.load(name)
        return self.loaded[name]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    torch.set_num_threads(1)
    return Models(tmp_path_factory.mktemp("foreign"))


def generate(models: Models, kind: str, sentences: list[str]) -> list[str]:
    """What transformers itself makes of whole sentences."""
    folder = models.folder(kind)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    options: dict[str, Any] = {}
    prefix = ""
    if kind == "m2m100":
        tokenizer.src_lang = "en"
        options["forced_bos_token_id"] = tokenizer.get_lang_id("fr")
    elif kind == "t5":
        prefix = "translate English to French: "
    texts = []
    for sentence in sentences:
        ids = tokenizer(prefix + sentence, return_tensors="pt")
        found = model.generate(**ids, num_beams=1, do_sample=False, max_new_tokens=40, **options)
        texts.append(tokenizer.decode(found[0], skip_special_tokens=True))
    return texts


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_words_from_transformers_and_both_backends(models: Models, kind: str) -> None:
    pairs = zip(models.tests, generate(models, kind, models.tests), strict=True)
    # a session ends what repeats itself; transformers goes on
    expected = {source: said for source, said in pairs if len(said.split()) < 15}
    assert len(set(expected.values())) > len(models.tests) // 3  # it has learned to say something
    for system in ("hf", "ct2"):
        said = models.load(kind, system).translate(list(expected), WHOLE)
        assert [result.text for result in said] == list(expected.values()), system


def stream(session: Session, words: list[str]) -> list[tuple[str, int]]:
    session.reset()
    return [(write.text, write.delay) for write in writes(feed_all(session, words))]


@pytest.mark.parametrize("system", ["hf", "ct2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decoding", ["", "wait-k:2", "wait-if-worse:2,1"])
def test_sessions(models: Models, kind: str, system: str, decoding: str) -> None:
    """What is written stays, depends on nothing unread, and is the same for any chunking."""
    check(models, kind, system, decoding)


@pytest.mark.parametrize("decoding", ["hold:2", "wait-if-diff:1,1", "static:2,1"])
def test_other_agents(models: Models, decoding: str) -> None:
    check(models, "marian", "ct2", decoding)


def check(models: Models, kind: str, system: str, decoding: str) -> None:
    translator = models.load(kind, system)
    session = translator.session(decoding, segment=False)
    for sentence in models.tests[:2]:
        words = sentence.split()
        at_once = stream(session, [sentence])
        assert stream(session, words) == at_once
        for place in range(1, len(words)):
            other = [*words[:place], "moon", "often"]
            before = [write for write in at_once if write[1] <= place]
            assert stream(session, other)[: len(before)] == before
    results = translator.translate(models.tests[:3], decoding, rows=3)
    for sentence, result in zip(models.tests, results, strict=False):
        single = stream(session, [sentence])
        assert result.words == [word for text, _ in single for word in text.split()]
        assert result.delays == [delay for text, delay in single for _ in text.split()]


@pytest.mark.parametrize("system", ["hf", "ct2"])
def test_agreement_decides_unless_another_agent_is_chosen(models: Models, system: str) -> None:
    translator = models.load("marian", system)
    default, named, whole = (
        translator.translate(models.tests, decoding) for decoding in ("", "agreement:2", WHOLE)
    )
    assert [result.delays for result in default] == [result.delays for result in named]
    early = sum(sum(result.delays) for result in default)
    assert early < sum(sum(result.delays) for result in whole)


@pytest.mark.parametrize("system", ["hf", "ct2"])
def test_scores_are_the_model_s(models: Models, system: str) -> None:
    """The logits of a backend are those of the model's own forward pass."""
    translator = models.load("t5", system)
    folder = models.folder("t5")
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    sentence = models.tests[1]
    ids = tokenizer(f"translate English to French: {sentence}", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        expected = model(input_ids=ids, decoder_input_ids=torch.tensor([[0]])).logits[0, -1]
    source = translator.codec.encode_source(sentence)
    backend = translator.model.backend(1)  # type: ignore[union-attr]
    with torch.inference_mode():
        backend.read([0], [source], [True])
        scores = backend.score([0], [len(source)], False)
    body = scores.log_probs[0, 4:]
    allowed = body.isfinite()
    shared = expected.log_softmax(-1)[: len(body)][allowed]
    gap = (shared - shared.max()) - (body[allowed] - body[allowed].max())
    assert gap.abs().max() < 1e-3
    assert scores.best[0] - 4 == int(expected.argmax())


@pytest.mark.parametrize("kind", KINDS)
def test_attention_of_transformers_and_none_of_ctranslate2(models: Models, kind: str) -> None:
    translator = models.load(kind, "hf")
    source = translator.codec.encode_source(models.tests[0])
    backend = translator.model.backend(1)  # type: ignore[union-attr]
    assert backend.attention_layers == 1
    with torch.inference_mode():
        backend.read([0], [source], [True])
        part = backend.score([0], [2], True).attention
        whole = backend.score([0], [len(source)], True).attention
    assert part is not None
    assert part.shape == (1, 1, 2, 2)
    assert whole is not None
    assert whole.shape == (1, 1, 2, len(source))
    assert 0 < float(whole.sum()) <= 2 + 1e-5  # the rest goes to what stands before the source
    early, late = (translator.translate(models.tests, f"align-att:{n}") for n in (1, 4))
    delays = [sum(sum(result.delays) for result in results) for results in (early, late)]
    assert delays[0] < delays[1]
    with pytest.raises(ValueError, match="does not show its attention"):
        models.load(kind, "ct2").session("align-att:2")


def test_int8_through_ctranslate2(models: Models) -> None:
    translator = simultan.load(models.name("marian", "ct2"), quantize="int8")
    said = translator.translate(models.tests, WHOLE)
    exact = models.load("marian", "ct2").translate(models.tests, WHOLE)
    assert translator.model.engine.compute_type.startswith("int8")  # type: ignore[union-attr]
    assert sum(a.text == b.text for a, b in zip(said, exact, strict=True)) > len(said) // 2
    with pytest.raises(ValueError, match="ct2:"):
        simultan.load(models.name("marian", "hf"), quantize="int8")


def test_evaluate_and_translate_take_such_a_name(models: Models, tmp_path: Path) -> None:
    translator = models.load("marian", "hf")
    assert (translator.codec.source_language, translator.codec.target_language) == ("en", "fr")
    scores = evaluate(translator, models.tests, models.tests)
    assert 0 < scores.latency["al"] < 12
    text = tmp_path / "in.txt"
    text.write_text("\n".join(models.tests[:2]), encoding="utf-8")
    out = tmp_path / "out.txt"
    name = models.name("marian", "ct2")
    run = CliRunner().invoke(app, ["translate", name, "--in", str(text), "--out", str(out)])
    assert run.exit_code == 0, run.output
    lines = [result.text for result in models.load("marian", "ct2").translate(models.tests[:2])]
    assert out.read_text(encoding="utf-8").splitlines() == lines


def test_captions_take_such_a_name(models: Models, tmp_path: Path) -> None:
    captions, out = tmp_path / "in.vtt", tmp_path / "out.vtt"
    spoken = [f"00:0{i}.000 --> 00:0{i}.900\n{text}\n" for i, text in enumerate(models.tests[:3])]
    captions.write_text("\n".join(["WEBVTT\n", *spoken]), encoding="utf-8")
    name = models.name("marian", "ct2")
    run = CliRunner().invoke(app, ["captions", str(captions), name, "--out", str(out)])
    assert run.exit_code == 0, run.output
    shown = " ".join(cue.text for cue in cues.read(out)).split()
    said = feed_all(models.load("marian", "ct2").session(), [" ".join(models.tests[:3])])
    assert shown == " ".join(write.text for write in writes(said)).split()


def test_a_server_of_such_a_model(models: Models) -> None:
    """Many rows of one model, over HTTP: what a session says."""
    translator = models.load("marian", "hf")
    server = make_server(translator, Settings(rows=3), "127.0.0.1", 0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with ThreadPoolExecutor(3) as pool:
            said = list(pool.map(partial(ask, port), models.tests[:3]))
    finally:
        server.should_exit = True
        thread.join(300)
    for sentence, answer in zip(models.tests, said, strict=False):
        assert answer["pair"] == "en-fr"
        session = translator.session()
        words = [write.text for write in writes(feed_all(session, [sentence]))]
        assert answer["text"].split() == " ".join(words).split()


def ask(port: int, text: str) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/translate",
        json.dumps({"text": text}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def test_a_plain_folder_is_recognised(models: Models) -> None:
    for folder in (models.folder("marian"), models.converted("marian")):
        assert simultan.load(folder).translate(models.tests[:1], WHOLE)[0].text


def test_special_tokens_in_the_text_are_text(models: Models) -> None:
    for kind in KINDS:
        codec = models.load(kind, "hf").codec
        ids = codec.encode_source_word("</s>")
        assert "</s>" not in [codec.source_vocabulary.pieces[id] for id in ids[1:]]
        assert ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "which source language"),
        ("?source=en", "which target language"),
        ("?source=en&target=klingon", "no target language 'klingon'"),
        ("?sauce=en", "give source, target, prefix, pickle"),
    ],
)
def test_languages_must_be_chosen(models: Models, options: str, message: str) -> None:
    for system, folder in (("hf", models.folder("m2m100")), ("ct2", models.converted("m2m100"))):
        with pytest.raises(ValueError, match=message):
            simultan.load(f"{system}:{folder}{options}")


def test_a_pair_has_no_languages_to_choose(models: Models) -> None:
    with pytest.raises(ValueError, match="one pair"):
        simultan.load(f"hf:{models.folder('marian')}?source=de")


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_those_of_the_pieces(models: Models, kind: str) -> None:
    """Written while the source was still coming, words are cut where the pieces say so."""
    translator = models.load(kind, "hf")
    for result in translator.translate(models.tests[:6]):
        assert result.text == translator.codec.decode_target(result.tokens)
