package fusee_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client or a standby that is being opened while a member of the store is absent tries
// again and again. When its context is closed, it ends, long before its deadline.
func TestAClosedContextEndsAttemptsToOpen(t *testing.T) {
	for what, open := range map[string]func(cfg fusee.Config, end clock.Time) error{
		"client": func(cfg fusee.Config, end clock.Time) error { _, err := fusee.Open(cfg, end); return err },
		"standby": func(cfg fusee.Config, end clock.Time) error {
			_, err := fusee.OpenStandby(cfg, end)
			return err
		},
		"reign": func(cfg fusee.Config, _ clock.Time) error {
			return fusee.Reign(cfg, nil, nil, func() bool { return true }, nil)
		},
	} {
		g := newRig(t, 3, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10})
		first, opening := g.Host("cn2"), g.Host("cn3")
		first.Go("master", true, func(ctx verbs.Context) {
			if _, err := fusee.OpenMaster(g.config(first, ctx), soon(ctx.Runtime())); err != nil {
				t.Error(what, err)
			}
			first.CrashApps()
			g.Host("ms0").Crash()
			g.Host("ms1").Crash() // together they have all replicas of some objects: no master goes on without them
		})
		var closed, ended time.Duration
		var waiting verbs.Context
		opening.Go("opens", true, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			waiting = ctx
			rt.Sleep(2 * time.Second)
			began := rt.Now()
			err := open(g.config(opening, ctx), began.Add(30*time.Second))
			ended = rt.Now().Sub(began)
			if err == nil && what != "reign" {
				t.Errorf("%s: opened without members", what)
			}
		})
		g.Host("cn0").Go("closes", false, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			rt.Sleep(5 * time.Second)
			if ended != 0 {
				t.Errorf("%s: has not waited: %v", what, ended)
			}
			began := rt.Now()
			if err := waiting.Close(); err != nil {
				t.Error(err)
			}
			for ended == 0 && rt.Now().Sub(began) < 40*time.Second {
				rt.Sleep(time.Millisecond)
			}
			closed = rt.Now().Sub(began)
		})
		g.run()
		if t.Logf("%s: ended %v after its context was closed", what, closed); closed > time.Second {
			t.Errorf("%s: ended %v after its context was closed, want less than 1s", what, closed)
		}
	}
}

// A threshold is a share.
func TestThresholdIsAShare(t *testing.T) {
	g := newRig(t, 1, simrack.Options{})
	g.format(fusee.FormatConfig{Groups: 8, Block: 16 << 10})
	h := g.Host("cn0")
	h.Go("open", false, func(ctx verbs.Context) {
		for share, want := range map[float64]bool{-0.1: false, 0: true, 0.1: true, 1: true, 1.1: false, math.NaN(): false, math.Inf(1): false} {
			cfg := g.config(h, ctx)
			cfg.Threshold = share
			c, err := fusee.Open(cfg, soon(ctx.Runtime()))
			if err == nil {
				err = errors.Join(c.Close())
			}
			if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "want a share between 0 and 1") {
				t.Errorf("threshold %v: %v", share, err)
			}
		}
	})
	g.run()
}

// A master and its standby are hung while another store is made in their memory. They end: neither
// becomes the standby or the master of the other store.
func TestReignsEndWithTheirStore(t *testing.T) {
	x := newThrone(t, 3, 2)
	g := x.g
	g.Host("cn0").Go("formats", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		g.Host("cn2").HangAll()
		g.Host("cn3").HangAll()
		cfg := g.config(g.Host("cn0"), ctx)
		if _, err := fusee.Format(cfg, fusee.FormatConfig{Groups: 8, Replicas: 2, IndexReplicas: 2, Block: 16 << 10}, soon(rt)); err != nil {
			t.Error(err)
		}
		g.Host("cn2").ResumeAll()
		g.Host("cn3").ResumeAll()
		rt.Sleep(3 * time.Second)
		if len(x.ended) != 2 {
			t.Errorf("of master and standby %d have ended: %v", len(x.ended), x.ended)
		}
		for server := range 3 {
			if n := g.word(server, layout.ReignWord) | g.word(server, layout.StandbyWord) | g.word(server, layout.MasterWord); n != 0 {
				t.Errorf("server %d: words of a master or standby: %x", server, n)
			}
		}
	})
	g.run()
	t.Log(x.ended)
}

// A master counts its rounds only while no other one has taken charge: the rounds of a master that
// was replaced while its host hung grow by one at most after that, by the round in which it hung.
func TestRoundsEndWithTheReplacedMaster(t *testing.T) {
	x := newThrone(t, 3, 2)
	g := x.g
	var first *fusee.Master
	x.began = func(m *fusee.Master) {
		if first == nil {
			first = m
		}
	}
	g.Host("cn0").Go("hangs", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for x.counted == 0 {
			rt.Sleep(time.Millisecond)
		}
		before := first.Rounds()
		rt.Sleep(reignLease)
		if n := first.Rounds() - before; n < 2 {
			t.Errorf("%d rounds in a lease, want at least 2", n)
		}
		g.Host("cn2").HangAll()
		for len(x.reigns) < 2 {
			rt.Sleep(time.Millisecond)
		}
		before = first.Rounds()
		g.Host("cn2").ResumeAll()
		rt.Sleep(3 * time.Second)
		if n := first.Rounds() - before; n > 1 {
			t.Errorf("%d rounds of the replaced master, want at most 1", n)
		}
		g.Host("cn2").CrashApps()
		g.Host("cn3").CrashApps()
	})
	g.run()
}
