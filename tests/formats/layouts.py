"""Quantised matrices as the programs of Hugging Face store them, made without packages: tensors by the end of their name, and the numbers that they mean.

A layout is a function of a random generator, rows and columns. It returns {suffix: (dtype, shape, bytes)} and the weight as a list of rows.
"""
import json, struct

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
       0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]


def f32(x):
    return struct.unpack('<f', struct.pack('<f', x))[0]


def f16(x):
    return struct.unpack('<e', struct.pack('<e', x))[0]


def bf16(x):
    bits = struct.unpack('<I', struct.pack('<f', x))[0]
    return struct.unpack('<f', struct.pack('<I', (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16))[0]


def e4m3(code):
    sign, e, m = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
    return sign * ((8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9)


def floats(kind, values):
    if kind == 'BF16':
        return b''.join(struct.pack('<f', v)[2:] for v in values)
    return struct.pack('<%d%s' % (len(values), {'F32': 'f', 'F16': 'e'}[kind]), *values)


def words(values):
    return struct.pack('<%dI' % len(values), *values)


ROUND = {'F32': f32, 'F16': f16, 'BF16': bf16}


def random_scales(rng, n, kind, size=0.02):
    return [ROUND[kind](size * (0.5 + rng.random())) for _ in range(n)]


def stream(codes, bits):
    """Codes as one stream of bits in words of 32."""
    value = 0
    for i, c in enumerate(codes):
        value |= c << i * bits
    return [value >> 32 * i & 0xFFFFFFFF for i in range((len(codes) * bits + 31) // 32)]


def grid(rng, rows, columns, bits):
    return [[rng.randrange(1 << bits) for _ in range(columns)] for _ in range(rows)]


def weight(codes, zeros, scales, groups, rounded=f32):
    return [[rounded((c - zeros[r][groups[k]]) * scales[r][groups[k]]) for k, c in enumerate(row)] for r, row in enumerate(codes)]


def flat_columns(matrix):
    return [row[i] for i in range(len(matrix[0])) for row in matrix]


def gptq(bits, group, form='gptq', act_order=False, symmetric=False):
    def make(rng, rows, columns):
        n = columns // group
        codes, low = grid(rng, rows, columns, bits), 1 if form == 'gptq' else 0
        zeros = [[1 << bits - 1 if symmetric else rng.randrange(low, 1 << bits) for _ in range(n)] for _ in range(rows)]
        scales = [random_scales(rng, n, 'F16') for _ in range(rows)]
        order = [k // group for k in range(columns)]
        if act_order:
            rng.shuffle(order)
        by_column = [stream(row, bits) for row in codes]
        stored_zeros = [stream([row[g] - low for row in zeros], bits) for g in range(n)]
        return ({'.qweight': ('I32', [len(by_column[0]), rows], words(flat_columns(by_column))),
                 '.qzeros': ('I32', [n, len(stored_zeros[0])], words([w for z in stored_zeros for w in z])),
                 '.scales': ('F16', [n, rows], floats('F16', flat_columns(scales))),
                 '.g_idx': ('I32', [columns], words(order))}, weight(codes, zeros, scales, order, f16 if act_order else f32))
    config = {'quant_method': 'gptq', 'bits': bits, 'group_size': group, 'desc_act': act_order, 'sym': symmetric, 'checkpoint_format': form}
    return make, config


def awq(group):
    place = [0, 4, 1, 5, 2, 6, 3, 7]

    def pack(values):
        return [sum(v << 4 * place[i] for i, v in enumerate(values[at:at + 8])) for at in range(0, len(values), 8)]

    def make(rng, rows, columns):
        n = columns // group
        codes, zeros = grid(rng, rows, columns, 4), grid(rng, rows, n, 4)
        scales = [random_scales(rng, n, 'F16') for _ in range(rows)]
        return ({'.qweight': ('I32', [columns, rows // 8], words([w for k in range(columns) for w in pack([row[k] for row in codes])])),
                 '.qzeros': ('I32', [n, rows // 8], words([w for g in range(n) for w in pack([row[g] for row in zeros])])),
                 '.scales': ('F16', [n, rows], floats('F16', flat_columns(scales)))}, weight(codes, zeros, scales, [k // group for k in range(columns)]))
    return make, {'quant_method': 'awq', 'bits': 4, 'group_size': group, 'zero_point': True, 'version': 'gemm'}


def compressed(weights, form):
    return {'quant_method': 'compressed-tensors', 'format': form, 'quantization_status': 'compressed', 'ignore': ['lm_head'],
            'config_groups': {'group_0': {'targets': ['Linear'], 'weights': weights}}}


def in_words(values, bits):
    per = 32 // bits
    return [sum(v << bits * i for i, v in enumerate(values[at:at + per])) for at in range(0, len(values), per)]


def pack_quantized(bits, group, symmetric, kind='BF16'):
    def make(rng, rows, columns):
        size = group or columns
        n = columns // size
        codes, scales = grid(rng, rows, columns, bits), [random_scales(rng, n, kind) for _ in range(rows)]
        zeros = [[1 << bits - 1 if symmetric else rng.randrange(1 << bits) for _ in range(n)] for _ in range(rows)]
        packed = [in_words(row, bits) for row in codes]
        out = {'.weight_packed': ('I32', [rows, len(packed[0])], words(sum(packed, []))),
               '.weight_scale': (kind, [rows, n], floats(kind, sum(scales, []))), '.weight_shape': ('I64', [2], struct.pack('<qq', rows, columns))}
        if not symmetric:
            by_group = [in_words([row[g] for row in zeros], bits) for g in range(n)]
            out['.weight_zero_point'] = ('I32', [len(by_group[0]), n], words(flat_columns(by_group)))
        return out, weight(codes, zeros, scales, [k // size for k in range(columns)])
    return make, compressed({'num_bits': bits, 'type': 'int', 'symmetric': symmetric, 'strategy': 'group' if group else 'channel', 'group_size': group or None},
                            'pack-quantized')


def int_quantized(rng, rows, columns):
    codes = [[rng.randrange(-128, 128) for _ in range(columns)] for _ in range(rows)]
    scales = [random_scales(rng, 1, 'BF16', 0.002) for _ in range(rows)]
    return ({'.weight': ('I8', [rows, columns], struct.pack('<%db' % (rows * columns), *sum(codes, []))),
             '.weight_scale': ('BF16', [rows, 1], floats('BF16', sum(scales, [])))}, weight(codes, [[0]] * rows, scales, [0] * columns))


def fp8(block, kind='F32', suffix='.weight_scale_inv', shape=None):
    """block: rows and columns with one scale; 0: all of them."""
    def make(rng, rows, columns):
        high, wide = block[0] or rows, block[1] or columns
        down, across = -(-rows // high), -(-columns // wide)
        codes = [[rng.choice([c for c in (rng.randrange(256), rng.randrange(126)) if c & 127 != 127] or [0]) for _ in range(columns)] for _ in range(rows)]
        scales = [random_scales(rng, across, kind, 0.0004) for _ in range(down)]
        values = [[f32(e4m3(c) * scales[r // high][k // wide]) for k, c in enumerate(row)] for r, row in enumerate(codes)]
        return ({'.weight': ('F8_E4M3', [rows, columns], bytes(sum(codes, []))),
                 suffix: (kind, [down, across] if shape is None else shape(down), floats(kind, sum(scales, [])))}, values)
    return make


def fp4_bytes(codes):
    return bytes(row[i] | row[i + 1] << 4 for row in codes for i in range(0, len(row), 2))


def nvfp4(packed, scale, second, divides):
    def make(rng, rows, columns):
        n = columns // 16
        codes, scales = grid(rng, rows, columns, 4), [[rng.randrange(56, 90) for _ in range(n)] for _ in range(rows)]
        whole = f32(300 * (1 + rng.random())) if divides else f32(0.004 * (1 + rng.random()))
        at = [[f32(e4m3(s) / whole) if divides else f32(e4m3(s) * whole) for s in row] for row in scales]
        values = [[f32((-1 if c & 8 else 1) * E2M1[c & 7] * at[r][k // 16]) for k, c in enumerate(row)] for r, row in enumerate(codes)]
        return ({packed: ('U8', [rows, columns // 2], fp4_bytes(codes)), scale: ('F8_E4M3', [rows, n], bytes(sum(scales, []))),
                 second: ('F32', [1] if divides else [], floats('F32', [whole])), '.input_scale': ('F32', [1], floats('F32', [1.0]))}, values)
    return make


def mxfp4(rng, rows, columns):
    n = columns // 32
    codes, scales = grid(rng, rows, columns, 4), [[rng.randrange(118, 123) for _ in range(n)] for _ in range(rows)]
    values = [[(-1 if c & 8 else 1) * E2M1[c & 7] * 2.0 ** (scales[r][k // 32] - 127) for k, c in enumerate(row)] for r, row in enumerate(codes)]
    return {'.weight_packed': ('U8', [rows, columns // 2], fp4_bytes(codes)), '.weight_scale': ('U8', [rows, n], bytes(sum(scales, [])))}, values


def nf4(nested, kind='BF16', block=64, outer=256):
    def make(rng, rows, columns):
        codes = [rng.randrange(16) for _ in range(rows * columns)]
        blocks = -(-len(codes) // block)
        state = {'quant_type': 'nf4', 'blocksize': block, 'dtype': {'BF16': 'bfloat16', 'F32': 'float32'}[kind], 'shape': [rows, columns]}
        out = {'.weight': ('U8', [len(codes) // 2, 1], bytes(codes[i] << 4 | codes[i + 1] for i in range(0, len(codes), 2))),
               '.weight.quant_map': ('F32', [16], floats('F32', NF4))}
        if nested:
            table = [f32((i - 128) / 128) for i in range(256)]
            small, large, offset = [rng.randrange(256) for _ in range(blocks)], random_scales(rng, -(-blocks // outer), 'F32', 0.02), f32(0.06)
            absmax = [f32(f32(table[s] * large[i // outer]) + offset) for i, s in enumerate(small)]
            state.update({'nested_blocksize': outer, 'nested_dtype': 'float32', 'nested_offset': offset})
            out.update({'.weight.absmax': ('U8', [blocks], bytes(small)), '.weight.nested_absmax': ('F32', [len(large)], floats('F32', large)),
                        '.weight.nested_quant_map': ('F32', [256], floats('F32', table))})
        else:
            absmax = random_scales(rng, blocks, 'F32', 0.06)
            out['.weight.absmax'] = ('F32', [blocks], floats('F32', absmax))
        text = json.dumps(state).encode()
        out['.weight.quant_state.bitsandbytes__nf4'] = ('U8', [len(text)], text)
        values = [ROUND[kind](f32(NF4[c] * absmax[i // block])) for i, c in enumerate(codes)]
        return out, [values[r * columns:(r + 1) * columns] for r in range(rows)]
    return make, {'quant_method': 'bitsandbytes', 'load_in_4bit': True, 'bnb_4bit_quant_type': 'nf4', 'bnb_4bit_use_double_quant': nested}


FP8 = {'quant_method': 'fp8', 'activation_scheme': 'dynamic'}
NVFP4 = compressed({'num_bits': 4, 'type': 'float', 'strategy': 'tensor_group', 'group_size': 16}, 'nvfp4-pack-quantized')

# name: the layout, quantization_config, what inspect calls its matrices
LAYOUTS = {
    'gptq-4': (*gptq(4, 32), 'affine, 4 bits, groups of 32'),
    'gptq-4-symmetric': (*gptq(4, 64, symmetric=True), 'affine, 4 bits, groups of 64'),
    'gptq-4-v2': (*gptq(4, 128, 'gptq_v2'), 'affine, 4 bits, groups of 128'),
    'gptq-3': (*gptq(3, 32), 'affine, 3 bits, groups of 32'),
    'gptq-8': (*gptq(8, 128), 'affine, 8 bits, groups of 128'),
    'gptq-act-order': (*gptq(4, 32, act_order=True), 'f16'),
    'awq': (*awq(32), 'affine, 4 bits, groups of 32'),
    'int4': (*pack_quantized(4, 32, True), 'affine, 4 bits, groups of 32'),
    'int4-asymmetric': (*pack_quantized(4, 128, False, 'F16'), 'affine, 4 bits, groups of 128'),
    'int8-channel': (*pack_quantized(8, 0, True), 'affine, 8 bits, groups of 128'),
    'int8-plain': (int_quantized, compressed({'num_bits': 8, 'type': 'int', 'symmetric': True, 'strategy': 'channel'}, 'int-quantized'), 'affine, 8 bits, groups of 128'),
    'fp8-block': (fp8((128, 128)), {**FP8, 'weight_block_size': [128, 128]}, 'fp8, 8 bits, groups of 128'),
    'fp8-block-small': (fp8((48, 64), 'BF16'), {**FP8, 'weight_block_size': [48, 64]}, 'fp8, 8 bits, groups of 64'),
    'fp8-tensor': (fp8((0, 0), suffix='.weight_scale', shape=lambda n: []), {'quant_method': 'modelopt', 'quant_algo': 'FP8'}, 'fp8, 8 bits, groups of 128'),
    'fp8-channel': (fp8((1, 0), 'BF16', '.weight_scale'), compressed({'num_bits': 8, 'type': 'float', 'strategy': 'channel'}, 'float-quantized'), 'fp8, 8 bits, groups of 128'),
    'nvfp4': (nvfp4('.weight_packed', '.weight_scale', '.weight_global_scale', True), NVFP4, 'fp4, 4 bits, groups of 16'),
    'nvfp4-modelopt': (nvfp4('.weight', '.weight_scale', '.weight_scale_2', False), {'quant_method': 'modelopt', 'quant_algo': 'NVFP4'}, 'fp4, 4 bits, groups of 16'),
    'mxfp4': (mxfp4, compressed({'num_bits': 4, 'type': 'float', 'strategy': 'group', 'group_size': 32}, 'mxfp4-pack-quantized'), 'mxfp4'),
    'nf4': (*nf4(False), 'bf16'),
    'nf4-nested': (*nf4(True, 'F32'), 'f32'),
}
