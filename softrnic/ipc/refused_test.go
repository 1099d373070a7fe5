package ipc_test

import (
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Path and Open of a configuration are required.
func TestIncompleteConfiguration(t *testing.T) {
	h := newHouse(t, 0, nil)
	for name, cfg := range map[string]serve.Config{
		"no path": {Open: h.dev[0].Context}, "no NIC": {Path: t.TempDir() + "/x"}, "no folder": {Path: t.TempDir() + "/no/x", Open: h.dev[0].Context},
	} {
		if s, err := serve.Listen(cfg); err == nil {
			t.Errorf("%s: it listens", name)
			must(t, s.Close())
		}
	}
}

// refusals is the socket of a NIC that refuses all programs.
type refusals struct {
	*house
	t *testing.T
}

func newRefusals(t *testing.T, wait time.Duration) refusals {
	h := newHouse(t, 0, func(c *serve.Config) {
		c.Allow = func(uint32) bool { return false }
		c.HelloWait = wait
	})
	return refusals{h, t}
}

func (r refusals) dial() *net.UnixConn {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.sockets[0], Net: "unixpacket"})
	must(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// told says hello, reports whether the program is told why it is refused, and waits for the end of
// its connection.
func (r refusals) told(conn *net.UnixConn) bool {
	hello, err := json.Marshal(proto.Request{ID: 3, Op: proto.OpHello, Args: []byte(`{"version":1}`)})
	must(r.t, err)
	_, _ = conn.Write(hello) // fails if the daemon has closed the connection
	b := make([]byte, proto.MaxMessage)
	n, err := conn.Read(b)
	if err != nil || n == 0 {
		return false
	}
	var reply proto.Reply
	must(r.t, json.Unmarshal(b[:n], &reply))
	if err := reply.Error.Err(); reply.ID != 3 || !errors.Is(err, verbs.ErrAccess) || !strings.Contains(err.Error(), "root") {
		r.t.Errorf("refused with %+v", reply)
	}
	if n, err := conn.Read(b); err == nil && n > 0 {
		r.t.Errorf("told more: %q", b[:n])
	}
	return true
}

// crowd is as many programs as the daemon lets wait while it refuses them. One more is turned away
// without a reason.
func (r refusals) crowd() (waiting []*net.UnixConn) {
	for range 16 {
		waiting = append(waiting, r.dial())
	}
	if r.told(r.dial()) {
		r.t.Error("one more is told the reason")
	}
	return waiting
}

// A refused program is told why when it says hello, and when its connection has ended there is room
// for another one.
func TestRefusedPrograms(t *testing.T) {
	r := newRefusals(t, time.Hour)
	for round := range 3 {
		for i, conn := range r.crowd() {
			if !r.told(conn) {
				t.Errorf("round %d: program %d is not told the reason", round, i)
			}
		}
	}
}

// The daemon ends while refused programs have not said hello, and does not wait for them.
func TestEndWhileProgramsAreRefused(t *testing.T) {
	r := newRefusals(t, time.Hour)
	waiting := r.crowd()
	must(t, r.servers[0].Close())
	for _, conn := range waiting {
		if n, err := conn.Read(make([]byte, 1)); err == nil && n > 0 {
			t.Error("a program that says nothing is told something")
		}
	}
}

// Refused programs that do not say hello are disconnected in time, and make room for others.
func TestRefusedProgramsThatAreSilent(t *testing.T) {
	r := newRefusals(t, 50*time.Millisecond)
	var silent []*net.UnixConn
	for range 16 {
		silent = append(silent, r.dial())
	}
	for _, conn := range silent {
		if n, err := conn.Read(make([]byte, 1)); err == nil && n > 0 {
			t.Error("a program that says nothing is told something")
		}
	}
	until(t, "there is room again", func() bool { return r.told(r.dial()) })
}

// The request to close a context is answered when its objects are gone, and ends the connection.
func TestCloseIsAnswered(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	must(t, a.call(proto.OpClose, proto.None{}, nil))
	if d := used(h.servers[0]); len(d) > 0 {
		t.Errorf("%v is in use", d)
	}
	if _, err := a.answer(); err == nil {
		t.Error("the daemon goes on with a program that has closed its context")
	}
}

// plainManager is a manager without the methods that end connections.
type plainManager struct{ serve.Manager }

// A daemon whose manager cannot end connections says so, and one without a manager does too.
func TestManagersThatCanDoLess(t *testing.T) {
	for name, manager := range map[string]func(verbs.Context) (serve.Manager, error){
		"no manager": nil,
		"a plain one": func(ctx verbs.Context) (serve.Manager, error) {
			m, err := rdmacm.NewCM(rdmacm.CMConfig{Context: ctx})
			return plainManager{m}, err
		},
	} {
		h := newHouse(t, 0, func(c *serve.Config) { c.Manager = manager })
		a := h.attack(t, 0)
		must(t, a.equip())
		for _, op := range []proto.Op{proto.OpDisconnect, proto.OpDisconnected} {
			if err := a.call(op, proto.Wait{H: a.qp.H}, nil); !errors.Is(err, verbs.ErrNotSupported) {
				t.Errorf("%s: %s: %v", name, op, err)
			}
		}
		if err := a.call(proto.OpListen, proto.Service{Name: "9"}, nil); (err == nil) != (manager != nil) {
			t.Errorf("%s: listen: %v", name, err)
		}
	}
}

// A work request with an address handle that does not exist, or not any more, is refused. Those
// before it are executed, and those behind it are not.
func TestWorkRequestWithoutItsAddress(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	var ah proto.Address
	must(t, a.call(proto.OpCreateAH, proto.CreateAH{PD: a.pd, Attr: verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])}}, &ah))
	send := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
	done := ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot)
	at, completed := uint64(0), uint64(0)
	post := func(handles ...uint32) {
		for _, n := range handles {
			ring.PutSend(send.Slot(at), &verbs.SendWR{ID: at, Flags: verbs.Inline | verbs.Signalled, Op: verbs.OpWrite, RemoteAddr: a.mr.Addr, RKey: a.mr.RKey, Data: []byte("x")}, n)
			at++
		}
		send.Tail.Store(at)
		a.ring(a.qp.Bell)
		until(t, "the posts are taken", func() bool { return send.Head.Load() == at })
	}
	arrive := func(n uint64) {
		t.Helper()
		completed += n
		until(t, "the completions are there", func() bool { return done.Tail.Load() == completed })
	}
	post(0, ah.H) // a connection does not look at its address
	arrive(2)
	must(t, a.call(proto.OpDestroyAH, proto.Handle{H: ah.H}, nil))
	for _, gone := range []uint32{ah.H, 999} {
		first := at
		post(0, gone, 0)
		if code, text := send.Refusal(); code != proto.Code(verbs.ErrInvalid) || !strings.Contains(text, "address handle") || send.Refused.Load() != first+2 {
			t.Errorf("refused up to %d with %d, %q; want %d", send.Refused.Load(), code, text, first+2)
		}
		arrive(1)
	}
	until(t, "the program's posts are counted", func() bool { return h.servers[0].Clients()[0].Posted == 4 })
}

