package passive_test

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Only if no server has a part of any store, Join says that there is no store, and a start may make
// one. If one server of two has lost its part, the other still has keys.
func TestJoinOfAPart(t *testing.T) {
	memory := map[string][]byte{"ms0": make([]byte, 4096), "ms1": make([]byte, 4096)}
	g := kvtest.NewRack(t, "name: passive\nhosts: [{name: \"ms[0-1]\", role: memory}, {name: cn0, role: compute}]", simrack.Options{},
		func(host string) memservice.Config { return memservice.Config{Buffer: memory[host]} })
	form := func(kind string) passive.Form {
		return passive.Form{Kind: kind, Buffer: passive.SuperLen, Size: func(n passive.Numbers) uint64 { return uint64(n[0]) }}
	}
	g.Client("cn0", func(ctx verbs.Context, m rdmacm.Manager) error {
		rt := ctx.Runtime()
		cfg := passive.Config{Context: ctx, Manager: m, Servers: g.Servers}
		join := func(f passive.Form) error {
			c, _, err := f.Join(cfg, kvtest.Soon(rt))
			if err != nil {
				return err
			}
			return c.Close()
		}
		format := func(kind string) error {
			plan := func(int) (passive.Numbers, uint64, error) { return passive.Numbers{1024}, 1024, nil }
			return form(kind).Format(cfg, plan, kvtest.Soon(rt))
		}
		lose := func(hosts ...string) {
			for _, h := range hosts {
				clear(memory[h])
			}
		}
		for _, c := range []struct {
			text string
			lost []string
			kind string
			want error
		}{
			{"whole", nil, "mine", nil},
			{"the first server has lost its part", []string{"ms0"}, "mine", passive.ErrPart},
			{"the last server has lost its part", []string{"ms1"}, "mine", passive.ErrPart},
			{"all have lost their parts", []string{"ms0", "ms1"}, "mine", passive.ErrAbsent},
			{"another store", nil, "other", passive.ErrForeign},
			{"half of another store", []string{"ms0"}, "other", passive.ErrForeign},
		} {
			if err := format("mine"); err != nil {
				return err
			}
			lose(c.lost...)
			err, absent := join(form(c.kind)), errors.Is(c.want, passive.ErrAbsent)
			if !errors.Is(err, c.want) || !absent && errors.Is(err, passive.ErrAbsent) {
				t.Errorf("%s: %v; want %v", c.text, err, c.want)
			}
		}
		if err := format("mine"); err != nil {
			return err
		}
		for _, servers := range [][]int{{0}, {1}, {1, 0}} {
			cfg.Servers = nil
			for _, i := range servers {
				cfg.Servers = append(cfg.Servers, g.Servers[i])
			}
			if err := join(form("mine")); !errors.Is(err, passive.ErrServers) {
				t.Errorf("servers %v: %v", servers, err)
			}
		}
		return nil
	})
	g.Finish()
}
