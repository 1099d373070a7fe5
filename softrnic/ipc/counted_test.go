package ipc_test

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// used returns the quotas of which programs use something.
func used(s *serve.Server) map[string]int64 {
	m := map[string]int64{}
	for _, q := range s.Quotas() {
		if q.Used != 0 {
			m[q.Name] = q.Used
		}
	}
	return m
}

// more returns by how much each quota is used more than before.
func more(s *serve.Server, before map[string]int64) map[string]int64 {
	m := used(s)
	for k, n := range before {
		if m[k] -= n; m[k] == 0 {
			delete(m, k)
		}
	}
	return m
}

// counted is a kind of objects: the request that makes one, one that fails, and what it uses of the
// quotas; anyBytes: any number of bytes.
type counted struct {
	name      string
	make      proto.Op
	args, bad any
	end       proto.Op
	want      map[string]int64
}

const anyBytes = -1

// kindsOfObjects are the objects that a program can make with a PD, a CQ, memory and device memory.
func kindsOfObjects(pd, cq, memory, device uint32) []counted {
	send := proto.CreateQP{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 4, MaxSGE: 1, MaxInline: 16}
	tooMany := send
	tooMany.MaxSendWR = 1 << 18
	return []counted{
		{"PD", proto.OpAllocPD, proto.None{}, nil, proto.OpDeallocPD, map[string]int64{"pds": 1}},
		{"memory", proto.OpAlloc, proto.Alloc{Length: 4096}, proto.Alloc{}, proto.OpFree, map[string]int64{"memories": 1, "memory": 4096}},
		{
			"region of its own memory", proto.OpRegMR,
			proto.RegMR{PD: pd, Length: 4096},
			proto.RegMR{PD: pd, Length: 4096, Access: verbs.RemoteWrite},
			proto.OpDeregMR,
			map[string]int64{"mrs": 1, "memories": 1, "memory": 4096},
		},
		{
			"region of allocated memory", proto.OpRegMR,
			proto.RegMR{PD: pd, Memory: memory, Length: 64},
			proto.RegMR{PD: pd, Memory: memory, Offset: 1, Length: 4096},
			proto.OpDeregMR,
			map[string]int64{"mrs": 1},
		},
		{"window", proto.OpAllocMW, proto.Handle{H: pd}, proto.Handle{H: cq}, proto.OpDeallocMW, map[string]int64{"mws": 1}},
		{
			"device memory", proto.OpAllocDM,
			proto.Alloc{Length: 64},
			proto.Alloc{Length: 0},
			proto.OpFreeDM,
			map[string]int64{"dms": 1, "deviceMemory": 64},
		},
		{
			"region of device memory", proto.OpRegDM,
			proto.RegMR{PD: pd, Memory: device, Length: 64},
			proto.RegMR{PD: pd, Memory: device, Length: 1 << 20},
			proto.OpDeregMR,
			map[string]int64{"mrs": 1},
		},
		{
			"address handle", proto.OpCreateAH,
			proto.CreateAH{PD: pd, Attr: verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])}},
			proto.CreateAH{PD: pd, Attr: verbs.AHAttr{SourceGID: 99}},
			proto.OpDestroyAH,
			map[string]int64{"ahs": 1},
		},
		{
			"CQ", proto.OpCreateCQ,
			proto.CreateCQ{Depth: 16},
			proto.CreateCQ{Depth: 0},
			proto.OpDestroyCQ,
			map[string]int64{"cqs": 1, "queueMemory": anyBytes},
		},
		{
			"SRQ", proto.OpCreateSRQ,
			proto.CreateSRQ{PD: pd, Init: verbs.SRQInit{MaxWR: 4, MaxSGE: 1}},
			proto.CreateSRQ{PD: pd, Init: verbs.SRQInit{MaxWR: 4, MaxSGE: 1000}},
			proto.OpDestroySRQ,
			map[string]int64{"srqs": 1, "queueMemory": anyBytes},
		},
		{"QP", proto.OpCreateQP, send, tooMany, proto.OpDestroyQP, map[string]int64{"qps": 1, "queueMemory": anyBytes}},
		{"listener", proto.OpListen, proto.Service{Name: "700"}, nil, proto.OpUnlisten, map[string]int64{"listeners": 1}},
	}
}

