"""The demo: four plain sbatch scripts through real Slurm into pods and back, checked as they go."""
