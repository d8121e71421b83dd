#!/bin/sh
# penstockd's end of the conversation with a pod, run beside the agent by one standing exec. Frames in both directions: a line of
# words, the last of which is the length of the bytes that follow. From the pod:
#   hello VERSION 0               first; then `call` for every call that is open, then `ready 0`
#   call ID LENGTH                with its request (shim.sh)
#   in ID OFFSET LENGTH, file ID NUMBER LENGTH, nofile ID NUMBER LENGTH (with the reason), and eof, took, done, gone, signal
#   as shim.sh says them
# To the pod:
#   print ID STREAM OFFSET LENGTH, taken ID OFFSET 0, feed ID 0, open ID NUMBER LENGTH, end ID exit|signal NUMBER 0, again ID 0
# Nothing is lost when a connection breaks: what waits for an answer lies in files, and the next server says it all again.
# Needs sh, cat, dd, mkdir, mkfifo and wc of the image.

run=/penstock-run
PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:$PATH LC_ALL=C
trap '' HUP INT QUIT TERM USR1 USR2 ALRM # Slurm's SIGTERM to all processes of a job is not for this one
mkdir -p "$run/calls" && cd "$run" || exit 1
[ -p bell ] || mkfifo bell || exit 1
exec 3<&0 4>&1 5<>bell </dev/null

# The last server may hang in a write to a connection that broke. An exec's first process leads a group of its own.
started() { read -r stat <"/proc/$1/stat" && set -- ${stat##*) } && shift 19 && start=$1; }
{ read -r pid since <server && started "$pid" && [ "$start" = "$since" ] && kill -9 "-$pid"; } 2>/dev/null
started $$ && echo "$$ $start" >server

# A line for a call's shim, if it is still there.
tell() { # ID LINE
    [ ! -p "calls/$1/bell" ] || echo "$2 ." 1<>"calls/$1/bell"
}
# The next LENGTH bytes, to a file of a call.
keep() { # ID FILE LENGTH
    file=/dev/null
    [ ! -d "calls/$1" ] || file=calls/$1/$2
    [ "$3" -eq 0 ] || dd bs="$3" count=1 iflag=fullblock of="$file" <&3 2>/dev/null
}

# Commands of penstockd, until it leaves.
(
    exec 4>&-
    pieces=0
    while IFS=' ' read -r verb id a b c <&3; do
        case $verb in
        print) # STREAM OFFSET LENGTH
            piece=print.$$.$((pieces += 1)) # no piece has another one's name, which may not be printed yet
            keep "$id" "$piece" "$c"
            tell "$id" "print $a $b $c $piece"
            ;;
        taken) rm -f "calls/$id/in.$((1000000000000 + a))" ;;
        feed) tell "$id" feed ;;
        open) # NUMBER LENGTH
            keep "$id" "path.$a" "$b"
            tell "$id" "open $a"
            ;;
        end) tell "$id" "end $a $b" ;;
        again) echo "call $id" >&5 ;;
        esac
    done
    echo "bye $$" >&5
) &

# A call, and what of its input waits to be taken.
announce() { # ID
    [ -e "calls/$1/ready" ] && [ ! -e "calls/$1/end" ] || return
    say "call $1" "calls/$1/request"
    for piece in "calls/$1"/in.*; do
        [ ! -s "$piece" ] || say "in $1 $((${piece##*.} - 1000000000000))" "$piece"
    done
    [ ! -e "calls/$1/eof" ] || { read -r size <"calls/$1/eof" && echo "eof $1 $size 0" >&4; }
}
# A frame with a file as its body. The file may vanish, but not between header and body.
say() { # LINE FILE
    [ -r "$2" ] && size=$(wc -c <"$2") && {
        echo "$1 $((size))"
        cat <&6
    } 6<"$2" >&4
} 2>/dev/null

echo "hello 1 0" >&4
for call in calls/*/; do
    id=${call#calls/}
    announce "${id%/}"
done
echo "ready 0" >&4
while IFS=' ' read -r verb id a b <&5; do
    case $verb in
    call) announce "$id" ;;
    in) say "in $id $a" "calls/$id/in.$((1000000000000 + a))" ;;
    file | nofile) say "$verb $id $a" "calls/$id/file.$a" ;;
    bye) [ "$id" != $$ ] || exit 0 ;;
    *) echo "$verb $id $a $b 0" >&4 ;;
    esac
done