// An object counts against its quotas as long as it exists, and one that could not be made counts
// nothing.
func TestObjectsCountWhileTheyExist(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	var memory, device proto.Handle
	must(t, a.call(proto.OpAlloc, proto.Alloc{Length: 4096}, &memory))
	must(t, a.call(proto.OpAllocDM, proto.Alloc{Length: 64}, &device))
	for _, c := range kindsOfObjects(a.pd, a.cq.H, memory.H, device.H) {
		before := used(h.servers[0])
		if c.bad != nil {
			if err := a.call(c.make, c.bad, nil); err == nil {
				t.Errorf("%s: %+v was made", c.name, c.bad)
			}
		}
		if d := more(h.servers[0], before); len(d) > 0 {
			t.Errorf("%s: one that was not made uses %v", c.name, d)
		}
		var made proto.Handle
		must(t, a.call(c.make, c.args, &made))
		d := more(h.servers[0], before)
		for k, n := range c.want {
			if n == anyBytes && d[k] > 0 {
				d[k] = anyBytes
			}
		}
		if !maps.Equal(d, c.want) {
			t.Errorf("%s: one uses %v, want %v", c.name, d, c.want)
		}
		must(t, a.call(c.end, proto.Handle{H: made.H}, nil))
		if d := more(h.servers[0], before); len(d) > 0 {
			t.Errorf("%s: one that is gone uses %v", c.name, d)
		}
		if err := a.call(c.end, proto.Handle{H: made.H}, nil); !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("%s: a second end: %v", c.name, err)
		}
		if d := more(h.servers[0], before); len(d) > 0 {
			t.Errorf("%s: after a second end: %v", c.name, d)
		}
	}
}

// An object that others use cannot be ended, still counts, and can be ended later.
func TestObjectsInUseGoOnCounting(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	var memory proto.Handle
	must(t, a.call(proto.OpAlloc, proto.Alloc{Length: 4096}, &memory))
	var mr proto.MR
	must(t, a.call(proto.OpRegMR, proto.RegMR{PD: a.pd, Memory: memory.H, Length: 4096}, &mr))
	before := used(h.servers[0])
	busy := []struct {
		end proto.Op
		h   uint32
	}{{proto.OpDeallocPD, a.pd}, {proto.OpDestroyCQ, a.cq.H}, {proto.OpFree, memory.H}}
	for _, x := range busy {
		if err := a.call(x.end, proto.Handle{H: x.h}, nil); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("%s: %v", x.end, err)
		}
	}
	if d := more(h.servers[0], before); len(d) > 0 {
		t.Errorf("objects that exist use %v more", d)
	}
	must(t, a.call(proto.OpDeregMR, proto.Handle{H: mr.H}, nil))
	must(t, a.call(proto.OpDeregMR, proto.Handle{H: a.mr.H}, nil))
	must(t, a.call(proto.OpDestroyQP, proto.Handle{H: a.qp.H}, nil))
	for _, x := range busy {
		must(t, a.call(x.end, proto.Handle{H: x.h}, nil))
	}
	if d := used(h.servers[0]); !maps.Equal(d, map[string]int64{"programs": 1}) {
		t.Errorf("a program without objects uses %v", d)
	}
}

