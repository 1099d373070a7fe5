package serialize_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func (b *box) rules(list ...rules.Rule) {
	b.t.Helper()
	set, err := rules.NewSet(list)
	if err == nil {
		err = b.prog.SetRules(set)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) words() int {
	n := 0
	for _, m := range b.prog.Report(b.now).Handlers {
		n += len(m.Words)
	}
	return n
}

// While the rules were other ones, atomics may have passed that the cache did not see. So the server
// executes the first one under the new rules. A change of other servers' rules leaves the cache.
func TestWordsOfFormerRulesAreForgotten(t *testing.T) {
	mine := rules.Rule{Server: addr(serverHost), Action: rules.Atomics, Mode: rules.Published}
	move, ranged, other := mine, mine, mine
	move.Action, ranged.From, ranged.To, other.Server = rules.Move, 0x10000, 0x20000, addr(9)
	for name, tc := range map[string]struct {
		between []rules.Rule
		kept    bool
	}{
		"no rule":        {nil, false},
		"move":           {[]rules.Rule{move}, false},
		"a range":        {[]rules.Rule{ranged}, false},
		"another server": {[]rules.Rule{mine, other}, true},
		"the same":       {[]rules.Rule{mine}, true},
	} {
		b := newBox(t)
		b.know(lock, 0)
		b.rules(tc.between...)
		b.rules(mine)
		want := wire.RCCmpSwap
		if tc.kept {
			want = wire.RCWriteOnly
		}
		if f := b.one(cas(2, 0, lock, 0, 2)); f.BTH.Opcode != want || f.BTH.DestQP != serverQP(1) {
			t.Errorf("%s: %v, want %v", name, f, want)
		}
	}
}

// The words that an operator sees in the table are those that the operator can clear.
func TestWordsAreCleared(t *testing.T) {
	b := newBox(t)
	b.know(lock, 0)
	if n, ok := b.prog.ClearTable("words"); n != 1 || !ok || b.words() != 0 {
		t.Errorf("%d cleared, %v; %d are left", n, ok, b.words())
	}
	if f := b.one(cas(2, 0, lock, 0, 2)); f.BTH.Opcode != wire.RCCmpSwap {
		t.Errorf("%v", f)
	}
	a := frame(serverHost, 1, clientQP(1), wire.RCAtomicAck, 101)
	if b.one(a); b.words() != 1 {
		t.Errorf("%d words after an answer", b.words())
	}
}
