package hard

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// A server, or its link, is silent for longer than the NIC of a client tries. The client's queue pair fails, its application
// connects anew and does again what has failed; and then the switch, which tries for longer, has the old request executed
// behind the new ones. A WRITE of a lock's former owner would be in the memory of the next one. So while a shared connection has
// been waiting for an answer, connections that begin wait for what it has got until then: their requests are dropped, and come
// again. What a host does by connections that it has had all along is not ordered behind what it has lost on another one.

// formerAge is how long the oldest request on a shared connection must have waited: NICs try for longer.
const formerAge = 2 * time.Millisecond

// former is what a new lane waits for: everything before a position of a shared connection.
type former struct {
	conn *shared.Conn
	end  uint32
}

// formers are those of a lane that begins now.
func (s *server) formers(now clock.Time) (out []former) {
	for _, k := range s.links {
		if since, ok := k.conn.Oldest(); ok && now.Sub(since) >= formerAge {
			out = append(out, former{k.conn, k.conn.Newest()})
		}
	}
	return out
}

// awaitsFormer reports whether a lane must let pass what was there before it began: on shared connections, or held on its way
// to them.
func (l *lane) awaitsFormer() bool {
	for _, f := range l.formers {
		if !f.conn.HasEnded(f.end) {
			return true
		}
	}
	for _, b := range l.m.blocked {
		if b.s == l.s && b.place != placeOwn && b.held.n > 0 && l.m.held.slots[b.held.first].at <= l.began {
			return true
		}
	}
	l.formers = nil
	return false
}

// tooEarly drops a request that came before what it must not overtake has ended.
func (l *lane) tooEarly() pipeline.Verdict {
	l.m.stats.TooEarly++
	l.whole = false // it is new to the server when it comes again, whatever has passed meanwhile
	return pipeline.Drop(ReasonBusy)
}
