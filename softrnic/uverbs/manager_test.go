package uverbs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// manager is a program over librdmacm as the daemon sees it, with one event channel at first.
type manager struct {
	t       testing.TB
	conn    *net.UnixConn
	channel uint32
	fds     map[uint32]int // event channels
}

// manages is a program that has opened the connection manager of a NIC.
func (h *house) manages(t testing.TB, nic int) *manager {
	t.Helper()
	return h.managesAs(t, nic, uverbs.MagicManager+magic[len(uverbs.Magic):])
}

// managesAs is manages with this first message.
func (h *house) managesAs(t testing.TB, nic int, first string) *manager {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.sockets[nic], Net: "unixpacket"})
	must(t, err)
	m := &manager{t: t, conn: conn, fds: make(map[uint32]int)}
	t.Cleanup(m.close)
	_, err = conn.Write([]byte(first))
	must(t, err)
	if _, errno, _, ok := receive(t, conn); !ok || errno != 0 {
		t.Fatalf("the connection manager is refused: %v, %v", ok, unix.Errno(errno))
	}
	m.channel = m.open()
	return m
}

func (m *manager) close() {
	for n, fd := range m.fds {
		must(m.t, unix.Close(fd))
		delete(m.fds, n)
	}
	_ = m.conn.Close()
}

// raw sends the bytes of a command, and returns the whole answer.
func (m *manager) raw(op ucma.Op, channel uint32, args ...any) (a uverbs.Answer, fds []int) {
	m.t.Helper()
	b := uverbs.Encode(channel, uint32(0), uint32(op), uint32(0))
	for _, v := range args {
		if raw, ok := v.([]byte); ok {
			b = append(b, raw...)
		} else {
			b = append(b, uverbs.Encode(v)...)
		}
	}
	_, err := m.conn.Write(b)
	must(m.t, err)
	out, oob := make([]byte, 8192), make([]byte, 128)
	must(m.t, m.conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, oobn, _, _, err := m.conn.ReadMsgUnix(out, oob)
	if err != nil || n < uverbs.AnswerLen {
		m.t.Fatalf("command %d: %d bytes of answer, %v", op, n, err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	must(m.t, err)
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		must(m.t, err)
		fds = append(fds, got...)
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(out[at:]) }
	a = uverbs.Answer{Errno: u32(0), Drain: u32(4), Channel: u32(8), Number: u32(12), Data: out[uverbs.AnswerLen:n]}
	for range a.Drain { // as the preloaded library does
		var one [1]byte
		if fd, ok := m.fds[a.Channel]; ok {
			_, _, _ = unix.Recvfrom(fd, one[:], unix.MSG_DONTWAIT)
		}
	}
	return a, fds
}

// do sends a command that must succeed.
func (m *manager) do(op ucma.Op, args ...any) []byte {
	m.t.Helper()
	a, _ := m.raw(op, m.channel, args...)
	if a.Errno != 0 {
		m.t.Fatalf("command %d: %v", op, unix.Errno(a.Errno))
	}
	return a.Data
}

// arrived waits for an event that nothing need announce, and returns it.
func (m *manager) arrived() []byte {
	m.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		a, _ := m.raw(ucma.GetEvent, m.channel, uint64(0))
		if errno := unix.Errno(a.Errno); errno == 0 {
			return a.Data
		} else if errno != unix.EAGAIN || time.Now().After(end) {
			m.t.Fatalf("no event: %v", errno)
		}
	}
}

// open opens an event channel.
func (m *manager) open() uint32 {
	m.t.Helper()
	a, fds := m.raw(ucma.OpenChannel, 0)
	if a.Errno != 0 || len(fds) != 1 {
		m.t.Fatalf("no channel: %v, %d descriptors", unix.Errno(a.Errno), len(fds))
	}
	m.fds[a.Number] = fds[0]
	return a.Number
}

// Port spaces and kinds of events of the ABI.
const (
	spaceTCP, spaceUDP = 0x0106, 0x0111

	addrResolved, addrError, routeResolved        = 0, 1, 2
	connectRequest, connectResponse               = 4, 5
	eventUnreachable, eventRejected               = 7, 8
	eventEstablished, eventDisconnected    uint32 = 9, 10
	eventTimewaitExit                      uint32 = 15
)

// create makes an identifier.
func (m *manager) create(uid uint64, space uint16) uint32 {
	m.t.Helper()
	return binary.NativeEndian.Uint32(m.do(ucma.CreateID, uid, uint64(0), space, [6]byte{}))
}

// sockaddr is a struct sockaddr_in6 with this address.
func sockaddr(a netip.AddrPort) (b [28]byte) {
	binary.NativeEndian.PutUint16(b[:], unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], a.Port())
	ip := a.Addr().As4()
	copy(b[4:], ip[:])
	return b
}