// Attachments to groups count once for each group, until they end; one that fails counts nothing.
func TestAttachmentsCount(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.attack(t, 0)
	must(t, a.equip())
	var ud proto.Queue
	must(t, a.call(proto.OpCreateQP, proto.CreateQP{PD: a.pd, Type: verbs.UD, SendCQ: a.cq.H, RecvCQ: a.cq.H}, &ud))
	before := used(h.servers[0])
	group := verbs.GID{0: 0xff, 1: 0x0e, 15: 1}
	for i, c := range []struct {
		op    proto.Op
		group verbs.GID
		ok    bool
		want  int64
	}{
		{proto.OpAttach, verbs.GIDOf(ips[1]), false, 0},
		{proto.OpDetach, group, false, 0},
		{proto.OpAttach, group, true, 1},
		{proto.OpAttach, group, true, 1},
		{proto.OpAttach, verbs.GID{0: 0xff, 1: 0x0e, 15: 2}, true, 2},
		{proto.OpDetach, group, true, 1},
		{proto.OpDetach, group, false, 1},
	} {
		err := a.call(c.op, proto.Multicast{H: ud.H, Group: c.group}, nil)
		d := more(h.servers[0], before)
		if n := d["attachments"]; (err == nil) != c.ok || n != c.want || len(d) != min(int(n), 1) {
			t.Errorf("step %d: %v; more in use: %v, want %d attachments", i, err, d, c.want)
		}
	}
	h.dev[0].Down() // ends the queue pair with its attachment
	h.dev[0].Up()
	if err := a.call(proto.OpDestroyQP, proto.Handle{H: ud.H}, nil); err != nil && !errors.Is(err, verbs.ErrClosed) {
		t.Error(err)
	}
	if d := more(h.servers[0], before); d["attachments"] != 0 {
		t.Errorf("after the end of the queue pair: %v", d)
	}
}

