"""Compiles scripts for tests of the compiler."""

from __future__ import annotations

from penstock.sbatch import compiler
from penstock.sbatch.diagnostics import Diagnostic

BASH = "#!/bin/bash\n"


def compiled(text: str | bytes, *arguments: str, **variables: str) -> compiler.Compilation:
    data = text if isinstance(text, bytes) else text.encode()
    return compiler.compile_script(data, name="job.sh", arguments=arguments, variables=variables)


def nodes(text: str, *arguments: str, **variables: str) -> int:
    """The minimum of nodes of a script, which must be accepted."""
    done = compiled(text, *arguments, **variables)
    assert done.spec is not None, done.diagnostics
    return done.spec.nodes.minimum


def found(done: compiler.Compilation, code: str) -> Diagnostic:
    """The only diagnostic with this code."""
    matching = [diagnostic for diagnostic in done.diagnostics if diagnostic.code == code]
    assert len(matching) == 1, done.diagnostics
    return matching[0]
