"""How people and programs get at a lab: shell environment, wrapper, certificates, root."""

from __future__ import annotations

import base64
import os
import ssl
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import errors
from penstock_lab import certificates, paths, privilege, shellenv, wrapper

PLACE = paths.LabPaths(Path("/lab"))


def sh(script: str, **variables: str) -> str:
    """What a POSIX shell prints."""
    argv = ["sh", "-c", script]
    env = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


class TestEnvironment:
    @pytest.mark.parametrize(("root", "kubeconfig"), [(True, "admin"), (False, "viewer")])
    def test_a_shell_understands_every_line(self, root: bool, kubeconfig: str) -> None:
        """And everybody gets the kubeconfig they may read."""
        lines = shellenv.shell_lines(PLACE, root=root)
        said = dict(line.split("=", 1) for line in sh(f"{lines}\nenv").splitlines() if "=" in line)
        assert said["PENSTOCK_LAB"] == "/lab"
        assert said["SLURM_CONF"] == "/lab/etc/slurm.conf"
        assert said["KUBECONFIG"] == f"/lab/etc/{kubeconfig}.kubeconfig"
        assert said["PENSTOCK_NAS"] == "/lab/nas"
        assert said["PENSTOCK_SOCKET"] == "/lab/run/penstockd/penstockd.sock"
        assert said["PATH"] == f"/lab/bin:{os.environ['PATH']}"

    def test_a_path_with_blanks_survives(self) -> None:
        """What the person already had on PATH stays as it is."""
        lines = shellenv.shell_lines(PLACE, root=True)
        assert sh(f'{lines}\nprintf %s "$PATH"', PATH="/usr/bin:/my tools") == "/lab/bin:/usr/bin:/my tools"


