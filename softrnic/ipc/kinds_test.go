package ipc_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A handle of another kind of queue is invalid, one of a queue that was destroyed is closed.
func TestHandlesOfOtherQueues(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	var srq, gone proto.Queue
	must(t, a.call(proto.OpCreateSRQ, proto.CreateSRQ{PD: a.pd}, &srq))
	must(t, a.call(proto.OpCreateCQ, proto.CreateCQ{Depth: 4}, &gone))
	must(t, a.call(proto.OpDestroyCQ, proto.Handle{H: gone.H}, nil))
	kinds := map[uint32]string{a.cq.H: "CQ", a.qp.H: "QP", srq.H: "SRQ"}
	for op, c := range map[proto.Op]struct {
		kind string
		args func(h uint32) any
	}{
		proto.OpQueryQP:    {"QP", func(h uint32) any { return proto.Handle{H: h} }},
		proto.OpDestroyQP:  {"QP", func(h uint32) any { return proto.Handle{H: h} }},
		proto.OpModifyQP:   {"QP", func(h uint32) any { return proto.ModifyQP{H: h, To: proto.ToError} }},
		proto.OpUseRing:    {"QP", func(h uint32) any { return proto.UseRing{H: h} }},
		proto.OpDoorbell:   {"QP", func(h uint32) any { return proto.Doorbell{H: h} }},
		proto.OpAttach:     {"QP", func(h uint32) any { return proto.Multicast{H: h} }},
		proto.OpDetach:     {"QP", func(h uint32) any { return proto.Multicast{H: h} }},
		proto.OpDial:       {"QP", func(h uint32) any { return proto.Connect{QP: h, To: ips[1], Service: "700"} }},
		proto.OpDisconnect: {"QP", func(h uint32) any { return proto.Wait{H: h} }},
		proto.OpDestroyCQ:  {"CQ", func(h uint32) any { return proto.Handle{H: h} }},
		proto.OpResizeCQ:   {"CQ", func(h uint32) any { return proto.ResizeCQ{H: h, Depth: 8} }},
		proto.OpModerateCQ: {"CQ", func(h uint32) any { return proto.ModerateCQ{H: h} }},
		proto.OpCountCQ:    {"CQ", func(h uint32) any { return proto.Handle{H: h} }},
		proto.OpQuerySRQ:   {"SRQ", func(h uint32) any { return proto.Handle{H: h} }},
		proto.OpDestroySRQ: {"SRQ", func(h uint32) any { return proto.Handle{H: h} }},
		proto.OpLimitSRQ:   {"SRQ", func(h uint32) any { return proto.Limit{H: h, N: 1} }},
		proto.OpResizeSRQ:  {"SRQ", func(h uint32) any { return proto.Limit{H: h, N: 8} }},
	} {
		for handle, kind := range kinds {
			if kind == c.kind {
				continue
			}
			if err := a.call(op, c.args(handle), nil); !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%s of a %s: %v", op, kind, err)
			}
		}
		if err := a.call(op, c.args(gone.H), nil); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s of a queue that was destroyed: %v", op, err)
		}
	}
}

// An attachment that the NIC refuses takes no place in the group, whatever the reason: here the
// type of the queue pair. The group then has all its places.
func TestRefusedAttachmentsTakeNoPlace(t *testing.T) {
	h := newHouseOf(t, memcable.Config{}, engine.Limits{GroupQPs: 8}, 0, nil)
	c := h.open(t, 0)
	pd, err := c.AllocPD()
	must(t, err)
	cq, err := c.CreateCQ(8)
	must(t, err)
	group := verbs.GID{0: 0xff, 1: 0x0e, 15: 1}
	rc, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	must(t, err)
	before := used(h.servers[0])
	for range 8 {
		if err := rc.AttachMulticast(group); err == nil || errors.Is(err, verbs.ErrLimit) {
			t.Fatalf("a reliable connection in a group: %v", err)
		}
	}
	if d := more(h.servers[0], before); len(d) > 0 {
		t.Errorf("attachments that were refused use %v", d)
	}
	for i := range 3 { // a quarter of the places is for one program
		ud, err := pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: cq, RecvCQ: cq})
		must(t, err)
		if err := ud.AttachMulticast(group); (err == nil) != (i < 2) || err != nil && !errors.Is(err, verbs.ErrLimit) {
			t.Errorf("queue pair %d: %v", i, err)
		}
		if i == 0 {
			must(t, ud.DetachMulticast(group))
			if err := ud.DetachMulticast(group); err == nil {
				t.Error("it is detached twice")
			}
			must(t, ud.AttachMulticast(group))
			must(t, ud.AttachMulticast(group)) // a second time: it changes nothing
		}
		if n := used(h.servers[0])["attachments"]; n != int64(min(i+1, 2)) {
			t.Errorf("after queue pair %d: %d attachments", i, n)
		}
	}
}

