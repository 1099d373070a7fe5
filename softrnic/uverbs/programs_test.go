package uverbs_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
}

// Work requests in the rings of two programs move data between their memories.
func TestOperations(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	const n = 10000
	fill(a.buf[:n], 1)
	b.receive(20000, n)
	a.post(opSend, 0, n, 0, 0)
	if c := a.succeeds(); c.Opcode != 0 || c.ID != 0 || c.QPN != a.qp.QPN {
		t.Errorf("send: %+v", c)
	}
	if c := b.succeeds(); c.Opcode != 128 || c.ID != 20000 || c.Len != n || !bytes.Equal(b.buf[20000:20000+n], a.buf[:n]) || c.SL != 0 {
		t.Errorf("receive: %+v", c)
	}
	fill(a.buf[:n], 2)
	a.post(opWrite, 0, n, addr(b.buf)+50000, b.mr.RKey)
	a.succeeds()
	if !bytes.Equal(b.buf[50000:50000+n], a.buf[:n]) {
		t.Error("the written bytes are others")
	}
	a.post(opRead, 60000, n, addr(b.buf)+50000, b.mr.RKey)
	if c := a.succeeds(); c.Opcode != 2 || !bytes.Equal(a.buf[60000:60000+n], a.buf[:n]) {
		t.Errorf("read: %+v", c)
	}
	word := b.buf[1024:1032]
	binary.NativeEndian.PutUint64(word, 40)
	a.post(opAdd, 1024, 8, addr(word), b.mr.RKey, 2)
	a.succeeds()
	a.post(opCAS, 2048, 8, addr(word), b.mr.RKey, 42, 99)
	a.succeeds()
	if got := [3]uint64{
		binary.NativeEndian.Uint64(a.buf[1024:]), binary.NativeEndian.Uint64(a.buf[2048:]), binary.NativeEndian.Uint64(word),
	}; got != [3]uint64{40, 42, 99} {
		t.Errorf("atomics: %v", got)
	}
	for range 100 { // the rings go round
		b.receive(0, 64)
		a.post(opSend, 64, 64, 0, 0)
		a.succeeds()
		b.succeeds()
	}
}

// An ATOMIC_WRITE of a program sets a word, and its completion says so. One that is not aligned is
// not executed; one of memory that is gone is an error.
func TestAtomicWrite(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	fill(b.buf[1024:1048], 3)
	want := append([]byte(nil), b.buf[1024:1048]...)
	binary.NativeEndian.PutUint64(want[8:], 0x1122334455667788)
	a.postWord(0x1122334455667788, addr(b.buf)+1032, b.mr.RKey)
	if c := a.succeeds(); c.Opcode != 9 || !bytes.Equal(b.buf[1024:1048], want) {
		t.Errorf("ATOMIC_WRITE: %+v; the words are % x, want % x", c, b.buf[1024:1048], want)
	}
	a.postWord(7, addr(b.buf)+1036, b.mr.RKey)
	if c := a.next(); c.Status == 0 || !bytes.Equal(b.buf[1024:1048], want) {
		t.Errorf("misaligned: %v; the words are % x", verbs.Status(c.Status), b.buf[1024:1048])
	}
	a, b = h.linked(t, uverbs.TypeRC)
	must(t, unix.Munmap(b.buf))
	a.postWord(7, addr(b.buf)+1032, b.mr.RKey)
	if c := a.next(); verbs.Status(c.Status) != verbs.RemAccessErr {
		t.Errorf("of unmapped memory: %v", verbs.Status(c.Status))
	}
}

