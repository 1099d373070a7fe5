package nic

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"net/netip"

	onerma "github.com/rdmalab/rdmalab/onerma/wire"
)

// PID identifies a process to all NICs of a rack. The driver stamps it on a portal. It must not give
// it to another process while a key may exist that was derived for it, also after a crash.
type PID uint32

// Key is K_r, the key of a region, or K_d, which is derived from it for one process and operation.
type Key [16]byte

// Derive returns K_d: the key with which the process pid on the NIC with the address from may do op
// on the region whose key is region. from is an IPv4 address.
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

// Cipher is a key in the form in which messages are sealed. Making one allocates memory, so a program
// makes it once for each K_d.
type Cipher struct{ aead cipher.AEAD }

// NewCipher prepares a key.
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

// reservedKey signs the refusal of a message for which the target has no key. Everybody knows it, so
// such a refusal proves nothing but that its sender has seen the request.
var reservedKey = Key([]byte("ONERMA, reserved"))

// ReservedKey returns the key with which a target signs that it has no key for a request.
func ReservedKey() Key { return reservedKey }

// vector is an initialisation vector: the sender's message counter and its IPv4 address. It never
// repeats.
type vector [12]byte

func (v *vector) set(counter uint64, sender [4]byte) {
	binary.BigEndian.PutUint64(v[:], counter)
	copy(v[8:], sender[:])
}

// countBits is the size of the part of a counter that counts the messages of one incarnation.
const countBits = 40

// sealer has the memory for cryptography, so that an operation allocates none.
type sealer struct {
	epoch uint64
	count uint64 // messages that this incarnation has sent
	iv    vector
	// aad is the header of a message and the vector of the message before.
	aad      [onerma.HeaderLen + len(vector{})]byte
	plain    [onerma.MaxOp]byte
	in, out  Key
	reserved *Cipher
	// known are ciphers of inbound requests, each in the place that its key selects. The hardware
	// derives the key each time; this saves the expansion, and no state of a peer.
	known [1024]struct {
		key    Key
		cipher *Cipher
	}
}

// next returns the counter of the next message; false: this incarnation has used up its counters.
func (s *sealer) next() (uint64, bool) {
	if s.count+1 >= 1<<countBits {
		return 0, false
	}
	s.count++
	return s.epoch<<countBits | s.count, true
}

// seal encrypts the last n bytes of b, which is a frame up to its body's end, in place and appends
// the tag. header is at the offset at of b.
func (s *sealer) seal(b []byte, at, n int, c *Cipher, prev *vector) []byte {
	copy(s.aad[:], b[at:at+onerma.HeaderLen])
	copy(s.aad[onerma.HeaderLen:], prev[:])
	body := len(b) - n
	return c.aead.Seal(b[:body], s.iv[:], b[body:], s.aad[:])
}

// open checks and decrypts a message. The body is valid until the next call; ok is false if the
// message is not authentic.
func (s *sealer) open(f *onerma.Frame, c *Cipher, prev *vector) (body []byte, ok bool) {
	copy(s.aad[:], f.Clear)
	copy(s.aad[onerma.HeaderLen:], prev[:])
	s.iv.set(f.Counter, f.IPv4.Src)
	body, err := c.aead.Open(s.plain[:0], s.iv[:], f.Sealed, s.aad[:])
	return body, err == nil
}

// derived returns the cipher of K_d for an inbound request.
func (s *sealer) derived(r *Region, from [4]byte, pid PID, op onerma.Op) *Cipher {
	fillBlock(&s.in, from, pid, op)
	r.block.Encrypt(s.out[:], s.in[:])
	k := &s.known[binary.BigEndian.Uint16(s.out[:])%uint16(len(s.known))]
	if k.cipher == nil || k.key != s.out {
		k.key, k.cipher = s.out, NewCipher(s.out)
	}
	return k.cipher
}
