"""`kafka-tools configs`: configurations of topics, brokers and groups looked at and changed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from gkafka.cli.arguments import GROUP, TOPIC, near_topics, pairs
from gkafka.cli.commands import group
from gkafka.cli.connection import acting, connection_options
from gkafka.cli.failures import ToolError, UnusableError
from gkafka.cli.output import Column, document, json_option, note, quoted, table, wants_json
from gkafka.cli.quantities import is_number

if TYPE_CHECKING:
    from gkafka.admin import Admin, ConfigEntry

__all__ = ["configs", "show_configs"]

KINDS = ("topic", "broker", "group", "broker-logger", "client-metrics")
NAMES = {"topic": TOPIC, "group": GROUP}
OWN = {
    "topic": "TOPIC",
    "broker": "DYNAMIC_BROKER",
    "group": "GROUP",
    "broker-logger": "DYNAMIC_BROKER_LOGGER",
    "client-metrics": "CLIENT_METRICS",
}
"""The source of what is set of a resource itself."""
SHOWN = "***"
SECRET_ENDINGS = ("password", "sasl.jaas.config", "ssl.keystore.key", "secret")
"""Of the names of secrets, with the prefix of a listener or without."""


@group("configs")
@json_option
@connection_options
def configs() -> None:
    """Configurations of topics, brokers, groups."""


def _name_of(ctx: click.Context, kind: str, name: str | None) -> str:
    if name is None and kind != "broker":
        raise click.UsageError(f"which {kind}? give its name", ctx)
    if kind.startswith("broker") and name and not is_number(name):
        raise click.UsageError(f"{kind} {name!r}: must be a broker's id, a number", ctx)
    if kind in NAMES:
        NAMES[kind].convert(name, next(p for p in ctx.command.params if p.name == "name"), ctx)
    return name or ""


# -- look ------------------------------------------------------------------------------------------------------------------------
@configs.command("describe")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--all", "every", is_flag=True, help="Also what nobody has set.")
@json_option
@connection_options
@click.pass_context
def describe(ctx: click.Context, kind: str, name: str | None, every: bool) -> None:
    """What is configured of a topic, a broker (by id; without one: for all brokers) or a group."""
    show_configs(ctx, kind, _name_of(ctx, kind, name), every=every)


def show_configs(ctx: click.Context, kind: str, name: str, *, every: bool) -> None:
    """Print a resource's configuration; what nobody has set only where it was asked for."""
    with acting(ctx) as client:
        entries = _entries(client.admin(), kind, name)
    rows = [_row(entry) for entry in sorted(entries.values()) if every or not entry.is_default]
    if wants_json(ctx):
        document(rows)
        return
    table(rows, ["name", "value", "source", Column("read_only", "READ ONLY")])
    if not rows:
        note("nothing is set: all values are the defaults, which --all shows")


def _entries(admin: Admin, kind: str, name: str) -> dict[str, ConfigEntry]:
    with near_topics(admin):
        (entries,) = admin.describe_configs([(kind, name)]).values()
    return entries


def _row(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": SHOWN if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower(),
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "type": entry.type,
    }


