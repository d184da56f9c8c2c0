"""Every recipe is read, names its policy, and builds; the paper's columns are the paper's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from simultan import config, model

RECIPES = Path(__file__).parent.parent / "recipes"
PATHS = sorted(p for p in RECIPES.glob("*/*.toml") if p.parent.name != "agents")
SYSTEMS = {"offline", "wait-k", "mma-h", "mma-il", "milk", "mocha", "hard"}


@pytest.mark.parametrize("path", PATHS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_recipe_builds(path):
    recipe = config.load(path)
    assert recipe.policy.name == path.stem.removesuffix("-rnn")
    assert recipe.data.folder == f"work/{path.parent.name}"
    with torch.device("meta"):
        built = model.build(recipe, 100, 100)
    assert built.policy.name == recipe.policy.name


@pytest.mark.parametrize("corpus", ["toy", "iwslt15-en-vi", "wmt15-de-en"])
def test_every_system_has_a_recipe(corpus):
    assert {p.stem.removesuffix("-rnn") for p in (RECIPES / corpus).glob("*.toml")} >= SYSTEMS


@pytest.mark.parametrize("name", ["offline", "wait-k", "mma-h", "mma-il"])
@pytest.mark.parametrize(
    ("corpus", "width", "ffn", "heads", "tokens"),
    [("iwslt15-en-vi", 512, 1024, 4, 16_000), ("wmt15-de-en", 1024, 4096, 16, 3584 * 8 * 8 * 2)],
)
def test_appendix(corpus, width, ffn, heads, tokens, name):
    recipe = config.load(RECIPES / corpus / f"{name}.toml")
    shape, train = recipe.model, recipe.train
    assert (shape.width, shape.ffn, shape.heads) == (width, ffn, heads)
    assert (shape.encoder_layers, shape.decoder_layers, shape.dropout) == (6, 6, 0.3)
    assert shape.decoder_heads in (0, heads)
    assert recipe.data.batch_tokens * train.accumulate == tokens
    assert (train.lr, train.warmup, train.warmup_init_lr) == (5e-4, 4000, 1e-7)
    assert (train.betas, train.clip, train.weight_decay) == ((0.9, 0.98), 0.0, 0.0)
    assert recipe.loss.label_smoothing == 0.1


STARTERS = ["laptop", "one-gpu", "many-gpus"]


@pytest.mark.parametrize("size", STARTERS)
def test_starter_recipes_make_two_steps(size):
    offline = config.load(RECIPES / "starter" / size / "offline.toml")
    streaming = config.load(RECIPES / "starter" / size / "mma-il.toml")
    assert (offline.policy.name, streaming.policy.name) == ("offline", "mma-il")
    assert offline.data == streaming.data
    assert offline.data.folder == f"work/{size}"
    assert offline.model == streaming.model  # or its weights would not fit
    assert streaming.train.init_from == f"runs/{size}/offline/final"
    for recipe in (offline, streaming):
        assert recipe.train.warmup + recipe.train.cooldown < recipe.train.updates
        with torch.device("meta"):
            model.build(recipe, 100, 100)


@pytest.mark.parametrize("size", STARTERS)
@pytest.mark.parametrize("step", ["offline", "mma-il"])
def test_starter_recipes_say_how_to_start_them(size, step):
    text = (RECIPES / "starter" / size / f"{step}.toml").read_text("utf-8")
    assert f"recipes/starter/{size}/{step}.toml --out runs/{size}/{step}" in text


def test_prefix_pairs_are_for_fine_tuning():
    recipe = config.load(RECIPES / "iwslt15-en-vi/prefixes/offline.toml")
    whole = config.load(RECIPES / "iwslt15-en-vi/offline.toml")
    assert (recipe.policy, recipe.model) == (whole.policy, whole.model)  # or weights would not fit
    assert 0 < recipe.data.prefixes < 1
    assert recipe.train.init_from == "runs/iwslt15-en-vi/offline/final"