// The name of a shared region has 1 to 64 printable bytes, and its length is not negative.
func TestNamesOfSharedRegions(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	long := strings.Repeat("x", 64)
	for _, c := range []struct {
		name   string
		length int
		ok     bool
	}{{long, 4096, true}, {long + "x", 4096, false}, {"", 4096, false}, {"x", 4096, true}, {"a\nb", 4096, false}, {" ~", 4096, true}, {"y", -1, false}, {"y", 0, false}} {
		before := used(h.servers[0])
		err := a.call(proto.OpShare, proto.Share{Name: c.name, Length: c.length}, nil)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%q of %d bytes: %v", c.name, c.length, err)
		}
		if d := more(h.servers[0], before); !c.ok && len(d) > 0 {
			t.Errorf("%q of %d bytes, which was not made, uses %v", c.name, c.length, d)
		}
	}
}

// A daemon without free descriptors makes no object that needs memory; none counts then, and all
// can be made afterwards. The program goes on with those that it has.
func TestNoDescriptorIsLeft(t *testing.T) {
	h := newHouse(t, -1, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	v := h.victim(t)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	before := used(h.servers[0])
	makers := map[proto.Op]any{
		proto.OpAlloc: proto.Alloc{Length: 4096}, proto.OpRegMR: proto.RegMR{PD: a.pd, Length: 4096},
		proto.OpCreateCQ: proto.CreateCQ{Depth: 4}, proto.OpCreateSRQ: proto.CreateSRQ{PD: a.pd},
		proto.OpCreateQP: proto.CreateQP{PD: a.pd, SendCQ: a.cq.H, RecvCQ: a.cq.H}, proto.OpShare: proto.Share{Name: "shared", Length: 4096},
	}
	func() {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
		defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
		for op, args := range makers {
			if err := a.call(op, args, nil); !errors.Is(err, verbs.ErrLimit) {
				t.Errorf("%s: %v", op, err)
			}
		}
	}()
	if d := more(h.servers[0], before); len(d) > 0 {
		t.Errorf("objects that were not made use %v", d)
	}
	for op, args := range makers {
		if err := a.call(op, args, nil); err != nil {
			t.Errorf("%s afterwards: %v", op, err)
		}
	}
	must(t, a.call(proto.OpQueryQP, proto.Handle{H: a.qp.H}, nil))
	v.fine()
}

// An object that the NIC refuses, because the daemon itself uses all that there are, counts nothing;
// as soon as the daemon has ended one of its own, the program makes it.
func TestWhatTheNICRefuses(t *testing.T) {
	const most = 20
	h := newHouseOf(t, memcable.Config{}, engine.Limits{PDs: most, MRs: most, CQs: most, QPs: most, AHs: most, SRQs: most, DeviceMemory: 4096}, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	var memory proto.Handle
	must(t, a.call(proto.OpAlloc, proto.Alloc{Length: 4096}, &memory))
	own := h.dev[0].Context()
	defer func() { must(t, own.Close()) }()
	pd, err := own.AllocPD()
	must(t, err)
	cq, err := own.CreateCQ(4)
	must(t, err)
	region := func() (func() error, error) {
		mr, err := pd.RegMR(make([]byte, 64), 0, verbs.LocalWrite)
		return func() error { return mr.Dereg() }, err
	}
	for _, c := range []struct {
		name string
		op   proto.Op
		args any
		end  proto.Op
		own  func() (end func() error, err error)
	}{
		{"region", proto.OpRegMR, proto.RegMR{PD: a.pd, Length: 4096}, proto.OpDeregMR, region},
		{"fast region", proto.OpRegMR, proto.RegMR{PD: a.pd, Length: 4096, Fast: true}, proto.OpDeregMR, region},
		{"region of memory", proto.OpRegMR, proto.RegMR{PD: a.pd, Memory: memory.H, Length: 64}, proto.OpDeregMR, region},
		{"window", proto.OpAllocMW, proto.Handle{H: a.pd}, proto.OpDeallocMW, region},
		{"address handle", proto.OpCreateAH, proto.CreateAH{PD: a.pd, Attr: verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])}}, proto.OpDestroyAH, func() (func() error, error) {
			ah, err := pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])})
			return func() error { return ah.Destroy() }, err
		}},
		{"CQ", proto.OpCreateCQ, proto.CreateCQ{Depth: 8}, proto.OpDestroyCQ, func() (func() error, error) {
			q, err := own.CreateCQ(4)
			return func() error { return q.Destroy() }, err
		}},
		{"SRQ", proto.OpCreateSRQ, proto.CreateSRQ{PD: a.pd}, proto.OpDestroySRQ, func() (func() error, error) {
			q, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 4})
			return func() error { return q.Destroy() }, err
		}},
		{"QP", proto.OpCreateQP, proto.CreateQP{PD: a.pd, SendCQ: a.cq.H, RecvCQ: a.cq.H}, proto.OpDestroyQP, func() (func() error, error) {
			q, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
			return func() error { return q.Destroy() }, err
		}},
		{"device memory", proto.OpAllocDM, proto.Alloc{Length: 64}, proto.OpFreeDM, func() (func() error, error) {
			m, err := own.AllocDM(2048)
			return func() error { return m.Free() }, err
		}},
		{"PD", proto.OpAllocPD, proto.None{}, proto.OpDeallocPD, func() (func() error, error) {
			x, err := own.AllocPD()
			return func() error { return x.Dealloc() }, err
		}},
	} {
		var owns []func() error
		for {
			end, err := c.own()
			if err != nil && len(owns) > 0 {
				break
			}
			must(t, err)
			owns = append(owns, end)
		}
		before := used(h.servers[0])
		for range 20 {
			if err := a.call(c.op, c.args, nil); !errors.Is(err, verbs.ErrLimit) && !errors.Is(err, verbs.ErrNoSpace) {
				t.Fatalf("%s beyond what there are: %v", c.name, err)
			}
		}
		if d := more(h.servers[0], before); len(d) > 0 {
			t.Errorf("%s: one that was not made uses %v", c.name, d)
		}
		must(t, owns[0]())
		var made proto.Handle
		must(t, a.call(c.op, c.args, &made))
		must(t, a.call(c.end, proto.Handle{H: made.H}, nil))
		if now := used(h.servers[0]); !maps.Equal(now, before) {
			t.Errorf("%s: at the end %v are used, and before %v", c.name, now, before)
		}
		for _, end := range owns[1:] {
			must(t, end())
		}
	}
}

