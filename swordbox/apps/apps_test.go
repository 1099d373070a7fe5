package apps

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const rackFile = `
name: apps
switch:
  program: PROGRAM
  rules: [{id: locks, server: ms0, action: atomics}]
hosts:
  - {name: ms0, role: memory}
  - {name: cn0, role: compute}
`

func rack(t *testing.T, program string) *rackfile.Rack {
	t.Helper()
	text := strings.Replace(rackFile, "PROGRAM", program, 1)
	if program != rackfile.ProgramSwordBox {
		text = strings.Replace(text, "  rules: [{id: locks, server: ms0, action: atomics}]\n", "", 1)
	}
	s, err := rackfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every program that a rack file can name can be made, and no other.
func TestPrograms(t *testing.T) {
	if len(programs) != len(rackfile.Programs()) {
		t.Errorf("%d programs are made, %d can be named", len(programs), len(rackfile.Programs()))
	}
	for _, name := range rackfile.Programs() {
		p, err := New(rack(t, name), Config{Rand: rand.New(rand.NewPCG(1, 1))})
		if err != nil || p.Spec().Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := rack(t, rackfile.ProgramForward)
	s.Switch.Program = "sword"
	if _, err := New(s, Config{}); err == nil || !strings.Contains(err.Error(), "there is forward, swordbox") {
		t.Error(err)
	}
	if _, err := New(rack(t, rackfile.ProgramSwordBox), Config{}); err == nil {
		t.Error("swordbox without random numbers")
	}
	if self := Self(s); self.MAC != (wire.MAC{}) || self.Addrs != nil {
		t.Errorf("a switch that only forwards has addresses: %+v", self)
	}
}

// own is a program of another module.
type own struct{ pipeline.NoTimer }

func (own) Spec() pipeline.Spec { return pipeline.Spec{Name: "own"} }

func (own) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Drop("own") }

// counts is one with counters.
type counts struct{ own }

func (counts) Counters(clock.Time) []handler.Group {
	return []handler.Group{{Name: "own", Counters: []handler.Counter{{Name: "seen", Value: 7}}}}
}

// A registered program can be named by a rack file, is made for it, and its counters are served; a
// program without counters says so.
func TestRegisteredProgram(t *testing.T) {
	var made pipeline.Program = own{}
	remove := Register(Program{Name: "own", New: func(*rackfile.Rack, Config) (pipeline.Program, error) { return made, nil }})
	defer remove()
	s := rack(t, "own")
	p, err := New(s, Config{})
	if err != nil || p != made {
		t.Fatalf("%v, %v", p, err)
	}
	ask := func(p pipeline.Program) (any, error) {
		for _, r := range Requests() {
			if r.Pattern == "GET /program/counters" {
				return r.Do(p, &handler.Call{})
			}
		}
		return nil, errors.New("no such request")
	}
	if _, err := ask(made); !errors.Is(err, handler.ErrNoRules) || err.Error() != "program own has no counters" {
		t.Error(err)
	}
	if got, err := ask(counts{}); err != nil || got.([]handler.Group)[0].Counters[0].Value != 7 {
		t.Errorf("%v, %v", got, err)
	}
	refused(t, "a name that is taken", func() { Register(Program{Name: "own", New: programs[0].New}) })
	refused(t, "no function", func() { Register(Program{Name: "other"}) })
	remove()
	if _, ok := Lookup("own"); ok || len(rackfile.Programs()) != 2 {
		t.Errorf("after its removal there is %v", rackfile.Programs())
	}
}

// A registered handler is asked by the program swordbox like those of this project.
func TestRegisteredHandler(t *testing.T) {
	made := 0
	kind := *handlers[slices.IndexFunc(handlers, func(k *handler.Kind) bool { return k.Name == "count" || k.Name == "hot" })]
	inner := kind.New
	kind.Name, kind.Selects = "own counts", func(*rules.Rule) bool { return false }
	kind.New = func(e *handler.Env) handler.Handler { made++; return inner(e) }
	remove := RegisterHandler(&kind)
	defer remove()
	if _, err := New(rack(t, rackfile.ProgramSwordBox), Config{Rand: rand.New(rand.NewPCG(1, 1))}); err != nil || made != 1 {
		t.Errorf("%d handlers made, %v", made, err)
	}
	refused(t, "a kind that is taken", func() { RegisterHandler(&kind) })
}

// refused fails the test if f does not panic.
func refused(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s is accepted", what)
		}
	}()
	f()
}

