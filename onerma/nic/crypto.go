package nic

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// PID identifies a process to all NICs of a rack. The driver chooses it when it opens a portal.
// While a key that was derived for a PID may still exist, the driver must not give this PID to
// another process, not even after a crash.
type PID uint32

// Key is K_r, the key of a region, or K_d, a key that is derived from K_r for one process and one
// kind of operation.
type Key [16]byte

// Derive returns K_d, the key that allows process pid, on the NIC with IPv4 address `from`, to do
// op on the region whose key is region.
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

// Cipher is an AES-GCM cipher made of a key; it seals and opens messages. NewCipher allocates
// memory, so a program makes one Cipher for each K_d and keeps it.
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

// reservedKey is the key with which a target seals its AUTHFAIL if it has no valid key for a
// request. The key is publicly known, so such an answer proves only that its sender has seen the
// request.
var reservedKey = Key([]byte("ONERMA, reserved"))

// ReservedKey returns the key with which a target seals its AUTHFAIL if it has no valid key for a
// request.
func ReservedKey() Key { return reservedKey }

// vector is the initialisation vector of a message: the sender's message counter and IPv4 address.
// No two messages have the same vector.
type vector [12]byte

func (v *vector) set(counter uint64, sender [4]byte) {
	binary.BigEndian.PutUint64(v[:], counter)
	copy(v[8:], sender[:])
}

// countBits is how many bits of a counter count the messages of one incarnation.
const countBits = 40

// sealer encrypts and decrypts messages. It holds the buffers for this. So an operation allocates
// memory only for the cipher of a key, and only if the cache `known` does not have that cipher.
type sealer struct {
	epoch uint64
	count uint64 // number of messages that this incarnation has sent
	iv    vector
	// aad is the additional authenticated data: the header of a message, and the vector of the
	// operation's previous message.
	aad      [onerma.HeaderLen + len(vector{})]byte
	plain    [onerma.MaxOp + 3*wordLen]byte // room for a body with whole words at both ends; see alike
	in, out  Key
	reserved *Cipher
	// known caches the ciphers of inbound requests; two bytes of a key select the entry. The
	// paper's hardware derives the key for each request. The cache only saves work: it holds no
	// state of a peer.
	known [1024]struct {
		key    Key
		cipher *Cipher
	}
}

// next returns the counter for the next message. The bool is false if this incarnation has used up
// its counters.
func (s *sealer) next() (uint64, bool) {
	if s.count+1 >= 1<<countBits {
		return 0, false
	}
	s.count++
	return s.epoch<<countBits | s.count, true
}

// seal appends the encrypted body and the tag to b, the headers of a frame. body may be memory that
// a program changes meanwhile: the message is authentic whatever bytes seal finds.
func (s *sealer) seal(b, body []byte, c *Cipher, prev *vector) []byte {
	copy(s.aad[:], b[len(b)-onerma.HeaderLen:])
	copy(s.aad[onerma.HeaderLen:], prev[:])
	return c.aead.Seal(b, s.iv[:], body, s.aad[:])
}

// source returns the body that the caller passes to seal: n bytes of a region at offset off, which
// a program may change meanwhile. It is the memory itself if inPlace allows that, otherwise a
// copy. To make the copy, source loads each word as a whole, even a word of which only a part is
// in the body. The race detector would report this as a race with a program that changes the other
// part of such a word. So when the race detector is compiled in, source loads only the bytes of
// the body. The copy is valid until the next call of source or open.
func (s *sealer) source(r *mem.Region, off, n int) ([]byte, error) {
	memory, err := r.Span(off, n)
	if err != nil || inPlace(memory) {
		return memory, err
	}
	words, at := memory, 0
	if !raceEnabled {
		if words, at, err = wordsOf(r, memory, off); err != nil {
			return nil, err
		}
	}
	buffer := alike(s.plain[:], words)[:len(words)]
	copyWords(buffer, words)
	return buffer[at : at+n], nil
}

// open checks and decrypts a message. body is valid until the next call of open or source. ok is
// false if the message is not authentic.
func (s *sealer) open(f *onerma.Frame, c *Cipher, prev *vector) (body []byte, ok bool) {
	return s.openTo(s.plain[:0], f, c, prev)
}

// openTo is open with a given buffer for the body, whose capacity must be at least the length of
// the body. If the message is not authentic, openTo overwrites that many bytes of the buffer with
// zeros.
func (s *sealer) openTo(buffer []byte, f *onerma.Frame, c *Cipher, prev *vector) (body []byte, ok bool) {
	copy(s.aad[:], f.Clear)
	copy(s.aad[onerma.HeaderLen:], prev[:])
	s.iv.set(f.Counter, f.IPv4.Src)
	body, err := c.aead.Open(buffer, s.iv[:], f.Sealed, s.aad[:])
	return body, err == nil
}

// inPlace reports whether AES-GCM may read and write memory that a program also uses. AES-GCM loads
// and stores whole blocks, and the last bytes one by one if they are not a whole block. So a word
// that changes meanwhile could be torn if the memory does not begin with a word, or does not end
// with a block. The race detector does not see what AES-GCM reads and writes, so with it the answer
// is no.
func inPlace(memory []byte) bool {
	return len(memory)%aes.BlockSize == 0 && phase(memory) == 0 && !raceEnabled
}

// derived returns the cipher of the K_d with which process pid, on the NIC with address `from`, may
// do op on region r.
func (s *sealer) derived(r *Region, from [4]byte, pid PID, op onerma.Op) *Cipher {
	fillBlock(&s.in, from, pid, op)
	r.block.Encrypt(s.out[:], s.in[:])
	k := &s.known[binary.BigEndian.Uint16(s.out[:])%uint16(len(s.known))]
	if k.cipher == nil || k.key != s.out {
		k.key, k.cipher = s.out, NewCipher(s.out)
	}
	return k.cipher
}
