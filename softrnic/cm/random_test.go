package cm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed of TestRandom alone")
	seedsFlag = flag.Uint64("seeds", 1000, "number of seeds of TestRandom")
)

// Two applications make and end connections on a wire that loses, doubles and reorders. Each
// application gets the events of each connection in a legal order, both agree on which connections
// were established, and in the end no connection is left.
func TestRandom(t *testing.T) {
	seeds := *seedsFlag
	if *seedFlag != 0 {
		newStorm(t, *seedFlag).run()
		return
	}
	total, agreed, halfOpen := 0, 0, 0
	for seed := uint64(1); seed <= seeds; seed++ {
		s := newStorm(t, seed)
		s.run()
		total, agreed, halfOpen = total+s.established, agreed+s.agreed, halfOpen+s.halfOpen
		if t.Failed() {
			t.Fatalf("replay with: go test ./softrnic/cm -run TestRandom -seed %d", seed)
		}
	}
	t.Logf("%d connections established, %d of them to the end, %d half open", total, agreed/2, halfOpen)
	if total < int(seeds) || agreed < int(seeds) || halfOpen > agreed/200 {
		t.Errorf("%d connections established in %d seeds: the test does not test much", total, seeds)
	}
}

// storm is one run with a seed.
type storm struct {
	t           *testing.T
	rnd         *rand.Rand
	now         clock.Time
	nodes       [2]*node
	loss, dup   float64
	flying      []flight
	seen        map[mad.CommID][]EventKind // by the IDs of both nodes, which are random and do not collide
	pairs       map[mad.CommID]wire.QPN    // number → local queue pair
	live        [2][]mad.CommID            // established or almost, for random requests
	nextQPN     wire.QPN
	established int
	agreed      int
	halfOpen    int
	quiet       bool
}

// flight is a datagram in flight and the time of its arrival.
type flight struct {
	at clock.Time
	d  Datagram
}

