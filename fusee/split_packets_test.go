package fusee_test

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

var everyPacket = flag.Int("every", 97, "TestASplitSurvivesAFaultAtAnyPacket goes on by that many packets for the next run")

// packetFault is what happens when a certain packet crosses the link of the client that works on a split.
type packetFault struct {
	name string
	// packet is the verdict on the packet, and rest that on all others of the next 3 ms.
	packet, rest fault.Verdict
	// doubled: the packet comes once more, 3 ms later.
	doubled bool
	// dies and crashes: the client ends, or its NIC as well. hangs: both stop for 60 ms.
	dies, crashes, hangs bool
	// serverCrashes: a memory server crashes, each in a run of its own. masterHangs: 150 ms later the master hangs.
	serverCrashes, masterHangs bool
}

const tooLate = 3 * time.Millisecond

var packetFaults = []packetFault{
	{name: "the packet is lost", packet: fault.Verdict{Drop: true}},
	{name: "the packet comes late", packet: fault.Verdict{Delay: tooLate}},
	{name: "the packet comes when its connection has ended", packet: fault.Verdict{Delay: tooLate}, rest: fault.Verdict{Drop: true}},
	{name: "the packet comes again", doubled: true},
	{name: "the link is down", packet: fault.Verdict{Drop: true}, rest: fault.Verdict{Drop: true}},
	{name: "the client dies", dies: true},
	{name: "the client dies with its NIC", crashes: true},
	{name: "the packet comes when the client has died", packet: fault.Verdict{Delay: tooLate}, crashes: true},
	{name: "the client hangs", hangs: true},
	{name: "a server crashes", serverCrashes: true},
	{name: "a server crashes, the client dies", serverCrashes: true, dies: true},
	{name: "a server crashes, the packet comes when the client has died", serverCrashes: true, packet: fault.Verdict{Delay: tooLate}, crashes: true},
	{name: "a server crashes, the client hangs", serverCrashes: true, hangs: true},
	{name: "a server crashes, the master hangs", serverCrashes: true, masterHangs: true},
}

// A split of the only subtable, and of the next ones, loses and doubles no key if a fault happens at any
// packet of the client that works on it: histories of keys that move and that stay are linearizable, other
// clients end the splits, and no change is open in the end.
func TestASplitSurvivesAFaultAtAnyPacket(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		for _, f := range packetFaults {
			servers := 1
			switch {
			case f.serverCrashes && replicas == 1:
				continue
			case f.serverCrashes:
				servers = 3
			}
			for server := range servers {
				t.Run(fmt.Sprintf("%d/%s/%d", replicas, strings.ReplaceAll(f.name, " ", "-"), server), func(t *testing.T) {
					for n, left := 1, 0; left == 0; n += *everyPacket {
						x := &faultySplit{packetFault: f, left: n, server: server}
						if err := x.run(t, replicas); err != nil {
							t.Errorf("%v", err)
						}
						if left = x.left; t.Failed() {
							t.Fatalf("with the fault at packet %d", n)
						}
					}
				})
			}
		}
	}
}

// faultySplit is one run of TestASplitSurvivesAFaultAtAnyPacket.
type faultySplit struct {
	packetFault
	*rig
	server int
	left   int // packets until the fault
	armed  bool
	until  clock.Time
	ended  [2]bool // clients
}

// decide is called for each packet on the link of the client that works on splits.
func (x *faultySplit) decide(dir fault.Dir, now clock.Time, frame []byte) (v fault.Verdict) {
	switch {
	case !x.armed:
		return v
	case x.left <= 0 && now < x.until:
		return x.rest
	case x.left <= 0:
		return v
	}
	if x.left--; x.left > 0 {
		return v
	}
	x.until = now.Add(tooLate)
	h := x.Host("cn1")
	if x.doubled {
		again := slices.Clone(frame)
		x.At(now.Add(tooLate), func() { h.Inject(dir, again, nil) })
	}
	x.At(now, func() {
		switch {
		case x.dies:
			h.CrashApps()
		case x.crashes:
			h.Crash()
		case x.hangs:
			h.HangAll()
			x.At(x.Now().Add(60*time.Millisecond), h.ResumeAll)
		}
		x.ended[0] = x.ended[0] || x.dies || x.crashes
		if x.serverCrashes {
			x.Host(fmt.Sprintf("ms%d", x.server)).Crash()
		}
		if m := x.Host("cn3"); x.masterHangs {
			x.At(x.Now().Add(150*time.Millisecond), m.HangAll)
			x.At(x.Now().Add(time.Second), m.ResumeAll)
		}
	})
	return x.packet
}