// listen makes a listener at all addresses.
func (m *manager) listen(uid uint64, space, port uint16) uint32 {
	m.t.Helper()
	id := m.create(uid, space)
	m.do(ucma.BindIP, uint64(0), sockaddr(netip.AddrPortFrom(netip.IPv4Unspecified(), port)), id)
	m.do(ucma.Listen, id, uint32(8))
	return id
}

// param are the terms of a connection.
type param struct {
	QPN, QKey                         uint32
	Private                           [256]byte
	PrivateLen, SRQ, Resources, Depth uint8
	FlowControl, Retry, RNRRetry      uint8
	Valid                             uint8
}

func terms(qpn uint32, private string) (p param) {
	p = param{QPN: qpn, Resources: 1, Depth: 1, Retry: 7, RNRRetry: 7, Valid: 1, PrivateLen: uint8(len(private))}
	copy(p.Private[:], private)
	return p
}

// event is one as the program reads it.
type event struct {
	UID              uint64
	ID, Kind, Status uint32
	Param            [304]byte
}

// private is the private data of an event, without the zeros behind them. udp: of a datagram service.
func (e *event) private(udp bool) string {
	b := e.Param[8:264]
	if udp {
		b = e.Param[40:296]
	}
	return string(bytes.TrimRight(b, "\x00"))
}

// poll waits up to ms milliseconds until an event is announced. n is 1 if one is.
func (m *manager) poll(ms int) (n int, err error) {
	poll := []unix.PollFd{{Fd: int32(m.fds[m.channel]), Events: unix.POLLIN}}
	for n, err = unix.Poll(poll, ms); errors.Is(err, unix.EINTR); {
		n, err = unix.Poll(poll, ms)
	}
	return n, err
}

// next waits for an event.
func (m *manager) next(kind uint32) (e event) {
	m.t.Helper()
	n, err := m.poll(20000)
	if err != nil || n != 1 {
		m.t.Fatalf("no event %d: %v", kind, err)
	}
	var one [1]byte
	_, err = unix.Read(m.fds[m.channel], one[:])
	must(m.t, err)
	_, err = binary.Decode(m.do(ucma.GetEvent, uint64(0)), binary.NativeEndian, &e)
	must(m.t, err)
	if e.Kind != kind {
		m.t.Fatalf("event %+v, want kind %d", e, kind)
	}
	return e
}

// none checks that nothing announces an event.
func (m *manager) none() {
	m.t.Helper()
	if n, err := m.poll(0); err != nil || n != 0 {
		m.t.Errorf("an event is announced: %d, %v", n, err)
	}
}

// destroy ends an identifier, and returns how many of its events the program has read.
func (m *manager) destroy(id uint32) (reported uint32) {
	m.t.Helper()
	return binary.NativeEndian.Uint32(m.do(ucma.DestroyID, uint64(0), id, uint32(0)))
}

// resolve brings an identifier to where it can connect.
func (m *manager) resolve(id uint32, to netip.AddrPort) {
	m.t.Helper()
	m.do(ucma.ResolveIP, [28]byte{}, sockaddr(to), id, uint32(1000))
	m.next(addrResolved)
	m.do(ucma.ResolveRoute, id, uint32(1000))
	m.next(routeResolved)
}

