package uverbs_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// xrcEnds are a program's XRC domain, a shared receive queue and a target in it.
type xrcEnds struct {
	domain  uint32
	srq     madeSRQ
	receive uverbs.Ring
	target  uverbs.QP
}

// madeSRQ is a shared receive queue and the place of its ring.
type madeSRQ struct {
	SRQ uverbs.SRQ
	At  uverbs.Area
}

// openXRCD opens the domain of a file; "" makes a private one.
func (c *client) openXRCD(file string, flags uint32) (uint32, unix.Errno) {
	c.t.Helper()
	var fds []int
	args := uverbs.XRCDArgs{FD: -1, Flags: flags}
	if file != "" {
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0) // os.Open would ask for attributes
		must(c.t, err)
		defer func() { must(c.t, unix.Close(fd)) }()
		fds, args.FD = []int{fd}, 5
	}
	data, errno := c.rawWith(uverbs.OpenXRCD, uverbs.NoChannel, uverbs.Encode(args), fds...)
	if errno != 0 {
		return 0, errno
	}
	return binary.NativeEndian.Uint32(data), 0
}

func (c *client) target(domain uint32) uverbs.QP {
	c.t.Helper()
	return do[uverbs.QP](c, uverbs.CreateQP, uverbs.QPArgs{User: 21, PD: domain, Type: uverbs.TypeXRCTarget, Own: 1})
}

// xrc makes a shared receive queue of XRC, whose receives name the region of e, and a target.
func (e *ends) xrc(t testing.TB, file string) *xrcEnds {
	t.Helper()
	domain, errno := e.openXRCD(file, unix.O_CREAT)
	if errno != 0 {
		t.Fatal(errno)
	}
	x := &xrcEnds{domain: domain, srq: do[madeSRQ](e.client, uverbs.CreateXSRQ, uverbs.XSRQArgs{
		User: 20, Type: uverbs.SRQXRC, PD: e.pd, MaxWR: testWRs, MaxSGE: testSGEs, XRCD: domain, CompleteQ: e.cq,
	})}
	x.receive = e.view(x.srq.At)
	e.recv = x.receive
	x.target = e.target(domain)
	return x
}

// initiator makes the queue pair of e one that sends by XRC.
func (c *client) initiator() *ends {
	c.t.Helper()
	e := c.queuePair(uverbs.TypeRC)
	qp := do[made](c, uverbs.CreateQP, uverbs.QPArgs{User: 9, PD: e.pd, SendCQ: e.cq, MaxSend: testWRs, MaxSGE: testSGEs, SignalAll: 1, Type: uverbs.TypeXRCInitiator, Own: 1})
	e.qp, e.send, e.typ = qp.QP, c.view(qp.Send), uverbs.TypeXRCInitiator
	if qp.Recv.Size != 0 {
		c.t.Errorf("an initiator has a ring of receives: %+v", qp.Recv)
	}
	return e
}

// as returns e with another queue pair, for connect.
func (e *ends) as(qp uverbs.QP) *ends {
	o := *e
	o.qp, o.typ = qp, uverbs.TypeXRCTarget
	return &o
}

// sendTo sends n bytes to a shared receive queue.
func (e *ends) sendTo(srqn uint32, off, n int) {
	i := e.send.Producer()
	s := e.send.Slot(i)
	clear(s)
	binary.NativeEndian.PutUint32(s[12:], opSend)
	binary.NativeEndian.PutUint32(s[72:], srqn)
	binary.NativeEndian.PutUint32(s[196:], 1)
	e.piece(s[208:], off, n)
	e.send.SetProducer(i + 1)
	e.bell(e.qp.H)
}

func xrcFile(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "xrcd")
	must(t, os.WriteFile(file, nil, 0o600))
	return file
}

// objects are those of a NIC.
func (h *house) objects(nic int) (o engine.Objects) {
	h.devices[nic].With(func(e *engine.Engine) { o = e.Tables.Objects() })
	return o
}

