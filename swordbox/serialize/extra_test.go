package serialize

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// known returns a rig whose word at 64 is known, and a connection of each client.
func known(t *testing.T, rc rigConfig) (*rig, []*conn) {
	t.Helper()
	if rc.rules == nil {
		rc.rules = atomicsRule(1)
	}
	r := newRig(t, rc)
	var conns []*conn
	for i := range rc.clients {
		conns = append(conns, r.connect(i))
	}
	for range 3 {
		for _, c := range conns {
			c.post(c.faa(64, 1, 0))
			r.run(time.Millisecond)
			c.done(verbs.Success)
		}
	}
	return r, conns
}

// A congestion notification for the shared connection goes to every client with requests on it, at
// most one in 50 µs each (hole 38).
func TestCongestionIsPassedOn(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 3})
	var cnps [3]int
	hold := true
	r.tap = func(up bool, port int, data []byte) bool {
		f := parse(data)
		if !up && port < 3 && f.BTH.Opcode == wire.CNP {
			if f.BTH.DestQP != conns[port].qp.Num() || f.SrcAddr() != ipOf(serverIP) {
				t.Errorf("CNP %v", &f)
			}
			cnps[port]++
			return false
		}
		return !hold || up || port != r.server.port
	}
	for _, c := range conns[:2] {
		c.post(c.faa(64, 1, 0), c.faa(64, 1, 8))
	}
	r.settle()
	link := r.m.servers[0].links[0]
	cnp := func() {
		f := wire.Frame{Eth: wire.Ethernet{Src: macOf(serverIP), Dst: macOf(switchIP)}}
		f.IPv4 = wire.IPv4{Src: ipOf(serverIP).As4(), Dst: ipOf(switchIP).As4(), TTL: 64}
		f.BTH = wire.BTH{Opcode: wire.CNP, DestQP: link.ownQPN, BECN: true}
		r.launch(true, r.server.port, f.AppendTo(nil), false)
		r.settle()
	}
	cnp()
	cnp()
	if cnps != [3]int{1, 1, 0} {
		t.Errorf("%v notifications", cnps)
	}
	r.run(60 * time.Microsecond)
	cnp()
	if cnps != [3]int{2, 2, 0} || r.m.Stats().CNPs != 4 {
		t.Errorf("%v notifications after 60 µs", cnps)
	}
	hold = false
	r.run(20 * time.Millisecond)
	for _, c := range conns[:2] {
		c.done(verbs.Success, verbs.Success)
	}
}

// The rules are removed while requests are in flight on the shared connection. The requests end
// there. Then the shared connection is closed, which does not affect them.
func TestRulesGoWhileRequestsAreInFlight(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	c.post(c.faa(64, 1, 0), c.faa(64, 1, 8))
	r.m.SetRules(nil)
	r.settle()
	c.done(verbs.Success, verbs.Success)
	if got := c.n.word(8); got != 4 {
		t.Errorf("was %d, want 4", got)
	}
	r.do(func(ctx *pipeline.Ctx) { r.m.Detach(ctx, switchconn.Key{Server: ipOf(serverIP)}, r.gen) })
	if len(r.m.byQPN) != 0 {
		t.Error("the connection is still there")
	}
	c.post(c.faa(64, 1, 0))
	r.settle()
	c.done(verbs.Success)
	if r.server.word(64) != 6 {
		t.Errorf("the word is %d", r.server.word(64))
	}
}

// A rule demands another number of shared connections while requests are in flight. The number
// changes when these have ended.
func TestNumberOfSharedConnectionsChanges(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	c.post(c.faa(64, 1, 0))
	set, err := rules.NewSet(atomicsRule(3))
	if err != nil {
		t.Fatal(err)
	}
	r.step(r.now + hop) // the request has reached the switch
	r.m.SetRules(set)
	if n := r.m.servers[0].shards; n != 1 {
		t.Errorf("%d shards while a request is in flight", n)
	}
	r.settle()
	c.done(verbs.Success)
	for shard := 1; shard < 3; shard++ {
		r.do(func(ctx *pipeline.Ctx) { r.attach(ctx, shard, 16) })
	}
	if n := len(r.m.servers[0].links); n != 3 {
		t.Errorf("%d connections", n)
	}
	for i := range 20 {
		c.post(c.faa(64+8*(i%5), 1, 0))
		r.run(time.Millisecond)
		c.done(verbs.Success)
	}
	if got := r.server.word(64); got != 8 {
		t.Errorf("the word is %d", got)
	}
}

