package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// placed calls f with the next request of a flow under these rules, whose keys are proven.
func placed(t *testing.T, list []rules.Rule, op wire.Opcode, f func(r *rig, g *placing)) {
	t.Helper()
	r := newRig(t, rigConfig{clients: 1, rules: list})
	l := r.sequencerOf(r.connect(0))
	for _, right := range []right{rightWrite, rightRead, rightAtomic} {
		l.s.keys.prove(r.server.key, right, r.server.base, 4096)
	}
	p := heldRequest(l, op)
	p.RETH = wire.RETH{VA: r.server.base + 64, RKey: r.server.key, Length: 8}
	p.AtomicETH = wire.AtomicETH{VA: p.RETH.VA, RKey: r.server.key, SwapOrAdd: 1}
	if op.Is(wire.OpWrite) {
		p.Payload = make([]byte, 8)
	}
	r.do(func(ctx *pipeline.Ctx) {
		g := &placing{l: l, c: ctx, f: &p.Frame, span: 1, arrived: true}
		f(r, g)
	})
}

// placeOf names the place to which a request has gone.
func placeOf(g *placing, out outcome) string {
	switch {
	case out == sentOwn:
		return "own"
	case out == sentShared && g.now:
		return "shared, at once"
	case out == sentShared:
		return "shared"
	case out == told:
		return "told"
	}
	return "waits"
}

