"""docs/compatibility.md, made from the option table and the #K8S_ directives: what happens to each at a
bridged site.
"""

from __future__ import annotations

from typing import Final

from penstock.sbatch import foreign, k8s, options, rules

_TREATMENTS: Final = {
    "native": "Slurm does it, as always",
    "pod": "carried into the pod",
    "approximated": "done nearly so; the note says how",
    "refused": "the job is rejected in a bridged partition; the note says why",
    "ignored": "has no effect in a pod; the note says why",
}

_HEAD: Final = """# Which sbatch options do what

Made by `scripts/make_compatibility.py` from `src/penstock/sbatch/options.txt`; do not edit by hand.

The table has every option of sbatch from Slurm {first} to {last}. `--slurm VERSION` chooses the release;
without it the installed one counts, else 22.05. Values, conflicts and counts are tested live against sbatch
and slurmctld of 22.05.8, 24.11.5 and 26.05.5 (`tests/e2e/test_compiler_oracle.py`). An option whose values
are read otherwise in later releases has a line for each way; rules between options that differ are below.

In partitions that are not bridged nothing changes. In bridged ones each option is one of:

"""

_RULES: Final = """
## Rules that differ between releases

| in Slurm | rule | how we know |
|---|---|---|
"""

_FOREIGN: Final = """
## #PBS and #BSUB lines

sbatch reads them too: anywhere in the script, over `#SBATCH`, below the environment and the command line. One
`#BSUB` line switches all `#PBS` lines off; `--ignore-pbs` switches both off. An option that is not listed is
refused.

| line | becomes | Slurm | remark |
|---|---|---|---|
"""

_RESOURCES: Final = (
    "`nodes=` (`--nodes`, `--ntasks`, `--nodelist`, `--gpus-per-node`), `select=` (`--nodes`),"
    " `ncpus=` (`--mincpus`), `mpiprocs=` (`--ntasks-per-node`), `mem=`, `file=` (`--tmp`),"
    " `walltime=` and `cput=` (`--time`), `nice=`, `proc=` (`--constraint`),"
    " `accelerator=true` and `naccelerators=` (`--gres`); others are ignored"
)

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
    "NODE_SELECTOR": "`label=value` of its nodes, beside the site's own, where allowed; may be repeated",
    "TOLERATION": "`key[=value][:effect]`, if the site allows it; may be repeated",
    "PRIORITY_CLASS": "name of a PriorityClass, where the site gives none; not Kubernetes' own (`system-…`)",
}

_K8S: Final = """
## #K8S_ directives

One a line, `#K8S_NAME=value` without blanks around the sign, in UTF-8, before the first command. \
A site may forbid any of them (`kubernetes.forbidden_directives` of the site file).

| directive | meaning |
|---|---|
"""

_TAIL: Final = """
## Site file

`penstock validate`, `explain` and `mkinst` work for a site: the one of `--site FILE`, else that of
`$PENSTOCK_SITE`, else the one that is installed in /etc/penstock; `--site ''` is none. FILE is a site file
(YAML, see reference/site.md), or a small view of one as JSON or TOML, which is faster and which
`penstock apply` writes beside it (site.json for site.yaml). Where nobody says `--site` that view is read, as
the intake does at every file, for it is what is in force. It has these keys: `slurm` (release),
`complete` (`false`: what is not named here is a warning, not an error; a partition is first looked up with
`sinfo`, and nothing is said when Slurm does not answer within two seconds), `gres_types`, `max_array_size`,
`partitions` (name: `max_time`, `default`, `bridged`, `image`, `whole`: are all its nodes in `nodes`?,
`trusted`, `allowed_tolerations`, `allowed_node_labels`),
`nodes` (list of `count`, `cpus`, `memory_mib`, `gpus`, `gpu_type`, `features`, `partitions`), `registries`
(prefixes of images allowed), `forbidden_directives`, `default_image`, `shared_mounts`, `missing_workdir`,
`namespace_pattern`, `kill_wait`, `gpu_resources`, `memory_per_cpu_mib`, `classes` (name: `cpus`,
`memory_mib`, `priority_class`), `flavours` (name: GPUs), `cluster`, and `penstockd` (where its socket,
slurm.conf and the results are). `apply` writes all that shapes pods under `pods` instead, as in
penstockd.json (see operations.md): pods are shown as penstockd would make them.
"""


def render() -> str:
    parts = [_HEAD.format(first=options.RELEASES[0], last=options.RELEASES[-2])]
    parts += [f"* **{name}**: {text}\n" for name, text in _TREATMENTS.items()]
    parts.append("\n| option | value | Slurm | environment | in a pod | note |\n|---|---|---|---|---|---|\n")
    parts += [_row(option) for option in options.every_option()]
    parts.append(_RULES)
    parts += [
        f"| {_bounds(rule.since, rule.until)} | {rule.meaning} | {rule.evidence} |\n"
        for rule in rules.every_rule().values()
    ]
    parts.append(_FOREIGN)
    parts += [_foreign_row(row) for row in foreign.rows()]
    parts.append(_K8S)
    parts += [f"| `#K8S_{name}` | {_DIRECTIVES[name]} |\n" for name in k8s.NAMES]
    parts.append(_TAIL)
    return "".join(parts)


def _row(option: options.Option) -> str:
    name = f"`-{option.short}`, `--{option.name}`" if option.short else f"`--{option.name}`"
    value = {"none": "", "required": option.grammar, "optional": f"[{option.grammar}]"}[option.argument]
    environment = " ".join(f"`{variable}`" for variable in option.environment)
    return (
        f"| {name} | {value} | {_bounds(option.since, option.until)} | {environment} |"
        f" {option.treatment} | {option.note} |\n"
    )


def _bounds(since: str, until: str) -> str:
    if since:
        return f"from {since}"
    return f"until {until}" if until else "all"


def _foreign_row(row: foreign.Row) -> str:
    names = " ".join(
        f"`{name}`" for name in (row.short and f"-{row.short}", row.long and f"--{row.long}") if name
    )
    becomes = f"`--{row.becomes}`" if row.becomes not in ("", "*") else "nothing"
    if row.becomes == "*":
        becomes = _RESOURCES if row.short == "l" else "`depend=` becomes `--dependency`; others are ignored"
    return f"| `#{row.system}` {names} | {becomes} | {_bounds(row.since, '')} | {row.note} |\n"
