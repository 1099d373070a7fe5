package cm

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// hears hands a message of the other node to a node, and returns by how much that changed the
// counters.
func (n *node) hears(tid uint64, msg mad.Message) Stats {
	before := n.m.Stats()
	n.out.Reset()
	n.m.Handle(0, Way{addrs[n.name], addrs[n.peer()], 0xffff}, mad.Append(nil, tid, msg), &n.out)
	return since(n.m.Stats(), before)
}

func since(now, before Stats) Stats {
	return Stats{
		Sent: now.Sent - before.Sent, Rcvd: now.Rcvd - before.Rcvd, Malformed: now.Malformed - before.Malformed,
		Strays: now.Strays - before.Strays, Duplicates: now.Duplicates - before.Duplicates, Stale: now.Stale - before.Stale,
		Requests: now.Requests - before.Requests, Refused: now.Refused - before.Refused, Retries: now.Retries - before.Retries,
		Expired: now.Expired - before.Expired, Established: now.Established - before.Established,
	}
}

// Each message that repeats, comes too late or fits nothing moves the counter of its kind, and no
// other.
func TestCountsOfEachMessage(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	ida, err := a.connect(0, testService, 0x40)
	must(t, err)
	_, sent := decode(t, a.out.Tx[0].MAD[:])
	req, tid := sent.(*mad.REQ), a.m.table.conns[ida].tid
	check := func(what string, got, want Stats) {
		t.Helper()
		want.Rcvd = 1
		if got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	check("REQ", b.hears(tid, req), Stats{Requests: 1})
	idb := b.out.Events[0].Conn
	rtu := &mad.RTU{LocalID: ida, RemoteID: idb}
	check("RTU before the REP", b.hears(tid, rtu), Stats{Strays: 1})
	check("RTU of nothing", b.hears(tid, &mad.RTU{LocalID: 5, RemoteID: 6}), Stats{Sent: 1, Strays: 1})
	ask := &mad.SIDRReq{RequestID: 5, Service: testService, PKey: 0xffff}
	check("SIDR_REQ", b.hears(9, ask), Stats{Requests: 1})
	check("SIDR_REQ again", b.hears(9, ask), Stats{Duplicates: 1})
	check("REQ again", b.hears(tid, req), Stats{Sent: 1, Duplicates: 1})
	must(t, b.accept(0, idb, 0x50))
	check("REQ behind the REP", b.hears(tid, req), Stats{Sent: 1, Duplicates: 1})
	_, sent = decode(t, b.out.Tx[0].MAD[:])
	rep := sent.(*mad.REP)
	check("REP", a.hears(tid, rep), Stats{})
	check("REP again", a.hears(tid, rep), Stats{Sent: 1, Duplicates: 1})
	check("late REJ of the REQ", a.hears(tid, &mad.REJ{LocalID: idb, RemoteID: ida, About: mad.StageREQ}), Stats{Strays: 1})
	must(t, a.m.Ready(ida, &a.out))
	check("REP behind the RTU", a.hears(tid, rep), Stats{Sent: 1, Duplicates: 1})
	check("RTU", b.hears(tid, rtu), Stats{Established: 1})
	check("RTU again", b.hears(tid, rtu), Stats{Duplicates: 1})
	check("REQ behind the RTU", b.hears(tid, req), Stats{Strays: 1})
	check("MRA behind the RTU", b.hears(tid, &mad.MRA{LocalID: ida, RemoteID: idb, About: mad.StageREP}), Stats{Strays: 1})
	check("REP for nothing", b.hears(tid, &mad.REP{LocalID: 5, RemoteID: 6}), Stats{Sent: 1, Strays: 1})
	check("REJ of nothing", b.hears(tid, &mad.REJ{LocalID: 5, RemoteID: 6}), Stats{Strays: 1})
	must(t, a.m.Disconnect(0, ida, &a.out))
	dreq := &mad.DREQ{LocalID: ida, RemoteID: idb, QPN: 0x50}
	check("REP behind the DREQ", a.hears(tid, rep), Stats{Strays: 1})
	check("answer to no question", a.hears(tid, &mad.SIDRRep{RequestID: 5}), Stats{Strays: 1})
	check("answer to a connection", a.hears(tid, &mad.SIDRRep{RequestID: ida}), Stats{Strays: 1})
	check("DREQ", b.hears(77, dreq), Stats{Sent: 1})
	check("DREQ again", b.hears(77, dreq), Stats{Sent: 1, Duplicates: 1})
	check("RTU behind the DREQ", b.hears(tid, rtu), Stats{Strays: 1})
	b.out.Reset()
	before := b.m.Stats()
	b.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, []byte{1, 2, 3}, &b.out)
	check("three bytes", since(b.m.Stats(), before), Stats{Malformed: 1})
}

