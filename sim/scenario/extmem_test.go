package scenario

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
)

// usable returns how many connections to servers' memory the hardened handlers can use.
func usable(e *env) (up int) {
	for _, h := range e.rack.Program().(*swordbox.Program).Report(e.rack.Now()).Handlers {
		if list, ok := h.Lists["buffers"].([]packetbuffer.Item); ok {
			for _, s := range list[0].Ring {
				if s.Up {
					up++
				}
			}
		}
		if list, ok := h.Lists["counted"].([]statestore.Store); ok && list[0].State == "up" {
			up++
		}
	}
	return up
}

// A connection that a handler has refused comes into use when the rule is corrected: the rule had
// gone when the connection came up, the server's memory was too small, or the rule named another
// service.
func TestRefusedConnectionIsOfferedAgain(t *testing.T) {
	const early = 30 * time.Microsecond // before the connection is up
	type step struct {
		at   time.Duration
		rule string
	}
	const count, buffer = "server=ms0 action=count store=ms1 ", "server=ms0 action=buffer rate=1Gbit ring=ms1 "
	for name, steps := range map[string][]step{
		"counting: the rule has gone and comes back":    {{0, count}, {early, ""}, {time.Second, count}},
		"buffer: the rule has gone and comes back":      {{0, buffer}, {early, ""}, {time.Second, buffer}},
		"buffer: the ring was too large from the first": {{0, buffer + "entries=65536 "}, {time.Second, buffer}},
		"buffer: the ring was too large for a while":    {{0, buffer}, {time.Second / 2, buffer + "entries=65536 "}, {time.Second, buffer}},
		"buffer: the service lent too little":           {{0, buffer + "service=small "}, {time.Second, buffer}},
	} {
		e := newEnv(Scenario{Name: "buffer"}, 1, Options{})
		t.Cleanup(e.finish)
		if err := e.build("name: sim\nhosts:\n  - {name: cn0, role: compute}\n  - {name: \"ms[0-1]\", role: memory}\nswitch:\n  program: swordbox\n",
			simrack.Options{Datagrams: true, Delay: 20 * time.Microsecond}); err != nil {
			t.Fatal(err)
		}
		e.serveMemory("ms1", memservice.Config{Region: 16 << 20}, nil)
		e.serveMemory("ms1", memservice.Config{Service: "small", Region: 4096}, nil)
		for _, s := range steps {
			e.rack.At(clock.Time(s.at+time.Millisecond), func() { setRule(t, e, s.rule) })
		}
		before, used := 0, 0
		e.client("cn0", "watcher", func(ctx verbs.Context) error {
			ctx.Runtime().Sleep(990 * time.Millisecond)
			before = usable(e)
			ctx.Runtime().Sleep(time.Second)
			used = usable(e)
			return nil
		})
		if err := e.run(); err != nil || before != 0 || used != 1 {
			t.Errorf("%s: %d, then %d usable connections: %v", name, before, used, err)
		}
	}
}

// setRule replaces the rules by one, "": none.
func setRule(t *testing.T, e *env, text string) {
	t.Helper()
	set := &rules.Set{}
	if text != "" {
		r, err := rules.Parse(text)
		if err == nil {
			err = r.Resolve(e.rack.Spec.Addresses)
		}
		if err == nil {
			set, err = rules.NewSet([]rules.Rule{r})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	box := e.rack.Program().(*swordbox.Program)
	if err := box.SetRules(set); err != nil {
		t.Fatal(err)
	}
	e.rack.StepSwitch(func(c *pipeline.Ctx) { box.Tick(c) })
}
