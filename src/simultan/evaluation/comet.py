"""COMET, a learned measure of quality; its package is large and not one of ours."""

from __future__ import annotations

from collections.abc import Sequence

from simultan.evaluation.instances import Instance


def measure_comet(instances: Sequence[Instance], model: str) -> float:
    """The score of a log by a COMET model of this name, or by a checkpoint (a .ckpt file)."""
    try:
        from comet import download_model, load_from_checkpoint
    except ImportError as error:
        raise ValueError("--comet needs its package: pip install unbabel-comet") from error
    for instance in instances:
        if not isinstance(instance.source, str) or instance.reference is None:
            raise ValueError(
                f"the sentence with index {instance.index} lacks its source or its reference, and"
                " COMET wants both: give --source and --reference"
            )
    scorer = load_from_checkpoint(model if model.endswith(".ckpt") else download_model(model))
    data = [{"src": i.source, "mt": i.prediction, "ref": i.reference} for i in instances]
    return float(scorer.predict(data, batch_size=8, gpus=0).system_score)
