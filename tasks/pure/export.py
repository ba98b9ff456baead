"""A lock as what production runs: a shell script or systemd units, with a health check that means decode."""

import shlex
from collections.abc import Iterator

from settings.lock import Lock

__all__ = ["shell_files", "systemd_files"]

_FILES = 1_048_576
_READY_S = 3600


def shell_files(lock: Lock, health: str) -> dict[str, str]:
    """`serve.sh [ENV_FILE]` runs the server in the foreground, `serve.sh health` says whether it decodes."""
    server = lock.server
    python = shlex.quote(server.argv[0])
    lines = [
        "#!/usr/bin/env bash",
        *_told(lock, "#"),
        f"# Use: serve.sh [FILE WITH {' '.join(server.hidden)}]" if server.hidden else "# Use: serve.sh",
        "#      serve.sh health    exits 0 when the server decodes",
        "set -euo pipefail",
        'if [ "${1:-}" = health ]; then',
        f'  exec {python} "$(dirname "$0")/health.py" {server.port}',
        "fi",
        'if [ -n "${1:-}" ]; then set -a; . "$1"; set +a; fi',
        *(f': "${{{name}:?is not set: the target of the bring-up gave it}}"' for name in server.hidden),
        *(f"export {name}={shlex.quote(value)}" for name, value in server.env.items()),
        f'ulimit -n {_FILES} 2>/dev/null || ulimit -n "$(ulimit -Hn)"',
        "exec " + " \\\n  ".join(shlex.quote(word) for word in server.argv),
    ]
    return {"serve.sh": "\n".join(lines) + "\n", "health.py": health}


def systemd_files(lock: Lock, health: str, *, folder: str) -> dict[str, str]:
    """A service, and a timer that restarts it when it no longer decodes. `folder`: where the files will lie."""
    name = f"{lock.build.engine}-{lock.server.rung}"
    python, port = _word(lock.server.argv[0]), lock.server.port
    check = f"{python} {_word(folder + '/health.py')} {port}"
    variables = f"EnvironmentFile={_percent(folder)}/{name}.env" if lock.server.hidden else None
    service = [
        *_told(lock, "#"),
        *_hidden(lock, name),
        "[Unit]",
        f"Description={_percent(lock.why)}",
        "Wants=network-online.target",
        "After=network-online.target nvidia-persistenced.service",
        "StartLimitIntervalSec=3600",
        "StartLimitBurst=3",
        "",
        "[Service]",
        "Type=exec",
        *([variables] if variables else []),
        *(f"Environment={_word(f'{key}={value}', dollar=False)}" for key, value in lock.server.env.items()),
        f"ExecStart={' '.join(map(_word, lock.server.argv))}",
        f"ExecStartPost={check} --wait {_READY_S}",
        f"TimeoutStartSec={_READY_S + 60}",
        "TimeoutStopSec=90",
        "KillMode=mixed",
        "Restart=on-failure",
        "RestartSec=30",
        f"LimitNOFILE={_FILES}",
        "LimitMEMLOCK=infinity",
        "NoNewPrivileges=yes",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    checked = [
        "[Unit]",
        f"Description=restarts {_percent(name)} when it no longer decodes",
        f"Requisite={_percent(name)}.service",
        f"After={_percent(name)}.service",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart=/bin/sh -c {_word(f'{_shell(lock, folder)} || systemctl restart {shlex.quote(name)}.service')}",
    ]
    timer = [
        "[Unit]",
        f"Description=looks every minute whether {_percent(name)} decodes",
        "",
        "[Timer]",
        "OnActiveSec=2min",
        "OnUnitInactiveSec=1min",
        "",
        "[Install]",
        f"WantedBy={_percent(name)}.service",
    ]
    units = {f"{name}.service": service, f"{name}-health.service": checked, f"{name}-health.timer": timer}
    return {**{file: "\n".join(lines) + "\n" for file, lines in units.items()}, "health.py": health}


def _told(lock: Lock, sign: str) -> Iterator[str]:
    b = lock.build
    build = f"{b.engine} {b.version or 'of unknown version'} ({b.commit or 'commit unknown'})"
    for line in (lock.why, f"Run {lock.run_id}, {build}, packages {b.freeze_sha256 or 'unknown'}."):
        yield f"{sign} {' '.join(line.split())}"


def _hidden(lock: Lock, name: str) -> Iterator[str]:
    if lock.server.hidden:
        yield f"# {name}.env (mode 0600) has to give: {', '.join(lock.server.hidden)}"


def _shell(lock: Lock, folder: str) -> str:
    return shlex.join((lock.server.argv[0], f"{folder}/health.py", str(lock.server.port)))


def _percent(text: str) -> str:
    """Text in a unit: one line, and no specifier."""
    return " ".join(text.split()).replace("%", "%%")


def _word(text: str, *, dollar: bool = True) -> str:
    """One word of a command line in a unit. Source: systemd.syntax(7) and systemd.service(5), "Command lines"."""
    said = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
    return f'"{said.replace("$", "$$") if dollar else said}"'
