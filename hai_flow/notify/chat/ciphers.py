"""The cipher in which platforms send: AES in CBC mode with padding as PKCS #7 has it."""

from __future__ import annotations

from hai_flow.notify.chat.contract import UnprovenCall


def decrypt_cbc(key: bytes, iv: bytes, data: bytes, block: int) -> bytes:
    """The plain text; `block`: the size of the blocks that it was filled up to. Raises UnprovenCall."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # only where a channel needs it

    if len(iv) != 16 or not data or len(data) % 16:
        raise UnprovenCall
    decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    plain = decryptor.update(data) + decryptor.finalize()
    count = plain[-1]
    if not 1 <= count <= block or plain[-count:] != bytes([count]) * count:
        raise UnprovenCall
    return plain[:-count]
