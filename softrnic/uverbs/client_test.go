package uverbs_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/qpattr"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// client is a program as the daemon sees it: what the preloaded library and the rxe provider do,
// without them. It uses the memory of the test's process.
type client struct {
	t    testing.TB
	conn *net.UnixConn
	area []byte
	wake int
	ctl  *ring.Control
	fds  []int // all that came

	timeout uint8 // of queue pairs for an ACK, as a code of IBTA; see house
}

// selfFiles opens what the first message carries.
func selfFiles(t testing.TB, names ...string) (fds []int) {
	t.Helper()
	for _, n := range names {
		flags := unix.O_RDONLY
		if n == "/proc/self/mem" {
			flags = unix.O_RDWR
		}
		fd, err := unix.Open(n, flags|unix.O_CLOEXEC, 0)
		must(t, err)
		fds = append(fds, fd)
	}
	return fds
}

// hello sends a first message and returns the answer.
func hello(t testing.TB, socket, first string, fds []int) (conn *net.UnixConn, errno uint32, got []int, ok bool) {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, _, err = conn.WriteMsgUnix([]byte(first), unix.UnixRights(fds...), nil)
	must(t, err)
	for _, fd := range fds {
		must(t, unix.Close(fd))
	}
	data, errno, got, ok := receive(t, conn)
	if ok && errno == 0 && len(data) != 8 {
		t.Fatalf("%d bytes of welcome", len(data))
	}
	return conn, errno, got, ok
}

const magic = uverbs.Magic + "test\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + token

// token is that of the test's process.
const token = "0123456789abcdef"

func receive(t testing.TB, conn *net.UnixConn) (data []byte, errno uint32, fds []int, ok bool) {
	b, oob := make([]byte, 8192), make([]byte, 128)
	must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil || n < uverbs.AnswerLen {
		return nil, 0, nil, false
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	must(t, err)
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		must(t, err)
		fds = append(fds, got...)
	}
	return b[uverbs.AnswerLen:n], binary.NativeEndian.Uint32(b), fds, true
}

// attach is a program that has opened the device.
func (h *house) attach(t testing.TB, nic int) *client {
	t.Helper()
	return h.attachBy(t, nic, selfFiles(t, "/proc/self/mem", "/proc/self/maps"))
}

// attachBy is attach with these descriptors of memory and maps.
func (h *house) attachBy(t testing.TB, nic int, files []int) *client {
	t.Helper()
	return h.attachAs(t, nic, magic, files)
}

// attachAs is attachBy with this first message.
func (h *house) attachAs(t testing.TB, nic int, first string, files []int) *client {
	t.Helper()
	conn, errno, fds, ok := hello(t, h.sockets[nic], first, files)
	if !ok || errno != 0 || len(fds) != uverbs.WelcomeFDs {
		t.Fatalf("attach: %v, error %d, %d descriptors", ok, errno, len(fds))
	}
	var st unix.Stat_t
	must(t, unix.Fstat(fds[uverbs.WelcomeArea], &st))
	area, err := ring.Map(fds[uverbs.WelcomeArea], int(st.Size))
	must(t, err)
	c := &client{t: t, conn: conn, area: area, wake: fds[uverbs.WelcomeWake], ctl: ring.NewControl(area), fds: fds, timeout: h.timeout}
	t.Cleanup(c.close)
	return c
}

func (c *client) close() {
	for _, fd := range c.fds {
		must(c.t, unix.Close(fd))
	}
	c.fds = nil
	_ = c.conn.Close()
	if c.area != nil { // a child of fork has none of its own
		must(c.t, ring.Unmap(c.area))
		c.area = nil
	}
}

// raw sends the bytes of a command.
func (c *client) raw(op uverbs.Op, channel uint32, args []byte) (data []byte, errno unix.Errno) {
	c.t.Helper()
	return c.rawWith(op, channel, args)
}

// rawWith is raw with descriptors that go with the command.
func (c *client) rawWith(op uverbs.Op, channel uint32, args []byte, files ...int) (data []byte, errno unix.Errno) {
	c.t.Helper()
	data, errno, ok := c.try(op, channel, args, files...)
	if !ok {
		c.t.Fatalf("command %d: the daemon has ended the connection", op)
	}
	return data, errno
}

// try is rawWith for a program that the daemon may have cut off; then it returns false.
func (c *client) try(op uverbs.Op, channel uint32, args []byte, files ...int) (data []byte, errno unix.Errno, ok bool) {
	c.t.Helper()
	b := uverbs.Encode(channel, uint32(0), uint32(op), uint32(0))
	switch op {
	case uverbs.DeallocPD, uverbs.DestroyAH, uverbs.DeregMR, uverbs.DeallocMW, uverbs.ReqNotifyCQ, uverbs.ModifyQP, uverbs.ModifySRQ, uverbs.CloseXRCD, uverbs.Repost,
		uverbs.AttachMulticast, uverbs.DetachMulticast, uverbs.ShareMemory, uverbs.UnshareMemory:
	default:
		b = append(b, make([]byte, 8)...)
		if op&uverbs.Extended != 0 {
			b = append(b, make([]byte, 8)...)
		}
	}
	_, _, err := c.conn.WriteMsgUnix(append(b, args...), unix.UnixRights(files...), nil)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return nil, 0, false
	}
	must(c.t, err)
	data, no, fds, ok := receive(c.t, c.conn)
	c.fds = append(c.fds, fds...)
	return data, unix.Errno(no), ok
}

