package rules

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	serverA  = netip.MustParseAddr("10.77.0.3")
	serverA6 = netip.MustParseAddr("fd00:77::3")
	serverB  = netip.MustParseAddr("10.77.0.4")
)

// lookup returns a rack with two servers.
func lookup(name string) []netip.Addr {
	switch name {
	case "ms0", serverA.String(), serverA6.String():
		return []netip.Addr{serverA, serverA6}
	case "ms1":
		return []netip.Addr{serverB}
	}
	return nil
}

// parse parses and resolves rules that must be valid.
func parse(t testing.TB, texts ...string) []Rule {
	t.Helper()
	var list []Rule
	for _, s := range texts {
		r, err := Parse(s)
		if err == nil {
			err = r.Resolve(lookup)
		}
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		list = append(list, r)
	}
	return list
}

func set(t testing.TB, texts ...string) *Set {
	t.Helper()
	s, err := NewSet(parse(t, texts...))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParse(t *testing.T) {
	for text, want := range map[string]Rule{
		"server=ms0 action=track":                    {Host: "ms0"},
		"server=ms0 action=atomics":                  {Host: "ms0", Action: Atomics, Service: "memory"},
		"server=ms0 action=move mode=published":      {Host: "ms0", Action: Move, Mode: Published},
		"server=::ffff:10.0.0.1 action=track":        {Server: netip.MustParseAddr("10.0.0.1")},
		"server=fd00::1 action=move service=none":    {Server: netip.MustParseAddr("fd00::1"), Action: Move},
		" action=move\tserver=ms0  service=18515 ":   {Host: "ms0", Action: Move, Service: "18515"},
		"server=ms0 action=track range=all rkey=any": {Host: "ms0"},
		"server=ms0 action=atomics misses=switch":    {Host: "ms0", Action: Atomics, Service: "memory", Misses: AnswerSwitch},
		"server=ms0 action=atomics misses=wait:5ms": {
			Host: "ms0", Action: Atomics, Service: "memory", Misses: AnswerWait, MissTime: 5 * time.Millisecond,
		},
		"id=a server=ms0 action=atomics range=4096-0x2000 rkey=0x7 shards=2 depth=4 mtu=512": {
			ID: "a", Host: "ms0", Action: Atomics, From: 0x1000, To: 0x2000, RKey: 7, Shards: 2, MaxRdAtomic: 4, MTU: 512, Service: "memory",
		},
	} {
		got, err := Parse(text)
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
			t.Errorf("%s: %v\n%s", text, err, d)
		}
	}
}

// Every error of a rule names the mistake and valid values.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "write it like server=ms0 action=atomics",
		"server":                                `"server" is no key=value; write it like`,
		"server=ms0":                            `"action" is missing; write action=atomics`,
		"action=move":                           `"server" is missing; write server=ms0`,
		"server=ms0 action=shift":               "use one of [track move atomics steer]",
		"server=ms0 action=move mode=soft":      "use one of [hardened published]",
		"server=ms0 action=move colour=red":     "known keys: id, server, action",
		"server=ms0 server=ms1 action=move":     "server is given twice; remove one",
		"server=ms0 misses=client":              "use one of [server switch wait]",
		"server=ms0 misses=wait:1h":             "write it like wait:5ms, at most 1s",
		"server=ms0 misses=switch:1ms":          "write it like wait:5ms",
		"server=MS0 action=move":                "neither a host's name nor an address",
		"server=fe80::1%eth0 action=move":       "has a zone",
		"server= action=move":                   "neither",
		"server=ms0 action=move range=5":        "write it like 0x1000-0x2000",
		"server=ms0 action=move range=8-x":      "write it like",
		"server=ms0 action=move range=9-8":      "lower address first",
		"server=ms0 action=move rkey=0":         "no number from 1 to 4294967295",
		"server=ms0 action=move shards=65":      "no number from 1 to 64",
		"server=ms0 action=move depth=0":        "no number from 1 to 128",
		"server=ms0 action=move mtu=1500":       "use one of [256 512 1024 2048 4096]",
		"server=ms0 action=move service=70000":  "use a number from 1 to 65535",
		"server=ms0 action=move service=a\x01b": "character",
		"server=ms0 action=move id=A":           "only a-z",
		"server=ms0 action=move id=":            "use 1 to 32",
		strings.Repeat("x", MaxText+1):          "at most 1024",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func TestPrint(t *testing.T) {
	for text, yaml := range map[string]string{
		"server=ms0 action=track": "{server: ms0, action: track}",
		"id=locks server=ms0 action=atomics range=0x1000-0x2000 rkey=0x7 shards=2 service=none depth=4 mtu=512": "{id: locks, server: ms0, action: atomics, range: 0x1000-0x2000, rkey: 0x7, shards: 2, service: none, depth: 4, mtu: 512}",
		"server=fd00::1 action=move mode=published":                                                             `{server: "fd00::1", action: move, mode: published}`,
	} {
		r, err := Parse(text)
		if err != nil || r.String() != text || r.YAML() != yaml {
			t.Errorf("%v\ngot  %s\nwant %s\ngot  %s\nwant %s", err, r, text, r.YAML(), yaml)
		}
	}
}

