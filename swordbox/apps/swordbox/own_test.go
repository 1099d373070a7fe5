package swordbox_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// dialing is a switch that reaches any server. asked are the services that it has asked for.
type dialing struct {
	*bench
	p     *swordbox.Program
	d     *switchconn.Dialer
	asked []mad.ServiceID
}

func newDialing(t *testing.T, list ...rules.Rule) *dialing {
	t.Helper()
	d, err := switchconn.New(switchconn.Config{
		MAC: benchMAC(benchSwitch), IPv4: benchIP(benchSwitch), Rand: rand.New(rand.NewPCG(1, 1)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return benchMAC(benchServer), true },
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &dialing{d: d}
	w.p = swordbox.New(swordbox.Config{Own: swordbox.NewOwn(d, nil), Handlers: []handler.Handler{serialize.New(serialize.Config{})}})
	w.bench = newBench(t, w.p)
	w.rules(list...)
	return w
}

// rules replaces the rules, and lets the switch act on them.
func (w *dialing) rules(list ...rules.Rule) {
	w.tb.Helper()
	set, err := rules.NewSet(list)
	if err == nil {
		err = w.p.SetRules(set)
	}
	if err != nil {
		w.tb.Fatal(err)
	}
	w.tick(0)
}

// tick lets d pass.
func (w *dialing) tick(d time.Duration) {
	w.tb.Helper()
	for end := w.now.Add(d); ; {
		at := w.sw.Deadline()
		if at > end {
			w.now = end
			return
		}
		w.now = max(w.now, at)
		w.out.Reset()
		w.sw.Tick(w.now, &w.out)
		for _, x := range w.out.Frames {
			var f wire.Frame
			var h mad.Header
			if wire.ParseFrame(slices.Clone(x.Data), &f) != nil || h.Parse(f.Payload) != nil {
				continue
			}
			if m, err := mad.Parse(f.Payload, &h); err == nil {
				if req, ok := m.(*mad.REQ); ok {
					w.asked = append(w.asked, req.Service)
				}
			}
		}
	}
}

func moving(server netip.Addr, service string, shards int) rules.Rule {
	return rules.Rule{Server: server, Action: rules.Move, Service: service, Shards: shards}
}

// When the service of a rule changes, the switch asks for the new one at once.
func TestServiceOfARuleChanges(t *testing.T) {
	server := benchIP(benchServer)
	w := newDialing(t, moving(server, "memory", 1))
	w.rules(moving(server, "other", 1))
	w.rules(moving(server, "other", 1))
	want := []mad.ServiceID{cm.ServiceOf("memory").ID, cm.ServiceOf("other").ID}
	if !slices.Equal(w.asked, want) {
		t.Errorf("the switch asks for %v, want %v", w.asked, want)
	}
}

// When an adopted connection ends, the switch makes one in its place if a rule needs it; otherwise
// it makes none.
func TestAdoptedConnectionIsReplaced(t *testing.T) {
	server := benchIP(benchServer)
	for service, want := range map[string]int{"memory": 1, "": 0} {
		w := newDialing(t)
		k := switchconn.Key{Server: server}
		if err := w.d.Adopt(switchconn.Shared{Key: k, ServerQPN: 0x99, OwnQPN: 0x77, MTU: 1024, Depth: 1}); err != nil {
			t.Fatal(err)
		}
		w.rules(moving(server, service, 1))
		list := w.d.List()
		if len(list) != 1 || list[0].State != switchconn.Up || len(w.asked) != 0 {
			t.Fatalf("%+v", list)
		}
		w.sw.Step(w.now, &w.out, func(c *pipeline.Ctx) {
			w.d.Again(c, k, list[0].Shared.Generation)
			w.p.Tick(c)
		})
		w.tick(0)
		if list := w.d.List(); len(list) != want || len(w.asked) != want {
			t.Errorf("service %q: %+v, asked for %v", service, list, w.asked)
		}
	}
}

// Connections for which there was no room are made when others have ended.
func TestConnectionsWaitForRoom(t *testing.T) {
	const most = switchconn.MaxShared / rules.MaxShards
	all := func(first, n int) (list []rules.Rule) {
		for i := range n {
			list = append(list, moving(netip.AddrFrom4([4]byte{10, 9, 0, byte(first + i)}), "memory", rules.MaxShards))
		}
		return list
	}
	w := newDialing(t, all(0, most)...)
	w.rules(all(most, most)...)
	count := func(first int) (n int) {
		for _, i := range w.d.List() {
			if int(i.Server.As4()[3])/most == first/most {
				n++
			}
		}
		return n
	}
	refused := w.d.Stats().Refused
	if count(0) != switchconn.MaxShared || count(most) != 0 || refused != switchconn.MaxShared {
		t.Fatalf("%d former connections, %d new ones, %d refused", count(0), count(most), refused)
	}
	w.tick(10 * time.Second)
	if count(0) != 0 || count(most) != switchconn.MaxShared {
		t.Errorf("%d former connections, %d new ones", count(0), count(most))
	}
	if n := w.d.Stats().Refused; n > 3*refused {
		t.Errorf("%d refusals", n)
	}
}