// do sends a command that must succeed.
func do[A any](c *client, op uverbs.Op, args ...any) (a A) {
	c.t.Helper()
	data, errno := c.raw(op, uverbs.NoChannel, uverbs.Encode(args...))
	if errno != 0 {
		c.t.Fatalf("command %d: %v", op, errno)
	}
	if _, err := binary.Decode(data, binary.NativeEndian, &a); err != nil {
		c.t.Fatalf("command %d answers %d bytes", op, len(data))
	}
	return a
}

// none is the answer of commands without any.
type none struct{}

// memory is mapped memory of the program.
func memory(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(b) }) // some tests have unmapped it
	return b
}

func addr(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// ends is a queue pair with what belongs to it.
type ends struct {
	*client
	typ        uint8
	pd, cq     uint32
	qp         uverbs.QP
	mr         uverbs.MR
	at         uint64      // of the region
	buf        []byte      // the region, if it is the test's
	send, recv uverbs.Ring // as the program sees them
	done       uverbs.Ring
	marked     uint32 // flags of the entries that post writes (enum ibv_send_flags)
}

const (
	testWRs  = 15
	testSGEs = 2
	allow    = 0xf
)

// view is a ring of the area, which the daemon has made.
func (c *client) view(a uverbs.Area) uverbs.Ring {
	b := c.area[a.Offset : a.Offset+uint64(a.Size)]
	entries, log2 := int(binary.NativeEndian.Uint32(b[4:])), binary.NativeEndian.Uint32(b)
	return uverbs.NewRing(b, entries, 1<<log2)
}

// made is a queue pair and the places of its rings.
type made struct {
	QP         uverbs.QP
	Recv, Send uverbs.Area
}

type madeCQ struct {
	CQ uverbs.CQ
	At uverbs.Area
}

func (c *client) queuePair(typ uint8) *ends {
	c.t.Helper()
	buf := memory(c.t, 1<<20)
	e := c.queuePairOn(typ, addr(buf), len(buf))
	e.buf = buf
	return e
}

// queuePairOn is queuePair with a region of n bytes at this address.
func (c *client) queuePairOn(typ uint8, at uint64, n int) *ends {
	c.t.Helper()
	e := &ends{client: c, typ: typ, at: at}
	e.pd = do[uverbs.Handle](c, uverbs.AllocPD).H
	e.mr = do[uverbs.MR](c, uverbs.RegMR, uverbs.RegMRArgs{Start: at, Length: uint64(n), VA: at, PD: e.pd, Access: allow})
	cq := do[madeCQ](c, uverbs.CreateCQ, uverbs.CQArgs{User: 7, CQE: 63, Channel: -1})
	e.cq, e.done = cq.CQ.H, c.view(cq.At)
	qp := do[made](c, uverbs.CreateQP, uverbs.QPArgs{
		User: 9, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: testWRs, MaxRecv: testWRs, MaxSGE: testSGEs, MaxRecvSGE: testSGEs, SignalAll: 1, Type: typ,
	})
	e.qp, e.send, e.recv = qp.QP, c.view(qp.Send), c.view(qp.Recv)
	return e
}

// needs is the mask of a transition: the state, and the attributes that it needs.
func needs(typ, from, to uint8) uint32 {
	service, ok := services[typ]
	if !ok {
		service = map[uint8]verbs.QPType{uverbs.TypeXRCInitiator: verbs.XRCInitiator, uverbs.TypeXRCTarget: verbs.XRCTarget}[typ]
	}
	must, _ := qpattr.Of(service, verbs.QPState(from), verbs.QPState(to))
	return uint32(must | qpattr.State)
}

// connect brings a queue pair to RTS.
func (e *ends) connect(to *ends, ip int) {
	e.t.Helper()
	m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: needs(e.typ, 0, 1)}
	m.State, m.Access, m.Port = 1, allow&^1, 1
	do[none](e.client, uverbs.ModifyQP, m)
	m.Mask, m.State, m.PathMTU, m.DestQPN, m.MaxDestRdAtomic, m.MinRNRTimer = needs(e.typ, 1, 2), 2, 3, to.qp.QPN, 4, 12
	m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[ip]), 1, 1
	do[none](e.client, uverbs.ModifyQP, m)
	m.Mask, m.State, m.Timeout, m.RetryCount, m.RNRRetry, m.MaxRdAtomic = needs(e.typ, 2, 3), 3, e.timeout, 7, 7, 4
	do[none](e.client, uverbs.ModifyQP, m)
}

