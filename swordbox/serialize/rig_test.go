package serialize

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

const (
	testPSN   = 0xfffff0 // so that PSNs wrap soon
	second    = clock.Time(time.Second)
	regionLen = 256 << 10
	serverIP  = 100 // last byte of the address
	switchIP  = 200
)

// v6 makes all addresses IPv6.
var v6 bool

func ipOf(i int) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0xfd, 0x77, 15: byte(i)})
	}
	return netip.AddrFrom4([4]byte{10, 77, 0, byte(i)})
}

// hostOf returns the host number of an address.
func hostOf(a netip.Addr) int { b := a.AsSlice(); return int(b[len(b)-1]) }

func macOf(i int) wire.MAC { return wire.MAC{2, 0, 0, 0, 0, byte(i)} }

// glue is the part of the switch program that the machine needs.
type glue struct {
	track *conntrack.Table
	m     *Machine
	bad   map[conntrack.Reason]int
	ctx   *pipeline.Ctx
	todo  []func(c *pipeline.Ctx)
	blind bool // the machine does not see responses
}

func (g *glue) Spec() pipeline.Spec { return pipeline.Spec{Name: "test", Split: true} }

func (g *glue) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	g.ctx = c
	if !p.Intact() {
		return pipeline.Forward()
	}
	if p.Own {
		if g.track.Elsewhere(p.SrcAddr().Unmap(), p.Ingress) {
			g.bad[conntrack.Spoofed]++
			return pipeline.Drop("spoofed")
		}
		return g.m.Owned(c, p)
	}
	if g.blind && p.BTH.Opcode.Is(wire.OpResponse) {
		return pipeline.Forward()
	}
	s := g.track.Packet(c.Now, p.Ingress, &p.Frame, p)
	if s.Flow == nil || s.Bad != conntrack.Fine {
		if s.Bad != conntrack.Unknown && s.Bad != conntrack.Untracked {
			g.bad[s.Bad]++
			return pipeline.Drop("bad")
		}
		return g.m.Untracked(c, p)
	}
	if s.Response {
		return g.m.Response(c, s, p)
	}
	return g.m.Request(c, s, nil, p)
}

func (g *glue) Tick(c *pipeline.Ctx) {
	g.ctx = c
	todo := g.todo
	g.todo = nil
	for _, f := range todo {
		f(c)
	}
	g.track.Tick(c.Now)
	g.m.Tick(c)
}

func (g *glue) Deadline() clock.Time {
	if len(g.todo) > 0 {
		return 0
	}
	return clock.Min(g.track.Deadline(), g.m.Deadline())
}

// node is a NIC with one object of each kind, or more queue pairs.
type node struct {
	e    *engine.Engine
	pd   *engine.PD
	cq   *engine.CQ
	mr   *engine.MR
	buf  []byte
	base uint64
	key  uint32
	lkey uint32
	out  packetio.Batch
	port int
	dead bool
}

func newNode(t testing.TB, port, ip int, change func(*engine.Config)) *node {
	t.Helper()
	cfg := engine.Config{
		Name: fmt.Sprint("n", ip), MAC: macOf(ip), Rand: rand.New(rand.NewPCG(uint64(ip), 7)),
		GIDs:    []verbs.GID{verbs.GIDOf(ipOf(ip))},
		Resolve: func(a netip.Addr) (wire.MAC, bool) { return macOf(hostOf(a)), true },
	}
	if change != nil {
		change(&cfg)
	}
	e, err := engine.New(cfg)
	n := &node{e: e, port: port, buf: make([]byte, regionLen)}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	n.pd, err = e.AllocPD()
	check(err)
	n.cq, err = e.CreateCQ(1 << 14)
	check(err)
	n.mr, err = e.RegMR(n.pd, n.buf, verbs.LocalWrite|verbs.RemoteRights)
	check(err)
	r, err := n.mr.Region()
	check(err)
	n.base, n.key, n.lkey = r.Base(), r.RKey(), r.LKey()
	return n
}

func (n *node) sge(off, length int) []verbs.SGE {
	return []verbs.SGE{{Addr: n.base + uint64(off), Length: uint32(length), LKey: n.lkey}}
}

