package serialize

import "github.com/rdmalab/rdmalab/softrnic/wire"

// maxBehind is how many PSNs the map looks back from the newest one, also within one segment. It
// must be well below 2^23, or old and new PSNs could not be distinguished.
const maxBehind = 1 << 21

// segment is a run of a client's PSNs in one place. It ends where the next one begins.
type segment struct {
	client wire.PSN // the client's PSN of the segment's first request
	// own is the PSN on the client's connection of the segment's first request; in a moved segment,
	// of the first request after the segment.
	own   wire.PSN
	moved bool
}

// shift returns how many PSNs have moved before the segment.
func (s *segment) shift() uint32 { return uint32(s.client-s.own) & mask24 }

const mask24 = 1<<24 - 1

// psnMap translates between the PSNs that a client uses and those that the server sees on the
// client's connection, which do not count moved requests. It remembers a bounded number of
// segments.
type psnMap struct {
	segs    []segment // ring
	head, n int
	max     int
	// client and own are the next PSNs of the client and of the client's connection.
	client, own wire.PSN
}

// where is the place of a PSN.
type where uint8

const (
	whereOld    where = iota // older than the oldest segment
	whereOwn                 // on the client's connection
	whereMoved               // on a shared connection
	whereFuture              // not placed yet
)

// start resets m to the identity for all PSNs before psn, which is the next one.
func (m *psnMap) start(psn wire.PSN, max int) {
	if len(m.segs) == 0 {
		m.segs = make([]segment, 2)
	}
	m.head, m.n, m.max = 0, 1, max
	m.segs[0] = segment{client: psn.Add(-maxBehind), own: psn.Add(-maxBehind)}
	m.client, m.own = psn, psn
}

func (m *psnMap) at(i int) *segment { return &m.segs[(m.head+i)&(len(m.segs)-1)] }

// add places the next n PSNs.
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

// rewind takes back the placing of all requests from psn on. All of them must have moved.
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

// find returns the place of a client's PSN, and its PSN on the client's connection if it is there.
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

// back returns the client's PSN for a PSN on the client's connection, and how many PSNs have moved
// before it. ok is false for a PSN that was not placed yet, and for one that is older than the
// oldest segment.
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

// shift returns the difference between the next PSNs of the two ends.
func (m *psnMap) shift() uint32 { return uint32(m.client-m.own) & mask24 }