// A packet to one of the switch's queue pairs is dropped and counted if it does not come from the
// peer of that queue pair, or if the queue pair does not exist.
func TestStrangers(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	link := r.m.servers[0].links[0]
	for _, qpn := range []wire.QPN{link.ownQPN, link.ownQPN + 77} {
		f := wire.Frame{Eth: wire.Ethernet{Src: macOf(2), Dst: macOf(switchIP)}}
		f.IPv4 = wire.IPv4{Src: ipOf(2).As4(), Dst: ipOf(switchIP).As4(), TTL: 64}
		f.BTH = wire.BTH{Opcode: wire.RCAck, DestQP: qpn, PSN: link.conn.Requests.NextPSN()}
		f.AETH.Syndrome = wire.NakRemoteOp
		r.launch(true, 1, f.AppendTo(nil), false)
	}
	r.settle()
	if s := r.m.Stats(); s.Strangers != 2 || s.LinkFailures != 0 {
		t.Errorf("%+v", s)
	}
	conns[0].post(conns[0].faa(64, 1, 0))
	r.settle()
	conns[0].done(verbs.Success)
}

// A request without a tracked flow (the table was full) must not change a known word while a
// request for that word is in flight; later it may, and the word is not known any more.
func TestBypassWaitsForTheWord(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	var verdict []pipeline.Action
	stray := func() {
		f := wire.Frame{Eth: wire.Ethernet{Src: macOf(1), Dst: macOf(serverIP)}}
		f.IPv4 = wire.IPv4{Src: ipOf(1).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
		f.BTH = wire.BTH{Opcode: wire.UCWriteOnly, DestQP: 0x99}
		f.RETH = wire.RETH{VA: r.server.base + 60, RKey: r.server.key, Length: 8}
		f.Payload = make([]byte, 8)
		r.do(func(ctx *pipeline.Ctx) {
			v := r.m.Bypass(ctx, nil, &pipeline.Parsed{Frame: f})
			verdict = append(verdict, v.Action)
		})
	}
	c.post(c.faa(64, 1, 0))
	r.step(r.now + hop) // the request has reached the switch
	stray()
	r.settle()
	stray()
	c.done(verbs.Success)
	if len(verdict) != 2 || verdict[0] != pipeline.ActDrop || verdict[1] != pipeline.ActForward {
		t.Errorf("verdicts %v", verdict)
	}
	before := r.m.Stats().Replaced
	c.post(c.faa(64, 1, 0))
	r.run(5 * time.Millisecond)
	c.done(verbs.Success)
	if r.m.Stats().Replaced != before {
		t.Error("the word was believed to be known")
	}
}

// A flood of packets of connections that do not exist uses no more memory than the tables have, and
// disturbs no client.
func TestFloodOfNewQueuePairs(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	sequencers := len(r.m.flows.list)
	for i := range 6000 {
		f := wire.Frame{Eth: wire.Ethernet{Src: macOf(2), Dst: macOf(serverIP)}}
		f.IPv4 = wire.IPv4{Src: ipOf(2).As4(), Dst: ipOf(serverIP).As4(), TTL: 64}
		f.BTH = wire.BTH{Opcode: wire.RCFetchAdd, DestQP: wire.QPN(0x10000 + i), PSN: wire.PSN(i)}
		f.AtomicETH = wire.AtomicETH{VA: r.server.base + 64, RKey: r.server.key, SwapOrAdd: 1000}
		r.launch(true, 1, f.AppendTo(nil), false)
		if i%50 == 0 {
			r.run(100 * time.Microsecond)
		}
	}
	r.run(time.Second)
	if n := len(r.m.flows.list) - sequencers; n > r.g.track.MaxFlows() {
		t.Errorf("%d sequencers more", n)
	}
	c := conns[0]
	for range 3 {
		c.post(c.faa(64, 1, 0))
		r.run(10 * time.Millisecond)
		c.done(verbs.Success)
	}
	if got := r.server.word(64); got != 9 {
		t.Errorf("the word is %d", got)
	}
}

// Moved requests and replaced atomics over IPv6.
func TestIPv6(t *testing.T) {
	v6 = true
	defer func() { v6 = false }()
	for seed := range uint64(5) {
		runSeed(t, 1000+seed)
	}
}

// Closed flows leave nothing behind: the indexes of their sequencers are reused.
func TestSequencersAreUsedAgain(t *testing.T) {
	r, _ := known(t, rigConfig{clients: 1})
	for i := range 50 {
		c := r.connect(0)
		for range 3 {
			c.post(c.faa(64, 1, 0), c.write(512, 0, 8), c.faa(64, 1, 8))
			r.run(time.Millisecond)
			c.done(verbs.Success, verbs.Success, verbs.Success)
		}
		if c.n.word(8) != uint64(3+6*(i+1)-1) {
			t.Fatalf("connection %d: was %d", i, c.n.word(8))
		}
		for _, l := range r.m.flows.list {
			if l != nil && l.flow.RespQPN == c.server.Num() {
				r.do(func(ctx *pipeline.Ctx) { r.m.Closed(ctx, l.flow) })
			}
		}
	}
	if n := len(r.m.flows.list); n > 6 {
		t.Errorf("%d sequencers", n)
	}
}

// A capture describes each packet on both links, and names the PSN on the other link.
func TestNotes(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 1})
	c := conns[0]
	r.sw.Observe(true)
	c.post(c.cas(64, 3, 5, 0), c.cas(64, 3, 6, 8), c.write(512, 0, 8))
	r.settle()
	c.done(verbs.Success, verbs.Success, verbs.Success)
	want := []string{
		"in: CAS→WRITE conn 1 psn 16777207→16777202 value 5, was 3",
		"out: CAS→WRITE conn 1 psn 16777207→16777202 value 5, was 3",
		"in: CAS→WRITE conn 1 psn 16777208→16777203 unchanged, was 5",
		"out: CAS→WRITE conn 1 psn 16777208→16777203 unchanged, was 5",
		"in: held by the switch until the requests before it have been answered",
		"out: ACK→ATOMIC_ACK conn 1 psn 16777203→16777207 msn 8, was 3",
		"out: ACK→ATOMIC_ACK conn 1 psn 16777203→16777208 msn 9, was 5",
		"out: released by the switch",
		"in: ACK→ATOMIC_ACK conn 1 psn 16777203→16777207 msn 8, was 3; ACK→ATOMIC_ACK conn 1 psn 16777203→16777208 msn 9, was 5",
		"in: ACK own conn psn 16777205→16777209 msn 10",
		"out: ACK own conn psn 16777205→16777209 msn 10",
	}
	if !slices.Equal(r.notes, want) {
		t.Errorf("notes\n%s", strings.Join(r.notes, "\n"))
	}
}

