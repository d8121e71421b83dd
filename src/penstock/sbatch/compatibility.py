"""docs/compatibility.md, made from the option table and the #K8S_ directives: what happens to each at a
bridged site.
"""

from __future__ import annotations

from typing import Final

from penstock.sbatch import k8s, options

_TREATMENTS: Final = {
    "native": "Slurm does it, as always",
    "pod": "carried into the pod",
    "approximated": "done nearly so; the note says how",
    "refused": "the job is rejected in a bridged partition; the note says why",
    "ignored": "has no effect in a pod; the note says why",
}

_HEAD: Final = """# Which sbatch options do what

Made by `scripts/make_compatibility.py` from `src/penstock/sbatch/options.txt`; do not edit by hand.

The table has every option of sbatch from Slurm {first} to {last}. Values, conflicts and counts follow sbatch
22.05.8, against which they are tested. `--slurm VERSION` chooses which options exist, not how they are read:
of 711 scripts and directives tried on sbatch 24.11.5, 18 got another verdict. Known there: `--exclusive` with
`--oversubscribe` is refused, `--nodelist` may be longer than `--nodes`, `--nodes` takes lists, and GRES and
`--gpus-per-task` are checked otherwise.

In partitions that are not bridged nothing changes. In bridged ones each option is one of:

"""

_DIRECTIVES: Final = {
    "IMAGE": "the pod's image, an OCI reference: `registry:port/path:tag@digest`",
    "WORKDIR": "working directory in the pod, an absolute path; over `--chdir`",
    "SCRIPT": "a file on a shared mount to run instead of the batch script itself",
    "COMMAND": f"a command to run instead of the script; `{k8s.OWN_ENTRYPOINT}` for the image's own",
    "OUTPUTS": "files to collect after the job, a pattern inside the working directory; may be repeated",
    "MOUNT": "`source[:target[:ro]]`, a folder of the site in the pod; may be repeated",
    "ENV": "`NAME=value` for the script; may be repeated",
    "PULL_SECRET": "name of a Secret with the registry's credentials; may be repeated",
    "SHM_SIZE": "size of /dev/shm, as --mem is written",
    "NODE_SELECTOR": "`label=value` a node must have; may be repeated",
    "TOLERATION": "`key[=value][:effect]`; may be repeated",
    "PRIORITY_CLASS": "name of a PriorityClass",
}

_TAIL: Final = """
## Site file

`penstock validate --site FILE` reads JSON, TOML or YAML with these keys, all optional: `slurm` (release),
`gres_types`, `max_array_size`, `partitions` (name: `max_time`, `default`, `bridged`), `nodes` (list of
`count`, `cpus`, `memory_mib`, `gpus`, `gpu_type`, `features`, `partitions`), `registries` (those allowed),
`forbidden_directives`, `default_image`, `shared_mounts`, `namespace_pattern`, `kill_wait`, `classes` (name:
`cpus`, `memory_mib`, `priority_class`) and `flavours` (name: GPUs).
"""


def render() -> str:
    """The whole page."""
    parts = [_HEAD.format(first=options.RELEASES[0], last=options.RELEASES[-2])]
    parts += [f"* **{name}**: {text}\n" for name, text in _TREATMENTS.items()]
    parts.append("\n| option | value | Slurm | environment | in a pod | note |\n|---|---|---|---|---|---|\n")
    parts += [_row(option) for option in options.every_option()]
    parts.append("\n## #K8S_ directives\n\nOne a line, `#K8S_NAME=value`, before the first command. ")
    parts.append(
        "A site may forbid any of them (`forbidden_directives`).\n\n| directive | meaning |\n|---|---|\n"
    )
    parts += [f"| `#K8S_{name}` | {_DIRECTIVES[name]} |\n" for name in k8s.NAMES]
    parts.append(_TAIL)
    return "".join(parts)


def _row(option: options.Option) -> str:
    name = f"`-{option.short}`, `--{option.name}`" if option.short else f"`--{option.name}`"
    value = {"none": "", "required": option.grammar, "optional": f"[{option.grammar}]"}[option.argument]
    environment = " ".join(f"`{variable}`" for variable in option.environment)
    return (
        f"| {name} | {value} | {_releases(option)} | {environment} | {option.treatment} | {option.note} |\n"
    )


def _releases(option: options.Option) -> str:
    if option.since:
        return f"from {option.since}"
    return f"until {option.until}" if option.until else "all"