// A wait that ends without an answer is counted, and so is each retry; the end of a time-wait is
// not. A question's owner learns that its wait and then that the question is over.
func TestCountsOfWaits(t *testing.T) {
	a := newNode(t, "a", 1, func(c *Config) { c.MaxRetries = 2 })
	_, err := a.m.Resolve(0, 1, addrs["a"], addrs["b"], mad.SIDRReq{Service: testService, PKey: 0xffff}, &a.out)
	must(t, err)
	a.out.Reset()
	for range 3 {
		a.m.Tick(a.m.Deadline(), &a.out)
	}
	if st := a.m.Stats(); st.Retries != 2 || st.Expired != 1 || st.Sent != 3 {
		t.Errorf("%+v", st)
	}
	if len(a.out.Events) != 2 || a.out.Events[0].Kind != EventUnreachable || a.out.Events[1].Kind != EventClosed {
		t.Errorf("events %v", a.out.Events)
	}
	if live, ended := a.m.Conns(); live != 0 || ended != 0 || a.m.Deadline() != clock.Never {
		t.Errorf("%d live, %d ended, next deadline %v", live, ended, a.m.Deadline())
	}
	b := newNode(t, "b", 1, nil)
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	b.hears(7, &mad.SIDRReq{RequestID: 5, Service: testService, PKey: 0xffff})
	must(t, b.m.Answer(0, b.out.Events[0].Conn, mad.SIDRRep{}, &b.out))
	b.out.Reset()
	b.m.Tick(b.m.Deadline(), &b.out)
	if st := b.m.Stats(); st.Expired != 0 || len(b.out.Events) != 1 || b.out.Events[0].Kind != EventClosed {
		t.Errorf("%+v, events %v", st, b.out.Events)
	}
	if len(b.m.table.ended) != 0 {
		t.Errorf("%d ended connections are kept", len(b.m.table.ended))
	}
}

// What shows that the peer has lost a connection ends it and is counted: a REQ and a REP for a
// queue pair of the peer that has a connection already.
func TestStaleConnectionsEnd(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	ida, idb := handshake(t, a, b)
	req := &mad.REQ{LocalID: 0x55, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}}
	if got, want := b.hears(7, req), (Stats{Rcvd: 1, Requests: 1, Refused: 1, Stale: 1, Sent: 2}); got != want {
		t.Errorf("REQ: %+v, want %+v", got, want)
	}
	if b.m.State(idb) != DREQSent || len(b.out.Events) != 1 || b.out.Events[0].Kind != EventDisconnected {
		t.Errorf("in %v, events %v", b.m.State(idb), b.out.Events)
	}
	id, err := a.connect(0, testService, 0x41)
	must(t, err)
	if got, want := a.hears(a.m.table.conns[id].tid, &mad.REP{LocalID: 0x77, RemoteID: id, QPN: 0x50}), (Stats{Rcvd: 1, Stale: 1, Sent: 2}); got != want {
		t.Errorf("REP: %+v, want %+v", got, want)
	}
	if kinds := a.out.Events; len(kinds) != 2 || kinds[0].Conn != id || kinds[0].Kind != EventRejected || kinds[1].Kind != EventDisconnected {
		t.Errorf("events %v", kinds)
	}
	if a.m.State(ida) != DREQSent {
		t.Errorf("the older connection is in %v", a.m.State(ida))
	}
}

// A REQ with the number of another one is its repetition only with the same exchange and the same
// service.
func TestNumberOfAnotherRequest(t *testing.T) {
	b := newNode(t, "b", 1, nil)
	for i := range 2 {
		must(t, b.m.Listen(testService+mad.ServiceID(i), netip.Prefix{}, 9))
	}
	req := mad.REQ{LocalID: 5, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}}
	b.hears(7, &req)
	for _, c := range []struct {
		tid     uint64
		service mad.ServiceID
	}{{8, testService}, {7, testService + 1}} {
		other := req
		other.Service = c.service
		b.hears(c.tid, &other)
		if rej, ok := only(t, b).(*mad.REJ); !ok || rej.Reason != mad.ReasonDuplicateID {
			t.Errorf("exchange %d, service %v: %+v", c.tid, c.service, rej)
		}
	}
}

// An acceptor that refuses an established connection, also without its own number, disconnects the
// initiator.
func TestRefusalBehindTheReply(t *testing.T) {
	for _, known := range []bool{true, false} {
		a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
		ida, idb := handshake(t, a, b)
		rej := &mad.REJ{RemoteID: ida, About: mad.StageOther, Reason: mad.ReasonInvalidID}
		if known {
			rej.LocalID = idb
		}
		a.hears(7, rej)
		if a.m.State(ida) != TimeWait || len(a.out.Events) != 1 || a.out.Events[0].Kind != EventDisconnected {
			t.Errorf("in %v, events %v", a.m.State(ida), a.out.Events)
		}
	}
}

