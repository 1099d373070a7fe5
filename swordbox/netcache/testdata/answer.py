"""Computes answer.hex: a GET over IPv4 and one over IPv6 with a VLAN tag, and the answers to them, one a line."""
import ipaddress
import struct


def fold(b):
    if len(b) % 2:
        b += b"\0"
    s = sum(struct.unpack(f">{len(b) // 2}H", b))
    while s > 0xFFFF:
        s = (s & 0xFFFF) + (s >> 16)
    return ~s & 0xFFFF


def frame(v6, tag, src, dst, sport, dport, ident, text):
    mac = lambda n: bytes([2, 0, 0, 0, 0, n])
    payload = struct.pack(">HHHH", ident, 0, 1, 0) + text
    a, b = ipaddress.ip_address(src[1]).packed, ipaddress.ip_address(dst[1]).packed
    n = 8 + len(payload)
    udp = struct.pack(">HHHH", sport, dport, n, 0) + payload
    udp = udp[:6] + struct.pack(">H", fold(a + b + struct.pack(">HH", 17, n) + udp) or 0xFFFF) + udp[8:]
    if v6:
        ip = struct.pack(">IHBB", 0x60000000, n, 17, 64) + a + b
    else:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + n, 0, 0x4000, 64, 17, 0) + a + b
        ip = ip[:10] + struct.pack(">H", fold(ip)) + ip[12:]
    eth = mac(dst[0]) + mac(src[0]) + (struct.pack(">HH", 0x8100, 42) if tag else b"")
    return eth + struct.pack(">H", 0x86DD if v6 else 0x0800) + ip + udp


for v6, tag, client, server in [(False, False, (5, "10.0.0.5"), (7, "10.0.0.7")), (True, True, (5, "fd00::5"), (7, "fd00::7"))]:
    print(frame(v6, tag, client, server, 40000, 11211, 0xBEEF, b"get foo\r\n").hex())
    print(frame(v6, tag, server, client, 11211, 40000, 0xBEEF, b"VALUE foo 0 5\r\nhello\r\nEND\r\n").hex())
    print(frame(v6, tag, client, server, 61007, 11211, 0x1234, b"get foo\r\n").hex())
