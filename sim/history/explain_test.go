package history

import (
	"errors"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// The search for the explanation of a history that is not linearizable has a bound, and an explanation that has reached
// it says so.
func TestExplanationsAreBounded(t *testing.T) {
	const pairs = 100
	var l Log
	l.Add("w", 0)
	for i := range pairs { // of operations at the same time
		a, b := l.Invoke(0, 1, Op{Kind: Write, Value: uint64(i + 1)}), l.Invoke(0, 2, Op{Kind: Read})
		l.Return(a, 0)
		if i == pairs-1 {
			l.Return(b, 1<<40)
		} else {
			l.Return(b, uint64(i+1))
		}
	}
	x := &l.words[0]
	var ops []porcupine.Operation
	for i := range x.events {
		ops = append(ops, x.events[i].operation())
	}
	for _, c := range []struct {
		most int
		cut  bool
	}{{50, true}, {MostSteps, false}} {
		err := x.explain(model(x.first), ops, c.most)
		var broken *BrokenError
		if !errors.As(err, &broken) || (broken.Cut == c.most) != c.cut || strings.Contains(err.Error(), "was ended after 50 steps") != c.cut || len(broken.Around) > maxAround {
			t.Errorf("%d steps: %v", c.most, err)
		} else if n := broken.Explained; c.cut && (n == 0 || n > c.most) || !c.cut && n < 2*pairs-2 {
			t.Errorf("%d steps: %d operations have an order", c.most, n)
		}
	}
}