// A FLUSH of a program to global visibility completes if region and queue pair allow it. The NIC
// offers none to persistence: regions with that right are refused. A queue pair may have the right;
// then the NAK is that of the region.
func TestFlush(t *testing.T) {
	const global, persistent = 1 << 8, 1 << 9
	h := newHouse(t, serve.Limits{})
	var d struct {
		uverbs.Device
		Ex uverbs.ExDevice
	}
	for i, c := range []struct {
		right, queue uint32
		n            uint32
		types, level byte
		want         verbs.Status
	}{
		{global | 1, global, 64, 1, 0, verbs.Success},
		{global, global, 65, 1, 0, verbs.RemAccessErr},
		{global, global, 65, 1, 1, verbs.Success},
		{3, global, 64, 1, 0, verbs.RemAccessErr},
		{global, 2, 64, 1, 0, verbs.RemInvReqErr},
		{global, global, 64, 2, 0, verbs.RemInvReqErr},
		{global, global | persistent, 64, 1, 0, verbs.Success},
		{global, global | persistent, 64, 2, 0, verbs.RemAccessErr}, // the region is asked, which has no such right
		{global, global | persistent, 64, 3, 0, verbs.RemAccessErr},
		{global, persistent, 64, 3, 0, verbs.RemInvReqErr},
		{global, global, 64, 4, 0, verbs.LocQPOpErr},
		{global, global, 64, 1, 2, verbs.LocQPOpErr},
		{global, global, 64, 0, 0, verbs.LocQPOpErr},
	} {
		a, b := h.linked(t, uverbs.TypeRC)
		d = do[struct {
			uverbs.Device
			Ex uverbs.ExDevice
		}](a.client, uverbs.QueryDevice|uverbs.Extended)
		mr := do[uverbs.MR](b.client, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(b.buf), Length: 64, VA: addr(b.buf), PD: b.pd, Access: c.right})
		m := uverbs.ModifyQPArgs{H: b.qp.H, Mask: uverbs.MaskAccess}
		m.Access = c.queue
		do[none](b.client, uverbs.ModifyQP, m)
		a.postFlush(addr(b.buf), c.n, mr.RKey, c.types, c.level)
		got := a.next()
		if verbs.Status(got.Status) != c.want || c.want == verbs.Success && got.Opcode != 8 {
			t.Errorf("case %d: %+v: %v, want %v", i, got, verbs.Status(got.Status), c.want)
		}
		_, errno := b.raw(uverbs.RegMR, uverbs.NoChannel, uverbs.Encode(uverbs.RegMRArgs{Start: addr(b.buf), Length: 64, VA: addr(b.buf), PD: b.pd, Access: persistent}))
		if errno != unix.EOPNOTSUPP {
			t.Errorf("a region to flush to persistence: %v", errno)
		}
	}
	if caps := d.Ex.CapFlagsEx >> 38 & 7; caps != 5 {
		t.Errorf("capabilities %#x: want FLUSH to global visibility and ATOMIC_WRITE", d.Ex.CapFlagsEx)
	}
}

// Memory that the program has unmapped is an error of the work request that names it, at either
// end, and nothing else.
func TestMemoryThatIsGone(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	must(t, unix.Munmap(b.buf))
	a.post(opWrite, 0, 100, addr(b.buf), b.mr.RKey)
	if c := a.next(); verbs.Status(c.Status) != verbs.RemAccessErr {
		t.Errorf("WRITE to unmapped memory: %v", verbs.Status(c.Status))
	}
	for _, op := range []uint32{opRead, opAdd} {
		a, b := h.linked(t, uverbs.TypeRC)
		must(t, unix.Munmap(b.buf))
		a.post(op, 0, 8, addr(b.buf), b.mr.RKey, 1)
		if op == opRead {
			a.post(op, 0, 8, addr(b.buf), b.mr.RKey)
		}
		if c := a.next(); verbs.Status(c.Status) != verbs.RemAccessErr {
			t.Errorf("operation %d on unmapped memory: %v", op, verbs.Status(c.Status))
		}
	}
	a, b = h.linked(t, uverbs.TypeRC)
	must(t, unix.Munmap(a.buf))
	a.post(opWrite, 0, 100, addr(b.buf), b.mr.RKey)
	if c := a.next(); verbs.Status(c.Status) != verbs.LocProtErr {
		t.Errorf("WRITE from unmapped memory: %v", verbs.Status(c.Status))
	}
	a, b = h.linked(t, uverbs.TypeRC)
	b.receive(0, 100)
	must(t, unix.Munmap(b.buf))
	a.post(opSend, 0, 100, 0, 0)
	if c := a.next(); verbs.Status(c.Status) != verbs.RemOpErr {
		t.Errorf("SEND to unmapped memory: %v", verbs.Status(c.Status))
	}
	if c := b.next(); verbs.Status(c.Status) != verbs.LocProtErr {
		t.Errorf("receive to unmapped memory: %v", verbs.Status(c.Status))
	}
}

