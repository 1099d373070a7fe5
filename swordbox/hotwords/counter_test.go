package hotwords

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// watching makes a Counter with rules of server 10.0.0.1.
func watching(t testing.TB, texts ...string) (*Counter, *rules.Set) {
	t.Helper()
	c := New()
	set := ruleSet(t, texts...)
	c.SetRules(set)
	return c, set
}

func ruleSet(t testing.TB, texts ...string) *rules.Set {
	t.Helper()
	var list []rules.Rule
	for _, text := range texts {
		r, err := rules.Parse("server=10.0.0.1 action=count " + text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	set, err := rules.NewSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func hot(list []Hot) string {
	var b strings.Builder
	for _, h := range list {
		fmt.Fprintf(&b, "%#x=%d(%d/%d/%d) ", h.Address, h.Count, h.Reads, h.Writes, h.Atomics)
	}
	return strings.TrimSpace(b.String())
}

// A request counts for each unit that has bytes of it, up to 16; a request of no bytes for the unit
// at its address.
func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		rule   string
		target handler.Target
		want   string
	}{
		{"", handler.Target{Opcode: wire.RCCmpSwap, VA: 0x1008, Length: 8}, "0x1008=1(0/0/1)"},
		{"", handler.Target{Opcode: wire.RCReadRequest, VA: 0x1006, Length: 4}, "0x1000=1(1/0/0) 0x1008=1(1/0/0)"},
		{"", handler.Target{Opcode: wire.RCWriteOnly, VA: 0x1006}, "0x1000=1(0/1/0)"},
		{"unit=line", handler.Target{Opcode: wire.RCWriteFirst, VA: 0x1030, Length: 64}, "0x1000=1(0/1/0) 0x1040=1(0/1/0)"},
		{"unit=page", handler.Target{Opcode: wire.RCFetchAdd, VA: 0x1ff8, Length: 8}, "0x1000=1(0/0/1)"},
		{"", handler.Target{Opcode: wire.RCReadRequest, VA: ^uint64(0) - 3, Length: 99}, "0xfffffffffffffff8=1(1/0/0)"},
	} {
		c, set := watching(t, tc.rule)
		c.Observe(nil, &set.All()[0], tc.target)
		if got := hot(c.list(0)); got != tc.want || c.stats.Cut != 0 {
			t.Errorf("%s %+v: %s, want %s", tc.rule, tc.target, got, tc.want)
		}
	}
	c, set := watching(t, "")
	c.Observe(nil, &set.All()[0], handler.Target{Opcode: wire.RCReadRequest, Length: 1 << 30})
	if len(c.list(0)) != maxUnits || c.stats.Cut != 1 {
		t.Errorf("%d units, %d cut", len(c.list(0)), c.stats.Cut)
	}
}

// The counts of a rule are kept while the rule is in force unchanged; after a clear they begin at 0
// again.
func TestCountsAcrossRules(t *testing.T) {
	c, set := watching(t, "id=a range=0-0x1000", "id=b range=0x1000-0x2000 top=2")
	for va := range uint64(3) {
		c.Observe(nil, &set.All()[1], handler.Target{Opcode: wire.RCCmpSwap, VA: 0x1000 + 8*va, Length: 8})
	}
	c.Observe(nil, &set.All()[0], handler.Target{Opcode: wire.RCCmpSwap, VA: 8, Length: 8})
	want := "0x1010=2(0/0/1) 0x8=1(0/0/1) 0x1000=1(0/0/1)"
	if got := hot(c.list(0)); got != want || c.stats.Taken != 1 {
		t.Errorf("%s, %+v", got, c.stats)
	}
	c.SetRules(ruleSet(t, "id=b range=0x1000-0x2000 top=2", "id=c range=0-0x1000"))
	if got := hot(c.list(0)); got != "0x1010=2(0/0/1) 0x1000=1(0/0/1)" {
		t.Errorf("after a change of rules: %s", got)
	}
	// With another address of the server the rule selects other requests: counts of before would be too small.
	set = ruleSet(t, "id=b range=0x1000-0x2000 top=2")
	set.All()[0].Also = []netip.Addr{netip.MustParseAddr("fd00:77::9")}
	if c.SetRules(set); len(c.list(0)) != 0 {
		t.Errorf("a rule with a further address: %s", hot(c.list(0)))
	}
	c.Observe(nil, &set.All()[0], handler.Target{Opcode: wire.RCCmpSwap, VA: 0x1000, Length: 8})
	if c.SetRules(set); len(c.list(0)) != 1 {
		t.Errorf("an unchanged rule with a further address: %s", hot(c.list(0)))
	}
	set = ruleSet(t, "id=b range=0x1000-0x2000 top=3")
	if c.SetRules(set); len(c.list(0)) != 0 {
		t.Errorf("a rule that is another one: %s", hot(c.list(0)))
	}
	c.Observe(nil, &set.All()[0], handler.Target{Opcode: wire.RCCmpSwap, VA: 8, Length: 8})
	if n := c.ClearTable(tableHot); n != 1 || c.Tables()[0].Used != 0 {
		t.Errorf("%d cleared, %+v", n, c.Tables())
	}
}

// Keys that a rule of action count must not have.
func TestRules(t *testing.T) {
	for text, want := range map[string]string{
		"action=count top=0":                      "no number from 1 to 1024",
		"action=count unit=byte":                  "use one of [word line page]",
		"action=count mode=published":             "action count has no mode published",
		"action=atomics top=3":                    "the key top has no meaning with action atomics",
		"action=count steer=read":                 "only with action steer",
		"action=count misses=switch":              "misses",
		"action=count top=1024 unit=line range=x": "no range",
	} {
		r, err := rules.Parse("id=a server=10.0.0.1 " + text)
		if err == nil {
			_, err = rules.NewSet([]rules.Rule{r})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	var many []rules.Rule
	for i := range 5 {
		r, err := rules.Parse(fmt.Sprintf("server=10.0.0.1 action=count top=1000 range=%d-%d", i*8, i*8+8))
		if err != nil {
			t.Fatal(err)
		}
		many = append(many, r)
	}
	if _, err := rules.NewSet(many); err == nil || !strings.Contains(err.Error(), "at most 4096") {
		t.Errorf("%v", err)
	}
	const text = "id=a server=10.0.0.1 action=count top=100 unit=line"
	r, err := rules.Parse(text)
	if err != nil || r.String() != text || r.YAML() != "{id: a, server: 10.0.0.1, action: count, top: 100, unit: line}" {
		t.Errorf("%v, %v, %s", err, r, r.YAML())
	}
	var again rules.Rule
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &again)
	}
	if err != nil || again.String() != text {
		t.Errorf("%v, %v", again, err)
	}
	again.Options["top"] = "many"
	if err := again.Validate(); err == nil || !strings.Contains(err.Error(), "top:") {
		t.Errorf("%v", err)
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	c, set := watching(t, "top=64 unit=line")
	va := uint64(0)
	if n := testing.AllocsPerRun(10_000, func() {
		va = pipeline.Hash(va + 1)
		c.Observe(nil, &set.All()[0], handler.Target{Opcode: wire.RCReadRequest, VA: va, Length: 1 << 12})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTable(t *testing.T) {
	c, set := watching(t, "id=a unit=line")
	var b strings.Builder
	l := Kind.Listings[0]
	if err := l.Print(&b, netip.Addr.String, nil); err != nil || l.Items(c, 0) != nil || !strings.Contains(b.String(), "action=count") {
		t.Errorf("%s %v", b.String(), err)
	}
	c.Observe(nil, &set.All()[0], handler.Target{Opcode: wire.RCCmpSwap, VA: 0x1008, Length: 8})
	data, err := json.Marshal(l.Items(c, 0))
	if err != nil {
		t.Fatal(err)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(data, &items); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	const want = `SERVER    ADDRESS  UNIT  COUNT  OVER  READS  WRITES  ATOMICS  RULE
10.0.0.1  0x1000   64    1      0     0      0       1        a
`
	if err := l.Print(&b, netip.Addr.String, items); err != nil || b.String() != want {
		t.Errorf("%s %v", b.String(), err)
	}
}

func BenchmarkObserve(b *testing.B) {
	c, set := watching(b, "top=64")
	va := uint64(0)
	for b.Loop() {
		va = pipeline.Hash(va + 1)
		c.Observe(nil, &set.All()[0], handler.Target{Opcode: wire.RCCmpSwap, VA: va % 1024 * 8, Length: 8})
	}
}
