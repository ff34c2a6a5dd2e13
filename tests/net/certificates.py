"""Certificates for TLS tests, made on the spot: an authority and what it signed, and the kinds a client has to refuse."""

from __future__ import annotations

import datetime
import ipaddress
import pathlib
import ssl
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from tests.kit.clock import epoch_s

DAY = datetime.timedelta(days=1)
PASS_PHRASE = "open sesame"


class Certificates:
    """Paths of PEM files in a folder. Names of servers: good, wrong_host, expired, future, unknown_ca, self_signed, revoked, and reissued, which is good's name from other_ca."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self._ca = self._authority("ca")
        self._other_ca = self._authority("other_ca")
        hosts = ["localhost", "kafka.example", "127.0.0.1", "::1"]
        self._leaf("good", hosts, self._ca)
        self._leaf("wrong_host", ["elsewhere.example"], self._ca)
        self._leaf("expired", hosts, self._ca, start=-10, end=-1)
        self._leaf("future", hosts, self._ca, start=1, end=10)
        self._leaf("unknown_ca", hosts, self._other_ca)
        self._leaf("self_signed", hosts, None)
        self._leaf("client", ["client"], self._ca)
        self._leaf("renewed", ["client"], self._ca)
        self._leaf("reissued", hosts, self._other_ca, subject="good")
        self._encrypted("client")
        revoked = self._leaf("revoked", hosts, self._ca)
        self._revocations("revoked.crl", self._ca, [revoked])
        self._revocations("stale.crl", self._ca, [revoked], start=-10, end=-1)
        self._revocations("empty.crl", self._ca, [])
        self._revocations("other_ca.crl", self._other_ca, [])

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def ca(self) -> str:
        return self.path("ca.pem")

    def server(self, name: str = "good", **settings: Any) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        for setting, value in settings.items():
            setattr(context, setting, value)
        return context

    def asking_for_clients(self, **settings: Any) -> ssl.SSLContext:
        context = self.server(**settings)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.ca)
        return context

    def _authority(self, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"gkafka test {name}")
        cert = (
            self._builder(subject, subject, key, -1, 30)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        self._write(f"{name}.pem", cert.public_bytes(serialization.Encoding.PEM))
        return cert, key

    def _leaf(
        self,
        name: str,
        hosts: list[str],
        ca: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
        start: int = -1,
        end: int = 30,
        subject: str = "",
    ) -> x509.Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        named = _name(subject or name)
        issuer, signer = (ca[0].subject, ca[1]) if ca else (named, key)
        names = [_general_name(host) for host in hosts]
        cert = (
            self._builder(named, issuer, key, start, end)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        self._write(f"{name}.pem", cert.public_bytes(serialization.Encoding.PEM))
        plain = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self._write(f"{name}.key", plain)
        return cert

    def _revocations(
        self,
        name: str,
        ca: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
        revoked: list[x509.Certificate],
        start: int = -1,
        end: int = 30,
    ) -> None:
        now = datetime.datetime.fromtimestamp(epoch_s(), datetime.timezone.utc)
        builder = (
            x509.CertificateRevocationListBuilder().issuer_name(ca[0].subject).last_update(now + start * DAY).next_update(now + end * DAY)
        )
        for cert in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(cert.serial_number).revocation_date(now + start * DAY).build()
            builder = builder.add_revoked_certificate(entry)
        self._write(name, builder.sign(ca[1], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def _encrypted(self, name: str) -> None:
        key: Any = serialization.load_pem_private_key((self.folder / f"{name}.key").read_bytes(), None)
        cert = x509.load_pem_x509_certificate((self.folder / f"{name}.pem").read_bytes())
        lock = serialization.BestAvailableEncryption(PASS_PHRASE.encode())
        self._write(f"{name}.locked.key", key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock))
        self._write(f"{name}.p12", pkcs12.serialize_key_and_certificates(b"x", key, cert, None, lock))

    def _builder(self, subject: x509.Name, issuer: x509.Name, key: Any, start: int, end: int) -> x509.CertificateBuilder:
        now = datetime.datetime.fromtimestamp(epoch_s(), datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + start * DAY)
            .not_valid_after(now + end * DAY)
        )

    def _write(self, name: str, data: bytes) -> None:
        (self.folder / name).write_bytes(data)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
