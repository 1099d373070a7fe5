package device

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// panicking has the ways in which a NIC of a process with others panics.
var panicking = map[string]func(d *Device){
	"timer or frame": (*Device).PlantPanic,
	"request":        func(d *Device) { d.With(func(*engine.Engine) { panic("planted") }) },
	"program": func(d *Device) {
		s := &shell{Runtime: NewRuntime(d.core.clock, 0), core: &d.core, turns: &d.turns}
		_, _, _ = s.Enter()
		defer s.Leave()
		panic("planted")
	},
	"condition": func(d *Device) {
		go func() { _ = d.turns.await(badCondition{}, clock.Never) }()
		for {
			d.With(func(e *engine.Engine) { e.Events.Notify() })
			if d.Err() != nil {
				return
			}
		}
	},
}

// badCondition is a condition that panics when it is checked for the second time.
type badCondition struct{}

var checked = make(chan struct{}, 1)

func (badCondition) Patient() bool { return true }

func (badCondition) Ready(*engine.Engine) bool {
	select {
	case checked <- struct{}{}:
		return false
	default:
		panic("planted")
	}
}

// A NIC that panics ends: its waits end with ErrClosed, the panic is told once, and no lock stays. The
// threads that were inside, which may be of another NIC, go on.
func TestPanicEndsTheNICAlone(t *testing.T) {
	for name, fail := range panicking {
		t.Run(name, func(t *testing.T) {
			told := make(chan *Panic, 8)
			d := openDirectWith(t, 0, func(i int, c *Config) {
				if i == 0 {
					c.Broken = func(p *Panic) { told <- p }
				} else {
					c.Broken = func(p *Panic) { t.Errorf("the other NIC: %v", p) }
				}
			})
			x, y := newNode(t, d[0].Context()), newNode(t, d[1].Context())
			connect(t, x, y)
			waited := make(chan error, 1)
			go func() {
				_, err := d[0].Context().NextAsyncEvent(clock.Never)
				for err == nil { // the fatal event may come first
					_, err = d[0].Context().NextAsyncEvent(clock.Never)
				}
				waited <- err
			}()
			// A thread of the other NIC brings a frame to the one that panics.
			fail(d[0])
			wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{y.mr.SGE(0, 8)}, RemoteAddr: x.mr.Addr(), RKey: x.mr.RKey()}
			must(t, y.qp.PostSend(wr))
			p := <-told
			if p.Value == nil || p.Stack == "" {
				t.Errorf("told %+v", p)
			}
			if err := <-waited; !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("a wait ended with %v", err)
			}
			if !errors.As(d[0].Err(), new(*Panic)) || d[1].Err() != nil {
				t.Errorf("the NICs say %v and %v", d[0].Err(), d[1].Err())
			}
			if err := x.qp.PostSend(wr); !errors.Is(err, verbs.ErrClosed) {
				t.Errorf("a post to the NIC that has ended: %v", err)
			}
			d[1].With(func(e *engine.Engine) {
				if !e.Tables.IsUp() {
					t.Error("the other NIC has ended, too")
				}
			})
			select {
			case p := <-told:
				t.Errorf("told twice: %v", p)
			case <-time.After(10 * time.Millisecond):
			}
		})
	}
}
