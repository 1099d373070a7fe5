package trunk

import "encoding/binary"

// probe says that an end is alive, and measures the path:
//
//	|   0   | 1 to 3 |   4, 5    |  6, 7  | 8 to 15 |  16 to 23  | 24 to 31 | 32 to 39 | padding |
//	| flags |   0    | long seen |   0    |  sent   | peer's sent| received |  unsent  |         |
//
// Times are Unix nanoseconds of the clock of the machine that they belong to.
type probe struct {
	hears bool // the sender hears the peer
	// long is the length of the longest datagram with a probe that has come from the peer since the last
	// probe was sent.
	long uint16
	sent int64 // when the probe was sent
	// peerSent and received are of the last probe that has come from the peer: its sent, and when it came; 0:
	// none has come.
	peerSent, received int64
	// unsent is how many datagrams of the session have a counter, and were refused by the sender's own kernel.
	unsent uint64
}

// probeLen is the length of a probe without padding in bytes.
const probeLen = 40

const flagHears = 1

func (p *probe) put(b []byte) {
	clear(b)
	if p.hears {
		b[0] = flagHears
	}
	binary.BigEndian.PutUint16(b[4:], p.long)
	binary.BigEndian.PutUint64(b[8:], uint64(p.sent))
	binary.BigEndian.PutUint64(b[16:], uint64(p.peerSent))
	binary.BigEndian.PutUint64(b[24:], uint64(p.received))
	binary.BigEndian.PutUint64(b[32:], p.unsent)
}

func parseProbe(b []byte) (p probe, ok bool) {
	if len(b) < probeLen {
		return p, false
	}
	return probe{
		hears: b[0]&flagHears != 0, long: binary.BigEndian.Uint16(b[4:]), sent: int64(binary.BigEndian.Uint64(b[8:])),
		peerSent: int64(binary.BigEndian.Uint64(b[16:])), received: int64(binary.BigEndian.Uint64(b[24:])),
		unsent: binary.BigEndian.Uint64(b[32:]),
	}, true
}
