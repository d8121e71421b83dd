"""The nodes of a step for the real srun: names only. Files with names were read in the calling pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.calls import hostfiles, outcomes, settings
from penstock.calls.outcomes import Files
from penstock.model import numbers

_ANY_CODE = 255  # srun's after a wrong --nodefile, whatever SLURM_EXIT_ERROR says


class Nodes:
    """--nodelist, --exclude, --nodefile and SLURM_HOSTFILE of a call."""

    def __init__(self, asked: settings.Settings, environment: Mapping[bytes, bytes], error_code: int) -> None:
        self._asked = asked
        self._error_code = error_code
        self._exclude = asked.of_line("exclude")
        self._list, self._file = _last(asked)
        hostfile = environment.get(b"SLURM_HOSTFILE")
        if hostfile is not None and b"/" not in hostfile:
            hostfile = b"./" + hostfile
        self._hostfile = hostfile if self._file is None and self._list is None else None

    def wanted(self) -> list[bytes]:
        """The files to be read."""
        lists = [names for names in (self._exclude, self._list) if names and b"/" in names]
        return lists + [file for file in (self._file, self._hostfile) if file is not None]

    def words(self, files: Files) -> list[bytes]:
        """The real srun's options."""
        words = []
        if self._exclude is not None:
            words.append(b"--exclude=" + self._names(self._exclude, files))
        if self._file is not None:
            read = self._read(self._file, files, None, b"Invalid --nodefile node file", _ANY_CODE)
            words.append(b"--nodelist=" + read)
        elif self._list is not None:
            words.append(b"--nodelist=" + self._names(self._list, files))
        elif self._hostfile is not None:
            words += self._arbitrary(self._hostfile, files)
        return words

    def _arbitrary(self, file: bytes, files: Files) -> list[bytes]:
        """Beside SLURM_HOSTFILE srun keeps the number of tasks of a variable, but not beside
        --distribution=arbitrary, which stands for it here: so it becomes an option.
        """
        enough = self._enough(self._asked.value)
        ending = b"Failure getting NodeNames from hostfile"
        words = [b"--distribution=arbitrary"]
        words.append(b"--nodelist=" + self._read(file, files, enough, ending, self._error_code))
        tasks = self._asked.of_variables("ntasks")
        if tasks is not None and self._asked.of_line("ntasks") is None:
            words.append(b"--ntasks=" + tasks)
        return words

    def _names(self, names: bytes, files: Files) -> bytes:
        if b"/" not in names:
            return names
        distribution = self._asked.value("distribution") or b""
        arbitrary = distribution.lower().startswith(b"arbitrary")
        enough = self._enough(self._asked.of_line) if arbitrary else None
        return self._read(names, files, enough, b"", self._error_code)

    def _enough(self, value: Callable[[str], bytes | None]) -> int | None:
        """How many names a layout by names takes: one for each task, else for each node."""
        tasks = value("ntasks")
        if tasks is not None:
            return numbers.natural(tasks)
        least, _, most = (value("nodes") or b"").partition(b"-")
        return numbers.natural(most or least)

    def _read(self, file: bytes, files: Files, enough: int | None, ending: bytes, code: int) -> bytes:
        content = files[file]
        if isinstance(content, outcomes.Unreadable):
            problem = b"slurm_allocate_resources error opening file %b, %b" % (file, content.reason)
        else:
            try:
                return hostfiles.names(content, file, enough)
            except hostfiles.Invalid as invalid:
                problem = invalid.args[0]
        raise outcomes.error(*filter(None, (problem, ending)), code=code)


def _last(asked: settings.Settings) -> tuple[bytes | None, bytes | None]:
    """--nodelist and --nodefile: the last of the two undoes the other."""
    given = [setting for setting in asked.given if setting.option.key in ("nodelist", "nodefile")]
    if not given:
        return None, None
    value = given[-1].value or b""
    return (value, None) if given[-1].option.key == "nodelist" else (None, value)
