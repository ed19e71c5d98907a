"""What a session reaches, and the secrets that it uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import types
from .._json import present
from .._wire import segment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .client import AsyncClient

SecretList = list[types.Secret]


class AsyncNetwork:
    """What a session may reach, and what it reaches."""

    def __init__(self, client: AsyncClient, session: str) -> None:
        self._client = client
        self._path = f"/v1/sessions/{session}/network"

    async def show(self) -> types.NetworkInfo:
        """Its rules, and its way out."""
        return await self._client.call(types.NetworkInfo, "GET", self._path)

    async def rules(self) -> list[types.NamedRule]:
        """Its rules, each with the name it is known by."""
        return (await self.show()).rules

    async def change(
        self,
        *,
        add: Iterable[str | types.Rule] = (),
        remove: Iterable[str] = (),
        presets: Iterable[str] = (),
        secrets: Iterable[str] = (),
        otherwise: types.Otherwise | None = None,
    ) -> types.NetworkInfo:
        """Change several things at once, while it runs."""
        body = present(
            add=[types.as_rule(rule).body() for rule in add],
            remove=list(remove),
            presets=list(presets),
            secrets=list(secrets),
            otherwise=otherwise,
        )
        return await self._client.call(types.NetworkInfo, "PATCH", self._path, body)

    async def allow(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Let it reach hosts, at once. Details are those of :class:`cowork.Rule`."""
        return await self._add("allow", hosts, details)

    async def deny(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Refuse hosts, at once; ``reason`` is told to whoever is refused."""
        return await self._add("deny", hosts, details)

    async def ask(self, *hosts: str | types.Rule, **details: Any) -> types.NetworkInfo:
        """Let the user be asked about hosts."""
        return await self._add("ask", hosts, details)

    async def _add(
        self,
        action: types.RuleAction,
        hosts: Iterable[str | types.Rule],
        details: dict[str, Any],
    ) -> types.NetworkInfo:
        rules = [
            types.Rule(host, action, **details)
            if isinstance(host, str)
            else types.Rule(**{**vars(host), **details, "action": action})
            for host in hosts
        ]
        return await self.change(add=rules)

    async def remove(self, *names: str) -> types.NetworkInfo:
        """Take rules and presets away, by the names that they are shown with."""
        return await self.change(remove=names)

    async def traffic(self) -> types.Traffic:
        """What it reaches, and what it was refused."""
        return await self._client.call(types.Traffic, "GET", f"{self._path}/traffic")

    async def flows(self) -> list[types.NetworkFlow]:
        """What flows now."""
        return (await self.traffic()).flows

    async def refused(self) -> list[types.NetworkRefusal]:
        """What it was refused, the newest first."""
        return (await self.traffic()).refused

    async def explain(self, url: str, method: str = "GET") -> types.NetworkExplanation:
        """Whether something would pass, and by which rule."""
        query = {"url": url, "method": method}
        return await self._client.call(
            types.NetworkExplanation, "GET", f"{self._path}/explain", query=query
        )

    async def har(self) -> dict[str, Any]:
        """What went over its connections, as an HTTP archive (HAR 1.2), without secrets."""
        return await self._client.call(dict, "GET", f"{self._path}/har")

    async def publish(self, inside: int, outside: int | None = None) -> types.PublishedPort:
        """Make a port of the session reachable at the host's loopback."""
        body = present(inside=inside, outside=outside)
        return await self._client.call(types.PublishedPort, "POST", f"{self._path}/ports", body)

    async def unpublish(self, outside: int) -> None:
        """Let go of a published port."""
        await self._client.call(type(None), "DELETE", f"{self._path}/ports/{outside}")


class AsyncSecrets:
    """Secrets that sessions use without knowing them."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(self) -> SecretList:
        """Every secret, without its value."""
        return await self._client.every(types.Secret, "/v1/secrets", {"limit": 1000})

    async def set(
        self,
        name: str,
        value: str,
        *,
        hosts: Iterable[str] = (),
        mode: types.SecretMode | None = None,
        carrier: str | None = None,
        variable: str | None = None,
        files: Iterable[types.SecretFile] = (),
        renewal: types.Renewal | None = None,
    ) -> types.Secret:
        """Keep a secret, which is put into requests to ``hosts`` on their way out.

        ``variable`` of a session's commands and ``files`` in its home hold a placeholder.
        ``renewal`` says how a token that expires is renewed, on the host.
        """
        body = types.secret_body(
            value,
            hosts=hosts,
            mode=mode,
            carrier=carrier,
            variable=variable,
            files=files,
            renewal=renewal,
        )
        return await self._client.call(types.Secret, "PUT", f"/v1/secrets/{segment(name)}", body)

    async def remove(self, name: str) -> None:
        """Forget a secret."""
        await self._client.call(type(None), "DELETE", f"/v1/secrets/{segment(name)}")
