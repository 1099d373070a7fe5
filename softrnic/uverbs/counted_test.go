package uverbs_test

import (
	"encoding/binary"
	"maps"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// used returns the quotas of the first NIC of which programs use something.
func (h *house) used() map[string]int64 {
	m := map[string]int64{}
	for _, q := range h.servers[0].Quotas() {
		if q.Used != 0 {
			m[q.Name] = q.Used
		}
	}
	return m
}

// more returns by how much each quota is used more than before.
func (h *house) more(before map[string]int64) map[string]int64 {
	m := h.used()
	for k, n := range before {
		if m[k] -= n; m[k] == 0 {
			delete(m, k)
		}
	}
	return m
}

// An object of an unmodified program counts against its quotas as long as it exists, and one that
// could not be made counts nothing.
func TestObjectsCountWhileTheyExist(t *testing.T) {
	const anyBytes = -1
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	buf := memory(t, 4096)
	to := uverbs.AHAttr{DestGID: verbs.GIDOf(ips[1]), Global: 1, Port: 1}
	from := to
	from.SourceGID = 99
	reg := uverbs.RegMRArgs{Start: addr(buf), Length: 4096, VA: addr(buf), PD: e.pd, Access: allow}
	remote := reg
	remote.Access = 2 // remote write without local write
	qp := uverbs.QPArgs{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 4, MaxRecv: 4, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC}
	noCQ := qp
	noCQ.SendCQ = 77
	for _, c := range []struct {
		name      string
		make      uverbs.Op
		args, bad any
		end       uverbs.Op
		want      map[string]int64
	}{
		{"PD", uverbs.AllocPD, none{}, nil, uverbs.DeallocPD, map[string]int64{"pds": 1}},
		{"region", uverbs.RegMR, reg, remote, uverbs.DeregMR, map[string]int64{"mrs": 1}},
		{"window", uverbs.AllocMW, uverbs.MWArgs{PD: e.pd, Type: 1}, uverbs.MWArgs{PD: e.pd, Type: 3}, uverbs.DeallocMW, map[string]int64{"mws": 1}},
		{"address handle", uverbs.CreateAH, uverbs.AHArgs{PD: e.pd, Attr: to}, uverbs.AHArgs{PD: e.pd, Attr: from}, uverbs.DestroyAH, map[string]int64{"ahs": 1}},
		{
			"CQ", uverbs.CreateCQ,
			uverbs.CQArgs{CQE: 8, Channel: -1},
			uverbs.CQArgs{CQE: 8, Channel: -1, Vector: 1},
			uverbs.DestroyCQ,
			map[string]int64{"cqs": 1, "queueMemory": anyBytes},
		},
		{
			"SRQ", uverbs.CreateSRQ,
			uverbs.SRQArgs{PD: e.pd, MaxWR: 4, MaxSGE: 1},
			uverbs.SRQArgs{PD: e.pd, MaxSGE: 1},
			uverbs.DestroySRQ,
			map[string]int64{"srqs": 1, "queueMemory": anyBytes},
		},
		{"QP", uverbs.CreateQP, qp, noCQ, uverbs.DestroyQP, map[string]int64{"qps": 1, "queueMemory": anyBytes}},
	} {
		before := h.used()
		if c.bad != nil {
			if _, errno := e.raw(c.make, uverbs.NoChannel, uverbs.Encode(c.bad)); errno != unix.EINVAL {
				t.Errorf("%s: %+v: %v", c.name, c.bad, errno)
			}
		}
		if d := h.more(before); len(d) > 0 {
			t.Errorf("%s: one that was not made uses %v", c.name, d)
		}
		made := do[uverbs.Handle](e.client, c.make, c.args)
		d := h.more(before)
		for k, n := range c.want {
			if n == anyBytes && d[k] > 0 {
				d[k] = anyBytes
			}
		}
		if !maps.Equal(d, c.want) {
			t.Errorf("%s: one uses %v, want %v", c.name, d, c.want)
		}
		e.end(c.end, made.H, 0)
		if d := h.more(before); len(d) > 0 {
			t.Errorf("%s: one that is gone uses %v", c.name, d)
		}
		e.end(c.end, made.H, unix.EINVAL)
	}
	before := h.used()
	e.end(uverbs.DestroyCQ, e.cq, unix.EBUSY)
	e.end(uverbs.DeallocPD, e.pd, unix.EBUSY)
	if d := h.more(before); len(d) > 0 {
		t.Errorf("objects in use, which cannot be ended, use %v more", d)
	}
}

// end sends a command that ends an object, and checks its result.
func (c *client) end(op uverbs.Op, handle uint32, want unix.Errno) {
	c.t.Helper()
	args := []any{uverbs.Handle{H: handle}}
	if op == uverbs.DestroyCQ || op == uverbs.DestroyQP || op == uverbs.DestroySRQ {
		args = append(args, uint32(0))
	}
	if _, errno := c.raw(op, uverbs.NoChannel, uverbs.Encode(args...)); errno != want {
		c.t.Errorf("command %d for handle %d: %v, want %v", op, handle, errno, want)
	}
}

// A completion channel counts until the program has closed its descriptor: the daemon notices that
// when the program makes the next one.
func TestClosedChannelsDoNotCount(t *testing.T) {
	h := newHouse(t, serve.Limits{Manager: serve.ManagerLimits{Channels: 2}})
	c := h.attach(t, 0)
	before := openFiles(t)
	for i := range 10 {
		do[uverbs.Handle](c, uverbs.CreateCompChannel)
		if n := h.used(); n["channels"] != int64(min(i+1, 2)) || n["memory"] != 0 || n["queueMemory"] != 0 {
			t.Fatalf("channel %d: %v", i, n)
		}
		if last := len(c.fds) - 1; i > 0 { // one stays open
			must(t, unix.Close(c.fds[last]))
			c.fds = c.fds[:last]
		}
	}
	do[uverbs.Handle](c, uverbs.CreateCompChannel)
	if _, errno := c.raw(uverbs.CreateCompChannel, uverbs.NoChannel, nil); errno != unix.EMFILE {
		t.Errorf("a third open channel: %v", errno)
	}
	// Before it refused that, the daemon had closed its copy of the descriptor that it sent last.
	if n := openFiles(t); n > before+4 { // two open channels have two ends each
		t.Errorf("%d descriptors, there were %d", n, before)
	}
}

// The rings of a queue pair count by their size, those for receives only if the queue pair has
// them. A completion queue that was resized counts as one that was made with that size, and a change
// that was refused counts nothing.
func TestRingsCountBySize(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	srq := do[uverbs.SRQ](e.client, uverbs.CreateSRQ, uverbs.SRQArgs{PD: e.pd, MaxWR: 4, MaxSGE: 1})
	queued := func(op uverbs.Op, args any) (n int64, handle uint32) {
		t.Helper()
		before := h.used()
		handle = do[uverbs.Handle](e.client, op, args).H
		return h.more(before)["queueMemory"], handle
	}
	qp := func(sends, recvs uint32, shared uint8) int64 {
		n, _ := queued(uverbs.CreateQP, uverbs.QPArgs{
			PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: sends, MaxRecv: recvs, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC,
			HasSRQ: shared, SRQ: srq.H,
		})
		return n
	}
	none, few, many := qp(100, 4000, 1), qp(100, 100, 0), qp(100, 4000, 0)
	ring := func(entries int) int64 { return int64(uverbs.RingLen(entries, uverbs.RecvSlot(1))) }
	if few-none != ring(100) || many-none != ring(4000) {
		t.Errorf("receive rings of 100 and 4000 entries use %d and %d bytes, and have %d and %d", few-none, many-none, ring(100), ring(4000))
	}
	if more := qp(200, 4000, 1); more <= none || more >= 3*none {
		t.Errorf("100 sends use %d bytes, 200 use %d", none, more)
	}
	small, cq := queued(uverbs.CreateCQ, uverbs.CQArgs{CQE: 15, Channel: -1})
	large, _ := queued(uverbs.CreateCQ, uverbs.CQArgs{CQE: 1023, Channel: -1})
	before := h.used()
	for _, s := range []struct {
		entries uint32
		errno   unix.Errno
		want    int64
	}{{1023, 0, large - small}, {0, unix.EINVAL, large - small}, {1 << 22, unix.EINVAL, large - small}, {15, 0, 0}, {65535, 0, 1 << 20}, {15, 0, 0}} {
		data, errno := e.raw(uverbs.ResizeCQ, uverbs.NoChannel, uverbs.Encode(uverbs.ResizeCQArgs{H: cq, CQE: s.entries}))
		d := h.more(before)["queueMemory"]
		if errno != s.errno || d != s.want && (s.want < 1<<20 || d < s.want) {
			t.Errorf("%d entries: %v; %d bytes more, want %d", s.entries, errno, d, s.want)
		}
		if errno == 0 && binary.NativeEndian.Uint32(data) != s.entries {
			t.Errorf("%d entries: the answer is % x", s.entries, data)
		}
	}
}