// empties waits until a NIC has the objects of before, and this process as many descriptors.
func (h *house) empties(t testing.TB, nic int, before engine.Objects, files int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); h.objects(nic) != before || openFiles(t) > files; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the NIC has %+v, at first %+v; %d descriptors, at first %d", h.objects(nic), before, openFiles(t), files)
		}
	}
}

// Programs share a domain by a file: a connection leads to the queues of both. The target outlives the program
// that has made it while the other has it open, and what the dead one had alone ends (annex A14).
func TestXRCOfTwoPrograms(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before, files, file := h.objects(1), openFiles(t), xrcFile(t)
	sender := h.attach(t, 0).initiator()
	maker, other := h.attach(t, 1).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	x := maker.xrc(t, file)
	y := other.xrc(t, file)
	sender.connect(maker.as(x.target), 1)
	maker.as(x.target).connect(sender, 0)
	opened := do[uverbs.QP](other.client, uverbs.OpenQP, uverbs.OpenQPArgs{User: 22, XRCD: y.domain, QPN: x.target.QPN, Type: uverbs.TypeXRCTarget})
	if opened.QPN != x.target.QPN || opened.H < uverbs.FirstTarget {
		t.Fatalf("opened %+v", opened)
	}
	reaches := func(e *ends, srqn uint32, off int) {
		t.Helper()
		fill(sender.buf[:100], byte(off))
		e.receive(off, 100)
		sender.sendTo(srqn, 0, 100)
		sender.succeeds()
		if c := e.succeeds(); c.QPN != x.target.QPN || c.Len != 100 || !bytes.Equal(e.buf[off:off+100], sender.buf[:100]) {
			t.Errorf("%+v", c)
		}
	}
	reaches(maker, x.srq.SRQ.Num, 200)
	reaches(other, y.srq.SRQ.Num, 400)
	if a := do[uverbs.QPAttr](other.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: opened.H}); a.State != 3 || a.DestQPN != sender.qp.QPN || a.MinRNRTimer != 12 {
		t.Errorf("the target as the other program sees it: %+v", a)
	}
	maker.close()
	h.leftOn(t, 1, 1)
	reaches(other, y.srq.SRQ.Num, 600)
	other.end(uverbs.CloseXRCD, y.domain, unix.EBUSY)
	sender.sendTo(x.srq.SRQ.Num, 0, 8)
	if c := sender.next(); verbs.Status(c.Status) != verbs.RemInvReqErr {
		t.Errorf("the queue of a program that has ended: %v", verbs.Status(c.Status))
	}
	other.close()
	sender.close()
	h.empties(t, 1, before, files)
}

// visible returns the completions that wait in the ring and that a provider shows.
func (e *ends) visible() (ids []uint64) {
	for i := e.done.Consumer(); i != e.done.Producer(); i = (i + 1) & uint32(e.done.Cap()) {
		if s := e.done.Slot(i); !uverbs.Withdrawn(s) {
			ids = append(ids, binary.NativeEndian.Uint64(s))
		}
	}
	return ids
}

