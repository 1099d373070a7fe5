package rackfile

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func withRules(list string) string {
	return small + "switch:\n  program: swordbox\n  rules:\n    - " + list + "\n"
}

func TestRules(t *testing.T) {
	r, err := Parse([]byte(withRules(`{id: locks, server: ms0, action: atomics, range: 0x1000-0x2000, shards: 2}
    - {server: fd00:77::2, action: move, shards: 2}
    - server: 192.0.2.7
      action: move
      mode: published
      mtu: 1024`)))
	if err != nil {
		t.Fatal(err)
	}
	h := &r.Hosts[0]
	also := []netip.Addr{h.IPv6, netip.MustParseAddr("fe80::72:9eff:fe37:2")}
	want := []rules.Rule{
		{ID: "locks", Host: "ms0", Server: h.IPv4, Also: also, Action: rules.Atomics, From: 0x1000, To: 0x2000, Shards: 2, Service: "memory"},
		{ID: "r1", Server: h.IPv4, Also: also, Action: rules.Move, Shards: 2, Service: "memory"},
		{ID: "r2", Server: netip.MustParseAddr("192.0.2.7"), Action: rules.Move, Mode: rules.Published, MTU: 1024},
	}
	if !reflect.DeepEqual(r.Switch.Rules, want) {
		t.Errorf("got  %+v\nwant %+v", r.Switch.Rules, want)
	}
	data, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(data); err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("decoded %+v, %v", again, err)
	}
}

// ruleMistakes has in each line rules with one mistake.
var ruleMistakes = []struct{ rule, want string }{
	{"{server: ms9, action: move}", `10:16: server: server "ms9" is no host of this rack; hosts: [ms0 cn0 cn1]`},
	// The first rule is refused, and the second one is checked all the same.
	{"{server: ms9, action: move}\n    - {server: ms0, action: move}", `10:16: server: server "ms9" is no host`},
	{"{server: ms9, action: move}\n    - {server: ms8, action: move}", `10:16: server: server "ms9" is no host`},
	{"{server: ms0, action: fly}", `10:29: action: action "fly" is unknown; use one of [track move atomics`},
	{"{server: ms0}", `10:7: the key "action" is missing; write action=atomics`},
	{"{action: move}", `10:7: the key "server" is missing`},
	{"{server: ms0, action: move, speed: 9}", `10:35: unknown key "speed" in a rule; known keys: id, server, action, mode`},
	{"{server: ms0, action: move, range: 5}", `10:42: range: "5" is no range; write it like 0x1000-0x2000`},
	{"{server: ms0, action: move, range: [5]}", `10:42: range must be a single value, but is a list`},
	{"{server: ms0, action: move, shards: 99}", `10:43: shards: "99" is no number from 1 to 64`},
	{"{server: ms0, action: atomics, range: 4-16}", `10:7: rule r1: range 0x4-0x10 cuts a word in two`},
	{"{server: ms0, action: move}\n    - {server: ms0, action: track}", `11:7: rule r2: rule r1 before it takes all of its requests`},
	{"{id: a, server: ms0, action: move, range: 0-8}\n    - {id: a, server: ms0, action: move}", `11:7: rule a: its id is taken`},
	{"move", `10:7: a rule must be a mapping, but is a text`},
}

