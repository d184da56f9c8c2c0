"""The progress bar: in a narrow terminal the count and the time left stay."""

import io

import pytest
from rich.console import Console

from simultan.config import TrainConfig
from simultan.train.folder import RunFolder
from simultan.train.journal import Journal


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_count_and_time_left_are_always_shown(tmp_path, width):
    with Journal(RunFolder(tmp_path), TrainConfig(updates=20_000), 0, tensorboard=False) as journal:
        values = {"loss": 1.943, "nll": 1.584, "latency_average": 2.79, "latency_variance": 0.27}
        journal.note("train", 1_500, {**values, "tokens_per_second": 6_959.0})
        console = Console(file=io.StringIO(), width=width)
        console.print(journal._progress.get_renderable())
    (line,) = console.file.getvalue().splitlines()
    assert len(line) <= width
    assert "━" in line
    assert " 1500/20000 " in line
    assert ":--" in line
    assert "loss 1.943" in line
    assert ("6,959 tokens/s" in line) == (width == 160)