// Under a rule of action move, a request moves if its key is proven, its payload fits, its flow may
// move and nothing that it must not overtake is in flight elsewhere.
func TestWhichRequestsMove(t *testing.T) {
	none := func(*rig, *placing) {}
	for name, c := range map[string]struct {
		op     wire.Opcode
		change func(r *rig, g *placing)
		want   string
	}{
		"WRITE":                 {wire.RCWriteOnly, none, "shared, at once"},
		"READ":                  {wire.RCReadRequest, none, "shared, at once"},
		"atomic":                {wire.RCFetchAdd, none, "shared, at once"},
		"a held one":            {wire.RCReadRequest, func(_ *rig, g *placing) { g.arrived = false }, "shared"},
		"while others are held": {wire.RCReadRequest, func(r *rig, _ *placing) { r.m.blocked.list = make([]*sequencer, 1) }, "shared"},
		"another key":           {wire.RCReadRequest, func(_ *rig, g *placing) { g.f.RETH.RKey++ }, "own"},
		"not proven":            {wire.RCReadRequest, func(_ *rig, g *placing) { g.f.RETH.VA += 8192 }, "own"},
		"another right": {wire.RCReadRequest, func(r *rig, g *placing) {
			g.l.s.keys.forget(r.server.key)
			g.l.s.keys.prove(r.server.key, rightWrite, 0, 1<<30)
		}, "own"},
		"no path MTU":               {wire.RCReadRequest, func(_ *rig, g *placing) { g.f.RETH.Length = 1025 }, "own"},
		"a path MTU":                {wire.RCReadRequest, func(_ *rig, g *placing) { g.f.RETH.Length = 1024 }, "shared, at once"},
		"may not":                   {wire.RCReadRequest, func(_ *rig, g *placing) { g.l.permit = permitDenied }, "own"},
		"of two packets":            {wire.RCReadRequest, func(_ *rig, g *placing) { g.span = 2 }, "own"},
		"no rule":                   {wire.RCReadRequest, func(_ *rig, g *placing) { g.l.s.rules = nil }, "own"},
		"another rule":              {wire.RCReadRequest, func(_ *rig, g *placing) { g.l.s.rules = []*rules.Rule{{Action: rules.Atomics}} }, "own"},
		"own in flight":             {wire.RCReadRequest, func(_ *rig, g *placing) { g.l.place, g.l.conn.acked = placeOwn, g.l.conn.acked.Add(-1) }, "waits"},
		"no record":                 {wire.RCReadRequest, func(_ *rig, g *placing) { g.l.replies.window.max = 0 }, "waits"},
		"shared in flight":          {wire.RCReadRequest, func(_ *rig, g *placing) { g.l.place, g.l.out = 0, 1 }, "shared, at once"},
		"of no bytes":               {wire.RCWriteOnly, func(_ *rig, g *placing) { g.f.RETH.Length, g.f.Payload = 0, nil }, "shared, at once"},
		"a probe":                   {wire.RCWriteOnly, func(_ *rig, g *placing) { g.f.RETH, g.f.Payload = wire.RETH{}, nil }, "own"},
		"WRITE with a wrong length": {wire.RCWriteOnly, func(_ *rig, g *placing) { g.f.RETH.Length = 9 }, "own"},
		"WRITE with immediate data": {wire.RCWriteOnlyImm, none, "own"},
		"WRITE of several packets":  {wire.RCWriteFirst, none, "own"},
		"atomic, not aligned":       {wire.RCFetchAdd, func(_ *rig, g *placing) { g.f.AtomicETH.VA++ }, "own"},
		"atomic of a part":          {wire.RCMaskedFetchAdd, none, "own"},
		"atomic, no rule":           {wire.RCFetchAdd, func(_ *rig, g *placing) { g.l.s.rules = nil }, "own"},
		"ATOMIC_WRITE":              {wire.RCAtomicWrite, none, "own"},
		"FLUSH":                     {wire.RCFlush, none, "own"},
		"SEND":                      {wire.RCSendOnly, none, "own"},
		"SEND, shared in flight":    {wire.RCSendOnly, func(_ *rig, g *placing) { g.l.place, g.l.out = 0, 1 }, "waits"},
		"in a message":              {wire.RCSendOnly, func(_ *rig, g *placing) { g.l.conn.msg, g.l.place = inMessage, placeOwn }, "own"},
	} {
		placed(t, moveRule(1), c.op, func(r *rig, g *placing) {
			c.change(r, g)
			client, own, moved, before := g.l.conn.psns.client, g.l.conn.psns.own, g.l.moved, r.m.stats.Moved
			got := placeOf(g, g.dispatch())
			if got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
			switch got {
			case "shared", "shared, at once":
				rec := g.l.replies.window.find(client)
				if g.l.conn.psns.client != client.Add(1) || g.l.conn.psns.own != own || g.l.place != 0 || g.l.moved != moved+1 || r.m.stats.Moved != before+1 || !g.l.flow.Pinned || rec == nil || rec.place != 0 {
					t.Errorf("%s: next %v, %v; place %d, %d moved, %+v", name, g.l.conn.psns.client, g.l.conn.psns.own, g.l.place, g.l.moved, rec)
				}
			case "own":
				if g.l.conn.psns.client != client.Add(g.span) || g.l.conn.psns.own != own.Add(g.span) || g.l.place != placeOwn || g.f.BTH.PSN != own || g.l.moved != moved {
					t.Errorf("%s: next %v, %v; place %d, PSN %v", name, g.l.conn.psns.client, g.l.conn.psns.own, g.l.place, g.f.BTH.PSN)
				}
			default:
				if g.l.conn.psns.client != client || g.l.conn.psns.own != own || r.m.stats.Moved != before {
					t.Errorf("%s: next %v, %v", name, g.l.conn.psns.client, g.l.conn.psns.own)
				}
			}
			r.m.blocked.list, g.l.out, g.l.replies.window.max = nil, 0, 128
			g.l.conn.acked, g.l.conn.msg = g.l.conn.psns.own, between
		})
	}
}

