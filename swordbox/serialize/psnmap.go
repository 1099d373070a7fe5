package serialize

import "github.com/rdmalab/rdmalab/softrnic/wire"

// maxBehind is how far back a psnMap reaches: the number of PSNs before the next one. If the oldest
// segment begins earlier, it is shortened. maxBehind must be well below 2^23, or old and new PSNs
// could not be distinguished.
const maxBehind = 1 << 21

// segment is a run of a client's PSNs. Either all their requests are on the client's connection, or
// none is (moved is true). The run ends where the next segment begins.
type segment struct {
	client wire.PSN // the client's PSN of the segment's first request
	// own is the PSN of the segment's first request on the client's connection. For a segment of
	// moved requests it is the PSN of the first request after the segment.
	own   wire.PSN
	moved bool
}

// shift returns how many PSNs before the segment belong to moved requests.
func (s *segment) shift() uint32 { return uint32(s.client-s.own) & mask24 }

const mask24 = 1<<24 - 1

// psnMap translates between the client's PSNs and the PSNs that the server sees on the client's
// connection. Moved requests have a PSN at the client and none at the server. The map remembers the
// newest segments: runs of the client's PSNs whose requests have all moved, or have all stayed.
type psnMap struct {
	segs    []segment // ring of n segments; head is the position of the oldest one
	head, n int
	max     int // the largest n
	// client is the PSN of the next request at the client. own is the next PSN on the client's
	// connection to the server.
	client, own wire.PSN
}

// where is the place of the request with a given PSN.
type where uint8

const (
	whereOld    where = iota // older than the oldest segment
	whereOwn                 // the request is on the client's connection
	whereMoved               // the request has moved, or the switch has answered it itself
	whereFuture              // not assigned to a place yet
)

// start resets m: psn is the next PSN, and all PSNs before it are the same at client and server.
func (m *psnMap) start(psn wire.PSN, max int) {
	if len(m.segs) == 0 {
		m.segs = make([]segment, 2)
	}
	m.head, m.n, m.max = 0, 1, max
	m.segs[0] = segment{client: psn.Add(-maxBehind), own: psn.Add(-maxBehind)}
	m.client, m.own = psn, psn
}

func (m *psnMap) at(i int) *segment { return &m.segs[(m.head+i)&(len(m.segs)-1)] }

// add gives the client's next n PSNs a place. If moved is true, their requests do not travel on the
// client's connection: a shared connection carries them, or the switch answers them itself.
func (m *psnMap) add(n int, moved bool) {
	if m.at(m.n-1).moved != moved {
		m.push(segment{client: m.client, own: m.own, moved: moved})
	}
	m.client = m.client.Add(n)
	if !moved {
		m.own = m.own.Add(n)
	}
	for m.n > 1 && wire.Diff(m.client, m.at(1).client) >= maxBehind {
		m.head, m.n = m.head+1, m.n-1
	}
	if s := m.at(0); wire.Diff(m.client, s.client) > maxBehind {
		d := int(wire.Diff(m.client, s.client)) - maxBehind
		s.client = s.client.Add(d)
		if !s.moved {
			s.own = s.own.Add(d)
		}
	}
}

// rewind makes psn and all later PSNs unassigned again. All of their requests must have moved.
func (m *psnMap) rewind(psn wire.PSN) {
	for m.n > 1 && wire.Diff(m.at(m.n-1).client, psn) >= 0 {
		m.n--
	}
	m.client = psn
}

func (m *psnMap) push(s segment) {
	if m.n == m.max {
		m.head, m.n = m.head+1, m.n-1
	} else if m.n == len(m.segs) {
		grown := make([]segment, 2*len(m.segs))
		for i := range m.n {
			grown[i] = *m.at(i)
		}
		m.segs, m.head = grown, 0
	}
	m.n++
	*m.at(m.n - 1) = s
}

// find returns where the request with this client's PSN was sent. If that is the client's
// connection, find also returns the request's PSN there.
func (m *psnMap) find(client wire.PSN) (where, wire.PSN) {
	if wire.Diff(client, m.client) >= 0 {
		return whereFuture, 0
	}
	for i := m.n - 1; i >= 0; i-- {
		s := m.at(i)
		d := wire.Diff(client, s.client)
		switch {
		case d < 0:
		case s.moved:
			return whereMoved, 0
		default:
			return whereOwn, s.own.Add(int(d))
		}
	}
	return whereOld, 0
}

// back returns the client's PSN for a PSN on the client's connection. shift is how many PSNs before
// it belong to moved requests. ok is false for a PSN that was not assigned yet, and for one before
// the oldest segment.
func (m *psnMap) back(own wire.PSN) (client wire.PSN, shift uint32, ok bool) {
	if wire.Diff(own, m.own) >= 0 {
		return 0, 0, false
	}
	for i := m.n - 1; i >= 0; i-- {
		s := m.at(i)
		if d := wire.Diff(own, s.own); !s.moved && d >= 0 {
			return s.client.Add(int(d)), s.shift(), true
		}
	}
	return 0, 0, false
}

// shift returns the difference between the next PSNs of client and server: the number of PSNs of
// moved requests.
func (m *psnMap) shift() uint32 { return uint32(m.client-m.own) & mask24 }
