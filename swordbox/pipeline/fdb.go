package pipeline

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// fdb is the forwarding database: it says at which port each address was last seen.
type fdb struct {
	entries map[wire.MAC]*fdbEntry
	max     int
	ageing  time.Duration
	sweep   clock.Time // no sweep before this time
	last    []learnt   // by port: the last address learnt there, so that a burst costs one lookup
	// moves counts addresses that appeared at another port. full counts addresses that were not
	// learnt because the database was full.
	moves, full uint64
}

type fdbEntry struct {
	port int
	seen clock.Time
}

type learnt struct {
	mac   wire.MAC
	entry *fdbEntry
}

func newFDB(ports, max int, ageing time.Duration) fdb {
	return fdb{entries: make(map[wire.MAC]*fdbEntry), max: max, ageing: ageing, last: make([]learnt, ports)}
}

// learn records that mac is behind port.
func (t *fdb) learn(now clock.Time, mac wire.MAC, port int) {
	l := &t.last[port]
	if l.entry == nil || l.mac != mac {
		e, ok := t.entries[mac]
		if !ok {
			if e = t.add(now, mac); e == nil {
				return
			}
			e.port = port
		}
		*l = learnt{mac, e}
	}
	l.entry.seen = now
	if l.entry.port != port {
		l.entry.port = port
		t.moves++
	}
}

// add adds an address; nil if there is no room.
func (t *fdb) add(now clock.Time, mac wire.MAC) *fdbEntry {
	if len(t.entries) >= t.max {
		if now >= t.sweep {
			t.expire(now)
			t.sweep = now.Add(time.Second) // limits the work that a flood of new addresses can cause
		}
		if len(t.entries) >= t.max {
			t.full++
			return nil
		}
	}
	e := new(fdbEntry)
	t.entries[mac] = e
	return e
}

// lookup returns the port of mac; -1: not known.
func (t *fdb) lookup(now clock.Time, mac wire.MAC) int {
	e, ok := t.entries[mac]
	if !ok {
		return -1
	}
	if now.Sub(e.seen) > t.ageing {
		t.remove(mac, e)
		return -1
	}
	return e.port
}

func (t *fdb) expire(now clock.Time) {
	for mac, e := range t.entries {
		if now.Sub(e.seen) > t.ageing {
			t.remove(mac, e)
		}
	}
}

// flush forgets all addresses behind a port.
func (t *fdb) flush(port int) {
	for mac, e := range t.entries {
		if e.port == port {
			t.remove(mac, e)
		}
	}
}

func (t *fdb) remove(mac wire.MAC, e *fdbEntry) {
	delete(t.entries, mac)
	for i := range t.last {
		if t.last[i].entry == e {
			t.last[i] = learnt{}
		}
	}
}