// An acceptor that goes away behind its REP says so. The queue pair of a connection that was
// aborted is free for the next one at once, though the connection still waits for its peer.
func TestAbortFreesTheQueuePair(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	ida, _ := handshake(t, a, b)
	id, ok := a.m.ConnOf(0x40)
	if none, found := a.m.ConnOf(0x41); !ok || id != ida || found || none != 0 {
		t.Errorf("queue pair 0x40 has %#x, %v; 0x41 has %#x, %v", id, ok, none, found)
	}
	a.m.Abort(0, ida, &a.out)
	if _, ok := a.m.ConnOf(0x40); ok || a.m.State(ida) != DREQSent {
		t.Errorf("the queue pair is taken, in %v", a.m.State(ida))
	}
	_, err := a.connect(0, testService, 0x40)
	must(t, err)
	b.hears(8, &mad.REQ{LocalID: 0x66, Service: testService, QPN: 0x60, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}})
	late := b.out.Events[0].Conn
	must(t, b.accept(0, late, 0x51))
	b.out.Reset()
	b.m.Abort(0, late, &b.out)
	if rej, ok := only(t, b).(*mad.REJ); !ok || rej.About != mad.StageREP || rej.Reason != mad.ReasonTimeout {
		t.Errorf("%+v", rej)
	}
}

// Each exchange has a number of its own.
func TestExchangesDiffer(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 1, nil)
	ida, _ := handshake(t, a, b)
	seen := map[uint64]bool{a.m.table.conns[ida].tid: true}
	must(t, a.m.Disconnect(0, ida, &a.out))
	_, err := a.connect(0, testService, 0x41)
	must(t, err)
	for i := range a.out.Tx {
		h, _ := decode(t, a.out.Tx[i].MAD[:])
		seen[h.TID] = true
	}
	if len(seen) != 3 {
		t.Errorf("exchanges %v", seen)
	}
}

// numbers is a source of the random numbers that it lists.
type numbers []uint32

func (s *numbers) Uint64() uint64 {
	n := (*s)[0]
	*s = (*s)[1:]
	return uint64(n) << 32
}

// A connection's number is neither 0 nor that of another one; maxIDTries random numbers are tried.
// The numbers of exchanges have one random number in front.
func TestNumbersOfConnections(t *testing.T) {
	source := numbers{99, 0, 7, 7, 0, 8}
	a := newNode(t, "a", 1, func(c *Config) { c.Rand = rand.New(&source) })
	for i, want := range []mad.CommID{7, 8} {
		id, err := a.connect(0, testService, wire.QPN(0x40+i))
		if err != nil || id != want || a.m.table.conns[id].tid != 99<<32|uint64(i+1) {
			t.Errorf("connection %d is %d, %v; want %d", i, id, err, want)
		}
	}
	source = make(numbers, maxIDTries)
	if _, err := a.connect(0, testService, 0x42); !errors.Is(err, verbs.ErrLimit) || len(source) != 0 {
		t.Errorf("%v with %d numbers left", err, len(source))
	}
}

// Private data of a datagram service: a name has their length and the bit Named in front, a port
// has RDMA-CM's header in a question and nothing in an answer.
func TestPrivateDataOfDatagramServices(t *testing.T) {
	name, port := DatagramServiceOf("a name"), DatagramServiceOf("7174")
	if space, n, ok := port.ID.Port(); !ok || space != mad.SpaceUDP || n != 7174 {
		t.Errorf("port 7174 is %#x", uint64(port.ID))
	}
	if name.Port || name.ID == ServiceOf("a name").ID {
		t.Errorf("the name is %+v", name)
	}
	for _, c := range []struct {
		s                DatagramService
		question, answer int // the most
		ahead, behind    int // bytes in front, of a question and of an answer
	}{
		{name, Named - 1, Named - 1, 1, 1},
		{port, mad.SIDRReqPrivate - mad.IPDataLen, mad.SIDRRepPrivate, mad.IPDataLen, 0},
	} {
		for _, n := range []int{0, 1, c.question} {
			out, err := c.s.Resolve(private(n), addrs["a"], addrs["b"], 4660)
			must(t, err)
			got, err := c.s.ParseResolve(&mad.SIDRReq{Private: out})
			if err != nil || string(out[c.ahead:c.ahead+n]) != string(private(n)) || string(got[:n]) != string(private(n)) {
				t.Errorf("question of %d bytes: % x, read as % x, %v", n, out, got, err)
			}
		}
		for _, n := range []int{0, 1, c.answer} {
			out, err := c.s.Answer(private(n))
			must(t, err)
			got, err := c.s.ParseAnswer(&mad.SIDRRep{Private: out})
			if err != nil || string(out[c.behind:c.behind+n]) != string(private(n)) || string(got[:n]) != string(private(n)) {
				t.Errorf("answer of %d bytes: % x, read as % x, %v", n, out, got, err)
			}
		}
		if _, err := c.s.Resolve(private(c.question+1), addrs["a"], addrs["b"], 0); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d bytes in a question: %v", c.question+1, err)
		}
		if _, err := c.s.Answer(private(c.answer + 1)); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%d bytes in an answer: %v", c.answer+1, err)
		}
	}
	out, err := port.Resolve(nil, addrs["a"], addrs["b"], 4660)
	must(t, err)
	var ip mad.IPData
	must(t, ip.Parse(out[:]))
	if want := (mad.IPData{SrcPort: 4660, Src: addrs["a"], Dst: addrs["b"]}); ip != want {
		t.Errorf("header %+v, want %+v", ip, want)
	}
}

