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

// ending says how the NIC ends. Its fields but tell are guarded by Device.mu.
type ending struct {
	dead    bool         // closed or failed; never reset
	failure error        // why the port became unusable
	tell    func(*Panic) // Config.Broken: what happens when the NIC panics
	planted bool         // see PlantPanic
}

// PlantPanic makes the NIC panic in its next step that handles frames or timers. It is for tests.
func PlantPanic(d *Device) {
	d.mu.Lock()
	d.planted = true
	d.link.release(&d.mu)
	d.link.waiter.Wake()
}

func (p *ending) testPanic() {
	if p.planted {
		p.planted = false
		panic("planted by a test")
	}
}

// catch, if it is deferred, ends a panic of the NIC. The caller holds mu.
func catch(d *Device) {
	if v := recover(); v != nil {
		broke(d, v)
	}
}

// leaveSafely is leave as a deferred function, after code that may panic.
func leaveSafely(d *Device) {
	if d.tell != nil {
		if v := recover(); v != nil {
			broke(d, v)
		}
	}
	d.leave()
}

// broke ends a NIC that has panicked with value v. The caller holds mu. What the NIC had to send is
// lost. Its tables may contradict each other, so its end may panic, too.
func broke(d *Device, v any) {
	first := d.failure == nil
	p := &Panic{Value: v, Stack: string(debug.Stack())}
	if first {
		d.failure = p
	}
	func() {
		defer func() { _ = recover() }()
		end(d, d.entered)
	}()
	d.dead = true
	d.out.Reset()
	for _, w := range d.waiting { // the check of a condition may be what has panicked
		select {
		case w.result <- verbs.ErrClosed:
		default: // it has its result
		}
	}
	d.waiting = nil
	if first {
		go d.tell(p)
	}
}
