package serialize

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// The listing and the table show how many requests are held, by host.
func TestHeldIsShown(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 3, rules: missRule(rules.AnswerWait)})
	for _, c := range conns[1:] {
		c.post(c.cas(64, 0, 9, 8))
	}
	r.settle()
	if list := r.m.Tables(); len(list) != 1 || list[0].Used != 2 || list[0].Max != 1024 || list[0].Clear {
		t.Errorf("tables %+v", list)
	}
	r.m.held.hosts[2].refused = 7
	counts := map[string]uint64{}
	for _, c := range r.m.counters() {
		counts[c.Name] = c.Value
	}
	if counts["held_now"] != 2 || counts["held_over_share"] != 7 {
		t.Errorf("held_now %d, held_over_share %d", counts["held_now"], counts["held_over_share"])
	}
	if n := r.m.ClearTable("held"); n != 0 || r.m.held.inUse != 2 {
		t.Errorf("%d requests are gone, %d held", n, r.m.held.inUse)
	}
	raw, err := json.Marshal(Kind.Listings[0].Items(r.m, r.now))
	if err != nil {
		t.Fatal(err)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Kind.Listings[0].Print(&b, netip.Addr.String, items); err != nil {
		t.Fatal(err)
	}
	// 4 ports: a quarter of 1024 in five parts is the reserve of 51.
	want := `HOST       PORT  HELD  PEAK  LIMIT  REFUSED
10.77.0.2  1     1     1     564    7
10.77.0.3  2     1     1     564    0
`
	if b.String() != want {
		t.Errorf("the listing is\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	if err := Kind.Listings[0].Print(&b, netip.Addr.String, nil); err != nil || !strings.Contains(b.String(), "no request") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// A host of which one request was refused, and none was held, is listed, too.
func TestHostWithARefusedRequestIsListed(t *testing.T) {
	r, _ := locked(t, rigConfig{clients: 3, rules: missRule(rules.AnswerWait)})
	r.do(func(c *pipeline.Ctx) { r.m.held.fit(c.Ports()) })
	if list := r.m.heldShares(r.now); len(list) != 0 {
		t.Errorf("%+v, want none", list)
	}
	r.m.held.hosts[2].refused = 1
	if list := r.m.heldShares(r.now); len(list) != 1 || list[0].Port != 1 || list[0].Refused != 1 || list[0].Peak != 0 {
		t.Errorf("%+v, want the host at port 1", list)
	}
}

// A request that leaves the pool makes settle run once for the flow that waits for room.
func TestRoomIsOfferedOnce(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 3, rules: missRule(rules.AnswerWait)})
	for _, c := range conns[1:] {
		c.post(c.cas(64, 0, 9, 8))
	}
	r.settle()
	r.m.held.wanted, r.m.kick = true, false
	for i, want := range []bool{true, false} {
		if r.m.popHeld(&r.m.blocked.list[i].waits.held); r.m.kick != want || r.m.held.wanted {
			t.Errorf("request %d: settle runs: %v, want %v; a flow waits: %v", i, r.m.kick, want, r.m.held.wanted)
		}
		r.m.kick = false
	}
}

// Once the pool has its size, a request is held and released without an allocation.
func TestHoldingDoesNotAllocate(t *testing.T) {
	r, conns := locked(t, rigConfig{clients: 2, rules: missRule(rules.AnswerWait)})
	conns[1].post(conns[1].cas(64, 0, 9, 8))
	r.settle()
	l := r.m.blocked.list[0]
	data := append([]byte(nil), r.m.held.slots[l.waits.held.first].data...)
	r.do(func(c *pipeline.Ctx) {
		turn := func() {
			if i := r.m.keep(c, l.flow, data, 1); i >= 0 {
				l.waits.held.push(&r.m.held, i)
			}
			r.m.popHeld(&l.waits.held)
		}
		turn()
		if n := testing.AllocsPerRun(1000, turn); n != 0 {
			t.Errorf("%v allocations to hold and release a request", n)
		}
	})
}