// A partition stops requests also if they would move to a shared connection.
func TestPartition(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	r.sw.Partition([]int{1, -1, 2})
	for _, c := range conns {
		c.post(c.faa(64, 1, 0))
	}
	r.run(10 * time.Millisecond)
	conns[0].done()
	conns[1].done(verbs.Success)
	r.sw.Partition(nil)
	r.run(10 * time.Millisecond)
	conns[0].done(verbs.Success)
	if got := r.server.word(64); got != 8 {
		t.Errorf("the word is %d", got)
	}
}

// A client whose connection the switch cannot learn (it cannot match the answers) works without
// limit, on its own connection.
func TestUnknownConnectionGoesOn(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1)})
	n := r.clients[0]
	c := &conn{r: r, n: n, qp: n.newQP(t), server: r.server.newQP(t)}
	r.ready(c.qp, serverIP, c.server.Num(), r.psn, 16)
	r.ready(c.server, 1, c.qp.Num(), r.psn, 16)
	r.g.blind = true
	for i := range 300 {
		c.post(c.faa(64, 1, 0))
		r.settle()
		c.done(verbs.Success)
		if n.word(0) != uint64(i) {
			t.Fatalf("was %d, want %d", n.word(0), i)
		}
	}
}

// A thousand clients' connections share one connection to the server. Every addition is executed
// once, and each answer is right.
func TestThousandConnections(t *testing.T) {
	r := newRig(t, rigConfig{clients: 4, rules: atomicsRule(1)})
	var conns []*conn
	for i := range 1000 {
		conns = append(conns, r.connect(i%4))
	}
	priors := make(map[uint64]bool)
	for range 3 {
		for i, c := range conns {
			c.post(c.faa(64, 1, 8*i))
			if i%8 == 7 {
				r.run(20 * time.Microsecond)
			}
		}
		r.run(100 * time.Millisecond)
		for _, n := range r.clients {
			for _, wc := range n.poll() {
				if wc.Status != verbs.Success {
					t.Fatal(wc.Status)
				}
			}
		}
		for i, c := range conns {
			priors[c.n.word(8*i)] = true
		}
	}
	if len(priors) != 3000 || r.server.word(64) != 3000 {
		t.Errorf("%d answers, the word is %d", len(priors), r.server.word(64))
	}
	if i := r.m.Info(r.now); len(i.Flows) < 900 || len(i.Shared) != 1 || i.Shared[0].Outstanding != 0 {
		t.Errorf("%d flows moved, %+v", len(i.Flows), i.Shared)
	}
}

// A client with many requests for a word in flight does not starve a client whose request needs the
// word alone, nor the other way round.
func TestWordIsShared(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 4})
	var order []byte
	left := [4]int{60, 60, 6, 6}
	for busy := true; busy; {
		busy = false
		for i, c := range conns {
			for _, wc := range c.n.poll() {
				if wc.Status != verbs.Success {
					t.Fatal(wc.Status)
				}
				order = append(order, byte('a'+i))
			}
			q, _ := c.qp.Query()
			for depth := q.SendQueued; left[i] > 0 && depth < [4]int{12, 12, 1, 1}[i]; depth++ {
				left[i]--
				if i < 2 {
					c.post(c.faa(64, 1, 0))
				} else {
					c.post(c.write(64, 4096, 1500))
				}
			}
			busy = busy || left[i] > 0 || q.SendQueued > 0
		}
		r.step(r.now + hop)
		if r.now > 2*second {
			t.Fatalf("not done: %s", order)
		}
	}
	if o := string(order); max(strings.LastIndex(o, "c"), strings.LastIndex(o, "d")) > min(strings.LastIndex(o, "a"), strings.LastIndex(o, "b")) {
		t.Errorf("c and d, who want little, are served last: %s", o)
	}
}