func TestResolve(t *testing.T) {
	r := parse(t, "server=ms0 action=track")[0]
	if r.Server != serverA || !slices.Equal(r.Also, []netip.Addr{serverA6}) || r.Host != "ms0" {
		t.Errorf("%+v", r)
	}
	// A server can be named by its name or by either of its addresses, with the same meaning.
	r = parse(t, "server=fd00:77::3 action=track")[0]
	if r.Server != serverA || !r.Of(serverA6) || r.Of(serverB) {
		t.Errorf("%+v", r)
	}
	r = parse(t, "server=192.0.2.1 action=track")[0]
	if r.Server.String() != "192.0.2.1" || r.Also != nil {
		t.Errorf("%+v", r)
	}
	r, _ = Parse("server=ms9 action=track")
	if err := r.Resolve(lookup); err == nil {
		t.Error("an unknown host is resolved")
	}
}

func TestSetRefuses(t *testing.T) {
	for want, texts := range map[string][]string{
		"its id is taken":                {"id=a server=ms0 action=track range=1-2", "id=a server=ms1 action=track"},
		"takes all of its requests":      {"server=ms0 action=move", "server=ms0 action=atomics range=8-16"},
		"takes all of its":               {"server=ms0 action=move range=0-64", "server=ms0 action=move range=8-16 rkey=0x1"},
		"is served in one mode":          {"server=ms0 action=move mode=published range=0-64", "server=fd00:77::3 action=atomics"},
		"uses the same shared":           {"server=ms0 action=move range=0-64", "server=ms0 action=atomics shards=2"},
		"cuts a word in two":             {"server=ms0 action=atomics range=8-20"},
		"rule r2: it has no server":      {"server=ms0 action=track", ""},
		"is no address of a machine":     {"server=0.0.0.0 action=track"},
		"write the server in the same w": {"server=ms0 action=track range=0-64", "also"},
	} {
		var list []Rule
		for _, s := range texts {
			switch s {
			case "":
				list = append(list, Rule{})
			case "also":
				list = append(list, Rule{Server: serverB, Also: []netip.Addr{serverA}})
			default:
				list = append(list, parse(t, s)...)
			}
		}
		if _, err := NewSet(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", texts, err, want)
		}
	}
	if _, err := NewSet(make([]Rule, MaxRules+1)); err == nil || !strings.Contains(err.Error(), "at most 256") {
		t.Error(err)
	}
}

