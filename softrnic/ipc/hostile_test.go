package ipc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Invalid messages end the connection, or are answered with an error. Other programs are not
// disturbed.
func TestGarbage(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	for _, msg := range []string{
		"x", "{}", "null", `{"id":0,"op":"alloc_pd"}`, `{"id":1,"op":"alloc_pd","more":1}`, `{"id":1} {"id":2}`, strings.Repeat(" ", proto.MaxMessage+1),
		`{"id":-1,"op":"alloc_pd"}`, `{"id":1,"op":7}`, "\x00\xff\xfe",
	} {
		a := h.attack(t, 0)
		_, err := a.conn.Write([]byte(msg))
		must(t, err)
		a.cutOff(t)
		v.fine()
	}
	a := h.attack(t, 0)
	for _, c := range []struct {
		op   proto.Op
		args string
	}{
		{"no such operation", `{}`},
		{proto.OpHello, `{"version":1}`}, // a second attach request
		{proto.OpAllocPD, `[]`},
		{proto.OpAllocPD, `{"x":1}`},
		{proto.OpDeallocPD, `{"h":-1}`},
		{proto.OpDeallocPD, `{"h":4294967296}`},
		{proto.OpRegMR, `{"pd":1,"length":9223372036854775807,"offset":9223372036854775807,"memory":1}`},
		{proto.OpAlloc, `{"length":-5}`},
		{proto.OpAlloc, `{"length":9223372036854775807}`},
		{proto.OpAllocDM, `{"length":9223372036854775807}`},
		{proto.OpCreateCQ, `{"depth":9223372036854775807}`},
		{proto.OpCreateCQ, `{"depth":-9223372036854775808}`},
		{proto.OpDial, `{"qp":1,"to":"nowhere"}`},
		{proto.OpModifyQP, `{"h":1,"to":"sideways"}`},
		{proto.OpShare, `{"name":"x","length":9223372036854775807}`},
	} {
		raw := rawArgs(c.args)
		if err := a.call(c.op, raw, nil); err == nil {
			t.Errorf("%s %s was done", c.op, c.args)
		}
	}
	if name := h.servers[0].Clients(); len(name) == 0 || strings.ContainsAny(fmt.Sprint(name), "\x1b\n") {
		t.Errorf("a name for the terminal: %q", fmt.Sprint(name))
	}
	v.fine()
	// An unknown version, and a program that sends nothing.
	b, err := attach(h.sockets[0])
	must(t, err)
	b.leave()
	v.fine()
}

// rawArgs are arguments that are sent as they are.
type rawArgs string

