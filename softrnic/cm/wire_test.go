package cm

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The service ID that is computed from a service's name is part of the protocol: hosts of different
// builds must agree on it.
func TestServiceIDsOfNames(t *testing.T) {
	for name, want := range map[string]mad.ServiceID{"clover": 0x026c44ac5082fa9f, "a": 0x02af63dc4c8601ec} {
		if s := ServiceOf(name); s.ID != want || s.Port {
			t.Errorf("%q is %#x, want %#x", name, uint64(s.ID), uint64(want))
		}
	}
}

// private is n bytes that differ from each other and from the headers.
func private(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*5 + 3)
	}
	return b
}

// Private data of a name have their length and the bit Named in front, those of a port RDMA-CM's
// header in a request and nothing in a reply; each kind takes exactly what there is room for.
func TestPrivateDataOfServices(t *testing.T) {
	local, to := addrs["a"], addrs["b"]
	name, port := ServiceOf("a name"), ServiceOf("7174")
	for _, c := range []struct {
		s              Service
		request, reply int // the most
		ahead, behind  int // bytes in front, of a request and of a reply
	}{
		{name, mad.REQPrivate - 1, mad.REPPrivate - 2, 1, 2},
		{port, mad.REQPrivate - mad.IPDataLen, mad.REPPrivate, mad.IPDataLen, 0},
	} {
		for _, n := range []int{0, 1, c.request} {
			out, err := c.s.Request(private(n), local, to, 4660)
			must(t, err)
			if string(out[c.ahead:c.ahead+n]) != string(private(n)) {
				t.Errorf("request of %d bytes: % x", n, out)
			}
			got, err := c.s.ParseRequest(&mad.REQ{Private: out})
			must(t, err)
			if want := private(n); c.s.Port && string(got[:n]) != string(want) || !c.s.Port && string(got) != string(want) {
				t.Errorf("request of %d bytes is read as % x", n, got)
			}
		}
		if _, err := c.s.Request(private(c.request+1), local, to, 0); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d bytes in a request: %v", c.request+1, err)
		}
		for _, n := range []int{0, 1, c.reply} {
			out, err := c.s.Reply(private(n), verbs.MTU2048)
			must(t, err)
			if string(out[c.behind:c.behind+n]) != string(private(n)) {
				t.Errorf("reply of %d bytes: % x", n, out)
			}
			got, mtu, err := c.s.ParseReply(&mad.REP{Private: out}, verbs.MTU4096)
			must(t, err)
			if want := private(n); c.s.Port && string(got[:n]) != string(want) || !c.s.Port && string(got) != string(want) {
				t.Errorf("reply of %d bytes is read as % x", n, got)
			}
			if want := map[bool]verbs.MTU{true: verbs.MTU4096, false: verbs.MTU2048}[c.s.Port]; mtu != want {
				t.Errorf("path MTU %d, want %d", mtu, want)
			}
		}
		if _, err := c.s.Reply(private(c.reply+1), verbs.MTU256); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d bytes in a reply: %v", c.reply+1, err)
		}
	}
	out, err := port.Request(nil, local, to, 4660)
	must(t, err)
	var ip mad.IPData
	must(t, ip.Parse(out[:]))
	if want := (mad.IPData{SrcPort: 4660, Src: local, Dst: to}); ip != want {
		t.Errorf("header %+v, want %+v", ip, want)
	}
	if _, err := port.ParseRequest(&mad.REQ{}); err == nil {
		t.Error("a request without RDMA-CM's header")
	}
}