// bringUp makes a transition of a queue pair with the attributes that the connection manager gives.
func (m *manager) bringUp(e *ends, id uint32, states ...uint32) {
	m.t.Helper()
	for _, s := range states {
		b := m.do(ucma.InitQPAttr, uint64(0), id, s)
		var a struct {
			Mask, State, Current, PathMTU, Migration uint32
			QKey, RecvPSN, SendPSN, DestQPN, Access  uint32
			AH, Alt                                  uverbs.AHAttr
			Queues                                   [5]uint32
			PKeys                                    [2]uint16
			Notify, Draining                         uint8
			MaxRd, MaxDestRd, MinRNR                 uint8
			Port, Timeout, Retry, RNRRetry           uint8
			_                                        [7]uint8
		}
		_, err := binary.Decode(b, binary.NativeEndian, &a)
		must(m.t, err)
		q := uverbs.ModifyQPArgs{H: e.qp.H, Mask: a.Mask}
		q.State, q.PathMTU, q.QKey, q.RecvPSN, q.SendPSN, q.DestQPN, q.Access = uint8(a.State), uint8(a.PathMTU), a.QKey, a.RecvPSN, a.SendPSN, a.DestQPN, a.Access
		q.Dest = uverbs.QPDest{DestGID: a.AH.DestGID, SourceGID: a.AH.SourceGID, Hop: a.AH.Hop, Global: a.AH.Global, Port: a.AH.Port}
		q.MaxRdAtomic, q.MaxDestRdAtomic, q.MinRNRTimer, q.Port = a.MaxRd, a.MaxDestRd, a.MinRNR, a.Port
		q.Timeout, q.RetryCount, q.RNRRetry = a.Timeout, a.Retry, a.RNRRetry
		do[none](e.client, uverbs.ModifyQP, q)
	}
}

const servicePort = 7174

// meet connects two programs as librdmacm does; ids are those of the connection.
func (h *house) meet(t testing.TB) (a, b *manager, x, y *ends, idA, idB, listener uint32) {
	t.Helper()
	a, b = h.manages(t, 0), h.manages(t, 1)
	x, y = h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	listener = b.listen(20, spaceTCP, servicePort)
	idA = a.create(10, spaceTCP)
	a.resolve(idA, netip.AddrPortFrom(ips[1], servicePort))
	a.bringUp(x, idA, 1)
	a.do(ucma.Connect, terms(x.qp.QPN, "hello"), idA, uint32(0), [2]uint32{})
	req := b.next(connectRequest)
	if idB = req.ID; req.UID != 20 || req.private(false) != "hello" {
		t.Errorf("request %d of %d with %q", req.ID, req.UID, req.private(false))
	}
	b.bringUp(y, idB, 1, 2, 3)
	b.do(ucma.Accept, uint64(21), terms(y.qp.QPN, "welcome"), idB, uint32(0), [2]uint32{})
	if rep := a.next(connectResponse); rep.UID != 10 || rep.private(false) != "welcome" {
		t.Errorf("reply of %d with %q", rep.UID, rep.private(false))
	}
	a.bringUp(x, idA, 1, 2, 3)
	a.do(ucma.Accept, uint64(0), param{}, idA, uint32(0), [2]uint32{})
	if est := b.next(eventEstablished); est.UID != 21 || est.ID != idB {
		t.Errorf("established %d of %d", est.ID, est.UID)
	}
	return a, b, x, y, idA, idB, listener
}

// Two programs connect, exchange data and part; the events that they have read are counted.
func TestMeet(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b, x, y, idA, idB, listener := h.meet(t)
	fill(x.buf[:5000], 3)
	y.receive(0, 5000)
	x.post(opSend, 0, 5000, 0, 0)
	x.succeeds()
	y.succeeds()
	if !bytes.Equal(x.buf[:5000], y.buf[:5000]) {
		t.Error("the bytes that arrived are others")
	}
	for range 2 { // both sides may end it
		a.do(ucma.Disconnect, idA)
	}
	a.next(eventDisconnected)
	b.next(eventDisconnected)
	b.do(ucma.Disconnect, idB)
	if n := a.destroy(idA); n != 4 {
		t.Errorf("%d events of the initiator, want address, route, reply and end", n)
	}
	if n := b.destroy(idB); n != 2 {
		t.Errorf("%d events of the responder, want established and end", n)
	}
	if n := b.destroy(listener); n != 1 {
		t.Errorf("%d events of the listener, want 1", n)
	}
	a.none()
	b.none()
}

// A connection ends when a program dies, and when its queue pair is destroyed.
func TestDeathOfOneSide(t *testing.T) {
	for name, end := range map[string]func(a *manager, x *ends){
		"program":    func(a *manager, x *ends) { a.close(); x.close() },
		"queue pair": func(_ *manager, x *ends) { do[none](x.client, uverbs.DestroyQP, uverbs.Handle{H: x.qp.H}, uint32(0)) },
		"channel":    func(a *manager, _ *ends) { a.raw(ucma.CloseChannel, a.channel) },
	} {
		h := newHouse(t, serve.Limits{})
		a, b, x, _, _, _, _ := h.meet(t)
		end(a, x)
		if e := b.next(eventDisconnected); e.UID != 21 {
			t.Errorf("%s: event %+v", name, e)
		}
	}
}

