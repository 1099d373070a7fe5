package conntrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The defaults are those that the fields' comments say; what is set stays, within its bound.
func TestDefaults(t *testing.T) {
	c := Config{}.withDefaults()
	if c.Connections != 4096 || c.Learning != 4096 || c.Idle != 10*time.Minute || c.Quarantine != 30*time.Second || c.Settle != 30*time.Second {
		t.Errorf("%+v", c)
	}
	c = Config{Connections: 1, Learning: 1, Idle: 1, Quarantine: 1, Settle: -1}.withDefaults()
	if c.Connections != 1 || c.Learning != 1 || c.Idle != 1 || c.Quarantine != 1 || c.Settle != -1 {
		t.Errorf("%+v", c)
	}
	if c = (Config{Connections: 10, Learning: 100}).withDefaults(); c.Learning != 20 {
		t.Errorf("%d flows learn, want twice the connections", c.Learning)
	}
	if c = (Config{Connections: -1, Learning: -1}).withDefaults(); c.Connections != 4096 || c.Learning != 4096 {
		t.Errorf("%+v", c)
	}
}

// A REJ ends a connection whose handshake is not complete, and none that one side uses.
func TestRejectOfAConnectionInUse(t *testing.T) {
	for _, used := range []bool{false, true} {
		for _, byClient := range []bool{false, true} {
			r := newRig(t, nil)
			toB, toA := r.connect()
			if used {
				fl := toB
				if byClient {
					fl = toA
				}
				fl.State.on(evPacket)
				if fl.State == Connecting {
					fl.State = Open
				}
			}
			r.see(datagram(2, 1, reject(0xb1, 0xa1)))
			if gone := r.flow(1, 2, 0x22) == nil; gone == used {
				t.Errorf("used %v, by the client %v: ended %v", used, byClient, gone)
			}
		}
	}
	r := newRig(t, nil)
	r.see(datagram(1, 2, reqFrom(1, 2, 0xa1, 0x11, 500)))
	r.see(datagram(2, 1, reject(0, 0xa1)))
	r.see(datagram(2, 1, &mad.REP{LocalID: 0xb1, RemoteID: 0xa1, QPN: 0x22, PSN: 900}))
	if r.flow(1, 2, 0x22) != nil {
		t.Error("a REP behind the REJ makes a connection")
	}
}

// Only a response to the open READ, or to a later request, shows how many PSNs the READ takes. A
// response moves Expected forward, never back.
func TestSyncTo(t *testing.T) {
	for name, c := range map[string]struct {
		psn      wire.PSN
		op       wire.Opcode
		payload  int
		loose    bool // high is an upper bound
		high     wire.PSN
		expected wire.PSN
	}{
		"last of the READ":  {103, wire.RCReadResponseLast, 8, false, 104, 104},
		"first of the READ": {100, wire.RCReadResponseOnly, 8, false, 101, 101},
		"an earlier READ":   {99, wire.RCReadResponseOnly, 8, true, 120, 100},
		"an ATOMIC_WRITE":   {103, wire.RCReadResponseOnly, 0, true, 120, 104},
		"an ACK":            {103, wire.RCAck, 0, true, 120, 104},
	} {
		q := Sequence{Expected: 100, high: 120, loose: readOf{100, 5000}, seen: moreRequests}
		q.syncTo(c.psn, &wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: c.op}, Payload: make([]byte, c.payload)}})
		if loose := q.loose.length != 0; loose != c.loose || q.high != c.high || q.Expected != c.expected || !q.Synced() {
			t.Errorf("%s: %+v", name, q)
		}
	}
	q := Sequence{Expected: 100, high: 100}
	if q.syncTo(50, &wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadResponseOnly}, Payload: make([]byte, 8)}}); q.high != 100 || q.Expected != 100 {
		t.Errorf("without an open READ: %+v", q)
	}
}

