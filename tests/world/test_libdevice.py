"""libdevice's functions in the CPU world: every one of them, its types, and its values against exact arithmetic."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as nvidias
from triton.language.extra.libdevice import tanh as imported_tanh

import triton_dist  # noqa: F401  # before kernels are decorated
from triton_dist.cpu.libdevice import implementation

MISSING = {"rcp64h": "__nv_rcp64h", "yn": "__nv_ynf", "jn": "__nv_jnf", "fast_tanhf": "fast_tanhf"}
"""What the CPU world does not have, and what its error names."""

INTEGERS = {"clz", "popc", "byte_perm", "mulhi", "mul24", "brev", "sad", "hadd", "rhadd", "ffs", "hiloint2double"}
SECOND_INTEGER = {"ldexp", "scalbn"}
SOURCES = {"uint": torch.uint32, "ull": torch.uint64, "int": torch.int32, "ll": torch.int64}


@triton.jit
def call(out, x, y, z, w, NAME: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if COUNT == 1:
        value = getattr(libdevice, NAME)(tl.load(x + i))
    elif COUNT == 2:
        value = getattr(libdevice, NAME)(tl.load(x + i), tl.load(y + i))
    elif COUNT == 3:
        value = getattr(libdevice, NAME)(tl.load(x + i), tl.load(y + i), tl.load(z + i))
    else:
        value = getattr(libdevice, NAME)(tl.load(x + i), tl.load(y + i), tl.load(z + i), tl.load(w + i))
    tl.store(out + i, value)


def types_of(name: str) -> torch.dtype:
    """A type that the function takes first."""
    prefix = re.split("2|_as_", name)[0]
    if name in INTEGERS or "_as_" in name or re.match("u?int2|u?ll2|float2|double2", name):
        known = SOURCES | {"longlong": torch.int64, "double": torch.float64, "float": torch.float32}
        return known.get(prefix, torch.int32)
    return torch.float64 if name in ("rcp64h", "isfinited") else torch.float32


def functions() -> list[str]:
    return sorted(name for name, value in vars(libdevice).items() if inspect.isfunction(value))


@pytest.mark.parametrize("name", functions())
def test_every_function(name: str) -> None:
    dtype, count = types_of(name), len(inspect.signature(getattr(libdevice, name)).parameters)
    values = [torch.full((4,), 1, dtype=dtype) for _ in range(4)]
    if name in SECOND_INTEGER:
        values[1] = values[1].int()
    if name == "sad":
        values[2] = values[2].to(torch.uint32)
    if name in ("yn", "jn"):
        values[0] = values[0].int()
    out = torch.full((4,), -77.0, dtype=torch.float64)

    def run() -> None:
        call[(1,)](out, *values, NAME=name, COUNT=count, BLOCK=4)

    if name in MISSING:
        with pytest.raises(RuntimeError, match=f"{__file__}:.*{MISSING[name]}"):
            run()
    else:
        run()
        assert (out != -77).all()


REFERENCES: dict[str, Callable[..., object]] = {
    **{name: getattr(mpmath, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "expm1", "log")},
    **{name: getattr(mpmath, name) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2", "log10")},
    **{name: getattr(mpmath, name) for name in ("sinpi", "cospi", "erf", "erfc", "erfinv", "cbrt", "hypot", "log1p")},
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "exp2": lambda x: mpmath.power(2, x),
    "exp10": lambda x: mpmath.power(10, x),
    "log2": lambda x: mpmath.log(x, 2),
    "pow": mpmath.power,
    "lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "tgamma": mpmath.gamma,
    "normcdf": mpmath.ncdf,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "erfcinv": lambda x: mpmath.erfinv(1 - x),
    "normcdfinv": lambda x: mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1),
    "j0": lambda x: mpmath.besselj(0, x),
    "j1": lambda x: mpmath.besselj(1, x),
    "y0": lambda x: mpmath.bessely(0, x),
    "y1": lambda x: mpmath.bessely(1, x),
    "cyl_bessel_i0": lambda x: mpmath.besseli(0, x),
    "cyl_bessel_i1": lambda x: mpmath.besseli(1, x),
    "rhypot": lambda x, y: 1 / mpmath.hypot(x, y),
    "fdim": lambda x, y: max(x - y, 0),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_values(name: str) -> None:
    count = len(inspect.signature(getattr(libdevice, name)).parameters)
    low = 1.01 if name == "acosh" else 0.01
    high = 0.99 if name in ("asin", "acos", "atanh", "erfinv", "erfcinv", "normcdfinv") else 6.0
    x, y = np.linspace(low, high, 16, dtype=np.float32), np.linspace(2.5, 0.25, 16, dtype=np.float32)
    found = implementation(f"__nv_{name}f")(*(x, y)[:count]).astype(np.float32)
    mpmath.mp.prec = 100
    exact = [REFERENCES[name](*map(mpmath.mpf, map(float, at[:count]))) for at in zip(x, y, strict=True)]
    np.testing.assert_allclose(found, np.array([float(mpmath.re(e)) for e in exact]), rtol=3e-7, atol=1e-6)


floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.sampled_from(["fadd", "fsub", "fmul", "fdiv", "frcp", "fsqrt", "fmaf"]), floats, floats, floats)
def test_directed_rounding(operation: str, x: float, y: float, z: float) -> None:
    arguments = {"frcp": (x,), "fsqrt": (abs(x),), "fmaf": (x, y, z)}.get(operation, (x, y))
    if (operation == "fdiv" and y == 0) or (operation == "frcp" and x == 0):
        return
    arrays = [np.array([a], np.float32) for a in arguments]
    with np.errstate(all="ignore"):
        down, up, nearest, zero = (
            implementation(f"__nv_{operation}_{mode}")(*arrays)[0] for mode in ("rd", "ru", "rn", "rz")
        )
    a = [Fraction(v) for v in arguments]

    def above(number: np.float32) -> bool:
        """Whether it is larger than the exact result."""
        if not math.isfinite(number):
            return bool(number > 0)
        r = Fraction(float(number))
        if operation == "fsqrt":
            return r * r > a[0]
        exact = {
            "fadd": lambda: a[0] + a[1], "fsub": lambda: a[0] - a[1], "fmul": lambda: a[0] * a[1],
            "fdiv": lambda: a[0] / a[1], "frcp": lambda: 1 / a[0], "fmaf": lambda: a[0] * a[1] + a[2],
        }[operation]()  # fmt: skip
        return r > exact

    with np.errstate(all="ignore"):
        assert not above(down) and (down == up or (above(up) and np.nextafter(down, np.float32(np.inf)) == up))
    assert nearest in (down, up) and zero == (down if above(np.float32(0)) is False and down >= 0 else up)
    with np.errstate(all="ignore"):
        plain = {"fadd": np.add, "fsub": np.subtract, "fmul": np.multiply, "fdiv": np.divide, "fsqrt": np.sqrt}
        if operation in plain:
            assert nearest == plain[operation](*arrays)[0]


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_bits(x: int, y: int) -> None:
    a, b = np.array([x], np.int32), np.array([y], np.int32)

    def of(name: str, *arguments: np.ndarray) -> int:
        return int(implementation(f"__nv_{name}")(*arguments)[0])

    bits = f"{x % 2**32:032b}"
    assert of("popc", a) == bits.count("1")
    assert of("clz", a) == 32 - (x % 2**32).bit_length()
    assert of("ffs", a) == (0 if x == 0 else len(bits) - bits.rindex("1"))
    assert of("brev", a) % 2**32 == int(bits[::-1], 2)
    assert of("mulhi", a, b) == x * y >> 32
    assert of("hadd", a, b) == (x + y) >> 1
    joined = implementation("__nv_hiloint2double")(a, b)
    assert of("double2hiint", joined) == x and of("double2loint", joined) == y
    assert of("byte_perm", a, b, np.array([0x3210], np.int32)) == x
    assert of("byte_perm", a, b, np.array([0x7654], np.int32)) == y


def test_conversions_stay_in_range() -> None:
    x = np.array([-1e30, -2.5, -0.5, 0.5, 1.5, 2.5, 3e9, np.inf, np.nan], np.float32)
    found = implementation("__nv_float2int_rn")(x).tolist()
    assert found == [-(2**31), -2, 0, 0, 2, 2, 2**31 - 1, 2**31 - 1, 0]
    assert implementation("__nv_float2uint_rz")(x).view(np.uint32).tolist() == [
        0,
        0,
        0,
        0,
        1,
        2,
        3000000000,
        2**32 - 1,
        0,
    ]


@triton.jit
def by_other_names(out, x):
    tl.store(out, imported_tanh(tl.load(x)))
    tl.store(out + 1, nvidias.tanh(tl.load(x)))
    tl.store(out + 2, libdevice.tanh(0.5))


@triton.jit
def of_half(x):
    tl.store(x, libdevice.exp(tl.load(x)))


def test_names_scalars_and_types() -> None:
    out = torch.zeros(3)
    by_other_names[(1,)](out, torch.full((1,), 0.5))
    torch.testing.assert_close(out, torch.full((3,), math.tanh(0.5)))
    with pytest.raises(RuntimeError, match="KeyError"):  # as the compiler says it: libdevice has no such type
        of_half[(1,)](torch.zeros(1, dtype=torch.float16))