// MarshalJSON returns them.
func (r rawArgs) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// Every number that could be a handle is tried with every operation: the objects of another
// application are not found.
func TestForgedHandles(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	owner := h.open(t, 0)
	pd, err := owner.AllocPD()
	must(t, err)
	mr, err := pd.RegMR(nil, 64, verbs.LocalWrite)
	must(t, err)
	must(t, mr.Store64(0, 4711))
	a := h.attack(t, 0)
	before := h.objects(0)
	for n := uint32(0); n < 40; n++ {
		for op, args := range map[proto.Op]any{
			proto.OpDeallocPD: proto.Handle{H: n}, proto.OpFree: proto.Handle{H: n}, proto.OpDeregMR: proto.Handle{H: n}, proto.OpAllocMW: proto.Handle{H: n},
			proto.OpQueryMW: proto.Handle{H: n}, proto.OpDeallocMW: proto.Handle{H: n}, proto.OpFreeDM: proto.Handle{H: n}, proto.OpDestroyCQ: proto.Handle{H: n},
			proto.OpDestroyQP: proto.Handle{H: n}, proto.OpQueryQP: proto.Handle{H: n}, proto.OpDestroySRQ: proto.Handle{H: n}, proto.OpQuerySRQ: proto.Handle{H: n},
			proto.OpDestroyAH: proto.Handle{H: n}, proto.OpUnlisten: proto.Handle{H: n}, proto.OpModifyQP: proto.ModifyQP{H: n, To: proto.ToError},
			proto.OpRegMR: proto.RegMR{PD: n, Length: 64}, proto.OpRegDM: proto.RegMR{PD: n, Memory: n, Length: 64}, proto.OpAccessMR: proto.Access{H: n, Length: 8},
			proto.OpAccessDM: proto.Access{H: n, Length: 8}, proto.OpCreateSRQ: proto.CreateSRQ{PD: n}, proto.OpLimitSRQ: proto.Limit{H: n}, proto.OpResizeSRQ: proto.Limit{H: n, N: 8}, proto.OpResizeCQ: proto.ResizeCQ{H: n, Depth: 8}, proto.OpModerateCQ: proto.ModerateCQ{H: n}, proto.OpReregMR: proto.ReregMR{H: n},
			proto.OpCreateAH: proto.CreateAH{PD: n}, proto.OpCreateQP: proto.CreateQP{PD: n, SendCQ: n, RecvCQ: n}, proto.OpAccept: proto.Connect{H: n, QP: n},
			proto.OpReject: proto.Reject{H: n}, proto.OpNextRequest: proto.Wait{H: n}, proto.OpDisconnect: proto.Wait{H: n}, proto.OpDisconnected: proto.Wait{H: n},
			proto.OpDial: proto.Connect{QP: n, To: ips[1], Service: "x"}, proto.OpUseRing: proto.UseRing{H: n}, proto.OpDoorbell: proto.Doorbell{H: n}, proto.OpCountCQ: proto.Handle{H: n},
		} {
			if err := a.call(op, args, nil); err == nil {
				t.Errorf("%s of handle %d was done", op, n)
			}
		}
		words := ring.NewQueue(a.ctl.Memory(), ring.Accesses, ring.AccessSlot)
		at := words.Tail.Load()
		ring.PutAccess(words.Slot(at), ring.Access{Store: true, MR: n, Value: 13})
		words.Tail.Store(at + 1)
		a.ring(0)
		for words.Head.Load() != at+1 {
			time.Sleep(10 * time.Microsecond)
		}
		if words.Refused.Load() != at+1 {
			t.Errorf("a store to region %d was done", n)
		}
	}
	if after := h.objects(0); after != before {
		t.Errorf("objects %+v became %+v", before, after)
	}
	if w, err := mr.Load64(0); w != 4711 || err != nil {
		t.Errorf("the owner's word is %d, %v", w, err)
	}
	// A queue pair of the attacker with the key of another program's region.
	must(t, a.equip())
	send := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
	ring.PutSend(send.Slot(0), &verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{mr.SGE(0, 8)}, RemoteAddr: a.mr.Addr, RKey: a.mr.RKey}, 0)
	send.Tail.Store(1)
	a.ring(a.qp.Bell)
	if wc := a.completion(t); wc.Status != verbs.LocProtErr {
		t.Errorf("a WRITE out of another one's memory: %v", wc.Status)
	}
	v.fine()
}

// completion waits for the first completion.
func (a *attacker) completion(t *testing.T) verbs.WC {
	t.Helper()
	q := ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot)
	for end := time.Now().Add(10 * time.Second); q.Tail.Load() == 0; time.Sleep(10 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatal("no completion")
		}
	}
	return ring.WC(q.Slot(0))
}

// Positions outside a ring end the connection.
func TestPositionsOutOfRings(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, spin, nil)
			v := h.victim(t)
			for name, breach := range map[string]func(a *attacker){
				"send":     func(a *attacker) { ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot).Tail.Store(1 << 40) },
				"backward": func(a *attacker) { ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot).Tail.Store(^uint64(0)) },
				"receive": func(a *attacker) {
					ring.NewQueue(a.qps[ring.QueueLen(a.qp.Slots, a.qp.SendSlot):], a.qp.Slots, a.qp.RecvSlot).Tail.Store(uint64(a.qp.Slots) + 1)
				},
				"word": func(a *attacker) {
					ring.NewQueue(a.ctl.Memory(), ring.Accesses, ring.AccessSlot).Tail.Store(ring.Accesses + 1)
				},
				"completion": func(a *attacker) {
					q := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
					ring.PutSend(q.Slot(0), &verbs.SendWR{Flags: verbs.Inline | verbs.Signalled, Op: verbs.OpWrite, RemoteAddr: a.mr.Addr, RKey: a.mr.RKey}, 0)
					ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot).Head.Store(5)
					q.Tail.Store(1)
				},
			} {
				a := h.attack(t, 0)
				must(t, a.equip())
				breach(a)
				a.ring(a.qp.Bell)
				a.ring(0)
				t.Log(name)
				a.cutOff(t)
				v.fine()
			}
		})
	}
}

// An attacker changes its rings while the daemon reads them, and rings every bell.
func TestScribbledRings(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	const seed = 42
	for round := range verbstest.Tries(10, 3) {
		a := h.attack(t, 0)
		must(t, a.equip())
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for thread := range 2 {
			r := rand.New(rand.NewPCG(seed, uint64(round*2+thread)))
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					scribble(a, r)
				}
			})
		}
		for range 20 {
			v.fine()
		}
		close(stop)
		wg.Wait()
		a.leave()
	}
	v.fine()
}

