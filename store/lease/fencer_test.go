package lease

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A context whose threads do not run: the test takes their steps.
type (
	stopped   struct{ verbs.Context }
	noThreads struct{ verbs.Runtime }
)

func (stopped) Runtime() verbs.Runtime { return noThreads{} }
func (noThreads) Go(string, func())    {}

func fencerOf(servers int) *Fencer {
	return NewFencer(Config{Context: stopped{}, Servers: make([]netip.Addr, servers)})
}

// A fence can be cancelled until a server may be executing it. A cancelled fence is sent to no
// server, and the ones behind it are.
func TestCancel(t *testing.T) {
	for _, c := range []struct {
		name    string
		steps   []int // the servers that execute the fence before
		cancels bool
	}{{"waits at both", nil, true}, {"is the next at one", []int{1}, false}, {"is done at one", []int{1, 1}, false}, {"is done", []int{0, 0, 1, 1}, false}} {
		f := fencerOf(2)
		f.Add(4)
		x, last := f.Add(5), f.AddTo(6)
		for _, i := range c.steps {
			f.next(i, true)
		}
		if got := f.Cancel(x); got != c.cancels || x.cancelled != c.cancels {
			t.Errorf("a fence that %s: cancelled %v, %v", c.name, got, x.cancelled)
		}
		for i := range 2 {
			for n := f.next(i, false); n != nil; n = f.next(i, true) {
				if n == x && c.cancels {
					t.Errorf("a fence that %s is sent to server %d after Cancel", c.name, i)
				}
			}
		}
		if !f.Over(x) || !f.Over(last) {
			t.Errorf("a fence that %s: in the end it is over: %v, the one behind it: %v", c.name, f.Over(x), f.Over(last))
		}
	}
}

// A fence is over when all servers have executed it; servers that were left do not count, and get it
// nevertheless.
func TestOver(t *testing.T) {
	f := fencerOf(2)
	x := f.Add(4)
	f.next(0, true)
	if f.Over(x) || !f.Idle(0) || f.Idle(1) {
		t.Error("over at one server")
	}
	f.Leave([]bool{false, true})
	if !f.Over(x) || f.Idle(1) {
		t.Error("a server that was left is waited for, or gets no fence")
	}
	f.Leave([]bool{false, false})
	if f.Over(x) {
		t.Error("a server that is back has not executed the fence")
	}
	if f.next(1, true); !f.Over(x) {
		t.Error("not over")
	}
}

// After Close no thread goes on, and a fence that comes then starts none, so Wait returns.
func TestClose(t *testing.T) {
	f := fencerOf(2)
	x := f.Add(4)
	f.Close()
	f.Add(5)
	for i := range 2 {
		if f.next(i, false) != nil {
			t.Errorf("the thread of server %d goes on", i)
		}
	}
	f.Wait()
	if f.Over(x) {
		t.Error("a fence is over that no server has executed")
	}
}
