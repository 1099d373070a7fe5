package packetbuffer

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// meter counts the bytes of frames that go to the ring, or come back from it, and measures how long
// that takes. The zero value has counted no frame. A meter reads no clock: all packets of a round
// of the switch have the time of the round.
type meter struct {
	bytes uint64
	// first is when the transfer of the first frame began; 0 means that there was none. last is
	// when the last transfer ended.
	first, last clock.Time
}

// began is called when the transfer of a frame begins: when the switch stores the frame in the
// ring, or when it READs the frame's entry.
func (m *meter) began(now clock.Time) {
	if m.first == 0 {
		m.first, m.last = now, now
	}
}

// moved is called when a frame of n bytes has gone to the ring or come back. When the server
// acknowledges the WRITE of a frame, moved is called again, with n 0: its bytes are counted
// already, but its transfer ends only then.
func (m *meter) moved(now clock.Time, n int) {
	if m.first != 0 {
		m.bytes += uint64(n)
		m.last = now
	}
}

// Moved says how many bytes of frames went to the ring or came back since the rule got its present
// rate, and how long that took: from the start of the first transfer to the end of the last one.
// The transfer of a frame to the ring ends when the server acknowledges the WRITE; the transfer of
// a frame from the ring ends when the frame comes back.
type Moved struct {
	Bytes uint64        `json:"bytes"`
	Took  time.Duration `json:"took"`
}

func (m *meter) report() Moved { return Moved{m.bytes, m.last.Sub(m.first)} }
