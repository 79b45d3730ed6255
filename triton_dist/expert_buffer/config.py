"""DeepEP's ``Config``, of which the number of SMs has an effect here."""

from __future__ import annotations

from dataclasses import dataclass, fields

from triton_dist.kernels.options import check_int

__all__ = ["Config"]

_HEADER = 16 * 16 + 4 * 128
"""Bytes of a row's ids and weights, of up to 16 choices, and of 128 scales."""


@dataclass(frozen=True)
class Config:
    """How ``Buffer.dispatch`` and ``combine`` work.

    Attributes:
        num_sms: how many SMs take part where ``Buffer``'s ``max_tokens`` is more than 512; the same on all PEs.
        num_max_nvl_chunked_send_tokens, …: DeepEP's chunks, without effect: slots are as large as rounds need them.

    Raises:
        TypeError, ValueError: one of them is no int, or not positive.
    """

    num_sms: int = 20
    num_max_nvl_chunked_send_tokens: int = 6
    num_max_nvl_chunked_recv_tokens: int = 256
    num_max_rdma_chunked_send_tokens: int = 6
    num_max_rdma_chunked_recv_tokens: int = 256

    def __post_init__(self) -> None:
        for field in fields(self):
            check_int("Config", field.name, getattr(self, field.name), 1)

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """Bytes of symmetric memory, at most about, that dispatch and combine of rows of so many bytes take in rounds:
        slots of 8 tokens, or of 24 on Hopper GPUs, for each SM, PE and one of four rounds. Nothing need be done with
        it."""
        check_int("Config", "hidden_bytes", hidden_bytes, 1)
        check_int("Config", "num_ranks", num_ranks, 1)
        return 4 * num_ranks * self.num_sms * (24 + 8) * (hidden_bytes + _HEADER)

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: there is no second buffer. Memory between hosts is made on first use, and grows with ``max_tokens``."""
        return 0
