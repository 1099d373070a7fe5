package rules

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// The first and the last value of each field is allowed, and the ones beside them are not.
func TestBoundsOfRules(t *testing.T) {
	keys := func(n int, key uint64) []uint64 { return slices.Repeat([]uint64{key}, n) }
	most := len(joinKeys(keys(MaxKeys, 1<<40))) <= MaxText/2 // then only the number of keys is bounded
	for _, c := range []struct {
		what   string
		change func(r *Rule)
		ok     bool
	}{
		{"as it is", func(*Rule) {}, true},
		{"7 more addresses", func(r *Rule) { r.Also = make([]netip.Addr, MaxAlso) }, true},
		{"8 more addresses", func(r *Rule) { r.Also = make([]netip.Addr, MaxAlso+1) }, false},
		{"an address in the other family's form", func(r *Rule) { r.Server = netip.MustParseAddr("::ffff:10.77.0.3") }, false},
		{"a group", func(r *Rule) { r.Server = netip.MustParseAddr("ff02::1") }, false},
		{"a zone", func(r *Rule) { r.Server = netip.MustParseAddr("fe80::1%eth0") }, false},
		{"an unknown action", func(r *Rule) { r.Action = Action(len(definitions)) }, false},
		{"the last mode", func(r *Rule) { r.Mode = Published }, true},
		{"an unknown mode", func(r *Rule) { r.Mode = Published + 1 }, false},
		{"a range from 0", func(r *Rule) { r.To = 1 }, true},
		{"a range of nothing", func(r *Rule) { r.From, r.To = 5, 5 }, false},
		{"a range without end", func(r *Rule) { r.From = 5 }, false},
		{"a range of one byte", func(r *Rule) { r.From, r.To = 5, 6 }, true},
		{"shards -1", func(r *Rule) { r.Shards = -1 }, false},
		{"shards 64", func(r *Rule) { r.Shards = MaxShards }, true},
		{"shards 65", func(r *Rule) { r.Shards = MaxShards + 1 }, false},
		{"depth -1", func(r *Rule) { r.MaxRdAtomic = -1 }, false},
		{"depth 128", func(r *Rule) { r.MaxRdAtomic = MaxDepth }, true},
		{"depth 129", func(r *Rule) { r.MaxRdAtomic = MaxDepth + 1 }, false},
		{"MTU 256", func(r *Rule) { r.MTU = 256 }, true},
		{"MTU 1500", func(r *Rule) { r.MTU = 1500 }, false},
		{"256 keys", func(r *Rule) { r.Action, r.Keys = Steer, keys(MaxKeys, 1) }, true},
		{"256 long keys", func(r *Rule) { r.Action, r.Keys = Steer, keys(MaxKeys, 1<<40) }, most},
		{"257 keys", func(r *Rule) { r.Action, r.Keys = Steer, keys(MaxKeys+1, 1) }, false},
		{"keys of another action", func(r *Rule) { r.Keys = keys(1, 1) }, false},
		{"the last steering", func(r *Rule) { r.Action, r.Steer = Steer, SteerRead }, true},
		{"an unknown steering", func(r *Rule) { r.Action, r.Steer = Steer, SteerRead+1 }, false},
		{"steering of another action", func(r *Rule) { r.Steer = SteerRead }, false},
		{"misses of atomics", func(r *Rule) { r.Action, r.Misses = Atomics, AnswerWait }, true},
		{"an unknown answerer", func(r *Rule) { r.Action, r.Misses = Atomics, AnswerWait+1 }, false},
		{"slow of atomics", func(r *Rule) { r.Action = Atomics; r.SetSlowed(SlowMarked) }, true},
		{"slow of move", func(r *Rule) { r.Action = Move; r.SetSlowed(SlowHeaviest) }, true},
		{"slow of another action", func(r *Rule) { r.Action = Track; r.SetSlowed(SlowShare) }, false},
		{"slow in mode published", func(r *Rule) { r.Action, r.Mode = Move, Published; r.SetSlowed(SlowShare) }, false},
		{"an unknown slow", func(r *Rule) { r.Action, r.Options = Move, map[string]string{"slow": "some"} }, false},
		{"misses of another action", func(r *Rule) { r.Misses = AnswerSwitch }, false},
		{"misses in mode published", func(r *Rule) { r.Action, r.Mode, r.Misses = Atomics, Published, AnswerSwitch }, false},
		{"a wait of a second", func(r *Rule) { r.Action, r.Misses, r.MissTime = Atomics, AnswerWait, time.Second }, true},
		{"a longer wait", func(r *Rule) { r.Action, r.Misses, r.MissTime = Atomics, AnswerWait, time.Second+1 }, false},
		{"a wait of less than nothing", func(r *Rule) { r.Action, r.Misses, r.MissTime = Atomics, AnswerWait, -1 }, false},
		{"a wait of the switch's answer", func(r *Rule) { r.Action, r.Misses, r.MissTime = Atomics, AnswerSwitch, 1 }, false},
		{"256 hot keys", func(r *Rule) { r.Action, r.Hot = Steer, MaxHot }, true},
		{"257 hot keys", func(r *Rule) { r.Action, r.Hot = Steer, MaxHot+1 }, false},
		{"-1 hot keys", func(r *Rule) { r.Action, r.Hot = Steer, -1 }, false},
		{"hot keys and named ones", func(r *Rule) { r.Action, r.Hot, r.Keys = Steer, 1, keys(1, 1) }, false},
		{"hot keys of another action", func(r *Rule) { r.Hot = 1 }, false},
		{"hot keys in mode published", func(r *Rule) { r.Action, r.Mode, r.Hot = Steer, Published, 1 }, false},
		{"16,384 registers", func(r *Rule) { r.Action, r.Mode, r.Registers = Steer, Published, MaxRegisters }, true},
		{"16,385 registers", func(r *Rule) { r.Action, r.Mode, r.Registers = Steer, Published, MaxRegisters+1 }, false},
		{"-1 registers", func(r *Rule) { r.Action, r.Mode, r.Registers = Steer, Published, -1 }, false},
		{"registers in mode hardened", func(r *Rule) { r.Action, r.Registers = Steer, 1 }, false},
		{"registers of another action", func(r *Rule) { r.Mode, r.Registers = Published, 1 }, false},
		{"a word", func(r *Rule) { r.Action, r.From, r.To = Atomics, 8, 16 }, true},
		{"from within a word", func(r *Rule) { r.Action, r.From, r.To = Atomics, 9, 16 }, false},
		{"to within a word", func(r *Rule) { r.Action, r.From, r.To = Atomics, 8, 17 }, false},
		{"bytes of another action", func(r *Rule) { r.From, r.To = 9, 17 }, true},
		{"no id", func(r *Rule) { r.ID = "" }, false},
		{"an id of 32 bytes", func(r *Rule) { r.ID = strings.Repeat("a", MaxID) }, true},
		{"an id of 33 bytes", func(r *Rule) { r.ID = strings.Repeat("a", MaxID+1) }, false},
		{"the outer characters of an id", func(r *Rule) { r.ID = "az09-" }, true},
		{"`", func(r *Rule) { r.ID = "`" }, false},
		{"{", func(r *Rule) { r.ID = "{" }, false},
		{"/", func(r *Rule) { r.ID = "/" }, false},
		{":", func(r *Rule) { r.ID = ":" }, false},
		{"no service", func(r *Rule) { r.Service = "" }, true},
		{"port 0", func(r *Rule) { r.Service = "0" }, false},
		{"port 1", func(r *Rule) { r.Service = "1" }, true},
		{"port 01", func(r *Rule) { r.Service = "01" }, false},
		{"port 65535", func(r *Rule) { r.Service = "65535" }, true},
		{"port 65536", func(r *Rule) { r.Service = "65536" }, false},
		{"a service of 48 bytes", func(r *Rule) { r.Service = strings.Repeat("a", MaxService) }, true},
		{"a service of 49 bytes", func(r *Rule) { r.Service = strings.Repeat("a", MaxService+1) }, false},
		{"the outer characters of a service", func(r *Rule) { r.Service = "!~" }, true},
		{"a service with a space", func(r *Rule) { r.Service = "a b" }, false},
		{"a service with DEL", func(r *Rule) { r.Service = "a\x7f" }, false},
		{"a service with a quote", func(r *Rule) { r.Service = `a"` }, false},
		{"a service with =", func(r *Rule) { r.Service = "a=b" }, false},
	} {
		r := Rule{ID: "r1", Server: serverA, Action: Move, Service: DefaultService}
		c.change(&r)
		if err := r.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// Two rules of a server fit into one set if neither makes the other useless and both serve it in the
// same way.
func TestRulesOfOneServer(t *testing.T) {
	for what, c := range map[string]struct {
		first, second func(r *Rule)
		ok            bool
	}{
		"disjoint ranges":           {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.From, r.To = 64, 128 }, true},
		"a part behind":             {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.To = 65 }, true},
		"a part ahead":              {func(r *Rule) { r.From, r.To = 8, 64 }, func(r *Rule) { r.From, r.To = 7, 64 }, true},
		"the same range":            {func(r *Rule) { r.From, r.To = 8, 64 }, func(r *Rule) { r.From, r.To = 8, 64 }, false},
		"all behind a range":        {func(r *Rule) { r.From, r.To = 8, 64 }, func(*Rule) {}, true},
		"all behind a range from 0": {func(r *Rule) { r.To = 64 }, func(*Rule) {}, true},
		"all behind all":            {func(*Rule) {}, func(*Rule) {}, false},
		"another key":               {func(r *Rule) { r.RKey = 5 }, func(r *Rule) { r.RKey = 6 }, true},
		"the same key":              {func(r *Rule) { r.RKey = 5 }, func(r *Rule) { r.RKey = 5 }, false},
		"any key behind one":        {func(r *Rule) { r.RKey = 5 }, func(*Rule) {}, true},
		"one key behind any":        {func(*Rule) {}, func(r *Rule) { r.RKey = 5 }, false},
		"other shards":              {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.Shards = 2 }, false},
		"one shard, said and not":   {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.Shards = 1 }, true},
		"another service":           {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.Service = "x" }, false},
		"another depth":             {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.MaxRdAtomic = 17 }, false},
		"the depth, said and not":   {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.MaxRdAtomic = 16 }, true},
		"another MTU":               {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.MTU = 1024 }, false},
		"another mode":              {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.Mode = Published }, false},
		"served and steered":        {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.Action = Steer }, false},
		"steered twice":             {func(r *Rule) { r.Action, r.To = Steer, 64 }, func(r *Rule) { r.Action, r.MTU = Steer, 1024 }, true},
		"tracked in another mode":   {func(r *Rule) { r.To = 64 }, func(r *Rule) { r.Action, r.Mode = Track, Published }, true},
		"another server":            {func(*Rule) {}, func(r *Rule) { r.Server = serverB }, true},
		"another address of it":     {func(r *Rule) { r.To, r.Also = 64, []netip.Addr{serverB} }, func(r *Rule) { r.Server = serverB }, false},
		"fewer addresses of it":     {func(r *Rule) { r.To, r.Also = 64, []netip.Addr{serverB} }, func(*Rule) {}, false},
		"other addresses of it":     {func(r *Rule) { r.To, r.Also = 64, []netip.Addr{serverB} }, func(r *Rule) { r.Also = []netip.Addr{serverA6} }, false},
		"its addresses in turn": {
			func(r *Rule) { r.To, r.Also = 64, []netip.Addr{serverB, serverA6} },
			func(r *Rule) { r.Also = []netip.Addr{serverA6, serverB} }, true,
		},
	} {
		list := []Rule{{Server: serverA, Action: Move}, {Server: serverA, Action: Move}}
		c.first(&list[0])
		c.second(&list[1])
		if _, err := NewSet(list); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Covers looks at the last byte of a request, and at the address of one without bytes, also at the
// end of the address space.
func TestCovers(t *testing.T) {
	const end = ^uint64(0)
	for _, c := range []struct {
		from, to, va uint64
		n            int
		want         bool
	}{
		{0, 0, end, 8, true},
		{0x100, 0x200, 0xf8, 8, false},
		{0x100, 0x200, 0xf9, 8, true},
		{0x100, 0x200, 0xff, 1, false},
		{0x100, 0x200, 0xff, 0, false},
		{0x100, 0x200, 0x100, 0, true},
		{0x100, 0x200, 0x1ff, 1, true},
		{0x100, 0x200, 0x200, 1, false},
		{0, 0x200, 0, 1, true},
		{end - 8, end, end - 1, 1, true},
		{end - 8, end, end - 20, 100, true},
		{0x100, 0x200, end - 20, 100, false},
	} {
		r := Rule{From: c.from, To: c.to}
		if got := r.Covers(c.va, c.n); got != c.want {
			t.Errorf("range %#x-%#x, %d bytes at %#x: %v", c.from, c.to, c.n, c.va, got)
		}
	}
}

// The defaults of a rule, and what its fields say.
func TestMeaningOfRules(t *testing.T) {
	zero, set := Rule{}, Rule{Registers: 3, Shards: 4, MissTime: 5, MaxRdAtomic: 6, Keys: []uint64{7}}
	if zero.NumRegisters() != 256 || zero.NumShards() != 1 || zero.MissPatience() != time.Millisecond || zero.Depth() != 16 || !zero.HasKey(7) {
		t.Errorf("%+v", zero)
	}
	if set.NumRegisters() != 3 || set.NumShards() != 4 || set.MissPatience() != 5 || set.Depth() != 6 || !set.HasKey(7) || set.HasKey(8) {
		t.Errorf("%+v", set)
	}
	for s, want := range map[Steering][2]bool{SteerBoth: {true, true}, SteerWrite: {true, false}, SteerRead: {false, true}} {
		if s.Writes() != want[0] || s.Reads() != want[1] {
			t.Errorf("%v: %v, %v", s, s.Writes(), s.Reads())
		}
	}
	for _, s := range []string{(Published + 1).String(), (AnswerWait + 1).String(), (SteerRead + 1).String(), Action(len(definitions)).String()} {
		if !strings.HasPrefix(s, "unknown(") {
			t.Error(s)
		}
	}
	if d := Action(len(definitions)).Definition(); d != &definitions[Track] {
		t.Errorf("an unknown action is %+v", d)
	}
	if got := joinKeys([]uint64{7, 12}); got != "7,12" {
		t.Error(got)
	}
	for text, want := range map[string]Rule{
		"wait": {Misses: AnswerWait}, "wait:1s": {Misses: AnswerWait, MissTime: time.Second}, "switch": {Misses: AnswerSwitch},
	} {
		r := Rule{MissTime: 5}
		if err := r.setMisses(text); err != nil || r.Misses != want.Misses || r.MissTime != want.MissTime {
			t.Errorf("misses %s: %v, %+v", text, err, r)
		}
	}
	for _, text := range []string{"wait:0s", "wait:-1s", "wait:1001ms", "wait:x", "switch:1s"} {
		if err := (&Rule{}).setMisses(text); err == nil {
			t.Errorf("misses %s is taken", text)
		}
	}
	r := Rule{From: 1, To: 2}
	if err := r.setRange(all); err != nil || r.From != 0 || r.To != 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// probe registers an action with an option that names hosts, for the time of a test.
func probe(t *testing.T, d Definition) Action {
	t.Helper()
	oldDefinitions, oldFields := slices.Clone(definitions), slices.Clone(fields)
	t.Cleanup(func() { definitions, fields = oldDefinitions, oldFields })
	return Register(d)
}

func anything(string) error { return nil }

// All checks of an action are made, those of its first package first; a key or a name that exists is
// refused.
func TestExtend(t *testing.T) {
	errFirst, errSecond := errors.New("first"), errors.New("second")
	var first, second, firstAll, secondAll error
	a := probe(t, Definition{
		Name: "probe", Keys: []Field{Option("one", "x", "", anything)},
		Check: func(*Rule) error { return first }, Together: func([]*Rule) error { return firstAll },
	})
	if (&Rule{Action: a}).Dials() {
		t.Error("it dials")
	}
	Extend(a, Definition{
		Keys: []Field{Option("two", "x", "", anything)}, Dials: func(*Rule) bool { return true },
		Check: func(*Rule) error { return second }, Together: func([]*Rule) error { return secondAll },
	})
	Extend(a, Definition{}) // changes nothing
	list := []Rule{{ID: "r1", Server: serverA, Action: a, Options: map[string]string{"one": "x", "two": "x"}}, {ID: "r2", Server: serverB}}
	if !list[0].Dials() {
		t.Error("it does not dial")
	}
	check := func(want error) {
		t.Helper()
		if _, err := NewSet(list); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	check(nil)
	firstAll, secondAll = errFirst, errSecond
	check(errFirst)
	firstAll = nil
	check(errSecond)
	first, second = errFirst, errSecond
	check(errFirst)
	first = nil
	check(errSecond)
	only := probe(t, Definition{Name: "only"})
	Extend(only, Definition{Check: func(*Rule) error { return errSecond }, Together: func([]*Rule) error { return errFirst }})
	if !errors.Is(definitions[only].Check(nil), errSecond) || !errors.Is(definitions[only].Together(nil), errFirst) {
		t.Error("the checks of an action that had none are not made")
	}
	for what, f := range map[string]func(){
		"a key twice":  func() { Extend(a, Definition{Keys: []Field{Option("one", "x", "", anything)}}) },
		"a name twice": func() { Register(Definition{Name: "probe"}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s is taken", what)
				}
			}()
			f()
		}()
	}
}

// The rules of an action are checked together, without those of others.
func TestTogether(t *testing.T) {
	var got []string
	a := probe(t, Definition{Name: "probe", Observes: true, Together: func(list []*Rule) error {
		got = nil
		for _, r := range list {
			got = append(got, r.ID)
		}
		return nil
	}})
	s, err := NewSet([]Rule{
		{Server: serverA, Action: a}, {Server: serverA, Action: Move}, {Server: serverB, Action: a, Also: []netip.Addr{serverA6}},
	})
	if err != nil || !slices.Equal(got, []string{"r1", "r3"}) {
		t.Errorf("%v, %v", got, err)
	}
	if l := s.Observing(serverA); len(l) != 1 || l[0].ID != "r1" || len(s.Observing(serverA6)) != 1 {
		t.Errorf("observing %v", l)
	}
	if l := s.Lookup(serverA); len(l) != 1 || l[0].ID != "r2" || len(s.Lookup(serverB)) != 0 {
		t.Errorf("deciding %v", l)
	}
	if (*Set)(nil).Observing(serverA) != nil {
		t.Error("the nil set observes")
	}
}

// Names of hosts in an option become addresses, in a copy of the options; an address stays.
func TestHostsOfOptions(t *testing.T) {
	a := probe(t, Definition{Name: "probe", Keys: []Field{Option("hosts", "ms0", "", anything)}, Hosts: []string{"hosts"}})
	lookup := func(name string) []netip.Addr {
		return map[string][]netip.Addr{"ms0": {serverA, serverA6}, "ms1": {serverB}}[name]
	}
	options := map[string]string{"hosts": "ms1,10.9.9.9,ms0"}
	r := Rule{Host: "ms0", Action: a, Options: options}
	if err := r.Resolve(lookup); err != nil || r.Options["hosts"] != serverB.String()+",10.9.9.9,"+serverA.String() {
		t.Errorf("%v, %v", r.Options, err)
	}
	if options["hosts"] != "ms1,10.9.9.9,ms0" || r.Server != serverA || !slices.Equal(r.Also, []netip.Addr{serverA6}) {
		t.Errorf("%v became %+v", options, r)
	}
	for _, c := range []Rule{{Host: "ms0", Action: a, Options: map[string]string{"hosts": "ms9"}}, {Host: "ms9"}} {
		if err := c.Resolve(lookup); err == nil || !strings.Contains(err.Error(), "is no host of this rack") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	plain := Rule{Server: netip.MustParseAddr("10.9.9.9"), Action: a}
	if err := plain.Resolve(lookup); err != nil || plain.Options != nil {
		t.Errorf("%+v, %v", plain, err)
	}
}
