"""Reads from an ELF binary which machine and which libraries it needs."""

import struct

MACHINES = {62: "x86_64", 183: "aarch64"}

# The libraries that a manylinux wheel may take from the system, of those that a Rust binary could link (PEP 600).
ALLOWED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"}


class Requirements:
    """The machine, and the newest version of glibc of which the binary needs a symbol."""

    def __init__(self, binary):
        if binary[:6] != b"\x7fELF\x02\x01":
            raise SystemExit("dist: the binary is not a 64-bit little-endian ELF file")
        self.machine = MACHINES[struct.unpack_from("<H", binary, 18)[0]]
        versions = set()
        for library, names in needed_versions(binary):
            if library not in ALLOWED and not library.startswith("ld-linux"):
                raise SystemExit(f"dist: the binary needs {library}, which is not on every machine")
            for name in names:
                kind, _, number = name.partition("_")
                if kind == "GLIBC":
                    if not number[:1].isdigit():
                        raise SystemExit(f"dist: the binary needs {name}, which no manylinux tag expresses")
                    versions.add(tuple(int(part) for part in number.split(".")[:2]))
        self.glibc = ".".join(str(part) for part in max(versions))


def needed_versions(binary):
    """Yields each library in `.gnu.version_r` with the names of the versions that are needed of it."""
    offset, = struct.unpack_from("<Q", binary, 40)
    size, count = struct.unpack_from("<HH", binary, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", binary, offset + number * size) for number in range(count)]
    for section in sections:
        if section[1] != 0x6FFFFFFE:
            continue
        strings = sections[section[6]][4]

        def text(at):
            start = strings + at
            return binary[start:binary.index(b"\0", start)].decode()

        at = section[4]
        while True:
            _, names, library, first, following = struct.unpack_from("<HHIII", binary, at)
            found, auxiliary = [], at + first
            for _ in range(names):
                _, _, _, name, step = struct.unpack_from("<IHHII", binary, auxiliary)
                found.append(text(name))
                auxiliary += step
            yield text(library), found
            if following == 0:
                break
            at += following
