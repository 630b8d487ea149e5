"""Writes GGUF files without any package, and reads and writes safetensors: enough for models that tests make."""
import json, struct

F32, F16, Q8_0, BF16, MXFP4 = 0, 1, 8, 30, 39
U32, I32, FLOAT, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def text(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack('<Q', len(b)) + b


def value(v):
    if isinstance(v, bool):
        return struct.pack('<IB', BOOL, v)
    if isinstance(v, int):
        return struct.pack('<II', U32, v)
    if isinstance(v, float):
        return struct.pack('<If', FLOAT, v)
    if isinstance(v, str):
        return struct.pack('<I', STRING) + text(v)
    kind = STRING if isinstance(v[0], str) else FLOAT if isinstance(v[0], float) else I32
    items = [text(x) if kind == STRING else struct.pack('<f' if kind == FLOAT else '<i', x) for x in v]
    return struct.pack('<IIQ', ARRAY, kind, len(v)) + b''.join(items)


def gguf_bytes(meta, tensors, version=3, alignment=32):
    """tensors: name, type, shape with the outermost dimension first, bytes."""
    out = bytearray(struct.pack('<4sIQQ', b'GGUF', version, len(tensors), len(meta)))
    for key, v in meta.items():
        out += text(key) + value(v)
    at, blobs = 0, []
    for name, kind, shape, data in tensors:
        out += text(name) + struct.pack('<I', len(shape)) + b''.join(struct.pack('<Q', n) for n in reversed(shape)) + struct.pack('<IQ', kind, at)
        padded = data + bytes(-len(data) % alignment)
        blobs.append(padded)
        at += len(padded)
    out += bytes(-len(out) % alignment)
    return bytes(out) + b''.join(blobs)


def read_safetensors(path):
    """name -> dtype, shape, bytes."""
    data = open(path, 'rb').read()
    n = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop('__metadata__', None)
    return {k: (t['dtype'], t['shape'], data[8 + n + t['data_offsets'][0]:8 + n + t['data_offsets'][1]]) for k, t in header.items()}


def safetensors_bytes(tensors):
    """tensors: name -> dtype, shape, bytes."""
    header, blobs, at = {}, [], 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text_ = json.dumps(header).encode()
    text_ += b' ' * (-len(text_) % 8)
    return struct.pack('<Q', len(text_)) + text_ + b''.join(blobs)


def bf16_to_f32(data):
    return b''.join(b'\0\0' + data[i:i + 2] for i in range(0, len(data), 2))


def pair_rows(rows, heads):
    """Rows of queries or keys as files of the llama architecture have them: those of the two halves of a head by turns."""
    width = len(rows) // heads
    return [rows[h * width + (j % 2) * (width // 2) + j // 2] for h in range(heads) for j in range(width)]
