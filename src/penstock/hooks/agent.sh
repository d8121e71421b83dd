#!/bin/sh
# Runs as the first process of a job's container and needs nothing of the image but /bin/sh.
# Beside it lie: environment (export lines), arguments (a `set --` line: the command to run), script, and settings:
#   penstock_workdir, penstock_umask, penstock_stdin, penstock_stdout, penstock_stderr (empty: leave the container's own).
# As the first process it would ignore every signal it has no trap for, so it traps, passes on, and waits on.

here=${0%/*}

note() { echo "penstock: $*" >&2; }

. "$here/settings"

if [ "${1:-}" = hold ]; then # not rank 0: keep the room until the job ends
    trap 'exit 0' TERM INT
    while :; do sleep 3600 & wait $!; done
fi

if [ -n "$penstock_stdout" ]; then
    exec >>"$penstock_stdout" || exit 126
fi
if [ -n "$penstock_stderr" ]; then
    if [ "$penstock_stderr" = "$penstock_stdout" ]; then exec 2>&1; else exec 2>>"$penstock_stderr" || exit 126; fi
fi

cd "$penstock_workdir" 2>/dev/null || {
    note "the working directory $penstock_workdir is not in the container; using /tmp"
    cd /tmp || exit 126
}

unset OLDPWD
[ -z "$penstock_umask" ] || umask "$penstock_umask"
if [ ! -r "${penstock_stdin:=/dev/null}" ]; then
    note "the input file $penstock_stdin is not in the container"
    exit 126
fi
. "$here/environment"
. "$here/arguments"
command -v srun >/dev/null 2>&1 || PATH=$PATH:$here # one that says why it does nothing

if ! command -v "$1" >/dev/null 2>&1; then
    note "the image has no $1, which the script's first line asks for"
    exit 127
fi

# A shell shows "exit 137" and "killed by signal 9" as the same number, but announces only the latter on its stderr, and
# only if it starts no other process before it waits.
announced=/tmp/.penstock-${SLURM_JOB_ID:-0}-${SLURM_RESTART_COUNT:-0}
exec 9>&2
( : >"$announced" ) 2>/dev/null && exec 2>"$announced" || exec 2>/dev/null

# Shells start background processes with SIGINT and SIGQUIT ignored, so that a script could not even trap them. Bash can undo
# that, others need the env of GNU coreutils; where there is neither, those two signals do not reach the script.
undo=
/usr/bin/env --default-signal=INT,QUIT true 2>/dev/null && undo='/usr/bin/env --default-signal=INT,QUIT'
begin() {
    trap - INT QUIT
    exec $undo "$@"
}

begin "$@" <"$penstock_stdin" 2>&9 9>&- &
child=$!
passed=
for name in HUP INT QUIT ABRT USR1 USR2 URG WINCH XCPU; do
    # shellcheck disable=SC2064 # expanded now on purpose: each trap names its own signal
    trap "passed=\"\$passed $name\"; kill -$name $child 2>/dev/null" "$name"
done
# Ending means SIGTERM to all processes of the job, not just to the script. -1 is "all but me" only for the first process.
everyone=$child
[ $$ -eq 1 ] && everyone=-1
trap 'kill -TERM $everyone 2>/dev/null' TERM

# `wait` returns early when a trap ran; only a child that is no longer there has really ended. If it went in the very moment of
# a trap, asking again gives its own status (127: the shell has told it already).
while :; do
    wait "$child"
    status=$?
    kill -0 "$child" 2>/dev/null || break
done
if [ "$status" -gt 128 ]; then
    wait "$child"
    again=$?
    [ "$again" -eq 127 ] || status=$again
    # What ends in the moment of a trap is not announced; then a signal that was passed on tells as much.
    name=$(kill -l "$status" 2>/dev/null)
    case "$passed " in *" ${name:-none} "*) echo passed >>"$announced" ;; esac
    if [ -s "$announced" ] && [ -w /dev/termination-log ]; then echo signal >/dev/termination-log; fi
fi
exit "$status"
