#!/bin/sh
# First process of a job's container; needs only /bin/sh of the image.
# Next to it are: environment (export lines), arguments (a `set --` line: the command to run), slurm_script, and settings:
#   penstock_workdir, penstock_lost_workdir (the job's working directory if the pod does not see it; else empty), penstock_umask, penstock_stdin, penstock_stdout, penstock_stderr (empty: the container's own),
#   penstock_kept (a folder of the pod whose files 1 and 2 penstockd fetches with `collect`; empty: none),
#   penstock_output_dir (the job's output folder, to be created; empty: none), penstock_outputs (one pattern per line, of
#   files that only the container has: copied there at the end).
# Process 1 ignores every signal without a trap, so the agent traps signals, forwards them, and waits on.

here=${0%/*}
penstock_run=/penstock-run # a folder that the pod's containers share: hosts (a gang's /etc/hosts), named (made when that is complete)

note() { echo "penstock: $*" >&2; }

# End with a reason in the termination log, for penstockd to report: it may not reach the job's output.
give_up() {
    [ ! -w /dev/termination-log ] || exec 2>/dev/termination-log
    note "$*"
    exit 126
}

. "$here/settings"

# penstockd runs `names` in every pod of a gang, with the other pods' lines of /etc/hosts and a last line "." on stdin. They are added
# once, without truncation: a lookup at that moment must not fail.
if [ "${1:-}" = names ]; then
    penstock_lines=
    while IFS= read -r line && [ "$line" != . ]; do penstock_lines="$penstock_lines${penstock_lines:+
}$line"; done
    [ "$line" = . ] || exit 1 # cut off
    [ -e "$penstock_run/named" ] || { echo "$penstock_lines" >>"$penstock_run/hosts" && : >"$penstock_run/named"; } || exit 1
    exit 0
fi

# In a gang nothing of the job's starts before all its pods run and know each other's names.
wait_for_names() {
    trap 'exit 143' TERM INT
    penstock_looks=0
    until [ -e "$penstock_run/named" ]; do
        penstock_looks=$((penstock_looks + 1))
        { [ "$penstock_looks" -lt 100 ] && sleep 0.05; } 2>/dev/null || sleep 1
    done
    trap - TERM INT
}

# `look FOLDER…` runs before the job's container is created: a kubelet would create what is missing, as root. In a gang it makes the
# file for /etc/hosts, and waits if the container has no agent that would.
if [ "${1:-}" = look ]; then
    shift
    for folder; do
        [ ! -d "$folder" ] || continue
        [ ! -w /dev/termination-log ] || exec 2>/dev/termination-log
        note "#K8S_MOUNT=$folder: the job's owner sees no such folder on the node"
        exit 1
    done
    [ -n "${PENSTOCK_NAMES-}" ] || exit 0
    [ -n "$PENSTOCK_ADDRESS" ] || give_up "the pod has no address"
    {
        echo '127.0.0.1 localhost'
        echo '::1 localhost ip6-localhost ip6-loopback'
        echo "$PENSTOCK_ADDRESS $PENSTOCK_NAMES"
    } >"$penstock_run/hosts" || give_up "the file for /etc/hosts cannot be written"
    [ -z "${PENSTOCK_HELD-}" ] || wait_for_names
    exit 0
fi

[ ! -d /etc/hosts ] || give_up "/etc/hosts is a folder: the pod's init container has not made the file"

if [ "${1:-}" = hold ]; then # not rank 0: hold the node's resources until the job ends
    trap 'exit 0' TERM INT
    command -v sleep >/dev/null 2>&1 || give_up "the image has no sleep, which pods of jobs on several nodes need"
    while :; do sleep 3600 & wait $!; done
fi

# penstockd runs `collect FILE OFFSET` beside the agent: prints that kept file from the offset on, until the script has ended and
# everything is printed. Each `cat` continues where the last one stopped, because they share the open file: every byte comes once.
if [ "${1:-}" = collect ]; then
    trap '' TERM HUP INT # the SIGTERM to all processes must not stop the collection of the last output
    trap : USR1
    cd "$penstock_kept" && exec 3<>"$2" || exit 1
    echo $$ >"collector.$2"
    tail -c "+$(($3 + 1))" <&3 || exit 1
    while :; do
        last=
        [ ! -e begun ] || [ -s ended ] || last=1
        cat <&3 || exit 1
        [ -z "$last" ] || exit 0
        ! read -r newest <"collector.$2" || [ "$newest" = $$ ] || exit 1 # a newer collector has replaced this one
        sleep 1 &
        wait $!
    done
fi

[ ! -e "$penstock_run/hosts" ] || wait_for_names

# End the agent once penstockd has all output: when the container ends its files are out of reach.
finish() {
    status=$1
    [ -s "$penstock_stdout" ] || [ -s "$penstock_stderr" ] || penstock_mirrors=
    for fd in $penstock_mirrors; do dd bs=65536 count=16 <&"$fd" >&7; done # the rest of the copy, up to 1 MiB each
    [ -n "$penstock_kept" ] || exit "$status"
    trap 'exit "$status"' TERM
    : >"$penstock_kept/ended"
    for fd in 1 2; do read -r collector <"$penstock_kept/collector.$fd" && kill -USR1 "$collector"; done
    while [ -s "$penstock_kept/collected" ]; do sleep 0.1 || sleep 1; done
    exit "$status"
} 2>/dev/null

if [ -n "$penstock_kept" ]; then
    for penstock_tool in cat sleep tail; do
        command -v "$penstock_tool" >/dev/null 2>&1 || give_up "the image has no $penstock_tool, so output can only go to the shared folders"
    done
    # Create the marks now, non-empty: if the node's disk is full later, they can still be truncated.
    { echo . >"$penstock_kept/ended" && echo . >"$penstock_kept/collected" && : >"$penstock_kept/begun"; } 2>/dev/null &&
        [ -s "$penstock_kept/collected" ] || give_up "the node's disk has no room for the job's output"
fi
exec 7>&1 # the container's log
# A shell exits when `exec` cannot open a file, so try that first.
for penstock_file in "$penstock_stdout" "$penstock_stderr"; do
    [ -z "$penstock_file" ] || ( : >>"$penstock_file" ) 2>/dev/null || give_up "the output file $penstock_file cannot be opened in the container"
done
[ -z "$penstock_stdout" ] || exec >>"$penstock_stdout"
if [ -n "$penstock_stderr" ]; then
    if [ "$penstock_stderr" = "$penstock_stdout" ]; then exec 2>&1; else exec 2>>"$penstock_stderr"; fi
fi

# A best-effort copy of the output for `kubectl logs`; the files are authoritative. It skips what a file already holds.
mirror() { # FD FILE
    [ ! -s "$2" ] || tail -c 1 <&"$1" >/dev/null
    ( trap '' TERM; tail -c +1 -f <&"$1" >&7 & )
}
penstock_mirrors=
if [ $$ -eq 1 ] && command -v tail >/dev/null; then
    if [ -f "$penstock_stdout" ] && [ -r "$penstock_stdout" ] && exec 5<"$penstock_stdout"; then
        penstock_mirrors=5
        mirror 5 "$penstock_stdout"
    fi
    if [ "$penstock_stderr" != "$penstock_stdout" ] && [ -f "$penstock_stderr" ] && [ -r "$penstock_stderr" ] && exec 6<"$penstock_stderr"; then
        penstock_mirrors="$penstock_mirrors 6"
        mirror 6 "$penstock_stderr"
    fi
fi 2>/dev/null

[ -z "$penstock_lost_workdir" ] || note "pods do not see the working directory $penstock_lost_workdir: the job runs in $penstock_workdir of its pod, and what it leaves there vanishes with it"
cd "$penstock_workdir" 2>/dev/null || {
    note "the working directory $penstock_workdir is not in the container; using /tmp"
    cd /tmp || finish 126
}

# Drop the API server's variables that a kubelet adds: the user did not export them.
for penstock_tail in "" _ADDR _PORT _PROTO; do unset "KUBERNETES_PORT_${KUBERNETES_SERVICE_PORT:-443}_TCP$penstock_tail"; done
unset KUBERNETES_PORT KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBERNETES_SERVICE_PORT_HTTPS
unset OLDPWD
[ -z "$penstock_umask" ] || umask "$penstock_umask"
if [ ! -r "${penstock_stdin:=/dev/null}" ]; then
    note "the input file $penstock_stdin is not in the container"
    finish 126
fi
# The job's output folder. An existing one would be somebody else's.
if [ -n "$penstock_output_dir" ] && ! mkdir -m 700 "$penstock_output_dir"; then
    note "the folder for outputs could not be made; PENSTOCK_OUTPUT_DIR is not set"
    penstock_output_dir=
fi

# A shell gives "exit 137" and "killed by signal 9" the same status. Its `jobs` list tells them apart: for an exit it contains the
# number, in any language. Bash forgets a job that was waited for, so it is asked on SIGCHLD; if that is too late, there is still
# what bash prints on its stderr, for most signals only. The script may write there, too, so only the last line counts that is
# about job 1, or that a shell prints about that process.
ending=/dev/termination-log noted= child=
[ -r "$ending" ] && [ -w "$ending" ] || ending=/tmp/.penstock-$$
note_ending() {
    [ -z "$child" ] || [ -n "$noted" ] || kill -0 "$child" 2>/dev/null || { noted=1; { echo; jobs; } >>"$ending"; }
}
exec 9>&2
( : >"$ending" ) 2>/dev/null && exec 2>>"$ending" || exec 2>/dev/null
[ -z "${BASH_VERSION:-}" ] || trap note_ending CHLD

# Shells start background processes with SIGINT and SIGQUIT ignored, and a script cannot trap an ignored signal. Bash can undo
# that, others need env of GNU coreutils; without either, those two signals do not reach the script.
undo=
/usr/bin/env --default-signal=INT,QUIT true 2>/dev/null && undo='/usr/bin/env --default-signal=INT,QUIT'

# Becomes the script. The user's variables are set last, because they may have the names of the agent's own.
begin() {
    trap - INT QUIT
    echo >>"$ending" # blank: if the agent is killed, a kubelet shows this file
    . "$here/arguments"
    penstock_program=$1 penstock_here=$here
    set -- $undo "$@"
    . "$here/environment"
    unset PENSTOCK_OUTPUT_DIR
    [ -z "$penstock_output_dir" ] || export PENSTOCK_OUTPUT_DIR="$penstock_output_dir"
    PATH=$penstock_here:$PATH # Slurm's commands, before those of the image: shim.sh
    if ! command -v "$penstock_program" >/dev/null 2>&1; then
        note "the image has no $penstock_program, which the script's first line asks for"
        exit 127
    fi
    exec "$@"
}

# A signal may arrive before there is a child, and a child that still has the agent's traps loses it. So signals are kept until
# the child has noted that its traps are reset, or for a second: on a full disk it cannot write that note.
passed= kept= died=
hand_over() {
    [ -n "$child" ] && [ -n "$kept" ] || return
    for try in 1 2 3 4 5 6 7 8 9; do [ ! -s "$ending" ] && kill -0 "$child" && { sleep 0.1 || sleep 1; } || break; done
    handed=$kept kept=
    for name in $handed; do
        # -1 is "all but me" only for the first process
        if [ "$name" != all ]; then kill "-$name" "$child"; elif [ $$ -eq 1 ]; then kill -TERM -1; else kill "$child"; fi
    done
} 2>/dev/null
pass_on() {
    passed="$passed $1" kept="$kept $1"
    hand_over
}
for name in HUP INT QUIT ABRT ALRM USR1 USR2 URG WINCH XCPU; do
    # shellcheck disable=SC2064 # expanded now on purpose: each trap names its own signal
    trap "pass_on $name" "$name"
done
trap 'kept="$kept all"; hand_over' TERM # Slurm ends a job with SIGTERM to all of its processes, not just to the script
trap 'pass_on TERM' TTIN # penstockd's code for a SIGTERM to the script alone
begin <"$penstock_stdin" 2>&9 5<&- 6<&- 7>&- 9>&- &
child=$!
[ -z "${BASH_VERSION:-}" ] || note_ending # SIGCHLD may have come before `child` was set
hand_over

# `wait` returns early when a trap ran, so the child has ended only if it is gone. If it ended just as a trap ran, another `wait`
# gives its own status, unless another trap ran. 127 then mostly means that the shell has already reported and forgotten it.
while :; do
    wait "$child"
    status=$?
    kill -0 "$child" 2>/dev/null || break
done
if [ "$status" -gt 128 ]; then
    for asked in 1 2 3 4 5 6 7 8 9; do
        wait "$child"
        again=$?
        [ "$again" -ne 127 ] || break
        status=$again
    done
    note_ending
    state=
    while read -r line; do
        case "$line" in
        "[1]"*) state=$line ;;
        "$0: "*" $child "*) state=$line ;;
        esac
    done <"$ending"
    case "$again $state" in "127 ["*127*) status=127 ;; esac
    [ "$status" -le 128 ] || [ "$status" -gt 192 ] || case "$state" in "" | "["*"$status"*) ;; *) died=signal ;; esac
    if [ -z "$state" ]; then # unknown: assume the signal if we forwarded it
        name=$(kill -l "$status")
        case "$passed " in *" ${name:-none} "*) died=signal ;; esac
    fi 2>/dev/null
fi
exec 2>&9
: >"$ending"

# Same relative path as in the working directory. Links stay links: their targets may not be the job's.
keep() {
    case "$1" in */*) mkdir -p "$penstock_output_dir/${1%/*}" || return ;; esac
    [ ! -e "$penstock_output_dir/$1" ] || return 0
    cp -RPp -- "$1" "$penstock_output_dir/$1"
}
copy_out() {
    IFS='
'
    set -f
    set -- $penstock_outputs
    set +f
    IFS=
    for pattern in "$@"; do
        for path in $pattern; do
            [ ! -e "$path" ] && [ ! -L "$path" ] || keep "$path" || return
        done
    done
    : >"$penstock_output_dir/.penstock-copied"
}
if [ -n "$penstock_outputs" ] && [ -n "$penstock_output_dir" ]; then
    ( copy_out ) || note "not all outputs could be copied"
fi

# Written for penstockd: whether it was a signal, the CPU time of this shell and its children, and the peak memory of the
# root cgroup with its limit: only the limit shows whether that cgroup is the container's.
most_memory() { read -r most <"/sys/fs/cgroup/$1" && read -r limit <"/sys/fs/cgroup/$2" && echo "memory $most $limit"; }
if [ -w /dev/termination-log ]; then
    {
        [ -z "$died" ] || echo "$died"
        times
        most_memory memory.peak memory.max || most_memory memory/memory.max_usage_in_bytes memory/memory.limit_in_bytes
    } >/dev/termination-log 2>/dev/null
fi
finish "$status"
