"""The state of device libraries in loaded modules: filled once per world, whenever loaded, and no launch without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from limits import HANG_SECONDS
from triton import knobs
from triton.compiler.compiler import LazyDict

from triton_dist import process_state, triton_api
from triton_dist.gpu import module_state
from triton_dist.gpu.module_state import LoadedModules
from triton_dist.process_state import of_process

PLAIN, SHMEM, OTHER, DIRECT = 11, 22, 33, 44  # CUmodules; their CUfunctions are ten times that
TRANSPORTS = {SHMEM: "nvshmem", OTHER: "nvshmem", DIRECT: "p2p"}

on_other_gpu: list[bool] = []  # not empty: cuda:1 is current, and not cuda:0


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module_state, "_transport", TRANSPORTS.get)
    monkeypatch.setattr(triton_api, "current_device", lambda: 1 if on_other_gpu else 0)
    on_other_gpu.clear()
    monkeypatch.setitem(process_state._instances, LoadedModules, LoadedModules())
    module_state.install()
    yield
    knobs.runtime.kernel_load_end_hook.remove(modules()._loaded)
    triton_api.guard_launches(modules()._refuse, on=False)


def modules() -> LoadedModules:
    return of_process(LoadedModules)


def bind(fill: module_state.Fill) -> None:
    """A world on cuda:0 that has both transports."""
    modules().bind(0, {"nvshmem": fill, "p2p": fill}, {})


def load(module: int) -> None:
    knobs.runtime.kernel_load_end_hook(module, 10 * module, f"kernel{module}", {}, "hash")


def launch(module: int) -> None:
    knobs.runtime.launch_enter_hook(LazyDict({"name": "", "function": 10 * module, "stream": 0}))


def guarded() -> bool:
    return modules()._refuse in knobs.runtime.launch_enter_hook.calls


def test_a_module_loaded_in_a_world_is_filled() -> None:
    filled: list[module_state.Module] = []
    bind(filled.append)
    load(PLAIN)
    load(SHMEM)
    assert filled == [module_state.Module(SHMEM, "kernel22", 0, "nvshmem")]
    launch(SHMEM)
    assert not guarded(), "launches must cost nothing when no module waits"


def test_a_module_loaded_before_the_world_is_filled_by_it() -> None:
    load(SHMEM)
    filled: list[module_state.Module] = []
    bind(filled.append)
    assert [module.handle for module in filled] == [SHMEM]
    launch(SHMEM)


def test_no_launch_without_a_world() -> None:
    load(PLAIN)
    assert not guarded()
    load(SHMEM)
    launch(PLAIN)
    with pytest.raises(RuntimeError, match=r"kernel22 uses shmem ops, and there is no world: call triton_dist\.init"):
        launch(SHMEM)


def test_a_second_world_fills_all_modules_again() -> None:
    bind(lambda module: None)
    load(SHMEM)
    load(OTHER)
    assert [module.handle for module in modules().unbind()] == [SHMEM, OTHER]
    with pytest.raises(RuntimeError, match="no world"):
        launch(OTHER)
    filled: list[module_state.Module] = []
    bind(filled.append)
    assert {module.handle for module in filled} == {SHMEM, OTHER}
    launch(SHMEM)
    assert not guarded()


def test_a_module_that_could_not_be_filled_is_not_launched() -> None:
    def fill(module: module_state.Module) -> None:
        raise RuntimeError("no luck")

    bind(fill)
    with pytest.raises(RuntimeError, match="no luck"):
        load(SHMEM)
    with pytest.raises(RuntimeError, match="did not get this world's state"):
        launch(SHMEM)
    assert modules().unbind() == [], "what was never filled must not be finalised"


def test_a_module_on_another_gpu_is_neither_filled_nor_launched() -> None:
    on_other_gpu.append(True)
    load(OTHER)
    filled: list[module_state.Module] = []
    bind(filled.append)
    load(SHMEM)
    assert filled == []
    for module in (OTHER, SHMEM):
        with pytest.raises(RuntimeError, match="is launched on cuda:1, but this PE's symmetric heap is on cuda:0"):
            launch(module)
    launch(PLAIN)


def test_modules_of_each_transport_are_filled_their_way() -> None:
    filled: list[tuple[str, int]] = []
    fill = {name: lambda module, name=name: filled.append((name, module.handle)) for name in ("nvshmem", "p2p")}
    load(DIRECT)
    modules().bind(0, fill, {})
    load(SHMEM)
    assert filled == [("p2p", DIRECT), ("nvshmem", SHMEM)]
    for module in (SHMEM, DIRECT):
        launch(module)


def test_a_module_of_a_transport_that_the_world_lacks_is_not_launched() -> None:
    load(DIRECT)
    modules().bind(0, {"nvshmem": lambda module: None}, {"p2p": "PE 0 cannot reach PE 1 by load and store"})
    load(SHMEM)
    launch(SHMEM)
    message = r"kernel44 was compiled for transport p2p, which this world does not have: PE 0 cannot reach PE 1"
    with pytest.raises(RuntimeError, match=message):
        launch(DIRECT)


def test_modules_are_filled_again_when_their_state_has_changed() -> None:
    modules().refill("p2p")  # without a world, nothing
    filled: list[int] = []
    load(DIRECT)
    bind(lambda module: filled.append(module.handle))
    load(SHMEM)
    filled.clear()
    modules().refill("p2p")
    assert filled == [DIRECT]
    on_other_gpu.append(True)
    load(55)
    TRANSPORTS[55] = "p2p"
    load(55)
    filled.clear()
    modules().refill("p2p")
    assert filled == [DIRECT], "a module of another GPU has no state"


def test_installing_twice_fills_once() -> None:
    module_state.install()
    filled: list[module_state.Module] = []
    bind(filled.append)
    load(SHMEM)
    assert len(filled) == 1


def test_a_world_does_not_end_while_a_module_is_filled() -> None:
    """The module would be taken for filled afterwards, and launched."""
    begun, go_on = threading.Event(), threading.Event()

    def fill(module: module_state.Module) -> None:
        begun.set()
        assert go_on.wait(HANG_SECONDS)

    bind(fill)
    threads = [threading.Thread(target=load, args=[SHMEM]), threading.Thread(target=modules().unbind)]
    threads[0].start()
    assert begun.wait(HANG_SECONDS)
    threads[1].start()
    threads[1].join(0.2)
    go_on.set()
    for thread in threads:
        thread.join()
    with pytest.raises(RuntimeError, match="there is no world"):
        launch(SHMEM)


def test_a_hook_of_others_is_not_passed_over_when_the_guard_goes() -> None:
    """Launches of other threads may be going through the list of hooks."""
    called: list[str] = []
    load(SHMEM)
    knobs.runtime.launch_enter_hook.add(theirs := lambda metadata: called.append("theirs"))
    try:
        hooks = iter(knobs.runtime.launch_enter_hook.calls)
        next(hooks)
        bind(lambda module: None)
        assert not guarded()
        for hook in hooks:
            hook(None)
    finally:
        knobs.runtime.launch_enter_hook.remove(theirs)
    assert called == ["theirs"]