// linked is two programs with connected queue pairs.
func (h *house) linked(t testing.TB, typ uint8) (a, b *ends) {
	t.Helper()
	a, b = h.attach(t, 0).queuePair(typ), h.attach(t, 1).queuePair(typ)
	a.connect(b, 1)
	b.connect(a, 0)
	return a, b
}

// Operations of the ABI.
const (
	opWrite = 0
	opSend  = 2
	opRead  = 4
	opCAS   = 5
	opAdd   = 6

	opFlush       = 14
	opAtomicWrite = 15
)

// post puts a send entry into the ring and rings the bell.
func (e *ends) post(op uint32, off, n int, remote uint64, rkey uint32, more ...uint64) {
	i := e.send.Producer()
	s := e.send.Slot(i)
	clear(s)
	binary.NativeEndian.PutUint64(s, uint64(off))
	binary.NativeEndian.PutUint32(s[12:], op)
	binary.NativeEndian.PutUint32(s[16:], e.marked)
	binary.NativeEndian.PutUint64(s[24:], remote)
	binary.NativeEndian.PutUint32(s[32:], rkey)
	for k, v := range more { // of an atomic
		binary.NativeEndian.PutUint64(s[32+8*k:], v)
		binary.NativeEndian.PutUint32(s[48:], rkey)
	}
	binary.NativeEndian.PutUint32(s[184:], uint32(n))
	binary.NativeEndian.PutUint32(s[196:], 1)
	e.piece(s[208:], off, n)
	e.send.SetProducer(i + 1)
	e.bell(e.qp.H)
}

// postWord puts an ATOMIC_WRITE into the ring, as librxe writes it, and rings the bell.
func (e *ends) postWord(v, remote uint64, rkey uint32) {
	i := e.send.Producer()
	s := e.send.Slot(i)
	clear(s)
	binary.NativeEndian.PutUint32(s[12:], opAtomicWrite)
	binary.NativeEndian.PutUint64(s[24:], remote)
	binary.NativeEndian.PutUint32(s[32:], rkey)
	binary.NativeEndian.PutUint32(s[184:], 8)
	binary.NativeEndian.PutUint64(s[208:], v)
	e.send.SetProducer(i + 1)
	e.bell(e.qp.H)
}

// postFlush puts a FLUSH into the ring, as librxe writes it from rdma-core 46 on, and rings the
// bell.
func (e *ends) postFlush(remote uint64, n, rkey uint32, types, level byte) {
	i := e.send.Producer()
	s := e.send.Slot(i)
	clear(s)
	binary.NativeEndian.PutUint32(s[12:], opFlush)
	binary.NativeEndian.PutUint64(s[24:], remote)
	binary.NativeEndian.PutUint32(s[184:], n)
	binary.NativeEndian.PutUint32(s[36:], rkey)
	s[40], s[41] = types, level
	e.send.SetProducer(i + 1)
	e.bell(e.qp.H)
}

func (c *client) bell(n uint32) {
	if c.ctl.Ring(n) {
		_ = unix.Sendto(c.wake, []byte{0}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
}

func (e *ends) piece(b []byte, off, n int) {
	binary.NativeEndian.PutUint64(b, e.at+uint64(off))
	binary.NativeEndian.PutUint32(b[8:], uint32(n))
	binary.NativeEndian.PutUint32(b[12:], e.mr.LKey)
}

// receive puts a receive into the ring.
func (e *ends) receive(off, n int) {
	i := e.recv.Producer()
	s := e.recv.Slot(i)
	clear(s)
	binary.NativeEndian.PutUint64(s, uint64(off))
	binary.NativeEndian.PutUint32(s[28:], 1)
	e.piece(s[40:], off, n)
	e.recv.SetProducer(i + 1)
}

// completion is one as the program reads it.
type completion struct {
	ID             uint64
	Status, Opcode uint32
	Vendor, Len    uint32
	Imm, QPN       uint32
	From, Flags    uint32
	_, _           uint16 // index of the P_Key, LID
	SL             uint8
}

// next waits for a completion.
func (e *ends) next() (c completion) {
	e.t.Helper()
	for end := time.Now().Add(20 * time.Second); e.done.Consumer() == e.done.Producer(); runtime.Gosched() {
		if time.Now().After(end) {
			e.t.Fatal("no completion")
		}
	}
	i := e.done.Consumer()
	_, err := binary.Decode(e.done.Slot(i), binary.NativeEndian, &c)
	must(e.t, err)
	e.done.SetConsumer(i + 1)
	return c
}

// succeeds waits for a completion without error.
func (e *ends) succeeds() completion {
	e.t.Helper()
	c := e.next()
	if c.Status != 0 {
		e.t.Fatalf("completion %+v: %v", c, verbs.Status(c.Status))
	}
	return c
}

// openFiles is how many descriptors this process has.
func openFiles(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(d)
}
