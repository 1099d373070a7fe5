package switchconn_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

var memory = switchconn.Target{Service: "memory", Depth: 4}

// A connection of the switch carries requests to the memory that clients use, over both families,
// and the server's queue pair is destroyed when the connection is not wanted any more.
func TestDialedConnectionWorks(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		w := newWorld(t, 1)
		w.serve()
		k := w.key(0)
		if v6 {
			k.Server = w.Spec.Hosts[0].IPv6
		}
		w.want(k, memory)
		w.settle(10 * time.Millisecond)
		s := w.upNow(k)
		if s.MTU != 4096 || s.Depth != 4 || s.Generation != 1 || s.Adopted {
			t.Errorf("%+v", s)
		}
		mr := w.region
		write := wire.Frame{Packet: wire.Packet{
			BTH:  wire.BTH{Opcode: wire.RCWriteOnly, PSN: s.SendPSN, AckReq: true},
			RETH: wire.RETH{VA: mr.Addr(), RKey: mr.RKey(), Length: 8}, Payload: []byte("12345678"),
		}}
		if a := w.send(s, write); a == nil || a.BTH.Opcode != wire.RCAck || a.AETH.Syndrome != wire.AckNoCredits && a.AETH.Syndrome>>5 != 0 {
			t.Errorf("WRITE: %v", a)
		}
		cas := wire.Frame{Packet: wire.Packet{
			BTH:       wire.BTH{Opcode: wire.RCFetchAdd, PSN: s.SendPSN.Next()},
			AtomicETH: wire.AtomicETH{VA: mr.Addr(), RKey: mr.RKey(), SwapOrAdd: 1},
		}}
		if a := w.send(s, cas); a == nil || a.BTH.Opcode != wire.RCAtomicAck || a.AtomicAck != 0x3837363534333231 {
			t.Errorf("FETCH_ADD: %v", a)
		}
		if got, err := mr.Load64(0); err != nil || got != 0x3837363534333232 {
			t.Errorf("memory has %#x, %v", got, err)
		}
		w.step(func(c *pipeline.Ctx) { w.p.d.Unwant(c, k) })
		w.settle(2 * time.Second)
		if live, ended := w.serverConns(); live+ended != 0 || len(w.p.d.List()) != 0 || !w.p.d.Clear(k.Server) {
			t.Errorf("%d live, %d ended at the server; %v", live, ended, w.describe())
		}
		if a := w.send(s, write); a != nil {
			t.Errorf("the server still answers: %v", a)
		}
	}
}

// On a link that loses, duplicates and reorders, every connection comes up, is made again when it
// has failed, and ends at both sides, for every seed.
func TestBadLink(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 5
	}
	const shards = 6
	var retries uint64
	for seed := 1; seed <= seeds; seed++ {
		w := newWorld(t, uint64(seed))
		w.serve()
		w.Host("ms0").SetFaults([]fault.Rule{
			{Link: "ms0", Kind: fault.Loss, Probability: 0.2},
			{Link: "ms0", Kind: fault.Duplicate, Probability: 0.15},
			{Link: "ms0", Kind: fault.Reorder, Probability: 0.15, Delay: time.Millisecond},
		})
		for i := range shards {
			w.want(w.key(i), memory)
		}
		for round := range 4 {
			w.settle(20 * time.Second)
			var qpns []wire.QPN
			for i := range shards {
				s := w.upNow(w.key(i))
				for _, n := range qpns {
					if n == s.OwnQPN {
						t.Fatalf("seed %d: queue pair %#x twice", seed, uint32(n))
					}
				}
				qpns = append(qpns, s.OwnQPN)
				if i%2 == round%2 {
					w.step(func(c *pipeline.Ctx) {
						w.p.d.Again(c, s.Key, s.Generation)
						w.p.d.Again(c, s.Key, s.Generation) // the same event twice
					})
				}
			}
			if live, _ := w.serverConns(); live > shards {
				t.Fatalf("seed %d: the server has %d connections, %d are wanted", seed, live, shards)
			}
		}
		w.step(w.p.d.Close)
		w.settle(2 * time.Minute)
		if live, ended := w.serverConns(); live+ended != 0 || len(w.p.d.List()) != 0 || len(w.p.up) != 0 || !w.p.d.Clear(w.key(0).Server) {
			t.Fatalf("seed %d: %d live, %d ended at the server; %v", seed, live, ended, w.describe())
		}
		if rec, err := journal.Open(w.rec); err != nil || len(rec.Former().Conns) != 0 {
			t.Errorf("seed %d: recorded are %+v, %v", seed, rec.Former().Conns, err)
		}
		st := w.p.d.Stats()
		if st.Established < 2*shards || st.Lost == 0 || st.Ended < st.Lost {
			t.Errorf("seed %d: %+v", seed, st)
		}
		retries += st.Retries
	}
	if retries < uint64(seeds) {
		t.Errorf("%d datagrams sent again in %d seeds", retries, seeds)
	}
}

