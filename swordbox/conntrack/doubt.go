package conntrack

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A host that starts anew gives its queue pairs the numbers that it gave before, and where queue pairs are exchanged out of
// band nothing tells the switch. Requests of the new connection name another queue pair of the server, so they make a row of
// their own. But its responses name what those of the old connection named. In the numbers of the old one, an acknowledgement
// would acknowledge something else.

// packetLife is longer than a packet is on its way in a rack.
const packetLife = time.Millisecond

// doubtful reports whether a response to a pinned row may be that of a younger connection between the same two hosts, whose
// requester's queue pair is not known: the younger one has asked for what is answered, and the requester of the row has been
// silent since that one began. A requester that is alive speaks again, at the latest when it misses the answer, and ends the
// doubt: the responder then answers once more.
func (t *Table) doubtful(r *Row, f *wire.Frame) bool {
	c := t.pairs[r.key.ends]
	if c == nil || r.Last > c.newest.Add(packetLife) {
		return false // nobody has begun since, however many there are
	}
	for _, d := range c.rows {
		if d.Since > r.Since && d.learn.n != 0 && r.Last <= d.Since.Add(packetLife) && d.learn.compare(f) != impossible {
			return true
		}
	}
	return false
}
