package serve

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// doorShell is a NIC of which only the exclusive use is needed. second is closed when the second
// caller of Enter has come, before it waits.
type doorShell struct {
	verbsengine.Shell
	mu     sync.Mutex
	came   atomic.Int32
	second chan struct{}
	nic    engine.Engine
}

func (s *doorShell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	if s.came.Add(1) == 2 {
		close(s.second)
	}
	s.mu.Lock()
	return 0, &s.nic, nil
}

func (s *doorShell) Leave() { s.mu.Unlock() }

// bellFunc is an object with a doorbell.
type bellFunc func()

func (f bellFunc) rung(clock.Time, *port, *packetio.Batch) { f() }

// A request that arrives while the pump serves some of the program's bells is executed after the
// posts of all bells that were rung before it.
func TestARequestFollowsAllEarlierPosts(t *testing.T) {
	const bells = maxBellsAtOnce + 2
	shell := &doorShell{second: make(chan struct{})}
	p := &port{ctl: ring.NewControl(make([]byte, ring.ControlLen))}
	s := &pump{shell: shell, ports: []*port{p}}
	served, inside := 0, make(chan struct{})
	for i := range bells {
		p.bells = append(p.bells, bellFunc(func() {
			if served++; served == 1 {
				close(inside)
				<-shell.second // the request is there: it waits for the engine
			}
		}))
		p.ctl.Ring(uint32(i))
	}
	var step sync.WaitGroup
	step.Go(func() {
		_, _, out := shell.Enter()
		defer shell.Leave()
		p.serve(0, out)
	})
	<-inside
	s.catchUp(p)
	s.with(func(*engine.Engine) { // where the request is executed
		if served != bells {
			t.Errorf("the request is executed after %d of %d bells", served, bells)
		}
	})
	step.Wait()
}
