package ipc_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// glutton is a program that allocates all it can. most bounds each of its loops.
type glutton struct {
	t    *testing.T
	name string
	c    *ipc.Context
	most int
	got  map[string]int
}

// all allocates one object after the other until the daemon refuses; the error must name the quota.
func (g *glutton) all(quota string, one func() error) {
	g.t.Helper()
	for n := range g.most {
		if err := one(); err != nil {
			if !errors.Is(err, verbs.ErrLimit) || !strings.Contains(err.Error(), "quota "+quota+":") {
				g.t.Errorf("%s number %d: %v, want one that names the quota", quota, n, err)
			}
			g.got[quota] = n
			return
		}
	}
	g.t.Errorf("%s: %d, and no end", quota, g.most)
}

// eat allocates all objects of all kinds.
func (g *glutton) eat() {
	g.t.Helper()
	t, c := g.t, g.c
	pd, err := c.AllocPD()
	must(t, err)
	cq, err := c.CreateCQ(4)
	must(t, err)
	buf, err := c.Alloc(4096)
	must(t, err)
	g.all("queueMemory", func() error { _, err := c.CreateCQ(1 << 18); return err })
	shared := 0
	g.all("shared", func() error {
		shared++
		_, err := c.Share(fmt.Sprint(g.name, shared), 1<<20, 0)
		return err
	})
	ud, err := pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: cq, RecvCQ: cq})
	must(t, err)
	group := verbs.GID{0: 0xff, 1: 0x0e}
	g.all("attachments", func() error {
		group[15]++
		return ud.AttachMulticast(group)
	})
	g.all("qps", func() error {
		_, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1, MaxInline: 1})
		return err
	})
	g.all("srqs", func() error { _, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 1}); return err })
	g.all("cqs", func() error { _, err := c.CreateCQ(4); return err })
	g.all("ahs", func() error { _, err := pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])}); return err })
	g.all("pds", func() error { _, err := c.AllocPD(); return err })
	g.all("mrs", func() error { _, err := pd.RegMR(buf[:64], 0, verbs.LocalWrite); return err })
	g.all("mws", func() error { _, err := pd.AllocMW(); return err })
	g.all("deviceMemory", func() error { _, err := c.AllocDM(16 << 10); return err })
	g.all("memory", func() error { _, err := c.Alloc(1 << 20); return err })
}

// Programs that allocate all they can leave the daemon its reserve, and leave a program that starts
// later enough to work. Their objects are free again when they end.
func TestGluttons(t *testing.T) {
	nic := engine.Limits{PDs: 100, MRs: 300, CQs: 120, QPs: 120, AHs: 100, SRQs: 50, Attachments: 80, DeviceMemory: 1 << 20}
	limits := serve.Limits{MRs: 100, MWs: 40, Bytes: 4 << 20, QueueBytes: 8 << 20, SharedBytes: 3 << 20, Reserve: 10, ReservedDevice: 256 << 10}
	h := newHouseOf(t, memcable.Config{}, nic, 0, func(c *serve.Config) { c.Limits = limits })
	before := h.servers[0].Quotas()
	var gluttons []*glutton
	for i := range 4 {
		c, err := ipc.Open(ipc.Config{Socket: h.sockets[0], Name: "glutton"})
		must(t, err)
		g := &glutton{t: t, name: fmt.Sprint("hog", i, "-"), c: c, most: 400, got: map[string]int{}}
		gluttons = append(gluttons, g)
		g.eat()
	}
	t.Logf("the first one got %v, the last one %v", gluttons[0].got, gluttons[3].got)
	for _, q := range h.servers[0].Quotas() {
		if q.Pool > 0 && q.Used >= q.Pool {
			t.Errorf("of %s nothing is left: %+v", q.Name, q)
		}
	}
	h.daemonWorks(t, nic, limits)
	late, err := ipc.Open(ipc.Config{Socket: h.sockets[0], Name: "late"})
	must(t, err)
	r, err := newReader(late, h.open(t, 1))
	must(t, err)
	for range 3 {
		must(t, r.read())
	}
	for _, g := range gluttons {
		must(t, g.c.Close())
	}
	must(t, late.Close())
	until(t, "everything came back", func() bool {
		now := h.servers[0].Quotas()
		for i := range now {
			now[i].Refused = 0
		}
		return slices.Equal(now[:len(before)-2], before[:len(before)-2])
	})
}

