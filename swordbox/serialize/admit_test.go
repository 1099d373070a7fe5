package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// forgedFirst is the first packet of a message of n bytes to a queue pair that does not exist.
func forgedFirst(r *rig, me int, qpn wire.QPN, va uint64, n uint32) []byte {
	f := wire.Frame{Eth: wire.Ethernet{Src: macOf(me), Dst: macOf(serverIP)}}
	f.IPv4 = wire.IPv4{Src: ipOf(me).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
	f.BTH = wire.BTH{Opcode: wire.RCWriteFirst, PKey: wire.DefaultPKey, DestQP: qpn, PSN: 77}
	f.RETH = wire.RETH{VA: va, RKey: 1, Length: n}
	f.Payload = make([]byte, 1024)
	return f.AppendTo(nil)
}

// A host forges the first packet of a message of 4 GB to a queue pair that does not exist. This
// delays no client: the words of a server do not wait for a connection that the server has never
// answered.
func TestForgedLengthStopsNothing(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	for i := range maxStrange { // more words than such a connection may touch
		r.m.words.Get(r.now, atomiccache.Key{VA: r.server.base + 4096 + 8*uint64(i)})
	}
	before := r.m.Stats()
	for i := range 20 {
		r.launch(true, 1, forgedFirst(r, 2, wire.QPN(0xbad00+i), 0, 1<<32-1), false)
		r.launch(true, 1, forgedFirst(r, 2, wire.QPN(0xbad00+i), r.server.base&^0xffff, 1<<20), false)
		conns[0].post(conns[0].faa(64, 1, 0))
		r.run(time.Millisecond)
		conns[0].done(verbs.Success)
	}
	if s := r.m.Stats(); s.Replaced != before.Replaced+20 || s.Unadmitted == 0 {
		t.Errorf("%d of 20 atomics were replaced, %d forged messages refused", s.Replaced-before.Replaced, s.Unadmitted)
	}
}

// The search for words for connections that the server has never answered is rationed,
// independently of the number of words.
func TestScansAreRationed(t *testing.T) {
	r, _ := known(t, rigConfig{clients: 1})
	s := r.m.servers[0]
	for i := range 20_000 {
		r.m.words.Get(r.now, atomiccache.Key{VA: uint64(i) << 20})
	}
	now, admitted := r.now, 0
	for range 1000 {
		now += clock.Time(time.Microsecond)
		if r.m.admits(now, s, 8<<20, 1<<28) { // some words in many pages
			admitted++
		}
	}
	if admitted == 0 || admitted > 10 {
		t.Errorf("%d of 1000 long looks were had within a millisecond", admitted)
	}
	if !r.m.admits(now.Add(time.Second), s, 8<<20, 1<<28) {
		t.Error("a second later there is nothing to be had")
	}
}

// The machine may look at one more word after each microsecond that has passed in full. One that has
// looked at none for long may look at a burst of them, and each word that it looks at counts.
func TestBudgetOfScans(t *testing.T) {
	m := New(Config{})
	s := &server{m: m}
	const at = clock.Time(1_000_000)
	m.scans = scans{at: at}
	m.words.Get(at, atomiccache.Key{VA: 64})
	half := clock.Time(scanEach / 2)
	for i, want := range []bool{false, false, true} {
		if got := m.admits(at+clock.Time(i)*half, s, 64, 8); got != want {
			t.Errorf("%d half microseconds later: %v", i, got)
		}
	}
	// It has looked at a page and a word.
	if m.scans.left != 1-2 || m.scans.at != at+2*half || m.stats.Unadmitted != 2 {
		t.Errorf("%+v, %d refused", m.scans, m.stats.Unadmitted)
	}
	now := at + 2*half + 4*clock.Time(scanEach)
	if !m.admits(now, s, 4096, 8) || m.scans.left != -1+4 {
		t.Errorf("%+v after 4 µs", m.scans)
	}
	now = now.Add(time.Hour)
	if !m.admits(now, s, 4096, 8) || m.scans.left != scanBurst {
		t.Errorf("%+v after an hour, want %d", m.scans, scanBurst)
	}
}

// Without budget, a WRITE of an unknown connection that changes memory of a server whose words count
// is dropped, also if the rules of the server have gone; no other packet is.
func TestUntrackedWritesNeedABudget(t *testing.T) {
	r, _ := known(t, rigConfig{clients: 1})
	m, s := r.m, r.m.servers[0]
	for name, c := range map[string]struct {
		change func(p *pipeline.Parsed)
		want   pipeline.Action
	}{
		"WRITE":              {func(*pipeline.Parsed) {}, pipeline.ActDrop},
		"rules have gone":    {func(*pipeline.Parsed) { delete(m.byAddr, s.addr); m.leaving[s.addr] = s }, pipeline.ActDrop},
		"no server":          {func(p *pipeline.Parsed) { p.IPv4.Dst = ipOf(1).As4() }, pipeline.ActForward},
		"words do not count": {func(*pipeline.Parsed) { s.watch = false }, pipeline.ActForward},
		"READ":               {func(p *pipeline.Parsed) { p.BTH.Opcode = wire.RCReadRequest }, pipeline.ActForward},
		"no bytes":           {func(p *pipeline.Parsed) { p.RETH.Length = 0 }, pipeline.ActForward},
		"budget":             {func(*pipeline.Parsed) { m.scans.left = 10 }, pipeline.ActForward},
	} {
		p := new(pipeline.Parsed)
		p.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4()}
		p.BTH = wire.BTH{Opcode: wire.RCWriteOnly, DestQP: 0x99}
		p.RETH = wire.RETH{VA: r.server.base + 8192, Length: 8}
		r.do(func(ctx *pipeline.Ctx) {
			m.byAddr[s.addr], s.watch, m.scans = s, true, scans{at: ctx.Now}
			delete(m.leaving, s.addr)
			before := m.stats.Unadmitted
			c.change(p)
			if v := m.Untracked(ctx, p); v.Action != c.want || (v.Reason == ReasonBusy) != (c.want == pipeline.ActDrop) {
				t.Errorf("%s: %+v", name, v)
			}
			if n := m.stats.Unadmitted - before; (n == 1) != (c.want == pipeline.ActDrop) {
				t.Errorf("%s: %d refused", name, n)
			}
		})
	}
}
