#!/bin/sh
# PAM session of slurmstepd, run as root before any user code: keeps user code off the Slurm node. In a bridged partition
# only the batch script (our launcher) may start; an srun step could bring its own task epilog or LD_PRELOAD, so it is
# stopped before its environment takes effect. The step id comes from slurmstepd's process title, "slurmstepd: [17.0]",
# the partition from slurmctld. If either is unknown, the step does not start.
[ "$PAM_TYPE" = open_session ] || exit 0
read -r title < "/proc/$PPID/cmdline"
step=${title#*[}
step=${step%%]*}
case "$step" in
*.batch | *.extern) exit 0 ;;
esac
# An array's id stands for all of its tasks, each on a line of its own (a pending one may name several).
partitions=$(SLURM_CONF="@SLURM_CONF@" PATH="@SLURM_COMMANDS@:/usr/bin:/bin" squeue --noheader --jobs="${step%%.*}" --format=%P) || exit 1
set -f
IFS=',
	 '
for partition in $partitions; do
    case ",@BRIDGED@," in
    *",$partition,"*) exit 1 ;;
    esac
done
[ -n "$partitions" ]
