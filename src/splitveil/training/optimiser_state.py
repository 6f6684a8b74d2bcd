"""What an optimiser remembers between steps, as named tensors: the run's own SGD has momenta, others have anything."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def momenta(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies of the momentum buffers, named after the place of their parameter."""
    return {
        f"momentum.{place}": momentum.detach().clone()
        for place, parameter in enumerate(_parameters(optimiser))
        if (momentum := optimiser.state.get(parameter, {}).get("momentum_buffer")) is not None
    }


def load_momenta(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `momenta`; a parameter that the tensors lack starts without."""
    for place, parameter in enumerate(_parameters(optimiser)):
        momentum = tensors.get(f"momentum.{place}")
        if momentum is not None:
            # in the parameter's own memory order: the fused kernel wants equal strides
            optimiser.state[parameter]["momentum_buffer"] = torch.empty_like(parameter).copy_(momentum)


def all_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Copies of every tensor of the state, named after the place of the parameter and the name in the state."""
    return {
        f"{place}.{key}": value.detach().clone()
        for place, parameter in enumerate(_parameters(optimiser))
        for key, value in optimiser.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def load_all_tensors(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `all_tensors`."""
    parameters = _parameters(optimiser)
    capturable = any(group.get("capturable") for group in optimiser.param_groups)
    for name, value in tensors.items():
        place, key = name.split(".")
        parameter = parameters[int(place)]
        if value.shape == parameter.shape and key != "step":
            restored = torch.empty_like(parameter).copy_(value)  # in the parameter's own memory order
        else:  # the step counter lives on the CPU unless the optimiser can be captured
            restored = value.to(parameter.device if capturable else "cpu")
        optimiser.state[parameter][key] = restored


def _parameters(optimiser: torch.optim.Optimizer) -> list[nn.Parameter]:
    """Over all groups, in their order."""
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]
