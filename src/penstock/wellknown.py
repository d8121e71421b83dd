"""Every string that crosses a boundary (label, variable, file name, verb), with its meaning there."""

from __future__ import annotations

# -- Kubernetes: what our objects carry ------------------------------------------------------------
SCHEDULER_NAME = "penstock"  # of our pods: no scheduler serves it, so kube-scheduler ignores them
LABEL_APP = "app"  # APP_VALUE on all objects of a job: `kubectl get pods -A -l app=slurm-job`
APP_VALUE = "slurm-job"
INSTANCE_VALUE = "slurm-instance"  # of pods of `penstock mkinst`: not a job's, so never swept
LABEL_JOB_ID = "penstock.dev/job-id"  # Slurm's job id (the array task's own, never the array's)
LABEL_PLAIN_JOB_ID = "job-id"  # the same, for people: `kubectl get pods -A -l job-id=17`
LABEL_ARRAY_ID = "array-job-id"  # on pods of array tasks, for people: the id that sbatch printed
LABEL_ARRAY_TASK = "array-task-id"  # and SLURM_ARRAY_TASK_ID
LABEL_CLUSTER = "penstock.dev/cluster"  # Slurm's ClusterName: penstockd touches only pods of its own
LABEL_RESTART = "penstock.dev/restart"  # SLURM_RESTART_COUNT: the attempt that this object belongs to
LABEL_RANK = "penstock.dev/rank"  # index of the pod's node in the allocation; rank 0 runs the script
LABEL_USER_ID = "penstock.dev/uid"  # uid of the job's owner, as Slurm knows it
LABEL_ACCOUNT = "penstock.dev/account"  # on the namespace that all users of a Slurm account share
ANNOTATION_JOB_NAME = "penstock.dev/job-name"  # --job-name, free text
ANNOTATION_RESTARTED = "penstock.dev/restarted"  # on the Deployment's pods: when settings were written
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"  # only on objects of `penstock apply`
MANAGED_BY_VALUE = "penstock"
GPU_RESOURCE = "nvidia.com/gpu"  # extended resource that stands for Slurm's gres/gpu
CONTAINER_NAME = "job"  # the one container of a job's pod
LOOKING_NAME = "look"  # the init container that looks for the folders of #K8S_MOUNT
NAMES_NAME = "names"  # the same in a gang: also makes the file for /etc/hosts
TERM_FOR_THE_SCRIPT = "SIGTTIN"  # the agent forwards it as SIGTERM to the script alone
AGENT_MOUNT = "/penstock"  # where the job's Secret (agent, script, environment, Slurm's commands) is mounted
RUN_MOUNT = "/penstock-run"  # an empty volume of each pod, where its own processes and penstockd's meet
HOSTS_FILE = "hosts"  # there: the /etc/hosts of a gang's pod
SCRIPT_FILE = "slurm_script"  # the batch script there, named like slurmd's copy
OUTPUT_MOUNT = "/penstock-output"  # output kept in the pod until fetched: files 1 and 2, and marks

# -- Environment names -----------------------------------------------------------------------------
ENV_LAB = "PENSTOCK_LAB"  # directory of the lab that commands act on
ENV_LAB_PATH = "PENSTOCK_LAB_PATH"  # where a lab looks for programs, instead of the system's folders
ENV_NAS = "PENSTOCK_NAS"  # the shared folder users and pods both see
ENV_SOCKET = "PENSTOCK_SOCKET"  # penstockd's unix socket, for the command line
ENV_RESULTS = "PENSTOCK_RESULTS"  # folder of all jobs' results, for the command line
ENV_CACHE = "PENSTOCK_CACHE"  # cache of builds and downloads, shared by all labs
ENV_SITE = "PENSTOCK_SITE"  # the site file that commands use
SITE_FILE = "/etc/penstock/site.yaml"  # the default
ENV_TEST_KUBERNETES = "PENSTOCK_TEST_KUBERNETES"  # cluster for tests: dev, real, kwok, a kubeconfig
ENV_CRASH_POINTS = "PENSTOCK_CRASH_POINTS"  # folder that arms crash points; tests only, read at start
ENV_TEST_KUBERNETES_VERSION = "PENSTOCK_TEST_KUBERNETES_VERSION"  # its minor version, if it is built here
ENV_TEST_SLURM = "PENSTOCK_TEST_SLURM"  # Slurm's release for tests, such as 24.11; unset: the machine's
ENV_KUBECONFIG = "KUBECONFIG"  # as kubectl understands it
ENV_SLURM_CONF = "SLURM_CONF"  # as every Slurm command understands it

