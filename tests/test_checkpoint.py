"""Model folders: what goes in comes out, and a crash leaves the old ones."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn

from simultan import checkpoint
from simultan.config import FORMAT, NEEDS, Config, ConfigError, ModelConfig, PolicyConfig
from simultan.model import build


@dataclass
class Vocabulary:
    pieces: list[str] = field(default_factory=lambda: ["a", "b", "c", "d", "e"])

    def __len__(self) -> int:
        return len(self.pieces)


@dataclass
class Codec:
    source_vocabulary: Vocabulary = field(default_factory=Vocabulary)
    target_vocabulary: Vocabulary = field(default_factory=Vocabulary)

    def save(self, folder: Path) -> None:
        for name in ("vocabulary.source.json", "vocabulary.target.json", "pipeline.json"):
            (folder / name).write_text("{}")


class Net(nn.Module):
    """Tied matrices, a buffer, and names as in a decoder."""

    def __init__(self, monotonic: bool = False, width: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, width)
        self.output = nn.Linear(width, 5, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("count", torch.tensor(7))
        layer = nn.Module()
        layer.cross = nn.ModuleDict({"query": nn.Linear(width, width)})
        if monotonic:
            layer.cross["select_query"] = nn.Linear(width, width)
        self.layers = nn.ModuleList([layer])


CONFIG = Config(model=ModelConfig(width=8, heads=2))


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    monkeypatch.setattr(checkpoint.models, "build", lambda *_: Net(), raising=False)
    monkeypatch.setattr(checkpoint.Codec, "load", lambda folder: Codec())


def save(folder: Path, model: nn.Module, **options) -> None:
    checkpoint.save(folder, checkpoint.weights_of(model), CONFIG, Codec(), **options)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_round_trip(tmp_path):
    model = Net()
    save(tmp_path / "m", model, trainer={"update": 3, "optimiser": {"x": torch.ones(2)}})
    loaded, config, _ = checkpoint.load_model(tmp_path / "m")
    assert same(model, loaded)
    assert not loaded.training
    assert config == CONFIG
    assert checkpoint.load_trainer(tmp_path / "m")["update"] == 3
    assert sorted(os.listdir(tmp_path / "m")) == [
        *("SHA256SUMS", "config.toml", "pipeline.json", "trainer.pt"),
        *("vocabulary.source.json", "vocabulary.target.json", "weights.safetensors"),
    ]


def test_whoever_may_read_one_file_may_read_all(tmp_path):
    before = os.umask(0o027)
    try:
        save(tmp_path / "m", Net(), trainer={"update": 3})
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "m").iterdir()} == {0o640}


@pytest.mark.parametrize("cut", [0, 1, 10, -10])
def test_a_damaged_trainer_state_says_what_to_do(tmp_path, cut):
    save(tmp_path / "m", Net(), trainer={"update": 3, "x": torch.ones(1000)})
    path = tmp_path / "m" / "trainer.pt"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"trainer\.pt: truncated or damaged; remove .*/m to"):
        checkpoint.load_trainer(tmp_path / "m")


@pytest.mark.parametrize("size", [100, 20_000, 45_000])  # config.toml, trainer.pt, the weights
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, size):
    model, trainer = Net(width=2000), {"x": torch.ones(8000)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with pytest.raises(OSError, match=r"could not be written .* MiB are free"):
            save(tmp_path / "m", model, trainer=trainer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []
    save(tmp_path / "m", model, trainer=trainer)
    assert checkpoint.load_trainer(tmp_path / "m").keys() == {"x"}


def test_a_model_of_a_newer_format_names_the_version_it_needs(tmp_path):
    save(tmp_path / "m", Net())
    path = tmp_path / "m" / "config.toml"
    text = path.read_text()
    assert text.startswith(f"format = {FORMAT}\n")
    newer = text.replace(f"format = {FORMAT}", f"format = {FORMAT + 1}").replace(NEEDS, "9.8.7")
    path.write_text(newer + "[novelties]\nx = 1\n")
    with pytest.raises(ConfigError, match=r"config\.toml: this model needs simultan >= 9\.8\.7"):
        checkpoint.load_config(tmp_path / "m")
    path.write_text(text.split("\n\n", 1)[1])  # as models were written before there was a format
    assert checkpoint.load_config(tmp_path / "m") == CONFIG


def test_a_flipped_bit_is_noticed(tmp_path):
    save(tmp_path / "m", Net())
    path = tmp_path / "m" / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"weights.safetensors: damaged, .* copy it again"):
        checkpoint.load_model(tmp_path / "m")
    (tmp_path / "m" / "SHA256SUMS").unlink()  # older models have none
    checkpoint.load_model(tmp_path / "m")


def test_a_tied_matrix_is_stored_once_and_stays_tied(tmp_path):
    model = Net()
    assert "output.weight" not in checkpoint.weights_of(model)
    save(tmp_path / "m", model)
    loaded, _, _ = checkpoint.load_model(tmp_path / "m")
    assert loaded.output.weight is loaded.embedding.weight
    assert torch.equal(loaded.output.weight, model.embedding.weight)


def test_half_storage_loads_as_float32(tmp_path):
    model = Net()
    save(tmp_path / "full", model)
    save(tmp_path / "half", model, stored="float16")
    loaded, _, _ = checkpoint.load_model(tmp_path / "half")
    assert torch.equal(loaded.embedding.weight, model.embedding.weight.half().float())
    assert loaded.count == 7
    sizes = [(tmp_path / n / "weights.safetensors").stat().st_size for n in ("half", "full")]
    assert sizes[0] < sizes[1]


def test_int8_rounds_each_row_to_its_own_scale(tmp_path):
    model = Net(monotonic=True, width=64)
    with torch.no_grad():  # rows of very different size, one of them zero
        model.embedding.weight *= torch.tensor([1e-4, 1.0, 300.0, 0.0, 1e-40])[:, None]
    save(tmp_path / "m", model, stored="int8")
    weights = checkpoint.load_weights(tmp_path / "m")
    assert weights.keys() == checkpoint.weights_of(model).keys()
    for name, value in checkpoint.weights_of(model).items():
        assert weights[name].dtype == value.dtype
        if value.dim() > 1:
            largest = value.abs().amax(1, keepdim=True)
            assert ((weights[name] - value).abs() <= largest / 254 * 1.001 + 1e-39).all(), name
        else:
            assert torch.equal(weights[name], value), name  # biases and the like are exact
    again = tmp_path / "again"
    checkpoint.save(again, weights, CONFIG, Codec(), stored="int8")
    twice = checkpoint.load_weights(again)
    for name, value in weights.items():  # rounding what was rounded changes nothing to speak of
        torch.testing.assert_close(twice[name], value, rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match="its scales are missing"):
        checkpoint._unpacked({"w": torch.ones(2, 2, dtype=torch.int8)}, "file")


def test_export_is_small_and_has_no_trainer(tmp_path):
    model = Net(width=256)
    save(tmp_path / "m", model, trainer={"update": 3})
    sizes = {}
    for stored in ("float32", "float16", "int8"):
        size = checkpoint.export([tmp_path / "m"], tmp_path / stored, stored)
        assert "trainer.pt" not in os.listdir(tmp_path / stored)
        assert size == sum(file.stat().st_size for file in (tmp_path / stored).iterdir())
        sizes[stored] = (tmp_path / stored / "weights.safetensors").stat().st_size
    exact = checkpoint.load_weights(tmp_path / "float32")
    assert all(torch.equal(exact[k], v) for k, v in checkpoint.weights_of(model).items())
    assert sizes["float16"] < 0.55 * sizes["float32"]
    assert sizes["int8"] < 0.3 * sizes["float32"]


def test_average(tmp_path):
    nets = [Net() for _ in range(3)]
    for index, net in enumerate(nets):
        save(tmp_path / str(index), net)
    found = checkpoint.average([tmp_path / str(index) for index in range(3)])
    wanted = torch.stack([net.embedding.weight.detach() for net in nets]).mean(0)
    torch.testing.assert_close(found["embedding.weight"], wanted)
    save(tmp_path / "wide", Net(width=4))
    with pytest.raises(ValueError, match="wide"):
        checkpoint.average([tmp_path / "0", tmp_path / "wide"])
    with pytest.raises(ValueError, match="no checkpoints"):
        checkpoint.average([])


class Killed(BaseException):
    """Ends a save as kill -9 would: nothing may clean up after it."""


def crash_at(monkeypatch, countdown: int) -> None:
    """Fail at the countdown-th call that touches the disk."""
    left = [countdown]

    def crashing(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return function(*arguments, **options)

        return call

    for owner, name in [
        *((os, n) for n in ("fsync", "rename", "replace", "mkdir")),
        *((Path, n) for n in ("write_text", "mkdir", "symlink_to", "unlink")),
        *((checkpoint, "save_file"), (torch, "save"), (Codec, "save")),
    ]:
        monkeypatch.setattr(owner, name, crashing(getattr(owner, name)))


def test_a_crash_between_any_two_writes_leaves_a_loadable_folder(tmp_path):
    old, new = Net(), Net()
    save(tmp_path / "1", old, trainer={"update": 1})
    checkpoint.point(tmp_path / "last", tmp_path / "1")
    seen = []
    for countdown in range(1, 100):
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, countdown)
            try:
                save(tmp_path / "2", new, trainer={"update": 2})
                checkpoint.point(tmp_path / "last", tmp_path / "2")
                finished = True
            except Killed:
                finished = False
        loaded, _, _ = checkpoint.load_model(tmp_path / "last")
        update = checkpoint.load_trainer(tmp_path / "last")["update"]
        assert same(loaded, {1: old, 2: new}[update])
        seen.append(update)
        if (tmp_path / "2").exists():  # it is whole as soon as it has its name
            assert same(checkpoint.load_model(tmp_path / "2")[0], new)
        if finished:
            break
        if (tmp_path / "2").exists():
            checkpoint.point(tmp_path / "last", tmp_path / "1")
            os.rename(tmp_path / "2", tmp_path / f"gone{countdown}")
    assert countdown > 12
    assert seen[0] == 1
    assert seen[-1] == 2


def test_an_existing_folder_is_not_overwritten(tmp_path):
    save(tmp_path / "m", Net())
    with pytest.raises(FileExistsError, match="already there"):
        save(tmp_path / "m", Net())


def test_messages_name_what_is_wrong(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(FileNotFoundError, match="not a model folder"):
        checkpoint.load_model(tmp_path / "run")
    save(tmp_path / "run" / "final", Net())
    with pytest.raises(FileNotFoundError, match=r"did you mean .*final"):
        checkpoint.load_model(tmp_path / "run")
    save(tmp_path / "wide", Net(width=4))
    with pytest.raises(ValueError, match=r"embedding.weight is \[5, 4\].* wants \[5, 3\]"):
        checkpoint.load_model(tmp_path / "wide")
    save(tmp_path / "other", Net(monotonic=True))
    with pytest.raises(ValueError, match=r"unknown weight .*select_query"):
        checkpoint.load_model(tmp_path / "other")
    (tmp_path / "wide" / "weights.safetensors").write_bytes(b"nonsense")
    (tmp_path / "wide" / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match="not a readable weights file"):
        checkpoint.load_model(tmp_path / "wide")


def test_initialise_copies_all_but_the_selection(tmp_path):
    offline, model = Net(), Net(monotonic=True)
    before = model.layers[0].cross["select_query"].weight.clone()
    save(tmp_path / "offline", offline)
    fresh = checkpoint.initialise(model, tmp_path / "offline", Codec())
    assert fresh == [
        "layers.0.cross.select_query.bias",
        "layers.0.cross.select_query.weight",
    ]
    assert torch.equal(model.embedding.weight, offline.embedding.weight)
    attention = model.layers[0].cross
    assert torch.equal(attention["query"].weight, offline.layers[0].cross["query"].weight)
    assert torch.equal(attention["select_query"].weight, before)


def tiny(architecture, policy) -> Config:
    shape = ModelConfig(architecture, width=8, ffn=8, heads=2, encoder_layers=1, decoder_layers=2)
    return Config(model=shape, policy=PolicyConfig(policy))


@pytest.mark.parametrize("policy", ["mma-h", "mma-il"])
@pytest.mark.parametrize("architecture", ["transformer", "recurrent"])
def test_a_selection_can_begin_as_the_start_attends(policy, architecture, tmp_path):
    offline, model = (build(tiny(architecture, name), 5, 5) for name in ("offline", policy))
    save(tmp_path / "offline", offline)
    fresh = checkpoint.initialise(model, tmp_path / "offline", Codec(), select_as_attended=True)
    assert fresh
    assert all("energy_" in name for name in fresh)
    for mine, its in zip(model.cross_attentions(), offline.cross_attentions(), strict=True):
        assert torch.equal(mine.select_query.weight, its.query.weight)
        assert torch.equal(mine.select_key.bias, its.key.bias)
    # the next stage goes on with what was learned
    torch.nn.init.ones_(model.cross_attentions()[0].select_query.weight)
    save(tmp_path / "first", model)
    checkpoint.initialise(model, tmp_path / "first", Codec(), select_as_attended=True)
    assert (model.cross_attentions()[0].select_query.weight == 1).all()


def test_initialise_refuses_another_model(tmp_path):
    save(tmp_path / "offline", Net())
    with pytest.raises(ValueError, match="embedding"):
        checkpoint.initialise(Net(width=4), tmp_path / "offline", Codec())
    deeper = Net()
    deeper.layers.append(nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"has no weight layers\.1"):
        checkpoint.initialise(deeper, tmp_path / "offline", Codec())
    strange = Codec(target_vocabulary=Vocabulary(list("abcdx")))
    with pytest.raises(ValueError, match="another target vocabulary"):
        checkpoint.initialise(Net(), tmp_path / "offline", strange)


@pytest.mark.parametrize("policy", ["hard", "mocha", "milk", "mma-h", "mma-il", "wait-k"])
@pytest.mark.parametrize("architecture", ["transformer", "recurrent"])
def test_every_policy_starts_from_an_offline_model(policy, architecture, tmp_path):
    offline, model = (build(tiny(architecture, name), 5, 5) for name in ("offline", policy))
    save(tmp_path / "offline", offline)
    fresh = checkpoint.initialise(model, tmp_path / "offline", Codec())
    assert bool(fresh) == (policy != "wait-k")
    assert all("select_" in name or "energy_" in name for name in fresh)
    copied = checkpoint.weights_of(model)
    for name, value in checkpoint.weights_of(offline).items():
        assert name not in copied or torch.equal(copied[name], value)
    other = tiny({"transformer": "recurrent"}.get(architecture, "transformer"), "mma-il")
    with pytest.raises(ValueError, match="another kind of model"):
        checkpoint.initialise(build(other, 5, 5), tmp_path / "offline", Codec())