// A reply that another program made, or that names a path MTU which was not asked for, is refused,
// and so are private data that are longer than their message.
func TestForeignPrivateData(t *testing.T) {
	name := ServiceOf("a name")
	for what, c := range map[string]struct {
		first, length byte
		asked         verbs.MTU
	}{
		"no bit Named":  {3, 0, verbs.MTU4096},
		"MTU code 0":    {Named, 0, verbs.MTU4096},
		"MTU code 6":    {Named | 6, 0, verbs.MTU4096},
		"MTU too large": {Named | 4, 0, verbs.MTU1024},
		"too long":      {Named | 3, mad.REPPrivate - 1, verbs.MTU1024},
	} {
		rep := mad.REP{Private: [mad.REPPrivate]byte{c.first, c.length}}
		b, mtu, err := name.ParseReply(&rep, c.asked)
		if !errors.Is(err, ErrProtocol) || b != nil || mtu != 0 && what != "too long" {
			t.Errorf("%s: %d bytes, MTU %d, %v", what, len(b), mtu, err)
		}
	}
	rep := mad.REP{Private: [mad.REPPrivate]byte{Named | 3, mad.REPPrivate - 2}}
	if b, mtu, err := name.ParseReply(&rep, verbs.MTU1024); err != nil || mtu != verbs.MTU1024 || len(b) != mad.REPPrivate-2 {
		t.Errorf("a full reply: %d bytes, MTU %d, %v", len(b), mtu, err)
	}
	for first, want := range map[byte]int{Named: 0, Named | 3: 3, Named | 4: -1, 3: -1} {
		b, err := Flagged([]byte{first, 1, 2, 3})
		if (err != nil) != (want < 0) || err == nil && (len(b) != want || want > 0 && b[0] != 1) || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("%#x: % x, %v", first, b, err)
		}
	}
	for code := range uint8(8) {
		want := map[uint8]verbs.MTU{1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}[code]
		if MTUOf(code) != want || want != 0 && MTUCode(want) != code {
			t.Errorf("MTU code %d is %d", code, MTUOf(code))
		}
	}
}

