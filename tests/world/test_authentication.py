"""Messages between PEs are accepted only with a code that only PEs of the world can compute."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from limits import HANG_SECONDS
from torch.distributed import Store, TCPStore

from triton_dist.bootstrap.authentication import AuthenticatedStore, AuthenticationError, Key, read_secret
from triton_dist.bootstrap.key_agreement import agree, create_key
from triton_dist.bootstrap.launch import Launch
from triton_dist.bootstrap.rendezvous import Member


@pytest.fixture
def store() -> Store:
    return TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), wait_for_workers=False)


@pytest.fixture
def key_file() -> int:
    return create_key()


def together(steps: list[Callable[[], Any]]) -> list[Any]:
    """What each returns, or the RuntimeError that it raises, when all run at the same time."""
    results: list[Any] = [None] * len(steps)

    def one(i: int) -> None:
        try:
            results[i] = steps[i]()
        except RuntimeError as error:
            results[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(steps))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
    return results


def agreed(
    store: Store, tables: list[list[Member]], secrets: list[bytes | None] | None = None, one_host: bool = True
) -> list[Any]:
    """The keys of PEs, PE i of which has seen ``tables[i]``."""
    return together(
        [
            lambda pe=pe, table=table: agree(
                store.clone(),
                table[pe],
                table,
                secrets[pe] if secrets else None,
                HANG_SECONDS,
                "PE 0",
                one_host=one_host,
            )[0]
            for pe, table in enumerate(tables)
        ]
    )


def same(keys: list[Any]) -> bool:
    assert all(isinstance(key, Key) for key in keys), keys
    return all(key.verify(keys[0].code(b"x"), b"x") for key in keys)


def test_parts_of_a_code_are_apart() -> None:
    key = Key(b"k" * 32)
    code = key.code(b"ab", b"c")
    assert key.verify(code, b"ab", b"c")
    for other in ((b"a", b"bc"), (b"abc",), (b"ab", b"c", b""), (b"ab", b"d")):
        assert not key.verify(code, *other)
    assert not Key(b"l" * 32).verify(code, b"ab", b"c")
    assert not key.derive(b"use").verify(code, b"ab", b"c")


def test_what_others_write_is_an_error(store: Store) -> None:
    ours = AuthenticatedStore(store, Key(b"k" * 32))
    ours.set("heap/0", '[1, "a"]')
    assert ours.get("heap/0") == b'[1, "a"]' and ours.get_all(["heap/0"]) == [b'[1, "a"]']
    genuine = store.get("heap/0")
    for planted in (b"", b"x", b'[1, "a"]', bytes(32) + b'[1, "a"]', genuine + b" ", genuine[:-1]):
        store.set("heap/0", planted)
        with pytest.raises(AuthenticationError, match=r"value of 'heap/0' .* was not written by a PE of this world"):
            ours.get("heap/0")
    store.set("heap/1", genuine)  # one PE's word as another's
    with pytest.raises(AuthenticationError):
        ours.get_all(["heap/1"])


def test_a_planted_entry_ends_an_exchange(store: Store) -> None:
    launch = Launch(0, 2, 0, 2, AuthenticatedStore(store, Key(b"k" * 32)))
    store.set("log/1", '[1, "../../../tmp/evil"]')
    with pytest.raises(AuthenticationError, match=r"value of 'log/1' .* was not written by a PE"):
        launch.exchange("log", "3")


def test_all_agree(store: Store, key_file: int) -> None:
    members = [Member.self(pe, 3, key=key_file) for pe in range(3)]
    keys = agreed(store, [members] * 3)
    assert same(keys)
    assert not any(store.get(f"proof/{pe}").count(os.pread(key_file, 32, 0)) for pe in range(3)), "the key itself"


def test_pes_that_see_different_members_do_not_agree(store: Store, key_file: int) -> None:
    members = [Member.self(pe, 2, key=key_file) for pe in range(2)]
    forged = [members[0], replace(members[1], detector="elsewhere")]
    for result in agreed(store, [members, forged]):
        assert "does not have the key of this world" in str(result)


def test_a_member_without_the_key(store: Store, key_file: int) -> None:
    """It has taken part in the rendezvous."""
    members = [Member.self(pe, 2, key=key_file) for pe in range(2)]
    store.set("proof/1", b"anything")
    [result] = agreed(store, [members])
    assert f"PE 1, process {os.getpid()}, does not have the key of this world" in str(result)


def test_a_key_that_is_no_key(store: Store, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"x" * 32)
    with (tmp_path / "key").open() as file:
        members = [Member.self(pe, 2, key=file.fileno()) for pe in range(2)]
        for result in agreed(store, [members] * 2):
            assert "the key of PE 0 (process" in str(result)
            assert "a memfd triton_dist_key is expected" in str(result)


def test_secrets(store: Store) -> None:
    members = [Member.self(pe, 2, has_secret=True) for pe in range(2)]
    members[1] = replace(members[1], kernel_identity="another")
    keys = agreed(store, [members] * 2, [b"s" * 32] * 2)
    assert same(keys)


def test_different_secrets(store: Store) -> None:
    members = [Member.self(pe, 2, has_secret=True) for pe in range(2)]
    for result in agreed(store, [members] * 2, [b"s" * 32, b"t" * 32]):
        assert "a different secret (TRITON_DIST_SECRET_FILE)" in str(result)


def test_a_secret_on_some_pes_only(store: Store) -> None:
    members = [Member.self(0, 2, has_secret=True), Member.self(1, 2)]
    for result in agreed(store, [members] * 2, [b"s" * 32, None]):
        assert str(result) == "TRITON_DIST_SECRET_FILE is set on PE 0 and not on PE 1: set it on all PEs"


def test_several_hosts_without_a_secret(store: Store) -> None:
    members = [Member.self(0, 2), replace(Member.self(1, 2), kernel_identity="another", host="far")]
    for result in agreed(store, [members] * 2, one_host=True):
        assert "PE 1 is on another host or in another container (far)" in str(result)
    other = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=10), wait_for_workers=False)
    with pytest.warns(UserWarning, match="several hosts, .* no secret in common"):
        keys = agreed(other, [members] * 2, one_host=False)
    assert same(keys)


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (b"x" * 15, 0o600, r"holds 15 bytes, and 16 to 4096 are allowed"),
        (b"x" * 5000, 0o600, r"holds 4097 bytes"),
        (b"x" * 32, 0o640, r"mode 0640: it must be yours, and other users must not be able to read it \(chmod 600\)"),
        (None, 0, "cannot be read"),
    ],
)
def test_a_file_that_holds_no_secret(tmp_path: Path, content: bytes | None, mode: int, message: str) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(RuntimeError, match=f"TRITON_DIST_SECRET_FILE='.*secret' .*{message}"):
        read_secret(str(path))


def test_no_file_at_all(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)  # must not wait for a writer
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(RuntimeError, match="is not a regular file"):
            read_secret(str(path))


def test_the_end_of_a_line_is_not_part_of_a_secret(tmp_path: Path) -> None:
    for name, content in (("a", b"0123456789abcdef"), ("b", b"0123456789abcdef\n")):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    assert read_secret(str(tmp_path / "a")) == read_secret(str(tmp_path / "b"))
