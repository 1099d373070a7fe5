package rackfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const fabricFile = `
fabric: {leaves: 3, spines: 2}
switch:
  program: swordbox
  rules:
    - {server: ms0, action: atomics}
    - {server: ms1, action: atomics}
hosts:
  - {name: "cn[0-3]", role: compute, nics: 2}
  - {name: ms0, role: memory, leaf: leaf2}
  - {name: ms1, role: memory}
faults:
  - {link: cn0, kind: loss, probability: 10%}
  - {link: leaf1-spine0, kind: delay, delay: 1ms}
`

func TestFabric(t *testing.T) {
	r, err := Parse([]byte(fabricFile))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.SwitchNames(); !slices.Equal(got, []string{"leaf0", "leaf1", "leaf2", "spine0", "spine1"}) {
		t.Errorf("switches %v", got)
	}
	if len(r.Trunks()) != 6 || r.Trunks()[3].Name() != "leaf1-spine1" {
		t.Errorf("trunks %v", r.Trunks())
	}
	want := "cn0:leaf0 cn1:leaf1 cn2:leaf2 cn3:leaf0 ms0:leaf2 ms1:leaf2 cn0/rxe1:leaf1 cn1/rxe1:leaf2 cn2/rxe1:leaf0 cn3/rxe1:leaf1"
	var got []string
	for i := range r.Hosts {
		got = append(got, r.Hosts[i].Name+":"+r.Hosts[i].Leaf)
	}
	if strings.Join(got, " ") != want {
		t.Errorf("places %v\nwant   %s", got, want)
	}
	for name, want := range map[string]string{
		"leaf0":  "swordbox 0 rules 1 faults",
		"leaf1":  "swordbox 0 rules 1 faults",
		"leaf2":  "swordbox 2 rules 0 faults",
		"spine0": "forward 0 rules 0 faults",
	} {
		own := r.OnSwitch(name)
		if got := fmt.Sprintf("%s %d rules %d faults", own.Switch.Program, len(own.Switch.Rules), len(own.Faults)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	encoded, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(encoded); err != nil || again.SwitchOf("leaf1-spine0") != "leaf1" || again.SwitchOf("cn1/rxe1") != "leaf2" || again.SwitchOf("x") != "" {
		t.Errorf("decoded: %v", err)
	}
}

func TestFabricMistakes(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"leaves: 3", "leaves: 17"}:                                  "17 is out of bounds; use a number from 1 to 16",
		{", spines: 2", ""}:                                          `fabric lacks the key "spines"`,
		{"leaf: leaf2", "leaf: leaf3"}:                               `"leaf3" is no leaf of this fabric; its leaves are leaf0 to leaf2`,
		{"leaf: leaf2", "leaf: spine0"}:                              `"spine0" is no leaf`,
		{"name: ms1", "name: leaf0"}:                                 `host name "leaf0" is that of a switch or trunk`,
		{"leaf1-spine0", "leaf1-spine2"}:                             `link "leaf1-spine2" is no host of this rack`,
		{"fabric: {leaves: 3, spines: 2}", ""}:                       "leaf needs the key fabric",
		{"switch:", "cable: memory\nswitch:"}:                        "leave out `cable: memory`",
		{"switch:", "daemons: shared\nswitch:"}:                      "several switches need separate processes",
		{"switch:", "slow: 10\nswitch:"}:                             "slow",
		{"role: memory, leaf: leaf2", "role: memory, leaf: [leaf2]"}: "leaf",
	} {
		text := strings.Replace(fabricFile, change[0], change[1], 1)
		if text == fabricFile {
			t.Fatalf("nothing to replace: %q", change[0])
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q: %v\nwant %s", change[1], err, want)
		}
	}
	// Rules that steer must be at one leaf.
	text := strings.NewReplacer("action: atomics", "action: steer", ", leaf: leaf2", ", leaf: leaf0").Replace(fabricFile)
	if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "a chain may cross both") {
		t.Errorf("steering at two leaves: %v", err)
	}
}

// A rule may use memory at any leaf.
func TestRulesReachTheirMemory(t *testing.T) {
	r, err := Parse([]byte(fabricFile))
	if err != nil {
		t.Fatal(err)
	}
	rule := r.Switch.Rules[0]
	for _, store := range []string{"ms1", "ms0, ms1", "cn0", "ms1,cn1"} {
		rule.Options = map[string]string{"store": store}
		if err := r.CheckRule(&rule); err != nil {
			t.Errorf("store=%s: %v", store, err)
		}
	}
}

// Racks in virtual time are larger than those on machines; no switch has more links than ports.
func TestBounds(t *testing.T) {
	file := func(leaves, spines, hosts int) []byte {
		return fmt.Appendf(nil, "name: large\nsubnet: 10.64.0.0/16\nfabric: {leaves: %d, spines: %d}\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n", leaves, spines, hosts-1)
	}
	for _, c := range []struct {
		leaves, spines, hosts int
		onMachines, inSim     string // what the error has; "": none
	}{
		{16, 8, 256, "", ""},
		{64, 16, 1024, "use a number from 1 to 16", ""},
		{16, 8, 257, "more than 256 hosts", ""},
		{16, 8, 1025, "more than 1024", "more than 1024"},
		{65, 1, 100, "from 1 to 16", "from 1 to 64"},
		{4, 17, 100, "from 0 to 8", "from 0 to 16"},
		{2, 1, 600, "more than 256 hosts", "leaf0 would have 301 links, and has 256 ports"},
	} {
		data := file(c.leaves, c.spines, c.hosts)
		_, onMachines := ParseFile("f", data)
		_, inSim := ParseSim("f", data)
		for _, x := range []struct {
			err  error
			want string
		}{{onMachines, c.onMachines}, {inSim, c.inSim}} {
			if x.want == "" && x.err != nil || x.want != "" && (x.err == nil || !strings.Contains(x.err.Error(), x.want)) {
				t.Errorf("%+v: %v, want %q", c, x.err, x.want)
			}
		}
	}
	if _, err := ParseSim("f", []byte("name: one\nsubnet: 10.64.0.0/16\nhosts:\n  - {name: \"cn[0-300]\", role: compute}\n")); err == nil || !strings.Contains(err.Error(), "switch would have 301 links") {
		t.Error(err)
	}
}
