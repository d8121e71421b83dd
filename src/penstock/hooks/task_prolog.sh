#!/bin/sh
# TaskProlog: keeps user code off the Slurm node. In a bridged partition only the batch script (our launcher) may start there;
# srun steps are stopped. A line starting with "print" reaches the user.
case ",@BRIDGED@," in
*",$SLURM_JOB_PARTITION,"*) ;;
*) exit 0 ;;
esac
case ",@BATCH_STEP@," in
*",$SLURM_STEP_ID,"*) exit 0 ;;
esac
echo "print penstock: job steps (srun) do not run in pods yet; put the command into the batch script"
exit 1