// The switch crashes and restarts: the former connections at the server are ended, and new ones are
// made.
func TestFormerIncarnationIsEnded(t *testing.T) {
	w := newWorld(t, 3)
	w.serve()
	k := w.key(0)
	w.want(k, memory)
	w.settle(10 * time.Millisecond)
	s := w.upNow(k)
	w.CrashSwitch()
	w.settle(10 * time.Millisecond)
	w.Host("ms0").SetLink(false) // the server cannot be reached yet
	if err := w.RestartSwitch(); err != nil {
		t.Fatal(err)
	}
	w.settle(10 * time.Second)
	if w.p.d.Clear(k.Server) {
		t.Error("the server is clear though it was not told")
	}
	w.Host("ms0").SetLink(true)
	w.settle(3 * time.Second)
	if !w.p.d.Clear(k.Server) || w.p.d.Stats().Ended != 1 {
		t.Errorf("not ended: %+v", w.p.d.Stats())
	}
	if live, _ := w.serverConns(); live != 0 {
		t.Errorf("%d connections at the server", live)
	}
	// A request of the first incarnation that was in flight all the time arrives too late.
	mr := w.region
	late := wire.Frame{Packet: wire.Packet{
		BTH:  wire.BTH{Opcode: wire.RCWriteOnly, PSN: s.SendPSN, AckReq: true},
		RETH: wire.RETH{VA: mr.Addr(), RKey: mr.RKey(), Length: 8}, Payload: []byte("too late"),
	}}
	if a := w.send(s, late); a != nil {
		t.Errorf("answered: %v", a)
	}
	if got, err := mr.Load64(0); got != 0 || err != nil {
		t.Errorf("a request of a former incarnation was executed: %#x, %v", got, err)
	}
	w.want(k, memory)
	w.settle(10 * time.Millisecond)
	if again := w.upNow(k); again.OwnQPN == s.OwnQPN || again.ServerQPN == s.ServerQPN {
		t.Errorf("%+v after %+v", again, s)
	}
}

// The service is not there at first. The pause between attempts grows up to its bound, and the
// reason is reported.
func TestBackOff(t *testing.T) {
	w := newWorld(t, 4)
	k := w.key(0)
	w.want(k, memory)
	w.settle(10 * time.Second)
	info := w.p.d.List()[0]
	n := w.p.d.Stats().Dialed
	if info.State != switchconn.Waiting || !strings.Contains(info.Error, `no service "memory" there`) || n < 12 || n > 20 {
		t.Errorf("%d attempts, %+v", n, info)
	}
	w.serve()
	w.settle(2 * time.Second)
	if info := w.p.d.List()[0]; info.State != switchconn.Up || info.Attempts != 0 || info.Error != "" {
		t.Errorf("%+v", info)
	}
	// A connection that fails soon after it came up is made again after a pause.
	for range 1000 {
		if s, ok := w.p.up[k]; ok {
			w.step(func(c *pipeline.Ctx) { w.p.d.Again(c, k, s.Generation) })
		}
		w.settle(time.Millisecond)
	}
	if n := w.p.d.Stats().Established; n > 10 {
		t.Errorf("%d connections in a second", n)
	}
}

