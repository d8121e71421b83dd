"""The tests of `make smoke-k8s`: every promise is tested once on a real Kubernetes, in a few minutes.

A promise that is new gets a line here. The whole suite is `make test-k8s`.
"""

from __future__ import annotations

WORKERS = 2
"""Each starts its own cluster, and two cores have to be enough."""
PROMISES = {
    "an unmodified script runs with its arguments, environment and output": (
        "e2e/test_bridge.py::test_script_arguments_environment_and_output",
        "e2e/test_bridge.py::test_the_script_is_left_as_the_user_wrote_it",
    ),
    "the exit code is the container's": ("e2e/test_bridge.py::test_the_exit_code_is_the_containers",),
    "a pod has the share that Slurm gave, and runs as the job's owner": (
        "e2e/test_bridge.py::test_the_pod_has_the_jobs_share_and_its_owner",
        "conformance/test_security.py::test_a_job_runs_as_its_user_without_any_privilege",
    ),
    "arrays, gangs, dependencies and requeue are Slurm's": (
        "e2e/test_bridge.py::test_an_array_is_a_pod_per_task",
        "e2e/test_bridge.py::test_a_gang_has_a_pod_on_every_node",
        "e2e/test_semantics_queue.py::test_dependencies",
        "e2e/test_semantics_queue.py::test_requeue_keeps_the_id_and_counts",
    ),
    "a gang's pods have their nodes' names and find each other before the script starts": (
        "e2e/test_names.py::test_all_names_resolve_in_all_pods_before_the_script_starts",
        "e2e/test_names.py::test_pods_connect_by_name",
    ),
    "pods are labelled with the job id that sbatch printed": (
        "e2e/test_pod_names.py::test_pods_are_found_by_the_jobs_number",
        "e2e/test_pod_names.py::test_a_jobs_output_is_in_the_log_of_the_pod_that_has_its_number",
    ),
    "Slurm's commands work in pods as in plain Slurm": (
        "e2e/test_pod_commands.py::test_commands_do_what_they_do_in_plain_slurm",
        "e2e/test_pod_commands.py::test_jobs_submitted_from_a_pod",
    ),
    "scancel leaves nothing behind": (
        "e2e/test_bridge.py::test_scancel_reaches_the_script_and_leaves_nothing",
    ),
    "a job without room in Kubernetes is not started": (
        "e2e/test_bridge.py::test_a_foreign_pod_makes_the_job_wait_with_the_reason",
        "e2e/test_semantics_refused.py::test_reserved_room_is_not_given_away",
    ),
    "a node is free when its pods are gone, not before": (
        "e2e/test_semantics_booking.py::test_the_next_job_waits_for_a_pod_that_goes_slowly",
    ),
    "a gang starts completely or not at all": (
        "e2e/test_semantics_refused.py::test_a_kubelet_that_refuses_one_of_four",
    ),
    "refusals by policy, quota or registry fail the job with the reason": (
        "e2e/test_semantics_refused.py::test_pod_refused_by_policy_fails_the_job",
        "e2e/test_gang.py::test_quota_fails_the_job_with_the_reason",
        "e2e/test_semantics_failures.py::test_unpullable_image",
        "e2e/test_bridge.py::test_malformed_directive_is_reported_with_its_line",
    ),
    "an end that the script did not cause has a reason": (
        "e2e/test_semantics_endings.py::test_out_of_memory_has_the_reason",
        "e2e/test_semantics_failures.py::test_pod_deleted_by_hand",
    ),
    "output is complete, in shared folders and outside": (
        "e2e/test_semantics_output.py::test_a_hundred_megabytes_arrive_whole",
        "e2e/test_semantics_output.py::test_the_containers_log_shows_the_output_too",
        "e2e/test_bridge.py::test_output_outside_the_nas_is_streamed_through_the_launcher",
    ),
    "#K8S_ lines take effect": ("e2e/test_directives.py::test_workdir_and_environment",),
    "an image comes from the site's registry": (
        "conformance/test_lifecycle.py::test_an_image_is_pulled_from_the_sites_registry",
    ),
    "partitions that are not bridged are plain Slurm": (
        "e2e/test_bridge.py::test_an_unbridged_partition_is_plain_slurm",
    ),
    "a dropped file becomes one job of its owner's": (
        "e2e/test_intake.py::test_dropped_script_runs_as_a_pod",
    ),
    "results are written to the NAS": ("e2e/test_results.py::test_array_tasks_have_folders_of_their_own",),
    "penstockd is stateless": (
        "e2e/test_bridge.py::test_killing_penstockd_changes_nothing_for_a_job[written-by-pod]",
        "e2e/test_bridge.py::test_killing_penstockd_changes_nothing_for_a_job[streamed]",
    ),
    "outages and false responses of the API end no job": (
        "e2e/test_outages_api.py::test_empty_list_ends_no_job",
        "e2e/test_outages_api.py::test_api_outage",
        "conformance/test_outages.py::test_job_survives_the_death_of_a_component[kubelet]",
        "conformance/test_outages.py::test_job_survives_the_death_of_a_component[apiserver]",
    ),
    "user code runs in pods only, and jobs are private": (
        "e2e/test_attacks.py::test_no_step_runs_on_the_node",
        "e2e/test_attacks.py::test_another_user_cannot_read_output_secret_or_script",
        "e2e/test_bridge.py::test_users_cannot_launch_for_others",
        "conformance/test_security.py::test_a_user_sees_his_own_pods_and_nobody_elses",
    ),
    "penstockd has the rights that it needs and no others": (
        "conformance/test_rbac.py::test_penstockd_asks_for_what_it_may_and_uses_all_of_it",
    ),
    "double bookings and orphans are found": ("e2e/test_check.py::test_orphans_are_found",),
    "Slurm and Kubernetes are shown in one table, and the doctor reports a healthy site as ok": (
        "e2e/test_seeing.py::test_a_running_job_is_shown_with_its_pods",
        "e2e/test_doctor.py::test_doctor_on_a_healthy_lab",
    ),
}
TESTS = [f"tests/{name}" for names in PROMISES.values() for name in names]