// The daemon publishes how many sends are complete, and whether it has completions for which the
// ring has no room: the program posts and polls without it otherwise.
func TestWhatTheDaemonPublishes(t *testing.T) {
	h := newHouse(t, -1, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	send, done := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot), ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot)
	write := func(n uint64) {
		wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, RemoteAddr: a.mr.Addr, RKey: a.mr.RKey}
		for range n {
			ring.PutSend(send.Slot(send.Tail.Load()), &wr, 0)
			send.Tail.Store(send.Tail.Load() + 1)
		}
		a.ring(a.qp.Bell)
	}
	room := done.Cap()
	write(room)
	until(t, "the ring is full", func() bool { return done.Tail.Load() == room })
	if n := done.Backlog.Load(); n != 0 {
		t.Errorf("there is a backlog with a ring that holds all: %d", n)
	}
	a.ring(a.qp.Bell)
	until(t, "all sends are complete", func() bool { return send.Done.Load() == room })
	write(3)
	until(t, "there is a backlog", func() bool { return done.Backlog.Load() != 0 })
	for end := room + 3; done.Tail.Load() != end; {
		done.Head.Store(done.Tail.Load())
		a.ring(a.cq.Bell)
		until(t, "the completions come", func() bool {
			return done.Tail.Load() == end || done.Backlog.Load() != 0 && done.Tail.Load() > done.Head.Load()
		})
	}
	done.Head.Store(done.Tail.Load())
	a.ring(a.cq.Bell)
	until(t, "there is no backlog", func() bool { return done.Backlog.Load() == 0 })
}

// Objects that have ended with their NIC can be destroyed in any order, and count until then.
func TestObjectsThatEndedWithTheNIC(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	before := used(h.servers[0])
	must(t, a.equip())
	var mw, ah, dm proto.Handle
	var queue proto.Queue
	must(t, a.call(proto.OpCreateSRQ, proto.CreateSRQ{PD: a.pd}, &queue))
	must(t, a.call(proto.OpAllocMW, proto.Handle{H: a.pd}, &mw))
	must(t, a.call(proto.OpCreateAH, proto.CreateAH{PD: a.pd, Attr: verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])}}, &ah))
	must(t, a.call(proto.OpAllocDM, proto.Alloc{Length: 64}, &dm))
	h.dev[0].Down()
	for _, x := range []struct {
		op   proto.Op
		h    uint32
		kind string
	}{
		{proto.OpDeallocPD, a.pd, "pds"},
		{proto.OpDestroyCQ, a.cq.H, "cqs"},
		{proto.OpDestroySRQ, queue.H, "srqs"},
		{proto.OpDeregMR, a.mr.H, "mrs"},
		{proto.OpDeallocMW, mw.H, "mws"},
		{proto.OpDestroyAH, ah.H, "ahs"},
		{proto.OpFreeDM, dm.H, "dms"},
		{proto.OpDestroyQP, a.qp.H, "qps"},
	} {
		if n := more(h.servers[0], before)[x.kind]; n != 1 {
			t.Errorf("%s: %d are counted before the end", x.kind, n)
		}
		if err := a.call(x.op, proto.Handle{H: x.h}, nil); err != nil && !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s: %v", x.op, err)
		}
		if n := more(h.servers[0], before)[x.kind]; n != 0 {
			t.Errorf("%s: %d are counted after the end", x.kind, n)
		}
		if err := a.call(x.op, proto.Handle{H: x.h}, nil); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s: a second end: %v", x.op, err)
		}
	}
	if d := more(h.servers[0], before); len(d) > 0 {
		t.Errorf("at the end %v are used", d)
	}
	h.dev[0].Up()
	must(t, a.equip()) // the program goes on
}