// The defaults are those that the fields' comments say.
func TestDefaults(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	want := Config{
		Rand: r, GUID: 7, ResponseTimeout: 15, MaxRetries: 15, OwnTimeout: 15, ServiceTimeout: 18, TimeWait: 17, Pending: time.Minute,
		MaxConns: 16384, MaxRequests: 1024, MaxTimeWait: 4096, MaxListeners: 1024,
	}
	if got := (Config{Rand: r, GUID: 7}).withDefaults(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	set := Config{
		Rand: r, ResponseTimeout: 31, MaxRetries: 1, OwnTimeout: 1, ServiceTimeout: 1, TimeWait: 1, Pending: 1,
		MaxConns: 1, MaxRequests: 1, MaxTimeWait: 1, MaxListeners: 1,
	}
	if got := set.withDefaults(); got != set || set.Validate() != nil {
		t.Errorf("%+v became %+v, %v", set, got, set.Validate())
	}
	if most := (Config{Rand: r, MaxRetries: 15, ResponseTimeout: 31, OwnTimeout: 31, ServiceTimeout: 31, TimeWait: 31}); most.Validate() != nil {
		t.Error(most.Validate())
	}
	for what, change := range map[string]func(*Config){
		"no Rand":          func(c *Config) { c.Rand = nil },
		"retries":          func(c *Config) { c.MaxRetries = 16 },
		"response timeout": func(c *Config) { c.ResponseTimeout = 32 },
		"own timeout":      func(c *Config) { c.OwnTimeout = 32 },
		"service timeout":  func(c *Config) { c.ServiceTimeout = 32 },
		"time-wait":        func(c *Config) { c.TimeWait = 32 },
		"pending":          func(c *Config) { c.Pending = -1 },
		"connections":      func(c *Config) { c.MaxConns = -1 },
		"requests":         func(c *Config) { c.MaxRequests = -1 },
		"kept":             func(c *Config) { c.MaxTimeWait = -1 },
		"listeners":        func(c *Config) { c.MaxListeners = -1 },
	} {
		c := Config{Rand: r}
		change(&c)
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), "cm config: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// handshake makes a connection between two nodes, and returns its numbers.
func handshake(t *testing.T, a, b *node) (ida, idb mad.CommID) {
	t.Helper()
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	ida, err := a.connect(0, testService, 0x40)
	must(t, err)
	carry(a, b)
	if len(b.out.Events) != 1 {
		t.Fatalf("events %v", b.out.Events)
	}
	idb = b.out.Events[0].Conn
	must(t, b.accept(0, idb, 0x50))
	carry(b, a)
	must(t, a.m.Ready(ida, &a.out))
	carry(a, b)
	if a.m.State(ida) != Established || b.m.State(idb) != Established {
		t.Fatalf("states %v and %v", a.m.State(ida), b.m.State(idb))
	}
	b.out.Reset()
	a.out.Reset()
	return ida, idb
}

// carry hands the datagrams of a node to the other one.
func carry(from, to *node) {
	tx := append([]Datagram(nil), from.out.Tx...)
	from.out.Reset()
	for i := range tx {
		to.m.Handle(0, Way{tx[i].Remote, tx[i].Local, 0xffff}, tx[i].MAD[:], &to.out)
	}
}

// A message that names a connection must come from the connection's peer, with the numbers of both
// sides and, to end it, with the right queue pair and exchange. All others are counted as strays
// and end nothing.
func TestMessagesOfOthers(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	ida, idb := handshake(t, a, b)
	third := netip.MustParseAddr("10.77.0.9")
	strays := b.m.Stats().Strays
	for what, c := range map[string]struct {
		from netip.Addr
		dreq mad.DREQ
	}{
		"another host":       {third, mad.DREQ{LocalID: ida, RemoteID: idb, QPN: 0x50}},
		"another number":     {addrs["a"], mad.DREQ{LocalID: ida + 1, RemoteID: idb, QPN: 0x50}},
		"another queue pair": {addrs["a"], mad.DREQ{LocalID: ida, RemoteID: idb, QPN: 0x51}},
	} {
		b.m.Handle(0, Way{addrs["b"], c.from, 0xffff}, mad.Append(nil, 7, &c.dreq), &b.out)
		if b.m.State(idb) != Established || len(b.out.Events) != 0 {
			t.Fatalf("a DREQ with %s: state %v, events %v", what, b.m.State(idb), b.out.Events)
		}
		b.out.Reset()
	}
	if got := b.m.Stats().Strays - strays; got != 3 {
		t.Errorf("%d strays, want 3", got)
	}
	must(t, b.m.Disconnect(0, idb, &b.out))
	b.out.Reset()
	strays = b.m.Stats().Strays
	b.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, mad.Append(nil, 7, &mad.DREP{LocalID: ida, RemoteID: idb}), &b.out)
	if b.m.State(idb) != DREQSent || b.m.Stats().Strays != strays+1 {
		t.Errorf("a DREP of another exchange: state %v, %d strays", b.m.State(idb), b.m.Stats().Strays-strays)
	}
}

// An application that goes away between REP and RTU refuses the acceptance, so that the peer ends
// its side at once.
func TestAbortBehindAReply(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	ida, err := a.connect(0, testService, 0x40)
	must(t, err)
	carry(a, b)
	idb := b.out.Events[0].Conn
	must(t, b.accept(0, idb, 0x50))
	carry(b, a)
	a.m.Abort(0, ida, &a.out)
	if rej, ok := only(t, a).(*mad.REJ); !ok || rej.About != mad.StageREP || rej.Reason != mad.ReasonConsumer || rej.RemoteID != idb {
		t.Errorf("%+v", rej)
	}
	b.out.Reset()
	carry(a, b)
	if len(b.out.Events) != 1 || b.out.Events[0].Kind != EventRejected {
		t.Errorf("events %v", b.out.Events)
	}
}

// An initiator that gives up without an answer names only its own number: the request ends, and no
// question of the same number does.
func TestInitiatorGivesUp(t *testing.T) {
	b := newNode(t, "b", 1, nil)
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	from := func(tid uint64, m mad.Message) {
		b.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, mad.Append(nil, tid, m), &b.out)
	}
	from(1, &mad.SIDRReq{RequestID: 5, Service: testService, PKey: 0xffff})
	from(2, &mad.REQ{LocalID: 5, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}})
	if len(b.out.Events) != 2 {
		t.Fatalf("events %v", b.out.Events)
	}
	ask, req := b.out.Events[0].Conn, b.out.Events[1].Conn
	from(3, &mad.REJ{LocalID: 5, About: mad.StageREQ, Reason: mad.ReasonTimeout})
	if b.m.State(req) == REQRcvd || b.m.State(ask) != SIDRRcvd {
		t.Errorf("request in %v, question in %v", b.m.State(req), b.m.State(ask))
	}
}

