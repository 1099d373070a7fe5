package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// hole is a script for one hole of the SwordBox paper. The script must do damage under a published
// rule and none under the same rule hardened. If same is true, both modes do the right thing ("same"
// in swordbox/HOLES.md), and the script must do no damage under either rule. If open is true, both
// modes leave the hole open, and the script must do damage under both. swordbox/HOLES.md numbers the
// holes.
type hole struct {
	number int
	title  string
	action string          // key action of the switch's rule
	params rdmacm.Params   // parameters of all connections; zero means holeParams
	rack   simrack.Options // options of the rack, such as delays of links
	script func(h *holeRun)
	same   bool // no damage is expected under the published rule either
	open   bool // damage is expected under the hardened rule, too
	// wrap, if not nil, may put a node in front of a host or the switch. spy, if not nil, gets all
	// events of packets.
	wrap func(t *holeTap, name string, n simnet.Node) simnet.Node
	spy  func(t *holeTap, ev *simnet.Event)
}

// holeScenarios returns the scenario that runs all holes, and one for each hole.
func holeScenarios() []Scenario {
	out := []Scenario{{
		Name: "holes", Doc: "each hole of the SwordBox paper, by its number in swordbox/HOLES.md: most do damage under published rules, one (22) also under hardened rules; hole-7 runs only number 7",
		run: func(e *env) error {
			var errs []error
			for _, h := range holes() {
				errs = append(errs, h.run(e))
			}
			for i := range unscriptedHoles {
				unscriptedHoles[i].note(e)
			}
			return errors.Join(errs...)
		},
	}}
	for _, h := range holes() {
		out = append(out, Scenario{Name: fmt.Sprintf("hole-%d", h.number), Doc: h.title, run: h.run})
	}
	return out
}

const (
	holeClients = 8
	holeBytes   = 64 << 10
	holeService = "holes"
	holeRack    = `
name: sim
hosts:
  - {name: "cn[0-7]", role: compute}
  - {name: op0, role: compute}
  - {name: ms0, role: memory}
switch:
  program: swordbox
  rules:
    - {server: ms0, action: %s, mode: %s, service: %s}
`
	// holeSettled is a time at which the clients and the switch have made all their connections.
	holeSettled = clock.Time(50 * time.Millisecond)
	// holePatience is how long a script waits for an answer. All retries of a request take less.
	holePatience = 2 * time.Second
)

// holeRun is one run of a hole's script, in the mode published or hardened.
type holeRun struct {
	*hole
	env     *env
	mode    string
	rack    *simrack.Rack
	clients [holeClients]*holeClient
	memory  []byte
	rt      verbs.Runtime
	begin   func() // called when the rack is built and before it runs; may be nil
	damage  []string
	err     error
	tap     *holeTap
}

// run runs the script under the published and under the hardened rule. It returns an error if the
// script does damage under the hardened rule, or does none there although o.open is true. It also returns an error if the script does no damage
// under the published rule or, if o.same is true, if it does damage there.
func (o hole) run(e *env) error {
	found := make(map[string][]string)
	for _, m := range []string{recordedPublished, recordedHardened} {
		h := &holeRun{hole: &o, env: e, mode: m}
		if e.spy = nil; o.spy != nil {
			e.spy = func(ev *simnet.Event) { o.spy(h.tap, ev) }
		}
		if err := h.play(); err != nil {
			return fmt.Errorf("hole %d in %s: %w", o.number, m, err)
		}
		found[m] = h.damage
		what := "no damage"
		if len(h.damage) > 0 {
			what = strings.Join(h.damage, "; ")
		}
		e.note("hole %d, %s, %s: %s", o.number, o.title, m, what)
	}
	switch {
	case len(found[recordedPublished]) > 0 && o.same:
		return fmt.Errorf("hole %d is open under published rules: %s", o.number, strings.Join(found[recordedPublished], "; "))
	case len(found[recordedPublished]) == 0 && !o.same:
		return fmt.Errorf("hole %d did no damage under published rules", o.number)
	case len(found[recordedHardened]) == 0 && o.open:
		return fmt.Errorf("hole %d did no damage under hardened rules", o.number)
	case len(found[recordedHardened]) > 0 && !o.open:
		return fmt.Errorf("hole %d is open under hardened rules: %s", o.number, strings.Join(found[recordedHardened], "; "))
	}
	return nil
}

