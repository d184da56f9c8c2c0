"""kernels.c, compiled once on this machine: what rows need of a CPU, in few calls.

There are none without a C compiler or without AVX-512 VNNI; all that calls them can do the same
with PyTorch's operations. int8 products are the same bits.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from ctypes import c_double, c_float, c_int, c_long, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from simultan import atomic

VECTORS = ["-mavx512f", "-mavx512bw", "-mavx512vnni", "-mfma"]
EXACT = ["-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno", "-fno-trapping-math"]
OPTIONS = ["-O3", "-fopenmp-simd", *VECTORS, *EXACT, "-shared", "-fPIC"]

TYPES = {"p": c_void_p, "l": c_long, "i": c_int, "f": c_float}
FUNCTIONS = {  # and their arguments
    "linear": "pplppfippi",
    "append": "plplllppll",
    "attend": "plplllppplllp",
    "look_back": "ppllppplllp",
    "scan": "plpllpppplllpp",
}


@cache
def find() -> ctypes.CDLL | None:
    """The library, compiled if it is not in the user's cache; None: this machine has none."""
    if platform.system() != "Linux" or not has_vnni():
        return None
    try:
        library = ctypes.CDLL(str(make()))
    except (OSError, RuntimeError, subprocess.SubprocessError):  # nowhere to keep it, or it fails
        return None
    # threads are PyTorch's own: those of another library would fight with them for the cores
    parallel = getattr(ctypes.CDLL(torch._C.__file__), "GOMP_parallel", None)
    if parallel is not None:
        c_void_p.in_dll(library, "parallel").value = ctypes.cast(parallel, c_void_p).value
    return library


def make() -> Path:
    """Compile the library, unless it is in the user's cache; it runs on any CPU with VNNI."""
    source = Path(__file__).with_suffix(".c")
    code = hashlib.sha256(source.read_bytes() + " ".join(OPTIONS).encode()).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simultan"
    place = home / f"kernels-{code}.so"
    if place.exists() and is_whole(place):
        return place
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    home.mkdir(parents=True, exist_ok=True)
    with atomic.place(place) as made:  # other processes may do the same
        command = [compiler, *OPTIONS, str(source), "-o", str(made), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        with made.open("ab") as file:
            file.write(hashlib.sha256(made.read_bytes()).digest())
    return place


def is_whole(library: Path) -> bool:
    """Whether its last bytes are the hash of the others: half a library would crash the process."""
    content = library.read_bytes()
    return hashlib.sha256(content[:-32]).digest() == content[-32:]


@cache
def has_vnni() -> bool:
    """Without these instructions pairs of products are summed in 16 bits, which need room."""
    return bool(getattr(torch.cpu, "_is_vnni_supported", lambda: False)())


class Layer(ctypes.Structure):
    """A linear layer as kernels.c sees it; the tensors behind it are to be kept elsewhere."""

    _fields_ = (
        ("inputs", c_long),
        ("outputs", c_long),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("scales", c_void_p),
        ("offsets", c_void_p),
        ("step", c_double),
        ("zero", c_int),
    )


@cache
def function(name: str) -> Callable[..., None]:
    """A function of the library, if there is one."""
    found = getattr(find(), name)
    found.restype = None
    found.argtypes = [TYPES[letter] for letter in FUNCTIONS[name]]
    call: Callable[..., None] = found
    return call


class Reach:
    """Which slots of a cache each head of each row looks at: from `begins` up to `ends` [R][H]."""

    def __init__(self, rows: Sequence[int], begins: Sequence[int], ends: Sequence[int]) -> None:
        self.rows = (c_long * len(rows))(*rows)
        self.begins, self.ends = (c_int * len(begins))(*begins), (c_int * len(ends))(*ends)


def append(new: Tensor, layers: Sequence[Tensor], reach: Reach) -> None:
    """Write new positions at the ends of their reach: rows of new [R, ...] begin with what belongs
    to these layers of a cache, one after the other."""
    row, position, *_ = layers[0].stride()
    addresses = (c_void_p * len(layers))(*[layer.data_ptr() for layer in layers])
    function("append")(
        new.data_ptr(), new.stride(0), addresses, len(layers), row, position, reach.rows,
        reach.ends, new.shape[0], layers[0].shape[3],
    )  # fmt: skip


def attend(q: Tensor, data: Tensor, reach: Reach) -> Tensor:
    """Queries that begin rows of q [R, ...] over a layer of a cache -> [R, H D]."""
    rows, (heads, size) = q.shape[0], data.shape[3:]
    y = q.new_empty(rows, heads * size)
    row, position, kind, _, _ = data.stride()
    function("attend")(
        q.data_ptr(), q.stride(0), data.data_ptr(), row, position, kind, reach.rows, reach.begins,
        reach.ends, rows, heads, size, y.data_ptr(),
    )  # fmt: skip
    return y


def look_back(qkv: Tensor, data: Tensor, reach: Reach) -> Tensor:
    """Write the keys and values of new positions, then attend: qkv [R, C, 3 H D] -> [R, C, H D]."""
    rows, count, width = qkv.shape
    row, position, _, size, _ = data.stride()
    y = qkv.new_empty(rows, count, width // 3)
    function("look_back")(
        qkv.data_ptr(), data.data_ptr(), row, position, reach.rows, reach.begins, reach.ends,
        rows * count, data.shape[3], size, y.data_ptr(),
    )  # fmt: skip
    return y


def scan(
    q: Tensor,
    data: Tensor,
    reach: Reach,
    limits: Sequence[float],
    gain: Tensor | None,
    bias: Tensor | None,
) -> list[int]:
    """The first slot within reach at which a head's energy exceeds its row's limit, [R H]; where
    there is none, the end of its reach. Energies as in MonotonicAttention."""
    rows, (heads, size) = q.shape[0], data.shape[3:]
    function("scan")(
        q.data_ptr(), q.stride(0), data.data_ptr(), data.stride(0), data.stride(1), reach.rows,
        reach.begins, reach.ends, (c_double * rows)(*limits), rows, heads, size,
        None if gain is None else gain.data_ptr(), None if bias is None else bias.data_ptr(),
    )  # fmt: skip
    return list(reach.begins)