// A refusal carries what the application gave, and one for want of an answer the GUID by which the
// peer finds the connection.
func TestContentsOfRefusals(t *testing.T) {
	b := newNode(t, "b", 1, nil)
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	req := &mad.REQ{LocalID: 5, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}}
	b.hears(7, req)
	id := b.out.Events[0].Conn
	must(t, b.m.Reject(0, id, Refusal{Reason: mad.ReasonConsumer, Info: []byte("info"), Private: []byte("private")}, &b.out))
	rej := only(t, b).(*mad.REJ)
	if rej.LocalID != id || rej.About != mad.StageREQ || string(rej.Info[:rej.InfoLen]) != "info" || string(rej.Private[:7]) != "private" {
		t.Errorf("%+v", rej)
	}
	req.LocalID, req.QPN = 6, 0x41
	b.hears(8, req)
	b.m.Tick(b.m.Deadline(), &b.out) // the time-wait of the first one
	b.out.Reset()
	b.m.Tick(b.m.Deadline(), &b.out)
	rej = only(t, b).(*mad.REJ)
	if guid := binary.BigEndian.Uint64(rej.Info[:]); rej.Reason != mad.ReasonTimeout || rej.InfoLen != 8 || guid != testGUID+2 {
		t.Errorf("%+v, GUID %#x", rej, guid)
	}
}

// A DREQ waits as long, and is sent as often, as this side's configuration says, whatever the
// peer's request has asked for.
func TestPatienceOfADisconnect(t *testing.T) {
	b := newNode(t, "b", 1, func(c *Config) { c.ResponseTimeout, c.MaxRetries = 16, 3 })
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	b.hears(7, &mad.REQ{
		LocalID: 5, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()},
		LocalTimeout: 19, MaxCMRetries: 9,
	})
	id := b.out.Events[0].Conn
	must(t, b.accept(0, id, 0x50))
	if want := clock.Time(0).Add(mad.Time(19)); b.m.Deadline() != want {
		t.Errorf("the REP waits until %v, want %v", b.m.Deadline(), want)
	}
	b.hears(7, &mad.RTU{LocalID: 5, RemoteID: id})
	must(t, b.m.Disconnect(0, id, &b.out))
	if want := clock.Time(0).Add(mad.Time(16)); b.m.Deadline() != want {
		t.Errorf("the DREQ waits until %v, want %v", b.m.Deadline(), want)
	}
	for b.m.State(id) == DREQSent {
		b.m.Tick(b.m.Deadline(), &b.out)
	}
	if st := b.m.Stats(); st.Retries != 3 || st.Expired != 1 {
		t.Errorf("%+v", st)
	}
}

// Addresses of two families, or none, are a mistake of the caller.
func TestAddressesOfOneFamily(t *testing.T) {
	v6 := netip.MustParseAddr("fd00:77::1")
	for _, c := range [][2]netip.Addr{{addrs["a"], v6}, {v6, addrs["b"]}, {}, {{}, v6}, {addrs["a"], {}}} {
		a := newNode(t, "a", 1, nil)
		if _, err := a.m.Connect(0, 1, c[0], c[1], mad.REQ{QPN: 0x40}, &a.out); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("Connect from %v to %v: %v", c[0], c[1], err)
		}
		if _, err := a.m.Resolve(0, 1, c[0], c[1], mad.SIDRReq{}, &a.out); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("Resolve from %v to %v: %v", c[0], c[1], err)
		}
	}
}
