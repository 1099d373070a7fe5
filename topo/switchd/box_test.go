package switchd

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/chipcost"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

const boxFile = `
name: box
connect: CONNECT
switch:
  program: PROGRAM
hosts:
  - {name: ms0, role: memory}
  - {name: cn0, role: compute}
`

// boxed is a switch of a rack with a control socket. mem is its journal; nil: a new one.
func boxed(t *testing.T, program, connect string, mem []byte) (c *control.Client, hosts [2]*memcable.Port, stop func()) {
	t.Helper()
	s, err := rackfile.Parse([]byte(strings.NewReplacer("PROGRAM", program, "CONNECT", connect).Replace(boxFile)))
	if err != nil {
		t.Fatal(err)
	}
	if mem == nil {
		mem = make([]byte, journal.Size)
	}
	rec, err := journal.Open(mem)
	if err != nil {
		t.Fatal(err)
	}
	p, err := apps.New(s, apps.Config{Rand: rand.New(rand.NewPCG(1, 2)), Journal: rec})
	if err != nil {
		t.Fatal(err)
	}
	return running(t, Config{Rack: "box", Program: p, Self: apps.Self(s), Described: s, Links: []Link{{Host: "ms0", Ifname: "p0"}, {Host: "cn0", Ifname: "p1"}}})
}

// caller sends requests to a switch that must accept them, or must refuse them.
type caller struct {
	t *testing.T
	c *control.Client
}

func (a caller) must(method, path string, in, out any) {
	a.t.Helper()
	if err := a.c.Call(a.t.Context(), method, path, in, out); err != nil {
		a.t.Errorf("%s %s: %v", method, path, err)
	}
}

func (a caller) refused(status int, want, method, path string, in any) {
	a.t.Helper()
	err := a.c.Call(a.t.Context(), method, path, in, nil)
	var e *control.Error
	if !errors.As(err, &e) || e.Status != status || !strings.Contains(e.Message, want) {
		a.t.Errorf("%s %s %v: %v, want status %d and %q", method, path, in, err, status, want)
	}
}

// Rules change while the switch runs, and a wrong one is refused with the reason.
func TestRulesOverControl(t *testing.T) {
	c, _, _ := boxed(t, rackfile.ProgramSwordBox, "cm", nil)
	a := caller{t, c}
	var r rules.Rule
	a.must("POST", "/rules", RuleText{Rule: "id=locks server=ms0 action=atomics range=0x1000-0x2000 shards=2"}, &r)
	if r.ID != "locks" || r.Server.String() != "10.77.0.2" || len(r.Also) != 2 || r.Service != "memory" {
		t.Errorf("%+v", r)
	}
	for text, want := range map[string]string{
		"server=ms1 action=move":                             `server "ms1" is no host of this rack; hosts: [ms0 cn0]`,
		"server=ms0 action=mov":                              "use one of [track move atomics",
		"id=locks server=cn0 action=track":                   "rule locks exists already; remove it first",
		"server=ms0 action=move mode=published":              "a server is served in one mode",
		"server=ms0 action=track range=0x1800-0x1900":        "rule locks before it takes all of its requests; put it first",
		"server=ms0 action=atomics range=3-9":                "cuts a word in two",
		"server=10.77.0.2 action=move shards=2 service=none": "must be the same in both",
	} {
		a.refused(http.StatusBadRequest, want, "POST", "/rules", RuleText{Rule: text})
	}
	a.must("POST", "/rules", RuleText{Rule: "server=ms0 action=track range=0x1800-0x1900", First: true}, &r)
	var list []rules.Rule
	a.must("GET", "/rules", nil, &list)
	if len(list) != 2 || list[0].ID != r.ID || list[1].ID != "locks" {
		t.Errorf("%v", list)
	}
	a.refused(http.StatusNotFound, "there is no rule \"x\"; there are [r1 locks]", "DELETE", "/rules/x", nil)
	a.must("DELETE", "/rules/r1", nil, nil)
	a.must("GET", "/rules", nil, &list)
	if len(list) != 1 {
		t.Errorf("%v", list)
	}
	// One wrong rule: none is replaced.
	a.refused(http.StatusBadRequest, "rule 2: action", "PUT", "/rules", RuleTexts{[]string{"server=cn0 action=track", "server=ms0 action=x"}})
	a.refused(http.StatusBadRequest, "its id is taken", "PUT", "/rules", RuleTexts{[]string{"id=a server=cn0 action=track", "id=a server=ms0 action=move"}})
	a.must("GET", "/rules", nil, &list)
	if len(list) != 1 || list[0].ID != "locks" {
		t.Errorf("%v", list)
	}
	a.must("PUT", "/rules", RuleTexts{[]string{"server=cn0 action=track", list[0].String()}}, &list)
	if len(list) != 2 || list[1].ID != "locks" || list[1].Shards != 2 {
		t.Errorf("%v", list)
	}
	a.must("DELETE", "/rules/"+list[0].ID, nil, nil)
	var p ProgramInfo
	a.must("GET", "/program", nil, &p)
	if p.Name != "swordbox" || p.Rules != 1 || len(p.Addresses) != 2 || p.Bits == 0 {
		t.Errorf("%+v", p)
	}
	// The switch requests the connections that the rule needs; no server answers in this test.
	var rep swordbox.Report
	a.must("GET", "/connections", nil, &rep)
	if len(rep.Dialed) != 2 || rep.Dialed[0].State != switchconn.Dialing {
		t.Errorf("%+v", rep.Dialed)
	}
}

