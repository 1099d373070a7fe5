package uverbs_test

import (
	"encoding/binary"
	"errors"
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// noDescriptors calls f while the process can open no descriptor.
func noDescriptors(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	f()
}

// A daemon without free descriptors makes no channel, which is ENOMEM and counts nothing. When there
// are some again, it does.
func TestNoDescriptorIsLeft(t *testing.T) {
	h := newHouse(t, serve.Limits{Manager: serve.ManagerLimits{Channels: 2}})
	c, m := h.attach(t, 0), h.manages(t, 0)
	before := h.used()
	noDescriptors(t, func() {
		for range 5 {
			for _, op := range []uverbs.Op{uverbs.CreateCompChannel, uverbs.GetContext} {
				if _, errno := c.raw(op, uverbs.NoChannel, nil); errno != unix.ENOMEM {
					t.Errorf("command %d: %v", op, errno)
				}
			}
			if a, fds := m.raw(ucma.OpenChannel, 0); unix.Errno(a.Errno) != unix.ENOMEM || len(fds) > 0 {
				t.Errorf("an event channel: %v, %d descriptors", unix.Errno(a.Errno), len(fds))
			}
		}
	})
	if d := h.more(before); len(d) > 0 {
		t.Errorf("channels that were not made use %v", d)
	}
	for i := range 2 {
		if n := do[uverbs.Handle](c, uverbs.CreateCompChannel); h.more(before)["channels"] != int64(i+1) {
			t.Errorf("channel %d: %+v uses %v", i, n, h.more(before))
		}
	}
	do[uverbs.Context](c, uverbs.GetContext)
	m.open()
}

// An object that the NIC refuses, because the daemon itself uses all that there are, is ENOMEM. It
// counts nothing and its rings take no room: as soon as the daemon has ended one of its own, the
// program makes it.
func TestWhatTheNICRefuses(t *testing.T) {
	const most = 20
	h := newHouseOf(t, serve.Limits{QueueBytes: 1 << 16}, -1, engine.Limits{PDs: most, MRs: most, CQs: most, QPs: most, AHs: most, SRQs: most})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	own := h.devices[0].Context()
	defer func() { must(t, own.Close()) }()
	pd, err := own.AllocPD()
	must(t, err)
	cq, err := own.CreateCQ(4)
	must(t, err)
	buf := memory(t, 4096)
	type maker func() (end func() error, err error)
	for _, c := range []struct {
		name string
		op   uverbs.Op
		args any
		end  uverbs.Op
		own  maker
	}{
		{"region", uverbs.RegMR, uverbs.RegMRArgs{Start: addr(buf), Length: 64, VA: addr(buf), PD: e.pd, Access: 1}, uverbs.DeregMR, func() (func() error, error) {
			mr, err := pd.RegMR(make([]byte, 64), 0, verbs.LocalWrite)
			return func() error { return mr.Dereg() }, err
		}},
		{"window", uverbs.AllocMW, uverbs.MWArgs{PD: e.pd, Type: 2}, uverbs.DeallocMW, func() (func() error, error) {
			mr, err := pd.RegMR(make([]byte, 64), 0, verbs.LocalWrite)
			return func() error { return mr.Dereg() }, err
		}},
		{"address handle", uverbs.CreateAH, uverbs.AHArgs{PD: e.pd, Attr: uverbs.AHAttr{DestGID: verbs.GIDOf(ips[1]), Global: 1, Port: 1}}, uverbs.DestroyAH, func() (func() error, error) {
			ah, err := pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])})
			return func() error { return ah.Destroy() }, err
		}},
		{"CQ", uverbs.CreateCQ, uverbs.CQArgs{CQE: 7, Channel: -1}, uverbs.DestroyCQ, func() (func() error, error) {
			q, err := own.CreateCQ(4)
			return func() error { return q.Destroy() }, err
		}},
		{"SRQ", uverbs.CreateSRQ, uverbs.SRQArgs{PD: e.pd, MaxWR: 7, MaxSGE: 1}, uverbs.DestroySRQ, func() (func() error, error) {
			q, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 4})
			return func() error { return q.Destroy() }, err
		}},
		{"QP", uverbs.CreateQP, uverbs.QPArgs{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 1, MaxRecv: 1, Type: uverbs.TypeRC}, uverbs.DestroyQP, func() (func() error, error) {
			q, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
			return func() error { return q.Destroy() }, err
		}},
		{"PD", uverbs.AllocPD, none{}, uverbs.DeallocPD, func() (func() error, error) {
			x, err := own.AllocPD()
			return func() error { return x.Dealloc() }, err
		}},
	} {
		var owns []func() error
		for {
			end, err := c.own()
			if errors.Is(err, verbs.ErrLimit) && len(owns) > 0 {
				break
			}
			must(t, err)
			owns = append(owns, end)
		}
		before := h.used()
		for range 40 { // the area has 32 pages
			if _, errno := e.raw(c.op, uverbs.NoChannel, uverbs.Encode(c.args)); errno != unix.ENOMEM {
				t.Fatalf("%s beyond what there are: %v", c.name, errno)
			}
		}
		if d := h.more(before); len(d) > 0 {
			t.Errorf("%s: one that was not made uses %v", c.name, d)
		}
		must(t, owns[0]())
		data, errno := e.raw(c.op, uverbs.NoChannel, uverbs.Encode(c.args))
		if errno != 0 {
			t.Errorf("%s: there is one again: %v", c.name, errno)
		} else {
			e.end(c.end, binary.NativeEndian.Uint32(data), 0)
		}
		if now := h.used(); !maps.Equal(now, before) {
			t.Errorf("%s: at the end %v are used, and before %v", c.name, now, before)
		}
		for _, end := range owns[1:] {
			must(t, end())
		}
	}
}

