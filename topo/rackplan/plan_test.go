package rackplan

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// small is the rack file from which the changes of the tests start.
const small = `
name: small
switch:
  program: swordbox
  rules:
    - {server: ms0, action: atomics}
hosts:
  - {name: "cn[0-2]", role: compute, quota: {qps: 64}}
  - {name: ms0, role: memory, memory: 16MiB}
faults:
  - {link: cn0, kind: loss, probability: 10%}
  - {link: cn1, kind: delay, delay: 1ms, id: slow}
`

func parsed(t *testing.T, text string) *rackfile.Rack {
	t.Helper()
	r, err := rackfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// edited is the file small with replacements: old, new, old, new.
func edited(t *testing.T, edits ...string) *rackfile.Rack {
	t.Helper()
	for i := 0; i < len(edits); i += 2 {
		if !strings.Contains(small, edits[i]) {
			t.Fatalf("%q is not in the file", edits[i])
		}
	}
	return parsed(t, strings.NewReplacer(edits...).Replace(small))
}

func lines(p *Plan) string {
	var out []string
	for _, c := range p.Changes {
		out = append(out, c.String())
	}
	return strings.Join(out, "\n")
}

// Each edit of the file gives exactly these lines, and what the plan leads to needs no further change.
func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name  string
		edits []string
		want  string
	}{
		{"nothing", nil, ""},
		{"order of keys", []string{`name: ms0, role: memory`, `role: memory, name: ms0`}, ""},
		{"host in", []string{"cn[0-2]", "cn[0-3]"}, "+ host cn3  compute 10.77.0.6 fd00:77::6"},
		{
			"host out, in the middle",
			[]string{`"cn[0-2]"`, `"cn[1-2]"`, "link: cn0", "link: cn2"},
			"- host cn0  compute 10.77.0.2 fd00:77::2\n- fault f1  loss 10% --link cn0\n+ fault f2  loss 10% --link cn2",
		},
		{"quota", []string{"qps: 64", "qps: 32, memory: 1GiB"}, "~ host cn0  quota qps 64 -> 32\n~ host cn0  quota memory default -> 1GiB\n" +
			"~ host cn1  quota qps 64 -> 32\n~ host cn1  quota memory default -> 1GiB\n~ host cn2  quota qps 64 -> 32\n~ host cn2  quota memory default -> 1GiB"},
		{"rule changes", []string{"action: atomics", "action: move"}, "~ rule r1  id=r1 server=ms0 action=atomics -> id=r1 server=ms0 action=move"},
		{"rule in", []string{"    - {server", "    - {server: ms0, action: track, id: n, rkey: 0x7}\n    - {server"}, "+ rule n  id=n server=ms0 action=track rkey=0x7"},
		{
			"program",
			[]string{"  program: swordbox\n  rules:\n    - {server: ms0, action: atomics}", "  queue: 1024"},
			"~ switch  program swordbox -> forward\n- rule r1  id=r1 server=ms0 action=atomics",
		},
		{"fault changes", []string{"delay: 1ms", "delay: 2ms"}, "~ fault slow  delay 1ms --link cn1 -> delay 2ms --link cn1"},
		{"fault without a name changes", []string{"10%", "20%"}, "- fault f1  loss 10% --link cn0\n+ fault f2  loss 20% --link cn0"},
		{"fault in, in front", []string{"faults:\n", "faults:\n  - {link: ms0, kind: loss, probability: 1%}\n"}, "+ fault f2  loss 1% --link ms0"},
		{
			"faults out",
			[]string{"faults:\n  - {link: cn0, kind: loss, probability: 10%}\n  - {link: cn1, kind: delay, delay: 1ms, id: slow}\n", ""},
			"- fault f1  loss 10% --link cn0\n- fault slow  delay 1ms --link cn1",
		},
	} {
		was, want := parsed(t, small), edited(t, c.edits...)
		p, err := Of(OfDescription(was), want, false)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := lines(p); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if again, err := Of(OfDescription(p.Rack), want, false); err != nil || !again.Empty() {
			t.Errorf("%s: after it: %v, %+v", c.name, err, again)
		}
		if before := parsed(t, small); !sameText(t, was, before) {
			t.Errorf("%s: the plan has changed the running rack", c.name)
		}
	}
}

