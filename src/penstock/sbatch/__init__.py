"""Script text to JobSpec: sbatch's grammar and rules, our #K8S_ directives, and diagnostics a person can
act on.
"""
