package scenario

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// misjoiner steers as the published switch does (hole 36): it assumes that an append is of the node
// that was last written on its connection. It never holds a packet, and the switch forwards packets
// unchanged, so a wrong assumption does not reach the servers.
type misjoiner struct {
	*cloversteer.Machine
	stores map[string]placed
	last   map[uint32]layout.Location // the last node that was written, by flow
	wrong  int
}

// placed says where the store's part of a server's memory begins.
type placed struct {
	base  uint64
	super layout.Superblock
}

func newMisjoiner() *misjoiner {
	return &misjoiner{cloversteer.New(cloversteer.Config{Hold: 1}), make(map[string]placed), make(map[uint32]layout.Location), 0}
}

func (m *misjoiner) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	if s.Class != conntrack.New || r == nil {
		return m.Machine.Request(c, s, r, p)
	}
	st, known := m.stores[r.Server.String()]
	switch p.BTH.Opcode {
	case wire.RCWriteOnly, wire.RCWriteFirst:
		var super layout.Superblock
		if super.Parse(p.Payload) == nil {
			m.stores[r.Server.String()] = placed{p.RETH.VA, super}
			break
		}
		if _, keyed := layout.KeyOf(p.Payload); keyed && known {
			if h, _, ok := st.super.Space.Handle(st.super.Server, int(p.RETH.VA-st.base)); ok {
				m.last[s.Flow.ID] = layout.Location{Handle: h, Version: layout.HeaderOf(p.Payload).EntryVersion()}
			}
		}
	case wire.RCCmpSwap:
		return m.join(c, s, r, p, st)
	default:
	}
	return m.Machine.Request(c, s, r, p)
}

// join replaces the node of an append by the last one that was written, before the machine gets the
// append.
func (m *misjoiner) join(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed, st placed) pipeline.Verdict {
	swap := layout.Word(p.AtomicETH.SwapOrAdd)
	next, more := swap.Next()
	last, written := m.last[s.Flow.ID]
	at, ok := st.super.Space.Place(next.Handle)
	if !more || !written || last == next || !ok || at.Server != st.super.Server {
		return m.Machine.Request(c, s, r, p) // the last node was written on a connection to another server
	}
	m.wrong++
	p.AtomicETH.SwapOrAdd = uint64(layout.Superseded(swap.EntryVersion(), last))
	v := m.Machine.Request(c, s, r, p)
	p.AtomicETH.SwapOrAdd = uint64(layout.Superseded(layout.Word(p.AtomicETH.SwapOrAdd).EntryVersion(), next))
	return v
}

// The published rule that an append belongs to the last WRITE of its connection is right if each
// client has its own connection, and wrong if clients share one; the histories show that.
func TestWrongJoinIsCaught(t *testing.T) {
	t.Parallel()
	const seeds = 4
	for _, c := range []struct {
		name   string
		shared bool
		plant  bool
		least  int // seeds that must show damage; few, because proving that there is no order takes long
	}{
		{"each client has a connection, the last WRITE counts", false, true, 0},
		{"shared connections, the handle counts", true, false, 0},
		{"shared connections, the last WRITE counts", true, true, 1},
	} {
		caught, wrong := 0, 0
		for seed := uint64(1); seed <= seeds && (c.least == 0 || caught < c.least); seed++ {
			plant := newMisjoiner()
			change := func(p *storePlan) {
				p.share(newDraw(seed))
				p.shared, p.box = c.shared, steerBox("both", "all")
				p.rack.Wrap, p.rack.Datagrams = nil, true
				p.keys, p.rounds, p.mix = 6, 15, [4]float64{0.4, 1, 1, 1}
				p.rules, p.links = nil, "clean"
				p.what = storeNothing
				var m handler.Machine = plant
				if !c.plant {
					m = plant.Machine
				}
				p.rack.Program = steering(m)
			}
			s := Scenario{Name: "clover-steer", run: func(e *env) error { return new(storePlan).runSteered(e, "both", mixNone, change) }}
			if r := s.Run(seed, Options{}); r.Err != nil {
				if caught++; caught == 1 {
					t.Logf("%s: seed %d: %.200s", c.name, seed, r.Err)
				}
			}
			wrong += plant.wrong
		}
		t.Logf("%s: %d appends were taken for another's, caught with %d seeds", c.name, wrong, caught)
		if caught < c.least || c.least == 0 && caught > 0 {
			t.Errorf("%s: caught with %d of %d seeds, want at least %d", c.name, caught, seeds, c.least)
		}
		if (wrong > 0) != (c.least > 0) {
			t.Errorf("%s: %d appends were taken for another's", c.name, wrong)
		}
	}
}

// A memory server has ended a connection that the clients of a host share, and none of them has a
// request in flight that would fail: a client that joins the connection makes the group connect again.
// Joins were refused without end before.
func TestASharedConnectionEndsWithItsPeer(t *testing.T) {
	t.Parallel()
	s, err := mustFind(t, "clover").Vary(Params{Steer: "both", ShareQP: true, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{7200152, 970087} {
		if r := s.Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		}
	}
}