// A mistake in a rule is reported with its line.
func TestMistakesInRules(t *testing.T) {
	for _, c := range ruleMistakes {
		_, err := ParseFile("f.yaml", []byte(withRules(c.rule)))
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+c.want) {
			t.Errorf("%s:\n got  %v\n want f.yaml:%s", c.rule, err, c.want)
		}
	}
	three := "{server: ms9, action: move}\n    - {server: ms0, action: move}\n    - {server: ms0, action: move}"
	if _, err := Parse([]byte(withRules(three))); err == nil || strings.Contains(err.Error(), "before it") {
		t.Errorf("rules behind one that is refused: %v", err) // their names would be wrong
	}
	for text, want := range map[string]string{
		small + "switch: {program: sword}\n":                                    `7:19: program: "sword" is unknown; did you mean swordbox? use one of [forward swordbox]`,
		small + "switch: {rules: [{server: ms0, action: move}]}\n":              `7:18: rules are for program swordbox`,
		"connect: tcp\n" + withRules("{server: ms0, action: move}"):             `11:7: the hosts of a rack with connect: tcp have no connection manager`,
		"connect: tcp\n" + withRules("{server: ms0, action: move, service: x}"): `11:44: the hosts of a rack with connect: tcp`,
	} {
		_, err := ParseFile("f.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+want) {
			t.Errorf("%s:\n got  %v\n want f.yaml:%s", text, err, want)
		}
	}
	for _, ok := range []string{"{server: ms0, action: move, service: none}", "{server: ms0, action: track}", "{server: ms0, action: move, mode: published}"} {
		if _, err := Parse([]byte("connect: tcp\n" + withRules(ok))); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
}

// Rules that put requests of several queue pairs on one connection would take requests out of their
// partitions, and are refused with pkeys. A rule that only watches is allowed.
func TestRulesAndPartitions(t *testing.T) {
	for rule, ok := range map[string]bool{
		"{server: ms0, action: move}": false, "{server: ms0, action: atomics}": false, "{server: ms0, action: steer}": false,
		"{server: ms0, action: track}": true,
	} {
		r, err := Parse([]byte(withRules(rule)))
		if err != nil {
			t.Fatalf("%s: %v", rule, err)
		}
		r.Hosts[1].PKeys = []uint16{0x8001}
		if err := r.CheckRule(&r.Switch.Rules[0]); (err == nil) != ok {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// Rules by which the switch answers and repeats packets know go-back-N alone, and are refused beside
// the key recovery. A rule that only watches is allowed.
func TestRulesAndRecovery(t *testing.T) {
	for rule, ok := range map[string]bool{
		"{server: ms0, action: move}": false, "{server: ms0, action: atomics}": false, "{server: ms0, action: steer}": false,
		"{server: ms0, action: track}": true,
	} {
		r, err := Parse([]byte(withRules(rule)))
		if err != nil {
			t.Fatalf("%s: %v", rule, err)
		}
		r.Hosts[1].Recovery = "irn"
		if err := r.CheckRule(&r.Switch.Rules[0]); (err == nil) != ok {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// A rule that was printed as YAML is parsed to the same rule.
func TestRuleYAML(t *testing.T) {
	for _, text := range []string{
		"id=locks server=ms0 action=atomics range=0x1000-0x2000 rkey=0x7 shards=2 service=none depth=4 mtu=512",
		"id=null server=fd00::1 action=move service={a}#b",
		"id=a server=fd00::1 action=move service=NULL",
		"id=a server=fd00::1 action=move service=Null",
		"id=x1 server=cn0 action=track",
	} {
		want, err := rules.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse([]byte(withRules(want.YAML())))
		if err != nil {
			t.Errorf("%s: %v", want.YAML(), err)
			continue
		}
		if err := want.Resolve(r.Addresses); err != nil || !reflect.DeepEqual(r.Switch.Rules[0], want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v, %v", want.YAML(), r.Switch.Rules[0], want, err)
		}
	}
}

// The switch has the first address of each subnet, and every host can resolve it.
func TestSwitchIsANeighbour(t *testing.T) {
	r, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[string]wire.MAC{
		"10.77.0.1": macOf(1, 1), "fd00:77::1": macOf(1, 1), "::ffff:10.77.0.1": macOf(1, 1),
		"10.77.0.2": macOf(1, 2), "fd00:77::3": macOf(1, 3),
	} {
		if got, ok := r.Neighbour(netip.MustParseAddr(a)); !ok || got != want {
			t.Errorf("%s: %v, %v; want %v", a, got, ok, want)
		}
	}
	if _, ok := r.Neighbour(netip.MustParseAddr("10.77.0.99")); ok {
		t.Error("a stranger is a neighbour")
	}
	if _, ok := (&Rack{}).Neighbour(netip.Addr{}); ok {
		t.Error("no address is a neighbour")
	}
}
