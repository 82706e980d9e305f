"""An OPC UA server that tests control: an implementation independent of the host's own client and simulator.

    asyncua_server.py --port 4840 --control 4841 [--user NAME:PASSWORD]... [--no-anonymous] [--secure DIRECTORY]
                      [--namespace URI]... [--faults JSON]

The control port speaks one JSON object a line, and answers each with one: {"ok": true, ...} or {"ok": false, "error": "..."}.

    {"do": "add",   "node": "s=FILL01.Good", "type": "UInt32", "value": 0, "name": "GoodCount", "parent": "s=FILL01"}
    {"do": "add-namespace", "uri": "urn:late"}
    {"do": "add-object", "node": "s=FILL01", "name": "FILL01", "parent": "s=LINE"}
    {"do": "set",   "node": "s=FILL01.Good", "type": "UInt32", "value": 5, "status": 0, "source": 1700000000.5, "server": null}
    {"do": "set-many", "sets": [{...}, {...}]}
    {"do": "remove", "node": "s=FILL01.Good"}
    {"do": "get",   "node": "s=FILL01.Good"}
    {"do": "sessions"}            TCP clients, and sessions that are open
    {"do": "counts"}              what faults.py has counted
    {"do": "fault", "faults": {"created_at": 0}}
    {"do": "subscriptions"}       of each: how many items, and the count and interval of its keep-alives
    {"do": "ping"}

A node is in the namespace "namespace" of the command, by default the last one given. Times are seconds since the Unix epoch;
a missing one is now, and null is none. A value of null is none. It prints "ready" when it serves.
"""

import argparse
import asyncio
import datetime
import json
import logging
import os
import pathlib

import faults
from asyncua import Server, ua
from asyncua.crypto.permission_rules import User, UserRole
from asyncua.server.user_managers import UserManager

URI = "urn:plant:test-server"


class Users(UserManager):
    def __init__(self, known, anonymous):
        self.known, self.anonymous = known, anonymous

    def get_user(self, iserver, username=None, password=None, certificate=None):
        if username is None:
            return User(role=UserRole.User) if self.anonymous else None
        if username in self.known and self.known[username] == password:
            return User(role=UserRole.User)
        return None


