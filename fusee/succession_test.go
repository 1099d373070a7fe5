package fusee_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A master is hung until its successor has filled every server after a crash: no server has the memory that the
// former master knows. That one finds that it was replaced, and becomes the standby. It takes no store for lost.
func TestAMasterThatMissedEveryFillIsDeposed(t *testing.T) {
	x := newThrone(t, 2, 2)
	g := x.g
	g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		if err := c.Insert(1, []byte("hello"), soon(rt)); err != nil {
			return err
		}
		g.Host("cn2").HangAll()
		for end := rt.Now().Add(5 * time.Second); len(x.reigns) < 2 && rt.Now() < end; {
			rt.Sleep(time.Millisecond)
		}
		for i, name := range []string{"ms0", "ms1"} {
			g.Host(name).Crash()
			if err := c.Put(1, []byte("world"), soon(rt)); err != nil {
				return err
			}
			g.restart(i)
			if err := g.all(rt); err != nil {
				return err
			}
		}
		x.counted = 0
		g.Host("cn2").ResumeAll()
		for end := rt.Now().Add(3 * time.Second); x.counted == 0 && rt.Now() < end; {
			rt.Sleep(time.Millisecond)
		}
		if x.counted == 0 || len(x.ended) > 0 || !slices.Equal(x.reigns, []string{"cn2", "cn3"}) {
			t.Errorf("the master counts on %d, reigns of %v, ended %v", x.counted, x.reigns, x.ended)
		}
		if v, err := c.Get(1, nil, soon(rt)); err != nil || string(v) != "world" {
			return errors.Join(err, errors.New(string(v)))
		}
		return nil
	})
	g.run()
}

// A master that is started by hand has a larger number than the standby of the former one. That one takes a new
// number: when it succeeds, its number is larger, and it fills the server that the master had claimed.
func TestASuccessorHasALargerNumber(t *testing.T) {
	x := newThrone(t, 3, 2)
	g := x.g
	g.client("cn0", func(_ *fusee.Client, rt verbs.Runtime) error {
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		first := x.counted
		g.Host("cn2").CrashApps()
		x.counted = 0
		x.run("cn1", false)
		for end := rt.Now().Add(3 * time.Second); x.counted == 0 && rt.Now() < end; {
			rt.Sleep(time.Millisecond)
		}
		rt.Sleep(20 * reignLease) // a number that is too small is retired
		master := uint32(g.word(0, layout.MasterWord))
		if x.counted <= master {
			t.Errorf("the master has the number %d and counts on the standby %d, which was %d", master, x.counted, first)
		}
		g.Host("ms2").Crash()
		rt.Sleep(5 * reignLease)
		g.restart(2)
		for end := rt.Now().Add(3 * time.Second); g.word(2, layout.MasterWord) == 0 && rt.Now() < end; {
			rt.Sleep(100 * time.Microsecond)
		}
		g.Host("cn1").CrashApps()
		if v := g.viewAt(0); v.Has(2) {
			t.Errorf("the server is a member before the master dies: view %x", v)
		}
		if err := g.all(rt); err != nil {
			t.Errorf("reigns of %v, ended %v, ms2 has the master %d, ms0 %d: %v", x.reigns, x.ended, g.word(2, layout.MasterWord), g.word(0, layout.MasterWord), err)
		}
		return nil
	})
	g.run()
}