func newStorm(t *testing.T, seed uint64) *storm {
	s := &storm{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), seen: map[mad.CommID][]EventKind{}, pairs: map[mad.CommID]wire.QPN{}, nextQPN: 0x100,
	}
	s.loss, s.dup = s.rnd.Float64()*0.3, s.rnd.Float64()*0.3
	for i, name := range []string{"a", "b"} {
		s.nodes[i] = newNode(t, name, seed, func(c *Config) {
			c.MaxRequests, c.MaxTimeWait = 1+s.rnd.IntN(8), 1+s.rnd.IntN(8)
			c.OwnTimeout = uint8(10 + s.rnd.IntN(8))
			c.Pending = 5 * time.Second
		})
		if err := s.nodes[i].m.Listen(testService, netip.Prefix{}, 9); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

const (
	stormSteps = 120
	// stormSettle is more than all retries, service timeouts and time-waits together.
	stormSettle = 200 * time.Second
	maxRounds   = 20000
)

func (s *storm) run() {
	for range stormSteps {
		s.request()
		s.pass(time.Duration(s.rnd.IntN(100)) * time.Millisecond)
	}
	s.quiet, s.loss, s.dup = true, 0, 0
	s.pass(stormSettle)
	s.agree()
	for i, n := range s.nodes {
		for _, id := range s.live[i] {
			n.m.Abort(s.now, id, &n.out)
		}
	}
	s.pass(stormSettle)
	for _, n := range s.nodes {
		if live, ended := n.m.Conns(); live+ended != 0 || len(n.m.table.byPeer)+len(n.m.table.byRemote)+len(n.m.table.byQPN)+n.m.table.requests+n.m.table.due.Len() != 0 {
			s.t.Errorf("%s: %d connections, %d in time-wait, %d requests, %d deadlines are left", n.name, live, ended, n.m.table.requests, n.m.table.due.Len())
		}
	}
	for id, kinds := range s.seen {
		if !legal(kinds) {
			s.t.Errorf("connection %#x: events %v", uint32(id), kinds)
		}
	}
}

// agree checks that no side has a connection that the other one does not have, or has in a
// different state.
func (s *storm) agree() {
	for i, n := range s.nodes {
		for id, c := range n.m.table.conns {
			if c.state != Established {
				s.t.Errorf("%s: %#x is still in %v", n.name, uint32(id), c.state)
				continue
			}
			p := s.nodes[1-i].m.table.conns[c.remoteID]
			if p == nil && c.lastAttr == mad.AttrRTU {
				s.halfOpen++ // the REJ and its repetition for the RTU were both lost, and the protocol has no further message
				continue
			}
			s.agreed++
			if p == nil || p.state != Established || p.remoteID != id || p.qpn != c.remQPN || p.remQPN != c.qpn {
				s.t.Errorf("%s: %+v, but the peer has %+v", n.name, c, p)
			}
		}
	}
}

// request makes a random call of an application.
func (s *storm) request() {
	i := s.rnd.IntN(2)
	n := s.nodes[i]
	switch s.rnd.IntN(6) {
	case 0, 1, 2:
		s.nextQPN++
		if id, err := n.connect(s.now, testService, s.nextQPN); err == nil {
			s.pairs[id] = s.nextQPN
			s.live[i] = append(s.live[i], id)
		}
	case 3:
		if id, ok := s.pick(i); ok {
			_ = n.m.Disconnect(s.now, id, &n.out) // it may be in any state
		}
	case 4:
		if id, ok := s.pick(i); ok && s.rnd.IntN(4) == 0 {
			n.m.Abort(s.now, id, &n.out)
		}
	case 5:
		if id, ok := s.pick(i); ok && s.peerSends(i, id) {
			n.m.PacketSeen(s.pairs[id], &n.out)
		}
	}
	s.collect()
}

// peerSends reports whether the peer of a connection may send on it.
func (s *storm) peerSends(i int, id mad.CommID) bool {
	c := s.nodes[i].m.table.conns[id]
	return c != nil && s.nodes[1-i].m.State(c.remoteID) == Established
}

func (s *storm) pick(i int) (mad.CommID, bool) {
	if len(s.live[i]) == 0 {
		return 0, false
	}
	return s.live[i][s.rnd.IntN(len(s.live[i]))], true
}

// pass advances the time: datagrams arrive, deadlines expire.
func (s *storm) pass(d time.Duration) {
	end := s.now.Add(d)
	for range maxRounds {
		s.collect()
		at := clock.Min(s.nodes[0].m.Deadline(), s.nodes[1].m.Deadline())
		next := -1
		for i, f := range s.flying {
			if f.at < at {
				at, next = f.at, i
			}
		}
		if at > end {
			s.now = end
			return
		}
		s.now = max(s.now, at)
		if next < 0 {
			s.nodes[0].m.Tick(s.now, &s.nodes[0].out)
			s.nodes[1].m.Tick(s.now, &s.nodes[1].out)
			continue
		}
		f := s.flying[next]
		s.flying = slices.Delete(s.flying, next, next+1)
		to := s.nodes[0]
		if f.d.Remote == addrs["b"] {
			to = s.nodes[1]
		}
		to.m.Handle(s.now, Way{f.d.Remote, f.d.Local, 0xffff}, f.d.MAD[:], &to.out)
	}
	s.t.Errorf("it never becomes quiet")
}

// collect lets the applications react to events, and puts their datagrams on the wire.
func (s *storm) collect() {
	for i, n := range s.nodes {
		for k := 0; k < len(n.out.Events); k++ { // reactions may cause more events
			s.react(i, n, n.out.Events[k])
		}
		for _, d := range n.out.Tx {
			s.trace("%s> %s", n.name, describe(hex, &d))
			for range 1 + copies(s.rnd, s.dup) {
				if s.rnd.Float64() >= s.loss {
					s.flying = append(s.flying, flight{s.now.Add(time.Duration(s.rnd.IntN(300)) * time.Millisecond / 10), d})
				}
			}
		}
		n.out.Reset()
	}
}

func copies(rnd *rand.Rand, p float64) int {
	if rnd.Float64() < p {
		return 1
	}
	return 0
}

// trace prints the events of the seed that -seed names.
func (s *storm) trace(format string, args ...any) {
	if *seedFlag != 0 {
		s.t.Logf("%v "+format, append([]any{time.Duration(s.now)}, args...)...)
	}
}

func hex(id mad.CommID) string { return fmt.Sprintf("%#x", uint32(id)) }

func (s *storm) react(i int, n *node, e Event) {
	s.trace("%s: %#x %v", n.name, uint32(e.Conn), e)
	s.seen[e.Conn] = append(s.seen[e.Conn], e.Kind)
	var err error
	switch e.Kind {
	case EventRequest:
		s.live[i] = append(s.live[i], e.Conn)
		switch k := s.rnd.IntN(10); {
		case k == 0 && !s.quiet: // the application does not react
		case k == 1:
			err = n.m.Reject(s.now, e.Conn, Refusal{Reason: mad.ReasonConsumer}, &n.out)
		default:
			s.nextQPN++
			s.pairs[e.Conn] = s.nextQPN
			err = n.accept(s.now, e.Conn, s.nextQPN)
		}
	case EventReply:
		if rep := e.Message.(*mad.REP); s.pairs[rep.LocalID] != rep.QPN {
			s.t.Errorf("REP of %#x names queue pair %#x, accepted was %#x", uint32(rep.LocalID), rep.QPN, s.pairs[rep.LocalID])
		}
		if s.rnd.IntN(10) == 0 {
			err = n.m.Reject(s.now, e.Conn, Refusal{Reason: mad.ReasonNoResources}, &n.out)
			break
		}
		err = n.m.Ready(e.Conn, &n.out)
	case EventEstablished:
		s.established++
	}
	if err != nil {
		s.t.Errorf("%s: %v after %v", n.name, err, e)
	}
}

// legal checks that the events of one connection came in a legal order, each once.
func legal(kinds []EventKind) bool {
	rank := map[EventKind]int{
		EventRequest: 1, EventReply: 1, EventEstablished: 2, EventRejected: 3, EventUnreachable: 3, EventDisconnected: 3, EventUnanswered: 3, EventClosed: 4,
	}
	for i := 1; i < len(kinds); i++ {
		if rank[kinds[i-1]] >= rank[kinds[i]] {
			return false
		}
	}
	return true
}

// FuzzHandle: no datagrams make the machine panic or send more than a bounded number of answers.
func FuzzHandle(f *testing.F) {
	for _, m := range []mad.Message{
		&mad.REQ{LocalID: 1, Service: testService, QPN: 5, MTU: 3, Primary: mad.Path{RemoteGID: addrs["b"].As16()}},
		&mad.REP{LocalID: 1, RemoteID: 2}, &mad.REJ{LocalID: 1}, &mad.DREQ{RemoteID: 2}, &mad.SIDRReq{RequestID: 1, Service: testService},
	} {
		f.Add(mad.Append(nil, 3, m), uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, choice uint8) {
		n := newNode(t, "b", 1, nil)
		if err := n.m.Listen(testService, netip.Prefix{}, 9); err != nil {
			t.Fatal(err)
		}
		own, err := n.connect(0, testService, 0x11)
		if err != nil {
			t.Fatal(err)
		}
		now := clock.Time(0)
		for len(b) > 0 {
			size := min(len(b), mad.Size)
			var d [mad.Size]byte
			copy(d[:], b[:size])
			b = b[size:]
			if choice&1 != 0 { // use the connection that exists
				d[28], d[29], d[30], d[31] = byte(own>>24), byte(own>>16), byte(own>>8), byte(own)
			}
			n.out.Reset()
			n.m.Handle(now, Way{addrs["b"], addrs["a"], 0xffff}, d[:], &n.out)
			for _, e := range n.out.Events {
				switch e.Kind {
				case EventRequest:
					_ = n.accept(now, e.Conn, 0x22) // the queue pair may be in use
				case EventReply:
					_ = n.m.Ready(e.Conn, &n.out)
				}
			}
			if len(n.out.Tx) > 4 || len(n.out.Events) > 8 {
				t.Fatalf("%d datagrams and %d events for one", len(n.out.Tx), len(n.out.Events))
			}
			now = now.Add(time.Duration(choice) * time.Millisecond)
			n.m.Tick(now, &n.out)
		}
		if live, ended := n.m.Conns(); live < 0 || ended < 0 || n.m.table.requests < 0 {
			t.Fatalf("%d live, %d ended, %d requests", live, ended, n.m.table.requests)
		}
	})
}

func Example_graphviz() {
	fmt.Println(graphviz()[:11])
	// Output: digraph cm
}