// What cannot be connected is refused, with the reason that a kernel gives.
func TestRefusals(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.manages(t, 0), h.manages(t, 1)
	x := h.attach(t, 0).queuePair(uverbs.TypeRC)
	to := netip.AddrPortFrom(ips[1], servicePort)
	id := a.create(10, spaceTCP)
	a.do(ucma.ResolveIP, [28]byte{}, sockaddr(netip.MustParseAddrPort("10.77.0.9:1")), id, uint32(1000))
	if e := a.next(addrError); int32(e.Status) >= 0 {
		t.Errorf("an address that is nowhere: %+v", e)
	}
	a.destroy(id)
	id = a.create(10, spaceTCP)
	if r, _ := a.raw(ucma.Connect, a.channel, terms(x.qp.QPN, ""), id, uint32(0)); unix.Errno(r.Errno) != unix.EINVAL {
		t.Errorf("connect in front of resolve: %v", unix.Errno(r.Errno))
	}
	a.resolve(id, to)
	if r, _ := a.raw(ucma.Connect, a.channel, terms(x.qp.QPN+1, ""), id, uint32(0)); unix.Errno(r.Errno) != unix.EINVAL {
		t.Errorf("a queue pair that is not the program's: %v", unix.Errno(r.Errno))
	}
	long := terms(x.qp.QPN, "")
	long.PrivateLen = 57
	if r, _ := a.raw(ucma.Connect, a.channel, long, id, uint32(0)); unix.Errno(r.Errno) != unix.EINVAL {
		t.Errorf("private data that do not fit: %v", unix.Errno(r.Errno))
	}
	a.do(ucma.Connect, terms(x.qp.QPN, ""), id, uint32(0))
	if e := a.next(eventRejected); e.Status != 8 {
		t.Errorf("nothing listens: %+v", e.Status)
	}
	listener := b.listen(20, spaceTCP, servicePort)
	id = a.create(11, spaceTCP)
	a.resolve(id, to)
	a.do(ucma.Connect, terms(x.qp.QPN, ""), id, uint32(0))
	req := b.next(connectRequest)
	no := make([]byte, 256)
	copy(no, "no")
	b.do(ucma.Reject, req.ID, [4]byte{2}, no)
	if e := a.next(eventRejected); e.Status != 28 || e.private(false) != "no" {
		t.Errorf("refused with %d, %q", e.Status, e.private(false))
	}
	other := b.create(30, spaceTCP)
	if r, _ := b.raw(ucma.BindIP, b.channel, uint64(0), sockaddr(to), other); unix.Errno(r.Errno) != unix.EADDRNOTAVAIL {
		t.Errorf("a port that is taken at all addresses: %v", unix.Errno(r.Errno))
	}
	// A connection request whose event the listener's program has not read: when the listener is
	// destroyed, the request is refused.
	id = a.create(12, spaceTCP)
	a.resolve(id, to)
	a.do(ucma.Connect, terms(x.qp.QPN, ""), id, uint32(0))
	for poll := []unix.PollFd{{Fd: int32(b.fds[b.channel]), Events: unix.POLLIN}}; ; {
		if n, err := unix.Poll(poll, 20000); err == nil && n == 1 {
			break
		}
	}
	b.destroy(listener)
	b.none()
	if e := a.next(eventRejected); e.UID != 12 {
		t.Errorf("event %+v", e)
	}
}

// A process cannot connect the queue pair of another one that has the same user and, as in another
// PID namespace, the same process ID.
func TestQueuePairOfAnotherProcess(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	x := h.attach(t, 0).queuePair(uverbs.TypeRC)
	to := netip.AddrPortFrom(ips[1], servicePort)
	for first, want := range map[string]unix.Errno{magic: 0, magic[:len(magic)-1] + "g": unix.EINVAL, magic[:len(magic)-len(token)] + "1" + token[1:]: unix.EINVAL} {
		m := h.managesAs(t, 0, uverbs.MagicManager+first[len(uverbs.Magic):])
		id := m.create(10, spaceTCP)
		m.resolve(id, to)
		if r, _ := m.raw(ucma.Connect, m.channel, terms(x.qp.QPN, ""), id, uint32(0)); unix.Errno(r.Errno) != want {
			t.Errorf("the process with %q: %v, want %v", first, unix.Errno(r.Errno), want)
		}
	}
}

