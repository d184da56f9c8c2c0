"""Words behind instead of thresholds: what is between two measurements, and what is not there."""

from pathlib import Path

import pytest

from simultan.streaming.lags import Lags

MEASURED = Lags(((0.2, 2.0), (0.5, 3.0), (0.8, 5.0)))


def test_between_the_points() -> None:
    assert [MEASURED.threshold(lag) for lag in (2.0, 3.0, 5.0)] == pytest.approx([0.2, 0.5, 0.8])
    assert MEASURED.threshold(4.0) == pytest.approx(2 / 3)  # odds of 2: between 1 and 4
    assert MEASURED.threshold(2.5) == pytest.approx(1 / 3)


@pytest.mark.parametrize("lag", [1.9, 5.1, -1.0])
def test_outside_it_says_what_there_is(lag: float) -> None:
    with pytest.raises(ValueError, match=r"this model has 2\.0 to 5\.0"):
        MEASURED.threshold(lag)


def test_a_measurement_that_does_not_rise_is_left_out() -> None:
    found = Lags.of([(0.9, 4.0), (0.1, 2.0), (0.3, 1.9), (0.5, 3.0), (0.5, 3.5), (0.7, 3.0)])
    assert found.points == ((0.1, 2.0), (0.5, 3.0), (0.9, 4.0))


def test_they_lie_in_the_folder(tmp_path: Path) -> None:
    assert Lags.load(tmp_path) == Lags()
    with pytest.raises(ValueError, match="was not measured; choose a threshold"):
        Lags.load(tmp_path).threshold(3.0)
    MEASURED.save(tmp_path)
    assert Lags.load(tmp_path) == MEASURED
    searched = Lags(MEASURED.points, beam=2)
    searched.save(tmp_path)
    assert Lags.load(tmp_path) == searched
    beams = [f'{{"beam": {beam}, "points": []}}' for beam in ("0", "17", "1.5", "true", '"2"')]
    for spoiled in ("{", "[[0.2, 3], [0.5, 2]]", '[["a", 1], ["b", 2]]', "[1]", "{}", *beams):
        (tmp_path / "lags.json").write_text(spoiled)
        with pytest.raises(ValueError, match=r"lags.json: not pairs"):
            Lags.load(tmp_path)