// The server crashes and restarts: the connection is made again as soon as the service is there.
func TestServerRestart(t *testing.T) {
	w := newWorld(t, 5)
	w.serve()
	k := w.key(0)
	w.want(k, memory)
	w.settle(10 * time.Millisecond)
	s := w.upNow(k)
	w.Host("ms0").Crash()
	w.step(func(c *pipeline.Ctx) { w.p.d.Again(c, k, s.Generation) }) // the user of the connection reports the failure
	w.settle(time.Second)
	if i := w.p.d.List()[0]; i.State != switchconn.Ending || w.p.d.Clear(k.Server) {
		t.Errorf("%+v", i)
	}
	w.Host("ms0").Restart()
	w.serve()
	w.settle(5 * time.Second)
	if got := w.upNow(k); got.Generation <= s.Generation {
		t.Errorf("%+v after %+v", got, s)
	}
}

// The server ends the connection: EventDown is reported, and another connection is made.
func TestServerEndsConnection(t *testing.T) {
	w := newWorld(t, 6)
	h := w.Host("ms0")
	var qp verbs.QP
	accepted := 0
	h.Go("server", true, func(ctx verbs.Context) {
		m := h.ConnManager(ctx)
		l, err := m.Listen("18515")
		for err == nil {
			var req rdmacm.Request
			if req, err = l.Accept(clock.Never); err != nil {
				break
			}
			pd, _ := ctx.AllocPD()
			cq, _ := ctx.CreateCQ(4)
			qp, _ = pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
			// For a port number the initiator chooses the path MTU; this server rejects one that is
			// too large.
			if aerr := req.Accept(qp, rdmacm.Params{PathMTU: 1024, RdAtomic: 2}, nil, ctx.Runtime().Now().Add(time.Second)); aerr == nil {
				accepted++
			}
		}
		t.Log(err)
	})
	k := w.key(0)
	w.want(k, switchconn.Target{Service: "18515", Depth: 16})
	w.settle(500 * time.Millisecond)
	s := w.upNow(k)
	if s.MTU != 1024 || s.Depth != 2 {
		t.Errorf("%+v", s)
	}
	if err := qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	w.settle(500 * time.Millisecond)
	if again := w.upNow(k); again.Generation == s.Generation || w.p.d.Stats().Lost != 1 {
		t.Errorf("%+v after %+v, %+v", again, s, w.p.d.Stats())
	}
	var kinds []string
	for _, e := range w.p.events {
		kinds = append(kinds, fmt.Sprintf("%d %d %s", e.Kind, e.Shared.Generation, e.Reason))
	}
	if want := "1 2 |2 2 the server has ended it|1 3 "; strings.Join(kinds, "|") != want {
		t.Errorf("events %q, want %q", strings.Join(kinds, "|"), want)
	}
}

// The Dialer knows of an adopted connection only the arguments of Adopt, and does not end it.
func TestAdopt(t *testing.T) {
	w := newWorld(t, 7)
	s := switchconn.Shared{Key: w.key(0), ServerQPN: 0x99, OwnQPN: 0x77, SendPSN: 5, RecvPSN: 6, MTU: 1024, Depth: 1}
	for change, want := range map[string]func(*switchconn.Shared){
		"want 24 bits":   func(s *switchconn.Shared) { s.SendPSN = 1 << 24 },
		"want QPNs from": func(s *switchconn.Shared) { s.OwnQPN = 1 },
		"path MTU 1500":  func(s *switchconn.Shared) { s.MTU = 1500 },
		"is not known":   func(s *switchconn.Shared) { s.Server = netip.MustParseAddr("10.9.9.9") },
		"no server":      func(s *switchconn.Shared) { s.Server = netip.Addr{} },
		"depth":          func(s *switchconn.Shared) { s.Depth = 256 },
	} {
		bad := s
		want(&bad)
		if err := w.p.d.Adopt(bad); err == nil || !strings.Contains(err.Error(), change) {
			t.Errorf("%v, want %q", err, change)
		}
	}
	if err := w.p.d.Adopt(s); err != nil {
		t.Fatal(err)
	}
	w.tick()
	got := w.upNow(s.Key)
	h := &w.Spec.Hosts[0]
	if !got.Adopted || got.To.Eth.Dst != h.MAC || got.To.DstAddr() != h.IPv4 || got.To.SrcAddr() != w.Spec.Switch.IPv4 || got.To.BTH.DestQP != 0x99 {
		t.Errorf("%+v", got)
	}
	if err := w.p.d.Adopt(s); err == nil || !strings.Contains(err.Error(), "remove it first") {
		t.Error(err)
	}
	s.Shard = 1
	if err := w.p.d.Adopt(s); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	s.OwnQPN, s.Server, s.To.Eth.Dst = 0x78, netip.MustParseAddr("10.9.9.9"), wire.MAC{2, 1}
	if err := w.p.d.Adopt(s); err != nil || len(w.p.d.List()) != 2 {
		t.Error(err)
	}
	w.tick()
	far := w.upNow(s.Key) // an address that is not a host of the rack, but that the switch can reach
	if far.To.Eth.Dst != s.To.Eth.Dst || far.To.Eth.Src != w.Spec.Switch.MAC || far.To.DstAddr() != s.Server || far.To.SrcAddr() != w.Spec.Switch.IPv4 ||
		far.To.BTH.PKey != wire.DefaultPKey || far.To.BTH.DestQP != s.ServerQPN {
		t.Errorf("%+v", far)
	}
	w.step(func(c *pipeline.Ctx) { w.p.d.Again(c, got.Key, got.Generation) })
	w.tick()
	if _, ok := w.p.up[got.Key]; ok || len(w.p.d.List()) != 1 || !w.p.d.Clear(got.Server) {
		t.Errorf("%v", w.describe())
	}
	if live, ended := w.serverConns(); live+ended != 0 {
		t.Error("the server was asked")
	}
}

