"""AdamW with decoupled decay, or Muon on the encoder's matrices and AdamW on the rest."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertpre.config import schema
from bertpre.model.bert import MultiHeadAttention


class PretrainingOptimizer:
    """Update the weights according to the options.

    AdamW uses bias correction and decays neither biases nor layer norms. Muon orthogonalises the
    updates of the matrices in the encoder's layers, with query, key and value apart; embeddings,
    heads and vectors stay with AdamW. Both use one learning rate, as Muon's updates are scaled to
    the size of AdamW's.

    Args:
        model: on its device already.
        options: the optimizer section.

    Source: google-research/bert optimization.py for what is decayed, embeddings included;
        Loshchilov and Hutter 2019 for the decay. The bias correction, which BERT's own code
        leaves out, is the paper's (Kingma and Ba 2015). Jordan et al. 2024 (Muon); Liu et al. 2025,
        section 2.2 (the scaling).
    """

    def __init__(self, model: nn.Module, options: schema.Optimizer) -> None:
        self._parts: list[tuple[nn.Parameter, nn.Parameter, slice]] = []
        self._named: dict[str, nn.Parameter] = dict(model.named_parameters())
        matrices = self._take_matrices(model) if options.name == "muon" else {}
        rest = list(self._named.values())
        self._named |= matrices
        # Biases and layer norms are the vectors of the model, everything else is a matrix.
        groups = [
            {"params": [p for p in rest if p.ndim >= 2], "weight_decay": options.weight_decay},
            {"params": [p for p in rest if p.ndim < 2], "weight_decay": 0.0},
        ]
        betas = (options.beta1, options.beta2)
        adamw = torch.optim.AdamW(
            groups, lr=options.learning_rate, betas=betas, eps=options.eps, fused=True
        )
        self.optimizers: list[torch.optim.Optimizer] = [adamw]
        if matrices:
            muon = torch.optim.Muon(
                list(matrices.values()),
                lr=options.learning_rate,
                weight_decay=options.weight_decay,
                momentum=options.momentum,
                adjust_lr_fn="match_rms_adamw",
            )
            self.optimizers.append(muon)

    def _take_matrices(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Move the encoder's matrices out of the named parameters, and split fused ones."""
        fused = {
            f"{name}.qkv.weight"
            for name, module in model.named_modules()
            if isinstance(module, MultiHeadAttention)
        }
        prefix = "bert.encoder.layers."
        names = [n for n, p in self._named.items() if n.startswith(prefix) and p.ndim == 2]
        matrices = {}
        for name in names:
            whole = self._named.pop(name)
            if name not in fused:
                matrices[name] = whole
                continue
            rows = len(whole) // 3
            for i, part in enumerate(("query", "key", "value")):
                place = slice(i * rows, (i + 1) * rows)
                view = nn.Parameter(whole.data[place])  # the same memory
                self._parts.append((view, whole, place))
                matrices[name.replace("qkv", part)] = view
        return matrices

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the rate of the next update."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate

    def step(self) -> None:
        """Update the weights from their gradients."""
        for view, whole, place in self._parts:
            assert whole.grad is not None
            view.grad = whole.grad[place]
        for optimizer in self.optimizers:
            optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return all moments and counts, on the CPU, as ``parameter/moment``."""
        return {
            f"{name}/{key}": value.detach().cpu().contiguous()
            for name, parameter in self._named.items()
            for optimizer in self.optimizers
            if parameter in optimizer.state
            for key, value in optimizer.state[parameter].items()
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        owners = {
            parameter: optimizer
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for key, value in state.items():
            name, _, moment = key.rpartition("/")
            parameter = self._named[name]
            owners[parameter].state[parameter][moment] = value.to(parameter.device)
