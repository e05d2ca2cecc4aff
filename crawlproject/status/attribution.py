"""Why a request belongs to the source that it does, in sentences."""

from __future__ import annotations

from crawlproject.state.calls import Attribution
from crawlproject.state.client import State
from crawlproject.texts import scrapy_command

_MOST_SHOWN = 5  # domains


async def attribution(state: State, name: str | None, domain: str) -> Attribution:
    """Return which source a request to `domain` belongs to whose seed gives `name`: what each shard knows of it.

    The shard of a source knows what the catalogue says of that name, the shard of a domain whose that is.
    """
    if state.count == 1:
        return await state.scripts.attribute(name, domain)
    known = None if name is None else await state.shard_for(name).scripts.attribute(name, domain)
    if known is not None and known.source == name:
        return known
    owner = await state.shard_for(domain).scripts.attribute(None, domain)
    return owner if known is None else Attribution(owner.source, known.kind, known.domains)


def reason_for_url(found: Attribution, name: str | None, domain: str) -> str:
    """Say why a request to `domain` belongs to its source, whose seed names `name`."""
    named = name or ""
    match found.kind if found.source == name else "":
        case "bound":
            return f"the row of {named} in the catalogue has {domain} among its hosts"
        case "row":
            return f"the catalogue names {named}, and its row lists no hosts: it is believed on any"
        case "rate":
            return f"an operator has given {named} a rate: it is believed on any host"
    if found.source == domain:
        where = f"the catalogue gives {domain} to no source, so its domain is its source"
    else:
        where = f"the catalogue gives {domain} to {found.source}"
    if name is None or name == domain:
        return where
    return f"{named} is a name for its event only, because {_not_believed(found)}; {where}"


def reason_for_name(found: Attribution, name: str, owner: Attribution, *, is_known: bool) -> str:
    """Say what is crawled as `name`. `owner` is what its own URLs would belong to, were it a domain."""
    match found.kind:
        case "bound":
            return f"seeds that name it belong to it if their URL is on {_shown(found.domains)}"
        case "row":
            return (
                "the catalogue names it, and its row lists no hosts: seeds that name it belong to it on any host"
            )
        case "rate":
            return "an operator has given it a rate: seeds that name it belong to it on any host"
    if owner.source != name:
        return f"nothing new: the catalogue gives this domain to {owner.source}"
    if is_known or found.kind == "domain":
        return "what leads to this domain, because the catalogue gives it to no source"
    return (
        f"nothing: neither the catalogue nor {scrapy_command('rate')} names it. Seeds that name it have it in "
        "their events only, and their domains are their sources"
    )


def _not_believed(found: Attribution) -> str:
    if found.kind == "bound":
        return f"the catalogue binds it to {_shown(found.domains)}"
    if found.kind == "domain":
        return "it is a domain, whose rate is lent to no other, and the catalogue does not name it"
    return f"neither the catalogue nor {scrapy_command('rate')} names it"


def _shown(domains: list[str]) -> str:
    more = f" and {len(domains) - _MOST_SHOWN} more" if len(domains) > _MOST_SHOWN else ""
    return ", ".join(domains[:_MOST_SHOWN]) + more if domains else "no host"