// A target that is reset takes its completions out of the rings of all programs, also those that still wait in
// the NIC's queue; completions of others stay, also in a ring of another size.
func TestXRCResetWithdrawsCompletions(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	file := xrcFile(t)
	first, second := h.attach(t, 0).initiator(), h.attach(t, 0).initiator()
	maker, other := h.attach(t, 1).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	x, y := maker.xrc(t, file), other.xrc(t, file)
	kept := other.target(y.domain)
	for from, to := range map[*ends]*ends{first: maker.as(x.target), second: other.as(kept)} {
		from.connect(to, 1)
		to.connect(from, 0)
	}
	send := func(from *ends, ids ...int) {
		t.Helper()
		for _, id := range ids {
			other.receive(id, 8)
			from.sendTo(y.srq.SRQ.Num, 0, 8)
			from.succeeds()
		}
	}
	send(first, 1, 2)
	send(second, 3)
	send(first, 4)
	send(second, 5)
	full := other.done.Cap()
	for n := 5; n < full+3; n++ { // the last ones do not fit into the ring
		send(first, 100+n)
	}
	for end := time.Now().Add(20 * time.Second); len(other.visible()) < full; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d completions have come", len(other.visible()))
		}
	}
	maker.as(x.target).toReset()
	if ids := other.visible(); !slices.Equal(ids, []uint64{3, 5}) {
		t.Errorf("left are %v", ids)
	}
	data, errno := other.raw(uverbs.ResizeCQ, uverbs.NoChannel, uverbs.Encode(uverbs.ResizeCQArgs{H: other.cq, CQE: 3}))
	if errno != 0 {
		t.Fatalf("a ring for the two that are left: %v", errno)
	}
	var at uverbs.Area
	_, err := binary.Decode(data[8:], binary.NativeEndian, &at)
	must(t, err)
	other.done = other.filled(at)
	send(second, 6)
	for _, id := range []uint64{3, 5, 6} {
		if c := other.succeeds(); c.ID != id || c.QPN != kept.QPN {
			t.Errorf("%+v, want %d", c, id)
		}
	}
}

// A domain ends with its last handle: in any order, also if programs die with all of it.
func TestXRCDomainsEnd(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before, files, file := h.objects(0), openFiles(t), xrcFile(t)
	for i := range 8 {
		a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 0).queuePair(uverbs.TypeRC)
		if _, errno := a.openXRCD(file, 0); errno != unix.EAGAIN {
			t.Fatalf("round %d: the domain is still there: %v", i, errno)
		}
		x := a.xrc(t, file)
		if _, errno := b.openXRCD(file, unix.O_CREAT|unix.O_EXCL); errno != unix.EINVAL {
			t.Errorf("O_EXCL: %v", errno)
		}
		y := b.xrc(t, file)
		do[uverbs.QP](b.client, uverbs.OpenQP, uverbs.OpenQPArgs{XRCD: y.domain, QPN: x.target.QPN, Type: uverbs.TypeXRCTarget})
		a.xrc(t, "")
		if i%2 == 0 {
			a.end(uverbs.DestroyQP, x.target.H, 0)
			a.end(uverbs.DestroySRQ, x.srq.SRQ.H, 0)
			a.end(uverbs.CloseXRCD, x.domain, 0)
			a.end(uverbs.CloseXRCD, x.domain, unix.EINVAL)
		}
		first, second := a, b
		if i%4 > 1 {
			first, second = b, a
		}
		first.close()
		second.close()
		h.empties(t, 0, before, files)
	}
}

// A descriptor that does not come, is not one alone, or is of no open file names no domain, and is closed.
func TestXRCDescriptors(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c, file := h.attach(t, 0), xrcFile(t)
	before := openFiles(t)
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	bare, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	args := uverbs.Encode(uverbs.XRCDArgs{FD: 5, Flags: unix.O_CREAT})
	for name, fds := range map[string][]int{"none": nil, "two": {fd, fd}, "many": {fd, fd, fd, fd, fd, fd, fd, fd, fd, fd}, "not open": {bare}} {
		if _, errno := c.rawWith(uverbs.OpenXRCD, uverbs.NoChannel, args, fds...); errno != unix.EBADF {
			t.Errorf("%s: %v", name, errno)
		}
	}
	for _, op := range []uverbs.Op{uverbs.AllocPD, uverbs.QueryDevice} {
		if _, errno := c.rawWith(op, uverbs.NoChannel, nil, fd, fd, fd); errno != 0 {
			t.Errorf("command %d with descriptors: %v", op, errno)
		}
	}
	must(t, unix.Close(fd))
	must(t, unix.Close(bare))
	for end := time.Now().Add(20 * time.Second); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors more", openFiles(t)-before)
		}
	}
}