// Memory is registered only as the program itself may use it.
func TestRegistration(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	pd := do[uverbs.Handle](c, uverbs.AllocPD).H
	b := memory(t, 3*4096)
	reg := func(start, length uint64, access uint32) unix.Errno {
		_, errno := c.raw(uverbs.RegMR, uverbs.NoChannel, uverbs.Encode(uverbs.RegMRArgs{Start: start, Length: length, VA: start, PD: pd, Access: access}))
		return errno
	}
	must(t, unix.Mprotect(b[4096:8192], unix.PROT_READ))
	for name, s := range map[string]struct {
		start, length uint64
		access        uint32
		want          unix.Errno
	}{
		"all for reading":      {addr(b), 3 * 4096, 4, 0},
		"all for writing":      {addr(b), 3 * 4096, 1, unix.EFAULT},
		"a page for writing":   {addr(b), 4096, 1, 0},
		"across the end":       {addr(b) + 4096, 1 << 40, 0, unix.EFAULT},
		"nothing":              {addr(b), 0, 0, unix.EINVAL},
		"around":               {addr(b), ^uint64(0) - 5, 0, unix.EINVAL},
		"remote write only":    {addr(b), 10, 2, unix.EINVAL},
		"paging on demand":     {addr(b), 10, 1 << 6, unix.EOPNOTSUPP},
		"huge pages":           {addr(b), 10, 1 << 7, unix.EOPNOTSUPP},
		"as our provider asks": {addr(b), 10, 1<<6 | 1<<7 | 1<<31, 0},
		"no such right":        {addr(b), 10, 1 << 15, unix.EOPNOTSUPP},
		"optional, of the bus": {addr(b), 10, 1 << 20, 0},
		"where nothing is":     {4096, 10, 0, unix.EFAULT},
		"in the kernel's half": {1 << 63, 10, 0, unix.EFAULT},
		"zero-based":           {addr(b), 10, 1<<5 | 1, 0},
	} {
		if got := reg(s.start, s.length, s.access); got != s.want {
			t.Errorf("%s: %v, want %v", name, got, s.want)
		}
	}
	must(t, unix.Mprotect(b[4096:8192], unix.PROT_NONE))
	if got := reg(addr(b), 3*4096, 0); got != unix.EFAULT {
		t.Errorf("memory that cannot be read: %v", got)
	}
}