// play runs the script once, on a new rack.
func (h *holeRun) play() error {
	e := h.env
	if e.rack != nil {
		e.finish()
		e.rack, e.rec, e.opt.Pcap = nil, nil, nil // only the first run, that with the published rule, is captured
	}
	h.tap = &holeTap{run: h}
	opt := h.hole.rack
	opt.Datagrams = true
	if w := h.hole.wrap; w != nil {
		opt.Wrap = func(name string, n simnet.Node) simnet.Node { return w(h.tap, name, n) }
	}
	file := fmt.Sprintf(holeRack, h.action, h.mode, switchService)
	if h.mode == modeForward {
		file, _, _ = strings.Cut(file, "switch:")
	}
	if err := e.build(file, opt); err != nil {
		return err
	}
	h.rack = e.rack
	h.memory = make([]byte, holeBytes)
	e.serveWords(h.memory, holeService, h.params, func(verbs.MR) {})
	for i := range h.clients {
		c := &holeClient{run: h, host: h.rack.Host(fmt.Sprintf("cn%d", i)), got: make(map[uint64]*answer)}
		h.clients[i] = c
		c.host.Go("client", true, func(ctx verbs.Context) { c.ctx = ctx })
	}
	if h.begin != nil {
		h.begin()
	}
	h.rack.Host("op0").Go("script", false, func(ctx verbs.Context) {
		h.rt = ctx.Runtime()
		h.rt.Sleep(time.Millisecond)
		for _, c := range h.clients {
			if h.err == nil {
				h.err = c.connect()
			}
		}
		if h.err != nil {
			return
		}
		h.rt.Sleep(holeSettled.Sub(h.rt.Now()))
		h.script(h)
	})
	return errors.Join(h.rack.Run(), h.err)
}

// harm records a damage that the script has found.
func (h *holeRun) harm(format string, args ...any) {
	h.damage = append(h.damage, fmt.Sprintf(format, args...))
}

func (h *holeRun) word(off int) uint64 { return binary.NativeEndian.Uint64(h.memory[off:]) }

// want records damage unless the word at off has the value v.
func (h *holeRun) want(off int, v uint64, why string) {
	if got := h.word(off); got != v {
		h.harm("%s: the word is %#x, want %#x", why, got, v)
	}
}

// warm makes the word at off known to the switch, and sets it to v: each client writes v by CAS,
// three times.
func (h *holeRun) warm(off int, v uint64) {
	for range 3 {
		for _, c := range h.clients {
			a := c.cas(off, h.word(off), v)
			h.expect(a, "CAS of a word that no other client uses")
		}
	}
}

// expect waits for the answer a to a request, and records damage if there is none or if it is an
// error.
func (h *holeRun) expect(a *answer, what string) {
	if a.wait(holePatience); a.status != verbs.Success || !a.done {
		h.harm("%s: %s", what, a)
	}
}

// addAll makes each client post a FETCH_ADD of 1 to the word at off. It does not wait: the answers
// that it returns may come later.
func (h *holeRun) addAll(off int) (all []*answer) {
	for _, c := range h.clients {
		all = append(all, c.add(off, 1))
	}
	return all
}

// soon does what expect does, for an answer that must arrive before any retransmission timeout. It
// records as damage an answer that comes later.
func (h *holeRun) soon(a *answer, what string) {
	if h.expect(a, what); a.done && a.status == verbs.Success && a.took > rto {
		h.harm("%s: %s, which is a time-out", what, a)
	}
}

// faults sets the fault rules of a host's link; without rules the link has no faults.
func (h *holeRun) faults(host string, rules ...fault.Rule) {
	for i := range rules {
		rules[i].Link = host
	}
	h.rack.Host(host).SetFaults(rules)
}

// machine returns the report of the switch's handler of rules in the mode of the run.
func (h *holeRun) machine() handler.Info {
	var mode rules.Mode
	if mode.UnmarshalText([]byte(h.mode)) != nil {
		return handler.Info{}
	}
	return h.env.handler(mode)
}

// handler returns the report of that handler of the switch whose rules have this mode; a zero Info
// if there is none.
func (e *env) handler(mode rules.Mode) handler.Info {
	if p, ok := e.rack.Program().(*swordbox.Program); ok {
		for _, m := range p.Report(e.rack.Now()).Handlers {
			if m.Mode == mode {
				return m
			}
		}
	}
	return handler.Info{}
}

func countersOf(m handler.Info) map[string]uint64 {
	out := make(map[string]uint64)
	for _, c := range m.Counters {
		out[c.Name] = c.Value
	}
	return out
}