// The first rule that matches is used, for any address of the server. The table has requests and
// the rule for each.
func TestMatch(t *testing.T) {
	s := set(t,
		"id=lock server=ms0 action=atomics range=0x1000-0x2000 rkey=0x7",
		"id=page server=ms0 action=move range=0x1000-0x3000",
		"id=rest server=ms1 action=track",
	)
	for _, tc := range []struct {
		server netip.Addr
		va     uint64
		n      int
		rkey   uint32
		want   string
	}{
		{serverA, 0x1000, 8, 7, "lock"},
		{serverA6, 0x1ff8, 8, 7, "lock"},
		{serverA, 0x1ff9, 8, 7, "lock"}, // a part of it is in the range
		{serverA, 0xff8, 8, 7, ""},
		{serverA, 0xff9, 8, 7, "lock"},
		{serverA, 0x2000, 8, 7, "page"},
		{serverA, 0x1000, 8, 8, "page"},
		{serverA, 0x1000, 0, 7, "lock"},
		{serverA, 0x3000, 8, 8, ""},
		{serverA, ^uint64(0), 8, 7, ""},
		{serverA, 0xff0, 1 << 30, 7, "lock"},
		{serverB, ^uint64(0), 8, 1, "rest"},
		{netip.MustParseAddr("10.77.0.9"), 0x1000, 8, 7, ""},
	} {
		got := ""
		if r := First(s.Lookup(tc.server), tc.va, tc.n, tc.rkey); r != nil {
			got = r.ID
		}
		if got != tc.want {
			t.Errorf("%v %#x+%d key %d: rule %q, want %q", tc.server, tc.va, tc.n, tc.rkey, got, tc.want)
		}
	}
	var none *Set
	if First(none.Lookup(serverA), 0, 8, 0) != nil || none.All() != nil || none.Get("x") != nil {
		t.Error("the nil set is not empty")
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	s := set(t, "server=ms0 action=atomics range=0-64", "server=ms0 action=move")
	if n := testing.AllocsPerRun(100, func() { First(s.Lookup(serverA6), 128, 8, 7) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Add and Remove leave the set that they were called on as it was.
func TestAddRemove(t *testing.T) {
	var s *Set
	first, r, err := s.Add(parse(t, "server=ms0 action=move range=0-64")[0])
	if err != nil || r.ID != "r1" {
		t.Fatal(r, err)
	}
	second, r, err := first.Add(parse(t, "server=ms1 action=track")[0])
	if err != nil || r.ID != "r2" || len(first.All()) != 1 || len(second.All()) != 2 {
		t.Fatal(r, err)
	}
	if _, _, err := second.Add(parse(t, "id=r1 server=ms1 action=track")[0]); err == nil || !strings.Contains(err.Error(), "remove it first") {
		t.Error(err)
	}
	third, err := second.Remove("r1")
	if err != nil || third.Get("r1") != nil || third.Get("r2") == nil || second.Get("r1") == nil {
		t.Error(third, err)
	}
	if _, err := third.Remove("r1"); err == nil || !strings.Contains(err.Error(), "there are [r2]") {
		t.Error(err)
	}
	if first, r, err = third.AddFirst(parse(t, "server=ms1 action=move range=0-64")[0]); err != nil || r.ID != "r1" || first.All()[0].ID != "r1" {
		t.Error(first, err)
	}
	// A free id is chosen.
	if _, r, err = third.Add(parse(t, "server=ms0 action=track")[0]); err != nil || r.ID != "r1" {
		t.Error(r, err)
	}
}

// A set that parses prints as one that parses to the same; no text makes the parser panic.
func FuzzParse(f *testing.F) {
	f.Add("id=locks server=ms0 action=atomics range=0x1000-0x2000 rkey=0x7 shards=2 service=none depth=4 mtu=512")
	f.Add("server=fd00:77::3 action=move mode=published service=18515")
	f.Add("server=10.0.0.1 action=track service=x")
	f.Add("server=ms0 action=move service={a,b}#")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		if d := cmp.Diff(r, again, cmpopts.EquateComparable(netip.Addr{})); err != nil || d != "" {
			t.Errorf("%q prints %q: %v\n%s", text, r.String(), err, d)
		}
		if strings.ContainsAny(r.YAML(), "\n\x00") {
			t.Errorf("%q", r.YAML())
		}
		_ = r.Resolve(lookup)
		if _, err := NewSet([]Rule{r}); err == nil {
			r.Covers(r.From, 8)
		}
	})
}
