package cm

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The structured fuzzer plays the peers, the application and the clock of one manager. Bytes decide
// each step; most datagrams belong to a connection that exists, and some have one mistake. After
// each step the tables must agree with each other. The bytes come from the fuzzing engine, or from
// seeds in TestStructured.

// play is one run of the structured fuzzer.
type play struct {
	t     testing.TB
	n     *node
	b     []byte // decisions
	now   clock.Time
	calls []mad.CommID // connections that the application has events of
	sent  [][]byte     // datagrams of peers, for duplicates
	seen  map[mad.CommID][]EventKind
	qpn   wire.QPN
	// before is the number of connections before the step.
	before int
}

// under draws a number below n, which is at most 256.
func (p *play) under(n int) int {
	if len(p.b) == 0 {
		return 0
	}
	v := int(p.b[0])
	p.b = p.b[1:]
	return v % n
}

func playStructured(t testing.TB, decisions []byte) {
	p := &play{t: t, b: decisions, seen: map[mad.CommID][]EventKind{}}
	how := p.under(256)
	p.n = newNode(t, "b", 1, func(c *Config) {
		c.MaxConns, c.MaxRequests, c.MaxTimeWait, c.MaxListeners = 3+how&3, 1+how>>2&3, 1+how>>4&3, 2
		c.MaxRetries = uint8(1 + how>>6)
		c.Pending = time.Second
	})
	if err := p.n.m.Listen(testService, netip.Prefix{}, 9); err != nil {
		t.Fatal(err)
	}
	for len(p.b) > 0 {
		switch k := p.under(16); {
		case k < 8:
			p.datagram(p.message())
		case k == 8 && len(p.sent) > 0:
			p.handle(p.sent[p.under(min(len(p.sent), 256))])
		case k < 13:
			p.application()
		case k == 13:
			p.now = p.now.Add(time.Duration(p.under(256)) * 10 * time.Millisecond)
			p.n.m.Tick(p.now, &p.n.out)
		default:
			p.now = max(p.now, min(p.n.m.Deadline(), p.now.Add(time.Hour)))
			p.n.m.Tick(p.now, &p.n.out)
		}
		p.check()
	}
}

// conn returns a connection that exists, if there is one.
func (p *play) conn() *conn {
	k := p.under(256)
	for i := range p.calls {
		if c := p.n.m.table.conns[p.calls[(i+k)%len(p.calls)]]; c != nil {
			return c
		}
	}
	return &conn{id: mad.CommID(k), remoteID: mad.CommID(k + 1), remQPN: 7, qpn: 8}
}

// message returns a message that a peer may send, mostly about a connection that exists.
func (p *play) message() mad.Message {
	c := p.conn()
	remote := c.remoteID
	if remote == 0 {
		remote = mad.CommID(1 + p.under(4))
	}
	switch p.under(12) {
	case 0, 1, 2:
		return p.req()
	case 3, 4:
		return &mad.REP{LocalID: remote, RemoteID: c.id, QPN: wire.QPN(0x30 + p.under(4)), LocalGUID: uint64(p.under(3))}
	case 5:
		return &mad.RTU{LocalID: remote, RemoteID: c.id}
	case 6:
		return &mad.MRA{LocalID: remote, RemoteID: c.id, About: mad.Stage(p.under(4)), Timeout: uint8(p.under(32))}
	case 7:
		rej := &mad.REJ{LocalID: remote, RemoteID: c.id, About: mad.Stage(p.under(4)), Reason: mad.Reason(p.under(40))}
		if p.under(4) == 0 {
			rej.RemoteID = 0 // it names the connection by the GUID
			rej.Reason = mad.ReasonTimeout
			rej.InfoLen = 8
		}
		return rej
	case 8:
		return &mad.DREQ{LocalID: remote, RemoteID: c.id, QPN: c.qpn}
	case 9:
		return &mad.DREP{LocalID: remote, RemoteID: c.id}
	case 10:
		return &mad.SIDRReq{RequestID: mad.CommID(1 + p.under(6)), Service: testService + mad.ServiceID(p.under(8)/7), PKey: 0xffff}
	default:
		return &mad.SIDRRep{RequestID: c.id, Status: mad.SIDRStatus(p.under(4)), QPN: 5}
	}
}

// req returns a request for a connection; some are invalid.
func (p *play) req() *mad.REQ {
	req := &mad.REQ{
		LocalID: mad.CommID(p.under(6)), Service: testService, QPN: wire.QPN(0x40 + p.under(6)), MTU: 3, PKey: 0xffff, LocalTimeout: uint8(p.under(32)),
		MaxCMRetries: uint8(p.under(16)), LocalGUID: uint64(p.under(3)), Primary: mad.Path{RemoteGID: addrs["b"].As16()},
	}
	switch p.under(16) {
	case 0:
		req.Service++
	case 1:
		req.MTU = 6
	case 2:
		req.QPN = 1
	case 3:
		req.Type = 2
	case 4:
		req.Primary.RemoteGID[15]++
	}
	return req
}

// datagram sends a message, sometimes with one wrong byte.
func (p *play) datagram(m mad.Message) {
	b := mad.Append(nil, uint64(p.under(3)), m)
	if p.under(16) == 0 {
		b[p.under(256)%len(b)] ^= byte(1 + p.under(255))
	}
	if len(p.sent) < 256 {
		p.sent = append(p.sent, b)
	}
	p.handle(b)
}

func (p *play) handle(b []byte) {
	peer := addrs["a"]
	if p.under(32) == 0 {
		peer = netip.MustParseAddr("10.77.0.3")
	}
	p.n.m.Handle(p.now, Way{addrs["b"], peer, 0xffff}, b, &p.n.out)
}

