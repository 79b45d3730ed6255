"""The functions of ``triton.language.extra.libdevice``, on numpy arrays, by the symbols that Triton's bindings call.

Triton's bindings (``triton.language.extra.cuda.libdevice``) handle types, promotion and broadcasting. An implementation
gets arrays of one shape, and its result is converted to the type that Triton expects. Functions of float32 are computed
in float64 and rounded once, which is closer to the exact value than a GPU's, whose results differ in the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch

__all__ = ["implementation"]

_Function = Callable[..., Any]


def implementation(symbol: str) -> _Function:
    """The implementation of ``symbol`` (``__nv_expf``, ``__ocml_exp_f32``).

    Raises:
        NotImplementedError: the CPU world has no such function.
    """
    name = symbol.removeprefix("__nv_")
    if symbol.startswith("__ocml_"):
        name = symbol.removeprefix("__ocml_").removesuffix("_f32").removesuffix("_f64")
    for candidate in (name, name.removesuffix("f")):
        if candidate in _FUNCTIONS:
            return _FUNCTIONS[candidate]
    raise NotImplementedError(
        f"the CPU world has no implementation of {symbol}; it has the functions of libdevice that numpy, torch.special"
        " and integer arithmetic give"
    )


# ---- functions of real numbers


def _in_double(function: _Function) -> _Function:
    return lambda *x: function(*(np.asarray(a, np.float64) for a in x))


def _of_torch(function: _Function) -> _Function:
    return _in_double(lambda x: function(torch.from_numpy(np.ascontiguousarray(x))).numpy())


def _each(function: Callable[..., float]) -> _Function:
    """Apply ``function`` to one number at a time; NaN outside its domain."""

    def value(*x: float) -> float:
        try:
            return function(*x)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return _in_double(np.vectorize(value, otypes=[np.float64]))


def _gamma(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else math.gamma(x)


def _root_of_squares(*x: Any) -> Any:
    return np.sqrt(sum(a * a for a in x))


def _round_half_away(x: Any) -> Any:
    whole = np.trunc(x)
    return np.copysign(whole + np.copysign(np.abs(x - whole) >= 0.5, x), x)


def _logb(x: Any) -> Any:
    exponent = np.frexp(x)[1] - 1.0
    return np.where(x == 0, -np.inf, np.where(np.isfinite(x), exponent, x * x))


def _ilogb(x: Any) -> Any:
    return np.where(np.isinf(x), 2**31 - 1, np.where((x == 0) | np.isnan(x), -(2**31), np.frexp(x)[1] - 1))


_REAL: dict[str, _Function] = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "sqrt", "cbrt", "floor", "ceil", "trunc")},
    **{name: getattr(np, name) for name in ("rint", "hypot", "copysign", "fmod")},
    **{f"a{name}": getattr(np, f"arc{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "tan2")},
    "nearbyint": np.rint,
    "fabs": np.abs,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "exp10": lambda x: np.power(10.0, x),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)),
    "pow": np.power,
    "powi": np.power,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": _root_of_squares,
    "norm4d": _root_of_squares,
    "rnorm3d": lambda *x: 1 / _root_of_squares(*x),
    "rnorm4d": lambda *x: 1 / _root_of_squares(*x),
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0)),
    "saturatef": lambda x: np.where(np.isnan(x), 0, np.clip(x, 0, 1)),
    "round": _round_half_away,
    "logb": _logb,
    "ilogb": _ilogb,
    "ldexp": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "scalbn": lambda x, n: np.ldexp(x, n.astype(np.int32)),
    "isnan": np.isnan,
    "isnand": np.isnan,
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
    "signbitd": np.signbit,
    "fast_sinf": np.sin,
    "fast_cosf": np.cos,
    "fast_tanf": np.tan,
    "fast_tanhf": np.tanh,
    "fast_expf": np.exp,
    "fast_exp10f": lambda x: np.power(10.0, x),
    "fast_logf": np.log,
    "fast_log2f": np.log2,
    "fast_log10f": np.log10,
    "fast_powf": np.power,
    "fast_fdividef": np.divide,
    "frsqrt_rn": lambda x: 1 / np.sqrt(x),
}

_SPECIAL = {
    "erf": "erf",
    "erfc": "erfc",
    "erfinv": "erfinv",
    "erfcx": "erfcx",
    "normcdf": "ndtr",
    "normcdfinv": "ndtri",
    "j0": "bessel_j0",
    "j1": "bessel_j1",
    "y0": "bessel_y0",
    "y1": "bessel_y1",
    "cyl_bessel_i0": "i0",
    "cyl_bessel_i1": "i1",
    "lgamma": "gammaln",
}


# ---- rounding in a given direction


def _down(guess: Any, above: Callable[[Fraction], int], dtype: type) -> tuple[Any, Any]:
    """The neighbouring numbers of ``dtype`` around an exact value: the largest that is not above it, and the next one.

    ``above`` is the sign of its argument minus the exact value; ``guess`` is near it.
    """
    largest = np.finfo(dtype).max
    low = dtype(min(max(guess, -largest), largest))
    while above(Fraction(float(low))) > 0:
        if low == -largest:
            return dtype(-np.inf), low
        low = np.nextafter(low, dtype(-np.inf))
    while True:
        high = np.nextafter(low, dtype(np.inf))
        if np.isinf(high) or above(Fraction(float(high))) > 0:
            return low, high
        low = high


def _rounded(guess: Any, above: Callable[[Fraction], int], dtype: type, mode: str) -> Any:
    low, high = _down(guess, above, dtype)
    if np.isfinite(low) and above(Fraction(float(low))) == 0:
        return low if low else dtype(guess)  # with the sign of the zero
    if mode == "rz":
        mode = "rd" if above(Fraction(0)) < 0 else "ru"
    if mode != "rn":
        return low if mode == "rd" else high
    if np.isinf(low) or np.isinf(high):
        finite = float(high if np.isinf(low) else low)
        beyond = Fraction(finite) + (Fraction(finite) - Fraction(float(np.nextafter(dtype(finite), dtype(0))))) / 2
        nearer_infinity = above(beyond) * (1 if finite > 0 else -1) <= 0
        return (high if finite > 0 else low) if nearer_infinity else dtype(finite)
    middle = above((Fraction(float(low)) + Fraction(float(high))) / 2)
    if middle == 0:  # to even: the one whose last bit is 0
        return low if int(low.view(f"u{low.itemsize}")) % 2 == 0 else high
    return low if middle > 0 else high


def _sign(x: Fraction) -> int:
    return (x > 0) - (x < 0)


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rcp": lambda x: 1 / x,
    "fma": lambda x, y, z: x * y + z,
    "convert": lambda x: x,
}
_NEAREST: dict[str, _Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": lambda x: 1 / x,
    "fma": lambda x, y, z: x * y + z,
    "sqrt": np.sqrt,
    "convert": lambda x: x,
}


def _directed(operation: str, mode: str, dtype: type) -> _Function:
    """``operation`` with its exact result rounded to ``dtype``: rn to nearest even, rz to zero, rd down, ru up."""
    nearest = _NEAREST[operation]

    def one(*x: Any) -> Any:
        guess = nearest(*(np.float64(a) for a in x))
        if not all(np.isfinite(np.float64(a)) for a in x) or (operation in ("div", "rcp") and x[-1] == 0):
            return dtype(guess)
        exact = [Fraction(int(a)) if isinstance(a, np.integer) else Fraction(float(a)) for a in x]
        if operation == "sqrt":
            if exact[0] < 0:
                return dtype(np.nan)
            return _rounded(guess, lambda r: -1 if r < 0 else _sign(r * r - exact[0]), dtype, mode)
        value = _EXACT[operation](*exact)
        return _rounded(guess, lambda r: _sign(r - value), dtype, mode)

    return np.vectorize(one, otypes=[dtype])


_SYMBOLS = {"add": "{}add", "sub": "{}sub", "mul": "{}mul", "div": "{}div", "rcp": "{}rcp", "sqrt": "{}sqrt"}
_MODES = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}

_ROUNDING: dict[str, _Function] = {
    **{
        f"{symbol.format(letter)}_{mode}": _directed(operation, mode, dtype)
        for operation, symbol in _SYMBOLS.items()
        for letter, dtype in (("f", np.float32), ("d", np.float64))
        for mode in _MODES
    },
    **{f"fmaf_{mode}": _directed("fma", mode, np.float32) for mode in _MODES},
    **{f"fma_{mode}": _directed("fma", mode, np.float64) for mode in _MODES},
    "fmaf": _directed("fma", "rn", np.float32),
    "fma": _directed("fma", "rn", np.float64),
    **{
        f"{source}2{target}_{mode}": _directed("convert", mode, dtype)
        for source in ("double", "int", "uint", "ll", "ull")
        for target, dtype in (("float", np.float32), ("double", np.float64))
        for mode in _MODES
    },
}


def _to_integer(to_whole: _Function, dtype: type) -> _Function:
    """Conversion to an integer, which saturates."""
    ends = np.iinfo(dtype)
    of_nan = 0 if ends.bits == 32 else 1 << 63

    def one(x: Any) -> int:
        if np.isnan(x):
            return of_nan
        return min(max(int(to_whole(x)), ends.min), ends.max) if np.isfinite(x) else (ends.max if x > 0 else ends.min)

    def convert(x: Any) -> Any:
        whole = np.array([one(a) % (1 << ends.bits) for a in x.reshape(-1).tolist()], f"u{ends.bits // 8}")
        return whole.reshape(x.shape).view(f"i{ends.bits // 8}")

    return convert


_CONVERSIONS: dict[str, _Function] = {
    **{
        f"{source}2{target}_{mode}": _to_integer(to_whole, dtype)
        for source in ("float", "double")
        for target, dtype in (("int", np.int32), ("uint", np.uint32), ("ll", np.int64), ("ull", np.uint64))
        for mode, to_whole in _MODES.items()
    },
    "llrint": _to_integer(np.rint, np.int64),
    "llround": _to_integer(_round_half_away, np.int64),
}


# ---- bits


def _bits(x: Any) -> int:
    return 8 * int(x.itemsize)


def _of_integers(function: Callable[..., int]) -> _Function:
    """Apply ``function`` to Python integers. Its result wraps around to the size of the first argument."""

    def call(*x: Any) -> Any:
        x = np.broadcast_arrays(*x)
        bits = _bits(x[0])
        flat = zip(*(a.reshape(-1).tolist() for a in x), strict=True)
        found = np.array([function(bits, *numbers) % (1 << bits) for numbers in flat], f"u{bits // 8}")
        return found.reshape(x[0].shape).view(x[0].dtype)

    return call


def _low_24(x: int) -> int:
    return (x & 0xFFFFFF) - ((x & 0x800000) << 1)


def _permuted(bits: int, x: int, y: int, selector: int) -> int:
    source = (x % (1 << 32)) | (y % (1 << 32)) << 32
    result = 0
    for i in range(4):
        nibble = selector >> 4 * i & 0xF
        byte = source >> 8 * (nibble & 7) & 0xFF
        result |= (0xFF * (byte >> 7) if nibble & 8 else byte) << 8 * i
    return result


def _halves(high: Any, low: Any) -> Any:
    return (high.astype(np.int64) << 32 | low.view(np.uint32).astype(np.int64)).view(np.float64)


def _half(shift: int) -> _Function:
    return lambda x: (x.view(np.uint64) >> np.uint64(shift)).astype(np.uint32).view(np.int32)


_clz = _of_integers(lambda bits, x: bits - (x % (1 << bits)).bit_length())
_popc = _of_integers(lambda bits, x: (x % (1 << bits)).bit_count())
_ffs = _of_integers(lambda bits, x: (x & -x).bit_length())
_brev = _of_integers(lambda bits, x: int(f"{x % (1 << bits):0{bits}b}"[::-1], 2))
_mulhi = _of_integers(lambda bits, x, y: x * y >> bits)
_sad = _of_integers(lambda bits, x, y, z: abs(x - y) + z)
_hadd = _of_integers(lambda bits, x, y: (x + y) >> 1)
_rhadd = _of_integers(lambda bits, x, y: (x + y + 1) >> 1)

_INTEGER: dict[str, _Function] = {
    "clz": _clz,
    "clzll": _clz,
    "popc": _popc,
    "popcll": _popc,
    "ffs": _ffs,
    "ffsll": _ffs,
    "brev": _brev,
    "brevll": _brev,
    "mulhi": _mulhi,
    "umulhi": _mulhi,
    "mul64hi": _mulhi,
    "umul64hi": _mulhi,
    "sad": _sad,
    "usad": _sad,
    "hadd": _hadd,
    "uhadd": _hadd,
    "rhadd": _rhadd,
    "urhadd": _rhadd,
    "mul24": _of_integers(lambda bits, x, y: _low_24(x) * _low_24(y)),
    "umul24": _of_integers(lambda bits, x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF)),
    "byte_perm": _of_integers(_permuted),
    "abs": np.abs,
    "llabs": np.abs,
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.int32),
    "longlong_as_double": lambda x: x.view(np.float64),
    "double_as_longlong": lambda x: x.view(np.int64),
    "hiloint2double": _halves,
    "double2loint": _half(0),
    "double2hiint": _half(32),
    "nextafter": np.nextafter,
}

_FUNCTIONS: dict[str, _Function] = {
    **{name: _in_double(function) for name, function in _REAL.items()},
    **{name: _of_torch(getattr(torch.special, function)) for name, function in _SPECIAL.items()},
    "tgamma": _each(_gamma),
    "remainder": _each(math.remainder),
    "erfcinv": _in_double(
        lambda x: -torch.special.ndtri(torch.from_numpy(np.ascontiguousarray(x) / 2)).numpy() / 2**0.5
    ),
    **_ROUNDING,
    **_CONVERSIONS,
    **_INTEGER,
}
