package ipc_test

import (
	"encoding/json"
	"errors"
	"math"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// middleman forwards the messages between one program and a daemon, and may change or lose them.
type middleman struct {
	socket string
	reply  func(op proto.Op, r *proto.Reply) bool // called for each message, which it may change; false: the message is lost
	ops    sync.Map                               // of the requests, by ID
	asked  atomic.Int64                           // requests for progress
	held   sync.Mutex                             // while a test holds it, requests are delayed
}

func (h *house) middleman(t testing.TB, nic int, reply func(op proto.Op, r *proto.Reply) bool) *middleman {
	t.Helper()
	m := &middleman{socket: filepath.Join(t.TempDir(), "between.sock"), reply: reply}
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: m.socket, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { must(t, ln.Close()) })
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		program, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		daemon, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.sockets[nic], Net: "unixpacket"})
		if err != nil {
			t.Error(err)
			return
		}
		var both sync.WaitGroup
		both.Go(func() { m.carry(program, daemon, m.request) })
		both.Go(func() { m.carry(daemon, program, m.answer) })
		both.Wait()
	}()
	return m
}

// carry forwards messages from one side to the other until either has ended.
func (m *middleman) carry(from, to *net.UnixConn, see func(b []byte) []byte) {
	b, oob := make([]byte, proto.MaxMessage), make([]byte, unix.CmsgSpace(16))
	for {
		n, oobn, _, _, err := from.ReadMsgUnix(b, oob)
		if err == nil && n > 0 {
			if out := see(b[:n]); out != nil {
				_, _, err = to.WriteMsgUnix(out, oob[:oobn], nil)
			}
			closeRights(oob[:oobn])
		}
		if err != nil || n == 0 {
			_, _ = from.Close(), to.Close() // the other direction may have closed it
			return
		}
	}
}

func closeRights(oob []byte) {
	msgs, _ := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		fds, _ := unix.ParseUnixRights(&msgs[i])
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}
}

func (m *middleman) request(b []byte) []byte {
	m.held.Lock()
	defer m.held.Unlock()
	var r proto.Request
	if json.Unmarshal(b, &r) == nil {
		m.ops.Store(r.ID, r.Op)
		if r.Op == proto.OpProgress {
			m.asked.Add(1)
		}
	}
	return b
}

func (m *middleman) answer(b []byte) []byte {
	var r proto.Reply
	if m.reply == nil || json.Unmarshal(b, &r) != nil {
		return b
	}
	op, _ := m.ops.Load(r.ID)
	name, _ := op.(proto.Op)
	if !m.reply(name, &r) {
		return nil
	}
	b, _ = json.Marshal(r) // the message was parsed before
	return b
}

// impatient attaches to a socket with a short patience.
func impatient(t testing.TB, socket string, patience time.Duration) *ipc.Context {
	t.Helper()
	c, err := ipc.Open(ipc.Config{Socket: socket, Patience: patience})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// given checks that a context was given up, with an error that contains want, and that nothing is
// left of it.
func given(t *testing.T, h *house, c *ipc.Context, err error, want string) {
	t.Helper()
	if !errors.Is(err, verbs.ErrClosed) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "open another") {
		t.Errorf("%v; want a word of %q", err, want)
	}
	if _, err := c.AllocPD(); !errors.Is(err, verbs.ErrClosed) || !strings.Contains(err.Error(), want) {
		t.Errorf("the next call: %v", err)
	}
	must(t, c.Close())
	h.empty(t)
}

// A call whose answer was lost does not wait for ever, because the daemon reports that it has
// answered.
func TestLostAnswers(t *testing.T) {
	for _, lost := range []proto.Op{proto.OpAllocPD, proto.OpNextRequest} {
		t.Run(string(lost), func(t *testing.T) {
			h := newHouse(t, 0, nil)
			m := h.middleman(t, 0, func(op proto.Op, _ *proto.Reply) bool { return op != lost })
			c := impatient(t, m.socket, 3*time.Second)
			if lost == proto.OpAllocPD {
				_, err := c.AllocPD()
				given(t, h, c, err, "lost alloc_pd")
				return
			}
			l, err := c.Manager().Listen("here")
			must(t, err)
			_, err = l.Accept(0)
			given(t, h, c, err, "lost next_request")
		})
	}
}

// A call with a time limit ends then, whatever progress the daemon reports.
func TestOverdueCall(t *testing.T) {
	h := newHouse(t, 0, nil)
	m := h.middleman(t, 0, func(op proto.Op, r *proto.Reply) bool {
		if op == proto.OpProgress {
			r.Result = json.RawMessage(`{"working":true}`)
		}
		return op != proto.OpNextRequest
	})
	c := impatient(t, m.socket, time.Second)
	l, err := c.Manager().Listen("here")
	must(t, err)
	_, err = l.Accept(0)
	given(t, h, c, err, "has not ended next_request")
}

// A call without a time limit may last far longer than the program's patience with a silent daemon.
func TestCallsMayTakeLong(t *testing.T) {
	h := newHouse(t, 0, nil)
	m := h.middleman(t, 0, nil)
	c := impatient(t, m.socket, 3*time.Second)
	man := c.Manager()
	l, err := man.Listen("here")
	must(t, err)
	got := make(chan error, 1)
	go func() {
		r, err := l.Accept(clock.Never)
		if err == nil {
			err = r.Reject("seen")
		}
		got <- err
	}()
	until(t, "the daemon is asked all the time", func() bool { return m.asked.Load() > 40 })
	peer := h.open(t, 1)
	r, err := newReader(peer, peer)
	must(t, err)
	must(t, r.qp.ToReset())
	_, err = peer.Manager().Dial(r.qp, ips[0], "here", rdmacm.Params{}, nil, clock.Never)
	if !errors.Is(err, rdmacm.ErrRejected) {
		t.Errorf("Dial: %v", err)
	}
	must(t, <-got)
}