# -- Files -----------------------------------------------------------------------------------------
WRITTEN = "Written by penstock"  # at the top of files whose names a site may use itself
LAUNCHER = "penstock-launch"  # interpreter of every bridged batch script
PROLOG = "penstock-prolog"  # PrologSlurmctld
EPILOG = "penstock-epilog"  # Epilog
OUTPUTS_FOLDER = ".outputs"  # in the results folder: jobs' own output folders until they are collected
OUTPUTS_COPIED = ".penstock-copied"  # in a job's output folder: the agent has copied everything
SRUN_TASK_ERRORS = "/dev/fd/3"  # a pipe to the launcher for the tasks' stderr if -e of srun names a file
TASK_PROLOG = "penstock-task-prolog"  # TaskProlog
SESSION = "penstock-session"  # run by PAM before each step on a node
JOB_SUBMIT = "job_submit.lua"  # the plugin's script; Slurm looks for it beside slurm.conf
INTAKE_LOCK = "lock"  # in the intake's state folder: held while it runs, has its settings' fingerprint
COLLECTOR_LOCK = "collector.lock"  # the same in the collector's state folder
INCLUDE = "penstock.conf"  # what an existing slurm.conf includes

# -- job_submit.lua's traces in a job ---------------------------------------------------------------
ADMIN_MARK = "penstock"  # in AdminComment, which users cannot write: slurm/marks.py
PUT_ASIDE = "PENSTOCK_GIVEN_"  # prefix of renamed variables that would make the launcher load code
SHELLS_OWN = ("UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "OPTIND", "HISTCMD")
"""Variables that a shell does not let others set, or only to numbers: an attempt ends the shell."""

# -- penstockd's socket: verbs of the first field of a request -------------------------------------
VERB_PING = "ping"  # anybody: is penstockd alive and connected to the API?
VERB_ADMIT = "admit"  # PrologSlurmctld: may this job start on these nodes?
VERB_LAUNCH = "launch"  # launcher: create the pods and report how they end
VERB_ABANDON = "abandon"  # Epilog: deadline reached, drain this node
VERB_DESCRIBE = "describe"  # a job's owner or the site: the Kubernetes side of these jobs
VERB_AUDIT = "audit"  # the site: reservations and recent ends, for `penstock check`
VERB_METRICS = "metrics"  # the site: Prometheus metrics, without a port
VERB_RELEASE = "release"  # Epilog: remove this job's pods from this node, answer when they are gone

# -- JSON output of commands ------------------------------------------------------------------------
JSON_VERSION = 1  # `version` in all of it, docs/reference/json.md: changes if a key is removed or redefined

# -- The drop folder, <nas>/slurm-jobs: names that users, the intake and other hosts all see ----------
DROP_FOLDER = "slurm-jobs"  # below the NAS
DROP_SUBMIT = "submit"  # users copy job files here; world-writable, sticky
DROP_PROCESSED = "processed"  # <date>/<name>.<JOB_ID>: files that became jobs
DROP_FAILED = "failed"  # <date>/<name> and <name>.error.txt: files that did not
DROP_WORK = ".work"  # <instance>/<token>.<name>: files claimed by an intake; root only
DROP_MARKER = ".penstock-nas"  # identifies this NAS; missing if the NAS is not mounted
DROP_INDEX = "inbox.json"  # state of every file, for `penstock inbox`
DROP_README = "README.txt"  # for people who look into the folder
DONE_SUFFIX = ".done"  # an empty file <name>.done says that <name> is complete
ERROR_SUFFIX = ".error.txt"  # beside a file in failed/: why