// scribble writes random bytes into the entries, moves positions a little, and rings bells.
func scribble(a *attacker, r *rand.Rand) {
	send := ring.NewQueue(a.qps, a.qp.Slots, a.qp.SendSlot)
	at := a.qps[ring.HeaderLen+r.IntN(len(a.qps)-ring.HeaderLen-8):]
	switch r.IntN(6) {
	case 0, 1:
		at[0] = byte(r.Uint32())
	case 2:
		ring.PutSend(send.Slot(r.Uint64()), &verbs.SendWR{
			ID: r.Uint64(), Op: verbs.WROpcode(r.IntN(12)), Flags: verbs.SendFlags(r.Uint32()), RemoteAddr: a.mr.Addr + uint64(r.IntN(64)), RKey: a.mr.RKey,
			SGL: []verbs.SGE{{Addr: a.mr.Addr, Length: uint32(r.IntN(5000)), LKey: a.mr.LKey}}, Data: make([]byte, r.IntN(300)),
		}, uint32(r.IntN(3)))
	case 3:
		send.Tail.Store(send.Head.Load() + uint64(r.IntN(int(send.Cap())+1)))
		a.ring(a.qp.Bell)
	case 4:
		q := ring.NewQueue(a.cqs, a.cq.Slots, ring.WCSlot)
		q.Head.Store(q.Tail.Load())
		q.Arm.Store(uint64(r.IntN(4)))
		a.ring(uint32(r.IntN(ring.MaxBells)))
	case 5:
		ring.NewQueue(a.ctl.Memory(), ring.Accesses, ring.AccessSlot).Wait.Store(1)
		a.ctl.Asleep.Store(uint64(r.IntN(2)))
		a.ctl.Polls.Add(1)
	}
}

// The daemon keeps the size of the memory that it shares with an application, and does not keep
// files that an application sends.
func TestFilesAndSizes(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	a := h.attack(t, 0)
	must(t, a.equip())
	for _, fd := range a.fds {
		if fd == a.wake {
			continue
		}
		for _, n := range []int64{0, 1 << 30} {
			if err := unix.Ftruncate(fd, n); !errors.Is(err, unix.EPERM) {
				t.Errorf("truncate to %d: %v", n, err)
			}
		}
		_ = unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096) // at worst it reads zeroes
	}
	v.fine()
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(fds)
	}
	before := count()
	null, err := os.Open(os.DevNull)
	must(t, err)
	rights := unix.UnixRights(int(null.Fd()), int(null.Fd()), int(null.Fd()))
	for i := range 50 {
		_, _, err := a.conn.WriteMsgUnix([]byte(fmt.Sprintf(`{"id":%d,"op":"query_qp","args":{"h":%d}}`, 1000+i, a.qp.H)), rights, nil)
		must(t, err)
		_, err = a.answer()
		must(t, err)
	}
	must(t, null.Close())
	if after := count(); after != before {
		t.Errorf("%d files are open, there were %d", after, before)
	}
	v.fine()
}

// Objects, memory and attachments are bounded for each application, and each application has its
// own share.
func TestFloods(t *testing.T) {
	limits := serve.Limits{Clients: 4, PDs: 3, CQs: 5, QPs: 6, MRs: 7, SRQs: 2, MWs: 3, AHs: 4, Memories: 9, Bytes: 1 << 20, QueueBytes: 1 << 20, Manager: serve.ManagerLimits{Listeners: 2}}
	h := newHouse(t, 0, func(c *serve.Config) { c.Limits = limits })
	v := h.victim(t)
	c := h.open(t, 0)
	flood := func(what string, most int, one func(i int) error) {
		t.Helper()
		for i := 0; ; i++ {
			err := one(i)
			if err == nil && i < most {
				continue
			}
			if i != most || !errors.Is(err, verbs.ErrLimit) {
				t.Errorf("%s: %v at number %d, want %q at %d", what, err, i, verbs.ErrLimit, most)
			}
			return
		}
	}
	pd, err := c.AllocPD()
	must(t, err)
	cq, err := c.CreateCQ(8)
	must(t, err)
	flood("PDs", 2, func(int) error { _, err := c.AllocPD(); return err })
	flood("CQs", 4, func(int) error { _, err := c.CreateCQ(8); return err })
	flood("QPs", 6, func(int) error {
		_, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})
		return err
	})
	flood("SRQs", 2, func(int) error { _, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 4}); return err })
	flood("MWs", 3, func(int) error { _, err := pd.AllocMW(); return err })
	flood("AHs", 4, func(int) error { _, err := pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])}); return err })
	flood("MRs", 7, func(int) error { _, err := pd.RegMR(nil, 4096, 0); return err })
	flood("memories", 2, func(int) error { _, err := c.Alloc(4096); return err })
	flood("listeners", 2, func(i int) error { _, err := c.Manager().Listen(fmt.Sprint("service", i)); return err })
	_, err = c.Alloc(1 << 20)
	if !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("too many bytes: %v", err)
	}
	a := h.attack(t, 0)
	if err := a.call(proto.OpCreateCQ, proto.CreateCQ{Depth: 1 << 19}, nil); !errors.Is(err, verbs.ErrLimit) {
		t.Errorf("a CQ of more than the application may have: %v", err)
	}
	b := h.attack(t, 0)
	if _, err := attach(h.sockets[0]); err == nil {
		t.Error("one application more than allowed")
	}
	if _, err := ipc.Open(ipc.Config{Socket: h.sockets[0]}); !errors.Is(err, verbs.ErrLimit) || !strings.Contains(err.Error(), "end one of them") {
		t.Errorf("one application more than allowed: %v", err)
	}
	b.leave()
	v.fine()
}

