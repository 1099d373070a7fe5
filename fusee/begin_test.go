package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kv"
)

// begun is a lease of masters in tests of masters that begin.
const begun = 200 * time.Millisecond

// A master is hung while another one takes charge, and fills a server again. The only member that the first
// one knows crashes and comes back empty. The first master ends as one that was deposed: the store is not
// lost.
func TestADeposedMasterReportsNoLoss(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	var first, second *fusee.Master
	var ended [2]error
	var ready [2]bool
	g.keep("cn3", begun, &ready[0], &first, &ended[0])
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready[0] {
			rt.Sleep(time.Millisecond)
		}
		if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
			return err
		}
		g.Host("ms0").Crash()
		if err := c.Put(1, kv.MakeValue(1, 2, 100), soon(rt)); err != nil { // the view has ms1 alone
			return err
		}
		g.Host("cn3").HangAll()
		g.keep("cn2", begun, &ready[1], &second, &ended[1])
		g.restart(0)
		if err := g.all(rt); err != nil {
			return err
		}
		g.Host("ms1").Crash()
		if err := c.Put(1, kv.MakeValue(1, 3, 100), soon(rt)); err != nil { // the view has ms0 alone
			return err
		}
		g.restart(1)
		g.Host("cn3").ResumeAll()
		for end := soon(rt); ended[0] == nil && rt.Now() < end; {
			rt.Sleep(time.Millisecond)
		}
		if !errors.Is(ended[0], fusee.ErrDeposed) || errors.Is(ended[0], kv.ErrLost) || ended[1] != nil {
			t.Errorf("the first master ends with %v, the second with %v", ended[0], ended[1])
		}
		_, err := c.Get(1, nil, soon(rt))
		return err
	})
	g.run()
}

// A master that begins is hung when it has its number. Meanwhile the former one makes a server a member
// again, and that crashes. The new master removes it, although it was no member when the new one began. If
// the server has come back with an empty memory, the master fills it: it has the key's value when the other
// server crashes.
func TestAMasterRemovesAMemberThatItHasNotMet(t *testing.T) {
	for _, back := range []bool{false, true} {
		armed, hung := false, false
		var g *rig
		var frame wire.Frame
		g = newRig(t, 2, simrack.Options{Trace: func(ev *simnet.Event) {
			if armed && ev.Kind == simnet.Sent && ev.Link() == "cn2" && ev.Dir() == fault.Down && wire.ParseFrame(ev.Frame, &frame) == nil && frame.BTH.Opcode == wire.RCAtomicAck {
				armed, hung = false, true
				g.At(g.Now(), g.Host("cn2").HangAll)
			}
		}})
		g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		var first, second *fusee.Master
		var ended [2]error
		var ready [2]bool
		g.keep("cn3", begun, &ready[0], &first, &ended[0])
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready[0] {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
				return err
			}
			g.Host("ms0").Crash()
			if err := c.Put(1, kv.MakeValue(1, 2, 100), soon(rt)); err != nil {
				return err
			}
			armed = true
			g.keep("cn2", begun, &ready[1], &second, &ended[1])
			for !hung {
				rt.Sleep(time.Millisecond)
			}
			g.restart(0)
			if err := g.all(rt); err != nil {
				return err
			}
			g.Host("ms0").Crash()
			g.Host("cn3").CrashApps()
			if back {
				g.restart(0)
			}
			g.Host("cn2").ResumeAll()
			err := c.Put(1, kv.MakeValue(1, 3, 100), soon(rt))
			if v := g.viewAt(1); !back && v.Has(0) || ended[1] != nil {
				t.Errorf("ms1 has the view %#x, the second master ends with %v", uint64(v), ended[1])
			}
			if !back || err != nil {
				return err
			}
			if err := g.all(rt); err != nil {
				return err
			}
			out, err := c.Audit(soon(rt))
			if err != nil || len(out.Defects) > 0 || out.Keys != 1 {
				t.Errorf("%+v, %v", out, err)
			}
			g.Host("ms1").Crash()
			v, err := c.Get(1, nil, soon(rt))
			if n, e := kv.CheckValue(1, v); err == nil && (e != nil || n != 3) {
				t.Errorf("GET after the crash of ms1: value %d, want 3: %v", n, e)
			}
			return err
		})
		g.run()
	}
}

// A client was taken for dead, and a member has lost its memory while there is no master. Until a master
// comes, its operations time out: the store is not lost.
func TestAClientThatComesBackReportsNoLoss(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	ready := false
	g.master("cn3", &ready)
	number, recovered := uint32(0), false
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		for number == 0 {
			rt.Sleep(time.Millisecond)
		}
		if err := c.Recover(number, soon(rt)); err != nil {
			return err
		}
		g.Host("cn3").CrashApps()
		g.Host("ms0").Crash()
		g.restart(0)
		recovered = true
		return nil
	})
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
			return err
		}
		number = c.Number()
		for !recovered {
			rt.Sleep(time.Millisecond)
		}
		for n := range 60 { // some of the deadlines pass between the READs of the empty memory and of the other one
			long := 20*time.Millisecond + time.Duration(n)*53*time.Microsecond
			if n < 3 { // until the client knows that it was taken for dead
				long = time.Second
			}
			if err := c.Put(1, kv.MakeValue(1, 2, 100), rt.Now().Add(long)); !errors.Is(err, kv.ErrTimeout) || errors.Is(err, kv.ErrLost) {
				return fmt.Errorf("PUT without a master: %w, want a time-out", err)
			}
		}
		g.keep("cn2", begun, new(bool), new(*fusee.Master), new(error))
		return c.Put(1, kv.MakeValue(1, 3, 100), soon(rt))
	})
	g.run()
}