// What does not fit and what finds no room is counted.
func TestCountsOfTrouble(t *testing.T) {
	b := newNode(t, "b", 1, func(c *Config) { c.MaxRequests = 1 })
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	from := func(tid uint64, m mad.Message) {
		b.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, mad.Append(nil, tid, m), &b.out)
	}
	from(1, &mad.SIDRReq{RequestID: 5, Service: testService, PKey: 0xffff})
	from(2, &mad.SIDRReq{RequestID: 6, Service: testService, PKey: 0xffff})
	from(3, &mad.REQ{LocalID: 7, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}})
	if st := b.m.Stats(); st.Requests != 3 || st.Refused != 2 || st.Strays != 0 {
		t.Errorf("%+v", st)
	}
	if _, m := decode(t, b.out.Tx[0].MAD[:]); m.(*mad.SIDRRep).Status != mad.SIDRNoQP {
		t.Errorf("without room: %+v", m)
	}
	from(4, &mad.REQ{Service: testService, QPN: 0x40, MTU: 3})
	if st := b.m.Stats(); st.Strays != 1 {
		t.Errorf("%+v", st)
	}
	a, c := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	ida, idb := handshake(t, a, c)
	strays := c.m.Stats().Strays
	again := &mad.REQ{LocalID: ida, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}}
	c.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, mad.Append(nil, c.m.table.conns[idb].tid, again), &c.out)
	if st := c.m.Stats(); st.Strays != strays+1 || len(c.out.Tx) != 0 {
		t.Errorf("a REQ behind the RTU: %+v, %d datagrams", st, len(c.out.Tx))
	}
}

// A REP for a queue pair that another connection has is refused; only its repetition draws that
// refusal again, a REP of another connection of the peer does not (IBTA 12.9.8.3.1).
func TestStaleReplyIsRemembered(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	handshake(t, a, b) // with the peer's queue pair 0x50
	id, err := a.connect(0, testService, 0x41)
	must(t, err)
	tid := a.m.table.conns[id].tid
	reply := func(local mad.CommID) *mad.REJ {
		a.out.Reset()
		a.m.Handle(0, Way{addrs["a"], addrs["b"], 0xffff}, mad.Append(nil, tid, &mad.REP{LocalID: local, RemoteID: id, QPN: 0x50}), &a.out)
		rej, _ := decodeREJ(a)
		return rej
	}
	for range 2 {
		if rej := reply(0x77); rej == nil || rej.Reason != mad.ReasonStale || rej.RemoteID != 0x77 {
			t.Errorf("%+v", rej)
		}
	}
	if rej := reply(0x78); rej == nil || rej.Reason != mad.ReasonInvalidID || rej.RemoteID != 0x78 {
		t.Errorf("of another connection: %+v", rej)
	}
}

// decodeREJ finds a REJ among the datagrams of a step.
func decodeREJ(n *node) (*mad.REJ, bool) {
	for i := range n.out.Tx {
		var h mad.Header
		if m, err := mad.Parse(n.out.Tx[i].MAD[:], &h); err == nil {
			if rej, ok := m.(*mad.REJ); ok {
				return rej, true
			}
		}
	}
	return nil, false
}
