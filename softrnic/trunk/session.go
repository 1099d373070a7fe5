package trunk

import "github.com/rdmalab/rdmalab/softrnic/clock"

// session is what two ends have agreed on: a key for each direction.
type session struct {
	own, peer public
	in, out   uint8 // epochs: of what comes, and of what is sent
	rx, tx    sealing
	sent      uint64 // the last counter
	window    window
	proved    bool       // something has come that was sealed with it
	until     clock.Time // of the former session: when it ends
	given     uint64     // the first counter of the last train of several pieces that has begun
}

// seal fills in the counter of h, writes it to the beginning of the datagram d, and seals what stands
// between the header and the last tagLen bytes.
func (s *session) seal(h *header, d []byte) {
	s.sent++
	h.counter = s.sent
	h.put(d)
	s.tx.aead.Seal(d[headerLen:headerLen], s.tx.at(s.sent), d[headerLen:len(d)-tagLen], d[:headerLen])
}

// open returns the content of the datagram d in the memory of dst.
func (s *session) open(dst, d []byte, counter uint64) ([]byte, bool) {
	b, err := s.rx.aead.Open(dst, s.rx.at(counter), d[headerLen:], d[:headerLen])
	return b, err == nil
}

// keys are the sessions of an end: the present one, and the former one until the peer certainly has the
// present one.
type keys struct{ now, former *session }

// sending returns the session with which the end seals: the present one, as soon as the peer has it; nil
// if there is none.
func (k *keys) sending() *session {
	if k.now != nil && !k.now.proved && k.former != nil {
		return k.former
	}
	return k.now
}

// of returns the session whose epoch a datagram has; nil if there is none.
func (k *keys) of(now clock.Time, epoch uint8) *session {
	switch {
	case k.now != nil && k.now.in == epoch:
		return k.now
	case k.former != nil && k.former.in == epoch && now < k.former.until:
		return k.former
	}
	return nil
}

// missing returns how many datagrams of the sessions have not come.
func (k *keys) missing() (n uint64) {
	for _, s := range [...]*session{k.now, k.former} {
		if s != nil {
			n += s.window.missing()
		}
	}
	return n
}
