package uverbs_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// cuts are the reasons for which the daemon has ended connections, as it logs them.
type cuts struct {
	mu      sync.Mutex
	reasons []string
}

func (c *cuts) Enabled(context.Context, slog.Level) bool { return true }

func (c *cuts) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" {
			c.reasons = append(c.reasons, a.Value.String())
		}
		return true
	})
	return nil
}

func (c *cuts) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c *cuts) WithGroup(string) slog.Handler      { return c }

// ruled waits until a connection has ended because its program broke the rules of the rings, and forgets all reasons. It
// returns false if that does not come.
func (c *cuts) ruled(wait time.Duration) bool {
	for end := time.Now().Add(wait); ; time.Sleep(100 * time.Microsecond) {
		c.mu.Lock()
		was := slices.ContainsFunc(c.reasons, func(s string) bool { return strings.Contains(s, "broken the rules of the rings") })
		if was {
			c.reasons = nil
		}
		c.mu.Unlock()
		if was || time.Now().After(end) {
			return was
		}
	}
}

// forget forgets all reasons.
func (c *cuts) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reasons = nil
}

// A program that the daemon has cut off gives no further commands, and what the fuzzer asks of a cut fails when the program has kept
// the rules of the rings.
func TestCutPrograms(t *testing.T) {
	c := &cuts{}
	h := newHouseOf(t, serve.Limits{}, -1, engine.Limits{}, func(s *serve.Config) { s.Log = slog.New(c) })
	x := h.hostile(t, newLender(t), -1)
	must(t, x.c.conn.CloseWrite()) // as if the daemon had ended it
	x.follow(script{0, 0, 0, 0, 0, 0, 0, 0, byte(otherSteps), 0, 0, 0, 0, 0, 0, 0})
	if !x.cut {
		t.Error("the program goes on")
	}
	x.leave()
	if c.ruled(10 * time.Millisecond) {
		t.Error("a program that has kept the rules was cut off by them")
	}
	a, b := h.linked(t, uverbs.TypeRC)
	b.receive(0, 100)
	b.recv.Slot(b.recv.Producer() - 1)[28] = 0xff // the number of pieces; see TestMalformedReceive
	a.post(opSend, 0, 100, 0, 0)
	if !c.ruled(leftFor) {
		t.Error("no reason was seen")
	}
}
