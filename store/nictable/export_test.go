package nictable

// Version returns the version of the last item that an answer had.
func (c *Client) Version() uint32 { return c.version }

// Answer returns the value with which the server answers a GET.
func (s *Server) Answer(key uint64) ([]byte, error) { return s.get(key, nil) }

// SetVersion sets the version of the newest item.
func (s *Server) SetVersion(n uint32) { s.t.version = n }

// Twin returns another key with the fingerprint of a key.
func Twin(key uint64) uint64 { return unmix(mix(key+1)^1<<60) - 1 }

// unmix is the inverse of mix.
func unmix(x uint64) uint64 {
	const factor = 0xd6e8feb86659fd93
	inverse := uint64(1) // of factor, modulo 2^64: each step doubles the number of right bits
	for range 7 {
		inverse *= 2 - factor*inverse
	}
	x ^= x >> 32
	for range 2 {
		x *= inverse
		x ^= x >> 32
	}
	return x
}