func (x *faultySplit) run(t *testing.T, replicas int) error {
	x.rig = newRig(t, 3, simrack.Options{})
	g := x.rig
	g.lease, g.params = 20*time.Millisecond, rdmacm.Params{PathMTU: verbs.MTU256, Timeout: 7, RetryCount: 1}
	g.format(fusee.FormatConfig{Groups: 1, Grow: 2, Replicas: min(2, replicas), IndexReplicas: replicas, Block: 16 << 10})
	ready := !x.serverCrashes
	if !ready {
		g.master("cn3", &ready)
	}
	link := g.Host("cn1").Link()
	link.SetFaults(func(now clock.Time, frame []byte) fault.Verdict { return x.decide(fault.Up, now, frame) },
		func(now clock.Time, frame []byte) fault.Verdict { return x.decide(fault.Down, now, frame) })
	log := kv.NewHistory()
	keys := slices.Concat(keysThat(true, 1000, 6), keysThat(false, 2000, 4))
	use := func(id int, host string, f func(c *kv.Recorded, rt verbs.Runtime, do func(error))) {
		h := g.Host(host)
		h.Go("client", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			c, err := fusee.Open(g.config(h, ctx), soon(rt))
			if err != nil {
				t.Error(err)
				return
			}
			s := kv.Record(c, log, id, rt.Now)
			f(s, rt, func(err error) {
				if err != nil && !errors.Is(err, kv.ErrNotFound) && !errors.Is(err, kv.ErrExists) && !errors.Is(err, kv.ErrTimeout) {
					t.Error(host, err)
				}
			})
			if err := errors.Join(s.Err(), c.Close()); err != nil {
				t.Error(host, err)
			}
		})
	}
	begun := false
	use(0, "cn1", func(c *kv.Recorded, rt verbs.Runtime, do func(error)) {
		for _, key := range keys[:8] {
			do(c.Insert(key, c.Value(key, 100), soon(rt)))
		}
		begun, x.armed = true, true
		for n, key := range keysThat(true, 5000, 9) {
			do(c.Insert(key, c.Value(key, 100), soon(rt)))
			do(c.Put(keys[n%8], c.Value(keys[n%8], 100), soon(rt)))
		}
		x.armed = false
		x.ended[0] = true
	})
	use(1, "cn2", func(c *kv.Recorded, rt verbs.Runtime, do func(error)) {
		for !begun {
			rt.Sleep(10 * time.Microsecond)
		}
		for n := range 40 {
			key := keys[n*7%len(keys)]
			switch n % 4 {
			case 0:
				do(c.Delete(key, soon(rt)))
			case 1:
				do(c.Insert(key, c.Value(key, 100), soon(rt)))
			case 2:
				do(c.Put(key, c.Value(key, 100), soon(rt)))
			default:
				_, err := c.Get(key, nil, soon(rt))
				do(err)
			}
		}
		for key := range uint64(20) { // so that the splits are needed
			do(c.Insert(key, c.Value(key, 100), soon(rt)))
		}
		x.ended[1] = true
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !x.ended[0] || !x.ended[1] {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(5 * time.Millisecond) // of packets that come late
		if _, err := c.RecoverAll(soon(rt)); err != nil {
			return err
		}
		s := kv.Record(c, log, 2, rt.Now)
		for _, key := range slices.Concat(keys, keysThat(true, 5000, 9), []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}) {
			if _, err := s.Get(key, nil, soon(rt)); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
		}
		out, err := c.Audit(soon(rt))
		if err != nil || len(out.Defects) > 0 || out.Unfinished > 0 || out.Splitting > 0 || out.Subtables < 2 {
			t.Errorf("%+v: %s, %v", out, strings.Join(out.Defects, "\n"), err)
		}
		return s.Err()
	})
	if err := g.Run(); err != nil {
		return err
	}
	return log.Check(kv.MostStates)
}