// A request on the client's connection: what the sequencer keeps of it.
func TestRequestsOnTheClientsConnection(t *testing.T) {
	for name, c := range map[string]struct {
		op           wire.Opcode
		span, length int
		ackReq       bool
		records, ops int
		msg          message
	}{
		"WRITE":              {wire.RCWriteOnly, 1, 8, true, 0, 1, between},
		"WRITE of no bytes":  {wire.RCWriteOnly, 1, 0, true, 0, 0, between},
		"first of a WRITE":   {wire.RCWriteFirst, 1, 24, false, 0, 1, inMessage},
		"last of a WRITE":    {wire.RCWriteLast, 1, 8, true, 0, 0, between},
		"SEND":               {wire.RCSendOnly, 1, 8, true, 0, 0, between},
		"READ":               {wire.RCReadRequest, 4, 8, false, 1, 1, between},
		"READ, unknown span": {wire.RCReadRequest, 0, 8, false, 1, 0, openRead},
		"atomic":             {wire.RCFetchAdd, 1, 8, false, 1, 1, between},
		"FLUSH":              {wire.RCFlush, 1, 8, false, 1, 0, between},
	} {
		placed(t, moveRule(1), c.op, func(r *rig, g *placing) {
			g.l.s.keys.forget(r.server.key)
			g.l.replies.window, g.f.BTH.AckReq, g.l.conn.far, g.l.conn.proof = window{max: 8}, false, 0, proof{}
			g.f.RETH.Length = uint32(c.length)
			if c.op == wire.RCWriteLast {
				g.l.conn.msg, g.l.place = inMessage, placeOwn
			}
			own, client := g.l.conn.psns.own, g.l.conn.psns.client
			if out := g.toOwn(c.span); out != sentOwn {
				t.Errorf("%s: %v", name, out)
			}
			if g.f.BTH.AckReq != c.ackReq || g.l.replies.window.outstanding() != c.records || int(g.l.conn.ops.tail-g.l.conn.ops.head) != c.ops || g.l.conn.msg != c.msg {
				t.Errorf("%s: acknowledgement %v, %d records, %d operations, %v", name, g.f.BTH.AckReq, g.l.replies.window.outstanding(), g.l.conn.ops.tail-g.l.conn.ops.head, g.l.conn.msg)
			}
			if g.f.BTH.PSN != own || g.l.conn.psns.own != own.Add(c.span) || g.l.conn.far != int32(c.span) || g.l.conn.proof.mark != own || g.l.conn.proof.asked != g.l.s.incarnation {
				t.Errorf("%s: PSN %v, next %v, %d in flight, %+v", name, g.f.BTH.PSN, g.l.conn.psns.own, g.l.conn.far, g.l.conn.proof)
			}
			if rec := g.l.replies.window.oldest(); rec != nil && (rec.psn != client || rec.own != own || rec.span != max(1, c.span) || rec.place != placeOwn) {
				t.Errorf("%s: %+v", name, rec)
			}
			if op := g.l.conn.ops.newest(); op != nil {
				end := own.Add(max(1, c.span))
				if c.op == wire.RCWriteFirst {
					end = own.Add(3)
				}
				if op.end != end || !op.prove || op.right != rightOf(c.op) || op.va != r.server.base+64 || op.n != uint32(c.length) || op.rkey != r.server.key {
					t.Errorf("%s: %+v", name, op)
				}
			}
			if c.op == wire.RCWriteFirst && (g.l.conn.rest.first != own || g.l.conn.rest.end != own.Add(3)) {
				t.Errorf("%s: %+v", name, g.l.conn.rest)
			}
			g.l.conn.msg, g.l.conn.acked, g.l.replies.window = between, g.l.conn.psns.own, window{max: 8}
		})
	}
}

