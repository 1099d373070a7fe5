package ipc_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Device memory is read and written inside its bounds, at most so many bytes at once as a message
// holds.
func TestAccessToDeviceMemory(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	const n = proto.MaxData + 16
	var dm proto.Handle
	must(t, a.call(proto.OpAllocDM, proto.Alloc{Length: n}, &dm))
	var mr proto.MR
	must(t, a.call(proto.OpRegDM, proto.RegMR{PD: a.pd, Memory: dm.H, Length: n, Access: verbs.LocalWrite}, &mr))
	for op, handle := range map[proto.Op]uint32{proto.OpAccessDM: dm.H, proto.OpAccessMR: mr.H} {
		must(t, a.call(op, proto.Access{H: handle, Offset: 8, Write: true, Data: []byte(op)}, nil))
		for _, c := range []struct {
			offset, length int
			ok             bool
		}{
			{0, 0, true},
			{8, len(op), true},
			{16, proto.MaxData, true},
			{0, proto.MaxData + 1, false},
			{0, -1, false},
			{n - 8, 8, true},
			{n - 8, 9, false},
			{-1, 4, false},
		} {
			var d proto.Data
			err := a.call(op, proto.Access{H: handle, Offset: c.offset, Length: c.length}, &d)
			if (err == nil) != c.ok || err == nil && len(d.Data) != c.length {
				t.Errorf("%s: %d bytes at %d: %d bytes, %v", op, c.length, c.offset, len(d.Data), err)
			}
			if c.offset == 8 && !bytes.Equal(d.Data, []byte(op)) {
				t.Errorf("%s: read %q", op, d.Data)
			}
		}
		if err := a.call(op, proto.Access{H: handle, Offset: n, Write: true, Data: []byte("x")}, nil); err == nil {
			t.Errorf("%s: a write behind the end", op)
		}
	}
	if err := a.call(proto.OpRegDM, proto.RegMR{PD: a.pd, Memory: dm.H, Offset: 16, Length: n, Access: verbs.LocalWrite}, nil); err == nil {
		t.Error("a region behind the end")
	}
}

// A region is a part of its memory, up to the last byte and not beyond.
func TestRegionsInsideMemory(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	var m proto.Handle
	must(t, a.call(proto.OpAlloc, proto.Alloc{Length: 4096}, &m))
	for _, c := range []struct {
		offset, length int
		ok             bool
	}{{0, 4096, true}, {4095, 1, true}, {4032, 64, true}, {4032, 65, false}, {0, 4097, false}, {-1, 64, false}, {0, 0, false}, {0, -1, false}, {4096, 1, false}} {
		for _, fast := range []bool{false, true} {
			var mr proto.MR
			err := a.call(proto.OpRegMR, proto.RegMR{PD: a.pd, Memory: m.H, Offset: c.offset, Length: c.length, Fast: fast}, &mr)
			if (err == nil) != c.ok || err == nil && mr.Length != c.length {
				t.Errorf("%d bytes at %d, fast %v: %+v, %v", c.length, c.offset, fast, mr, err)
			}
		}
	}
	if err := a.call(proto.OpRegMR, proto.RegMR{PD: a.pd, Offset: 1, Length: 64}, nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an offset into memory that does not exist yet: %v", err)
	}
}

// A request may leave out arguments of which it has none.
func TestRequestWithoutArguments(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	_, err := a.conn.Write([]byte(`{"id":900,"op":"alloc_pd"}`))
	must(t, err)
	r, err := a.answer()
	must(t, err)
	if err := r.Error.Err(); r.ID != 900 || err != nil {
		t.Errorf("%+v: %v", r, err)
	}
}

// A program whose context cannot be opened is told why, and leaves nothing.
func TestManagerThatDoesNotOpen(t *testing.T) {
	why := verbs.ErrBusy
	h := newHouse(t, 0, func(c *serve.Config) {
		c.Manager = func(verbs.Context) (serve.Manager, error) { return nil, why }
	})
	if _, err := ipc.Open(ipc.Config{Socket: h.sockets[0]}); !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
	until(t, "nothing is left", func() bool { return len(used(h.servers[0])) == 0 })
}