# -- act -------------------------------------------------------------------------------------------------------------------------
@configs.command("alter")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name", metavar="NAME")
@click.argument("values", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--delete", "deleted", metavar="NAME", multiple=True, help="Back to the default.")
@click.option("--append", "appended", metavar="NAME=VALUES", multiple=True, help="Add to a list.")
@click.option("--subtract", "subtracted", metavar="NAME=VALUES", multiple=True, help="Take out of a list.")
@click.option("--dry-run", is_flag=True, help="Only have the brokers say whether it could be.")
@json_option
@connection_options
@click.pass_context
def alter(
    ctx: click.Context,
    kind: str,
    name: str,
    values: tuple[str, ...],
    deleted: tuple[str, ...],
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change what is named and nothing else. NAME "default" of a broker: all brokers. A value @FILE is read from a file: secrets belong there."""
    from gkafka.admin import Append, Subtract

    changes: dict[str, Any] = {}
    plain: dict[str, str] = {}  # what stands on the command line itself: how it is given from a file
    files: dict[str, str] = {}
    for option, texts, kind_of_change in (("", values, str), ("--append", appended, Append), ("--subtract", subtracted, Subtract)):
        given = _fresh(ctx, changes, pairs(option or "NAME=VALUE", texts))
        plain |= {key: f"{option} {key}=@FILE".strip() for key, value in given.items() if not value.startswith("@")}
        files |= {key: value for key, value in given.items() if value.startswith("@")}
        changes |= {key: kind_of_change(value) for key, value in _values(option or "NAME=VALUE", given).items()}
    changes |= _fresh(ctx, changes, dict.fromkeys(deleted))
    if not changes:
        raise click.UsageError("give NAME=VALUE (without --set, which is for options of gkafka), --delete, --append or --subtract", ctx)
    resource = "" if kind == "broker" and name == "default" else _name_of(ctx, kind, name)
    _refuse_secrets(UnusableError, {key: way for key, way in plain.items() if key.endswith(SECRET_ENDINGS)})
    with acting(ctx) as client:
        admin = client.admin()
        before = _entries(admin, kind, resource)
        _refuse_secrets(ToolError, {key: way for key, way in plain.items() if _is_secret(key, before.get(key))})
        _refuse_absent(kind, name, [key for key in deleted if key not in before], before)
        admin.alter_configs({(kind, resource): changes}, validate_only=dry_run)
    rows = [
        {"name": key, "before": _shown(key, before.get(key)), "change": _told(key, before.get(key), change, files.get(key))}
        for key, change in changes.items()
    ]
    unset = [key for key in deleted if not _is_set(kind, resource, before[key])]
    if wants_json(ctx):
        document({"done": not dry_run, "what": "changed", "items": rows})
        return
    table(rows, ["name", "before", "change"])
    if unset:
        note(f"not set, and left at the default: {', '.join(map(quoted, unset))}")
    note("nothing was changed: --dry-run" if dry_run else "nothing was changed" if len(unset) == len(changes) else "changed")


def _fresh(ctx: click.Context, changes: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    for name in more:
        if name in changes:
            raise click.UsageError(f"{name!r} is changed twice: leave one of both out", ctx)
    return more


def _values(where: str, given: dict[str, str]) -> dict[str, str]:
    return {name: _read(f"{where} {name}={value}", value[1:]) if value.startswith("@") else value for name, value in given.items()}


def _read(where: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UnusableError(f"{where}: is no text in UTF-8", hint="write the value there, and nothing else") from None
    except OSError as exc:
        raise UnusableError(f"{where}: {exc.strerror}", hint="check the path and its permissions") from exc


def _refuse_secrets(refusal: type[ToolError], ways: dict[str, str]) -> None:
    """ways: of each secret on the command line, how it is given from a file."""
    for name, way in ways.items():
        raise refusal(
            f"{name}: a secret on the command line is seen by everybody on this machine and kept by the shell",
            hint=f"write it to a file, and give {way}",
        )


def _refuse_absent(kind: str, name: str, absent: list[str], there: Iterable[str]) -> None:
    """What is to be set back must be there: brokers take a name that they do not know for one that is at its default."""
    if absent:
        near = difflib.get_close_matches(absent[0], list(there), n=1)
        hint = f"did you mean {quoted(near[0])}? " if near else ""
        place = "broker" if (kind, name) == ("broker", "default") else f"{kind} {name}"
        raise ToolError(
            f"--delete: {kind} {quoted(name)} has no {', '.join(map(quoted, absent))}",
            hint=f"{hint}kafka-tools configs describe {place} --all lists what there is",
        )


def _is_set(kind: str, name: str, entry: ConfigEntry) -> bool:
    """Is it set of this very resource, so that there is something to delete?"""
    own = "DYNAMIC_DEFAULT_BROKER" if (kind, name) == ("broker", "") else OWN[kind]
    return entry.source.name == own or (entry.source.name == "UNKNOWN" and not entry.is_default)  # brokers before 1.1 tell no source


def _is_secret(name: str, there: ConfigEntry | None) -> bool:
    """Brokers tell it of what is set; of what is not, such as a listener's own password or what a plug-in is given, its name does."""
    from gkafka.sasloptions import seems_secret_config

    sensitive = seems_secret_config(name) if there is None else there.is_sensitive
    return sensitive or name.endswith(SECRET_ENDINGS)


def _shown(name: str, entry: ConfigEntry | None) -> str | None:
    return None if entry is None else SHOWN if _is_secret(name, entry) else entry.value


def _told(name: str, entry: ConfigEntry | None, change: Any, file: str | None) -> str:
    """file: where the value was read, with an @; it is not for the terminal then."""
    from gkafka.admin import Append, Subtract

    if change is None:
        return "the default"
    sign = "+ " if isinstance(change, Append) else "- " if isinstance(change, Subtract) else ""
    return sign + (SHOWN if _is_secret(name, entry) else file or str(change))