// A connection that cannot be recorded, and so could not be ended after a crash, is not made.
func TestJournalFull(t *testing.T) {
	w := newWorld(t, 9)
	w.serve()
	rec, err := journal.Open(w.rec)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = rec.Dial(journal.Conn{Server: netip.MustParseAddr("10.9.9.9")}) // to a server that cannot be reached
	}
	if err := w.RestartSwitch(); err != nil {
		t.Fatal(err)
	}
	w.want(w.key(0), memory)
	w.settle(3 * time.Second)
	i := w.p.d.List()[0]
	if i.State == switchconn.Up || !strings.Contains(i.Error, "flows and connections is full") || w.p.d.Stats().Failed == 0 {
		t.Errorf("%+v", i)
	}
	if live, _ := w.serverConns(); live != 0 {
		t.Errorf("the server has %d connections", live)
	}
	// The servers do not answer, and after maxTransit no packet of them can be in flight: there is
	// room again.
	w.settle(3 * time.Minute)
	w.upNow(w.key(0))
	if st := w.p.d.Stats(); st.Abandoned != journal.MaxConns || !w.p.d.AllClear() {
		t.Errorf("%+v", st)
	}
}

// Packets that are not datagrams of the connection manager are not consumed, and malformed ones do
// no harm.
func TestForeignPackets(t *testing.T) {
	w := newWorld(t, 8)
	f := wire.Frame{Eth: wire.Ethernet{Src: wire.MAC{2}, Dst: w.Spec.Switch.MAC}}
	f.IPv4 = wire.IPv4{TTL: 64, Src: w.Spec.Hosts[1].IPv4.As4(), Dst: w.Spec.Switch.IPv4.As4()}
	f.BTH = wire.BTH{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: 1}
	f.DETH = wire.DETH{QKey: 0x80010000, SrcQP: 1}
	for name, tc := range map[string]struct {
		change func(*wire.Frame)
		want   bool
	}{
		"rubbish": {func(f *wire.Frame) { f.Payload = bytes.Repeat([]byte{7}, 256) }, true},
		"short":   {func(f *wire.Frame) {}, true},
		"key":     {func(f *wire.Frame) { f.DETH.QKey = 1 }, false},
		"source":  {func(f *wire.Frame) { f.DETH.SrcQP = 2 }, false},
		"to":      {func(f *wire.Frame) { f.BTH.DestQP = 2 }, false},
		"opcode":  {func(f *wire.Frame) { f.BTH.Opcode = wire.RCSendOnly }, false},
		"P_Key":   {func(f *wire.Frame) { f.BTH.PKey = 0x8001 }, false},
		"address": {func(f *wire.Frame) { f.IPv4.Dst = [4]byte{10, 0, 0, 1} }, false},
	} {
		g := f
		tc.change(&g)
		w.step(func(c *pipeline.Ctx) {
			if got := w.p.d.Packet(c, &g); got != tc.want {
				t.Errorf("%s: taken %v, want %v", name, got, tc.want)
			}
		})
	}
}