func (n *node) newQP(t testing.TB) *engine.QP {
	t.Helper()
	q, err := n.e.CreateQP(n.pd, n.cq, n.cq, verbs.QPInit{MaxSendWR: 256, MaxRecvWR: 256})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func (n *node) poll() []verbs.WC {
	q, _ := n.cq.Queue()
	wc := make([]verbs.WC, q.Len())
	return wc[:q.Poll(wc)]
}

// flight is a frame on a link.
type flight struct {
	at   clock.Time
	seq  int
	to   int // the port to which it goes or, with up, from which it comes to the switch
	up   bool
	data []byte
}

type flights []flight

func (h flights) Len() int { return len(h) }
func (h flights) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h flights) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *flights) Push(x any)   { *h = append(*h, x.(flight)) }
func (h *flights) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// chance are the probabilities of faults on all four hops, in thousandths.
type chance struct{ loss, dup, late int }

// rig is a number of clients, a server and a switch in virtual time.
type rig struct {
	t       testing.TB
	now     clock.Time
	r       *rand.Rand
	sw      *pipeline.Switch
	g       *glue
	m       *Machine
	clients []*node
	server  *node
	nodes   []*node // by port
	out     packetio.Batch
	air     flights
	seq     int
	faults  chance
	// quantum is the interval at which packets are delivered to the server, so that it acknowledges
	// several at once.
	quantum clock.Time
	// tap is called for every frame that enters a link; if it returns false, the frame is lost.
	tap    func(up bool, port int, data []byte) bool
	tap2   func(up bool, port int, data []byte)
	failed []string
	gen    uint32
	shared []*engine.QP // the server's ends of connections
	notes  []string     // comments of captures
	psn    wire.PSN
}

type rigConfig struct {
	clients int
	rules   []rules.Rule
	cfg     Config
	engine  func(*engine.Config)
	seed    uint64
	shards  int
	depth   int
	manual  bool // a shared connection that fails is not made again
	follow  pipeline.Follower
}

const hop = clock.Time(2 * time.Microsecond)

