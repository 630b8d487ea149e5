#!/usr/bin/env python3
"""The layouts that test_packed.py makes, unpacked by the packages that define them: compressed-tensors, bitsandbytes, gptqmodel and autoawq. A package that
is not installed is skipped.

usage: test_reference.py      last line: "N passed, N failed, N skipped"
"""
import importlib.util, os, random, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import layouts

ROWS, COLUMNS = 96, 256
passed = failed = skipped = 0


def tensor(torch, entry):
    dtype, shape, data = entry
    kinds = {'I32': torch.int32, 'I64': torch.int64, 'I8': torch.int8, 'U8': torch.uint8, 'F16': torch.float16, 'BF16': torch.bfloat16, 'F32': torch.float32,
             'F8_E4M3': torch.float8_e4m3fn}
    return torch.frombuffer(bytearray(data), dtype=kinds[dtype]).reshape(shape)


def file_of(package, *path):
    """A module of a package by its file: what stands in the package's __init__ may want a GPU."""
    root = os.path.dirname(importlib.util.find_spec(package).origin) if importlib.util.find_spec(package) else None
    found = root and os.path.join(root, *path)
    if not found or not os.path.exists(found):
        raise ImportError(package)
    spec = importlib.util.spec_from_file_location('file_of_' + package, found)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def by_awq(torch, t, config):
    packing = file_of('awq', 'utils', 'packing_utils.py')
    return packing.dequantize_gemm(t['.qweight'], t['.qzeros'], t['.scales'].float(), 4, config['group_size']).T


def by_compressed_tensors(torch, t, config):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    args = QuantizationArgs(**config['config_groups']['group_0']['weights'])
    compressor = BaseCompressor.get_value_from_registry(config['format'])
    state = {k[1:]: v for k, v in t.items() if k != '.input_scale'}
    for name in ('weight_scale', 'weight_global_scale'):
        if name in state and state[name].dtype in (torch.bfloat16, torch.float16):
            state[name] = state[name].float()
    scheme = QuantizationScheme(targets=['Linear'], weights=args, format=config['format'])
    return compressor.decompress(state, scheme)['weight']


def by_bitsandbytes(torch, t, config):
    import bitsandbytes.functional as F
    state = {k[len('.weight.'):]: v for k, v in t.items() if k.startswith('.weight.')}
    return F.dequantize_4bit(t['.weight'], F.QuantState.from_dict(state, device=torch.device('cpu')))


def reference(config):
    return {'awq': by_awq, 'compressed-tensors': by_compressed_tensors, 'bitsandbytes': by_bitsandbytes}.get(config['quant_method'])


def main():
    global passed, failed, skipped
    try:
        import torch
    except ImportError:
        print('skipped: torch is not installed\n0 passed, 0 failed, 1 skipped')
        return 0
    for name, (make, config, _) in layouts.LAYOUTS.items():
        unpack = reference(config)
        if not unpack:
            continue
        tensors, values = make(random.Random(3), ROWS, COLUMNS)
        try:
            got = unpack(torch, {k: tensor(torch, v) for k, v in tensors.items()}, config)
        except ImportError as e:
            skipped += 1
            print('skipped', name, e)
            continue
        expected = torch.tensor(values).to(got.dtype) # some packages give what they unpack in bf16
        difference = (got.float() - expected.float()).abs().max().item()
        good = got.shape == (ROWS, COLUMNS) and difference <= (0.004 if got.dtype == torch.bfloat16 else 1e-6) * expected.abs().max().item()
        passed, failed = passed + good, failed + (not good)
        if not good:
            print('FAILED', name, tuple(got.shape), difference)
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