def certificate(directory):
    """A self-signed certificate for 127.0.0.1, made once: a server that restarts keeps its identity."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    import ipaddress

    cert_path, key_path = directory / "server.der", directory / "server.pem"
    if cert_path.exists():
        return cert_path, key_path
    directory.mkdir(parents=True, exist_ok=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test server")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.UniformResourceIdentifier(URI), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    built = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=False)
        .add_extension(x509.KeyUsage(True, True, True, True, False, False, False, False, False), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_path.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    cert_path.write_bytes(built.public_bytes(serialization.Encoding.DER))
    return cert_path, key_path


def moment(command, key):
    if key not in command:
        return datetime.datetime.now(datetime.timezone.utc)
    seconds = command[key]
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


def variant(command):
    value = command.get("value")
    if value is None:
        return ua.Variant(None, ua.VariantType.Null)
    kind = ua.VariantType[command["type"]]
    if kind == ua.VariantType.ByteString:
        value = bytes.fromhex(value)
    elif kind == ua.VariantType.DateTime:
        value = datetime.datetime.fromtimestamp(value, datetime.timezone.utc)
    elif kind == ua.VariantType.LocalizedText:
        value = ua.LocalizedText(value)
    return ua.Variant(value, kind, is_array=isinstance(value, list))


def data_value(command):
    return ua.DataValue(
        Value=variant(command),
        StatusCode=ua.StatusCode(command.get("status", 0)),
        SourceTimestamp=moment(command, "source"),
        ServerTimestamp=moment(command, "server"),
    )


class Control:
    def __init__(self, server, indexes, injected):
        self.server, self.indexes, self.faults = server, indexes, injected
        self.namespaces = list(indexes)

    def id(self, text, command):
        index = self.indexes[command.get("namespace", self.namespaces[-1])]
        return ua.NodeId.from_string(f"ns={index};{text}")

    def name(self, command):
        index = self.indexes[command.get("namespace", self.namespaces[-1])]
        return ua.QualifiedName(command.get("name", command["node"].split("=", 1)[1]), index)

    def parent(self, command):
        if "parent" not in command:
            return self.server.nodes.objects
        return self.server.get_node(self.id(command["parent"], command))

    async def run(self, command):
        what = command["do"]
        if what == "add":
            first = ua.Variant(variant(command).Value, ua.VariantType[command["type"]])
            node = await self.parent(command).add_variable(self.id(command["node"], command), self.name(command), first)
            await self.server.write_attribute_value(node.nodeid, data_value(command))
        elif what == "add-object":
            await self.parent(command).add_object(self.id(command["node"], command), self.name(command))
        elif what == "add-namespace":
            self.indexes[command["uri"]] = await self.server.register_namespace(command["uri"])
        elif what == "set":
            await self.server.write_attribute_value(self.id(command["node"], command), data_value(command))
        elif what == "set-many":
            for one in command["sets"]:
                await self.server.write_attribute_value(self.id(one["node"], one), data_value(one))
        elif what == "remove":
            await self.server.delete_nodes([self.server.get_node(self.id(command["node"], command))])
        elif what == "get":
            read = await self.server.get_node(self.id(command["node"], command)).read_data_value(raise_on_bad_status=False)
            return {"value": read.Value.Value if read.Value else None, "status": read.StatusCode.value}
        elif what == "sessions":
            server = self.server.bserver
            return {
                "sessions": len(server.clients) if server else 0,
                "open": len(self.server.iserver._external_sessions),
            }
        elif what == "counts":
            return faults.counts
        elif what == "fault":
            self.faults.update(command["faults"])
        elif what == "subscriptions":
            subs = self.server.iserver.subscription_service.subscriptions.values()
            return {"subscriptions": [
                {
                    "items": len(sub.monitored_item_srv._monitored_items),
                    "keep_alive": sub.data.RevisedMaxKeepAliveCount,
                    "publish_ms": sub.data.RevisedPublishingInterval,
                }
                for sub in subs
            ]}
        elif what != "ping":
            raise ValueError(f"unknown command {what!r}")
        return {}

    async def serve(self, reader, writer):
        try:
            while line := await reader.readline():
                try:
                    answer = {"ok": True, **await self.run(json.loads(line))}
                except Exception as error:
                    answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--user", action="append", default=[])
    parser.add_argument("--no-anonymous", action="store_true")
    parser.add_argument("--secure", type=pathlib.Path)
    parser.add_argument("--namespace", action="append", default=[])
    parser.add_argument("--faults", type=json.loads, default={})
    told = parser.parse_args()
    injected = told.faults
    faults.apply(injected)
    logging.basicConfig(level=os.environ.get("LOG", "CRITICAL"))

    users = dict(user.split(":", 1) for user in told.user)
    server = Server(user_manager=Users(users, not told.no_anonymous))
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{told.port}/")
    server.set_server_name("test server")
    await server.set_application_uri(URI)
    tokens = [] if told.no_anonymous else [ua.AnonymousIdentityToken]
    server.set_identity_tokens(tokens + ([ua.UserNameIdentityToken] if users else []))
    if told.secure:
        cert, key = certificate(told.secure)
        await server.load_certificate(str(cert))
        await server.load_private_key(str(key))
        server.set_security_policy([
            ua.SecurityPolicyType.NoSecurity,
            ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt,
            ua.SecurityPolicyType.Aes256Sha256RsaPss_SignAndEncrypt,
        ])
    else:
        server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    await faults.announce(server, injected)
    indexes = {}
    for uri in told.namespace or ["urn:plant:test"]:
        indexes[uri] = await server.register_namespace(uri)
    async with server:
        control = await asyncio.start_server(Control(server, indexes, injected).serve, "127.0.0.1", told.control, limit=1 << 24)
        print("ready", flush=True)
        async with control:
            await control.serve_forever()


asyncio.run(main())
