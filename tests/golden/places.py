"""Where a golden job runs: a folder or a bucket in which its source and output have the URIs that they always had.

dataKey and planId depend on the absolute URI, size and version of each source file; runKey on the URIs of source and
output. A stored output fits its job only where all of them are as they were.

- On disk the URIs begin with `/proc/thread-self/cwd`. The program keeps that path as typed, and the kernel leads it to
  the folder that the process is in: one path in every folder, without a link or a mount. Linux only. The version of a
  local file is its modification time, which is put back. Inodes and change times cannot be put back: to the program
  source and output were copied (`cp -a`). It warns, and reads the shards whose times it would have believed.
- In the bucket of `gcs_fake` URIs are the same everywhere, and versions of source files are checksums. Generations and
  metadata of the output's objects are put back: to the program it is the same bucket.

Outputs are kept as zip files; in those of a bucket a first member has the objects' generations and metadata.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import google_crc32c

from support.stores.gcs_fake import FakeGcs, Stored

DATA = Path(__file__).parent / "data"
DISK = "/proc/thread-self/cwd"
BUCKET = "gs://bucket"
MODIFIED_NS = 1_700_000_000_123_456_789
"""When every source file was last modified."""

_ABOUT = ".objects.json"


class Place(Protocol):
    """`folder`: where commands have to be started."""

    folder: Path

    @property
    def output(self) -> str:
        """Its URI."""
        ...

    def put_source(self, files: dict[str, bytes]) -> None: ...

    def files(self) -> dict[str, bytes]:
        """What lies at the output, by path."""
        ...

    def stamps(self) -> dict[str, int]:
        """A number for each file at the output, which another write changes."""
        ...

    def save(self, archive: Path) -> None: ...

    def restore(self, archive: Path) -> None: ...

    def clear(self) -> None:
        """Remove the output."""
        ...


@dataclass
class Disk:
    """A folder; processes must have it as their current one."""

    folder: Path

    @property
    def output(self) -> str:
        return f"{DISK}/out"

    def put_source(self, files: dict[str, bytes]) -> None:
        for path, content in files.items():
            target = self.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            os.utime(target, ns=(MODIFIED_NS, MODIFIED_NS))

    def files(self) -> dict[str, bytes]:
        return {name: path.read_bytes() for name, path in self._paths().items()}

    def stamps(self) -> dict[str, int]:
        return {name: path.stat().st_mtime_ns for name, path in self._paths().items()}

    def _paths(self) -> dict[str, Path]:
        out = self.folder / "out"
        return {path.relative_to(out).as_posix(): path for path in sorted(out.rglob("*")) if path.is_file()}

    def save(self, archive: Path) -> None:
        _write_zip(archive, self.files())

    def restore(self, archive: Path) -> None:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(self.folder / "out")

    def clear(self) -> None:
        shutil.rmtree(self.folder / "out")


@dataclass
class Bucket:
    """Objects of `fake` below the name of a job."""

    fake: FakeGcs
    name: str
    folder: Path

    @property
    def output(self) -> str:
        return f"{BUCKET}/{self.name}/out"

    def put_source(self, files: dict[str, bytes]) -> None:
        for path, content in files.items():
            self.fake.put(f"{self.name}/{path}", content)

    def files(self) -> dict[str, bytes]:
        return {path: found.data for path, found in self._objects().items()}

    def stamps(self) -> dict[str, int]:
        return {path: found.generation for path, found in self._objects().items()}

    def _objects(self) -> dict[str, Stored]:
        prefix = f"{self.name}/out/"
        found = sorted(self.fake.objects.items())
        return {name.removeprefix(prefix): stored for name, stored in found if name.startswith(prefix)}

    def save(self, archive: Path) -> None:
        about = {path: [found.generation, found.metadata] for path, found in self._objects().items()}
        _write_zip(archive, {_ABOUT: json.dumps(about, indent=1).encode(), **self.files()})

    def restore(self, archive: Path) -> None:
        with zipfile.ZipFile(archive) as packed:
            for path, (generation, metadata) in json.loads(packed.read(_ABOUT)).items():
                data = packed.read(path)
                stored = Stored(data, generation, metadata, google_crc32c.value(data))
                self.fake.objects[f"{self.name}/out/{path}"] = stored
                self.fake.generation = max(self.fake.generation, generation)

    def clear(self) -> None:
        for path in self._objects():
            del self.fake.objects[f"{self.name}/out/{path}"]


def is_in_bucket(manifest: Path) -> bool:
    """Whether the job of this manifest has its source and output in the bucket."""
    return f"{BUCKET}/" in manifest.read_text(encoding="utf-8")


def source_of(case: Path) -> dict[str, bytes]:
    """The stored source files of a job, and its tokenizer, by path."""
    root = case / "files"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _write_zip(archive: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(archive, "w") as packed:
        for path, content in files.items():
            packed.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED, 9)
