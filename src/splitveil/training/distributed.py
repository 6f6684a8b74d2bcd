"""Many processes, one run: `torchrun --nproc_per_node=N -m splitveil train ...` (gloo on CPU, nccl on GPU).

Each process trains on its share of every batch. Surrogates and batch normalisation see the *global* batch, so that a
step of N processes equals the step of one process on the same pictures.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from splitveil.core.errors import UsageError


class _SumOverProcesses(torch.autograd.Function):
    """All-reduce; every process's output depends on every input, so the gradients are summed the same way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone()
        dist.all_reduce(total)
        return total


class _Gather(torch.autograd.Function):
    """All-gather along the batch; the gradient of the local part is the sum over processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone()
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]


def start(device: torch.device) -> None:
    """Join the process group that torchrun describes in the environment; nothing without torchrun.

    On GPUs ("cuda") each process takes its own; a machine that has GPUs may still train on its CPU.
    """
    if "WORLD_SIZE" not in os.environ or not dist.is_available() or dist.is_initialized():
        return
    if device.type == "cuda":
        own, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if device.index is not None and int(os.environ["WORLD_SIZE"]) > 1:
            raise UsageError(
                f"Many processes cannot share {device}: each takes a GPU of its own.", "Use --device cuda."
            )
        if own >= there:
            raise UsageError(
                f"Process {own} has no GPU of its own: this machine has {there}.",
                "Start fewer processes (--nproc_per_node), or use --device cpu.",
            )
        torch.cuda.set_device(own if device.index is None else device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")


def stop() -> None:
    """Leave the process group."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def world() -> tuple[int, int]:
    """(rank, number of processes)."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def is_main() -> bool:
    """True in the process that writes files."""
    return world()[0] == 0


def agreed(decision: bool) -> bool:
    """The first process's decision, in all of them."""
    if world()[1] == 1:
        return decision
    answer = [decision]
    dist.broadcast_object_list(answer, src=0)
    return answer[0]


def barrier() -> None:
    """Wait for all processes."""
    if world()[1] > 1:
        dist.barrier()


def gather_batch(z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The global batch, with gradient to the local part.

    Every process computes the same loss L from all features. The gather's backward sums the processes' equal
    gradients (N·∂L/∂z) and DistributedDataParallel averages over N, which leaves ∂L/∂θ of one process.
    """
    if world()[1] == 1:
        return z, y
    labels = [torch.empty_like(y) for _ in range(world()[1])]
    dist.all_gather(labels, y)
    return _Gather.apply(z.contiguous()), torch.cat(labels)


def copy_from_main(module: nn.Module) -> None:
    """Give every process the main one's parameters, buffers and stream of random numbers."""
    if world()[1] == 1:
        return
    state = module.state_dict()
    for value in state.values():
        dist.broadcast(value, 0)
    own = getattr(module, "noise_generator", None)
    if isinstance(own, torch.Generator):
        device = next(iter(state.values())).device
        seed = torch.tensor(own.initial_seed() % 2**63, device=device)  # a seed may need all 64 bits, int64 holds 63
        dist.broadcast(seed, 0)
        own.manual_seed(int(seed))


class GlobalBatchNorm(nn.BatchNorm2d):
    """Batch normalisation over all processes; works on CPU too, where torch's own does not."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or world()[1] == 1:
            return super().forward(x)
        xf = x.float()
        count = x.numel() // x.shape[1] * world()[1]
        mean = _SumOverProcesses.apply(xf.sum(dim=(0, 2, 3))) / count
        centred = xf - mean[:, None, None]
        # two passes, as a single process computes it
        var = _SumOverProcesses.apply(centred.square().sum(dim=(0, 2, 3))) / count
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                # without momentum: the plain average over all batches
                share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean.detach(), share)
                self.running_var.lerp_(var.detach() * count / max(count - 1, 1), share)
        y = centred * torch.rsqrt(var + self.eps)[:, None, None]
        return (y * self.weight[:, None, None] + self.bias[:, None, None]).to(x.dtype)


def with_global_batch_norm(module: nn.Module) -> nn.Module:
    """Exchange every BatchNorm2d for one over all processes, keeping weights and statistics."""
    for child in module.modules():
        if type(child) is nn.BatchNorm2d:
            child.__class__ = GlobalBatchNorm
    return module
