# Computes the bytes of testdata/golden.txt without the code of this package: python3 golden.py > golden.txt
# X25519 is RFC 7748 section 5, HKDF is RFC 5869; AES-128-GCM is that of FIPS 197 and SP 800-38D, below.
import hashlib, hmac, struct

P = 2**255 - 19

def x25519(k, u):
    k = bytearray(k); k[0] &= 248; k[31] = k[31] & 127 | 64
    k, u = int.from_bytes(k, "little"), int.from_bytes(u, "little") % 2**255
    x1, x2, z2, x3, z3, swap = u, 1, 0, u, 1, 0
    for t in range(254, -1, -1):
        b = k >> t & 1
        if swap ^ b:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = b
        a, c = (x2 + z2) % P, (x2 - z2) % P
        aa, cc = a * a % P, c * c % P
        e = (aa - cc) % P
        da, cb = (x3 - z3) * a % P, (x3 + z3) * c % P
        x3, z3 = (da + cb) ** 2 % P, x1 * (da - cb) ** 2 % P
        x2, z2 = aa * cc % P, e * (aa + 121665 * e) % P
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")

def hkdf(key, salt, info, n):
    prk = hmac.new(salt or b"\0" * 32, key, hashlib.sha256).digest()
    out, t = b"", b""
    for i in range(1, 9):
        t = hmac.new(prk, t + info + bytes([i]), hashlib.sha256).digest()
        out += t
    return out[:n]

def sbox():
    def mul(a, b):
        r = 0
        while b:
            if b & 1: r ^= a
            a = a << 1 ^ (0x11b if a & 128 else 0); b >>= 1
        return r
    box = []
    for i in range(256):
        inv = next((j for j in range(256) if mul(i, j) == 1), 0)
        s = inv
        for k in range(1, 5): s ^= (inv << k | inv >> (8 - k)) & 255
        box.append(s ^ 0x63)
    return box
S = sbox()

def aes(key, block):
    w = [list(key[i:i + 4]) for i in range(0, 16, 4)]
    rcon = 1
    for i in range(4, 44):
        t = list(w[i - 1])
        if i % 4 == 0:
            t = [S[b] for b in t[1:] + t[:1]]; t[0] ^= rcon
            rcon = rcon << 1 ^ (0x11b if rcon & 128 else 0)
        w.append([a ^ b for a, b in zip(w[i - 4], t)])
    rk = [sum(w[4 * r:4 * r + 4], []) for r in range(11)]
    s = [a ^ b for a, b in zip(block, rk[0])]
    x2 = lambda b: (b << 1 ^ (0x11b if b & 128 else 0)) & 255
    for r in range(1, 11):
        s = [S[s[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if r < 10:
            n = []
            for c in range(0, 16, 4):
                a = s[c:c + 4]; t = a[0] ^ a[1] ^ a[2] ^ a[3]
                n += [a[i] ^ t ^ x2(a[i] ^ a[(i + 1) % 4]) for i in range(4)]
            s = n
        s = [a ^ b for a, b in zip(s, rk[r])]
    return bytes(s)

def gcm(key, nonce, plain, aad):
    h = int.from_bytes(aes(key, bytes(16)), "big")
    def gmul(x, y):
        z = 0
        for i in range(127, -1, -1):
            if x >> i & 1: z ^= y
            y = y >> 1 ^ (0xe1 << 120 if y & 1 else 0)
        return z
    out = b""
    for i in range(0, len(plain), 16):
        ks = aes(key, nonce + struct.pack(">I", 2 + i // 16))
        out += bytes(a ^ b for a, b in zip(plain[i:i + 16], ks))
    y = 0
    pad = lambda b: b + bytes(-len(b) % 16)
    data = pad(aad) + pad(out) + struct.pack(">QQ", 8 * len(aad), 8 * len(out))
    for i in range(0, len(data), 16):
        y = gmul(y ^ int.from_bytes(data[i:i + 16], "big"), h)
    return out + bytes(a ^ b for a, b in zip(y.to_bytes(16, "big"), aes(key, nonce + b"\0\0\0\1")))

assert gcm(bytes(16), bytes(12), bytes(16), b"").hex() == "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"
nine = (9).to_bytes(32, "little")
secret, near, far = bytes(range(32)), bytes(range(64, 96)), bytes(range(128, 160))
pn, pf = x25519(near, nine), x25519(far, nine)
salt = b"rdmalab trunk 1 "
rack = hkdf(secret, b"", salt + b"rack golden", 2)
code = hkdf(secret, b"", salt + b"hello leaf0-leaf1", 32)
print("public", pn.hex())
head = bytes([0x21, 0]) + rack + bytes(12)
body = bytes([0, 65, 0, 0]) + pn + pf + struct.pack(">q", 0x0102030405060708)
print("hello", (head + body + hmac.new(code, head + body, hashlib.sha256).digest()[:16]).hex())
keys = hkdf(x25519(near, pf), secret, salt + b"session leaf0-leaf1" + pn + pf, 40)
print("keys", keys.hex())
frame = bytes([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]) + b"golden"
record = struct.pack(">IBBHHHH", len(frame), 0, 0, 0, 0, 0, 0) + frame
head = bytes([0x24, 7]) + rack + struct.pack(">Q", 2) + bytes([0, 1]) + struct.pack(">H", 0)
print("data", (head + gcm(keys[:16], keys[16:20] + struct.pack(">Q", 2), record, head)).hex())
