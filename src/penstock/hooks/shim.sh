#!/bin/sh
# Stands for Slurm's commands in a pod (srun, scontrol, squeue …): the job's launcher runs the real one on the Slurm node, as
# the user, and this ends as that ended. Needs sh, cat, mkdir, mkfifo and rm of the image; dd, sleep and wc for input.
#
# A call is a folder that serve.sh, through which penstockd talks with the pod, finds in calls/, also after a connection broke:
#   request   the umask and a line feed, then fields ending in NUL: folder, number of words, words; then the environment
#   bell      a FIFO with a line for each event, ending in " ."
#   print.*   pieces of output to be printed here; in.*, file.*: pieces of input and files for the command
#   ready, end
# The id is this process's number, which may come again, with its start time.

run=/penstock-run name=${0##*/} folder=$PWD
unset -f cat dd kill mkdir mkfifo printf read rm sleep tail wc 2>/dev/null
PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:$PATH LC_ALL=C
for fd in 0 1 2; do [ -e "/proc/$$/fd/$fd" ] || eval "exec $fd<>/dev/null"; done
read -r stat <"/proc/$$/stat"
identify() { shift 19; id=$$-$1; }
# shellcheck disable=SC2086 # numbers, from the third on
identify ${stat##*) }
call=$run/calls/$id
[ -d "$run/calls" ] || mkdir -p "$run/calls" 2>/dev/null
if ! { mkdir -m 700 "$call" && mkfifo "$call/bell" "$call/life"; } 2>/dev/null; then
    echo "$name: error: penstock cannot be asked: $run is not writable, or the image has no mkfifo" >&2
    exit 1
fi
{
    umask
    printf '%s\0' "$folder" $(($# + 1)) "$name" "$@"
    cat "/proc/$$/environ"
} >"$call/request"
[ -p "$run/bell" ] || mkfifo "$run/bell" 2>/dev/null
exec 4<&0 5>&2 6<>"$call/life" 7<>"$run/bell" 8<>"$call/bell" 9<"$call/life"

# Sees the end of this process, however and how early it comes: nobody else can write to `life`.
(
    trap '' HUP INT QUIT TERM USR1 USR2 ALRM PIPE
    exec 4<&- 5>&- 6>&- 8>&- </dev/null >/dev/null 2>&1
    read -r word <&9
    if [ -e "$call/end" ]; then echo "done $id" >&7; else echo "gone $id" >&7; fi
    rm -rf "$call"
) &
exec 9<&-

trap '' PIPE # a command goes on when nobody reads its output
for signal in HUP INT QUIT TERM USR1 USR2 CONT ALRM; do
    # shellcheck disable=SC2064 # expanded now on purpose: each trap names its own signal
    trap "echo 'signal $id $signal' >&7" "$signal"
done

# Standard input in pieces, once the command wants it: `sbatch job.sh` in a `while read` loop leaves it alone.
feed() {
    trap - HUP INT QUIT TERM USR1 USR2 CONT ALRM
    exec 5>&- 6>&- 8>&- >/dev/null 2>&1
    at=0
    while
        piece=$call/in.$((1000000000000 + at)) # names in the order of numbers
        dd bs=32768 count=1 of="$piece" && size=$(wc -c <"$piece") && size=$((size)) && [ "$size" -gt 0 ]
    do
        echo "in $id $at $size" >&7
        at=$((at + size))
        while set -- "$call"/in.* && [ $# -gt 8 ]; do sleep 0.1 || sleep 1; done
    done
    echo "$at" >"$call/eof"
    echo "eof $id $at" >&7
}

: >"$call/ready"
echo "call $id" >&7
rest= at1=0 at2=0
while :; do
    line= # a signal may interrupt the next, also within a line
    IFS= read -r line <&8
    line=$rest$line rest=
    case "$line" in
    *" .") ;;
    *) rest=$line; continue ;;
    esac
    # shellcheck disable=SC2086 # words
    set -- $line
    case $1 in
    print) # STREAM OFFSET LENGTH PIECE
        if [ "$2" = 1 ]; then at=$at1 fd=1; else at=$at2 fd=5; fi
        skip=$((at - $3))
        if [ "$skip" -ge 0 ] && [ "$skip" -lt "$4" ]; then
            at=$(($3 + $4))
            if [ "$fd" = 1 ]; then at1=$at; else at2=$at; fi
            if [ "$skip" = 0 ]; then cat "$call/$5"; else tail -c "+$((skip + 1))" "$call/$5"; fi >&"$fd" 2>/dev/null
        fi
        : >"$call/$5" # frees its room without another process
        echo "took $id $2 $at" >&7
        ;;
    feed) [ -n "${fed:-}" ] || { fed=1; feed <&4 & } ;;
    open) # NUMBER: of a file that the command names
        path=$(cat "$call/path.$2"; echo .)
        if why=$(cat -- "${path%.}" 2>&1 >"$call/file.$2"); then
            echo "file $id $2" >&7
        else
            printf %s "${why##*: }" >"$call/file.$2"
            echo "nofile $id $2" >&7
        fi
        ;;
    end) # exit CODE, or signal NUMBER
        : >"$call/end"
        [ "$2" = signal ] || exit "$3"
        trap - "$3" 2>/dev/null
        kill "-$3" $$
        exit $((128 + $3))
        ;;
    esac
done
