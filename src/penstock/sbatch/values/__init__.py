"""Values of options, each by Slurm's own rules: a function takes the text and gives the value, or a
Problem.
"""