// A malformed entry is refused with its place. The entries before it are executed, those behind it
// are not, and the next post is.
func TestMalformedEntries(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	send := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
	recv := ring.NewQueue(a.qps[ring.QueueLen(a.qp.Slots, a.qp.SendSlot):], a.qp.Slots, a.qp.RecvSlot)
	done := ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot)
	for name, x := range map[string]struct {
		q    *ring.Queue
		put  func(at uint64)
		nsge int // the place of the number of SGEs in an entry
		done uint64
	}{
		"send": {send, func(at uint64) {
			ring.PutSend(send.Slot(at), &verbs.SendWR{
				ID: at, Flags: verbs.Signalled, Op: verbs.OpWrite, RemoteAddr: a.mr.Addr, RKey: a.mr.RKey,
				SGL: []verbs.SGE{{Addr: a.mr.Addr, Length: 8, LKey: a.mr.LKey}},
			}, 0)
		}, 35, 2},
		"receive": {recv, func(at uint64) {
			ring.PutRecv(recv.Slot(at), &verbs.RecvWR{ID: at, SGL: []verbs.SGE{{Addr: a.mr.Addr, Length: 8, LKey: a.mr.LKey}}})
		}, 8, 0},
	} {
		before := done.Tail.Load()
		for at := range uint64(3) {
			x.put(at)
		}
		x.q.Slot(1)[x.nsge] = 0xff
		x.q.Tail.Store(3)
		a.ring(a.qp.Bell)
		until(t, "the posts are taken", func() bool { return x.q.Head.Load() == 3 })
		if code, text := x.q.Refusal(); code != proto.Code(verbs.ErrInvalid) || !strings.HasPrefix(text, "post ") || !strings.HasSuffix(text, "\x00malformed entry") || x.q.Refused.Load() != 2 {
			t.Errorf("%s: refused up to %d with %d, %q; want the second entry", name, x.q.Refused.Load(), code, text)
		}
		x.put(3)
		x.q.Tail.Store(4)
		a.ring(a.qp.Bell)
		until(t, "the next post is taken", func() bool { return x.q.Head.Load() == 4 })
		until(t, "the completions are there", func() bool { return done.Tail.Load() == before+x.done })
	}
	if c := h.servers[0].Clients()[0]; c.Posted != 4 || c.Completions != 2 {
		t.Errorf("%+v, want 4 posts and 2 completions", c)
	}
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// has waits for a line that contains all words.
func (l *lines) has(t *testing.T, words ...string) {
	t.Helper()
	until(t, strings.Join(words, " … "), func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for line := range strings.Lines(l.b.String()) {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return true
			}
		}
		return false
	})
}

// The log says who has attached, why each has ended, and who was refused.
func TestLogOfPrograms(t *testing.T) {
	log := new(lines)
	h := newHouse(t, 0, func(c *serve.Config) {
		c.Log, c.Limits.Clients = slog.New(slog.NewTextHandler(log, nil)), 1
	})
	c, err := ipc.Open(ipc.Config{Socket: h.sockets[0], Name: "named"})
	must(t, err)
	log.has(t, "verbs: attached", "name=named")
	if _, err := ipc.Open(ipc.Config{Socket: h.sockets[0]}); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("%v", err)
	}
	log.has(t, "verbs: refused", "1 programs use this NIC")
	must(t, c.Close())
	log.has(t, "verbs: detached", "the application has closed its context")
	a, err := attach(h.sockets[0])
	must(t, err)
	_, err = a.conn.Write([]byte("garbage"))
	must(t, err)
	a.cutOff(t)
	a.leave()
	log.has(t, "verbs: detached", "malformed message")
	until(t, "the program has gone", func() bool { return len(h.servers[0].Clients()) == 0 })
	b, err := attach(h.sockets[0])
	must(t, err)
	must(t, b.equip())
	var m proto.Handle
	must(t, b.call(proto.OpAlloc, proto.Alloc{Length: 4096}, &m))
	must(t, b.call(proto.OpRegMR, proto.RegMR{PD: b.pd, Memory: m.H, Length: 4096}, nil))
	b.leave()
	log.has(t, "verbs: detached", "the application has ended")
	log.mu.Lock()
	defer log.mu.Unlock()
	if strings.Contains(log.b.String(), "level=ERROR") {
		t.Errorf("the end of a program had errors:\n%s", log.b.String())
	}
}