func newRig(t testing.TB, rc rigConfig) *rig {
	t.Helper()
	r := &rig{t: t, r: rand.New(rand.NewPCG(rc.seed, 99)), psn: testPSN}
	r.g = &glue{bad: make(map[conntrack.Reason]int)}
	shards, depth := max(1, rc.shards), rc.depth
	if depth == 0 {
		depth = 16
	}
	if !rc.manual {
		rc.cfg.Failed = func(c *pipeline.Ctx, k switchconn.Key, _ uint32, why string) {
			r.failed = append(r.failed, why)
			r.g.todo = append(r.g.todo, func(c *pipeline.Ctx) { r.attach(c, k.Shard, depth) })
		}
	}
	r.m = New(rc.cfg)
	r.g.m = r.m
	r.g.track = conntrack.NewTable(conntrack.Config{Connections: 1024, Settle: -1, OnClose: func(flow *conntrack.Flow) {
		r.m.Closed(r.g.ctx, flow)
	}})
	var err error
	r.sw, err = pipeline.New(pipeline.Config{
		Ports: rc.clients + 1, Program: r.g, Follower: rc.follow, Self: pipeline.Self{MAC: macOf(switchIP), Addrs: []netip.Addr{ipOf(switchIP)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rc.clients {
		r.clients = append(r.clients, newNode(t, i, i+1, rc.engine))
	}
	r.server = newNode(t, rc.clients, serverIP, rc.engine)
	r.nodes = append(append(r.nodes, r.clients...), r.server)
	for i := range r.clients {
		r.g.track.Bind(ipOf(i+1), i)
	}
	r.g.track.Bind(ipOf(serverIP), r.server.port)
	for _, n := range r.nodes { // so that the switch learns the port of each host
		hello := make([]byte, 60)
		copy(hello, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		m := n.e.Config().MAC
		copy(hello[6:], m[:])
		r.sw.Frame(r.now, n.port, packetio.Frame{Data: hello}, &r.out)
		r.out.Reset()
	}
	set, err := rules.NewSet(rc.rules)
	if err != nil {
		t.Fatal(err)
	}
	r.m.SetRules(set)
	if len(rc.rules) > 0 && rc.rules[0].Moves() {
		for i := range shards {
			r.do(func(c *pipeline.Ctx) { r.attach(c, i, depth) })
		}
	}
	return r
}

// do runs f in a step of the switch.
func (r *rig) do(f func(c *pipeline.Ctx)) {
	r.g.todo = append(r.g.todo, f)
	r.sw.Tick(r.now, &r.out)
	r.flush()
}

// attach gives the machine a new shared connection to the server.
func (r *rig) attach(c *pipeline.Ctx, shard, depth int) {
	qp := r.server.newQP(r.t)
	r.gen++
	own := wire.QPN(0x5000 + r.gen)
	r.ready(qp, switchIP, own, r.psn, depth)
	var to wire.Frame
	to.Eth = wire.Ethernet{Src: macOf(switchIP), Dst: macOf(serverIP)}
	if to.V6 = v6; v6 {
		to.IPv6 = wire.IPv6{Src: ipOf(switchIP).As16(), Dst: ipOf(serverIP).As16(), HopLimit: 64}
	} else {
		to.IPv4 = wire.IPv4{Src: ipOf(switchIP).As4(), Dst: ipOf(serverIP).As4(), TTL: 64, DF: true}
	}
	to.UDP.SrcPort = 0xd000
	to.BTH = wire.BTH{PKey: wire.DefaultPKey, DestQP: qp.Num()}
	ok := r.m.Attach(c, switchconn.Shared{
		Key: switchconn.Key{Server: ipOf(serverIP), Shard: shard}, Generation: r.gen, ServerQPN: qp.Num(), OwnQPN: own,
		SendPSN: r.psn, RecvPSN: r.psn, MTU: 1024, Depth: depth, To: to,
	})
	if !ok {
		r.t.Error("the machine refuses a connection")
	}
	r.shared = append(r.shared, qp)
}

// ready connects a queue pair to a peer.
func (r *rig) ready(q *engine.QP, peer int, num wire.QPN, psn wire.PSN, depth int) {
	r.t.Helper()
	for _, err := range []error{
		q.ToInit(verbs.ToInit{Access: verbs.RemoteRights}),
		q.ToRTR(r.now, verbs.ToRTR{
			DestQPN: num, DestGID: verbs.GIDOf(ipOf(peer)), RecvPSN: psn, PathMTU: verbs.MTU1024, MinRNRTimer: 1, MaxDestRdAtomic: depth,
		}),
		q.ToRTS(r.now, verbs.ToRTS{SendPSN: psn, Timeout: 10, RetryCount: 7, RNRRetry: 7, MaxRdAtomic: depth}),
	} {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// conn is a client's connection to the server.
type conn struct {
	r      *rig
	n      *node
	qp     *engine.QP
	server *engine.QP
}

// connect makes a connection between a client and the server, and uses it until the switch knows
// it.
func (r *rig) connect(client int) *conn {
	r.t.Helper()
	n := r.clients[client]
	c := &conn{r: r, n: n, qp: n.newQP(r.t), server: r.server.newQP(r.t)}
	r.ready(c.qp, serverIP, c.server.Num(), r.psn, 16)
	r.ready(c.server, client+1, c.qp.Num(), r.psn, 16)
	for range 4 {
		c.post(verbs.SendWR{Op: verbs.OpWrite, SGL: n.sge(0, 1)[:0], RemoteAddr: r.server.base, RKey: r.server.key})
		r.settle()
		if q, _ := n.cq.Queue(); q.Len() == 0 {
			r.run(100 * time.Millisecond) // the new connection may have to wait for requests of an earlier one
		}
		c.done(verbs.Success)
	}
	return c
}

// post posts work requests, all signalled.
func (c *conn) post(wrs ...verbs.SendWR) {
	c.r.t.Helper()
	for i := range wrs {
		wrs[i].Flags |= verbs.Signalled
	}
	if err := c.qp.PostSend(c.r.now, wrs, &c.n.out); err != nil {
		c.r.t.Fatal(err)
	}
	c.r.flush()
}

// done polls completions, which must have these statuses.
func (c *conn) done(want ...verbs.Status) []verbs.WC {
	c.r.t.Helper()
	wcs := c.n.poll()
	var got []verbs.Status
	for _, wc := range wcs {
		got = append(got, wc.Status)
	}
	if !slices.Equal(got, want) {
		c.r.t.Fatalf("completions %v, want %v", got, want)
	}
	return wcs
}

// flush puts the frames that nodes and switch have sent on the links.
func (r *rig) flush() {
	for _, n := range r.nodes {
		for _, f := range n.out.Frames {
			r.launch(true, n.port, f.Data, n.dead)
		}
		n.out.Reset()
	}
	for _, f := range r.out.Frames {
		r.launch(false, f.Port, f.Data, false)
	}
	r.out.Reset()
}

func (r *rig) launch(up bool, port int, data []byte, dead bool) {
	if r.tap2 != nil && !dead {
		r.tap2(up, port, data)
	}
	if dead || r.tap != nil && !r.tap(up, port, data) || r.r.IntN(1000) < r.faults.loss {
		return
	}
	copies := 1
	if r.r.IntN(1000) < r.faults.dup {
		copies = 2
	}
	for range copies {
		at := r.now + hop
		if r.r.IntN(1000) < r.faults.late {
			at += clock.Time(r.r.IntN(20)) * hop
		}
		if q := r.quantum; q > 0 && !up && port == r.server.port {
			at = (at + q - 1) / q * q
		}
		r.seq++
		heap.Push(&r.air, flight{at, r.seq, port, up, append([]byte(nil), data...)})
	}
}

// deadline returns the next deadline of NICs and switch, without the housekeeping of the tables.
func (r *rig) deadline() clock.Time {
	at := r.sw.Deadline()
	for _, n := range r.nodes {
		if !n.dead {
			at = clock.Min(at, n.e.Deadline())
		}
	}
	if len(r.air) > 0 {
		at = clock.Min(at, r.air[0].at)
	}
	return at
}

// step handles the next event or deadline. It returns false if there is none before until.
func (r *rig) step(until clock.Time) bool {
	at := r.deadline()
	if at > until {
		r.now = max(r.now, until)
		return false
	}
	r.now = max(r.now, at)
	touched := make([]bool, len(r.nodes))
	for len(r.air) > 0 && r.air[0].at <= r.now {
		f := heap.Pop(&r.air).(flight)
		if f.up {
			r.sw.Frame(r.now, f.to, packetio.Frame{Data: f.data}, &r.out)
			for _, n := range r.sw.Notes() {
				where := "in"
				if n.Out >= 0 {
					where = "out"
				}
				r.notes = append(r.notes, where+": "+n.Text)
			}
		} else if n := r.nodes[f.to]; !n.dead {
			n.e.Frame(r.now, 0, packetio.Frame{Data: f.data}, &n.out)
			touched[f.to] = true
		}
	}
	if r.sw.Deadline() <= r.now {
		r.sw.Tick(r.now, &r.out)
	}
	r.bounds()
	for i, n := range r.nodes {
		if touched[i] {
			n.e.EndBatch(r.now, &n.out)
		}
		if !n.dead && n.e.Deadline() <= r.now {
			n.e.Tick(r.now, &n.out)
		}
	}
	r.flush()
	return true
}

// bounds checks the limits of tables and queues.
func (r *rig) bounds() {
	r.t.Helper()
	for _, s := range r.m.servers {
		for _, l := range s.links {
			if l.conn.Requests.Outstanding() > l.conn.Requests.Ring() {
				r.t.Fatalf("%d requests outstanding on a ring of %d", l.conn.Requests.Outstanding(), l.conn.Requests.Ring())
			}
		}
	}
	if r.m.held.inUse > r.m.cfg.Held {
		r.t.Fatalf("%d packets are held, at most %d may", r.m.held.inUse, r.m.cfg.Held)
	}
}

// settle runs until no frame is in flight, without waiting for timers.
func (r *rig) settle() {
	r.t.Helper()
	for range 100000 {
		if len(r.air) == 0 {
			return
		}
		if !r.step(r.air[0].at) {
			return
		}
	}
	r.t.Fatal("frames go back and forth for ever")
}

// run runs for a time.
func (r *rig) run(d time.Duration) {
	r.t.Helper()
	until := r.now.Add(d)
	for range 10_000_000 {
		if !r.step(until) {
			return
		}
	}
	r.t.Fatal("deadlines never end")
}

// parse parses a frame.
func parse(data []byte) (f wire.Frame) {
	_ = wire.ParseFrame(data, &f)
	return f
}