// Changed rules survive a crash; those of the rack file are not restored.
func TestRulesSurviveACrash(t *testing.T) {
	mem := make([]byte, journal.Size)
	c, _, stop := boxed(t, rackfile.ProgramSwordBox, "cm", mem)
	caller{t, c}.must("POST", "/rules", RuleText{Rule: "id=kept server=ms0 action=track"}, nil)
	crashed := append([]byte(nil), mem...) // the journal at the instant of the crash
	stop()
	c, _, _ = boxed(t, rackfile.ProgramSwordBox, "cm", crashed)
	var list []rules.Rule
	caller{t, c}.must("GET", "/rules", nil, &list)
	if len(list) != 1 || list[0].ID != "kept" {
		t.Errorf("%v", list)
	}
}

// A switch whose program has no rules refuses rules and gives that reason.
func TestForwardHasNoRules(t *testing.T) {
	c, _, _ := boxed(t, rackfile.ProgramForward, "cm", nil)
	a := caller{t, c}
	var list []rules.Rule
	a.must("GET", "/rules", nil, &list)
	if list == nil || len(list) != 0 {
		t.Errorf("%v", list)
	}
	for _, path := range []string{"/connections", "/program/counters"} {
		a.refused(http.StatusConflict, "rdmalab switch program swordbox", "GET", path, nil)
	}
	a.refused(http.StatusConflict, "has no rules", "POST", "/rules", RuleText{Rule: "server=ms0 action=track"})
	a.refused(http.StatusConflict, "has no rules", "DELETE", "/tables/words", nil)
	var b chipcost.Budget
	a.must("GET", "/budget", nil, &b)
	if b.Program != "forward" || len(b.Modes) != 1 || len(b.Modes[0].Items) != 0 || !b.Modes[0].Fits {
		t.Errorf("%+v", b)
	}
	var tables []handler.Table
	a.must("GET", "/tables", nil, &tables)
	if len(tables) != 3 {
		t.Errorf("%+v", tables)
	}
}

