"""The collector: results of ended jobs (stdout, stderr, summary, outputs, checksums), one folder per job."""
