"""Slurm's commands typed in pods: what the job's launcher runs for them on the Slurm node.

Pure functions. A command gets through by an allow-list only: nothing of the user's is run or opened outside
of a pod, and no variable of the user's reaches a program there unless it is named here.
"""