// The budget of a daemon's program has the figures that figure 8 of experiment swordbox-figures has,
// of which TestChipFigureIsTheBudget of experiment has the same copy.
func TestBudgetIsFigure8(t *testing.T) {
	s, err := rackfile.Parse([]byte(strings.NewReplacer("PROGRAM", rackfile.ProgramSwordBox, "CONNECT", "cm").Replace(boxFile)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := apps.New(s, configured(s, new(journalFile), nil, false))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, m := range chipcost.Of(p.Spec(), chipcost.Tofino()).Modes {
		for _, u := range m.Uses {
			got[u.Part] = fmt.Sprintf("%.2f %.2f %.2f", u.SRAM, u.Units, u.Tables)
		}
	}
	for part, want := range map[string]string{"steer": "109.90 2.08 9.38", "hot": "1.67 0.00 1.04", "count": "1.15 16.67 2.08"} {
		if got[part] != want {
			t.Errorf("part %s takes %s, want %s", part, got[part], want)
		}
	}
}

// A connection made elsewhere is adopted, shown and dropped.
func TestAdoptOverControl(t *testing.T) {
	c, _, _ := boxed(t, rackfile.ProgramSwordBox, "tcp", nil)
	a := caller{t, c}
	a.refused(http.StatusBadRequest, "have no connection manager", "POST", "/rules", RuleText{Rule: "server=ms0 action=move"})
	a.must("POST", "/rules", RuleText{Rule: "server=ms0 action=move service=none"}, nil)
	good := swordbox.Adopted{Server: "ms0", ServerQPN: 0x11, OwnQPN: 0x77, SendPSN: 5, MTU: 1024, Depth: 4}
	for want, change := range map[string]func(*swordbox.Adopted){
		`"ms7" is unknown; name a host of the rack, or an address`: func(a *swordbox.Adopted) { a.Server = "ms7" },
		"path MTU 99":        func(a *swordbox.Adopted) { a.MTU = 99 },
		"want 24 bits":       func(a *swordbox.Adopted) { a.RecvPSN = 1 << 24 },
		"the MAC address of": func(a *swordbox.Adopted) { a.Server = "192.0.2.1" },
	} {
		bad := good
		change(&bad)
		a.refused(http.StatusBadRequest, want, "POST", "/connections", bad)
	}
	var info switchconn.Info
	a.must("POST", "/connections", good, &info)
	if info.State != switchconn.Up || info.Shared == nil || !info.Shared.Adopted || info.Server.String() != "10.77.0.2" {
		t.Errorf("%+v", info)
	}
	a.refused(http.StatusBadRequest, "remove it first", "POST", "/connections", good)
	mac := wire.MAC{2, 9}
	a.must("POST", "/connections", swordbox.Adopted{Server: "192.0.2.1", ServerQPN: 0x11, OwnQPN: 0x78, MTU: 1024, MAC: &mac}, nil)
	var rep swordbox.Report
	a.must("GET", "/connections", nil, &rep)
	if len(rep.Dialed) != 2 || rep.Dialed[0].Shared == nil {
		t.Errorf("%+v", rep.Dialed)
	}
	found := false
	for _, m := range rep.Handlers {
		for _, s := range m.Shared {
			found = found || s.OwnQPN == 0x77 && s.ServerQPN == 0x11 && s.NextPSN == 5
		}
	}
	if !found {
		t.Errorf("the machine does not have the connection: %+v", rep.Handlers)
	}
	a.must("DELETE", "/connections/ms0/0", nil, nil)
	a.refused(http.StatusNotFound, "there is no connection to ms0, shard 0", "DELETE", "/connections/ms0/0", nil)
}

// A connection that is not up cannot be ended.
func TestDropOfAConnectionThatIsNotUp(t *testing.T) {
	c, _, _ := boxed(t, rackfile.ProgramSwordBox, "cm", nil)
	a := caller{t, c}
	a.must("POST", "/rules", RuleText{Rule: "server=ms0 action=move"}, nil)
	a.refused(http.StatusBadRequest, "only one that is up can be ended", "DELETE", "/connections/ms0/0", nil)
}

// Tables are listed and cleared, also the flows of the tracked connections.
func TestTablesOverControl(t *testing.T) {
	c, hosts, _ := boxed(t, rackfile.ProgramSwordBox, "cm", nil)
	a := caller{t, c}
	f := wire.Frame{Eth: wire.Ethernet{Dst: wire.MAC{2, 0, 0, 0, 0, 1}, Src: wire.MAC{2, 0, 0, 0, 0, 2}}}
	f.IPv4 = wire.IPv4{TTL: 64, Src: [4]byte{10, 77, 0, 3}, Dst: [4]byte{10, 77, 0, 2}}
	f.BTH = wire.BTH{Opcode: wire.RCWriteOnly, PKey: 0xffff, DestQP: 0x11}
	var batch packetio.Batch
	batch.Add(0, f.AppendTo(nil))
	if _, err := hosts[1].Send(&batch); err != nil {
		t.Fatal(err)
	}
	used := func(name string) int {
		var list []handler.Table
		a.must("GET", "/tables", nil, &list)
		for _, x := range list {
			if x.Name == name {
				return x.Used
			}
		}
		t.Fatalf("no table %s in %+v", name, list)
		return 0
	}
	for end := time.Now().Add(20 * time.Second); used("rows") == 0; {
		if time.Now().After(end) {
			t.Fatal("the packet has not arrived")
		}
	}
	var macs []pipeline.MAC
	a.must("GET", "/macs", nil, &macs)
	if len(macs) != 1 || macs[0].Port != 1 || macs[0].MAC != f.Eth.Src {
		t.Errorf("%+v", macs)
	}
	var snooping pipeline.Snooping
	if a.must("GET", "/groups", nil, &snooping); snooping.State.String() != "idle" || len(snooping.Groups) != 0 {
		t.Errorf("%+v", snooping)
	}
	for _, name := range []string{"rows", "macs", "flows", "groups", "words"} {
		before := used(name)
		var d Dropped
		a.must("DELETE", "/tables/"+name, nil, &d)
		if d.Entries != before || used(name) != 0 {
			t.Errorf("%s: %d entries of %d cleared, %d are left", name, d.Entries, before, used(name))
		}
	}
	a.refused(http.StatusNotFound, "that can be cleared; use one of macs, flows, groups, rows, words", "DELETE", "/tables/moved", nil)
	var groups []handler.Group
	a.must("GET", "/program/counters", nil, &groups)
	seen := map[string]bool{}
	for _, g := range groups {
		seen[g.Name] = len(g.Counters) > 0
	}
	for _, name := range []string{"tracking", handler.Info{}.Mode.String(), "dialing", "restart", "record"} {
		if !seen[name] {
			t.Errorf("no counters of %s in %v", name, seen)
		}
	}
}

// All answers of the socket can be decoded again: no type encodes JSON that it cannot decode.
func TestReportRoundTrip(t *testing.T) {
	c, _, _ := boxed(t, rackfile.ProgramSwordBox, "cm", nil)
	a := caller{t, c}
	a.must("POST", "/rules", RuleText{Rule: "server=ms0 action=atomics"}, nil)
	var raw, again json.RawMessage
	var rep swordbox.Report
	a.must("GET", "/connections", nil, &raw)
	if err := json.Unmarshal(raw, &rep); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(rep)
	if err != nil {
		t.Fatal(err)
	}
	var x, y swordbox.Report
	if err := errors.Join(json.Unmarshal(raw, &x), json.Unmarshal(again, &y)); err != nil || len(x.Dialed) != len(y.Dialed) {
		t.Errorf("%v", err)
	}
}
