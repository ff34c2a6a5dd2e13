"""`kafka-tools acls`: who may do what; rules listed, created, deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gkafka.cli.arguments import yes_option
from gkafka.cli.commands import group
from gkafka.cli.connection import acting, connection_options
from gkafka.cli.looking import as_far_as_it_goes, end_in_part
from gkafka.cli.output import Column, document, json_option, note, table, wants_json
from gkafka.cli.quantities import ParamType
from gkafka.cli.topics import finish

if TYPE_CHECKING:
    from gkafka.admin import Acl, AclFilter

__all__ = ["acls"]

F = TypeVar("F", bound=Callable[..., Any])
COLUMNS = ["resource_type", "resource", "pattern", "principal", "permission", "operation", "host"]
NAMED = ("topic", "group", "transactional_id", "user")


class _Principal(ParamType):
    name = "principal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        kind, sign, _ = value.partition(":")
        if not sign or not kind:
            self.fail(f"{value!r}: must be TYPE:NAME, as User:alice", param, ctx)
        return str(value)


class _Word(ParamType):
    """A member of an enumeration of gkafka.admin, in small letters; without: those that are not meant here."""

    def __init__(self, enumeration: str, *without: str) -> None:
        self.name = enumeration
        self._without = ("UNKNOWN", *without)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from gkafka import admin

        words = [member.name.lower() for member in getattr(admin, self.name) if member.name not in self._without]
        word = str(value).lower().replace("-", "_")
        if word not in words:
            self.fail(f"{value!r}: must be one of {', '.join(words)}", param, ctx)
        return word


@group("acls", invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def acls(ctx: click.Context) -> None:
    """Access rules. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_acls)


def resource_options(command: F) -> F:
    """What a rule is about: one of these."""
    decorate: list[Any] = [
        click.option("--topic", metavar="NAME", help='About a topic; "*" is all.'),
        click.option("--group", metavar="NAME", help="About a group."),
        click.option("--transactional-id", metavar="NAME", help="About a transactional id."),
        click.option("--user", metavar="NAME", help="About a user's delegation tokens."),
        click.option("--cluster", is_flag=True, help="About the cluster."),
        click.option("--principal", metavar="TYPE:NAME", type=_Principal(), help="Who: User:alice; User:* is everybody."),
        click.option("--host", metavar="ADDRESS", help='From where; "*" is anywhere.'),
    ]
    for one in reversed(decorate):
        command = one(command)
    return command


def _resource(given: dict[str, Any]) -> tuple[str, str] | None:
    """("topic", "orders") of the options; None where none was given."""
    named = [(kind, given[kind]) for kind in NAMED if given[kind] is not None]
    if given["cluster"]:
        named.append(("cluster", "kafka-cluster"))
    if len(named) > 1:
        raise click.UsageError("--topic, --group, --transactional-id, --user, --cluster: give one", click.get_current_context())
    return named[0] if named else None


def _filter(given: dict[str, Any], operation: str | None, pattern: str | None) -> AclFilter:
    from gkafka.admin import AclFilter

    asked: dict[str, Any] = {"principal": given["principal"], "host": given["host"]}
    resource = _resource(given)
    if resource is not None:
        asked |= {"resource_type": resource[0], "resource": resource[1]}
    asked |= {name: value for name, value in (("operation", operation), ("pattern", pattern)) if value is not None}
    return AclFilter(**asked)


def _named(one: Acl | AclFilter) -> str:
    """A rule, or what rules are to fit, as an error is about it."""
    return f"{one.operation.name.lower()} by {one.principal or 'anybody'}"


def _row(acl: Acl) -> dict[str, Any]:
    return {
        "resource_type": acl.resource_type.name.lower(),
        "resource": acl.resource,
        "pattern": acl.pattern.name.lower(),
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        "operation": acl.operation.name.lower(),
        "host": acl.host,
    }


@acls.command("list")
@resource_options
@click.option("--operation", metavar="NAME", type=_Word("AclOperation"), help="read, write, create, describe, alter, ...")
@click.option(
    "--pattern", metavar="KIND", type=_Word("PatternType"), help="literal, prefixed, or match: whatever applies to the name. [any]"
)
@json_option
@connection_options
@click.pass_context
def list_acls(ctx: click.Context, /, operation: str | None = None, pattern: str | None = None, **given: Any) -> None:
    """The rules that fit all that is given."""
    with acting(ctx) as client:
        rows = [_row(acl) for acl in client.admin().list_acls(_filter(given, operation, pattern) if given else None)]
    document(rows) if wants_json(ctx) else table(rows, [Column(c, colour=_colour if c == "permission" else None) for c in COLUMNS])


def _colour(value: Any) -> str | None:
    return "red" if value == "deny" else None


@acls.command("create")
@resource_options
@click.option(
    "--operation",
    "operations",
    metavar="NAME",
    type=_Word("AclOperation", "ANY"),
    multiple=True,
    required=True,
    help="read, write, create, describe, alter, all, ...",
)
@click.option("--prefixed", is_flag=True, help="The name is the beginning of names.")
@click.option("--deny", is_flag=True, help="Forbid it: that counts before what allows it.")
@json_option
@connection_options
@click.pass_context
def create(ctx: click.Context, /, operations: tuple[str, ...], prefixed: bool, deny: bool, **given: Any) -> None:
    """Allow, or with --deny forbid, a principal operations on a resource."""
    from gkafka.admin import Acl

    resource = _resource(given)
    if resource is None or given["principal"] is None:
        raise click.UsageError("give --principal, and one of --topic, --group, --transactional-id, --user, --cluster", ctx)
    rest: Any = ("deny" if deny else "allow", given["host"] or "*", "prefixed" if prefixed else "literal")
    kind: Any = resource[0]
    new = [Acl(kind, resource[1], given["principal"], operation, *rest) for operation in operations]  # type: ignore[arg-type]  # words that click has checked
    with acting(ctx) as client:
        failed = as_far_as_it_goes(lambda: client.admin().create_acls(new))[1]
    refused = {acl.operation.name.lower() for acl in failed}
    made = [operation for operation in dict.fromkeys(operations) if operation not in refused]
    rows = [dict(zip(COLUMNS, (kind, resource[1], rest[2], given["principal"], rest[0], op, rest[1]), strict=True)) for op in made]
    if wants_json(ctx):
        document({"done": True, "what": "created", "items": rows})
    else:
        table(rows, COLUMNS)
        note("created")
    end_in_part({_named(one): error for one, error in failed.items()})


@acls.command("delete")
@resource_options
@click.option("--operation", metavar="NAME", type=_Word("AclOperation"), help="Only of this operation.")
@click.option("--pattern", metavar="KIND", type=_Word("PatternType"), help="literal, prefixed, or match. [any]")
@yes_option("delete them")
@json_option
@connection_options
@click.pass_context
def delete(ctx: click.Context, /, operation: str | None, pattern: str | None, yes: bool, **given: Any) -> None:
    """Delete the rules that fit all that is given; give at least one thing."""
    which = _filter(given, operation, pattern)
    if which == type(which)():
        raise click.UsageError("that would be all rules: say which, as --topic NAME or --principal TYPE:NAME", ctx)
    with acting(ctx) as client:
        gone, failed = as_far_as_it_goes(lambda: {which: client.admin().delete_acls([which], dry_run=not yes)})
    rows = [_row(acl) for acls in gone.values() for acl in acls]
    finish(ctx, rows, COLUMNS, done=yes, what="deleted")
    end_in_part({_named(one): error for one, error in failed.items()})