// A completion channel tells of an armed queue, once; events that the program has not read do not
// count when the queue is destroyed.
func TestCompletionChannel(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	do[uverbs.Handle](c, uverbs.CreateCompChannel)
	channel := c.fds[len(c.fds)-1]
	data, errno := c.raw(uverbs.CreateCQ, 0, uverbs.Encode(uverbs.CQArgs{User: 0xabcdef, CQE: 10, Channel: int32(channel)}))
	if errno != 0 {
		t.Fatal(errno)
	}
	cq := binary.NativeEndian.Uint32(data)
	if _, errno := c.raw(uverbs.CreateCQ, 5, uverbs.Encode(uverbs.CQArgs{CQE: 10, Channel: 3})); errno != unix.EINVAL {
		t.Errorf("a queue on no channel: %v", errno)
	}
	e, m := c.receiving(cq)
	m.State = 6
	do[none](c, uverbs.ModifyQP, m) // flushes the receive
	var ev [16]byte
	must(t, unix.SetsockoptTimeval(channel, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	if n, err := unix.Read(channel, ev[:8]); n != 8 || binary.NativeEndian.Uint64(ev[:]) != 0xabcdef {
		t.Errorf("event of %d bytes, %v: %x", n, err, ev[:8])
	}
	do[uverbs.Reported](c, uverbs.DestroyQP, uverbs.Handle{H: e.qp.H}, uint32(0))
	if r := do[uverbs.CQReported](c, uverbs.DestroyCQ, uverbs.Handle{H: cq}, uint32(0)); r.Completions != 1 {
		t.Errorf("%+v", r)
	}
}

// receiving makes a UD queue pair in INIT with one receive, on a completion queue, which it arms. m
// are the arguments of a transition that only needs the state.
func (c *client) receiving(cq uint32) (e *ends, m uverbs.ModifyQPArgs) {
	c.t.Helper()
	pd := do[uverbs.Handle](c, uverbs.AllocPD).H
	qp := do[made](c, uverbs.CreateQP, uverbs.QPArgs{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSend: 4, MaxRecv: 4, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeUD})
	e = &ends{client: c, qp: qp.QP, recv: c.view(qp.Recv), buf: memory(c.t, 4096)}
	m = uverbs.ModifyQPArgs{H: e.qp.H, Mask: needs(uverbs.TypeUD, 0, 1)}
	m.State, m.Port = 1, 1
	do[none](c, uverbs.ModifyQP, m)
	do[none](c, uverbs.ReqNotifyCQ, uverbs.Notify{H: cq})
	e.receive(0, 10)
	m.Mask = uverbs.MaskState
	return e, m
}

// A program delays the events of a completion queue, as ib_uverbs_ex_modify_cq allows: here until
// the period ends that begins with the first completion.
func TestModeration(t *testing.T) {
	const modify = uverbs.ModifyCQ | uverbs.Extended
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	do[uverbs.Handle](c, uverbs.CreateCompChannel)
	channel := c.fds[len(c.fds)-1]
	data, errno := c.raw(uverbs.CreateCQ, 0, uverbs.Encode(uverbs.CQArgs{CQE: 10, Channel: int32(channel)}))
	if errno != 0 {
		t.Fatal(errno)
	}
	cq := binary.NativeEndian.Uint32(data)
	const moderate = uverbs.MaskModerate
	for name, s := range map[string]struct {
		args uverbs.ModifyCQArgs
		want unix.Errno
	}{
		"no queue": {uverbs.ModifyCQArgs{H: cq + 1, Mask: moderate}, unix.EINVAL}, "nothing": {uverbs.ModifyCQArgs{H: cq}, unix.EINVAL},
		"more": {uverbs.ModifyCQArgs{H: cq, Mask: moderate | 2}, unix.EOPNOTSUPP}, "reserved": {uverbs.ModifyCQArgs{H: cq, Mask: moderate, Reserved: 1}, unix.EINVAL},
		"a period": {uverbs.ModifyCQArgs{H: cq, Mask: moderate, Count: 100, Period: 50000}, 0},
	} {
		if _, errno := c.raw(modify, uverbs.NoChannel, uverbs.Encode(s.args)); errno != s.want {
			t.Errorf("%s: %v, want %v", name, errno, s.want)
		}
	}
	_, m := c.receiving(cq)
	m.State = 6
	start := time.Now()
	do[none](c, uverbs.ModifyQP, m) // flushes the receive
	var ev [16]byte
	must(t, unix.SetsockoptTimeval(channel, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}))
	if n, err := unix.Read(channel, ev[:8]); n != 8 || time.Since(start) < 50*time.Millisecond {
		t.Errorf("event of %d bytes, %v, after %v", n, err, time.Since(start))
	}
}

// What a program leaves is gone with it: objects, descriptors, memory.
func TestNothingIsLeft(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before := openFiles(t)
	for range 5 {
		a := h.attach(t, 0).queuePair(uverbs.TypeRC)
		do[uverbs.Handle](a.client, uverbs.CreateCompChannel)
		do[uverbs.Context](a.client, uverbs.GetContext)
		a.close()
	}
	for end := time.Now().Add(20 * time.Second); len(h.servers[0].Clients()) > 0 || openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d programs, %d descriptors more", len(h.servers[0].Clients()), openFiles(t)-before)
		}
	}
}

