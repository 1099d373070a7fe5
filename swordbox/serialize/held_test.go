package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// crowdedRig has a host with one connection, whose word is known, and hosts of which each has n
// connections with a CAS that waits for a value and 250 WRITEs behind it.
func crowdedRig(t *testing.T, hosts, n int, nics func(*engine.Config)) (*rig, *conn) {
	t.Helper()
	r := newRig(t, rigConfig{clients: 1 + hosts, rules: missRule(rules.AnswerWait), engine: nics})
	good := r.connect(0)
	for range 3 {
		good.post(good.faa(64, 1, 0))
		r.run(time.Millisecond)
		good.done(verbs.Success)
	}
	var crowd []*conn
	for i := range hosts * n {
		b := r.connect(1 + i%hosts)
		for range 3 {
			b.post(b.faa(128, 0, 0))
			r.run(time.Millisecond)
			b.done(verbs.Success)
		}
		crowd = append(crowd, b)
	}
	for _, b := range crowd {
		b.post(b.cas(128, 1, 2, 0)) // the word is 0, so this CAS waits
		for range 250 {
			b.post(b.write(8192, 64, 8))
		}
	}
	return r, good
}

// Hosts whose requests fill the switch's room for held requests delay no other host: three requests
// that change between the connections, each of which is held for the answer to the one before, take
// as long as without those hosts. Afterwards all requests of those hosts are executed.
func TestHeldRequestsOfAHostDelayNoOther(t *testing.T) {
	eachWindow(t, func(t *testing.T, _ int, nics func(*engine.Config)) {
		alone := time.Duration(0)
		for _, crowd := range []struct{ hosts, conns int }{{1, 0}, {1, 1}, {1, 4}, {1, 8}, {1, 16}, {7, 1}, {7, 8}} {
			r, good := crowdedRig(t, crowd.hosts, crowd.conns, nics)
			most, worst := 0, time.Duration(0)
			for range 100 {
				at, done := r.now, 0
				good.post(good.faa(64, 1, 0), good.write(4096, 0, 8), good.faa(64, 1, 8))
				for done < 3 && r.now.Sub(at) < time.Second {
					r.step(r.now + 10*hop)
					most = max(most, r.m.held.inUse)
					for _, w := range r.clients[0].poll() {
						if done++; w.Status != verbs.Success {
							t.Fatalf("%+v: %v", crowd, w.Status)
						}
					}
				}
				worst = max(worst, r.now.Sub(at))
			}
			if crowd.conns == 0 {
				alone = worst
			}
			// with 56 other hosts, packets queue for the server's NIC of the rig
			if worst > 3*alone {
				t.Errorf("%+v: a round takes up to %v, %v alone; %d held, %d refused",
					crowd, worst, alone, most, r.m.Stats().HeldFull)
			}
			if crowd.conns >= 8 && r.m.held.refused() == 0 {
				t.Errorf("%+v: nothing was refused, so the test shows nothing", crowd)
			}
			r.run(2 * time.Second)
			for i, n := range r.clients[1:] {
				wcs := n.poll()
				if want := crowd.conns * 251; len(wcs) != want {
					t.Errorf("%+v: host %d has %d completions, want %d", crowd, i+1, len(wcs), want)
				}
				for _, w := range wcs {
					if w.Status != verbs.Success {
						t.Fatalf("%+v: host %d: %v", crowd, i+1, w.Status)
					}
				}
			}
			if r.m.held.inUse != 0 || r.m.held.taken != 0 {
				t.Errorf("%+v: at the end %d are held, %d in common places", crowd, r.m.held.inUse, r.m.held.taken)
			}
		}
	})
}

// A client whose requests were refused for lack of room, and that has none in flight, gets a NAK as
// soon as there is room, also when another connection of its host ends. It need not wait for its
// NIC's ACK timer.
func TestRefusedClientIsToldWhenThereIsRoom(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1), cfg: Config{Held: 8}})
	a, b := r.connect(0), r.connect(0)
	for _, c := range []*conn{a, b} {
		for range 3 {
			c.post(c.faa(64, 0, 0))
			r.run(time.Millisecond)
			c.done(verbs.Success)
		}
	}
	// The server's answers on the shared connection are lost, so a's WRITEs behind its FAA are
	// held.
	lose := true
	r.tap = func(up bool, port int, data []byte) bool {
		return !lose || !up || port != r.server.port || parse(data).BTH.DestQP != r.m.servers[0].links[0].ownQPN
	}
	a.post(a.faa(64, 1, 0))
	r.settle()
	for r.m.held.room(0) {
		a.post(a.write(4096, 0, 8))
		r.settle()
	}
	b.post(b.write(4096, 0, 8), b.faa(64, 1, 8)) // the FAA would have to wait for the answer to the WRITE
	r.settle()
	b.done(verbs.Success)
	if r.m.held.refused() != 1 {
		t.Fatalf("%d held, %+v", r.m.held.inUse, r.m.Stats())
	}
	lose = false
	r.do(func(c *pipeline.Ctx) {
		for _, l := range r.m.flows.list {
			if l.waits.held.n > 0 {
				r.m.Closed(c, l.flow)
				break
			}
		}
	})
	at := r.now
	for len(r.clients[0].poll()) == 0 && r.step(at.Add(time.Second)) {
	}
	// Without the NAK, b would learn of the room only when the switch retransmits, a millisecond
	// later.
	if took := r.now.Sub(at); took > 100*time.Microsecond {
		t.Errorf("it took %v", took)
	}
}