// A program gives up a daemon that hangs, wherever it waits for it: in a call, in a post, in the
// arming of a completion queue, and in waits for events that may never come.
func TestDaemonThatHangs(t *testing.T) {
	for name, wait := range map[string]func(c *ipc.Context, mr verbs.MR, cq verbs.CQ) error{
		"call":  func(c *ipc.Context, _ verbs.MR, _ verbs.CQ) error { _, err := c.AllocPD(); return err },
		"word":  func(_ *ipc.Context, mr verbs.MR, _ verbs.CQ) error { return mr.Store64(0, 1) },
		"arm":   func(_ *ipc.Context, _ verbs.MR, cq verbs.CQ) error { return cq.Arm(false) },
		"wait":  func(_ *ipc.Context, _ verbs.MR, cq verbs.CQ) error { return cq.Wait(clock.Never) },
		"event": func(_ *ipc.Context, _ verbs.MR, cq verbs.CQ) error { return cq.WaitEvent(clock.Never) },
		"async event": func(c *ipc.Context, _ verbs.MR, _ verbs.CQ) error {
			_, err := c.NextAsyncEvent(clock.Never)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each waits for some seconds
			h := newHouse(t, 0, nil)
			c := impatient(t, h.sockets[0], 2*time.Second)
			pd, err := c.AllocPD()
			must(t, err)
			mr, err := pd.RegMR(nil, 8, verbs.LocalWrite)
			must(t, err)
			cq, err := c.CreateCQ(4)
			must(t, err)
			hung, goOn := make(chan struct{}), make(chan struct{})
			var hanging sync.WaitGroup
			hanging.Go(func() {
				h.dev[0].With(func(*engine.Engine) {
					close(hung)
					<-goOn
				})
			})
			<-hung
			err = wait(c, mr, cq)
			close(goOn)
			hanging.Wait()
			given(t, h, c, err, "the daemon has not")
		})
	}
}

// Programs that cannot even send a request to a daemon that hangs give it up after the same time,
// however many they are.
func TestDaemonThatReadsNothing(t *testing.T) {
	h := newHouse(t, 0, nil)
	m := h.middleman(t, 0, nil)
	c := impatient(t, m.socket, time.Second)
	w := window(t, c)
	m.held.Lock()
	errs := make(chan error)
	const callers = 400 // more than a socket buffers
	for range callers {
		go func() { _, err := w.RKey(); errs <- err }()
	}
	for range callers {
		if err := <-errs; !errors.Is(err, verbs.ErrClosed) || !strings.Contains(err.Error(), "the daemon has ") {
			t.Errorf("%v", err)
		}
	}
	m.held.Unlock()
}

// The time for which `rdmalab hang` stops a program together with its daemon does not count as
// patience, neither in a wait for an answer nor in a wait to send a request.
func TestStoppedTogether(t *testing.T) {
	h := newHouse(t, 0, nil)
	m := h.middleman(t, 0, nil)
	c := impatient(t, m.socket, 3*time.Second)
	w := window(t, c)
	m.held.Lock()
	errs := make(chan error)
	const callers = 400
	for range callers {
		go func() { _, err := w.RKey(); errs <- err }()
	}
	out, err := exec.Command("sh", "-c", "trap '' INT HUP TERM; sleep 0.1; kill -STOP $PPID; sleep 3.2; kill -CONT $PPID").CombinedOutput()
	m.held.Unlock()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for range callers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// window makes a memory window, which is a request to the daemon.
func window(t *testing.T, c *ipc.Context) verbs.MW {
	t.Helper()
	pd, err := c.AllocPD()
	must(t, err)
	w, err := pd.AllocMW()
	must(t, err)
	return w
}

// The error of a wait for events names the end of the daemon, and not a Close that did not happen.
func TestEventsAfterTheEndOfTheDaemon(t *testing.T) {
	h := newHouse(t, 0, nil)
	c, err := ipc.Open(ipc.Config{Socket: h.sockets[0], Name: "waits"})
	must(t, err)
	must(t, h.servers[0].Close())
	if _, err := c.NextAsyncEvent(clock.Never); !errors.Is(err, verbs.ErrClosed) || strings.Contains(err.Error(), "the context was closed") {
		t.Errorf("NextAsyncEvent: %v", err)
	}
	_ = c.Close() // its daemon is gone
}

// Values of patience that are too short or too long are replaced by bounds.
func TestStrangePatience(t *testing.T) {
	h := newHouse(t, 0, nil)
	for _, patience := range []time.Duration{1, math.MaxInt64} {
		m := h.middleman(t, 0, nil)
		c := impatient(t, m.socket, patience)
		l, err := c.Manager().Listen("here")
		must(t, err)
		if _, err = l.Accept(c.Runtime().Now().Add(50 * time.Millisecond)); !errors.Is(err, verbs.ErrTimeout) {
			t.Errorf("Accept: %v", err)
		}
		asked, begin := m.asked.Load(), time.Now()
		waits := make(chan error, 1)
		go func() { _, err := c.NextAsyncEvent(clock.Never); waits <- err }()
		time.Sleep(20 * time.Millisecond)
		if n := m.asked.Load() - asked; n > 2+int64(time.Since(begin)/(50*time.Millisecond)) {
			t.Errorf("patience %v: asked %d times in no time", patience, n)
		}
		must(t, c.Close())
		if err := <-waits; !errors.Is(err, verbs.ErrClosed) {
			t.Errorf("NextAsyncEvent: %v", err)
		}
	}
}