// A datagram service names its queue pair.
func TestDatagramService(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.manages(t, 0), h.manages(t, 1)
	y := h.attach(t, 1).queuePair(uverbs.TypeUD)
	b.listen(20, spaceUDP, servicePort)
	id := a.create(10, spaceUDP)
	a.resolve(id, netip.AddrPortFrom(ips[1], servicePort))
	a.do(ucma.Connect, terms(0, "where"), id, uint32(0))
	req := b.next(connectRequest)
	if req.private(true) != "where" {
		t.Errorf("the question has %q", req.private(true))
	}
	b.do(ucma.Accept, uint64(21), terms(y.qp.QPN, "here"), req.ID, uint32(0))
	e := a.next(eventEstablished)
	qpn, qkey := binary.NativeEndian.Uint32(e.Param[:]), binary.NativeEndian.Uint32(e.Param[4:])
	if qpn != y.qp.QPN || qkey != ucma.DefaultQKey || verbs.GID(e.Param[8:24]) != verbs.GIDOf(ips[1]) || e.private(true) != "here" {
		t.Errorf("queue pair %#x, Q_Key %#x, private data %q", qpn, qkey, e.private(true))
	}
	a.destroy(id)
	id = a.create(11, spaceUDP)
	a.resolve(id, netip.AddrPortFrom(ips[1], servicePort+1))
	a.do(ucma.Connect, terms(0, ""), id, uint32(0))
	if e := a.next(eventUnreachable); e.Status == 0 {
		t.Errorf("no service: %+v", e)
	}
}

// A program has no more identifiers, memberships and unread events of librdmacm than its quotas
// say, and room again for what it gives back. A peer's request needs an identifier and an event,
// too. Programs beside it go on.
func TestManagerQuotas(t *testing.T) {
	const ids, joins, events = 6, 2, 4
	h := newHouse(t, serve.Limits{Manager: serve.ManagerLimits{IDs: ids, Joins: joins, Events: events}})
	greedy := h.manages(t, 1)
	refused := func(what string, op ucma.Op, args ...any) {
		t.Helper()
		if a, _ := greedy.raw(op, greedy.channel, args...); unix.Errno(a.Errno) != unix.ENOMEM {
			t.Errorf("%s: %v, want ENOMEM", what, unix.Errno(a.Errno))
		}
	}
	newID := []any{uint64(5), uint64(0), uint16(spaceTCP), [6]byte{}}
	listener := greedy.listen(50, spaceTCP, servicePort+1)
	member := greedy.create(51, spaceUDP)
	group := sockaddr(netip.MustParseAddrPort("239.1.2.3:0"))
	greedy.do(ucma.ResolveIP, [28]byte{}, group, member, uint32(1000))
	greedy.next(addrResolved)
	var last uint32
	for range joins {
		last = binary.NativeEndian.Uint32(greedy.do(ucma.JoinIPMulticast, uint64(0), uint64(7), group, member))
	}
	refused("one membership more", ucma.JoinIPMulticast, uint64(0), uint64(7), group, member)
	greedy.do(ucma.LeaveMulticast, uint64(0), last, uint32(0))
	last = binary.NativeEndian.Uint32(greedy.do(ucma.JoinIPMulticast, uint64(0), uint64(7), group, member))
	for i := range events - joins {
		greedy.do(ucma.ResolveIP, [28]byte{}, sockaddr(netip.AddrPortFrom(ips[0], 1)), greedy.create(uint64(60+i), spaceTCP), uint32(1000))
	}
	another := greedy.create(70, spaceTCP)
	refused("an event more, of an address", ucma.ResolveIP, [28]byte{}, sockaddr(netip.AddrPortFrom(ips[0], 1)), another, uint32(1000))
	greedy.create(71, spaceTCP)
	refused("one identifier more", ucma.CreateID, newID...)

	peer := h.manages(t, 0)
	x := h.attach(t, 0).queuePair(uverbs.TypeRC)
	knock := func(uid uint64) (id uint32) {
		id = peer.create(uid, spaceTCP)
		peer.resolve(id, netip.AddrPortFrom(ips[1], servicePort+1))
		peer.do(ucma.Connect, terms(x.qp.QPN, ""), id, uint32(0), [2]uint32{})
		return id
	}
	id := knock(30)
	if e := peer.next(eventRejected); e.UID != 30 {
		t.Errorf("event %+v", e)
	}
	peer.destroy(id)
	h.meet(t) // on the same NICs

	greedy.destroy(another)
	greedy.do(ucma.LeaveMulticast, uint64(0), last, uint32(0))
	id = knock(31)
	for range events - 1 { // in front of it
		greedy.do(ucma.GetEvent, uint64(0))
	}
	var e event
	_, err := binary.Decode(greedy.arrived(), binary.NativeEndian, &e)
	must(t, err)
	if e.Kind != connectRequest || e.UID != 50 {
		t.Errorf("event %+v, want a request", e)
	}
	refused("one identifier more, beside that of the request", ucma.CreateID, newID...)
	peer.destroy(id)
	greedy.destroy(listener)
	greedy.close()
	for end := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		used := map[string]int64{}
		for _, q := range h.servers[1].Quotas() {
			used[q.Name] = q.Used
		}
		// Of the programs that have met one is left on that NIC, with a listener and a connection.
		if used["ids"] == 2 && used["joins"] == 0 && used["events"] == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the programs have %v", used)
		}
	}
}