// application makes a call, which the state may not allow.
func (p *play) application() {
	m, out, id := p.n.m, &p.n.out, p.conn().id
	p.qpn = wire.QPN(0x20 + p.under(6))
	switch p.under(16) {
	case 0, 1, 2:
		if id, err := p.n.connect(p.now, testService, p.qpn); err == nil {
			p.calls = append(p.calls, id)
		}
	case 3, 4, 5:
		_ = p.n.accept(p.now, id, p.qpn)
	case 6, 7:
		_ = m.Ready(id, out)
	case 8:
		_ = m.Reject(p.now, id, Refusal{Reason: mad.ReasonConsumer}, out)
	case 9:
		_ = m.Delay(id, out)
	case 10:
		_ = m.Disconnect(p.now, id, out)
	case 11:
		m.Abort(p.now, id, out)
	case 12:
		m.PacketSeen(p.qpn, out)
		m.QPGone(p.now, p.qpn+1, out)
	case 13:
		if id, err := m.Resolve(p.now, 1, addrs["b"], addrs["a"], mad.SIDRReq{Service: testService}, out); err == nil {
			p.calls = append(p.calls, id)
		}
	case 14:
		_ = m.Answer(p.now, id, mad.SIDRRep{QPN: p.qpn}, out)
	default:
		p.listeners()
	}
}

// listeners adds and removes listeners, and removes owners with all their objects.
func (p *play) listeners() {
	m := p.n.m
	switch p.under(8) {
	case 0:
		m.Release(p.now, uint64(p.under(2)*8+1), &p.n.out)
	case 1:
		m.Unlisten(testService, 9)
	default:
		_ = m.Listen(testService+mad.ServiceID(p.under(3)), netip.Prefix{}, 9) // the service may be in use, or the list full
	}
}

// check checks the invariants after every step: the tables agree with each other and with the
// limits, and events come in a legal order.
func (p *play) check() {
	p.t.Helper()
	m, out := p.n.m, &p.n.out
	if len(out.Tx) > 2+p.before || len(out.Events) > 2+2*p.before {
		p.t.Fatalf("%d datagrams and %d events in a step", len(out.Tx), len(out.Events))
	}
	for _, e := range out.Events {
		if e.Kind == EventRequest || e.Kind == EventResolve {
			p.calls = append(p.calls, e.Conn)
		}
		p.seen[e.Conn] = append(p.seen[e.Conn], e.Kind)
		if !legalWithQuestions(p.seen[e.Conn]) {
			p.t.Fatalf("connection %#x: events %v", uint32(e.Conn), p.seen[e.Conn])
		}
	}
	out.Reset()
	p.before = len(m.table.conns)
	waiting, requests, due := 0, 0, 0
	for id, c := range m.table.conns {
		if c.id != id || c.state == Idle {
			p.t.Fatalf("%#x is %#x in %v", uint32(id), uint32(c.id), c.state)
		}
		if c.inTimeWait != (c.state == TimeWait) {
			p.t.Fatalf("%#x in %v: kept %v", uint32(id), c.state, c.inTimeWait)
		}
		if c.state == TimeWait {
			waiting++
		}
		if c.state == REQRcvd || c.state == SIDRRcvd {
			requests++
		}
		if _, ends := next(c.state, onExpire); ends {
			due++
		}
	}
	live, ended := m.Conns()
	if ended != waiting || m.table.requests != requests || m.table.due.Len() != due {
		p.t.Fatalf("%d ended, %d requests, %d deadlines; the connections say %d, %d, %d", ended, m.table.requests, m.table.due.Len(), waiting, requests, due)
	}
	if live > m.cfg.MaxConns || requests > m.cfg.MaxRequests || ended > m.cfg.MaxTimeWait || len(m.listeners) > m.cfg.MaxListeners {
		p.t.Fatalf("%d live, %d requests, %d ended, %d listeners", live, requests, ended, len(m.listeners))
	}
	for k, c := range m.table.byPeer {
		if m.table.conns[c.id] != c || k.id != c.remoteID || k.sidr != c.sidr {
			p.t.Fatalf("peer's %#x leads to %+v", uint32(k.id), c)
		}
	}
	for k, c := range m.table.byRemote {
		if m.table.conns[c.id] != c || c.state == TimeWait || k.qpn != c.remQPN {
			p.t.Fatalf("peer's queue pair %#x leads to %+v", uint32(k.qpn), c)
		}
	}
	for qpn, c := range m.table.byQPN {
		if m.table.conns[c.id] != c || c.state == TimeWait || qpn != c.qpn {
			p.t.Fatalf("queue pair %#x leads to %+v", uint32(qpn), c)
		}
	}
}

// legalWithQuestions checks the order of events as legal does, also for datagram services.
func legalWithQuestions(kinds []EventKind) bool {
	for _, k := range kinds {
		if k == EventResolve || k == EventResolved {
			return len(kinds) == 1 || len(kinds) == 2 && kinds[1] == EventClosed
		}
	}
	return legal(kinds)
}

// For any actions of peers and applications at any time, the tables stay consistent. This runs the
// fuzz target with seeds for about a second.
func TestStructured(t *testing.T) {
	for seed := uint64(1); seed <= 2000; seed++ {
		if *seedFlag != 0 && seed != *seedFlag {
			continue
		}
		playStructured(t, structuredBytes(seed))
		if t.Failed() {
			t.Fatalf("replay with: go test ./softrnic/cm -run TestStructured -seed %d", seed)
		}
	}
}

// structuredBytes returns the decisions of a seed.
func structuredBytes(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 78))
	b := make([]byte, 100+r.IntN(900))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// FuzzStructured is the structured fuzzer.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(structuredBytes(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) { playStructured(t, b) })
}