// box returns a switch of the rack with its program. Its journal is in mem.
func box(t *testing.T, mem []byte) (*pipeline.Switch, *swordbox.Program, *rackfile.Rack) {
	t.Helper()
	s := rack(t, rackfile.ProgramSwordBox)
	rec, err := journal.Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(s, Config{Rand: rand.New(rand.NewPCG(1, 1)), Journal: rec})
	if err != nil {
		t.Fatal(err)
	}
	sw, err := pipeline.New(pipeline.Config{Ports: 2, Program: p, Self: Self(s)})
	if err != nil {
		t.Fatal(err)
	}
	return sw, p.(*swordbox.Program), s
}

// from returns a packet with the source address of a host.
func from(h *rackfile.Host, to netip.Addr, mac wire.MAC, b wire.BTH) []byte {
	f := wire.Frame{Eth: wire.Ethernet{Src: h.MAC, Dst: mac}, IPv4: wire.IPv4{TTL: 64, Src: h.IPv4.As4(), Dst: to.As4()}}
	f.BTH = b
	f.BTH.PKey = wire.DefaultPKey
	f.DETH = wire.DETH{QKey: 0x80010000, SrcQP: 1}
	return f.AppendTo(nil)
}

// A packet to the switch with the source address of a host is dropped if it comes in at another
// host's port; so is a packet of a flow of the switch's former incarnation.
func TestSpoofedPacketsToTheSwitch(t *testing.T) {
	mem := make([]byte, journal.Size)
	former, err := journal.Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	s := rack(t, rackfile.ProgramSwordBox)
	ms, cn := &s.Hosts[0], &s.Hosts[1]
	if _, err := former.Move(journal.Flow{Client: cn.IPv4, Server: ms.IPv4, ClientQPN: 0x11, ServerQPN: 0x22}); err != nil {
		t.Fatal(err)
	}
	sw, _, _ := box(t, mem)
	var out packetio.Batch
	sw.Tick(0, &out)
	for name, data := range map[string][]byte{
		"datagram": from(ms, s.Switch.IPv4, s.Switch.MAC, wire.BTH{Opcode: wire.UDSendOnly, DestQP: 1}),
		"answer":   from(ms, s.Switch.IPv4, s.Switch.MAC, wire.BTH{Opcode: wire.RCAck, DestQP: 0x1234}),
		"former":   from(ms, cn.IPv4, cn.MAC, wire.BTH{Opcode: wire.RCAck, DestQP: 0x11}),
	} {
		before := sw.Port(1).Drops[swordbox.ReasonSpoofed]
		out.Reset()
		sw.Frame(0, 1, packetio.Frame{Data: data}, &out)
		if n := sw.Port(1).Drops[swordbox.ReasonSpoofed]; n != before+1 || len(out.Frames) != 0 {
			t.Errorf("%s: %d drops, %d frames", name, n-before, len(out.Frames))
		}
		sw.Frame(0, 0, packetio.Frame{Data: data}, &out)
		if n := sw.Port(0).Drops[swordbox.ReasonSpoofed]; n != 0 {
			t.Errorf("%s: the host itself is not believed", name)
		}
	}
}

// A switch without a journal takes the rules of the rack file. A later incarnation takes the rules
// that were last in force, even if there were none.
func TestRulesOfAFormerIncarnation(t *testing.T) {
	mem := make([]byte, journal.Size)
	_, p, _ := box(t, mem)
	if n := len(p.Rules().All()); n != 1 {
		t.Errorf("%d rules", n)
	}
	set, err := p.Rules().Remove("locks")
	if err == nil {
		err = p.SetRules(set)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, p, _ = box(t, mem); len(p.Rules().All()) != 0 {
		t.Errorf("%v", p.Rules().All())
	}
}
