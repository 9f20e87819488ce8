"""torch.compile for the encoder's layers: on a GPU it joins the steps between matrix products."""

import logging
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from bertpre.model.bert import Encoder

log = logging.getLogger(__name__)


def compile_layers(encoder: Encoder) -> None:
    """Have the layers compiled when they first run.

    One layer's code does for all, and the number of tokens is a symbol in it, as no two batches
    have the same. So compilation settles in the first updates; each one is logged.
    """
    backend = _LoggedInductor()
    for layer in encoder.layers:
        layer.compile(dynamic=True, backend=backend)


class _LoggedInductor:
    """PyTorch's own compiler, which tells how long each part took."""

    def __init__(self) -> None:
        from torch._dynamo import lookup_backend  # takes seconds, and most runs do not compile

        self._inductor = lookup_backend("inductor")
        self._num_compiled = 0

    def __call__(self, graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        start = time.monotonic()
        compiled: Callable[..., Any] = self._inductor(graph, inputs)
        self._num_compiled += 1
        seconds = time.monotonic() - start
        log.info("compiled part %d of the layers in %.0f s", self._num_compiled, seconds)
        return compiled