// A request on the client's connection must wait while its place is not free; one whose span is not
// known, until nothing is in flight; one with a record, until there is room for it. A key is proven
// once, if it is to be.
func TestRequestsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		op     wire.Opcode
		span   int
		change func(r *rig, g *placing)
		want   outcome
		ops    uint32
	}{
		"free":                    {wire.RCReadRequest, 1, func(*rig, *placing) {}, sentOwn, 0},
		"not proven":              {wire.RCReadRequest, 1, func(r *rig, g *placing) { g.l.s.keys.forget(r.server.key) }, sentOwn, 1},
		"need not be proven":      {wire.RCReadRequest, 1, func(r *rig, g *placing) { g.l.s.keys.forget(r.server.key); g.l.s.proves = false }, sentOwn, 0},
		"no room for a proof":     {wire.RCReadRequest, 1, func(r *rig, g *placing) { g.l.s.keys.forget(r.server.key); g.l.conn.ops.max = 0 }, sentOwn, 0},
		"on a shared one":         {wire.RCReadRequest, 1, func(_ *rig, g *placing) { g.l.place, g.l.out = 0, 1 }, mustWait, 0},
		"unknown span, in flight": {wire.RCReadRequest, 0, func(_ *rig, g *placing) { g.l.place, g.l.conn.acked = placeOwn, g.l.conn.acked.Add(-1) }, mustWait, 0},
		"known span, in flight":   {wire.RCReadRequest, 1, func(_ *rig, g *placing) { g.l.place, g.l.conn.acked = placeOwn, g.l.conn.acked.Add(-1) }, sentOwn, 0},
		"no record":               {wire.RCReadRequest, 1, func(_ *rig, g *placing) { g.l.replies.window.max = 0 }, mustWait, 0},
		"WRITE, no record":        {wire.RCWriteOnly, 1, func(_ *rig, g *placing) { g.l.replies.window.max = 0 }, sentOwn, 0},
	} {
		placed(t, moveRule(1), c.op, func(r *rig, g *placing) {
			c.change(r, g)
			if out := g.toOwn(c.span); out != c.want || g.l.conn.ops.tail-g.l.conn.ops.head != c.ops {
				t.Errorf("%s: %v, %d operations", name, out, g.l.conn.ops.tail-g.l.conn.ops.head)
			}
			g.l.out, g.l.conn.acked, g.l.conn.msg = 0, g.l.conn.psns.own, between
		})
	}
}

// While a CAS that fails waits, it uses up its patience and the share of its host.
func TestWhoMayAwaitAValue(t *testing.T) {
	const patience = time.Millisecond
	for name, c := range map[string]struct {
		change func(g *placing)
		want   bool
	}{
		"arrived":     {func(g *placing) { g.arrived = true }, true},
		"held":        {func(*placing) {}, true},
		"asked again": {func(g *placing) { g.l.m.held.slots[g.l.waits.held.first].hurried = true }, false},
		"nearly over": {func(g *placing) { g.l.m.held.slots[g.l.waits.held.first].at = g.c.Now.Add(-patience) + 1 }, true},
		"over":        {func(g *placing) { g.l.m.held.slots[g.l.waits.held.first].at = g.c.Now.Add(-patience) }, false},
		"half its share": {func(g *placing) {
			for 2*g.l.m.held.hosts[g.l.flow.Port+1].held < g.l.m.held.limit(g.l.flow.Port) {
				g.l.m.held.take(g.l.flow.Port)
			}
			g.arrived = true
		}, false},
		"nearly half its share": {func(g *placing) {
			for 2*(g.l.m.held.hosts[g.l.flow.Port+1].held+1) < g.l.m.held.limit(g.l.flow.Port) {
				g.l.m.held.take(g.l.flow.Port)
			}
			g.arrived = true
		}, true},
	} {
		placed(t, atomicsRule(1), wire.RCCmpSwap, func(r *rig, g *placing) {
			holding(g.c, g.l, 1)
			g.arrived = false
			if c.change(g); g.mayAwait(g.c.Now, patience) != c.want {
				t.Errorf("%s: %v", name, !c.want)
			}
			g.l.giveUpHeld()
		})
	}
}

// The rule under which the atomics of a word are replaced is the first one with that action that
// covers it.
func TestRuleOfAWord(t *testing.T) {
	first, second := &rules.Rule{Action: rules.Atomics, From: 64, To: 128}, &rules.Rule{Action: rules.Atomics, From: 64, To: 256}
	s := &server{rules: []*rules.Rule{{Action: rules.Move}, first, second}}
	for va, want := range map[uint64]*rules.Rule{56: nil, 57: first, 64: first, 120: first, 128: second, 255: second, 256: nil} {
		if got := s.ruleOf(va); got != want {
			t.Errorf("the word at %d: %+v", va, got)
		}
	}
}
