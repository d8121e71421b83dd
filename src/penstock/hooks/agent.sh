#!/bin/sh
# Runs as the first process of a job's container and needs nothing of the image but /bin/sh.
# Beside it lie: environment (export lines), arguments (a `set --` line: the command to run), slurm_script, and settings:
#   penstock_workdir, penstock_lost_workdir (the one that should have been and is not in the pod; empty: none), penstock_umask, penstock_stdin, penstock_stdout, penstock_stderr (empty: leave the container's own),
#   penstock_kept (a folder of the pod's own whose files 1 and 2 penstockd fetches with `collect`; empty: none),
#   penstock_output_dir (the job's folder for outputs, to be made; empty: none), penstock_outputs (patterns, one a line, of
#   files that only the container has: copied there at the end).
# As the first process it would ignore every signal it has no trap for, so it traps, passes on, and waits on.

here=${0%/*}

note() { echo "penstock: $*" >&2; }

# An end in words where nobody could read them in the job's output: penstockd tells them.
give_up() {
    [ ! -w /dev/termination-log ] || exec 2>/dev/termination-log
    note "$*"
    exit 126
}

. "$here/settings"

if [ "${1:-}" = hold ]; then # not rank 0: keep the room until the job ends
    trap 'exit 0' TERM INT
    command -v sleep >/dev/null 2>&1 || give_up "the image has no sleep, which pods of jobs on several nodes need"
    while :; do sleep 3600 & wait $!; done
fi

# `look FOLDER…` runs before the job's container is made: a kubelet would make a folder that is missing, as root.
if [ "${1:-}" = look ]; then
    shift
    for folder; do
        [ ! -d "$folder" ] || continue
        [ ! -w /dev/termination-log ] || exec 2>/dev/termination-log
        note "#K8S_MOUNT=$folder: the job's owner sees no such folder on the node"
        exit 1
    done
    exit 0
fi

# penstockd runs `collect FILE OFFSET` beside the agent: what that kept file holds from there on, until the script has ended and
# all of it is out. Each `cat` goes on where the last one stopped, because they share the open file: every byte comes once.
if [ "${1:-}" = collect ]; then
    trap '' TERM HUP INT # "end, all of you" is not for the one who fetches the last words
    trap : USR1
    cd "$penstock_kept" && exec 3<>"$2" || exit 1
    echo $$ >"collector.$2"
    tail -c "+$(($3 + 1))" <&3 || exit 1
    while :; do
        last=
        [ ! -e begun ] || [ -s ended ] || last=1
        cat <&3 || exit 1
        [ -z "$last" ] || exit 0
        ! read -r newest <"collector.$2" || [ "$newest" = $$ ] || exit 1 # nobody listens to this one any more
        sleep 1 &
        wait $!
    done
fi

# The end of the agent, and not before penstockd has all that was written: with the container its files are out of reach.
finish() {
    status=$1
    [ -s "$penstock_stdout" ] || [ -s "$penstock_stderr" ] || penstock_mirrors=
    for fd in $penstock_mirrors; do dd bs=65536 count=16 <&"$fd" >&7; done # what the copy still lacks, within reason
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
    # Marks for later are made now, with something in them: by then the node's disk may be full, which keeps nobody from emptying a file.
    { echo . >"$penstock_kept/ended" && echo . >"$penstock_kept/collected" && : >"$penstock_kept/begun"; } 2>/dev/null &&
        [ -s "$penstock_kept/collected" ] || give_up "the node's disk has no room for the job's output"
fi
exec 7>&1 # the container's log
# A shell ends at once when its `exec` cannot open a file: whether it can is tried before.
for penstock_file in "$penstock_stdout" "$penstock_stderr"; do
    [ -z "$penstock_file" ] || ( : >>"$penstock_file" ) 2>/dev/null || give_up "the output file $penstock_file cannot be opened in the container"
done
[ -z "$penstock_stdout" ] || exec >>"$penstock_stdout"
if [ -n "$penstock_stderr" ]; then
    if [ "$penstock_stderr" = "$penstock_stdout" ]; then exec 2>&1; else exec 2>>"$penstock_stderr"; fi
fi

# A copy of the output for `kubectl logs`, as far as it goes: the files are what counts. It starts behind what a file holds already.
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

# What a kubelet tells every container of the API server is not what the user exported.
for penstock_tail in "" _ADDR _PORT _PROTO; do unset "KUBERNETES_PORT_${KUBERNETES_SERVICE_PORT:-443}_TCP$penstock_tail"; done
unset KUBERNETES_PORT KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBERNETES_SERVICE_PORT_HTTPS
unset OLDPWD
[ -z "$penstock_umask" ] || umask "$penstock_umask"
if [ ! -r "${penstock_stdin:=/dev/null}" ]; then
    note "the input file $penstock_stdin is not in the container"
    finish 126
fi
# The job's folder for outputs: never one that is there already, it would be somebody else's.
if [ -n "$penstock_output_dir" ] && ! mkdir -m 700 "$penstock_output_dir"; then
    note "the folder for outputs could not be made; PENSTOCK_OUTPUT_DIR is not set"
    penstock_output_dir=
fi

# A shell gives "exit 137" and "killed by signal 9" the same number. Its list of jobs tells them apart: of an exit it names the
# number, in whatever language. Bash forgets a job that was waited for, and has to be asked when it hears of the end; should that
# be too late, what it announces on its stderr is left: only of signals, if not of all. The script may write there, too: of what is
# there only the last line counts that is about job 1, or that a shell announces of that process.
ending=/dev/termination-log noted= child=
[ -r "$ending" ] && [ -w "$ending" ] || ending=/tmp/.penstock-$$
note_ending() {
    [ -z "$child" ] || [ -n "$noted" ] || kill -0 "$child" 2>/dev/null || { noted=1; { echo; jobs; } >>"$ending"; }
}
exec 9>&2
( : >"$ending" ) 2>/dev/null && exec 2>>"$ending" || exec 2>/dev/null
[ -z "${BASH_VERSION:-}" ] || trap note_ending CHLD

# Shells start background processes with SIGINT and SIGQUIT ignored, so that a script could not even trap them. Bash can undo
# that, others need the env of GNU coreutils; where there is neither, those two signals do not reach the script.
undo=
/usr/bin/env --default-signal=INT,QUIT true 2>/dev/null && undo='/usr/bin/env --default-signal=INT,QUIT'

# What becomes the script. The user's variables are set here and last: they may be named as the agent's own.
begin() {
    trap - INT QUIT
    echo >>"$ending" # blank: should the agent be killed, a kubelet shows what is there
    . "$here/arguments"
    penstock_program=$1 penstock_here=$here
    set -- $undo "$@"
    . "$here/environment"
    unset PENSTOCK_OUTPUT_DIR
    [ -z "$penstock_output_dir" ] || export PENSTOCK_OUTPUT_DIR="$penstock_output_dir"
    command -v srun >/dev/null 2>&1 || PATH=$PATH:$penstock_here # one that says why it does nothing
    if ! command -v "$penstock_program" >/dev/null 2>&1; then
        note "the image has no $penstock_program, which the script's first line asks for"
        exit 127
    fi
    exec "$@"
}

# A signal may come before there is a child, and one that reaches it while it still has the agent's traps is lost. So signals are
# kept until the child has noted that it has none of them any more. On a full disk no note can be written: a second is enough.
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
trap 'kept="$kept all"; hand_over' TERM # ending means SIGTERM to all processes of the job, not just to the script
trap 'pass_on TERM' TTIN # how penstockd tells a SIGTERM that is for the script alone
begin <"$penstock_stdin" 2>&9 5<&- 6<&- 7>&- 9>&- &
child=$!
[ -z "${BASH_VERSION:-}" ] || note_ending # the signal may have come too soon
hand_over

# `wait` returns early when a trap ran; only a child that is no longer there has really ended. If it went in the very moment of
# a trap, asking again gives its own status, unless another trap ran. 127 then mostly means that the shell has told it already, and
# forgotten.
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
    if [ -z "$state" ]; then # nobody knows; then a signal that was passed on tells as much
        name=$(kill -l "$status")
        case "$passed " in *" ${name:-none} "*) died=signal ;; esac
    fi 2>/dev/null
fi
exec 2>&9
: >"$ending"

# The way in the folder is the way in the working directory. Links stay links: where they lead may be none of ours.
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

# Last words: whether it was a signal, the processor time of this shell and of all it waited for, and the most memory that the
# cgroup which calls itself the top had, with its limit: only by that can it be known for the container's own.
most_memory() { read -r most <"/sys/fs/cgroup/$1" && read -r limit <"/sys/fs/cgroup/$2" && echo "memory $most $limit"; }
if [ -w /dev/termination-log ]; then
    {
        [ -z "$died" ] || echo "$died"
        times
        most_memory memory.peak memory.max || most_memory memory/memory.max_usage_in_bytes memory/memory.limit_in_bytes
    } >/dev/termination-log 2>/dev/null
fi
finish "$status"
