package trunk

import "github.com/rdmalab/rdmalab/softrnic/clock"

// session is what two ends have agreed on: a key for each direction.
type session struct {
	own, peer public
	in, out   uint8 // epochs: of what comes, and of what is sent
	rx, tx    sealing
	sent      uint64 // the last counter
	unsent    uint64 // how many of these this machine's kernel has refused
	window    window
	peerSent  peerUnsent
	// padded is the last counter of padded probes, and sizes their window. They have a space of their own,
	// because it is usual that one does not arrive.
	padded uint64
	sizes  window
	proved bool       // something has come that was sealed with it
	until  clock.Time // of the former session: when it ends
	given  uint64     // the first counter of the last train of several pieces that has begun
}

// paddedBit is set in the counters of padded probes, so that no nonce is used twice.
const paddedBit = 1 << 63

// seal fills in the counter of h, writes it to the beginning of the datagram d, and seals what stands
// between the header and the last tagLen bytes.
func (s *session) seal(h *header, d []byte) {
	s.sent++
	s.sealAs(s.sent, h, d)
}

// sealPadded does it for a padded probe.
func (s *session) sealPadded(h *header, d []byte) {
	s.padded++
	s.sealAs(paddedBit|s.padded, h, d)
}

func (s *session) sealAs(counter uint64, h *header, d []byte) {
	h.counter = counter
	h.put(d)
	s.tx.aead.Seal(d[headerLen:headerLen], s.tx.at(counter), d[headerLen:len(d)-tagLen], d[:headerLen])
}

// space returns the window to which a counter belongs, and its number there.
func (s *session) space(counter uint64) (w *window, n uint64) {
	if counter&paddedBit != 0 {
		return &s.sizes, counter &^ paddedBit
	}
	return &s.window, counter
}

// missing returns how many datagrams the network has lost.
func (s *session) missing() uint64 {
	n := s.window.missing()
	return n - min(n, s.peerSent.excused)
}

// pause is called when the end is cut: what comes meanwhile is not missing.
func (s *session) pause() {
	s.window.pause()
	s.peerSent.known = false
}

// peerUnsent follows how many counters the peer has used for datagrams that its own kernel has refused.
type peerUnsent struct {
	last    uint64 // what the peer has said last
	known   bool   // it has said something since the window counts
	excused uint64 // those since then
}

func (p *peerUnsent) told(n uint64) {
	if p.known && n > p.last {
		p.excused += n - p.last
	}
	p.last, p.known = max(p.last, n), true
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

// missing returns how many datagrams of the sessions the network has lost.
func (k *keys) missing() (n uint64) {
	for _, s := range [...]*session{k.now, k.former} {
		if s != nil {
			n += s.missing()
		}
	}
	return n
}
