"""Certificates for tests: an authority, and a server that it has signed for."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Identity:
    """Files: a certificate, its key, and the certificate of the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def make_identity(folder: Path, *, addresses: tuple[str, ...] = ("127.0.0.1",)) -> Identity:
    """A server's certificate for these addresses, signed by an authority made for it alone."""
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    begins = datetime.now(UTC) - timedelta(hours=1)
    issuer = _name(f"authority of {folder.name}")

    def begun(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number())
        return made.not_valid_before(begins).not_valid_after(begins + timedelta(days=2))

    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    own = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = begun(issuer, authority_key).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    signed = authority.add_extension(usage, True).add_extension(own, False).sign(authority_key, hashes.SHA256())
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(each)) for each in addresses])
    server = begun(_name("server"), server_key).add_extension(names, False)
    server = server.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), False)
    shown = server.sign(authority_key, hashes.SHA256())
    found = Identity(folder / "server.pem", folder / "server.key", folder / "authority.pem")
    found.certificate.write_bytes(shown.public_bytes(serialization.Encoding.PEM))
    found.authority.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return found