// States shows the flows in use, and no others.
func TestStatesInUse(t *testing.T) {
	r := newRig(t, nil)
	toB, toA := r.connect()
	list := func() (ids []uint32) {
		r.States(func(table string, entry uint32, state string) {
			if table != "flow" || state != Connecting.String() {
				t.Errorf("%s %d is %s", table, entry, state)
			}
			ids = append(ids, entry)
		})
		return ids
	}
	if ids := list(); len(ids) != 2 || ids[0] == ids[1] || ids[0] != toB.ID && ids[0] != toA.ID {
		t.Errorf("flows %v", ids)
	}
	r.drop(toB)
	if ids := list(); len(ids) != 0 {
		t.Errorf("flows %v", ids)
	}
}

// The table notices that a queue pair is reused by a request after a silence whose PSN is far
// from the expected one. It does not suspect this after a PSN nearby, while the peer still sends,
// or after a response.
func TestReuseIsSuspectedBehindASilence(t *testing.T) {
	for name, c := range map[string]struct {
		psn    wire.PSN
		silent time.Duration
		want   bool
	}{
		"far, silent":       {100000, time.Minute, true},
		"behind, silent":    {50, time.Minute, true},
		"expected, silent":  {103, time.Minute, false},
		"far, while active": {100000, time.Second, false},
	} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, 0x11, 0x22, 100)
		r.now = r.now.Add(c.silent)
		f := packet(1, 2, 0x22, wire.RCWriteOnly, c.psn)
		r.see(f)
		if reused := r.Stats().Reused == 1; reused != c.want || (r.flow(1, 2, 0x22) == flow) == c.want {
			t.Errorf("%s: reused %v", name, reused)
		}
	}
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	flow.Last = 0 // only the client was silent
	if r.reuse(r.now, flow, packet(1, 2, 0x22, wire.RCWriteOnly, 100000)); r.Stats().Reused != 0 {
		t.Error("the server still answers")
	}
	r.now = r.now.Add(time.Minute)
	if r.reuse(r.now, flow, packet(1, 2, 0x22, wire.RCAck, 100000)); r.Stats().Reused != 0 {
		t.Error("a response tells nothing of the requester")
	}
	flow.Pinned = true
	if why := r.reuse(r.now, flow, packet(1, 2, 0x22, wire.RCWriteOnly, 100000)); why != Quarantined || r.flow(1, 2, 0x22) != flow {
		t.Errorf("a pinned flow: %v", why)
	}
}

// A READ of unknown span overtakes nothing: a request behind it that the table has seen before, or
// that it sees before the READ comes again, still counts when the span becomes known.
func TestReadOfUnknownSpanKeepsLaterRequests(t *testing.T) {
	type request struct {
		psn  wire.PSN
		span int
		n    uint32
	}
	plain := func(psn wire.PSN) request { return request{psn, 1, 8} }
	read := func(psn wire.PSN) request { return request{psn, 0, 792} }
	for _, c := range []struct {
		name     string
		requests []request
		answered wire.PSN // the last response to a READ
		high     wire.PSN
	}{
		{"alone", []request{plain(10), read(11)}, 12, 13},
		{"a later request was first", []request{plain(10), plain(12), read(11)}, 11, 13},
		{"and again", []request{plain(10), plain(12), read(11), plain(12), read(11)}, 11, 13},
		{"two later ones, of which one comes again", []request{plain(10), read(11), plain(12), plain(13), read(11), plain(12)}, 11, 14},
		{"a later READ", []request{plain(10), read(12), read(11)}, 12, 13},
		{"two READs come again behind later requests", []request{read(10), read(12), plain(13), plain(14), read(10), read(12)}, 12, 15},
	} {
		for _, base := range []wire.PSN{0, 0xfffff4, 0x7fffff} {
			var q Sequence
			for _, r := range c.requests {
				q.reach(base.Add(int(r.psn)), r.span, r.n)
			}
			f := wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadResponseOnly}, Payload: make([]byte, 792)}}
			q.syncTo(base.Add(int(c.answered)), &f)
			if got := int(wire.Diff(q.high, base)); got != int(c.high) || q.loose.length != 0 {
				t.Errorf("%s, from %#x: high %d, want %d (loose %d)", c.name, base, got, c.high, q.loose.length)
			}
		}
	}
}