// A NIC with small completion queues says so, and no program gets a larger one, also not by a
// resize.
func TestSmallCompletionQueues(t *testing.T) {
	h := newHouseOf(t, serve.Limits{}, -1, engine.Limits{CQE: 100})
	c := h.attach(t, 0)
	most := do[uverbs.Device](c, uverbs.QueryDevice).MaxCQE
	if most != 63 {
		t.Errorf("%d entries, want those of the largest ring that is no larger than a queue of the NIC", most)
	}
	cq := do[uverbs.CQ](c, uverbs.CreateCQ, uverbs.CQArgs{CQE: most, Channel: -1})
	do[uverbs.CQSize](c, uverbs.ResizeCQ, uverbs.ResizeCQArgs{H: cq.H, CQE: 1})
	do[uverbs.CQSize](c, uverbs.ResizeCQ, uverbs.ResizeCQArgs{H: cq.H, CQE: most})
	for op, args := range map[uverbs.Op]any{uverbs.CreateCQ: uverbs.CQArgs{CQE: most + 1, Channel: -1}, uverbs.ResizeCQ: uverbs.ResizeCQArgs{H: cq.H, CQE: most + 1}} {
		if _, errno := c.raw(op, uverbs.NoChannel, uverbs.Encode(args)); errno != unix.EINVAL {
			t.Errorf("command %d for one more: %v", op, errno)
		}
	}
}

// The memory that a queue pair counts: its rings, and twice for each send that the program asks for
// the NIC's entry, because a ring has up to twice the entries. Without sizes it has one piece and
// eight bytes of inline data. Inline data and pieces share the room of an entry, as in rxe.
func TestWhatAQueuePairCounts(t *testing.T) {
	const wr, sge = 128, 16
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	for name, c := range map[string]struct {
		sends, recvs, sges, recvSGEs, inline uint32
		wantSGEs, wantInline                 int
	}{
		"no sizes":       {10, 20, 0, 0, 0, 1, 8},
		"receive pieces": {10, 20, 0, 4, 0, 4, 8},
		"send pieces":    {100, 20, 4, 2, 0, 4, 64},
		"inline data":    {100, 20, 1, 1, 100, 6, 100},
		"neither":        {0, 0, 1, 1, 0, 1, 16},
	} {
		before := h.used()
		qp := do[made](e.client, uverbs.CreateQP, uverbs.QPArgs{
			PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: c.sends, MaxRecv: c.recvs, MaxSGE: c.sges, MaxRecvSGE: c.recvSGEs, MaxInline: c.inline, Type: uverbs.TypeRC,
		})
		want := int64(qp.Send.Size) + int64(qp.Recv.Size) + 2*int64(max(c.sends, 1))*int64(wr+c.wantSGEs*sge+c.wantInline)
		if got := h.more(before)["queueMemory"]; got != want || int(qp.QP.MaxInline) != c.wantInline {
			t.Errorf("%s: %d bytes, %d inline; want %d and %d", name, got, qp.QP.MaxInline, want, c.wantInline)
		}
		if r := e.view(qp.Send); r.Cap() < int(max(c.sends, 1)) || r.Cap() >= 2*int(max(c.sends, 1)) {
			t.Errorf("%s: a ring of %d entries for %d", name, r.Cap(), c.sends)
		}
	}
	before := h.used()
	cq := do[madeCQ](e.client, uverbs.CreateCQ, uverbs.CQArgs{CQE: 20, Channel: -1})
	if got, want := h.more(before)["queueMemory"], int64(cq.At.Size)+20*56; got != want {
		t.Errorf("a completion queue: %d bytes, want %d", got, want)
	}
	before = h.used()
	srq := do[struct {
		uverbs.SRQ
		At uverbs.Area
	}](e.client, uverbs.CreateSRQ, uverbs.SRQArgs{PD: e.pd, MaxWR: 20, MaxSGE: 3})
	if got, want := h.more(before)["queueMemory"], int64(srq.At.Size)+20*(wr+3*sge); got != want {
		t.Errorf("a shared receive queue: %d bytes, want %d", got, want)
	}
}

