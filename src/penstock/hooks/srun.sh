#!/bin/sh
# Stand-in for srun in images without it, which are nearly all: a clear message instead of "not found".
echo "penstock: job steps (srun) do not run in pods yet; write the command without srun: $*" >&2
exit 1
