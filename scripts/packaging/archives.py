"""Writes archives whose bytes depend on their contents only."""

import base64
import gzip
import hashlib
import io
import json
import tarfile
import time
import zipfile


class Tree:
    """Files for one archive, all with the same time; folders are created as needed."""

    def __init__(self, epoch, prefix=""):
        self.epoch = epoch
        self.prefix = prefix
        self.files = {}

    def add(self, name, content, mode=0o644):
        self.files[name] = (content, mode)

    def size(self):
        return sum(len(content) for content, _ in self.files.values())

    def folders(self):
        found = set()
        for name in self.files:
            parts = name.split("/")[:-1]
            found.update("/".join(parts[: count + 1]) for count in range(len(parts)))
        return found

    def tar_gz(self):
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
            if self.prefix:
                tar.addfile(self.entry("./", 0o755, tarfile.DIRTYPE))
            for name in sorted(self.folders() | set(self.files)):
                if name in self.files:
                    content, mode = self.files[name]
                    entry = self.entry(self.prefix + name, mode, tarfile.REGTYPE)
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
                else:
                    tar.addfile(self.entry(f"{self.prefix}{name}/", 0o755, tarfile.DIRTYPE))
        return gzip.compress(raw.getvalue(), 9, mtime=0)

    def entry(self, name, mode, kind):
        entry = tarfile.TarInfo(name)
        entry.mode, entry.type, entry.mtime = mode, kind, self.epoch
        entry.uname = entry.gname = "root"
        return entry

    def zip(self):
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name in self.files:
                content, mode = self.files[name]
                entry = zipfile.ZipInfo(name, time.gmtime(self.epoch)[:6])
                entry.external_attr = (0o100000 | mode) << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.create_system = 3
                archive.writestr(entry, content)
        return raw.getvalue()

    def md5sums(self):
        lines = (f"{hashlib.md5(content).hexdigest()}  {name}\n" for name, (content, _) in sorted(self.files.items()))
        return "".join(lines).encode()

    def wheel_record(self, own_name):
        lines = []
        for name, (content, _) in self.files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
        return "".join([*lines, f"{own_name},,\n"]).encode()


def ar(epoch, members):
    """Returns an archive in the common `ar` format, as a .deb needs it."""
    parts = [b"!<arch>\n"]
    for name, content in members:
        parts.append(f"{name:<16}{epoch:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode())
        parts.append(content + b"\n" * (len(content) % 2))
    return b"".join(parts)


def json_bytes(value):
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def sha256sums(folder):
    """Returns what `sha256sum -c` reads, for the files in a folder."""
    return "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())
    )