// A shared region is made once and opened afterwards, with the same size and rights or none given.
// Each handle counts a region and a domain of the program; a request that fails counts nothing.
func TestHandlesOfSharedRegions(t *testing.T) {
	h := newHouse(t, 0, func(c *serve.Config) { c.Limits.SharedBytes, c.Limits.Shared = 8192, 2 })
	a, b := h.attack(t, 0), h.attack(t, 0)
	before := used(h.servers[0])
	share := func(x *attacker, name string, n int, access verbs.Access) (s proto.Shared, err error) {
		err = x.call(proto.OpShare, proto.Share{Name: name, Length: n, Access: access}, &s)
		return s, err
	}
	for name, s := range map[string]proto.Share{
		"no name": {Length: 4096}, "not there": {Name: "z"}, "negative": {Name: "x", Length: -1}, "a long name": {Name: strings.Repeat("x", 65), Length: 1},
		"a name for the terminal": {Name: "\x1b", Length: 1}, "too large": {Name: "x", Length: 8193},
	} {
		if err := a.call(proto.OpShare, s, nil); err == nil {
			t.Errorf("%s was shared", name)
		}
	}
	if d := more(h.servers[0], before); len(d) > 0 {
		t.Errorf("requests that failed use %v", d)
	}
	made, err := share(a, "x", 4096, verbs.LocalWrite)
	must(t, err)
	opened, err := share(b, "x", 0, 0)
	must(t, err)
	again, err := share(b, "x", 4096, verbs.LocalWrite)
	must(t, err)
	if !made.Created || opened.Created || again.Created || opened.MR.RKey != made.MR.RKey {
		t.Errorf("made %+v, opened %+v, again %+v", made, opened, again)
	}
	for _, s := range []proto.Share{{Name: "x", Length: 4095, Access: verbs.LocalWrite}, {Name: "x", Length: 4096}} {
		if err := b.call(proto.OpShare, s, nil); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if d := more(h.servers[0], before); len(d) != 3 || d["mrs"] != 3 || d["pds"] != 3 || d["shared"] != 4096 {
		t.Errorf("three handles of 4096 bytes use %v", d)
	}
	_, err = share(a, "a", 4096, 0) // all that is left
	must(t, err)
	if _, err := share(a, "b", 1, 0); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("one region more than there may be: %v", err)
	}
	list := h.servers[0].Shared()
	if len(list) != 2 || list[0].Name != "a" || list[1].Name != "x" || list[1].Open != 3 || list[1].Length != 4096 {
		t.Errorf("%+v", list)
	}
	if err := a.call(proto.OpUnshare, proto.Share{Name: "x"}, nil); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("the end of a region with handles: %v", err)
	}
	for i, x := range []struct {
		a *attacker
		s proto.Shared
	}{{a, made}, {b, opened}, {b, again}} {
		if err := a.call(proto.OpUnshare, proto.Share{Name: "x"}, nil); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("the end of a region with %d handles: %v", 3-i, err)
		}
		must(t, x.a.call(proto.OpDeregMR, proto.Handle{H: x.s.MR.H}, nil))
		must(t, x.a.call(proto.OpDeallocPD, proto.Handle{H: x.s.PD}, nil))
	}
	must(t, a.call(proto.OpUnshare, proto.Share{Name: "x"}, nil))
	if list := h.servers[0].Shared(); len(list) != 1 || list[0].Name != "a" {
		t.Errorf("%+v", list)
	}
}
