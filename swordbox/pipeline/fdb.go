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
	// recent has addresses of the last packets, so that most packets need no look-up in entries.
	recent [recentMACs]learnt
	// moves counts addresses that appeared at another port. full counts addresses that were not
	// learnt because the database was full.
	moves, full uint64

	trunks *Trunks // nil: the switch is the only one
	groups []int   // the groups of the present partition, by port
}

type fdbEntry struct {
	port int
	seen clock.Time
}

type learnt struct {
	mac   wire.MAC
	entry *fdbEntry // nil means that the place is unused
}

const recentMACs = 64

// place returns the place of an address in recent. Addresses of one rack differ in the last bytes.
func (t *fdb) place(mac wire.MAC) *learnt {
	return &t.recent[(mac[5]^mac[4]<<4^mac[3]<<2)%recentMACs]
}

// find returns the entry of an address; nil if there is none.
func (t *fdb) find(mac wire.MAC) *fdbEntry {
	l := t.place(mac)
	if l.entry == nil || l.mac != mac {
		e := t.entries[mac]
		if e == nil {
			return nil
		}
		*l = learnt{mac, e}
	}
	return l.entry
}

func newFDB(max int, ageing time.Duration) fdb {
	return fdb{entries: make(map[wire.MAC]*fdbEntry), max: max, ageing: ageing}
}

// learn records that the host with address mac is at the port.
func (t *fdb) learn(now clock.Time, mac wire.MAC, port int) {
	e := t.find(mac)
	if e == nil {
		if e = t.add(now, mac); e == nil {
			return
		}
		e.port = port
	}
	e.seen = now
	if e.port != port {
		e.port = port
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

// lookup returns the port of mac; -1 means not known.
func (t *fdb) lookup(now clock.Time, mac wire.MAC) int {
	e := t.find(mac)
	if e == nil {
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
	if l := t.place(mac); l.entry == e {
		*l = learnt{}
	}
}
