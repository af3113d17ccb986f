"""Step 13 of the way of a reading: cut a network's parameters into pieces, one a process (FSDP2), and put them
together.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

__all__ = ["like", "shard", "whole"]


def shard(network: nn.Module) -> nn.Module:
    """Cut the parameters over all processes of the default group; each holds its piece, and all of them for a moment
    when it computes. Every process calls this, as it does :func:`whole`; the first one's scaling is everybody's.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for tensor in (*network.parameters(), *network.buffers()):
        torch.distributed.broadcast(tensor.detach(), src=0)  # as DistributedDataParallel does
    device = next(network.parameters()).device
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    return cast(nn.Module, fully_shard(network, mesh=mesh))


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor; a piece is put together with the others."""
    return cast(Tensor, tensor.full_tensor()) if hasattr(tensor, "full_tensor") else tensor


def like(value: Tensor, parameter: Tensor) -> Tensor:
    """The whole tensor ``value`` cut as ``parameter`` is. All processes have ``value``, so nothing is sent."""
    if not hasattr(parameter, "full_tensor") or value.shape != parameter.shape:
        return value
    from torch.distributed.tensor import distribute_tensor

    cut: Any = parameter
    return distribute_tensor(value.to(cut.device), cut.device_mesh, cut.placements, src_data_rank=None)