// Queues count by their size: one of twice the entries twice, one of sizes that are not given as
// one of the defaults, and one that changes its size as one that was made so.
func TestQueuesCountBySize(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	size := func(op proto.Op, args any) (n int64, handle uint32) {
		t.Helper()
		before := used(h.servers[0])
		var q proto.Queue
		must(t, a.call(op, args, &q))
		return more(h.servers[0], before)["queueMemory"], q.H
	}
	qp := func(sends, recvs, sge, inline int) int64 {
		n, _ := size(proto.OpCreateQP, proto.CreateQP{PD: a.pd, SendCQ: a.cq.H, RecvCQ: a.cq.H, MaxSendWR: sends, MaxRecvWR: recvs, MaxSGE: sge, MaxInline: inline})
		return n
	}
	if small, large := qp(8, 8, 2, 64), qp(16, 16, 2, 64); small <= 0 || large != 2*small {
		t.Errorf("queue pairs use %d and %d bytes", small, large)
	}
	if inline, plain := qp(8, 8, 2, 128), qp(8, 8, 2, 64); inline != plain+8*64 {
		t.Errorf("64 bytes of inline data more for 8 sends: %d bytes more", inline-plain)
	}
	if got, want := qp(0, 0, 0, 0), qp(128, 128, 4, 256); got != want {
		t.Errorf("a queue pair of default sizes uses %d bytes, one of these sizes %d", got, want)
	}
	srq := func(n, sge int) (int64, uint32) {
		return size(proto.OpCreateSRQ, proto.CreateSRQ{PD: a.pd, Init: verbs.SRQInit{MaxWR: n, MaxSGE: sge}})
	}
	small, resized := srq(8, 2)
	if large, _ := srq(16, 2); small <= 0 || large != 2*small {
		t.Errorf("SRQs use %d and %d bytes", small, large)
	}
	plain, _ := srq(0, 0)
	if want, _ := srq(128, 4); plain != want {
		t.Errorf("an SRQ of default sizes uses %d bytes, one of these sizes %d", plain, want)
	}
	cqSmall, cq := size(proto.OpCreateCQ, proto.CreateCQ{Depth: 16})
	if large, _ := size(proto.OpCreateCQ, proto.CreateCQ{Depth: 32}); cqSmall <= 0 || large != 2*cqSmall {
		t.Errorf("CQs use %d and %d bytes", cqSmall, large)
	}
	before := used(h.servers[0])
	var steps []int64
	for _, n := range []int{32, 64, 16} {
		must(t, a.call(proto.OpResizeSRQ, proto.Limit{H: resized, N: n / 2}, nil))
		must(t, a.call(proto.OpResizeCQ, proto.ResizeCQ{H: cq, Depth: n}, nil))
		steps = append(steps, more(h.servers[0], before)["queueMemory"])
	}
	if steps[0] <= small || steps[1] != 3*steps[0] || steps[2] != 0 {
		t.Errorf("queues of 2, 4 and 1 times the size use %v bytes more", steps)
	}
	before = used(h.servers[0])
	for op, args := range map[proto.Op]any{proto.OpResizeCQ: proto.ResizeCQ{H: cq, Depth: -1}, proto.OpResizeSRQ: proto.Limit{H: resized, N: 1 << 20}} {
		if err := a.call(op, args, nil); err == nil {
			t.Errorf("%s: %+v was done", op, args)
		}
	}
	if d := more(h.servers[0], before); len(d) > 0 {
		t.Errorf("changes that were refused use %v", d)
	}
	must(t, a.call(proto.OpDestroyCQ, proto.Handle{H: cq}, nil))
	must(t, a.call(proto.OpDestroySRQ, proto.Handle{H: resized}, nil))
	if d := more(h.servers[0], before); d["queueMemory"] != -small-cqSmall {
		t.Errorf("after the end of both: %v, want %d bytes less", d, small+cqSmall)
	}
}

// The listing of quotas names each one once. One application gets half of a table at most.
func TestQuotasAreNamed(t *testing.T) {
	h := newHouse(t, 0, nil)
	var names []string
	for _, q := range h.servers[0].Quotas() {
		if q.Name == "" || slices.Contains(names, q.Name) || q.Quota <= 0 || q.Pool != 0 && q.Quota > q.Pool/2 {
			t.Errorf("%+v", q)
		}
		names = append(names, q.Name)
	}
}