// A message without a byte ends the connection; descriptors that came with it are closed.
func TestDescriptorsOfAnEmptyMessage(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	fd, err := unix.Open(xrcFile(t), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	// last lets 5 programs come, and go with an empty message that has these descriptors.
	last := func(fds ...int) {
		for range 5 {
			c := h.attach(t, 0)
			raw, err := c.conn.SyscallConn()
			must(t, err)
			must(t, raw.Write(func(s uintptr) bool {
				must(t, sendEmpty(int(s), unix.UnixRights(fds...)))
				return true
			}))
			_, _, _, ok := receive(t, c.conn)
			if ok {
				t.Fatal("the daemon answers an empty message")
			}
			must(t, c.conn.Close())
		}
	}
	before := openFiles(t)
	last(fd)
	kept := openFiles(t) - before // what the test's own ends keep, and at most one descriptor a program
	last(fd, fd, fd, fd, fd, fd, fd, fd)
	for end := time.Now().Add(20 * time.Second); openFiles(t) > before+2*kept; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors more, and then %d", kept, openFiles(t)-before-kept)
		}
	}
	must(t, unix.Close(fd))
}

// sendEmpty sends a message without data; unix.Sendmsg adds a byte to one.
func sendEmpty(s int, oob []byte) error {
	m := unix.Msghdr{Control: &oob[0]}
	m.SetControllen(len(oob))
	_, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(s), uintptr(unsafe.Pointer(&m)), unix.MSG_NOSIGNAL)
	if errno != 0 {
		return errno
	}
	return nil
}

// The commands without the mark of this project's provider, and with wrong handles, types and numbers.
func TestXRCRefusals(t *testing.T) {
	h := newHouse(t, serve.Limits{PDs: 3, QPs: 4})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	x := e.xrc(t, "")
	qp := uverbs.QPArgs{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 4, MaxSGE: 1}
	of := func(typ, own uint8, domain uint32) uverbs.QPArgs {
		a := qp
		a.Type, a.Own, a.PD = typ, own, domain
		return a
	}
	srq := uverbs.XSRQArgs{Type: uverbs.SRQXRC, PD: e.pd, MaxWR: 4, MaxSGE: 1, XRCD: x.domain, CompleteQ: e.cq}
	wrong := func(change func(a *uverbs.XSRQArgs)) uverbs.XSRQArgs {
		a := srq
		change(&a)
		return a
	}
	for _, c := range []struct {
		name string
		op   uverbs.Op
		args any
		want unix.Errno
	}{
		{"an initiator of another provider", uverbs.CreateQP, of(uverbs.TypeXRCInitiator, 0, e.pd), unix.EOPNOTSUPP},
		{"a target of another provider", uverbs.CreateQP, of(uverbs.TypeXRCTarget, 0, x.domain), unix.EOPNOTSUPP},
		{"a target without a domain", uverbs.CreateQP, of(uverbs.TypeXRCTarget, 1, 77), unix.EINVAL},
		{"another type of queue", uverbs.CreateXSRQ, wrong(func(a *uverbs.XSRQArgs) { a.Type = 2 }), unix.EOPNOTSUPP},
		{"no such domain", uverbs.CreateXSRQ, wrong(func(a *uverbs.XSRQArgs) { a.XRCD = 77 }), unix.EINVAL},
		{"no such completion queue", uverbs.CreateXSRQ, wrong(func(a *uverbs.XSRQArgs) { a.CompleteQ = 77 }), unix.EINVAL},
		{"no such queue pair", uverbs.OpenQP, uverbs.OpenQPArgs{XRCD: x.domain, QPN: 1, Type: uverbs.TypeXRCTarget}, unix.EINVAL},
		{"a queue pair that is no target", uverbs.OpenQP, uverbs.OpenQPArgs{XRCD: x.domain, QPN: e.qp.QPN, Type: uverbs.TypeXRCTarget}, unix.EINVAL},
		{"another type of queue pair", uverbs.OpenQP, uverbs.OpenQPArgs{XRCD: x.domain, QPN: x.target.QPN, Type: uverbs.TypeRC}, unix.EINVAL},
		{"an open of no domain", uverbs.OpenQP, uverbs.OpenQPArgs{XRCD: 77, QPN: x.target.QPN, Type: uverbs.TypeXRCTarget}, unix.EINVAL},
		{"a post of a target", uverbs.PostSend, uverbs.Handle{H: x.target.H}, unix.EINVAL},
		{"a send ring of a target", uverbs.UseRing, uverbs.RingArgs{H: x.target.H}, unix.EOPNOTSUPP},
		{"a group of a target", uverbs.AttachMulticast, uverbs.MulticastArgs{H: x.target.H, Group: [16]byte{0: 0xff, 15: 1}}, unix.EINVAL},
	} {
		if _, errno := e.raw(c.op, uverbs.NoChannel, uverbs.Encode(c.args)); errno != c.want {
			t.Errorf("%s: %v, want %v", c.name, errno, c.want)
		}
	}
	open := uverbs.OpenQPArgs{XRCD: x.domain, QPN: x.target.QPN, Type: uverbs.TypeXRCTarget}
	var handles []uint32
	for range 2 {
		handles = append(handles, do[uverbs.QP](e.client, uverbs.OpenQP, open).H)
		if _, errno := e.openXRCD("", 0); errno != 0 {
			t.Error(errno)
		}
	}
	if _, errno := e.raw(uverbs.OpenQP, uverbs.NoChannel, uverbs.Encode(open)); errno != unix.ENOMEM {
		t.Errorf("one more handle of a target: %v", errno)
	}
	if _, errno := e.openXRCD("", 0); errno != unix.ENOMEM {
		t.Errorf("one more domain: %v", errno)
	}
	for _, handle := range append(handles, x.target.H) {
		e.end(uverbs.CloseXRCD, x.domain, unix.EBUSY)
		e.end(uverbs.DestroyQP, handle, 0)
		e.end(uverbs.DestroyQP, handle, unix.EINVAL)
	}
	e.end(uverbs.CloseXRCD, x.domain, unix.EBUSY)
	e.end(uverbs.DestroySRQ, x.srq.SRQ.H, 0)
	e.end(uverbs.CloseXRCD, x.domain, 0)
	h.works(t)
}