// A program that is slow to read gets all its events from librdmacm, also those for whose
// announcement the socket had no room at first.
func TestManyEventsOfTheManager(t *testing.T) {
	const n = 2400 // with two events each; a socket holds about 280 announcements
	h := newHouse(t, serve.Limits{})
	m := h.manages(t, 0)
	if c := h.servers[0].Clients(); len(c) != 1 || c[0].Name != "test" {
		t.Errorf("%+v", c)
	}
	to := sockaddr(netip.AddrPortFrom(ips[1], 1))
	for i := range n {
		id := m.create(uint64(i+1), spaceTCP)
		m.do(ucma.ResolveIP, [28]byte{}, to, id, uint32(1000))
		m.do(ucma.ResolveRoute, id, uint32(1000))
	}
	for i := range 2 * n {
		if e := m.next([]uint32{addrResolved, routeResolved}[i%2]); e.UID != uint64(i/2+1) {
			t.Fatalf("event %d is of %d", i+1, e.UID)
		}
	}
	m.none()
	for _, op := range []ucma.Op{ucma.GetEvent, ucma.CreateID} {
		if a, _ := m.raw(op, 77, uint64(0), uint64(0), uint16(spaceTCP), [6]byte{}); a.Errno == 0 {
			t.Errorf("command %d for a channel that there is not succeeds", op)
		}
	}
	m.create(n+1, spaceTCP) // the daemon goes on
}

// Objects that have ended with their NIC can be destroyed in any order, and count until then.
func TestObjectsThatEndedWithTheNIC(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	before := h.used()
	e := c.queuePair(uverbs.TypeRC)
	srq := do[uverbs.SRQ](c, uverbs.CreateSRQ, uverbs.SRQArgs{PD: e.pd, MaxWR: 4, MaxSGE: 1})
	mw := do[uverbs.MW](c, uverbs.AllocMW, uverbs.MWArgs{PD: e.pd, Type: 2})
	ah := do[uverbs.AH](c, uverbs.CreateAH, uverbs.AHArgs{PD: e.pd, Attr: uverbs.AHAttr{DestGID: verbs.GIDOf(ips[1]), Global: 1, Port: 1}})
	c.end(uverbs.DeallocPD, e.pd, unix.EBUSY)
	h.devices[0].Down()
	for _, x := range []struct {
		op   uverbs.Op
		h    uint32
		kind string
	}{
		{uverbs.DeallocPD, e.pd, "pds"},
		{uverbs.DestroyCQ, e.cq, "cqs"},
		{uverbs.DestroySRQ, srq.H, "srqs"},
		{uverbs.DeregMR, e.mr.H, "mrs"},
		{uverbs.DeallocMW, mw.H, "mws"},
		{uverbs.DestroyAH, ah.H, "ahs"},
		{uverbs.DestroyQP, e.qp.H, "qps"},
	} {
		if n := h.more(before)[x.kind]; n != 1 {
			t.Errorf("%s: %d are counted before the end", x.kind, n)
		}
		c.end(x.op, x.h, 0)
		if n := h.more(before)[x.kind]; n != 0 {
			t.Errorf("%s: %d are counted after the end", x.kind, n)
		}
		c.end(x.op, x.h, unix.EINVAL)
	}
	if d := h.more(before); len(d) > 0 {
		t.Errorf("at the end %v are used", d)
	}
	h.devices[0].Up()
	c.queuePair(uverbs.TypeRC) // the program goes on
}

// Completions that had no room in a ring come when the program has polled those before them, without a command, a post or
// a packet: the NIC has nothing else to do meanwhile.
func TestCompletionsThatWaitForRoom(t *testing.T) {
	for _, spin := range []time.Duration{-1, time.Millisecond} {
		h := newHouseThatPolls(t, serve.Limits{}, spin)
		a, b := h.linked(t, uverbs.TypeRC)
		all := a.done.Cap() + 5
		for i := range all {
			a.post(opWrite, i, 8, addr(b.buf), b.mr.RKey)
			for end := time.Now().Add(20 * time.Second); a.send.Consumer() != a.send.Producer(); time.Sleep(100 * time.Microsecond) {
				if time.Now().After(end) {
					t.Fatalf("write %d is not done", i)
				}
			}
		}
		for i := range all {
			if c := a.succeeds(); c.ID != uint64(i) {
				t.Fatalf("completion %d, want %d", c.ID, i)
			}
		}
	}
}