// A program changes attributes of a queue pair in RTS and SQD, as ib_modify_qp allows; what is not
// allowed is EINVAL and changes nothing.
func TestModifyWithoutTransition(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	modify := func(e *ends, mask uint32, set func(*uverbs.ModifyQPArgs)) unix.Errno {
		m := uverbs.ModifyQPArgs{H: e.qp.H, Mask: mask}
		set(&m)
		_, errno := e.raw(uverbs.ModifyQP, uverbs.NoChannel, uverbs.Encode(m))
		return errno
	}
	query := func(e *ends) uverbs.QPAttr {
		return do[uverbs.QPAttr](e.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: e.qp.H})
	}
	for what, got := range map[string]unix.Errno{
		"retries in RTS": modify(a, uverbs.MaskRetry, func(m *uverbs.ModifyQPArgs) { m.RetryCount = 1 }),
		"Q_Key of RC":    modify(a, uverbs.MaskQKey, func(m *uverbs.ModifyQPArgs) { m.QKey = 1 }),
		"path MTU":       modify(a, uverbs.MaskPathMTU, func(m *uverbs.ModifyQPArgs) { m.PathMTU = 1 }),
		"timer":          modify(a, uverbs.MaskRNRTimer, func(m *uverbs.ModifyQPArgs) { m.MinRNRTimer = 32 }),
	} {
		if got != unix.EINVAL {
			t.Errorf("%s: %v, want EINVAL", what, got)
		}
	}
	if q := query(a); q.RetryCount != 7 || q.PathMTU != 3 || q.QKey != 0 || q.MinRNRTimer != 12 {
		t.Errorf("a refused command has changed %+v", q)
	}
	steps := []struct {
		mask uint32
		set  func(*uverbs.ModifyQPArgs)
	}{
		{uverbs.MaskState, func(m *uverbs.ModifyQPArgs) { m.State = 4 }}, // SQD
		{uverbs.MaskTimeout | uverbs.MaskRetry, func(m *uverbs.ModifyQPArgs) { m.Timeout, m.RetryCount = 14, 3 }},
		{uverbs.MaskState | uverbs.MaskRNRTimer, func(m *uverbs.ModifyQPArgs) { m.State, m.MinRNRTimer = 3, 9 }},
	}
	for i, s := range steps {
		if got := modify(a, s.mask, s.set); got != 0 {
			t.Fatalf("step %d: %v", i, got)
		}
	}
	if q := query(a); q.State != 3 || q.Timeout != 14 || q.RetryCount != 3 || q.MinRNRTimer != 9 {
		t.Errorf("attributes %+v", q)
	}
	if got := modify(b, uverbs.MaskAccess, func(m *uverbs.ModifyQPArgs) { m.Access = 4 }); got != 0 { // REMOTE_READ
		t.Fatal(got)
	}
	a.post(opRead, 0, 100, addr(b.buf), b.mr.RKey)
	a.succeeds()
	a.post(opWrite, 0, 100, addr(b.buf), b.mr.RKey)
	if c := a.next(); verbs.Status(c.Status) != verbs.RemInvReqErr {
		t.Errorf("WRITE without the right: %v", verbs.Status(c.Status))
	}
}

// The place of a send is free when its completion is seen, also of one that a request for an event
// carries to the program: a program posts the next send then.
func TestPlaceIsFreeWhenTheCompletionIsSeen(t *testing.T) {
	h := newHouseThatPolls(t, serve.Limits{}, time.Millisecond)
	a, b := h.linked(t, uverbs.TypeRC)
	// The daemon's own application makes the NIC progress as well.
	cq, err := h.devices[0].Context().CreateCQ(1)
	must(t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-stopped }()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = cq.Poll(make([]verbs.WC, 1)) // it cannot fail while the device is open
			}
		}
	}()
	for i := range 1000 {
		a.post(opWrite, 0, 64, addr(b.buf), b.mr.RKey)
		for a.done.Consumer() == a.done.Producer() {
			do[none](a.client, uverbs.ReqNotifyCQ, uverbs.Notify{H: a.cq})
		}
		if n := a.send.Between(a.send.Consumer(), a.send.Producer()); n != 0 {
			t.Fatalf("send %d: its place is not free", i)
		}
		a.succeeds()
	}
}