// A domain that has ended with its NIC can be closed in any order, and its file names a new one afterwards.
func TestXRCEndsWithTheNIC(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	file, used := xrcFile(t), h.used()
	a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 0).queuePair(uverbs.TypeRC)
	x := a.xrc(t, file)
	h.devices[0].Down()
	h.devices[0].Up()
	before, files := h.objects(0), openFiles(t)
	if _, errno := b.openXRCD(file, 0); errno != unix.EAGAIN {
		t.Errorf("a domain that has ended: %v", errno)
	}
	gone := uverbs.OpenQPArgs{XRCD: x.domain, QPN: x.target.QPN, Type: uverbs.TypeXRCTarget}
	if _, errno := a.raw(uverbs.OpenQP, uverbs.NoChannel, uverbs.Encode(gone)); errno != unix.EIO {
		t.Errorf("a target that has ended with the NIC is opened: %v", errno)
	}
	c := h.attach(t, 0).queuePair(uverbs.TypeRC)
	y := c.xrc(t, file)
	if d, errno := b.openXRCD(file, 0); errno != 0 {
		t.Errorf("the new domain: %v", errno)
	} else {
		do[uverbs.QP](b.client, uverbs.OpenQP, uverbs.OpenQPArgs{XRCD: d, QPN: y.target.QPN, Type: uverbs.TypeXRCTarget})
	}
	a.end(uverbs.CloseXRCD, x.domain, 0)
	a.end(uverbs.DestroyQP, x.target.H, 0)
	a.end(uverbs.DestroySRQ, x.srq.SRQ.H, 0)
	if _, errno := b.openXRCD(file, 0); errno != 0 {
		t.Errorf("the new domain has ended with the old one: %v", errno)
	}
	c.close()
	b.close()
	h.empties(t, 0, before, files)
	a.close()
	h.left(t, 0)
	if d := h.more(used); len(d) > 0 {
		t.Errorf("at the end %v are used", d)
	}
}
