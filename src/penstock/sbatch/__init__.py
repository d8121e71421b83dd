"""Compiles scripts to JobSpecs by sbatch's grammar and rules, with #K8S_ directives and diagnostics."""
