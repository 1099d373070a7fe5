package ipc_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// fewDescriptors calls f while the process can open n more descriptors.
func fewDescriptors(t *testing.T, n int, f func()) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	list, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	var filled []int // fills the gaps between the open descriptors
	for range len(list) + 64 {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		filled = append(filled, fd)
	}
	last := filled[len(filled)-1]
	defer func() {
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
		for _, fd := range filled {
			must(t, unix.Close(fd))
		}
	}()
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(last + 1 + n), Max: old.Max}))
	f()
}

// A program that attaches while the daemon has few descriptors is attached or refused; nothing is
// left of it.
func TestAttachWithFewDescriptors(t *testing.T) {
	h := newHouse(t, -1, nil)
	v := h.victim(t)
	open := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(fds)
	}
	before, programs := open(), len(h.servers[0].Clients())
	attached, refused := 0, 0
	for n := 2; n < 12; n++ { // the connection has two ends
		fewDescriptors(t, n, func() {
			a, err := attach(h.sockets[0])
			if err == nil {
				attached++
				a.leave()
			} else {
				refused++
			}
		})
		until(t, "the program has gone", func() bool { return len(h.servers[0].Clients()) == programs && open() == before })
	}
	if attached == 0 || refused == 0 {
		t.Errorf("%d programs were attached, %d refused", attached, refused)
	}
	v.fine()
}

// A shared region for which a quota of the program or a table of the NIC has no room is not made,
// and nothing of it is left; when there is room, it is made.
func TestSharedRegionsWithoutRoom(t *testing.T) {
	const most = 20
	share := proto.Share{Name: "region", Length: 4096, Access: verbs.LocalWrite}
	for name, c := range map[string]struct {
		limits serve.Limits
		own    func(ctx verbs.Context, pd verbs.PD) (end func() error, err error) // makes an object of the daemon
	}{
		"domains of the program": {limits: serve.Limits{PDs: 1}},
		"regions of the program": {limits: serve.Limits{MRs: 1}},
		"regions of the NIC": {own: func(_ verbs.Context, pd verbs.PD) (func() error, error) {
			mr, err := pd.RegMR(make([]byte, 64), 0, verbs.LocalWrite)
			return func() error { return mr.Dereg() }, err
		}},
		"domains of the NIC": {own: func(ctx verbs.Context, _ verbs.PD) (func() error, error) {
			x, err := ctx.AllocPD()
			return func() error { return x.Dealloc() }, err
		}},
	} {
		h := newHouseOf(t, memcable.Config{}, engine.Limits{PDs: most, MRs: most}, -1, func(cfg *serve.Config) { cfg.Limits = c.limits })
		a := h.attack(t, 0)
		var pd, mr proto.Handle
		must(t, a.call(proto.OpAllocPD, proto.None{}, &pd))
		must(t, a.call(proto.OpRegMR, proto.RegMR{PD: pd.H, Length: 64}, &mr))
		own := h.dev[0].Context()
		ownPD, err := own.AllocPD()
		must(t, err)
		var owns []func() error
		for c.own != nil {
			end, err := c.own(own, ownPD)
			if err != nil {
				break
			}
			owns = append(owns, end)
		}
		before := used(h.servers[0])
		for range 2 * most {
			if err := a.call(proto.OpShare, share, nil); !errors.Is(err, verbs.ErrLimit) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if now := used(h.servers[0]); !maps.Equal(now, before) || len(h.servers[0].Shared()) != 0 {
			t.Errorf("%s: %v are used, and before %v; regions: %v", name, now, before, h.servers[0].Shared())
		}
		if len(owns) > 0 {
			must(t, owns[0]())
		} else {
			must(t, a.call(proto.OpDeregMR, mr, nil))
			must(t, a.call(proto.OpDeallocPD, pd, nil))
		}
		var out proto.Shared
		if err := a.call(proto.OpShare, share, &out); err != nil || !out.Created {
			t.Errorf("%s: with room: %+v, %v", name, out, err)
		}
		must(t, own.Close())
	}
}

// fullProgram makes objects whose memory it cannot map, because it has no free descriptor. They must
// not exist: later it makes as many as its quotas allow, and a domain that had some ends.
func fullProgram() error {
	const tries = 3
	c, err := ipc.Open(ipc.Config{Socket: socketsOfProgram()[0]})
	if err != nil {
		return err
	}
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	cq, err := c.CreateCQ(4)
	if err != nil {
		return err
	}
	makers := map[string]func() error{
		"memory": func() error { _, err := c.Alloc(4096); return err },
		"region": func() error { _, err := pd.RegMR(nil, 4096, verbs.LocalWrite); return err },
		"CQ":     func() error { _, err := c.CreateCQ(4); return err },
		"SRQ":    func() error { _, err := pd.CreateSRQ(verbs.SRQInit{}); return err },
		"QP":     func() error { _, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq}); return err },
		"share":  func() error { _, err := c.Share("region", 4096, verbs.LocalWrite); return err },
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return err
	}
	last := 0
	for range 100 { // fills the gaps between the open descriptors
		if last, err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(last + 1), Max: old.Max}); err != nil {
		return err
	}
	for name, f := range makers {
		for range tries {
			if err := f(); err == nil || !strings.Contains(err.Error(), "out of file descriptors") {
				return fmt.Errorf("%s without a descriptor: %w", name, err)
			}
		}
	}
	if err := errors.Join(cq.Destroy(), pd.Dealloc(), unix.Setrlimit(unix.RLIMIT_NOFILE, &old)); err != nil {
		return err
	}
	if cq, err = c.CreateCQ(4); err != nil {
		return err
	}
	if pd, err = c.AllocPD(); err != nil {
		return err
	}
	for name, f := range makers {
		if err := f(); err != nil {
			return fmt.Errorf("%s with descriptors: %w", name, err)
		}
	}
	return c.Close()
}

// A program without free descriptors makes no objects of which only the daemon knows.
func TestProgramWithoutDescriptors(t *testing.T) {
	h := newHouse(t, -1, func(c *serve.Config) {
		c.Limits = serve.Limits{PDs: 2, MRs: 2, Memories: 2, CQs: 2, SRQs: 1, QPs: 1}
	})
	if out, err := h.program(t, "full").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	h.eventually(t, func() (any, bool) { return used(h.servers[0]), len(h.servers[0].Clients()) == 0 })
}

// An application that sends no hello is cut off after the time that it has for that, and one that
// has sent it is not.
func TestTimeForTheHello(t *testing.T) {
	h := newHouse(t, -1, func(c *serve.Config) { c.HelloWait = 50 * time.Millisecond })
	a := h.attack(t, 0)
	silent := refusals{h, t}.dial()
	must(t, silent.SetReadDeadline(time.Now().Add(20*time.Second)))
	if n, err := silent.Read(make([]byte, 10)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one that is silent reads %d bytes, %v", n, err)
	}
	must(t, a.call(proto.OpAllocPD, proto.None{}, nil)) // later than the other one was cut off
}
