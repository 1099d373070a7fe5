package device

import (
	"fmt"
	"runtime/debug"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Panic is the failure of a NIC that has panicked, if other NICs of the process go on (Config.Broken).
type Panic struct {
	Value any
	Stack string // of the thread that was inside the NIC; it may belong to another NIC
}

func (p *Panic) Error() string { return fmt.Sprintf("the NIC panicked: %v", p.Value) }

// ending says how the NIC ends. Its fields but tell are guarded by core.mu.
type ending struct {
	dead    bool         // closed or failed; never reset
	failure error        // why the port became unusable
	tell    func(*Panic) // Config.Broken: what happens when the NIC panics
	planted bool         // see Device.PlantPanic
}

// PlantPanic makes the NIC panic in its next step that handles frames or timers. It is for tests.
func (d *Device) PlantPanic() {
	d.core.mu.Lock()
	d.core.ending.planted = true
	d.core.release()
	d.core.link.waiter.Wake()
}

func (p *ending) testPanic() {
	if p.planted {
		p.planted = false
		panic("planted by a test")
	}
}

// catch, if it is deferred, ends a panic of the NIC. The caller holds mu.
func (c *core) catch() {
	if v := recover(); v != nil {
		c.broke(v)
	}
}

// broke ends a NIC that has panicked with value v. The caller holds mu. What the NIC had to send is
// lost. Its tables may contradict each other, so its end may panic, too.
func (c *core) broke(v any) {
	first := c.ending.failure == nil
	p := &Panic{Value: v, Stack: string(debug.Stack())}
	if first {
		c.ending.failure = p
	}
	func() {
		defer func() { _ = recover() }()
		c.end(c.entered)
	}()
	c.ending.dead = true
	c.out.Reset()
	for _, w := range c.waiters.list { // the check of a condition may be what has panicked
		select {
		case w.result <- verbs.ErrClosed:
		default: // it has its result
		}
	}
	c.waiters.list = nil
	if first {
		go c.ending.tell(p)
	}
}
