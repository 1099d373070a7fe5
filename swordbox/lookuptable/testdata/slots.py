# Makes slots.hex: slots of entries as the comment in slot.go describes them, and the numbers of their home
# slots by the hash that key.go describes. It uses nothing of the project:
#
#   python3 slots.py > slots.hex
import ipaddress
import struct

M = 2**64


def half(b, i):
    return struct.unpack(">Q", b[8 * i : 8 * i + 8])[0]


def home(src, dst, sport, dport, proto, v6, mask, capacity):
    h = 0x9E3779B97F4A7C15

    def mix(h, x):
        h = ((h ^ x) * 0xFF51AFD7ED558CCD) % M
        return h ^ h >> 32

    h = mix(mix(h, half(src, 0)), half(dst, 0))
    if v6:
        h = mix(mix(h, half(src, 1)), half(dst, 1))
    h = mix(h, mask << 48 | sport << 32 | dport << 16 | proto << 8 | 1)
    return (h ^ h >> 29) % capacity


def slot(name, version, key, ops=0, addr="", port=0, dscp=0, egress=0, capacity=16):
    src, dst, sport, dport, proto, mask = key

    def raw(a):
        return ipaddress.ip_address(a).packed.ljust(16, b"\0") if a else bytes(16)

    v6 = ":" in src + dst
    b = struct.pack(">BBBB", version, 1 | 2 * v6, ops, proto) + raw(src) + raw(dst)
    b += struct.pack(">HH", sport, dport) + raw(addr) + struct.pack(">HBBHBB", port, dscp, 0, egress, mask, version)
    assert len(b) == 64
    print(name, home(raw(src), raw(dst), sport, dport, proto, v6, mask, capacity), b.hex())


DROP, DSCP, EGRESS, SOURCE, DESTINATION = 1, 2, 4, 8, 16

# mask 1 is to+proto+dport, mask 2 to/24+proto, mask 3 any
slot("mask1", 1, ("", "10.0.0.2", 0, 53, 17, 1), DSCP, dscp=46)
slot("mask2", 1, ("", "10.0.0.0", 0, 0, 17, 2), DSCP | EGRESS, dscp=7, egress=0)
slot("mask3", 1, ("", "", 0, 0, 0, 3), DROP)
slot("mask1v6", 1, ("", "fd00::2", 0, 53, 17, 1), DESTINATION, addr="fd00::9", port=5353)
# a connection from 10.0.0.1:7 to the virtual address 10.0.0.2:80, which goes to 10.0.0.4
slot("connection", 1, ("10.0.0.1", "10.0.0.2", 7, 80, 6, 0), DESTINATION, addr="10.0.0.4")
