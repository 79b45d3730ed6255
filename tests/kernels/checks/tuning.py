"""kernels.tune runs every algorithm on all PEs; what it has measured is what ``auto`` takes from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from harness import main as run
from harness import raises

import triton_dist
from triton_dist import kernels
from triton_dist.kernels import tuning
from triton_dist.kernels.choice.choose import Choices
from triton_dist.kernels.communicator import Communicator
from triton_dist.kernels.gemm import choice as of_gemms
from triton_dist.kernels.norm import choice as of_norms

_Ways = Mapping[str, Callable[[], object]]


@contextmanager
def measured(times: Callable[[tuple[str, ...]], list[float]]) -> Iterator[list[tuple[str, ...]]]:
    """``measure`` takes these times; which algorithms it was given, call after call."""
    given: list[tuple[str, ...]] = []

    def instead(comm: Any, ways: _Ways) -> dict[str, float]:
        given.append(tuple(ways))
        return dict(zip(ways, times(tuple(ways)), strict=True))

    plain, tuning.measure = tuning.measure, instead
    try:
        yield given
    finally:
        tuning.measure = plain


@contextmanager
def calls_of(operations: tuple[str, ...]) -> Iterator[dict[str, list[tuple[int, int | None]]]]:
    """By operation, the rows of the first argument and ``rows=`` of each call that is tuned."""
    given: dict[str, list[tuple[int, int | None]]] = {name: [] for name in operations}
    plain = {name: getattr(tuning._MODULES[name], name) for name in operations}

    def noting(name: str) -> Callable[..., object]:
        def call(x: torch.Tensor, *others: Any, **options: Any) -> object:
            given[name].append((x.shape[0], options.get("rows")))
            return plain[name](x, *others, **options)

        return call

    for name in operations:
        setattr(tuning._MODULES[name], name, noting(name))
    try:
        yield given
    finally:
        for name, function in plain.items():
            setattr(tuning._MODULES[name], name, function)


@contextmanager
def chosen_by_times() -> Iterator[None]:
    """GEMMs and norms are chosen as on GPUs."""
    modules: tuple[Any, ...] = of_gemms, of_norms
    plain = of_gemms.triton_dist
    for module in modules:
        module.triton_dist = SimpleNamespace(kind=lambda: "gpu")
    try:
        yield
    finally:
        for module in modules:
            module.triton_dist = plain


def check_every_algorithm_runs(world: triton_dist.World) -> None:
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[method-assign]
    logging.getLogger("triton_dist").addHandler(handler)
    assert kernels.tune(max_tokens=5, hidden=64, weights=[(32, 64)]) == {}
    logging.getLogger("triton_dist").removeHandler(handler)
    assert [(record.levelname, "nothing was measured" in record.getMessage()) for record in said] == (
        [("WARNING", True)] if world.pe == 0 else []
    )
    assert kernels.tune("gemm_reduce_scatter", max_tokens=1, weights=[(32, 64)], dtype=torch.float8_e4m3fn) == {}


def check_what_is_tuned(world: triton_dist.World) -> None:
    n = world.n_pes
    with measured(lambda ways: [1.0] * len(ways)) as given:
        result = kernels.tune("all_reduce", "gemm_all_scatter", max_tokens=20, hidden=16, weights=[(8, 4)], store=False)
    assert set(given) >= {("one_shot", "two_shot", "exchange", "two_exchanges", "push", "direct"), ("portable",)}
    assert not any("copy_engine" in ways for ways in given), "what refuses a call is not measured"
    assert list(result) == ["all_reduce", "local_gemm", "gemm_all_scatter"]
    assert list(result["all_reduce"]) == [(32 * rows,) for rows in (1, 4, 16, 20)]
    assert list(result["gemm_all_scatter"]) == [(rows, 4, 8) for rows in (1, 4, 16, 20)]
    with measured(lambda ways: [1.0] * len(ways)):
        result = kernels.tune("reduce_scatter", "norm_all_gather", max_tokens=4, hidden=16, store=False)
    forms = {"": "", "rows": ", scales of rows", "blocks": ", scales of blocks"}
    for scales, k in ((("whole", "rows", "blocks"), 128), (("rows",), 128), (("whole", "blocks"), 40)):
        with measured(lambda ways: [1.0] * len(ways)):
            how: dict[str, Any] = {"dtype": torch.float8_e4m3fn, "scales": scales, "store": False}
            found = kernels.tune("gemm_reduce_scatter", max_tokens=1, weights=[(k, 32)], **how)
        made = [form for form in forms if (form or "whole") in scales and (form != "blocks" or k % 128 == 0)]
        names = [f"{name}{forms[form]}" for form in made for name in ("local_gemm", "gemm_reduce_scatter")]
        assert list(found) == names, (found, names)
    each = [-(-rows // n) for rows in (1, 4)]
    assert list(result["reduce_scatter"]) == [(32 * n * rows,) for rows in each]
    assert list(result["norm_all_gather"]) == [(rows, 16) for rows in each]


SHARED = "all_gather_gemm", "gemm_reduce_scatter", "reduce_scatter_norm", "norm_all_gather"
"""Operations on rows that PEs share."""


def check_shards_that_differ_are_tuned(world: triton_dist.World) -> None:
    """Every M is measured as it is called, and stored as what ``auto`` looks for, the same on all PEs."""
    n, most = world.n_pes, 5 * world.n_pes - 1
    each = [-(-rows // n) for rows in (1, 4, most)]
    with calls_of(SHARED) as given, measured(lambda ways: [1.0] * len(ways)):
        found = kernels.tune(*SHARED, max_tokens=most, hidden=16, weights=[(8, 12)], store=False)
    assert list(found["gemm_reduce_scatter"]) == [(rows, 12, 8) for rows in (1, 4, most)]
    assert list(found["reduce_scatter_norm"]) == [(rows, 16) for rows in (1, 4, most)]
    assert list(found["all_gather_gemm"]) == [(rows, 12, 8) for rows in dict.fromkeys(each)]
    assert list(found["norm_all_gather"]) == [(rows, 16) for rows in dict.fromkeys(each)]
    own = min(each[-1], most - world.pe * each[-1])
    whole = {"gemm_reduce_scatter": (most, None), "reduce_scatter_norm": (most, None)}
    last = {name: shapes[-1] for name, shapes in given.items()}
    assert last == whole | {"all_gather_gemm": (own, most), "norm_all_gather": (own, most)}, last


def check_auto_takes_what_was_fastest_for_shards_that_differ(world: triton_dist.World) -> None:
    """As on GPUs, where GEMMs and norms are chosen by times, also for an M that was not measured itself."""
    ways: dict[str, tuple[str, ...]] = {
        "gemm_reduce_scatter": ("fused", "bulk_synchronous"),
        "reduce_scatter_norm": ("unfused", "fused"),
        "norm_all_gather": ("unfused", "fused"),
    }
    most = 5 * world.n_pes - 1
    for name, algorithms in ways.items():
        for fastest in algorithms:
            with Communicator() as comm, chosen_by_times():
                with measured(lambda ways, fastest=fastest: [1.0 if way == fastest else 2.0 for way in ways]):
                    sizes: dict[str, Any] = {"hidden": 16} if "norm" in name else {"weights": [(8, 12)]}
                    kernels.tune(name, max_tokens=most, **sizes, dtype=torch.float32, store=False, group=comm)
                made = comm.own(Choices)._made
                for m in (most, most - 2):
                    rows = len(range(m)[world.pe * -(-m // world.n_pes) :][: -(-m // world.n_pes)])
                    made.clear()
                    if name == "gemm_reduce_scatter":
                        kernels.gemm_reduce_scatter(torch.ones(m, 8), torch.ones(8, 12), group=comm)
                    elif name == "reduce_scatter_norm":
                        kernels.reduce_scatter_norm(torch.ones(m, 16), group=comm)
                    else:
                        kernels.norm_all_gather(torch.ones(rows, 16), rows=m, group=comm)
                    taken = [way for (case, *_), way in made.items() if case.operation == name]
                    assert taken == [fastest], f"{name}, {m} rows: {made}"


def check_auto_takes_what_was_fastest(world: triton_dist.World) -> None:
    x = triton_dist.zeros(1024, dtype=torch.float32)
    with Communicator() as tuned, Communicator() as other:
        kernels.all_reduce(x, group=tuned)
        for fastest in ("push", "direct", "two_shot"):
            with measured(lambda ways, fastest=fastest: [1.0 if way == fastest else 2.0 for way in ways]):
                kernels.tune("all_reduce", max_tokens=8, hidden=128, dtype=x.dtype, store=False, group=tuned)
            kernels.all_reduce(x, group=tuned)
            assert set(tuned.own(Choices)._made.values()) == {fastest}
        assert not other.own(Choices)._tables[0].entries, "those of others stay as they are"


def check_wrong_arguments(world: triton_dist.World) -> None:
    good: dict[str, Any] = {"max_tokens": 4, "hidden": 8, "weights": [(8, 8)]}
    for change, message in (
        ({"max_tokens": 0}, "max_tokens must be a positive int, got 0"),
        ({"max_tokens": 4.0}, "max_tokens must be a positive int, got 4.0"),
        ({"hidden": -1}, "hidden must be a positive int"),
        ({"weights": [(0, 8)]}, "pairs .K, N. of positive ints"),
        ({"weights": [(8, 8, 8)]}, "pairs .K, N. of positive ints, got .*8, 8, 8"),
        ({"weights": [8]}, "pairs .K, N. of positive ints, got .*8"),
        ({"dtype": torch.int32}, "dtype must be"),
        ({"scales": ("columns",)}, "scales are some of whole, rows, blocks, got 'columns'"),
        ({"dtype": torch.float8_e5m2}, "hidden is of collectives and norms"),
        ({"hidden": 0, "weights": ()}, "give hidden=, for collectives and norms, or weights="),
    ):
        with raises(ValueError, f"tune: .*{message}"):
            kernels.tune(**{**good, **change})
    for change, message in (
        ({"weights": 5}, "weights must be a sequence of pairs .K, N., got 5 of type int"),
        ({"weights": None}, "weights must be a sequence of pairs .K, N., got None"),
        ({"weights": "8x8"}, "weights must be a sequence of pairs .K, N., got '8x8'"),
        ({"scales": None}, "scales must be a sequence of names, got None"),
        ({"scales": "rows"}, "scales must be a sequence of names, got 'rows' of type str"),
    ):
        with raises(TypeError, f"tune: {message}"):
            kernels.tune(**{**good, **change})
    with raises(ValueError, "scales are some of whole, rows, blocks, got .'rows'."):
        kernels.tune(**good, scales=[["rows"]])
    with raises(ValueError, "tune: 'flash_decode' is none of all_gather, "):
        kernels.tune("flash_decode", **good)
    with raises(ValueError, "tune: all_reduce needs hidden="):
        kernels.tune("all_reduce", max_tokens=4, weights=[(8, 8)])
    with raises(ValueError, "tune: all_gather_gemm needs weights="):
        kernels.tune("all_gather_gemm", max_tokens=4, hidden=8)


if __name__ == "__main__":
    run(globals())
