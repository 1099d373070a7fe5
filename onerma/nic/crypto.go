package nic

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"net/netip"

	onerma "github.com/rdmalab/rdmalab/onerma/wire"
)

// PID identifies a process to all NICs of a rack. The driver sets it for a portal. The driver must
// not give the same PID to another process while there may be a key that was derived for it, not
// even after a crash.
type PID uint32

// Key is K_r, the key of a region, or K_d, which is derived from K_r for one process and operation.
type Key [16]byte

// Derive returns K_d: with this key, process pid on the NIC with address from may do op on the
// region with key region. from is an IPv4 address.
func Derive(region Key, from netip.Addr, pid PID, op onerma.Op) Key {
	block, err := aes.NewCipher(region[:])
	if err != nil {
		panic(err) // 16 bytes are always a key
	}
	var in, out Key
	fillBlock(&in, from.As4(), pid, op)
	block.Encrypt(out[:], in[:])
	return out
}

// fillBlock makes the block whose encryption under K_r is K_d.
func fillBlock(in *Key, from [4]byte, pid PID, op onerma.Op) {
	*in = Key{}
	copy(in[:], from[:])
	binary.BigEndian.PutUint32(in[4:], uint32(pid))
	in[8] = byte(op)
}

// Cipher is a key in the form that seals messages. Making one allocates memory, so a program makes
// it once for each K_d.
type Cipher struct{ aead cipher.AEAD }

// NewCipher makes the Cipher of a key.
func NewCipher(k Key) *Cipher {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // 16 bytes are always a key
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size that GCM needs
	}
	return &Cipher{aead}
}

// reservedKey seals the refusal of a message for which the target has no key. It is public, so such
// a refusal proves only that its sender has seen the request.
var reservedKey = Key([]byte("ONERMA, reserved"))

// ReservedKey returns the key with which a target seals the answer that it has no key for a
// request.
func ReservedKey() Key { return reservedKey }

// vector is an initialisation vector: the sender's message counter and IPv4 address. It never
// repeats.
type vector [12]byte

func (v *vector) set(counter uint64, sender [4]byte) {
	binary.BigEndian.PutUint64(v[:], counter)
	copy(v[8:], sender[:])
}

// countBits is how many bits of a counter count the messages of one incarnation.
const countBits = 40

// sealer holds the memory for cryptography, so that an operation allocates none.
type sealer struct {
	epoch uint64
	count uint64 // number of messages that this incarnation has sent
	iv    vector
	// aad is the additional authenticated data: the header of a message, and the vector of the
	// message before.
	aad      [onerma.HeaderLen + len(vector{})]byte
	plain    [onerma.MaxOp]byte
	in, out  Key
	reserved *Cipher
	// known caches the ciphers of inbound requests; a key selects its place. The paper's hardware
	// derives the key each time. The cache only saves work: it holds no state of a peer.
	known [1024]struct {
		key    Key
		cipher *Cipher
	}
}

// next returns the counter of the next message. The bool is false if this incarnation has used up
// its counters.
func (s *sealer) next() (uint64, bool) {
	if s.count+1 >= 1<<countBits {
		return 0, false
	}
	s.count++
	return s.epoch<<countBits | s.count, true
}

// seal encrypts the last n bytes of b in place, and appends the tag. b is a frame up to the end of
// its body. The header of the message is at offset at.
func (s *sealer) seal(b []byte, at, n int, c *Cipher, prev *vector) []byte {
	copy(s.aad[:], b[at:at+onerma.HeaderLen])
	copy(s.aad[onerma.HeaderLen:], prev[:])
	body := len(b) - n
	return c.aead.Seal(b[:body], s.iv[:], b[body:], s.aad[:])
}

// open checks and decrypts a message. body is valid until the next call. ok is false if the message
// is not authentic.
func (s *sealer) open(f *onerma.Frame, c *Cipher, prev *vector) (body []byte, ok bool) {
	copy(s.aad[:], f.Clear)
	copy(s.aad[onerma.HeaderLen:], prev[:])
	s.iv.set(f.Counter, f.IPv4.Src)
	body, err := c.aead.Open(s.plain[:0], s.iv[:], f.Sealed, s.aad[:])
	return body, err == nil
}

// derived returns the cipher of K_d for an inbound request: pid, on the NIC with address from,
// wants to do op on region r.
func (s *sealer) derived(r *Region, from [4]byte, pid PID, op onerma.Op) *Cipher {
	fillBlock(&s.in, from, pid, op)
	r.block.Encrypt(s.out[:], s.in[:])
	k := &s.known[binary.BigEndian.Uint16(s.out[:])%uint16(len(s.known))]
	if k.cipher == nil || k.key != s.out {
		k.key, k.cipher = s.out, NewCipher(s.out)
	}
	return k.cipher
}
