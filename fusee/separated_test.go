package fusee_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// The switch is down for longer than a master lets the last members be silent, or longer than one change of
// the members may take; or the master alone is separated from all servers, while a client goes on. The
// master takes the store for lost in no case. It is in charge again when the servers answer: with two
// replicas, it removes one that crashes then, and one that has come back empty meanwhile.
func TestALongSeparationLosesNoStore(t *testing.T) {
	for _, alone := range []bool{false, true} {
		for _, long := range []time.Duration{20 * begun, 40 * time.Second} {
			for _, replicas := range []int{1, 2} {
				for _, reborn := range []bool{false, true}[:replicas] {
					t.Run(fmt.Sprint(alone, long, replicas, reborn), func(t *testing.T) {
						g := newRig(t, 2, simrack.Options{})
						g.format(fusee.FormatConfig{Groups: 4, Replicas: replicas, IndexReplicas: replicas, Block: 16 << 10})
						var m *fusee.Master
						var ended error
						ready := false
						g.keep("cn3", begun, &ready, &m, &ended)
						g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
							for !ready {
								rt.Sleep(time.Millisecond)
							}
							if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
								return err
							}
							g.separate(alone, true)
							rt.Sleep(long / 2)
							if reborn {
								g.Host("ms1").Crash()
								g.restart(1)
							}
							if alone && !reborn {
								if _, err := c.Get(1, nil, soon(rt)); err != nil {
									t.Errorf("GET beside a master that is separated: %v", err)
								}
							}
							rt.Sleep(long / 2)
							g.separate(alone, false)
							if replicas > 1 {
								rt.Sleep(10 * begun)
								if err := g.all(rt); err != nil {
									t.Error(err)
								}
								g.Host("ms0").Crash()
							}
							v, err := c.Get(1, nil, soon(rt))
							if n, e := kv.CheckValue(1, v); err == nil && (e != nil || n != 1) {
								t.Errorf("value %d, want 1: %v", n, e)
							}
							if ended != nil {
								t.Errorf("the master ends with %v", ended)
							}
							return err
						})
						g.run()
					})
				}
			}
		}
	}
}

// separate separates all hosts from each other, or the master of cn3 alone, or joins them again.
func (g *rig) separate(alone, apart bool) {
	switch {
	case alone:
		g.Host("cn3").SetLink(!apart)
	case apart:
		g.CrashSwitch()
	default:
		if err := g.RestartSwitch(); err != nil {
			g.t.Error(err)
		}
	}
}

// All servers have crashed, and the only one that comes back is empty: the store is lost.
func TestAllServersHaveCrashed(t *testing.T) {
	g := newRig(t, 2, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
	var m *fusee.Master
	var ended error
	ready := false
	g.keep("cn3", begun, &ready, &m, &ended)
	g.client("cn0", func(_ *fusee.Client, rt verbs.Runtime) error {
		for !ready {
			rt.Sleep(time.Millisecond)
		}
		g.Host("ms0").Crash()
		g.Host("ms1").Crash()
		rt.Sleep(20 * begun)
		if ended != nil {
			t.Errorf("no server answers: the master ends with %v", ended)
		}
		g.restart(1)
		rt.Sleep(20 * begun)
		if !errors.Is(ended, kv.ErrLost) {
			t.Errorf("the master ends with %v, want %v", ended, kv.ErrLost)
		}
		return nil
	})
	g.run()
}

// A server is separated for some leases of the master, which takes it for crashed. Before the master has
// removed it, the other one crashes and comes back empty: the store is not lost, because the first one has all.
func TestAServerIsLostBesideOneThatIsSeparated(t *testing.T) {
	tried := 0
	for late := begun / 2; late <= 3*begun/2 && !t.Failed(); late += begun / 25 {
		g := newRig(t, 2, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 4, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		var m *fusee.Master
		var ended error
		ready := false
		g.keep("cn3", begun, &ready, &m, &ended)
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			if err := c.Insert(1, kv.MakeValue(1, 1, 100), soon(rt)); err != nil {
				return err
			}
			g.Host("ms0").SetLink(false)
			rt.Sleep(late)
			before := g.viewAt(1)
			g.Host("ms1").Crash()
			g.restart(1)
			rt.Sleep(3 * begun)
			g.Host("ms0").SetLink(true)
			if !before.Has(0) {
				return nil
			}
			tried++
			v, err := c.Get(1, nil, soon(rt))
			if n, e := kv.CheckValue(1, v); err == nil && (e != nil || n != 1) {
				t.Errorf("%v: value %d, want 1: %v", late, n, e)
			}
			if err != nil || ended != nil {
				t.Errorf("%v: GET %v, the master ends with %v", late, err, ended)
			}
			return nil
		})
		g.run()
	}
	if tried == 0 {
		t.Error("the master removes the server at once")
	}
}