// daemonWorks allocates the daemon's reserve of each table.
func (h *house) daemonWorks(t *testing.T, nic engine.Limits, l serve.Limits) {
	t.Helper()
	c := h.dev[0].Context()
	defer func() { must(t, c.Close()) }()
	pd, err := c.AllocPD()
	must(t, err)
	cq, err := c.CreateCQ(16)
	must(t, err)
	for what, one := range map[string]struct {
		n    int
		make func() error
	}{
		"PDs": {nic.PDs, func() error { _, err := c.AllocPD(); return err }},
		"MRs": {nic.MRs, func() error { _, err := pd.RegMR(make([]byte, 64), 0, verbs.LocalWrite); return err }},
		"CQs": {nic.CQs, func() error { _, err := c.CreateCQ(4); return err }},
		"QPs": {nic.QPs, func() error { _, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq}); return err }},
		"AHs": {nic.AHs, func() error { _, err := pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(ips[1])}); return err }},
		"attachments": {nic.Attachments, func() func() error {
			q, err := pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: cq, RecvCQ: cq})
			must(t, err)
			group := verbs.GID{0: 0xff, 1: 0x0e}
			return func() error { group[14]++; return q.AttachMulticast(group) }
		}()},
		"SRQs": {nic.SRQs, func() error { _, err := pd.CreateSRQ(verbs.SRQInit{}); return err }},
	} {
		for i := range one.n*l.Reserve/100 - 3 { // shared regions count as the daemon's
			if err := one.make(); err != nil {
				t.Errorf("the daemon's %s, number %d of its reserve: %v", what, i, err)
				break
			}
		}
	}
	_, err = c.AllocDM(int(l.ReservedDevice))
	must(t, err)
}

// One program gets a quarter of the places of a group, all programs together leave some to the
// daemon, and what they had is free when they end.
func TestGroupIsShared(t *testing.T) {
	h := newHouseOf(t, memcable.Config{}, engine.Limits{GroupQPs: 16}, 0, nil)
	group := verbs.GID{0: 0xff, 1: 0x0e, 15: 1}
	attach := func(c verbs.Context) (n int) {
		pd, err := c.AllocPD()
		must(t, err)
		cq, err := c.CreateCQ(4)
		must(t, err)
		for ; n < 20; n++ {
			q, err := pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
			must(t, err)
			if err := q.AttachMulticast(group); err != nil {
				if !errors.Is(err, verbs.ErrLimit) {
					t.Error(err)
				}
				break
			}
		}
		return n
	}
	for range 2 {
		var programs []*ipc.Context
		for i, want := range []int{4, 4, 4, 2, 0} {
			c, err := ipc.Open(ipc.Config{Socket: h.sockets[0], Name: "member"})
			must(t, err)
			programs = append(programs, c)
			if n := attach(c); n != want {
				t.Errorf("program %d attaches %d, want %d", i, n, want)
			}
		}
		daemon := h.dev[0].Context()
		if n := attach(daemon); n != 2 {
			t.Errorf("the daemon attaches %d of its 2", n)
		}
		must(t, daemon.Close())
		for _, c := range programs {
			must(t, c.Close())
		}
	}
}

// TestCloseFreesQuotas closes contexts, also while calls wait for requests; when Close returns, the
// next application can have all that the former one had.
func TestCloseFreesQuotas(t *testing.T) {
	h := newHouse(t, -1, nil)
	for n := range 100 {
		c := h.open(t, 0)
		must(t, second(c.AllocDM(c.Device().MaxDM)))
		must(t, second(c.AllocPD()))
		var waits sync.WaitGroup
		for i := range 4 * (n % 2) {
			l, err := c.Manager().Listen(fmt.Sprint(1000 + 10*n + i))
			must(t, err)
			waits.Go(func() {
				if _, err := l.Accept(clock.Never); !errors.Is(err, verbs.ErrClosed) {
					t.Errorf("accept: %v, want %v", err, verbs.ErrClosed)
				}
			})
		}
		c.Runtime().Sleep(time.Duration(n%2) * 5 * time.Millisecond) // let them wait; right either way
		must(t, c.Close())
		waits.Wait()
		for _, q := range h.servers[0].Quotas() {
			if q.Used != 0 {
				t.Fatalf("quota %s: %d in use after Close", q.Name, q.Used)
			}
		}
	}
}