// An identifier moves to another channel with its events.
func TestMigrate(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a := h.manages(t, 0)
	id := a.create(10, spaceTCP)
	a.do(ucma.ResolveIP, [28]byte{}, sockaddr(netip.AddrPortFrom(ips[1], 1)), id, uint32(1000))
	first := a.channel
	second := a.open()
	a.channel = second
	if n := binary.NativeEndian.Uint32(a.do(ucma.MigrateID, uint64(0), id, uint32(0))); n != 0 {
		t.Errorf("%d events were read", n)
	}
	a.next(addrResolved)
	a.none()
	a.channel = first
	a.none()
	a.channel = second
	if n := a.destroy(id); n != 1 {
		t.Errorf("%d events were read", n)
	}
}

// Commands of random bytes, with identifiers that exist and others, are answered; the daemons go on,
// and nothing is left of the programs.
func TestRandomManagerCommands(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before := openFiles(t)
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 6))
		m := h.manages(t, 0)
		e := h.attach(t, 0).queuePair(uverbs.TypeRC)
		for range 4 {
			m.create(uint64(1+r.IntN(3)), []uint16{spaceTCP, spaceUDP}[r.IntN(2)])
		}
		for range 400 {
			args := make([]byte, r.IntN(320))
			for i := range args {
				if args[i] = byte(r.Uint32()); r.IntN(3) > 0 {
					args[i] &= 7
				}
				if r.IntN(4) > 0 && i%4 > 0 {
					args[i] = 0
				}
			}
			if len(args) >= 4 && r.IntN(2) == 0 {
				binary.NativeEndian.PutUint32(args, e.qp.QPN)
			}
			if len(args) >= 40 && r.IntN(2) == 0 {
				at := sockaddr(netip.AddrPortFrom(ips[r.IntN(2)], uint16(r.IntN(3))))
				copy(args[r.IntN(2)*8:], at[:])
			}
			_, fds := m.raw(ucma.Op(r.IntN(24)), m.channel, args)
			for _, fd := range fds {
				must(t, unix.Close(fd))
			}
		}
		if seed%2 == 0 {
			e.close()
		}
		m.close()
		e.close()
	}
	for end := time.Now().Add(20 * time.Second); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors more", openFiles(t)-before)
		}
	}
	h.meet(t)
	h.works(t)
}

// A message that is no command ends the connection; a program that gives descriptors is refused.
func TestWrongManager(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	m := h.manages(t, 0)
	_, err := m.conn.Write([]byte("none"))
	must(t, err)
	if _, _, _, ok := receive(t, m.conn); ok {
		t.Error("a message that is no command was answered")
	}
	_, errno, _, ok := hello(t, h.sockets[0], uverbs.MagicManager+magic[len(uverbs.Magic):], selfFiles(t, "/proc/self/maps"))
	if ok && errno == 0 {
		t.Error("a program that gives descriptors is served")
	}
	h.meet(t)
}
