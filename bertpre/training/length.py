"""How long a run is: its steps, from steps, epochs, tokens or hours. Needs no PyTorch."""

import math
from collections.abc import Mapping
from typing import Any

from bertpre.config.schema import Pretrain
from bertpre.errors import ConfigError

DEFAULT_STEPS = 10_000


def planned_steps(options: Pretrain, report: Mapping[str, Any]) -> int | None:
    """Return the number of updates; None where hours decide, as the speed must be measured.

    Args:
        options: the pretrain section.
        report: of the data folder: its examples and the tokens of an epoch.

    Raises:
        ConfigError: more than one length is stated.
    """
    names = ("max_steps", "max_epochs", "max_tokens", "max_hours")
    stated = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if len(stated) > 1:
        shown = ", ".join(f"pretrain.{name}: {value:g}" for name, value in stated.items())
        raise ConfigError(f"a run has one length, found {shown}", "state one of them only")
    if options.max_hours is not None:
        return None
    num_examples = report["training_examples"]
    if options.max_epochs is not None:
        return _steps_for(options.max_epochs * num_examples, options)
    if options.max_tokens is not None:
        return _steps_for(options.max_tokens / report["mean_length"], options)
    return options.max_steps or DEFAULT_STEPS


def _steps_for(examples: float, options: Pretrain) -> int:
    missing = options.global_batch_size - (
        options.initial_global_batch_size or options.global_batch_size
    )
    # While the batch grows in a line, half of what it will have grown is missing on average.
    mean_batch = options.global_batch_size - missing * options.batch_ramp_ratio / 2
    return max(1, math.ceil(examples / mean_batch - 1e-9))
