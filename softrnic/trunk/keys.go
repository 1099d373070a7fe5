package trunk

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// Secret is what the machines of a rack know, and no other machine.
type Secret [32]byte

// Side says which end of a trunk an End is. The two ends of a trunk differ in it.
type Side uint8

// Sides: Near is that of the switch after which the trunk is named first.
const (
	Near Side = iota
	Far
)

func (s Side) String() string { return [...]string{"near", "far"}[s&1] }

// salt begins the texts from which keys are derived, so that no other use of the secret gets them.
const salt = "rdmalab trunk 1 "

// identity is what the two ends of a trunk have in common before they have talked.
type identity struct {
	secret Secret
	trunk  string
	rack   uint16    // number of the rack in headers
	hello  hash.Hash // makes the authentication codes of hellos
	code   [sha256.Size]byte
}

// identify derives what the ends of a trunk know from the rack's secret (HKDF, RFC 5869, with SHA-256).
func identify(rack, trunk string, secret Secret) identity {
	id := identity{secret: secret, trunk: trunk}
	id.hello = hmac.New(sha256.New, derive(secret[:], nil, salt+"hello "+trunk, 32))
	id.rack = binary.BigEndian.Uint16(derive(secret[:], nil, salt+"rack "+rack, 2))
	return id
}

func derive(key, salt []byte, info string, n int) []byte {
	b, err := hkdf.Key(sha256.New, key, salt, info, n)
	if err != nil {
		panic(fmt.Sprintf("trunk: HKDF of %d bytes: %v", n, err)) // it gives up to 8160
	}
	return b
}

// codeLen is the length of a hello's authentication code in bytes.
const codeLen = 16

// codeOf is the authentication code of a hello: HMAC with SHA-256, cut. It is valid until the next call.
func (id *identity) codeOf(hello []byte) []byte {
	id.hello.Reset()
	id.hello.Write(hello) // a hash returns no error
	return id.hello.Sum(id.code[:0])[:codeLen]
}

// public is a public key of X25519.
type public [32]byte

// pair makes a key pair of a handshake.
func pair(random func() [32]byte) (*ecdh.PrivateKey, public) {
	seed := random()
	key, err := ecdh.X25519().NewPrivateKey(seed[:])
	if err != nil {
		panic(fmt.Sprintf("trunk: X25519: %v", err)) // 32 bytes are always a private key
	}
	return key, public(key.PublicKey().Bytes())
}

// sealing is one direction of a session: a key with its fixed part of the nonce.
type sealing struct {
	aead  cipher.AEAD
	nonce [12]byte // the fixed part in 4 bytes, then the counter
}

// at returns the nonce of a counter, which is valid until the next call.
func (s *sealing) at(counter uint64) []byte {
	binary.BigEndian.PutUint64(s.nonce[4:], counter)
	return s.nonce[:]
}

// newSealing makes the cipher of 20 bytes: an AES-128 key and the fixed part of the nonce.
func newSealing(b []byte) sealing {
	block, err := aes.NewCipher(b[:16])
	if err != nil {
		panic(fmt.Sprintf("trunk: AES: %v", err)) // 16 bytes are always a key
	}
	s := sealing{}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		panic(fmt.Sprintf("trunk: GCM: %v", err)) // AES has the block size that GCM needs
	}
	copy(s.nonce[:4], b[16:20])
	return s
}

// sealingLen is the length of what newSealing takes in bytes.
const sealingLen = 20

// agree returns the key bytes of the two directions, from the end Near and from the end Far; false if
// the peer's public key is none that gives a secret. HKDF takes the shared secret of X25519 as the
// key, the rack's secret as salt, and as info the trunk's name and both public keys.
func (id *identity) agree(own *ecdh.PrivateKey, peer, near, far public) (fromNear, fromFar []byte, ok bool) {
	key, err := ecdh.X25519().NewPublicKey(peer[:])
	if err != nil {
		return nil, nil, false
	}
	shared, err := own.ECDH(key)
	if err != nil {
		return nil, nil, false // a point of low order
	}
	both := derive(shared, id.secret[:], salt+"session "+id.trunk+string(near[:])+string(far[:]), 2*sealingLen)
	return both[:sealingLen], both[sealingLen:], true
}
