"""COMET is asked in its own terms; here a stand-in answers."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from simultan.evaluation.comet import measure_comet
from simultan.evaluation.instances import Instance

ONE = Instance(
    index=0, prediction="a house", delays=[1, 2], elapsed=[0, 0], prediction_length=2,
    reference="one house", source="ein Haus", source_length=2,
)  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []

    def predict(data: list[dict[str, str]], **_: object) -> SimpleNamespace:
        calls.append(data)
        return SimpleNamespace(system_score=0.75)

    package = SimpleNamespace(
        download_model=lambda name: f"/cache/{name}.ckpt",
        load_from_checkpoint=lambda path: calls.append(path) or SimpleNamespace(predict=predict),
    )
    monkeypatch.setitem(sys.modules, "comet", package)
    return calls


def test_a_model_by_name_and_one_in_a_file(asked: list[object]) -> None:
    assert measure_comet([ONE], "Unbabel/x") == 0.75
    assert measure_comet([ONE], "mine.ckpt") == 0.75
    data = [{"src": "ein Haus", "mt": "a house", "ref": "one house"}]
    assert asked == ["/cache/Unbabel/x.ckpt", data, "mine.ckpt", data]


def test_what_is_missing_is_told(asked: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="index 0 lacks its source or its reference"):
        measure_comet([replace(ONE, reference=None)], "x")
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(ValueError, match="pip install unbabel-comet"):
        measure_comet([ONE], "x")