// A connection to another service than the rule now asks for ends, and the next attempt is one to
// the new service; so does an attempt. A connection to the same service, or an adopted one, stays.
func TestServiceChanges(t *testing.T) {
	w := newWorld(t, 13)
	w.serve()
	k := w.key(0)
	redirect := func(k switchconn.Key, target switchconn.Target) (ended bool) {
		w.want(k, target)
		w.step(func(c *pipeline.Ctx) { ended = w.p.d.Redirect(c, k) })
		w.tick()
		return ended
	}
	w.want(k, memory)
	w.settle(2 * time.Second)
	first := w.upNow(k)
	deeper := memory
	deeper.Depth++
	if redirect(k, deeper) || w.p.d.Redirect(nil, w.key(7)) || w.upNow(k).Generation != first.Generation {
		t.Errorf("a connection to the same service ends: %v", w.describe())
	}
	other := memory
	other.Service = "other"
	if !redirect(k, other) || w.p.up[k].Generation != 0 {
		t.Errorf("a connection to another service stays: %v", w.describe())
	}
	w.settle(2 * time.Second)
	if list := w.p.d.List(); len(list) != 1 || list[0].Attempts == 0 {
		t.Fatalf("nothing was asked of the new service: %v", w.describe())
	}
	for w.p.d.List()[0].State != switchconn.Dialing {
		w.settle(time.Millisecond)
	}
	if !redirect(k, memory) {
		t.Errorf("an attempt goes on: %v", w.describe())
	}
	w.settle(2 * time.Second)
	if w.upNow(k).Generation == first.Generation {
		t.Errorf("%v", w.describe())
	}
	adopted := switchconn.Shared{Key: w.key(1), ServerQPN: 0x99, OwnQPN: 0x77, SendPSN: 5, RecvPSN: 6, MTU: 1024, Depth: 1}
	if err := w.p.d.Adopt(adopted); err != nil {
		t.Fatal(err)
	}
	w.tick()
	if redirect(adopted.Key, other) || !w.upNow(adopted.Key).Adopted {
		t.Error("an adopted connection ends")
	}
}

// A connection is made again for a rule that asks for another one, when its user cannot use it.
// Otherwise it stays, and so does one that an operator has adopted.
func TestRenew(t *testing.T) {
	w := newWorld(t, 12)
	w.serve()
	k := w.key(0)
	w.want(k, memory)
	w.settle(2 * time.Second)
	first := w.upNow(k)
	renew := func(k switchconn.Key) {
		w.step(func(c *pipeline.Ctx) { w.p.d.Renew(c, k) })
		w.tick()
	}
	if renew(k); w.upNow(k).Generation != first.Generation {
		t.Error("a connection as the rule wants it is made again")
	}
	renew(w.key(7)) // there is none
	other := memory
	other.Depth++
	w.want(k, other)
	if w.upNow(k).Generation != first.Generation {
		t.Error("a connection that is in use is made again")
	}
	if renew(k); w.p.up[k].Generation == first.Generation {
		t.Error("a connection that the rule does not want any more stays")
	}
	w.settle(2 * time.Second)
	second := w.upNow(k)
	if second.Generation == first.Generation || len(w.p.d.List()) != 1 {
		t.Errorf("generation %d after %d: %v", second.Generation, first.Generation, w.describe())
	}
	adopted := switchconn.Shared{Key: w.key(1), ServerQPN: 0x99, OwnQPN: 0x77, SendPSN: 5, RecvPSN: 6, MTU: 1024, Depth: 1}
	if err := w.p.d.Adopt(adopted); err != nil {
		t.Fatal(err)
	}
	w.tick()
	w.want(adopted.Key, memory)
	if renew(adopted.Key); !w.upNow(adopted.Key).Adopted {
		t.Error("an adopted connection is made again")
	}
}