// A program that does not read its answers is cut off, and does not delay others.
func TestUnreadAnswers(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	a := h.attack(t, 0)
	must(t, a.equip())
	must(t, a.conn.SetWriteDeadline(time.Now().Add(30*time.Second)))
	for i := 0; ; i++ {
		if _, err := fmt.Fprintf(a.conn, `{"id":%d,"op":"query_qp","args":{"h":%d}}`, 1000+i, a.qp.H); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it was never cut off")
			}
			break
		}
	}
	v.fine()
}

// An application that never polls overruns its own queue, and no other.
func TestNeverPolling(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	c := h.open(t, 0)
	r, err := newReader(c, c)
	must(t, err)
	for range 1000 {
		if err := r.qp.PostSend(r.wr...); err != nil && !errors.Is(err, verbs.ErrNoSpace) {
			t.Fatal(err)
		}
		if s, err := r.qp.Query(); err != nil || s.State == verbs.StateError {
			break
		}
	}
	for {
		ev, err := c.NextAsyncEvent(c.Runtime().Now().Add(10 * time.Second))
		must(t, err)
		if ev.Kind == verbs.EventCQErr {
			break
		}
	}
	v.fine()
}

// A daemon without free file descriptors refuses requests that need one, and goes on when there are
// some again.
func TestNoFilesLeft(t *testing.T) {
	h := newHouse(t, 0, nil)
	v := h.victim(t)
	c := h.open(t, 0)
	pd, err := c.AllocPD()
	must(t, err)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max})) // open descriptors stay open
	_, regErr := pd.RegMR(nil, 4096, 0)
	opened := make(chan error, 1)
	go func() { // the client has no descriptor for its end, or waits until the daemon has one
		c, err := ipc.Open(ipc.Config{Socket: h.sockets[0]})
		if err == nil {
			err = c.Close()
		}
		opened <- err
	}()
	v.fine()
	time.Sleep(50 * time.Millisecond) // some attempts to accept; the result does not depend on how many
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	if !errors.Is(regErr, verbs.ErrLimit) {
		t.Errorf("without files: %v", regErr)
	}
	if err := <-opened; err != nil && !errors.Is(err, unix.EMFILE) {
		t.Errorf("open: %v", err)
	}
	must(t, second(pd.RegMR(nil, 4096, 0)))
	h.open(t, 0)
	v.fine()
}

func second[T any](_ T, err error) error { return err }

// An operation that a program cannot use over ipc is refused with a reason.
func TestOpenAndMemoryMistakes(t *testing.T) {
	h := newHouse(t, 0, nil)
	t.Setenv(ipc.EnvSocket, "")
	if _, err := ipc.Open(ipc.Config{}); err == nil || !strings.Contains(err.Error(), "rdmalab exec") {
		t.Errorf("no socket: %v", err)
	}
	t.Setenv(ipc.EnvSocket, h.sockets[0])
	c, err := ipc.Open(ipc.Config{})
	must(t, err)
	defer c.Close()
	pd, err := c.AllocPD()
	must(t, err)
	if _, err := pd.RegMR(make([]byte, 64), 0, 0); !errors.Is(err, verbs.ErrNotSupported) {
		t.Errorf("memory of the program: %v", err)
	}
	buf, err := c.Alloc(8192)
	must(t, err)
	mr, err := pd.RegMR(buf[100:4196], 0, verbs.LocalWrite)
	must(t, err)
	buf[100] = 7
	var b [1]byte
	must(t, mr.ReadAt(b[:], 0))
	if b[0] != 7 {
		t.Error("the region is not the buffer")
	}
	must(t, mr.Store64(8, 9)) // in a buffer that is not aligned
	if err := c.Free(buf); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("free below a region: %v", err)
	}
	must(t, mr.Dereg())
	must(t, c.Free(buf))
}
