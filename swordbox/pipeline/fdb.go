package pipeline

import (
	"slices"
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
	// learnt because the database was full, foreign those that were not because they belong elsewhere.
	moves, full, foreign uint64
	homes                *Homes // nil: addresses may appear anywhere

	trunks *Trunks // nil: the switch is the only one
	groups []int   // the groups of the present partition, by port
}

type fdbEntry struct {
	port int
	seen clock.Time
}

// Places has the ports at which the addresses of hosts may appear; a host with several NICs may send with the address
// of one through the ports of all. Addresses that are not in it may appear anywhere.
type Places map[wire.MAC][]int

// Homes tells a switch where the addresses of hosts belong (Config.Homes). The zero value knows no host.
type Homes struct {
	places Places
	fdb    *fdb // that of the switch
}

// NewHomes makes the Homes of a switch, which owns p.
func NewHomes(p Places) *Homes { return &Homes{places: p} }

// Set replaces the places of all hosts; the switch owns p. Addresses that were learnt at other ports are forgotten.
func (h *Homes) Set(p Places) {
	h.places = p
	for mac, e := range h.fdb.entries {
		if h.foreign(mac, e.port) {
			h.fdb.remove(mac, e)
		}
	}
}

// foreign reports whether an address belongs to other ports than this one: the frame is forged, and must not draw the
// host's frames to the port.
func (h *Homes) foreign(mac wire.MAC, port int) bool {
	if h == nil {
		return false
	}
	ports, known := h.places[mac]
	return known && !slices.Contains(ports, port)
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

// learn records that the host with address mac is at the port, unless the address belongs elsewhere.
func (t *fdb) learn(now clock.Time, mac wire.MAC, port int) {
	e := t.find(mac)
	if (e == nil || e.port != port) && t.homes.foreign(mac, port) {
		t.foreign++
		return
	}
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
