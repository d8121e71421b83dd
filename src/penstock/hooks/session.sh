#!/bin/sh
# PAM session of slurmstepd, run as root before anything of the user's: keeps user code off the Slurm node. In a bridged
# partition only the batch script (our launcher) may start there; a step made with srun could bring its own task epilog or
# LD_PRELOAD along, so it is stopped before its environment counts. The step is named by slurmstepd's own title,
# "slurmstepd: [17.0]", the partition by slurmctld. When that cannot be known, the step does not start.
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