class TestWrapper:
    def test_it_runs_the_interpreter_with_all_arguments(self, tmp_path: Path) -> None:
        """Blanks and quotes arrive as they were typed."""
        interpreter = tmp_path / "py thon"
        interpreter.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
        interpreter.chmod(0o755)
        text = wrapper.render_for(interpreter=str(interpreter), substitute="", import_path="")
        assert sh(f"set -- 'a b' \"c'd\"\n{text}") == "<-P><-m><penstock><a b><c'd>"

    def test_system_interpreter_replaces_an_inaccessible_one(self, tmp_path: Path) -> None:
        """With the same code to import."""
        substitute = tmp_path / "python"
        substitute.write_text('#!/bin/sh\nprintf "%s|%s" "$PYTHONPATH" "$*"\n')
        substitute.chmod(0o755)
        text = wrapper.render_for(interpreter="/not/there", substitute=str(substitute), import_path="/a:/b")
        assert sh(f"set -- lab\n{text}") == "/a:/b|-P -m penstock lab"

    def test_an_interpreter_that_was_told_where_to_import_from_is_told_again(self, tmp_path: Path) -> None:
        """The lab was made by a substitute that sudo started: it knows penstock only by PYTHONPATH."""
        interpreter = tmp_path / "python"
        interpreter.write_text('#!/bin/sh\nprintf "%s" "$PYTHONPATH"\n')
        interpreter.chmod(0o755)
        for needed, said in ((True, "/a:/b"), (False, "")):
            text = wrapper.render_for(
                interpreter=str(interpreter), substitute="", import_path="/a:/b", needs_import_path=needed
            )
            assert sh(text) == said

    def test_missing_system_interpreter_is_reported(self) -> None:
        """Exit code 126, as shells use for what may not be executed."""
        text = wrapper.render_for(interpreter="/not/there", substitute="", import_path="")
        result = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False, timeout=60)
        assert result.returncode == 126
        assert "/not/there is not accessible to you" in result.stderr

    def test_access_depends_on_all_parent_directories(self, tmp_path: Path) -> None:
        """One closed directory is enough."""
        tool = tmp_path / "tool"
        tool.touch(mode=0o755)
        assert wrapper.open_to_all(Path("/bin/sh").resolve())
        tmp_path.chmod(0o700)
        assert not wrapper.open_to_all(tool)

    def test_an_environment_in_a_closed_folder_is_out_of_reach(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Although its interpreter is a link to the system's, which everybody can reach: root's home."""
        interpreter = tmp_path / "closed" / "python"
        interpreter.parent.mkdir(mode=0o700)
        interpreter.symlink_to("/bin/sh")
        monkeypatch.setattr(sys, "executable", str(interpreter))
        monkeypatch.setattr(wrapper, "_substitute", lambda: "/usr/bin/its-substitute")
        assert "/usr/bin/its-substitute -P -m penstock" in wrapper.render(tmp_path / "lib")

    def test_inaccessible_code_is_linked_into_the_lab(self, tmp_path: Path) -> None:
        """A checkout in a closed folder: the same files, readable by everybody."""
        closed = tmp_path / "closed" / "src"
        (closed / "package").mkdir(parents=True)
        (closed / "package" / "code.py").write_text("x = 1\n")
        closed.parent.chmod(0o700)
        there = Path(wrapper._within_reach(closed, tmp_path / "lib"))
        assert there == tmp_path / "lib" / "closed-src"
        assert (there / "package" / "code.py").samefile(closed / "package" / "code.py")

    def test_code_within_reach_stays_where_it_is(self, tmp_path: Path) -> None:
        """Nothing is made."""
        assert wrapper._within_reach(Path("/usr/lib"), tmp_path / "lib") == "/usr/lib"
        assert not (tmp_path / "lib").exists()

    def test_code_that_only_its_owner_may_read_is_copied(self, tmp_path: Path) -> None:
        """As a checkout made under umask 077 is."""
        closed = tmp_path / "src"
        (closed / "package").mkdir(parents=True, mode=0o700)
        code = closed / "package" / "code.py"
        code.write_text("x = 1\n")
        code.chmod(0o600)
        closed.chmod(0o700)
        there = Path(wrapper._within_reach(closed, tmp_path / "lib")) / "package" / "code.py"
        assert there.read_text() == "x = 1\n"
        assert stat.S_IMODE(there.stat().st_mode) == 0o644
        assert [stat.S_IMODE(part.stat().st_mode) for part in there.parents[:3]] == [0o755] * 3
        assert stat.S_IMODE(code.stat().st_mode) == 0o600

    def test_the_real_one_starts_this_program(self, tmp_path: Path) -> None:
        """What `up` writes is what runs now."""
        text = wrapper.render(tmp_path / "lib")
        assert sys.executable in text
        assert sh(f"set -- --version\n{text}").startswith("penstock")


class TestCertificates:
    @given(token=st.from_regex(r"[0-9a-f]{40}", fullmatch=True), port=st.integers(1, 65535))
    def test_a_kubeconfig_is_what_kubectl_expects(self, token: str, port: int) -> None:
        """Server, authority, user and the context that joins them."""
        text = certificates.render_kubeconfig(port=port, certificate=b"PEM", user="viewer", token=token)
        config = msgspec.yaml.decode(text)
        (cluster,), (user,), (context,) = config["clusters"], config["users"], config["contexts"]
        assert cluster["cluster"]["server"] == f"https://127.0.0.1:{port}"
        assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"PEM"
        assert user["user"]["token"] == token
        assert context["context"] == {"cluster": cluster["name"], "user": user["name"]}
        assert config["current-context"] == context["name"]

    def test_only_viewers_are_kept_from_changing_things(self) -> None:
        """One line for each token, with its group."""
        text = certificates.render_tokens({"admin": "a", "penstockd": "b", "viewer": "c"})
        assert text == "a,admin,admin\nb,penstockd,admin\nc,viewer,viewer\n"

    def test_a_certificate_is_made_once_and_its_key_is_private(self, tmp_path: Path) -> None:
        """A client that trusts it can still trust it after a repair."""
        key, certificate = tmp_path / "k", tmp_path / "c"
        certificates.ensure_certificate(key=key, certificate=certificate)
        before = certificate.read_bytes()
        certificates.ensure_certificate(key=key, certificate=certificate)
        assert certificate.read_bytes() == before
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        context = ssl.create_default_context(cafile=str(certificate))
        context.load_cert_chain(certificate, key)
        assert len(context.get_ca_certs()) == 1


class ReplacedError(Exception):
    """Stands for the process that took our place."""


class TestPrivilege:
    @pytest.fixture(autouse=True)
    def _ordinary_user(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Not root, with only our own programs on PATH, and nothing is ever executed in our place."""

        def replace(path: str, argv: list[str]) -> None:
            raise ReplacedError(argv)

        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(os, "execv", replace)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("PENSTOCK_LAB", "/lab")
        monkeypatch.delenv("PYTHONPATH", raising=False)
        monkeypatch.delenv("PENSTOCK_CACHE", raising=False)

    @staticmethod
    def sudo(tmp_path: Path, code: int) -> Path:
        program = tmp_path / "sudo"
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
        return program

    def test_root_needs_no_sudo(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is executed, and this process continues."""
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        became: list[object] = []
        monkeypatch.setattr(os, "execv", lambda *words: became.append(words))
        privilege.require_root(["lab", "up"])
        assert became == []

    def test_sudo_without_a_password_runs_the_same_call(self, tmp_path: Path) -> None:
        """With the arguments and the lab that were meant."""
        sudo = self.sudo(tmp_path, 0)
        with pytest.raises(ReplacedError) as caught:
            privilege.require_root(["lab", "up", "--nodes", "2"])
        assert caught.value.args[0] == [
            str(sudo), "-n", "--", "/usr/bin/env", "PENSTOCK_LAB=/lab", sys.executable, "-P", "-m",
            "penstock", "lab", "up", "--nodes", "2",
        ]  # fmt: skip

    def test_sudo_keeps_the_cache_setting(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """sudo drops other variables, and /var may have no room for a build."""
        self.sudo(tmp_path, 0)
        monkeypatch.setenv("PENSTOCK_CACHE", "/big/disk")
        with pytest.raises(ReplacedError) as caught:
            privilege.require_root(["lab", "up"])
        assert "PENSTOCK_CACHE=/big/disk" in caught.value.args[0]

    def test_root_does_not_import_from_the_callers_directory(self, tmp_path: Path) -> None:
        """Another user's `penstock` in /tmp would run as root."""
        (tmp_path / "penstock").mkdir()
        for name in ("__init__.py", "__main__.py"):
            (tmp_path / "penstock" / name).write_text("raise SystemExit('taken over')\n")
        argv = privilege.rerun_command(["--version"], kept={})
        said = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert said.stdout.startswith("penstock"), said.stderr

    def test_a_password_is_asked_for_at_a_terminal(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """sudo itself asks."""
        sudo = self.sudo(tmp_path, 1)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        with pytest.raises(ReplacedError) as caught:
            privilege.require_root(["lab", "down"])
        assert caught.value.args[0][:2] == [str(sudo), "--"]

    def test_no_password_prompt_without_a_terminal(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A script must not hang at an invisible prompt."""
        self.sudo(tmp_path, 1)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
        with pytest.raises(errors.LabError, match="needs root or sudo: sudo wants a password"):
            privilege.require_root(["lab", "up"])

    def test_missing_sudo_is_reported(self) -> None:
        """Many containers have none."""
        with pytest.raises(errors.LabError, match="needs root or sudo: sudo is not installed") as caught:
            privilege.require_root(["lab", "up"])
        assert "root" in caught.value.hint
