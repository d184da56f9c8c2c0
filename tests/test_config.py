import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simultan import config
from simultan.config import Config, ConfigError, DataConfig, PolicyConfig, TrainConfig


def test_defaults_round_trip():
    assert config.parse(config.dump(Config())) == Config()


@given(
    folder=st.text(st.characters(exclude_categories=["Cs"])),
    k=st.lists(st.integers(1, 99), min_size=1, max_size=4),
    bias=st.none() | st.floats(allow_nan=False),
    lr=st.floats(0, allow_nan=False),
    compiled=st.booleans(),
)
def test_any_values_round_trip(folder, k, bias, lr, compiled):
    made = Config(
        data=DataConfig(folder=folder),
        policy=PolicyConfig(name="wait-k", k=tuple(k), energy_bias=bias),
        train=TrainConfig(lr=lr, compile=compiled),
    )
    assert config.parse(config.dump(made)) == made


def test_unknown_keys_are_named():
    with pytest.raises(ConfigError, match=r"unknown key 'lrr' in \[train\]; did you mean 'lr'\?"):
        config.parse("[train]\nlrr = 1.0")
    with pytest.raises(ConfigError, match=r"'heads' in \[train\]; it belongs to \[model\]"):
        config.parse("[train]\nheads = 4")
    with pytest.raises(ConfigError, match=r"'zzz' in \[loss\]; it knows: label_smoothing"):
        config.parse("[loss]\nzzz = 4")
    with pytest.raises(ConfigError, match="'trian' in the recipe; did you mean 'train'"):
        config.parse("[trian]\nlr = 1.0")
    with pytest.raises(ConfigError, match=r"unknown key 'lr.x' in \[train\]"):
        config.parse("", ["train.lr.x=1"])


def test_overrides():
    made = config.parse(
        "[train]\nlr = 1.0\n[data]\nfolder = 'a'",
        ["train.lr = 3e-4", "data.folder=runs/x", "policy.k=[1, 3]", "train.compile=true"],
    )
    assert made.train.lr == 3e-4
    assert made.data.folder == "runs/x"
    assert made.policy.k == (1, 3)
    assert made.train.compile is True
    assert config.parse("", ["policy.k=5"]).policy.k == (5,)
    assert config.parse("", ["policy.energy_bias=none"]).policy.energy_bias is None
    assert config.parse("", ["train.updates=1", "train.updates=2"]).train.updates == 2


@pytest.mark.parametrize("override", ["lr=1", "train.lr", "train"])
def test_override_form(override):
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        config.parse("", [override])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nlr = 'fast'", "train.lr = 'fast': a value of type float"),
        ("[train]\nupdates = 1.5", "train.updates = 1.5: a value of type int"),
        ("[train]\nupdates = true", "train.updates = True"),
        ("[train]\ncompile = 1", "train.compile = 1: a value of type bool"),
        ("[train]\nbetas = [0.9]", "train.betas"),
        ("[policy]\nname = 'mma'", "policy.name = 'mma': choose one of 'hard'"),
        ("train = 3", r"\[train\] must be a table"),
        ("[train", "not valid TOML"),
        ("[model]\nheads = 0", "model.heads = 0: it must be at least 1"),
        ("[model]\ndecoder_layers = 0", "model.decoder_layers = 0: it must be at least 1"),
        ("[model]\nwindow = -1", "model.window = -1: it must be at least 0"),
        ("[loss]\nlambda_avg = -0.1", "loss.lambda_avg = -0.1: it must be at least 0"),
        ("[loss]\nlambda_var = -1", "loss.lambda_var = -1.0: it must be at least 0"),
        *[
            (f"[train]\n{key} = 0", f"train.{key} = 0: it must be at least 1")
            for key in ("updates", "save_every", "log_every", "accumulate", "keep", "average")
        ],
        ("[train]\nlr = -1", "train.lr = -1.0: it must be at least 0"),
        ("[train]\nlr = nan", "train.lr = nan: it must be at least 0"),
        ("[train]\nbetas = [0.9, 1]", r"betas = \[0.9, 1.0\]: it must be at least 0 and below 1"),
        ("[train]\nlatency_range = [3, 2]", "latency_range .* empty"),
        ("[policy]\nk = [3, 0]", r"policy.k = \[3, 0\]: it must be at least 1"),
        ("[model]\nwidth = 30\nheads = 4", "multiple of model.heads"),
        ("[data]\nlength_step = 0", "at least 1"),
        ("[policy]\nname = 'wait-k'\nk = []", "policy.k"),
        ("[policy]\nnoise = -1", "policy.noise"),
        ("[model]\ndropout = 1.0", "model.dropout"),
        ("[loss]\nlabel_smoothing = 1.0", "label_smoothing"),
        ("[loss]\nrdrop = -1.0", "loss.rdrop"),
        ("[policy]\nhard = 1.5", "policy.hard"),
        ("[model]\nword_dropout = 0.1\narchitecture = 'recurrent'", "transformer only"),
        ("train.cooldown = -1", "cooldown"),
        ('policy.name = "hard"\ntrain.init_select = "attended"', "every head selects"),
    ],
)
def test_wrong_values_say_what_is_wanted(text, message):
    with pytest.raises(ConfigError, match=message):
        config.parse(text)


def test_override_of_what_is_no_table():
    with pytest.raises(ConfigError, match="must be a table"):
        config.parse("train = 3", ["train.lr=1"])


def test_integers_are_floats_where_floats_are_wanted():
    lr = config.parse("[train]\nlr = 1").train.lr
    assert lr == 1.0
    assert isinstance(lr, float)


def test_load_names_the_file(tmp_path):
    path = tmp_path / "a.toml"
    with pytest.raises(ConfigError, match="no such recipe"):
        config.load(path)
    path.write_text("[train]\nx = 1")
    with pytest.raises(ConfigError, match=r"a\.toml: unknown key"):
        config.load(path)
    path.write_text("[train]\nseed = 7")
    assert config.load(path, ["train.lr=1"]).train == dataclasses.replace(
        TrainConfig(), seed=7, lr=1.0
    )
