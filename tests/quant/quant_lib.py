"""src/tensor/quant.c as a library that Python calls: the files are compiled in a temporary folder (compiler: $CC, else cc)."""
import ctypes, os, subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = ['tensor/quant.c', 'tensor/dtype.c', 'base/half.c', 'base/str.c', 'base/arena.c', 'base/err.c']


class Format(ctypes.Structure):
    _fields_ = [('mode', ctypes.c_int), ('dtype', ctypes.c_int), ('bits', ctypes.c_uint8), ('group', ctypes.c_uint16)]


class Row(ctypes.Structure):
    _fields_ = [('values', ctypes.c_void_p), ('scales', ctypes.c_void_p), ('biases', ctypes.c_void_p)]


def build(folder, more=()):
    """more: further files of src."""
    out = os.path.join(folder, 'quant.so')
    subprocess.run([os.environ.get('CC', 'cc'), '-std=c17', '-D_GNU_SOURCE', '-O2', '-ffp-contract=off', '-shared', '-fPIC', '-I', os.path.join(ROOT, 'src'),
                    *[os.path.join(ROOT, 'src', s) for s in (*SOURCES, *more)], '-lm', '-o', out], check=True)
    lib = ctypes.CDLL(out)
    for plane in ('values', 'scales', 'biases'):
        f = getattr(lib, f'quant_{plane}_bytes')
        f.argtypes, f.restype = [ctypes.POINTER(Format), ctypes.c_int64], ctypes.c_size_t
    lib.quant_pack.argtypes = [ctypes.POINTER(Format), ctypes.c_void_p, ctypes.c_int64] + [ctypes.c_void_p] * 3
    lib.quant_unpack.argtypes = [ctypes.POINTER(Format), ctypes.POINTER(Row), ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    lib.quant_pack.restype = lib.quant_unpack.restype = None
    return lib