func sameText(t *testing.T, a, b *rackfile.Rack) bool {
	t.Helper()
	x, err := a.Encode()
	y, err2 := b.Encode()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

// Hosts that stay keep their addresses. A new host takes those of its place only if they are free.
func TestAddresses(t *testing.T) {
	now := OfDescription(parsed(t, small))
	guest, err := now.Rack.NewGuest("g", "g-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	now.Guests = append(now.Guests, guest)
	p, err := Of(now, edited(t, `"cn[0-2]"`, `"a[0-1]", role: compute}
  - {name: "cn[1-2]"`, "link: cn0", "link: a0"), false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range p.Rack.Hosts {
		got = append(got, p.Rack.Hosts[i].Name+" "+p.Rack.Hosts[i].IPv4.String())
	}
	if want := []string{"cn1 10.77.0.3", "cn2 10.77.0.4", "ms0 10.77.0.5", "a0 10.77.0.2", "a1 10.77.0.7"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if r := p.Rack.Switch.Rules[0]; r.Server != p.Rack.Hosts[2].IPv4 {
		t.Errorf("the rule for ms0 is for %v", r.Server)
	}
}

// What cannot change is refused in one line, which says what to do instead.
func TestRefused(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"name: small\n", "name: small\nmtu: 1500\n", "mtu (4200 -> 1500) cannot change while the rack is up: run `rdmalab down --rack small` and `rdmalab up -f` the file"},
		{"name: small\n", "name: small\nseed: 2\npriority: realtime\n", "seed (1 -> 2) cannot change while the rack is up: run `rdmalab down --rack small` and `rdmalab up -f` the file; likewise: priority (normal -> realtime)"},
		{"  program:", "  queue: 2\n  program:", "switch queue (1024 -> 2)"},
		{"name: small\n", "name: small\nonerma: {}\n", "onerma (none -> {"},
		{"name: small\n", "name: small\nsubnet: 10.1.0.0/24\n", "subnet (10.77.0.0/24 -> 10.1.0.0/24)"},
		{"16MiB", "32MiB", "ms0: memory 16MiB -> 32MiB cannot change while the rack is up: add --replace"},
		{"role: compute", "role: metadata", "cn0: role compute -> metadata"},
		{"qps: 64", "qps: 64, reserve: 50", "cn0: quota reserve default -> 50"},
		{"memory: 16MiB", "memory: 16MiB, cpu: none", "ms0: cpu auto -> none"},
	} {
		_, err := Of(OfDescription(parsed(t, small)), edited(t, c.old, c.new), false)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.new, err, c.want)
		}
	}
}

// With replace, a host is made again, and the faults of its link with it.
func TestReplace(t *testing.T) {
	want := edited(t, `"cn[0-2]", role: compute`, `"cn[0-2]", role: compute, tos: 8`, "delay: 1ms", "delay: 2ms")
	p, err := Of(OfDescription(parsed(t, small)), want, true)
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"cn0", "cn1", "cn2"}
	var in []string
	for _, f := range p.FaultsIn {
		in = append(in, f.ID)
	}
	slices.Sort(in)
	if !slices.Equal(p.HostsIn, hosts) || !slices.Equal(p.HostsOut, hosts) || len(p.FaultsOut) != 0 || !slices.Equal(in, []string{"f1", "slow"}) {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(lines(p), "~ host cn1  tos 0 -> 8; the host is made again") {
		t.Error(lines(p))
	}
}

// What an earlier apply has not finished is done again, and a fault that was healed begins again; one
// that an operator has injected stays.
func TestUnfinished(t *testing.T) {
	now := OfDescription(parsed(t, small))
	now.Unfinished = []string{"cn2", "gone"}
	now.Faults = slices.DeleteFunc(now.Faults, func(f fault.Rule) bool { return f.ID == "slow" })
	now.Faults = append(now.Faults, fault.Rule{ID: "f7", Link: "cn0", Kind: fault.Blackhole})
	p, err := Of(now, parsed(t, small), false)
	if err != nil {
		t.Fatal(err)
	}
	if want := "- host gone  an earlier apply has not finished removing it\n" +
		"+ host cn2  compute 10.77.0.4 fd00:77::4 (an earlier apply has not finished it)\n+ fault slow  delay 1ms --link cn1"; lines(p) != want {
		t.Errorf("%s\nwant\n%s", lines(p), want)
	}
	if !slices.Equal(p.HostsOut, []string{"gone", "cn2"}) || !slices.Equal(p.HostsIn, []string{"cn2"}) || len(p.FaultsOut) != 0 {
		t.Errorf("%+v", p)
	}
}

// A fault of the file replaces one that an operator has injected under its name.
func TestNameOfOperatorsFault(t *testing.T) {
	now := OfDescription(parsed(t, small))
	now.Faults = append(now.Faults, fault.Rule{ID: "f7", Link: "cn0", Kind: fault.Blackhole})
	p, err := Of(now, edited(t, "faults:\n", "faults:\n  - {link: ms0, kind: loss, probability: 1%, id: f7}\n"), false)
	if err != nil {
		t.Fatal(err)
	}
	if want := "~ fault f7  blackhole --link cn0, which is not in the rack's file -> loss 1% --link ms0"; lines(p) != want {
		t.Errorf("%s\nwant\n%s", lines(p), want)
	}
	if len(p.FaultsOut) != 1 || p.FaultsOut[0].Link != "cn0" || len(p.FaultsIn) != 1 || p.FaultsIn[0].Link != "ms0" {
		t.Errorf("%+v", p)
	}
}

// Rules that an operator has changed become those of the file.
func TestRulesOfOperators(t *testing.T) {
	now := OfDescription(parsed(t, small))
	now.Rules = append(slices.Clone(now.Rules), now.Rules[0])
	now.Rules[1].ID = "mine"
	p, err := Of(now, parsed(t, small), false)
	if err != nil || !p.Switch || !strings.HasPrefix(lines(p), "- rule mine") {
		t.Errorf("%v\n%v", err, p)
	}
}
